"""Starts: their laws, balance and product, and the numbers of the papers' statements."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg import (
    HomogeneousNetwork,
    InputError,
    LinearNetwork,
    Model,
    adversarial,
    initialisation,
)
from thalweg.initialisation import _balanced_by_polar, _balanced_by_vectors
from thalweg.network import Dense, SharedNetwork, Tied

SEEDS = st.integers(0, 2**31 - 1)
CHAINS = st.sampled_from([(2, 7, 3, 5), (5, 1, 1), (3, 2)])

# Compiled, because hypothesis calls them often; they must be traceable anyway.
balanced = eqx.filter_jit(initialisation.balanced)
gaussian = eqx.filter_jit(initialisation.gaussian)
aligned = eqx.filter_jit(initialisation.aligned)
nearest_balanced = eqx.filter_jit(initialisation.nearest_balanced)


def product(weights):
    """Oracle: the plain product in NumPy."""
    result = np.asarray(weights[0])
    for layer in weights[1:]:
        result = np.asarray(layer) @ result
    return result


def imbalances(weights):
    """Oracle: W_{j+1}^T W_{j+1} - W_j W_j^T in NumPy."""
    arrays = [np.asarray(layer) for layer in weights]
    return [b.T @ b - a @ a.T for a, b in pairwise(arrays)]


def largest_imbalance(weights, order="nuc"):
    return max((np.linalg.norm(each, order) for each in imbalances(weights)), default=0.0)


def gap(weights, others):
    return np.sqrt(
        sum(np.sum((np.asarray(a) - b) ** 2) for a, b in zip(weights, others, strict=True))
    )


def sine_matrix(rows, columns):
    """A_ij = sin(1 + i + 2 j), of rank two."""
    return np.sin(1 + np.arange(rows)[:, None] + 2 * np.arange(columns)[None])


def test_gaussian_entries_have_the_scale():
    weights = initialisation.gaussian(LinearNetwork([60, 50, 40]), 0.3, key=jax.random.key(0))
    assert [layer.shape for layer in weights] == [(50, 60), (40, 50)]
    entries = np.concatenate([np.ravel(layer) for layer in weights]) / 0.3
    # 5000 entries: mean +-1/71 and variance +-sqrt(2)/71; five deviations.
    assert abs(entries.mean()) < 5 / 71
    assert abs(entries.var() - 1) < 5 * 2**0.5 / 71
    # Layers do not repeat each other: the correlation of 2000 pairs is +-1/45.
    pairs = np.corrcoef(np.ravel(weights[0])[:2000], np.ravel(weights[1]))
    assert abs(pairs[0, 1]) < 5 / 45


@pytest.mark.parametrize("name", ["gaussian", "balanced", "residual"])
def test_scales_and_keys_can_be_mapped(name):
    network = LinearNetwork([3, 3, 3])
    start = getattr(initialisation, name)
    scales, keys = jnp.array([0.1, 2.0]), jax.random.split(jax.random.key(1))
    many = jax.jit(jax.vmap(lambda scale, key: start(network, scale, key=key)))(scales, keys)
    one = start(network, 2.0, key=keys[1])
    for batched, single in zip(many, one, strict=True):
        np.testing.assert_allclose(batched[1], single, atol=1e-13)  # batched SVDs round otherwise


@given(SEEDS, CHAINS, st.floats(1e-6, 1e3))
def test_balanced_weights_are_balanced(seed, widths, scale):
    network = LinearNetwork(widths)
    weights = balanced(network, jnp.asarray(scale), key=jax.random.key(seed))
    expected = scale * jax.random.normal(jax.random.key(seed), (widths[-1], widths[0]))
    size = np.linalg.norm(expected)
    # An SVD of at most 7 x 7 numbers and up to five products: some tens of roundings.
    assert np.linalg.norm(product(weights) - expected) <= 1e-13 * size
    assert largest_imbalance(weights) <= 1e-13 * size ** (2 / network.depth)


@pytest.mark.parametrize(
    "widths", [(3, 3, 3), (2, 7, 3, 5), (5, 1, 1), (1, 4, 2, 6), (6, 4, 4, 4, 4, 4, 3)]
)
def test_balanced_factors_of_the_sine_matrix(widths):
    """arora2019:proc1's cases, where errors up to 2.5e-15 were seen."""
    matrix = sine_matrix(widths[-1], widths[0])
    weights = initialisation.balanced_from(LinearNetwork(widths), matrix)
    assert np.linalg.norm(product(weights) - matrix) < 1e-14 * max(1, np.linalg.norm(matrix))
    assert largest_imbalance(weights) < 1e-14 * max(1, np.linalg.norm(matrix))
    # The matrix has rank two, and so have its factors: nothing of rounding is left in them.
    ranks = {np.linalg.matrix_rank(np.asarray(layer), tol=1e-12) for layer in weights}
    assert ranks == {min(2, *widths)}


