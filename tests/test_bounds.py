"""Bounds on the Hessian: that they hold, that they are attained, and numbers from elsewhere."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

import oracles
import strategies
import thalweg as tw
from thalweg._checks import InputError
from thalweg.curvature.balls import ball_bounds, loss_bounds
from thalweg.curvature.bounds import (
    flow_eigenvalue_bound,
    gradient_norm_bounds,
    hessian_norm_bounds,
    shallow_eigenvalue_bound,
    smallest_eigenvalue_bounds,
)
from thalweg.curvature.forms import linear_hessian
from thalweg.network import Convolution, Dense, SharedNetwork

# A bound is compared with an eigenvalue that has been rounded, relative to the largest, in a few
# hundred operations.
ROUNDING = 1e-12

# There are many kinds, and each compiles: a few examples of each.
few = settings(max_examples=max(3, settings.default.max_examples // 5))


def alternating(*networks):
    """Every problem, with these networks in turn."""
    chosen = [
        next(
            kind for kind in strategies.KINDS if kind[:2] == (networks[i % len(networks)], problem)
        )
        for i, problem in enumerate(strategies.PROBLEMS)
    ]
    return pytest.mark.parametrize("kind", chosen, ids=lambda kind: f"{kind[0]} on {kind[1]}")


# Compilation is what these tests cost, so XLA is told not to optimise: the arithmetic is the same.
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@compiled
def spectrum(objective, weights):
    return jnp.linalg.eigvalsh(objective.hessian(weights))


lower = compiled(smallest_eigenvalue_bounds)


# --- the smallest eigenvalue ---------------------------------------------------------------------


@alternating("linear", "homogeneous", "shared", "linear with readout")
@few
@given(spec=strategies.SPECS)
def test_the_smallest_eigenvalue_is_above_its_bounds(kind, spec):
    case = strategies.case(kind, spec)
    values = spectrum(case.objective, case.weights)
    bounds = lower(case.objective, case.weights)
    slack = ROUNDING * jnp.max(jnp.abs(values))
    assert bounds.paper <= bounds.sharper + slack
    assert bounds.sharper <= values[0] + slack


def test_the_bound_of_the_small_linear_example():
    """elkabetz2021:lem7 with twelve digits."""
    objective = tw.Objective(tw.LinearNetwork([2, 2, 2, 1]), tw.TargetMatrix([1.0, 0.0]))
    bounds = lower(objective, oracles.elkabetz_weights())
    np.testing.assert_allclose(bounds, [-4.257346591482, -3.185316642391], rtol=1e-12)


def test_the_bound_of_the_small_leaky_example():
    """elkabetz2021:lem11 with twelve digits."""
    network = tw.HomogeneousNetwork([2, 2, 2, 1], (1.0, 0.2))
    problem = tw.Regression([[1.0, 2.0], [1.0, -2.0]], [1.0, -1.0])
    objective = tw.Objective(network, problem)
    weights = oracles.elkabetz_weights()
    np.testing.assert_allclose(spectrum(objective, weights)[0], -4.056005334709, rtol=1e-12)
    bounds = lower(objective, weights)
    np.testing.assert_allclose(bounds.paper, -10.323759005324, rtol=1e-12)


def test_the_bound_of_the_small_convolutional_example():
    """elkabetz2021:lem23 on two convolutions of width 2 and a dense layer, with twelve digits."""
    network = SharedNetwork(
        [Convolution(1, 1, (1, 2), (1, 4)), Convolution(1, 1, (1, 2), (1, 3)), Dense(2, 1)],
        (1.0, 0.2),
    )
    x = [[1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 1.0, -2.0]]
    objective = tw.Objective(network, tw.Regression(x, [1.0, 0.0]))
    weights = (
        jnp.array([[[[1.0, -0.4]]]]),
        jnp.array([[[[0.5, 1.0]]]]),
        jnp.array([[1.0, 2.0]]),
    )
    np.testing.assert_allclose(network(weights, jnp.asarray(x))[:, 0], [4.5, 3.484], rtol=1e-14)
    np.testing.assert_allclose(np.square(network.operator_norms), [3, 2, 1], rtol=1e-15)
    np.testing.assert_allclose(spectrum(objective, weights)[0], -14.502766337502, rtol=1e-12)
    bounds = lower(objective, weights)
    np.testing.assert_allclose(bounds.paper, -151.742765001656, rtol=1e-12)
    assert bounds.sharper > bounds.paper


@pytest.mark.parametrize("size", [1e-3, 1e-6])
def test_scalar_chains_attain_the_bound(size):
    """Three small scalars: H is nearly -2 size times the matrix of ones less the identity."""
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1, 1]), tw.TargetMatrix([1.0]))
    weights = (jnp.full((1, 1), size),) * 3
    smallest = spectrum(objective, weights)[0]
    for bound in lower(objective, weights):
        # The loss's own curvature is of fourth order in the size, and so is the gap.
        np.testing.assert_allclose(bound, smallest, rtol=10 * size**3 + 1e-15)


@pytest.mark.parametrize(
    "network",
    [
        tw.LinearNetwork([3, 4, 1], readout=[0.3]),
        tw.HomogeneousNetwork([3, 4, 1], (1.0, -2.0)),
        SharedNetwork([Convolution(1, 2, (1, 2), (1, 3)), Dense(4, 1)], (0.5, 1.5)),
    ],
)
@given(seed=st.integers(0, 2**31 - 1), size=st.floats(0.01, 30.0))
def test_two_layers_are_bounded_below_at_all_weights(network, seed, size):
    """elkabetz2021:claim27, claim28 and claim29, for the logistic loss."""
    random = np.random.default_rng(seed)
    x, labels = random.standard_normal((7, 3)), random.integers(0, 2, 7)
    problem = tw.Classification(x, labels, loss="logistic")
    objective = tw.Objective(network, problem)
    weights = strategies.gaussians(network.shapes, size, random)
    values = spectrum(objective, weights)
    bound = shallow_eigenvalue_bound(objective)
    assert bound <= lower(objective, weights).paper
    assert bound <= values[0] + ROUNDING * jnp.max(jnp.abs(values))


def test_the_bound_at_all_weights_needs_its_assumptions():
    x, labels = np.eye(3), [0, 1, 2]
    deep = tw.Objective(tw.LinearNetwork([3, 3, 3, 3]), tw.Classification(x, labels))
    with pytest.raises(InputError, match="needs two layers, got 3"):
        shallow_eigenvalue_bound(deep)
    square = tw.Objective(tw.LinearNetwork([3, 3, 3]), tw.TargetMatrix(x))
    with pytest.raises(InputError, match="bounded gradient"):
        shallow_eigenvalue_bound(square)
    tanh = tw.Model(lambda w, x: jnp.tanh(x @ w[0].T), [(3, 3)], 3, 3)
    with pytest.raises(InputError, match="got Model"):
        smallest_eigenvalue_bounds(tw.Objective(tanh, tw.TargetMatrix(x)), (jnp.eye(3),))


# --- along a flow --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "radius"),
    [
        (tw.LinearNetwork([4, 3, 2]), 0.25),
        (tw.LinearNetwork([4, 4, 3, 2]), 0.02),
        (tw.HomogeneousNetwork([4, 4, 3, 2], (1.0, 0.3)), 0.5),
        (SharedNetwork([Convolution(1, 2, (1, 2), (1, 4)), Dense(6, 2)], (1.0, 0.3)), 0.5),
    ],
)
def test_the_bound_along_a_flow_from_near_zero(network, radius):
    """elkabetz2021:prop8, prop12 and prop24, along descent with steps too small to matter."""
    random = np.random.default_rng(0)
    x, y = random.standard_normal((9, 4)), random.standard_normal((9, 2))
    objective = tw.Objective(network, tw.Regression(x, y))
    start = strategies.gaussians(network.shapes, 1.0, random)
    factor = radius / np.linalg.norm(ravel_pytree(start)[0])
    weights = tuple(factor * array for array in start)
    run = tw.descend(objective, weights, learning_rate=0.005, steps=4000, record_every=500)
    points = tuple(jnp.asarray(array) for array in run.weights)

    @compiled
    @jax.vmap
    def both(point):
        values = jnp.linalg.eigvalsh(objective.hessian(point))
        return flow_eigenvalue_bound(objective, point, radius), values[0]

    bounds, smallest = both(points)
    # The bounds are far from attained here, and descent is off by about the learning rate.
    assert jnp.all(bounds <= smallest)


def test_the_bound_along_a_flow_by_hand():
    """Scalars: G = w^3 - 1, so the bound is -2 |G| (w + 12 12^{-2/3} max(1, w)^2 eps^{1/3})."""
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1, 1]), tw.TargetMatrix([1.0]))
    expected = -2 * (1 - 0.5**3) * (0.5 + 12 ** (1 / 3) * 0.1 ** (1 / 3))
    bound = flow_eigenvalue_bound(objective, (jnp.full((1, 1), 0.5),) * 3, 0.1)
    np.testing.assert_allclose(bound, expected, rtol=1e-14)  # ten operations


def test_the_bound_along_a_flow_needs_its_assumptions():
    network, problem = tw.LinearNetwork([2, 2, 1]), tw.TargetMatrix([1.0, 0.0])
    weights = (jnp.eye(2), jnp.ones((1, 2)))
    with pytest.raises(InputError, match=r"at most 1 / \(2 depth\) = 0.25"):
        flow_eigenvalue_bound(tw.Objective(network, problem), weights, 0.3)
    with pytest.raises(InputError, match=r"no weight decay.*got 0\.1"):
        flow_eigenvalue_bound(tw.Objective(network, problem, weight_decay=0.1), weights, 0.2)
    single = tw.Objective(tw.LinearNetwork([2, 1]), problem)
    with pytest.raises(InputError, match="at least two layers"):
        flow_eigenvalue_bound(single, (jnp.ones((1, 2)),), 0.2)


# --- norms, at a point and on a ball -------------------------------------------------------------


@compiled
def on_the_ball(objective, weights, radius, directions):
    """Norms of gradient and Hessian at the centre, and the largest at the ends of steps.

    With those at the ends go the norm of the Hessian's derivative, and minus its least eigenvalue.
    """
    flat, unravel = ravel_pytree(weights)

    def hessian(point):
        return linear_hessian(objective, unravel(point))

    def slope(point):
        return jnp.linalg.norm(ravel_pytree(objective.gradient(unravel(point)))[0])

    def at(direction):
        unit = direction / jnp.linalg.norm(direction)
        point = flat + radius * unit
        values = jnp.linalg.eigvalsh(hessian(point))
        change = jax.jvp(hessian, (point,), (unit,))[1]
        secant = (hessian(point) - hessian(flat - radius / 2 * unit)) / (1.5 * radius)
        steepest = jnp.maximum(spectral(change), spectral(secant))
        return slope(point), jnp.maximum(values[-1], -values[0]), steepest, -values[0]

    ends = jax.tree.map(jnp.max, jax.lax.map(at, directions))
    return (slope(flat), spectral(hessian(flat))), ends


@compiled
def all_bounds(objective, weights, radius):
    return (
        gradient_norm_bounds(objective, weights),
        hessian_norm_bounds(objective, weights),
        ball_bounds(objective, weights, 0.0),
        ball_bounds(objective, weights, radius),
    )


def spectral(matrix):
    return jnp.max(jnp.abs(jnp.linalg.eigvalsh(matrix)))


bounds_of_ball = compiled(ball_bounds)
bounds_of_loss = compiled(loss_bounds)


@alternating("linear", "linear with readout")
@few
@given(spec=strategies.SPECS, radius=st.floats(1e-3, 1.0))
def test_derivatives_are_below_their_bounds(kind, spec, radius):
    """elkabetz2021:lem62 for any loss at the centre, and the bounds on a ball."""
    case = strategies.case(kind, spec)
    random = np.random.default_rng(spec.seed)
    flat = ravel_pytree(case.weights)[0]
    uphill = ravel_pytree(case.objective.gradient(case.weights))[0]
    directions = jnp.stack([flat, uphill, *random.standard_normal((4, flat.size))])
    centre, ends = on_the_ball(case.objective, case.weights, radius, directions)
    first, second, here, bounds = all_bounds(case.objective, case.weights, radius)
    # Norms of products are never above products of norms.
    for truth, best, (printed, sharper) in (
        (centre[0], here.gradient, first),
        (centre[1], here.hessian, second),
    ):
        assert truth <= best * (1 + ROUNDING)
        assert best <= sharper * (1 + ROUNDING)
        assert sharper <= printed * (1 + ROUNDING)
    # The secant is a difference of Hessians over a distance that may be 10^-3.
    assert ends[0] <= bounds.gradient * (1 + ROUNDING)
    assert ends[1] <= bounds.hessian * (1 + ROUNDING)
    assert ends[2] <= bounds.hessian_lipschitz + 1e3 * ROUNDING * bounds.hessian
    assert ends[3] <= -bounds.smallest_eigenvalue + ROUNDING * bounds.hessian


def test_scalar_chains_attain_the_bounds_at_a_point():
    """Equal scalars: every estimate is an equality, the third derivative's along (1, 1, 1, 1)."""
    objective = tw.Objective(tw.LinearNetwork([1] * 5), tw.TargetMatrix([0.7]))
    weights = (jnp.full((1, 1), 1.3),) * 4
    exact = bounds_of_ball(objective, weights, 0.0)
    flat, unravel = ravel_pytree(weights)
    slope = jnp.linalg.norm(jax.grad(lambda point: objective(unravel(point)))(flat))
    np.testing.assert_allclose(exact.gradient, slope, rtol=1e-13)  # some ten operations each
    np.testing.assert_allclose(exact.hessian, spectrum(objective, weights)[-1], rtol=1e-13)
    # f = (w^4 - t)^2 / 2 on the diagonal, where w moves by half of what the weights do.
    w, target = 1.3, 0.7
    third = (8 * 7 * 6 * w**5 - 2 * target * 4 * 3 * 2 * w) / 2 / 8
    np.testing.assert_allclose(exact.hessian_lipschitz, third, rtol=1e-13)


