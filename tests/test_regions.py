"""Activation patterns, regularity, and the distance to the nearest sign change."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

import strategies
import thalweg as tw
from thalweg._checks import InputError
from thalweg.curvature import regions
from thalweg.curvature.regions import activation_pattern, distance_to_boundary, is_regular
from thalweg.network import Convolution, Dense, SharedNetwork, Tied

NETWORKS = {
    "relu": tw.HomogeneousNetwork([3, 4, 3, 2]),
    "leaky": tw.HomogeneousNetwork([3, 5, 2], (1.5, -0.3)),
    "shared": SharedNetwork(
        [Convolution(1, 2, (1, 2), (1, 3)), Tied([[0, 1, -1, -1], [-1, 0, 1, 2]]), Dense(2, 1)],
        (1.0, 0.2),
    ),
}
# Compilation is what these tests cost, so XLA is told not to optimise: the arithmetic is the same.
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
pattern = compiled(activation_pattern)
distance = compiled(distance_to_boundary)
regular = compiled(is_regular)


def drawn(name, seed, samples=6):
    random = np.random.default_rng(seed)
    network = NETWORKS[name]
    x = jnp.asarray(random.standard_normal((samples, 3)))
    return network, strategies.gaussians(network.shapes, 1.0, random), x, random


def pre_activations(network, weights, x):
    """Layer by layer, through the matrices."""
    matrices = network.matrices(weights)
    hidden = []
    for matrix in matrices[:-1]:
        hidden.append(x @ matrix.T)
        x = jnp.where(hidden[-1] > 0, network.slopes[0], network.slopes[1]) * hidden[-1]
    return hidden


@pytest.mark.parametrize("name", NETWORKS)
def test_the_pattern_is_that_of_the_pre_activations(name):
    network, weights, x, _ = drawn(name, 0)
    expected = pre_activations(network, weights, x)
    found = activation_pattern(network, weights, x)
    assert len(found) == network.depth - 1
    for positive, z in zip(found, expected, strict=True):
        np.testing.assert_array_equal(positive, z > 0)


@pytest.mark.parametrize("name", NETWORKS)
@given(seed=st.integers(0, 2**31 - 1), factor=st.floats(0.01, 100.0))
def test_a_region_is_closed_under_rescaling_of_layers(name, seed, factor):
    """elkabetz2021:prop25 and prop26; rescaling by powers of two is exact."""
    network, weights, x, _ = drawn(name, seed)
    factor = 2.0 ** round(np.log2(factor))
    scaled = (factor * weights[0], weights[1] / factor**2, *weights[2:])
    for before, after in zip(
        pattern(network, weights, x), pattern(network, scaled, x), strict=True
    ):
        np.testing.assert_array_equal(before, after)
    assert bool(regular(network, weights, x)) == bool(regular(network, scaled, x))


def test_a_network_is_its_masked_product_on_a_region():
    network, weights, x, _ = drawn("relu", 3)
    masks = [jnp.where(each, 1.0, 0.0) for each in activation_pattern(network, weights, x)]
    for index, sample in enumerate(x):
        product = weights[-1] @ (masks[1][index][:, None] * weights[1])
        product = product @ (masks[0][index][:, None] * weights[0])
        np.testing.assert_allclose(
            product @ sample, network(weights, x)[index], atol=1e-14
        )  # a dozen roundings of numbers around one


def test_regularity_looks_at_feasible_units_only():
    network = tw.HomogeneousNetwork([1, 2, 1, 1])
    dead = (-jnp.ones((2, 1)), jnp.ones((1, 2)), jnp.ones((1, 1)))
    x = jnp.ones((1, 1))
    assert regular(network, dead, x)  # the second layer sees zeros, and only zeros nearby
    touching = (jnp.array([[1.0], [0.0]]), *dead[1:])
    assert not regular(network, touching, x)
    assert distance(network, touching, x).lower == 0
    assert distance(network, touching, x).upper == 0
    assert regular(network, touching, jnp.zeros((1, 1)))  # no weights give this sample a sign
    assert distance(network, touching, jnp.zeros((1, 1))).lower == jnp.inf


def test_a_tied_unit_is_infeasible_where_its_own_inputs_are_zero():
    """The second row of the layer sees only the second input."""
    network = SharedNetwork([Tied([[0, -1], [-1, 1]]), Dense(2, 1)])
    weights = (jnp.array([1.0, 2.0]), jnp.ones((1, 2)))
    assert regular(network, weights, jnp.array([[1.0, 0.0]]))
    assert not regular(network, (jnp.array([1.0, 0.0]), weights[1]), jnp.array([[1.0, 1.0]]))


@pytest.mark.parametrize("name", NETWORKS)
@given(seed=st.integers(0, 2**31 - 1), margin=st.sampled_from([1.0, 1e-3]))
def test_no_sign_changes_within_the_distance(name, seed, margin):
    """Moved by the lower bound, in random directions and straight at every unit's boundary."""
    network, weights, x, random = drawn(name, seed)
    if margin < 1:  # put the weights close to a boundary first
        near = straight_at(network, weights, x)[0]
        weights = moved(weights, near, (1 - margin) * float(distance(network, weights, x).lower))
    bounds = distance(network, weights, x)
    assert 0 < bounds.lower <= bounds.upper
    directions = jnp.concatenate(
        [
            jnp.asarray(random.standard_normal((20, network.size))),
            straight_at(network, weights, x),
        ]
    )
    # One part in 10^9 less, for the rounding of pre-activations near zero.
    after = patterns(network, weights, x, directions, (1 - 1e-9) * bounds.lower)
    for old, new in zip(pattern(network, weights, x), after, strict=True):
        np.testing.assert_array_equal(jnp.broadcast_to(old, new.shape), new)


