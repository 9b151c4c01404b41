"""The convex part: closed forms against autodiff, minimisers against NumPy, and bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.tree_util import Partial

import oracles
import thalweg as tw

SEEDS = st.integers(0, 2**32 - 1)

# Closed forms and autodiff put a few dozen operations in a different order.
ROUNDING = 1e-12


def regression(random, samples=7, features=3, outputs=2, scale=0.5):
    x, y = random.standard_normal((samples, features)), random.standard_normal((samples, outputs))
    return tw.Regression(x, y, scale), Partial(oracles.squared_error, targets=y, scale=scale)


def classification(random, loss):
    x = random.standard_normal((7, 3))
    if loss == "cross_entropy":
        labels = random.integers(0, 4, 7)
        problem = tw.Classification(x, labels, classes=4)
        return problem, Partial(oracles.cross_entropy, labels=labels)
    signs = random.choice([-1, 1], 7)
    return tw.Classification(x, signs, loss=loss), Partial(getattr(oracles, loss), signs=signs)


def target_matrix(random):
    target = random.standard_normal((2, 3))
    outputs = np.sqrt(3) * target.T  # of the target, on the samples sqrt(3) e_i
    return tw.TargetMatrix(target), Partial(oracles.squared_error, targets=outputs, scale=0.5)


KINDS = {
    "regression": regression,
    "regression of one output": lambda random: regression(random, outputs=1, scale=1.0),
    "regression with few samples": lambda random: regression(random, samples=1),
    "target matrix": target_matrix,
    "cross_entropy": lambda random: classification(random, "cross_entropy"),
    "logistic": lambda random: classification(random, "logistic"),
    "exponential": lambda random: classification(random, "exponential"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


# Compiled as a whole, once for each kind: operation by operation they would compile thirty times.
# A loss of the oracles is a `Partial`, so that its samples are arguments and not constants.
@jax.jit
def output_derivatives_both_ways(problem, loss, outputs, direction):
    """Value, gradient and curvature by the package, then by autodiff."""
    package = (
        problem.output_value(outputs),
        problem.output_gradient(outputs),
        problem.output_hessian_action(outputs, direction),
    )
    return package, derivatives(loss, outputs, direction)


@jax.jit
def matrix_derivatives_both_ways(problem, loss_of_outputs, matrix, direction):
    """Value, gradient and curvature by the package, then by autodiff."""
    package = (
        problem.value(matrix),
        problem.gradient(matrix),
        problem.hessian_action(matrix, direction),
    )

    def loss(matrix):
        return loss_of_outputs(problem.inputs @ matrix.T)

    return package, derivatives(loss, matrix, direction)


def derivatives(loss, point, direction):
    """The value, the gradient, and the Hessian times the direction, by autodiff."""
    return *jax.value_and_grad(loss)(point), jax.jvp(jax.grad(loss), (point,), (direction,))[1]


@every_kind
@given(seed=SEEDS)
def test_derivatives_with_respect_to_the_outputs(kind, seed):
    random = np.random.default_rng(seed)
    problem, loss = KINDS[kind](random)
    outputs, direction = random.standard_normal((2, problem.inputs.shape[0], problem.shape[0]))
    package, naive = output_derivatives_both_ways(problem, loss, outputs, direction)
    for got, expected in zip(package, naive, strict=True):
        assert oracles.relative_error(got, expected) < ROUNDING


@every_kind
@given(seed=SEEDS)
def test_derivatives_with_respect_to_the_matrix(kind, seed):
    random = np.random.default_rng(seed)
    problem, loss = KINDS[kind](random)
    matrix, direction = random.standard_normal((2, *problem.shape))
    package, naive = matrix_derivatives_both_ways(problem, loss, matrix, direction)
    for got, expected in zip(package, naive, strict=True):
        assert oracles.relative_error(got, expected) < ROUNDING


@every_kind
def test_lanes_give_what_single_matrices_give(kind):
    random = np.random.default_rng(0)
    problem, _ = KINDS[kind](random)
    matrices = jnp.asarray(random.standard_normal((*problem.shape, 4)))
    values, slopes = eqx.filter_jit(problem.value_and_gradient_in_lanes)(matrices)
    of_one = eqx.filter_jit(problem.value_and_gradient)
    for lane in range(4):
        value, slope = of_one(matrices[..., lane])
        # The same sums in another order: a few units in the last place.
        assert oracles.relative_error(values[lane], value) < 1e-13
        assert oracles.relative_error(slopes[..., lane], slope) < 1e-13


# --- regression ----------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [2, 20], ids=["underdetermined", "overdetermined"])
@given(seed=SEEDS)
def test_minimiser_is_the_least_squares_solution_of_least_norm(samples, seed):
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((samples, 4)), random.standard_normal((samples, 2))
    problem = tw.Regression(x, y, scale=0.7)
    solution = np.linalg.pinv(x) @ y
    residual = y - x @ solution

    # The condition of two or twenty Gaussian rows in four dimensions is below 1e3 or so.
    assert oracles.relative_error(problem.minimiser, solution.T) < 1e-11
    expected = 0.7 * np.sum(residual**2) / samples
    # An underdetermined problem is fitted: its minimum is the square of a rounding error.
    np.testing.assert_allclose(problem.minimum, expected, rtol=1e-12, atol=1e-22)


def test_minimiser_of_repeated_columns_is_the_one_of_least_norm():
    """Not invertible although there are more samples than features: the columns share alike."""
    column = np.arange(1.0, 6.0)
    problem = tw.Regression(np.stack([column, column], axis=1), 4 * column)
    np.testing.assert_allclose(problem.minimiser, [[2.0, 2.0]], rtol=1e-13)
    np.testing.assert_allclose(problem.minimum, 0.0, atol=1e-25)  # squares of rounding errors


def test_moments_and_spectrum():
    random = np.random.default_rng(0)
    x, y = random.standard_normal((10, 4)), random.standard_normal((10, 2))
    problem = tw.Regression(x, y)
    assert problem.shape == (2, 4)
    np.testing.assert_allclose(problem.input_moment, x.T @ x / 10, rtol=1e-13)
    np.testing.assert_allclose(problem.cross_moment, y.T @ x / 10, rtol=1e-13)
    # Singular values of the samples: an independent way to the same eigenvalues.
    expected = np.sort(np.linalg.svd(x, compute_uv=False) ** 2 / 10)
    np.testing.assert_allclose(problem.spectrum, expected, rtol=1e-12)


def test_excess_has_all_its_digits_where_a_difference_of_losses_has_none():
    problem, _ = regression(np.random.default_rng(1), samples=9)
    direction = jnp.asarray(np.random.default_rng(2).standard_normal(problem.shape))
    unit = problem.excess(problem.minimiser + direction)
    near = problem.minimiser + 1e-12 * direction
    difference = problem.value(near) - problem.minimum
    assert problem.minimum > 0.01
    # Rounding of the minimiser itself, 1e-16 beside a step of 1e-12, leaves about three digits.
    np.testing.assert_allclose(problem.excess(near), 1e-24 * unit, rtol=1e-2)
    assert abs(difference - 1e-24 * unit) > 0.5e-24 * unit


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_scale_multiplies_the_loss_and_leaves_the_minimiser(scale):
    x, y = oracles.marion_data_b()
    problem, unit = tw.Regression(x, y, scale=scale), tw.Regression(x, y, scale=1.0)
    matrix = jnp.ones((1, 3))
    np.testing.assert_allclose(problem.value(matrix), scale * unit.value(matrix), rtol=1e-14)
    np.testing.assert_allclose(problem.minimum, scale * unit.minimum, rtol=1e-14)
    np.testing.assert_array_equal(problem.minimiser, unit.minimiser)


def test_a_vector_of_targets_is_one_output():
    x, y = oracles.marion_data_a()
    np.testing.assert_array_equal(tw.Regression(x, y).targets, tw.Regression(x, y[:, None]).targets)


@pytest.mark.parametrize(
    ("data", "smallest", "largest", "norm", "minimum", "at_zero"),
    [
        (
            oracles.marion_data_a(),
            *(0.15860372853445048, 1.1253758710790758, 0.13772904958285323),
            *(0.550781625010033, 0.566953752314282),
        ),
        (
            oracles.marion_data_b(),
            *(0.12347884339119472, 0.8892190229713042, 1.4994290130365124),
            *(0.00521238580218939, 0.9802266213529754),
        ),
    ],
    ids=["A", "B"],
)
def test_numbers_of_the_marion_examples(data, smallest, largest, norm, minimum, at_zero):
    problem = tw.Regression(*data, scale=1.0)
    # Printed to 15 digits or more; the spectrum loses a few units in the last place.
    np.testing.assert_allclose(
        problem.spectrum[jnp.array([0, -1])], [smallest, largest], rtol=1e-13
    )
    np.testing.assert_allclose(jnp.linalg.norm(problem.minimiser), norm, rtol=1e-13)
    np.testing.assert_allclose(problem.minimum, minimum, rtol=1e-13)
    np.testing.assert_allclose(problem.value(jnp.zeros((1, 3))), at_zero, rtol=1e-13)
    np.testing.assert_allclose(problem.excess(jnp.zeros((1, 3))), at_zero - minimum, rtol=1e-12)


# --- target matrix -------------------------------------------------------------------------------


@given(seed=SEEDS)
def test_target_matrix_equals_its_sample_form(seed):
    random = np.random.default_rng(seed)
    problem, _ = target_matrix(random)
    samples = tw.Regression(problem.inputs, problem.targets, scale=0.5)
    matrix = jnp.asarray(random.standard_normal((2, 3)))

    expected = oracles.half_squared_distance(matrix, problem.minimiser)
    assert oracles.relative_error(problem.value(matrix), expected) < ROUNDING
    assert oracles.relative_error(problem.excess(matrix), expected) < ROUNDING
    got = samples.value_and_gradient(matrix)
    assert oracles.relative_error(got, problem.value_and_gradient(matrix)) < ROUNDING


def test_target_matrix_has_the_statistics_of_its_sample_form():
    problem, _ = target_matrix(np.random.default_rng(0))
    samples = tw.Regression(problem.inputs, problem.targets, scale=0.5)
    assert problem.shape == samples.shape == (2, 3)
    assert problem.scale == samples.scale
    np.testing.assert_allclose(problem.minimiser, samples.minimiser, rtol=1e-13)
    np.testing.assert_allclose(problem.minimum, samples.minimum, atol=1e-28)  # squared rounding
    np.testing.assert_allclose(problem.input_moment, samples.input_moment, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(problem.spectrum, samples.spectrum, rtol=1e-13)


def test_a_target_vector_is_one_output():
    assert tw.TargetMatrix([1.0, 0.0]).shape == (1, 2)


# --- classification ------------------------------------------------------------------------------


def test_losses_do_not_overflow():
    x = jnp.ones((1, 1))
    outputs = jnp.array([[800.0, -800.0]])
    problem = tw.Classification(x, [1], classes=2)
    assert problem.output_value(outputs) == 1600.0
    np.testing.assert_array_equal(problem.output_gradient(outputs), [[1.0, -1.0]])
    margin = tw.Classification(x, [-1], loss="logistic")
    assert margin.output_value(outputs[:, :1]) == 800.0
    np.testing.assert_array_equal(margin.output_gradient(outputs[:, :1]), [[1.0]])


@pytest.mark.parametrize("loss", ["logistic", "exponential"])
def test_margin_labels_may_be_zero_and_one_also_when_traced(loss):
    x, outputs = jnp.ones((3, 1)), jnp.array([[0.3], [-2.0], [1.0]])
    expected = tw.Classification(x, [-1, 1, 1], loss=loss).output_value(outputs)

    def value(labels):
        return tw.Classification(x, labels, loss=loss).output_value(outputs)

    labels = jnp.array([0, 1, 1])
    assert value(labels) == expected
    np.testing.assert_allclose(jax.jit(value)(labels), expected, rtol=1e-15)


def test_accuracy_counts_the_samples_that_are_right():
    x = jnp.ones((4, 1))
    outputs = jnp.array([[2.0, 1.0], [0.0, 1.0], [3.0, 4.0], [1.0, 0.0]])
    assert tw.Classification(x, [0, 1, 0, 0]).accuracy(outputs) == 0.75
    margin = tw.Classification(x, [1, -1, 1, 1], loss="logistic")
    assert margin.accuracy(outputs[:, :1] - 1) == 0.75  # an output of zero is not right


# --- bad input -----------------------------------------------------------------------------------

X = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (
            np.ones(3),
            np.ones(3),
            r"one row per sample and one column per feature, got shape \(3,\)",
        ),
        (np.ones((2, 2, 2)), np.ones(2), r"flattened with x.reshape\(len\(x\), -1\)"),
        (np.ones((0, 2)), np.ones(0), r"`x` must hold at least one sample and feature"),
        (np.ones((3, 0)), np.ones(3), r"`x` must hold at least one sample and feature"),
        (X, np.ones(4), r"`y` must have one row per sample of `x` \(3\), got shape \(4, 1\)"),
        (X, np.ones((1, 3)), r"got shape \(1, 3\); is one of them transposed\?"),
        (X, np.ones((3, 0)), r"`y` must have one row per sample"),
        (X, np.ones((3, 1, 1)), r"`y` must have one row per sample"),
        (X, 1.0, r"`y` must have one row per sample of `x` \(3\), got shape \(\)"),
        (np.where(X == 3, np.nan, X), np.ones(3), r"`x` must be finite, got nan at index \(1, 1\)"),
        (X, [1.0, np.inf, -np.inf], r"`y` must be finite, got inf at index \(1,\) \(2 of 3"),
        ([["x1", "x2"]], [1.0], "`x` must be an array of numbers, got a list of length 1.$"),
        (X * 1j, np.ones(3), "`x` must hold real numbers, got dtype complex128"),
    ],
)
def test_bad_samples_and_targets(x, y, match):
    with pytest.raises(tw.InputError, match=match):
        tw.Regression(x, y)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_bad_scale(scale):
    with pytest.raises(tw.InputError, match=f"`scale` must be positive and finite, got {scale}"):
        tw.Regression(X, np.ones(3), scale=scale)


@pytest.mark.parametrize("phi", [np.ones((2, 2, 2)), np.ones((0, 2)), 1.0])
def test_bad_target_matrix(phi):
    with pytest.raises(tw.InputError, match="`phi` must be a matrix"):
        tw.TargetMatrix(phi)


@pytest.mark.parametrize(
    ("labels", "options", "match"),
    [
        ([0, 1], {}, r"one entry per sample \(3\), got shape \(2,\)"),
        (np.eye(3), {}, r"one-hot rows become labels with argmax\(axis=1\)"),
        ([0, 1, 0.5], {}, "`labels` must be whole numbers, got 0.5; real targets belong in a Regr"),
        ([0, 1, np.inf], {}, "`labels` must be finite, got inf"),
        (["no", "yes", "no"], {}, "`labels` must be an array of numbers"),
        ([1, 2, 3], {"classes": 3}, "0, ..., 2 for 3 classes, got 1 to 3; labels that start at 1"),
        ([-1, 1, 1], {}, "must be the classes 0, 1, ..., got -1 to 1; .* loss='logistic'"),
        ([-1, 0, 0], {}, "must be the classes 0, 1, ..., got -1 to 0"),
        ([0, 0, 0], {}, "must name at least two classes, got only 0"),
        ([0, 0, 0], {"classes": 1}, "`classes` must be a whole number >= 2, got 1"),
        ([0, 1, 2], {"loss": "logistic"}, r"must be -1 and 1, or 0 and 1, got \[0, 1, 2\]"),
        ([0, 1, 1], {"loss": "logistic", "classes": 3}, "`classes` must be 2 for the loss 'logis"),
        ([0, 1, 1], {"loss": "hinge"}, "exponential, or an AbstractMarginLoss, got 'hinge'"),
    ],
)
def test_bad_labels(labels, options, match):
    with pytest.raises(tw.InputError, match=match):
        tw.Classification(X, labels, **options)


def test_traced_labels_need_the_number_of_classes():
    with pytest.raises(tw.InputError, match="`classes` must be given when the labels are traced"):
        jax.jit(lambda labels: tw.Classification(X, labels).labels)(jnp.array([0, 1, 1]))
