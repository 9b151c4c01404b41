"""The sharpness of minimisers: bounds that hold and are attained, and marion2024's numbers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import oracles
import strategies
import thalweg as tw
from thalweg._checks import InputError
from thalweg.curvature.forms import reduced_sharpness
from thalweg.curvature.minimisers import (
    balanced_sharpness,
    layerwise_sharpness_bounds,
    least_sharpness,
    minimiser_sharpness_bounds,
    posterior_sharpness_bound,
    small_start_sharpness_bounds,
)
from thalweg.curvature.products import partial_products

# Compilation is what these tests cost, so XLA is told not to optimise: the arithmetic is the same.
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
every_bound, layerwise, posterior, small_start, balanced = map(
    compiled,
    (
        minimiser_sharpness_bounds,
        layerwise_sharpness_bounds,
        posterior_sharpness_bound,
        small_start_sharpness_bounds,
        balanced_sharpness,
    ),
)


def minimiser(objective, weights):
    """The weights with the first layer changed by the least that makes them a minimiser."""
    rest = partial_products(objective.network, weights)[0][0][0]  # of the layers after the first
    missing = objective.problem.minimiser[0] - weights[0].T @ rest
    return (weights[0] + jnp.outer(rest, missing) / (rest @ rest), *weights[1:])


def chain(objective, first_norm):
    """Aligned matrices of rank one with this norm of the first and one norm of all others."""
    network, solution = objective.network, objective.problem.minimiser[0]
    size = float(jnp.linalg.norm(solution))
    readout = np.ones(1) if network.readout is None else np.asarray(network.readout)[:, 0]
    length = np.linalg.norm(readout)
    other = (size / (length * first_norm)) ** (1 / max(network.depth - 1, 1))
    ends = [np.asarray(solution) / size]
    ends += [np.eye(width)[0] for width in network.widths[1:-1]] + [readout / length]
    norms = [first_norm] + [other] * (network.depth - 1)
    return tuple(
        jnp.asarray(norm * np.outer(after, before))
        for norm, before, after in zip(norms, ends[:-1], ends[1:], strict=True)
    )


def data_a():
    """The deterministic data A on widths 3-4-2-1, and a minimiser."""
    x, y = oracles.marion_data_a()
    objective = tw.Objective(tw.LinearNetwork([3, 4, 2, 1]), tw.Regression(x, y, scale=1.0))
    return objective, minimiser(objective, oracles.marion_weights([3, 4, 2, 1], 0.7, 0.0))


def data_b(depth, scale=1.0):
    """The deterministic data B on a network of width 4."""
    x, y = oracles.marion_data_b()
    network = tw.LinearNetwork([3] + [4] * (depth - 1) + [1])
    return tw.Objective(network, tw.Regression(x, y, scale=scale))


# --- numbers -------------------------------------------------------------------------------------


def test_the_bounds_at_one_minimiser():
    """All that marion2024's check on data A gives, to its fourteen digits."""
    objective, weights = data_a()
    rounding = {"rtol": 1e-13}
    norms = [np.linalg.norm(layer) for layer in weights]
    expected = [1.6305152428578156, 1.294015348338185, 0.7886156100720169]
    np.testing.assert_allclose(norms, expected, **rounding)
    np.testing.assert_allclose(
        every_bound(objective),
        [0.06768597832703165, 0.3638323973073753, 0.3841826438692968],
        **rounding,
    )
    np.testing.assert_allclose(
        layerwise(objective, weights),
        [0.03092496370593263, 0.16623093822195, 0.0834895893072686],
        **rounding,
    )


@pytest.mark.parametrize("factor", [1, 10, 100, 1000])
def test_the_bounds_of_rescaled_minimisers(factor):
    """The paper's bound grows like the factor, that with inverse squares like its square."""
    objective, (first, second, third) = data_a()
    weights = (factor * first, second / factor, third)
    sharpness = reduced_sharpness(objective, weights)
    bounds = layerwise(objective, weights)
    one_layer = 0.00900422927975896 * factor  # the part of the layer that shrinks
    assert one_layer <= bounds.paper <= sharpness
    assert sharpness <= posterior(objective, weights)
    if factor >= 100:  # the other layers' parts have faded
        np.testing.assert_allclose(bounds.paper, one_layer, rtol=2 / factor)
        assert bounds.inverse_squares >= 1e-3 * factor**2