@pytest.mark.parametrize("loss", ["cross_entropy", "logistic", "exponential"])
@given(seed=st.integers(0, 2**31 - 1), size=st.floats(0.01, 20.0), reach=st.floats(0.0, 2.0))
def test_the_derivatives_of_classification_losses_are_bounded(loss, seed, size, reach):
    random = np.random.default_rng(seed)
    outputs = 3 if loss == "cross_entropy" else 1
    labels = random.integers(0, outputs if outputs > 1 else 2, 5)
    x = random.standard_normal((5, 2))
    problem = tw.Classification(x, labels, classes=max(outputs, 2), loss=loss)
    centre = jnp.asarray(size * random.standard_normal((outputs, 2)))
    bounds = bounds_of_loss(problem, centre, reach)
    for _ in range(3):
        step = random.standard_normal((outputs, 2))
        matrix = centre + reach * step / np.linalg.norm(step)
        along = jnp.asarray(random.standard_normal((outputs, 2)))
        along /= jnp.linalg.norm(along)
        second, third = loss_along(problem, matrix, along)
        assert second <= bounds.second * (1 + ROUNDING)
        # Third derivatives cancel where the softmax is one-sided: the scale is then the second's.
        assert abs(third) <= bounds.third * (1 + ROUNDING) + 1e-15 * bounds.second