def test_balanced_factors_of_a_row():
    """elkabetz2021:proc13: A = (.06, .08) with dims 2, 3, 2, 1 has |A|^(1/3) in every layer."""
    weights = initialisation.balanced_from(LinearNetwork([2, 3, 2, 1]), [0.06, 0.08])
    root = 0.4641588833612779
    np.testing.assert_allclose(weights[0], root * np.outer([1, 0, 0], [0.6, 0.8]), atol=1e-15)
    np.testing.assert_allclose(weights[1], [[root, 0, 0], [0, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(weights[2], [[root, 0]], atol=1e-15)
    assert largest_imbalance(weights) < 1e-15  # rounding of numbers below one


def test_a_product_of_low_rank_fits_narrow_layers():
    matrix = np.outer([1.0, 2.0, -1.0], [0.5, 1.0, 0.0, 2.0])
    weights = initialisation.balanced_from(LinearNetwork([4, 1, 3]), matrix)
    np.testing.assert_allclose(product(weights), matrix, atol=1e-14)
    with pytest.raises(InputError, match=r"at least as wide as the rank.*got width 1"):
        initialisation.balanced_from(LinearNetwork([4, 1, 3]), sine_matrix(3, 4))


def test_residual_layers_add_noise_to_the_identity():
    network = LinearNetwork([20] * 11, readout=np.ones(20))
    weights = initialisation.residual(network, 0.7, key=jax.random.key(2))
    noise = np.stack([np.asarray(layer) - np.eye(20) for layer in weights])
    noise = noise * np.sqrt(10 * 20) / 0.7
    # 4000 entries: mean +-1/63, variance +-sqrt(2)/63; five deviations.
    assert abs(noise.mean()) < 5 / 63
    assert abs(noise.var() - 1) < 5 * 2**0.5 / 63
    still = initialisation.residual(network, 0.0, key=jax.random.key(2))
    np.testing.assert_array_equal(still[3], np.eye(20))


def test_identity_may_be_rectangular():
    weights = initialisation.identity(LinearNetwork([2, 3, 1]))
    np.testing.assert_array_equal(weights[0], [[1, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(weights[1], [[1, 0, 0]])


@pytest.mark.parametrize("depth", [2, 4])
def test_unbalanced_is_the_start_that_diverges(depth):
    """Oracle: the construction of claim 4 in `adversarial`, and by hand with factor one."""
    network, factor = LinearNetwork([3] * (depth + 1)), 50.0
    trap = adversarial.diverging(depth, 3, 0.1, 0.8, factor=factor)
    weights = initialisation.unbalanced(network, 0.8, factor)
    for layer, expected in zip(weights, trap.weights, strict=True):
        np.testing.assert_allclose(layer, expected, rtol=1e-14)
    for layer in initialisation.unbalanced(network, 0.8, 1.0):
        np.testing.assert_allclose(layer, np.diag([0.8 ** (1 / depth), 1, 1]), rtol=1e-14)


def test_unbalanced_needs_two_halves():
    with pytest.raises(InputError, match="even number of layers"):
        initialisation.unbalanced(LinearNetwork([2, 2, 2, 2]), 0.75, 2.0)


SHAPES = ((6, 1, 5, 5), (6,), (30, 40), (30,))


def convolutional():
    return Model(lambda weights, x: x, SHAPES)


def test_xavier_bounds_count_the_kernel():
    weights = initialisation.xavier_uniform(convolutional(), key=jax.random.key(0))
    assert tuple(array.shape for array in weights) == SHAPES
    for array, fans in ((weights[0], 1 * 25 + 6 * 25), (weights[2], 30 + 40)):
        bound = (6 / fans) ** 0.5
        assert np.max(np.abs(array)) < bound
        # The largest of n uniforms misses the bound by more than 10/n with probability e^-10.
        assert np.max(np.abs(array)) > bound * (1 - 10 / array.size)
        # The variance of n uniforms deviates by sqrt(4/5)/sqrt(n) of itself; five deviations.
        assert abs(np.var(array) / (bound**2 / 3) - 1) < 5 * (0.8 / array.size) ** 0.5
    assert not np.any(weights[1])
    assert not np.any(weights[3])


def test_pytorch_bounds_follow_the_fan_in():
    weights = initialisation.pytorch_default(convolutional(), key=jax.random.key(0))
    for array, fan_in in zip(weights, (25, 25, 40, 40), strict=True):
        bound = fan_in**-0.5
        assert np.max(np.abs(array)) < bound
        assert np.any(array)
    # As above: e^-10.
    assert np.max(np.abs(weights[2])) > 40**-0.5 * (1 - 10 / 1200)


def test_tied_vectors_are_no_biases():
    """A layer that sums neighbours: two entries per row, and at most two per column."""
    tied = Tied([[0, 1, -1], [-1, 0, 1]])
    network = SharedNetwork([tied, Dense(2, 1)])
    weights = initialisation.xavier_uniform(network, key=jax.random.key(0))
    assert weights[0].shape == (2,)
    assert np.all(weights[0] != 0)
    many = jax.vmap(lambda key: initialisation.xavier_uniform(network, key=key)[0])(
        jax.random.split(jax.random.key(1), 500)
    )
    bound = (6 / 4) ** 0.5
    # As above, of 1000 numbers.
    assert bound * (1 - 10 / 1000) < np.max(np.abs(many)) < bound


def test_one_layer_can_be_zero():
    weights = initialisation.gaussian(LinearNetwork([3, 4, 2]), 1.0, key=jax.random.key(0))
    last, first = initialisation.one_zero_layer(weights), initialisation.one_zero_layer(weights, 0)
    np.testing.assert_array_equal(last[1], np.zeros((2, 4)))
    np.testing.assert_array_equal(last[0], weights[0])
    np.testing.assert_array_equal(first[0], np.zeros((4, 3)))
    np.testing.assert_array_equal(first[1], weights[1])
    with pytest.raises(InputError, match="index into 2 layers, counted from 0, got 2"):
        initialisation.one_zero_layer(weights, 2)


@given(st.floats(1e-3, 5), st.floats(-1, 1), SEEDS)
def test_aligned_starts_have_their_norm_and_cosine(norm, cosine, seed):
    target = np.random.default_rng(seed).standard_normal(4)
    weights = aligned(LinearNetwork([4, 3, 1]), jnp.asarray(norm), jnp.asarray(cosine), target)
    vector = product(weights)[0]
    np.testing.assert_allclose(np.linalg.norm(vector), norm, rtol=1e-13)  # tens of roundings
    found = vector @ target / np.linalg.norm(vector) / np.linalg.norm(target)
    np.testing.assert_allclose(found, cosine, atol=1e-13)
    assert largest_imbalance(weights) <= 1e-13 * norm


def test_aligned_start_of_the_closed_form_flow():
    """elkabetz2021:exactflow starts at .1 (.3, sqrt(.91), 0, 0) for the target e_1."""
    network = LinearNetwork([4, 4, 4, 1])
    weights = initialisation.aligned(network, 0.1, 0.3, [1.0, 0, 0, 0])
    expected = 0.1 * np.array([[0.3, 0.91**0.5, 0, 0]])
    np.testing.assert_allclose(product(weights), expected, atol=1e-16)


ORACLE = (
    np.array([[0.5, 0.1], [0, 0.3]]),
    np.array([[0.4, 0], [0.2, 0.1]]),
    np.array([[0.3, -0.4]]),
)


def test_nearest_balanced_of_the_oracle():
    """elkabetz2021:lem31's example, to the digits printed there."""
    np.testing.assert_allclose(largest_imbalance(ORACLE), 0.438634243989, atol=5e-13)
    layers = tuple(jnp.asarray(layer) for layer in ORACLE)
    polar, vectors = _balanced_by_polar(layers), _balanced_by_vectors(layers)
    np.testing.assert_allclose(gap(polar, ORACLE), 0.817741111724, atol=5e-13)
    np.testing.assert_allclose(gap(vectors, ORACLE), 0.752379066506, atol=5e-13)
    expected = [[0.3282660821, -0.1313064329], [-0.3282660821, 0.1313064329]]
    np.testing.assert_allclose(vectors[0], expected, atol=5e-11)
    chosen = initialisation.nearest_balanced(ORACLE)
    for found, near in zip(chosen, vectors, strict=True):
        np.testing.assert_array_equal(found, near)


@given(
    SEEDS,
    st.sampled_from([(2, 2, 2, 1), (3, 3, 3, 3, 2), (4, 2, 3, 1)]),
    st.floats(1e-4, 10),
)
def test_nearest_balanced_is_balanced_and_near(seed, widths, scale):
    """Property: the bound of elkabetz2021:lem31, in its sharper form."""
    weights = gaussian(LinearNetwork(widths), jnp.asarray(scale), key=jax.random.key(seed))
    near = nearest_balanced(weights)
    n = len(weights)
    size = max(np.linalg.norm(layer) for layer in weights)
    assert largest_imbalance(near) <= 1e-12 * size**2  # a hundred roundings of |W|^2
    bound = np.sqrt((n - 1) * n * (2 * n - 1) / 6) * np.sqrt(largest_imbalance(weights))
    assert gap(near, weights) <= bound + 1e-12 * size


@given(SEEDS, st.sampled_from([(2, 2, 2, 1), (4, 2, 1)]))
def test_balanced_weights_stay_where_they_are(seed, widths):
    weights = balanced(LinearNetwork(widths), jnp.ones(()), key=jax.random.key(seed))
    near = nearest_balanced(weights)
    # The bound is sqrt(imbalance), and rounding leaves an imbalance of 1e-15 or so: sqrt is 3e-8,
    # times the factor of the bound and the size of the weights.
    assert gap(near, weights) < 3e-7 * max(1, gap(weights, [0.0] * len(weights)))


@pytest.mark.parametrize("zeroed", [0, 1, 2])
def test_nearest_balanced_of_a_start_with_a_zero_layer(zeroed):
    weights = initialisation.gaussian(LinearNetwork([4, 2, 3, 1]), 1.0, key=jax.random.key(0))
    near = initialisation.nearest_balanced(initialisation.one_zero_layer(weights, zeroed))
    assert all(np.all(np.isfinite(layer)) for layer in near)
    assert largest_imbalance(near) < 1e-14  # rounding of numbers of size one


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i, n, key: i.gaussian(n, -0.1, key=key), "scale.*>= 0, got -0.1"),
        (lambda i, n, key: i.gaussian(n, float("nan"), key=key), "finite number"),
        (lambda i, n, key: i.residual(n, 0.1, key=key), "square layers of one width"),
        (
            lambda i, n, key: i.balanced(HomogeneousNetwork([2, 2]), 1.0, key=key),
            "LinearNetwork without a readout.*got LayeredNetwork",
        ),
        (
            lambda i, n, key: i.balanced(LinearNetwork([2, 2], [1.0, 1.0]), 1.0, key=key),
            "got LinearNetwork with one",
        ),
        (lambda i, n, key: i.balanced_from(n, np.ones((4, 2))), "is it transposed"),
        (lambda i, n, key: i.identity(Model(lambda w, x: x, [(3,)])), "layers that are matrices"),
        (lambda i, n, key: i.aligned(n, 0.1, 0.5, np.ones(4)), "one output"),
        (
            lambda i, n, key: i.aligned(LinearNetwork([2, 1]), 0.1, 1.5, np.ones(2)),
            r"cosine.*\[-1, 1\], got 1.5",
        ),
        (
            lambda i, n, key: i.aligned(LinearNetwork([2, 1]), 0.1, 0.5, np.zeros(2)),
            "target.*not be zero",
        ),
        (
            lambda i, n, key: i.aligned(LinearNetwork([1, 1]), 0.1, 0.5, np.ones(1)),
            "-1 or 1 with one feature",
        ),
        (
            lambda i, n, key: i.nearest_balanced(i.gaussian(n, 1.0, key=key)),
            "one output, or equal widths",
        ),
        (
            lambda i, n, key: i.nearest_balanced((np.ones((2, 3)), np.ones((2, 3)))),
            "first layer first",
        ),
    ],
)
def test_starts_refuse(call, message):
    with pytest.raises(InputError, match=message):
        call(initialisation, LinearNetwork([4, 3, 2]), jax.random.key(0))