@pytest.mark.parametrize(
    ("depth", "paper", "moment", "stronger", "least", "first_norm", "at_balance"),
    [
        (2, 0.740591, 2.601028, 3.279090, 3.420296, 1.4409, 3.634882),
        (3, 1.271486, 4.465584, 5.211353, 5.303582, 1.3862, 5.537729),
        (5, 2.360881, 8.291643, 9.096701, 9.151941, 1.3381, 9.395070),
        (10, 5.120227, 17.982736, 18.835512, 18.863275, 1.3001, 19.109348),
    ],
)
def test_the_table_of_depths(depth, paper, moment, stronger, least, first_norm, at_balance):
    """marion2024's data B; six decimals are given, and four of the first layer's norm."""
    objective = data_b(depth)
    np.testing.assert_allclose(every_bound(objective), [paper, moment, stronger], atol=5e-7)
    np.testing.assert_allclose(balanced(objective), at_balance, atol=5e-7)
    flattest = least_sharpness(objective)
    np.testing.assert_allclose(flattest.sharpness, least, atol=5e-7)
    np.testing.assert_allclose(flattest.first_norm, first_norm, atol=5e-5)
    # The bounds for small starts: 8 L M |w|^{2 - 2/L}, and 4^{1 - 1/L} in place of 4.
    norm, largest = 1.4994290130365124, 0.8892190229713042
    expected = 8 * depth * largest * norm ** (2 - 2 / depth)
    upper = small_start(objective)
    np.testing.assert_allclose(upper.paper, expected, rtol=1e-12)
    np.testing.assert_allclose(upper.sharper, expected / 4 ** (1 / depth), rtol=1e-12)
    assert at_balance <= upper.sharper


# --- properties ----------------------------------------------------------------------------------


def regressions(depth, readout, seed, scale, samples):
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((samples, 3)), random.standard_normal(samples)
    direction = random.standard_normal(2)
    fixed = None if readout is None else readout * direction / np.linalg.norm(direction)
    last = 1 if readout is None else 2
    network = tw.LinearNetwork([3] + [2] * (depth - 1) + [last], fixed)
    objective = tw.Objective(network, tw.Regression(x, y, scale=scale))
    return objective, strategies.gaussians(network.shapes, 1.0, random)


drawn = {
    "seed": st.integers(0, 2**31 - 1),
    "scale": st.floats(0.1, 3.0),
    "samples": st.sampled_from([2, 8]),  # with two the input moment is singular
}


@pytest.mark.parametrize(("depth", "readout"), [(1, 0.2), (2, None), (4, 0.2), (4, 3.0)])
@given(**drawn)
def test_every_minimiser_is_within_its_bounds(depth, readout, seed, scale, samples):
    objective, weights = regressions(depth, readout, seed, scale, samples)
    weights = minimiser(objective, weights)
    # Where the upper layers nearly cancel the first is huge, and the product only nearly right.
    assume(jnp.linalg.norm(weights[0]) < 1e4)
    sharpness = reduced_sharpness(objective, weights)
    slack = 1 + 1e-9  # the product of layers up to 10^4 is the solution to twelve digits
    bounds, own = every_bound(objective), layerwise(objective, weights)
    assert bounds.paper <= bounds.moment * slack
    assert bounds.moment <= bounds.sharper * slack
    flattest = least_sharpness(objective).sharpness
    assert bounds.sharper <= flattest * slack
    assert flattest <= sharpness * slack
    assert own.paper <= own.moment * slack
    assert max(own.moment, own.inverse_squares) <= sharpness * slack
    assert sharpness <= posterior(objective, weights) * slack


