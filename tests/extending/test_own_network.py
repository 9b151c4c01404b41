"""A network of one's own: fully connected with tanh between its layers."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.network import AbstractNetwork


class TanhNetwork(AbstractNetwork):
    """x -> W_N tanh(W_{N-1} ... tanh(W_1 x))."""

    widths: tuple[int, ...] = eqx.field(static=True)

    @property
    def shapes(self):
        return tuple((outputs, inputs) for inputs, outputs in pairwise(self.widths))

    @property
    def features(self):
        return self.widths[0]

    @property
    def outputs(self):
        return self.widths[-1]

    @property
    def smooth(self):
        return True

    def __call__(self, weights, x):
        for matrix in weights[:-1]:
            x = jnp.tanh(x @ matrix.T)
        return x @ weights[-1].T


@pytest.fixture(scope="module")
def problem():
    random = np.random.default_rng(0)
    return tw.Regression(random.normal(size=(12, 3)), random.normal(size=12))


@pytest.fixture(scope="module")
def objective(problem):
    return tw.Objective(TanhNetwork((3, 4, 1)), problem)


@pytest.fixture(scope="module")
def weights(objective):
    return tw.initialisation.gaussian(objective.network, 0.5, key=jax.random.key(0))


def loss(problem, weights):
    """The same in NumPy."""
    outputs = np.tanh(problem.inputs @ np.asarray(weights[0]).T) @ np.asarray(weights[1]).T
    return 0.5 * float(np.mean(np.sum((outputs - problem.targets) ** 2, axis=1)))


def test_descent_and_flow(objective, weights, problem):
    run = tw.descend(objective, weights, learning_rate=0.05, steps=100)
    assert run.loss[-1] == pytest.approx(loss(problem, run.final), rel=1e-12)
    flow = tw.flow(objective, weights, times=run.times)
    assert np.all(tw.distance(run, flow) < 0.1)
    assert flow.loss[-1] < flow.loss[0]


def test_both_ends_of_the_spectrum(objective, weights):
    top = tw.sharpness(objective, weights)
    values = np.linalg.eigvalsh(objective.hessian(weights))
    assert abs(top.value - values[-1]) <= top.error + 1e-10 * abs(values[-1])


def test_critical_learning_rate(objective, weights):
    """Training means here that a tenth of the loss is gone, on average over the last 20 steps."""
    found = tw.critical_learning_rate(objective, weights, steps=200, share=0.9)
    below = tw.descend(objective, weights, learning_rate=found.lower, steps=200)
    above = tw.descend(objective, weights, learning_rate=found.upper, steps=200)
    assert np.mean(below.loss[-20:]) <= 0.9 * below.loss[0]
    assert not np.mean(above.loss[-20:]) <= 0.9 * above.loss[0]


def test_what_needs_more_says_so(objective, weights):
    """Nobody asks for its type: it has declared no linear and no layered form."""
    run = tw.descend(objective, weights, learning_rate=0.05, steps=10)
    with pytest.raises(tw.InputError, match="TanhNetwork"):
        tw.tube(run)
    with pytest.raises(tw.InputError, match="TanhNetwork"):
        tw.flow(objective, weights, time=1.0, validate=True)
    certificates = tw.certify(objective, weights)
    assert "the network is linear" in str(certificates)