@compiled
def patterns(network, weights, x, directions, length):
    """The activation patterns after a step of this length in each direction."""
    return jax.vmap(
        lambda direction: activation_pattern(network, moved(weights, direction, length), x)
    )(directions)


@compiled
def straight_at(network, weights, x):
    """For each unit on each sample the direction that leads it to zero fastest, nearest first."""
    flat, unravel = ravel_pytree(weights)

    def values(point):
        hidden = pre_activations(network, unravel(point), x)
        return jnp.concatenate([z.ravel() for z in hidden])

    slopes = -jnp.sign(values(flat))[:, None] * jax.jacobian(values)(flat)
    speeds = jnp.linalg.norm(slopes, axis=1)
    times = jnp.where(speeds > 0, jnp.abs(values(flat)) / speeds, jnp.inf)  # dead units last
    return slopes[jnp.argsort(times)]


def moved(weights, direction, length):
    flat, unravel = ravel_pytree(weights)
    size = jnp.linalg.norm(direction)
    return unravel(flat + length * direction / jnp.where(size > 0, size, 1.0))


@given(seed=st.integers(0, 2**31 - 1))
def test_the_distance_is_exact_for_one_hidden_layer(seed):
    """Then z is linear in the weights, and the distance is the least |z| / |x|."""
    network, weights, x, _ = drawn("leaky", seed)
    bounds = distance(network, weights, x)
    expected = jnp.min(jnp.abs(x @ weights[0].T) / jnp.linalg.norm(x, axis=1)[:, None])
    np.testing.assert_allclose(bounds.lower, expected, rtol=1e-12)  # bisected down to rounding
    np.testing.assert_allclose(bounds.upper, expected, rtol=1.1e-9)  # a step of that much more


def test_samples_one_at_a_time_have_the_same_distance(monkeypatch):
    """Where the gradients of a single sample are more numbers than are to be held at once."""
    network, weights, x, _ = drawn("relu", 3)
    together = distance(network, weights, x)
    monkeypatch.setattr(regions, "_NUMBERS_AT_ONCE", 1)
    alone = compiled(lambda w: distance_to_boundary(network, w, x))(weights)
    np.testing.assert_allclose(alone.lower, together.lower, rtol=1e-13)
    np.testing.assert_allclose(alone.upper, together.upper, rtol=1e-13)


def test_both_bounds_agree_near_a_boundary():
    """The second order fades with the margin."""
    network, weights, x, _ = drawn("relu", 5)
    near = straight_at(network, weights, x)[0]
    ratios = []
    for _ in range(3):
        bounds = distance(network, weights, x)
        ratios.append(float(bounds.upper / bounds.lower))
        weights = moved(weights, near, 0.99 * float(bounds.lower))
    assert ratios[0] > ratios[1] > ratios[2]
    assert ratios[2] < 1.01


def test_networks_without_regions_are_refused():
    with pytest.raises(InputError, match=r"two-slope activation, .*, got LinearNetwork"):
        activation_pattern(tw.LinearNetwork([2, 1]), (jnp.ones((1, 2)),), jnp.ones((1, 2)))
    single = distance_to_boundary(
        tw.HomogeneousNetwork([2, 1]), (jnp.ones((1, 2)),), jnp.ones((1, 2))
    )
    assert single.lower == single.upper == jnp.inf