@pytest.mark.parametrize(("depth", "readout"), [(1, 0.2), (2, None), (4, 0.2)])
@given(**drawn)
def test_chains_attain_the_least_and_the_balanced_sharpness(depth, readout, seed, scale, samples):
    objective, _ = regressions(depth, readout, seed, scale, samples)
    flattest = least_sharpness(objective)
    attained = reduced_sharpness(objective, chain(objective, float(flattest.first_norm)))
    np.testing.assert_allclose(attained, flattest.sharpness, rtol=1e-10)  # a dozen roundings
    length = 1.0 if readout is None else readout
    equal = (float(jnp.linalg.norm(objective.problem.minimiser)) / length) ** (1 / depth)
    at_balance = reduced_sharpness(objective, chain(objective, equal))
    np.testing.assert_allclose(at_balance, balanced(objective), rtol=1e-10)
    assert flattest.sharpness <= at_balance * (1 + 1e-12)


@pytest.mark.parametrize("depth", [1, 2, 6])
def test_balanced_chains_on_white_data_attain_every_bound(depth):
    problem = tw.TargetMatrix([1.2, -0.4, 2.0])
    objective = tw.Objective(tw.LinearNetwork([3] * depth + [1]), problem)
    size = float(jnp.linalg.norm(problem.minimiser))
    weights = chain(objective, size ** (1 / depth))
    sharpness = reduced_sharpness(objective, weights)
    attained = [
        *every_bound(objective),
        *layerwise(objective, weights),
        posterior(objective, weights),
        balanced(objective),
        least_sharpness(objective).sharpness,
    ]
    np.testing.assert_allclose(attained, sharpness, rtol=1e-12)  # a dozen roundings


@pytest.mark.parametrize(("depth", "printed", "sharpness"), [(1, 2.0, 0.02), (2, 4.0, 0.4)])
def test_the_printed_bound_is_false_for_short_readouts(depth, printed, sharpness):
    """marion2024:thm2 without the readout's norm, at x = y = 1 with the readout 1/10."""
    problem = tw.Regression([[1.0]], [1.0], scale=1.0)
    objective = tw.Objective(tw.LinearNetwork([1] * (depth + 1), readout=[0.1]), problem)
    weights = (jnp.full((1, 1), 10 ** (1 / depth)),) * depth
    found = reduced_sharpness(objective, weights)
    np.testing.assert_allclose(found, sharpness, rtol=1e-14)
    bare = tw.Objective(tw.LinearNetwork([1] * (depth + 1)), problem)
    np.testing.assert_allclose(every_bound(bare).paper, printed, rtol=1e-14)
    assert found < printed
    np.testing.assert_allclose(every_bound(objective).paper, sharpness, rtol=1e-14)
    np.testing.assert_allclose(layerwise(objective, weights).paper, sharpness, rtol=1e-14)
    # Without the readout's factor the layerwise bound is false, too.
    assert layerwise(objective, weights).paper / 0.1 ** (1 / depth) > found


def test_the_loss_scale_scales_everything():
    _, weights = data_a()
    one, half = data_b(3), data_b(3, scale=0.5)
    for function in (every_bound, small_start, balanced):
        np.testing.assert_allclose(function(one), 2 * np.asarray(function(half)), rtol=1e-14)
    for function in (layerwise, posterior):
        layers = (weights[0], jnp.ones((4, 4)), jnp.ones((1, 4)))
        np.testing.assert_allclose(
            function(one, layers), 2 * np.asarray(function(half, layers)), rtol=1e-14
        )
    np.testing.assert_allclose(
        least_sharpness(one).sharpness, 2 * least_sharpness(half).sharpness, rtol=1e-12
    )


def test_a_solution_of_zero_has_bounds_of_zero():
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1]), tw.TargetMatrix([0.0]))
    np.testing.assert_array_equal(every_bound(objective), 0.0)
    with pytest.raises(InputError, match="a solution that is not zero"):
        least_sharpness(objective)


def test_what_the_bounds_do_not_speak_of_is_refused():
    problem = tw.TargetMatrix([1.0, 0.0])
    with pytest.raises(InputError, match=r"without weight decay, got 0\.1"):
        balanced_sharpness(tw.Objective(tw.LinearNetwork([2, 1]), problem, weight_decay=0.1))
    wide = tw.Objective(tw.LinearNetwork([2, 2], readout=[1.0, 1.0]), problem)
    with pytest.raises(InputError, match="a last layer of width 1, got 2"):
        small_start_sharpness_bounds(wide)
