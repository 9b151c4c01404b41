"""Networks: what they compute, their shapes, and bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

import oracles
import strategies
import thalweg as tw
from thalweg._checks import require_count
from thalweg.network import (
    Convolution,
    Dense,
    SharedNetwork,
    Tied,
    max_pooling_network,
    strided_network,
)

SEEDS = st.integers(0, 2**32 - 1)

# Two ways to compute the same sums of a few hundred terms at most.
ROUNDING = 1e-13


def gaussians(network, seed=0, size=0.5):
    return strategies.gaussians(network.shapes, size, np.random.default_rng(seed))


# --- linear --------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [[3, 2], [2, 5, 3], [5, 4, 4, 1]])
def test_end_to_end_is_the_product_of_the_layers(widths):
    network = tw.LinearNetwork(widths)
    weights = gaussians(network)
    product = np.linalg.multi_dot([np.eye(widths[-1]), *map(np.asarray, reversed(weights))])
    assert oracles.relative_error(network.end_to_end(weights), product) < ROUNDING
    x = np.random.default_rng(1).standard_normal((6, widths[0]))
    assert oracles.relative_error(network(weights, jnp.asarray(x)), x @ product.T) < ROUNDING


def test_shapes_size_and_depth():
    network = tw.LinearNetwork([5, 4, 3, 1])
    assert network.shapes == ((4, 5), (3, 4), (1, 3))
    assert (network.size, network.depth) == (20 + 12 + 3, 3)
    assert (network.features, network.outputs) == (5, 1)


def test_a_readout_vector_is_one_output():
    readout = np.array([1.0, -2.0])
    network = tw.LinearNetwork([3, 2], readout)
    weights = gaussians(network)
    assert network.outputs == 1
    expected = readout[None] @ weights[0]
    assert oracles.relative_error(network.end_to_end(weights), expected) < ROUNDING


# --- homogeneous ---------------------------------------------------------------------------------


@pytest.mark.parametrize("slopes", [(1.0, 0.0), (1.0, 0.2), (0.5, -2.0)])
def test_homogeneous_network_layer_by_layer(slopes):
    network = tw.HomogeneousNetwork([3, 5, 4, 2], slopes)
    weights = gaussians(network)
    x = np.random.default_rng(1).standard_normal((6, 3))
    rows = x
    for matrix in weights[:-1]:
        z = rows @ np.asarray(matrix).T
        rows = slopes[0] * np.maximum(z, 0) - slopes[1] * np.maximum(-z, 0)
    expected = rows @ np.asarray(weights[-1]).T
    assert oracles.relative_error(network(weights, jnp.asarray(x)), expected) < ROUNDING


def test_slopes_of_one_make_the_network_linear():
    widths = [3, 5, 2]
    weights = gaussians(tw.LinearNetwork(widths))
    x = jnp.asarray(np.random.default_rng(1).standard_normal((6, 3)))
    got = tw.HomogeneousNetwork(widths, slopes=(1.0, 1.0))(weights, x)
    assert oracles.relative_error(got, tw.LinearNetwork(widths)(weights, x)) < ROUNDING


# --- layers with shared weights ------------------------------------------------------------------

CONVOLUTIONS = [
    Convolution(1, 2, kernel=3, image=5),
    Convolution(2, 3, kernel=(2, 3), image=(4, 5), stride=(2, 1), padding=(0, 2)),
    Convolution(3, 1, kernel=(3, 2), image=(3, 6), stride=2, padding=1),
    Convolution(2, 1, kernel=1, image=3, stride=3),
    Convolution(1, 1, kernel=(5, 2), image=(1, 4), padding=(2, 0)),
]
BAND = [[0, 1, -1, -1], [-1, 0, 1, -1], [-1, -1, 0, 1], [2, -1, -1, 0]]
LAYERS = [*CONVOLUTIONS, Dense(3, 2), Tied(BAND)]


@pytest.mark.parametrize("layer", CONVOLUTIONS)
def test_pattern_of_a_convolution_is_its_definition(layer):
    expected = oracles.convolution_pattern(layer.shape, layer.image, layer.stride, layer.padding)
    np.testing.assert_array_equal(layer.pattern, expected)
    assert expected.shape == (layer.outputs, layer.features)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_computes_what_its_matrix_does(layer):
    random = np.random.default_rng(0)
    weight = jnp.asarray(random.standard_normal(layer.shape))
    x = jnp.asarray(random.standard_normal((4, layer.features)))
    expected = x @ oracles.tied_matrix(weight, np.asarray(layer.pattern)).T
    assert oracles.relative_error(x @ layer.matrix(weight).T, expected) == 0.0
    assert oracles.relative_error(layer(weight, x), expected) < ROUNDING


@pytest.mark.parametrize("layer", LAYERS)
def test_operator_norm_is_the_largest_singular_value_of_the_map_of_weights(layer):
    basis = np.eye(np.prod(layer.shape)).reshape(-1, *layer.shape)
    columns = [np.asarray(layer.matrix(jnp.asarray(unit))).ravel() for unit in basis]
    expected = np.linalg.svd(np.stack(columns), compute_uv=False)[0]
    np.testing.assert_allclose(layer.operator_norm, expected, rtol=1e-14)


def test_convolution_against_scipy():
    layer = Convolution(2, 3, kernel=(3, 2), image=(6, 5))
    random = np.random.default_rng(0)
    weight, images = random.standard_normal(layer.shape), random.standard_normal((4, 2, 6, 5))
    got = layer(jnp.asarray(weight), jnp.asarray(images.reshape(4, -1)))
    expected = oracles.correlate(weight, images).reshape(4, -1)
    assert layer.out_image == (4, 4)
    assert oracles.relative_error(got, expected) < ROUNDING


@given(seed=SEEDS, slopes=st.tuples(st.floats(0.5, 2.0), st.floats(-1.0, 1.5)))
def test_forward_by_convolutions_is_forward_by_matrices(seed, slopes):
    first = Convolution(1, 2, kernel=2, image=(3, 4), stride=(1, 2), padding=1)
    second = Convolution(2, 2, kernel=2, image=first.out_image)
    network = SharedNetwork([first, second, Dense(second.outputs, 3)], slopes)
    random = np.random.default_rng(seed)
    weights = strategies.gaussians(network.shapes, 0.7, random)
    x = random.standard_normal((2, 12))
    rows = x
    for matrix in network.matrices(weights)[:-1]:
        z = rows @ np.asarray(matrix).T
        rows = slopes[0] * np.maximum(z, 0) - slopes[1] * np.maximum(-z, 0)
    expected = rows @ np.asarray(weights[-1]).T
    assert oracles.relative_error(network(weights, jnp.asarray(x)), expected) < ROUNDING


def test_elkabetz_example_of_convolutions_in_one_dimension():
    layers = [
        Convolution(1, 1, kernel=(1, 2), image=(1, 4)),
        Convolution(1, 1, kernel=(1, 2), image=(1, 3)),
        Dense(2, 1),
    ]
    network = SharedNetwork(layers, slopes=(1.0, 0.2))
    weights = tuple(
        jnp.asarray(values).reshape(shape)
        for values, shape in zip(([1.0, -0.4], [0.5, 1.0], [1.0, 2.0]), network.shapes, strict=True)
    )
    x = jnp.array([[1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 1.0, -2.0]])
    objective = tw.Objective(network, tw.Regression(x, [1.0, 0.0]))

    # Exact decimals: products of a few small fractions.
    np.testing.assert_allclose(network(weights, x)[:, 0], [4.5, 3.484], rtol=1e-14)
    np.testing.assert_allclose(np.square(network.operator_norms), [3.0, 2.0, 1.0], rtol=1e-15)
    smallest = np.linalg.eigvalsh(eqx.filter_jit(objective.hessian)(weights))[0]
    np.testing.assert_allclose(smallest, -14.502766337502, rtol=1e-11)  # twelve digits are given


def test_a_shared_network_is_a_pytree_that_can_be_jitted():
    network = SharedNetwork([Tied(BAND), Dense(4, 1)])
    weights = gaussians(network)
    x = jnp.asarray(np.random.default_rng(1).standard_normal((3, 4)))
    got = jax.jit(lambda network, weights: network(weights, x))(network, weights)
    assert oracles.relative_error(got, network(weights, x)) < ROUNDING


# --- the networks of elkabetz2021, figure 3 ------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    """Real digits, 8 x 8, each pixel repeated to make images of 28 x 28, in which values tie."""
    data = load_digits()
    images = np.repeat(np.repeat(data.images[:6], 4, axis=1), 4, axis=2)[:, 2:-2, 2:-2]
    return (images.reshape(6, 784) - 5) / 6, data.target[:6]


@pytest.fixture(scope="module")
def noise():
    """Images without ties, on which the loss is smooth."""
    random = np.random.default_rng(0)
    return random.standard_normal((3, 784)), random.integers(0, 10, 3)


def small(network):
    """Weights of the usual size, 1 / sqrt(inputs of a unit); biases of a tenth."""
    random = np.random.default_rng(1)
    return tuple(
        jnp.asarray(
            random.standard_normal(shape)
            * (0.1 if len(shape) == 1 else 1 / np.sqrt(np.prod(shape[1:])))
        )
        for shape in network.shapes
    )


ARCHITECTURES = [
    (max_pooling_network, oracles.max_pooling_network),
    (strided_network, oracles.subsampling_network),
]


def test_sizes_of_the_paper():
    assert max_pooling_network().size == 61706
    assert strided_network().size == 61470
    assert strided_network().operator_norms == (14.0, 5.0, 1.0, 1.0, 1.0)


def test_weights_without_biases_are_every_second_of_the_max_pooling_network():
    assert max_pooling_network().shapes[::2] == strided_network().shapes


@pytest.mark.parametrize(("make", "naive"), ARCHITECTURES)
def test_architectures_against_numpy(make, naive, digits):
    network = make()
    weights, (x, _) = small(network), digits
    got = eqx.filter_jit(network)(weights, jnp.asarray(x))
    assert got.shape == (6, 10)
    assert oracles.relative_error(got, naive(weights, x)) < ROUNDING


@pytest.mark.parametrize(("make", "naive"), ARCHITECTURES)
def test_gradients_of_architectures_against_differences_of_the_numpy_loss(make, naive, noise):
    network = make()
    weights, (x, labels) = small(network), noise
    objective = tw.Objective(network, tw.Classification(x, labels, classes=10))
    slopes = eqx.filter_jit(objective.gradient)(weights)
    random = np.random.default_rng(2)
    direction = strategies.gaussians(network.shapes, 1 / np.sqrt(network.size), random)
    step = 1e-6

    def loss(sign):
        moved = [w + sign * step * d for w, d in zip(weights, direction, strict=True)]
        return float(oracles.cross_entropy(jnp.asarray(naive(moved, x)), labels))

    expected = (loss(1) - loss(-1)) / (2 * step)
    got = sum(float(jnp.sum(s * d)) for s, d in zip(slopes, direction, strict=True))
    assert all(bool(jnp.all(jnp.isfinite(slope))) for slope in slopes)
    # Central differences: rounding of the loss over the step, 1e-16 / 1e-6.
    np.testing.assert_allclose(got, expected, atol=1e-8)
    assert abs(expected) > 1e-4


def test_gradient_of_the_max_pooling_network_is_finite_where_pixels_tie(digits):
    network = max_pooling_network()
    x, labels = digits
    objective = tw.Objective(network, tw.Classification(x, labels, classes=10))
    slopes = eqx.filter_jit(objective.gradient)(small(network))
    assert all(bool(jnp.all(jnp.isfinite(slope))) for slope in slopes)
    assert all(float(jnp.linalg.norm(slope)) > 0 for slope in slopes)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [tw.LinearNetwork, tw.HomogeneousNetwork])
@pytest.mark.parametrize(
    ("widths", "match"),
    [
        ([3, 0, 1], r"`widths\[1\]` must be a whole number >= 1, got 0"),
        ([3, -2, 1], r"`widths\[1\]` must be a whole number >= 1, got -2"),
        ([True, 1], r"`widths\[0\]` must be a whole number, got True"),
        ([3], r"must hold the input width and at least one layer's, got \[3\]"),
        ([], r"must hold the input width and at least one layer's, got \[\]"),
    ],
)
def test_bad_widths(network, widths, match):
    with pytest.raises(tw.InputError, match=match):
        network(widths)


@pytest.mark.parametrize("value", [2.5, float("nan"), float("inf"), None, "3"])
def test_a_count_is_a_whole_number(value):
    """What `widths` and all other counts pass through."""
    got = "the text '3'" if value == "3" else value
    with pytest.raises(tw.InputError, match=f"`width` must be a whole number >= 1, got {got}"):
        require_count("width", value)


@pytest.mark.parametrize("readout", [np.ones(3), np.ones((1, 2)), 1.0, np.ones((2, 1, 1))])
def test_readout_must_have_an_entry_per_unit(readout):
    match = r"`readout` must have one entry \(or row\) per unit of the last layer \(2\), got"
    with pytest.raises(tw.InputError, match=match):
        tw.LinearNetwork([3, 2], readout)


def test_readout_must_be_finite():
    with pytest.raises(tw.InputError, match="`readout` must be finite, got inf"):
        tw.LinearNetwork([3, 2], [1.0, np.inf])


@pytest.mark.parametrize("slopes", [(1.0,), (1.0, 0.0, 0.0)])
def test_slopes_are_two(slopes):
    with pytest.raises(tw.InputError, match="`slopes` must be two numbers"):
        tw.HomogeneousNetwork([3, 2], slopes)
    with pytest.raises(tw.InputError, match="`slopes` must be two numbers"):
        SharedNetwork([Dense(3, 2)], slopes)


def test_a_model_has_shapes_of_positive_widths():
    with pytest.raises(tw.InputError, match=r"`shapes\[1\]` must be a whole number >= 1, got 0"):
        tw.Model(lambda weights, x: x, [(2, 2), (0,)])


def test_layers_that_do_not_chain():
    first = Convolution(1, 6, kernel=5, image=28, stride=2, padding=2)
    match = (
        r"layer 1 \(Convolution, 1 x 28 x 28 to 6 x 14 x 14\) has output dimension 1176, but "
        r"layer 2 \(Dense, 400 to 120\) has input dimension 400; a convolution's `image` is the "
        r"output of the layer below"
    )
    with pytest.raises(tw.InputError, match=match):
        SharedNetwork([first, Dense(400, 120)])


def test_no_layers():
    with pytest.raises(tw.InputError, match="`layers` must hold at least one layer, got none"):
        SharedNetwork([])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kernel": 0}, "`kernel` must be a whole number >= 1, got 0"),
        ({"stride": (1, 0)}, r"`stride\[1\]` must be a whole number >= 1, got 0"),
        ({"padding": -1}, "`padding` must be a whole number >= 0, got -1"),
        ({"image": (4, 4, 1)}, r"`image` must be one whole number or a pair \(vertical, horizon"),
        ({"kernel": (5, 2)}, r"`kernel` must fit in the padded image: it is \(5, 2\), the image"),
        ({"in_channels": 0}, "`in_channels` must be a whole number >= 1, got 0"),
        ({"out_channels": -1}, "`out_channels` must be a whole number >= 1, got -1"),
    ],
)
def test_bad_convolutions(options, match):
    good = {"in_channels": 1, "out_channels": 2, "kernel": 2, "image": 4}
    with pytest.raises(tw.InputError, match=match):
        Convolution(**{**good, **options})


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        ([0, 1], r"`pattern` must be a matrix \(outputs x features\) of whole numbers, got shape"),
        ([[0.0, 1.0]], "of whole numbers, got shape .* and dtype float64"),
        ([[-1, -1]], r"without a gap, and -1 for a zero, got the entries \[-1\]"),
        ([[0, 2]], r"without a gap, and -1 for a zero, got the entries \[0, 2\]; renumber them"),
        ([[0, -2]], r"without a gap, and -1 for a zero, got the entries \[-2, 0\]"),
        ([[0, 1, -1], [1, 0, 1]], "must not repeat a coordinate within a row, got coordinate 1 tw"),
    ],
)
def test_bad_patterns(pattern, match):
    with pytest.raises(tw.InputError, match=match):
        Tied(pattern)