@compiled
def loss_along(problem, matrix, direction):
    """The second and third derivative of the loss along a direction."""

    def second(step):
        moved = matrix + step * direction
        return jnp.sum(direction * problem.hessian_action(moved, direction))

    return jax.jvp(second, (0.0,), (1.0,))


def test_two_classes_attain_the_third_derivative():
    """p = (1 +- 1/sqrt(3)) / 2 makes the third moment largest, along (1, -1) / sqrt(2)."""
    chance = (1 + 1 / np.sqrt(3)) / 2
    problem = tw.Classification([[1.0]], [0], classes=2)
    centre = jnp.array([[np.log(chance / (1 - chance))], [0.0]])
    along = jnp.array([[1.0], [-1.0]]) / np.sqrt(2)
    second, third = loss_along(problem, centre, along)
    bounds = bounds_of_loss(problem, centre, 0.0)
    np.testing.assert_allclose(bounds.second, second, rtol=1e-14)  # two classes: an equality
    np.testing.assert_allclose(bounds.third, abs(third), rtol=1e-13)
    np.testing.assert_allclose(bounds.third, np.sqrt(2) / (3 * np.sqrt(3)), rtol=1e-14)


def test_the_bounds_on_a_ball_refuse_bad_input():
    objective = tw.Objective(tw.LinearNetwork([2, 1]), tw.TargetMatrix([1.0, 0.0]))
    with pytest.raises(InputError, match=r"`radius` must be a number >= 0, got -1"):
        ball_bounds(objective, (jnp.ones((1, 2)),), -1.0)
    relu = tw.Objective(tw.HomogeneousNetwork([2, 1]), tw.TargetMatrix([1.0, 0.0]))
    with pytest.raises(InputError, match="`ball_bounds` needs a LinearNetwork"):
        ball_bounds(relu, (jnp.ones((1, 2)),), 1.0)
