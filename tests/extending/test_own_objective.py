"""An objective of one's own: any function of any pytree of weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.objective import AbstractObjective


class MatrixSensing(AbstractObjective):
    """f(U, V) = mean_i (<A_i, U V^T> - y_i)^2 / 4, for weights in a dictionary."""

    sensors: jax.Array
    values: jax.Array
    rank: int = eqx.field(static=True)

    def __call__(self, weights):
        product = weights["left"] @ weights["right"].T
        seen = jnp.einsum("nij,ij->n", self.sensors, product)
        return jnp.mean((seen - self.values) ** 2) / 4


@pytest.fixture(scope="module")
def objective():
    random = np.random.default_rng(0)
    sensors, target = random.normal(size=(30, 4, 3)), random.normal(size=(4, 3))
    values = np.einsum("nij,ij->n", sensors, target)
    return MatrixSensing(jnp.asarray(sensors), jnp.asarray(values), 2)


@pytest.fixture(scope="module")
def weights():
    random = np.random.default_rng(1)
    return {"left": random.normal(size=(4, 2)), "right": random.normal(size=(3, 2))}


def gradient(objective, weights):
    """The same by hand, in NumPy."""
    sensors, values = np.asarray(objective.sensors), np.asarray(objective.values)
    left, right = weights["left"], weights["right"]
    missed = np.einsum("nij,ij->n", sensors, left @ right.T) - values
    slope = np.einsum("n,nij->ij", missed, sensors) / (2 * values.size)
    return {"left": slope @ right, "right": slope.T @ left}


def test_descent_keeps_the_structure_of_the_weights(objective, weights):
    run = tw.descend(objective, weights, learning_rate=0.05, steps=50)
    point = {name: array.copy() for name, array in weights.items()}
    for _ in range(50):
        slopes = gradient(objective, point)
        point = {name: point[name] - 0.05 * slopes[name] for name in point}
    for name in weights:
        np.testing.assert_allclose(run.final[name], point[name], rtol=1e-11)
        assert run.weights[name].shape == (51, *weights[name].shape)


def test_the_flow_and_the_distance_to_it(objective, weights):
    run = tw.descend(objective, weights, learning_rate=0.01, steps=100)
    flow = tw.flow(objective, weights, times=run.times)
    gap = tw.distance(run, flow)
    assert gap[0] == 0
    assert 0 < gap[-1] < 0.1


def test_both_ends_of_the_spectrum(objective, weights):
    values = np.linalg.eigvalsh(objective.hessian(weights))
    top, low = tw.sharpness(objective, weights), tw.smallest_eigenvalue(objective, weights)
    slack = 1e-9 * abs(values).max()  # of the dense eigenvalues
    assert abs(top.value - values[-1]) <= top.error + slack
    assert abs(low.value - values[0]) <= low.error + slack


def test_critical_learning_rate(objective, weights):
    """Training means here that half of the loss is gone, on average over the last 30 steps."""
    found = tw.critical_learning_rate(objective, weights, steps=300, share=0.5, minimum=0.0)
    below = tw.descend(objective, weights, learning_rate=found.lower, steps=300)
    above = tw.descend(objective, weights, learning_rate=found.upper, steps=300)
    assert np.mean(below.loss[-30:]) <= 0.5 * below.loss[0]
    assert not np.mean(above.loss[-30:]) <= 0.5 * above.loss[0]
