"""The stabilised method by itself: its order, its stability, its spectral radius, its counts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import thalweg as tw
from thalweg.solvers.adaptive import FlatObjective
from thalweg.solvers.chebyshev import (
    ChebyshevStepper,
    chebyshev_shift,
    largest_curvature,
    stages_needed,
)

shift_in_one_call = eqx.filter_jit(chebyshev_shift)
NETWORK = tw.LinearNetwork([2, 2, 1])
START = (jnp.array([[0.6, -0.2], [0.1, 0.5]]), jnp.array([[0.4, 0.7]]))


def flat_case(problem, network=NETWORK, weights=START):
    point, unravel = ravel_pytree(weights)
    return FlatObjective(tw.Objective(network, problem), unravel), point


def quadratic(curvatures):
    """A network of one layer, whose loss is quadratic with these curvatures."""
    x = np.sqrt(len(curvatures)) * np.diag(np.sqrt(curvatures))
    problem = tw.Regression(x, np.zeros(len(curvatures)))
    network = tw.LinearNetwork([len(curvatures), 1])
    return flat_case(problem, network, (jnp.ones((1, len(curvatures))),))


@pytest.mark.parametrize("stages", [2, 5, 20])
def test_order_is_two(stages):
    """Oracle: the same flow with steps far shorter; regression over four halvings."""
    objective, start = flat_case(tw.TargetMatrix([[0.3, -0.9]]))
    step = jax.jit(
        lambda point, h: (
            point
            + chebyshev_shift(objective, point, -objective.gradient(point), h, jnp.asarray(stages))
        )
    )

    def follow(steps):
        point = start
        for _ in range(steps):
            point = step(point, jnp.asarray(1.0 / steps))
        return np.asarray(point)

    counts = np.array([8, 16, 32, 64])
    reference = follow(1024)  # its error is 1/256 of the smallest one compared
    errors = [np.linalg.norm(follow(count) - reference) for count in counts]
    order = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert order == pytest.approx(2, abs=0.1)  # the next term of the error is a power of h smaller


@pytest.mark.parametrize("stages", [2, 3, 10, 100])
def test_steps_are_stable_as_far_as_promised(stages):
    """On a quadratic every component must shrink, for h rho up to what needs these stages."""
    curvatures = np.linspace(0.01, 1.0, 50)
    objective, start = quadratic(curvatures)
    reach = ((stages - 1) ** 2 - 1) / 1.54 if stages > 2 else 1.9
    assert stages_needed(jnp.asarray(0.999 * reach)) <= stages
    shift = shift_in_one_call(
        objective, start, -objective.gradient(start), jnp.asarray(reach), jnp.asarray(stages)
    )
    assert np.all(np.abs(start + shift) < 1)


def test_many_stages_are_as_accurate_as_few():
    """Oracle: exp(-h); rounding grows like stages^2 eps only."""
    objective, start = quadratic([1.0, 1e-3])
    moved = {
        stages: start
        + shift_in_one_call(
            objective, start, -objective.gradient(start), jnp.asarray(1e-2), jnp.asarray(stages)
        )
        for stages in (2, 1000)
    }
    # of order 2, with an error h^3 / 15 = 7e-8 of the larger component
    for point in moved.values():
        np.testing.assert_allclose(point, np.exp(-1e-2 * np.array([1.0, 1e-3])), atol=2e-7)


def test_error_estimate_is_of_third_order():
    """Halving the step divides the estimate of one step by 8."""
    objective, start = flat_case(tw.TargetMatrix([[0.3, -0.9]]))
    method = ChebyshevStepper(objective=objective, rtol=jnp.asarray(1e-6))
    local, _ = method.linearise(start)
    sizes = [
        np.linalg.norm(method.attempt(local, start, jnp.asarray(h))[0].error) for h in (0.02, 0.01)
    ]
    assert sizes[0] / sizes[1] == pytest.approx(8, rel=0.05)  # the next term is a part h of this


def test_dense_output_meets_both_ends():
    objective, start = flat_case(tw.TargetMatrix([[0.3, -0.9]]))
    method = ChebyshevStepper(objective=objective, rtol=jnp.asarray(1e-6))
    local, _ = method.linearise(start)
    trial, _ = method.attempt(local, start, jnp.asarray(0.1))

    def between(s):
        return method.between(local, start, trial, s)

    ends = (jnp.asarray(0.0), jnp.asarray(1.0))
    np.testing.assert_allclose(between(ends[0]), start, atol=1e-15)  # rounding, as below
    np.testing.assert_allclose(between(ends[1]), trial.point, atol=1e-15)
    for end, point in zip(ends, (start, trial.point), strict=True):
        slope = jax.jvp(between, (end,), (jnp.asarray(1.0),))[1]
        np.testing.assert_allclose(slope, -0.1 * objective.gradient(point), atol=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_largest_curvature_is_near_the_spectral_radius(seed):
    """Oracle: the dense Hessian; from below, and near enough for the margin of 1.2."""
    rng = np.random.default_rng(seed)
    network = tw.LinearNetwork([5, 4, 3])
    weights = tuple(jnp.asarray(rng.normal(size=shape)) for shape in network.shapes)
    objective, point = flat_case(tw.TargetMatrix(rng.normal(size=(3, 5))), network, weights)
    found, _, count = eqx.filter_jit(largest_curvature)(
        objective, point, objective.gradient(point), 50
    )
    radius = np.abs(np.linalg.eigvalsh(objective.hessian(point))).max()
    assert radius / 1.2 < found <= radius * (1 + 1e-12)
    assert 2 <= count <= 50


def test_a_flat_point_has_no_curvature_and_does_no_harm():
    network = tw.LinearNetwork([2, 2, 2, 1])
    zeros = tuple(jnp.zeros(shape) for shape in network.shapes)
    objective, point = flat_case(tw.TargetMatrix([[1.0, 0.0]]), network, zeros)
    local, _ = ChebyshevStepper(objective=objective, rtol=jnp.asarray(1e-6)).linearise(point)
    assert 0 < local.curvature < 1e-300
