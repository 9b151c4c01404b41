"""Bounds on balls by samples: networks with kinks on their region, and linear networks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import InputError
from thalweg.curvature.balls import BallCentre, largest_moment
from thalweg.curvature.sample_balls import JointCentre, SampleCentre
from thalweg.network import Dense, Tied

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 3))


def problems(outputs):
    if outputs > 1:
        targets = RNG.normal(size=(7, outputs))
        return {
            "square": tw.Regression(X, targets),
            "classes": tw.Classification(X, [0, 1] * 3 + [1]),
        }
    signs = np.resize([0, 1], 7)
    return {name: tw.Classification(X, signs, loss=name) for name in ("logistic", "exponential")}


TIED = Tied([[0, 1, -1], [-1, 0, 1], [2, -1, 2 + 1]])
CASES = {
    "relu, square": (tw.HomogeneousNetwork([3, 4, 3, 2]), problems(2)["square"]),
    "leaky, classes": (
        tw.HomogeneousNetwork([3, 4, 2], slopes=(1.5, -0.4)),
        problems(2)["classes"],
    ),
    "tied, logistic": (tw.SharedNetwork([TIED, Dense(3, 1)], (1.0, 0.3)), problems(1)["logistic"]),
    "relu, exponential": (tw.HomogeneousNetwork([3, 2, 2, 1]), problems(1)["exponential"]),
}


@eqx.filter_jit
def by_samples(objective, weights, radius):
    return SampleCentre.at(objective, weights).bounds(radius)


@eqx.filter_jit
def all_kinds(objective, weights, moment, radius):
    return (
        JointCentre.at(objective, weights, moment).bounds(radius),
        BallCentre.at(objective, weights).bounds(radius),
        BallCentre.at(objective, weights, moment).bounds(radius),
    )


def frozen(objective, centre):
    """The loss with the slopes that the activation has at the centre: its polynomial, anywhere."""
    network, problem = objective.network, objective.problem

    def matrices(flat):
        sizes = np.cumsum([0, *(int(np.prod(shape)) for shape in network.shapes)])
        parts = [
            flat[a:b].reshape(shape)
            for a, b, shape in zip(sizes[:-1], sizes[1:], network.shapes, strict=True)
        ]
        return network.matrices(tuple(parts)) if network.layered else parts

    masks, rows = [], problem.inputs
    for matrix in matrices(centre)[:-1]:
        z = rows @ matrix.T
        masks.append(jnp.where(z > 0, *network.slopes))
        rows = masks[-1] * z

    def loss(flat):
        rows, (*hidden, last) = problem.inputs, matrices(flat)
        for matrix, mask in zip(hidden, masks, strict=True):
            rows = mask * (rows @ matrix.T)
        return problem.output_value(rows @ last.T)

    return loss


@pytest.mark.parametrize("name", CASES)
def test_the_polynomial_of_a_region_obeys_its_bounds_on_balls(name):
    """Oracle: derivatives of the loss with frozen slopes, at random points of the sphere."""
    network, problem = CASES[name]
    objective = tw.Objective(network, problem)
    rng = np.random.default_rng(1)
    size = network.size
    flat = jnp.asarray(0.7 * rng.normal(size=size))
    weights = tuple(_split(flat, network.shapes))
    loss = frozen(objective, flat)
    np.testing.assert_allclose(loss(flat), objective(weights), rtol=1e-12)

    @jax.jit
    def derivatives(point, direction):
        slope, hessian = jax.grad(loss)(point), jax.hessian(loss)(point)
        third = jax.jvp(jax.hessian(loss), (point,), (direction,))[1]
        return jnp.linalg.norm(slope), jnp.linalg.eigvalsh(hessian), jnp.linalg.norm(third, 2)

    for radius in (0.0, 0.3, 1.0):
        ball = by_samples(objective, weights, jnp.asarray(radius))
        for _ in range(8):
            step, direction = (each / np.linalg.norm(each) for each in rng.normal(size=(2, size)))
            slope, values, third = derivatives(flat + radius * step, jnp.asarray(direction))
            room = 1 + 1e-12  # rounding, where a bound is attained
            assert slope <= ball.gradient * room
            assert np.max(np.abs(values)) <= ball.hessian * room
            assert third <= ball.hessian_lipschitz * room
            assert values[0] >= ball.smallest_eigenvalue - 1e-12
            away = ball.central_eigenvalue - radius * ball.eigenvalue_slope
            np.testing.assert_allclose(away, ball.smallest_eigenvalue, rtol=1e-12)
    still = by_samples(objective, weights, jnp.asarray(0.0))
    assert still.hessian < 40 * np.max(np.abs(derivatives(flat, flat)[1]))


def _split(flat, shapes):
    sizes = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    return [p.reshape(s) for p, s in zip(jnp.split(flat, sizes), shapes, strict=True)]


def test_the_bounds_are_attained():
    """f = (a b)^2 / 2 at a = b = 1: |grad| = sqrt 2, |H| = |(1 2; 2 1)| = 3, |D^3 f| = 3 sqrt 2."""
    problem = tw.Regression(np.ones((1, 1)), np.zeros((1, 1)))
    one = (np.ones((1, 1)), np.ones((1, 1)))
    for network in (tw.HomogeneousNetwork([1, 1, 1]), tw.LinearNetwork([1, 1, 1])):
        found = by_samples(tw.Objective(network, problem), one, jnp.asarray(0.0))
        numbers = (found.gradient, found.hessian, found.hessian_lipschitz)
        np.testing.assert_allclose(numbers, [2**0.5, 3.0, 3 * 2**0.5], rtol=1e-12)
        np.testing.assert_allclose(found.smallest_eigenvalue, -1.0, rtol=1e-12)


def test_the_bounds_of_an_exponential_loss_are_attained():
    """f = exp(u) with u = a b at a = b = 1, along a = b, where u' = sqrt 2, u'' = 1, and no more.

    So the derivatives of f are e times u', u'^2 + u'' and u'^3 + 3 u' u''.
    """
    problem = tw.Classification(np.ones((1, 1)), [-1], loss="exponential")
    one = (np.ones((1, 1)), np.ones((1, 1)))
    for network in (tw.HomogeneousNetwork([1, 1, 1]), tw.LinearNetwork([1, 1, 1])):
        found = by_samples(tw.Objective(network, problem), one, jnp.asarray(0.0))
        numbers = (found.gradient, found.hessian, found.hessian_lipschitz)
        exact = np.e * np.array([2**0.5, 3.0, 5 * 2**0.5])
        np.testing.assert_allclose(numbers, exact, rtol=1e-12)


def test_many_features_are_bounded_better_by_samples():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 30))
    problem = tw.Classification(x, np.arange(40) % 3)
    network = tw.LinearNetwork([30, 3, 3])
    objective = tw.Objective(network, problem, weight_decay=0.1)
    weights = tuple(jnp.asarray(0.3 * rng.normal(size=shape)) for shape in network.shapes)
    moment = largest_moment(problem)
    np.testing.assert_allclose(moment, np.linalg.norm(x, 2) ** 2 / 40, rtol=1e-12)
    hessian = jax.jit(lambda point: objective.hessian(point))
    radius = 0.2
    ball, tight, quick = all_kinds(objective, weights, moment, jnp.asarray(radius))
    assert ball.hessian_lipschitz < 0.5 * tight.hessian_lipschitz
    # Where both bounds come from the same term they are equal, up to rounding.
    assert quick.hessian >= (1 - 1e-12) * tight.hessian
    assert quick.hessian_lipschitz >= (1 - 1e-12) * tight.hessian_lipschitz
    here = hessian(weights)
    for _ in range(5):
        step = rng.normal(size=network.size)
        moved = _split(jnp.asarray(radius * step / np.linalg.norm(step)), network.shapes)
        there = hessian(tuple(a + b for a, b in zip(weights, moved, strict=True)))
        values = np.linalg.eigvalsh(there)
        assert values[0] >= ball.smallest_eigenvalue
        assert np.max(np.abs(values)) <= ball.hessian
        assert np.linalg.norm(there - here, 2) <= radius * ball.hessian_lipschitz


def test_a_network_without_samples_in_its_layers_is_refused():
    network = tw.LinearNetwork([2, 2], readout=np.ones(2))
    objective = tw.Objective(network, tw.TargetMatrix(np.ones(2)))
    with pytest.raises(InputError, match="LinearNetwork without a readout, got LinearNetwork"):
        SampleCentre.at(objective, (np.ones((2, 2)),))
