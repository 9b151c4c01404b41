"""The closed forms against published numbers, against each other, and against their equations."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import thalweg as tw
from thalweg import initialisation
from thalweg.dynamics.exact import aligned_modes, one_output, one_output_weights, two_layers

# The numbers that these are compared with have twelve decimals.
DIGITS = 6e-13


def test_one_output_has_the_published_values():
    """Oracle: elkabetz2021:exactflow, depth 3, target e_1."""
    start = 0.1 * np.array([0.3, np.sqrt(0.91), 0.0, 0.0])
    found = one_output(start, [1.0, 0.0, 0.0, 0.0], 3, [1.0, 2.0, 5.0, 10.0])
    published = [
        [0.117427727934, 0.129860444754],
        [0.425105175368, 0.206017558301],
        [0.998464541116, 0.025972185197],
        [0.999999938503, 0.000175271904],
    ]
    np.testing.assert_allclose(found[:, :2], published, rtol=0, atol=DIGITS)
    assert np.all(found[:, 2:] == 0)


@pytest.mark.parametrize("depth", [2, 3, 6])
@pytest.mark.parametrize("cosine", [0.3, -0.8, 1.0, -1.0])
@pytest.mark.parametrize("size", [1.0, 2.5])
def test_one_output_solves_its_equation(depth, cosine, size):
    """Oracle: elkabetz2021:lem35 integrated by scipy, for a target of any size."""
    target = size * np.array([0.6, 0.8])
    across = np.array([-0.8, 0.6])
    start = 0.2 * (cosine * target / size + np.sqrt(1 - cosine**2) * across)

    def field(_, w):
        norm = np.linalg.norm(w)
        slope = w - target
        return -(norm ** (2 - 2 / depth)) * (slope + (depth - 1) * (w @ slope) * w / norm**2)

    times = np.array([0.0, 0.5, 2.0])
    solved = solve_ivp(field, (0, 2), start, "DOP853", t_eval=times, rtol=1e-12, atol=1e-14)
    found = one_output(start, target, depth, times)
    # scipy's dense output, of order 7, is good to about 1e-10 at this tolerance
    np.testing.assert_allclose(found, solved.y.T, rtol=0, atol=1e-9)


def test_one_output_reaches_the_target_without_overflow():
    """At the end nothing but the target is left, although cosh(tau)^10 is far beyond 1e308."""
    found = one_output([0.0, 0.3], [1.0, 0.0], 10, [1e3, 1e5])
    np.testing.assert_allclose(found, [[1.0, 0.0], [1.0, 0.0]], atol=1e-12)


def test_one_output_weights_multiply_to_the_vector():
    network = tw.LinearNetwork([3, 4, 2, 1])
    weights = initialisation.balanced_from(network, [[0.1, -0.2, 0.05]])
    times = [0.0, 1.0, 4.0]
    first, second, third = one_output_weights(weights, [0.5, 0.1, -0.7], times)
    vectors = one_output([0.1, -0.2, 0.05], [0.5, 0.1, -0.7], 3, times)
    # products of three matrices with entries below 1: a few ulps
    np.testing.assert_allclose((third @ second @ first)[:, 0], vectors, atol=1e-15)
    for layer, array in zip(weights, (first, second, third), strict=True):
        np.testing.assert_allclose(array[0], layer, atol=1e-15)


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_aligned_modes_solve_their_equation(depth):
    """Oracle: scipy, for modes below, above, opposite to, without and at their target."""
    start, target = np.array([0.1, 2.0, 0.3, 0.7, 0.5, 0.0]), np.array([1.0, 1.0, -0.5, 0, 0.5, 1])
    times = np.array([0.0, 0.3, 1.0, 3.0])
    solved = solve_ivp(
        lambda _, s: depth * np.abs(s) ** (2 - 2 / depth) * (target - s),
        (0, 3), start, "DOP853", t_eval=times, rtol=1e-12, atol=1e-14,
    )  # fmt: skip
    found = aligned_modes(start, target, depth, times)
    np.testing.assert_allclose(found, solved.y.T, rtol=0, atol=1e-9)  # as above


def test_two_layers_of_a_mode_follow_the_logistic_curve():
    """Oracle: s' = 2 s (m - s)."""
    times = np.array([0.0, 0.5, 3.0, 40.0])
    exact = 3.0 / (1 + (3.0 / 0.01 - 1) * np.exp(-6 * times))
    # one exponential: a few ulps
    np.testing.assert_allclose(aligned_modes(0.01, 3.0, 2, times)[:, 0], exact, rtol=1e-13)


@pytest.mark.parametrize("widths", [(4, 5, 3), (4, 2, 3), (3, 3, 3), (1, 2, 4)])
def test_two_layers_follow_the_flow_of_the_layers(widths):
    """Oracle: both layers by scipy; widths that allow any product, and that do not."""
    rng = np.random.default_rng(3)
    target = rng.normal(size=(widths[2], widths[0]))
    rank = min(widths)
    matrix = 0.3 * rng.normal(size=(widths[2], rank)) @ rng.normal(size=(rank, widths[0]))
    weights = initialisation.balanced_from(tw.LinearNetwork(widths), matrix)
    shapes = [array.shape for array in weights]
    split = weights[0].size

    def layers(flat):
        return flat[:split].reshape(shapes[0]), flat[split:].reshape(shapes[1])

    def field(_, flat):
        first, second = layers(flat)
        slope = second @ first - target
        return -np.concatenate([(second.T @ slope).ravel(), (slope @ first.T).ravel()])

    times = np.array([0.0, 0.2, 1.0, 4.0])
    start = np.concatenate([np.ravel(array) for array in weights])
    solved = solve_ivp(field, (0, 4), start, "DOP853", t_eval=times, rtol=1e-12, atol=1e-14)
    expected = [second @ first for first, second in map(layers, solved.y.T)]
    # scipy's dense output, of order 7, is good to about 1e-10 at this tolerance
    np.testing.assert_allclose(two_layers(weights, target, times), expected, rtol=0, atol=1e-9)


def test_two_layers_reach_the_target_without_overflow():
    rng = np.random.default_rng(0)
    target = rng.normal(size=(3, 4))
    weights = initialisation.balanced_from(
        tw.LinearNetwork([4, 5, 3]), 0.01 * rng.normal(size=(3, 4))
    )
    # exp(2 * 3 * 1e4) is far beyond 1e308; the limit is reached to rounding
    np.testing.assert_allclose(two_layers(weights, target, [1e4])[0], target, atol=1e-13)


def test_slow_modes_keep_their_digits_beside_fast_ones():
    """Oracle: modes of their own, in hidden units that are turned at random.

    After exp(2 * 6 * 60) of one mode and next to nothing of another, each is right by itself.
    """
    random = np.random.default_rng(0)
    for _ in range(100):
        goals, starts = 10 ** random.uniform(-2, 0.8, 3), 10 ** random.uniform(-6, -1, 3)
        turn, times = np.linalg.qr(random.normal(size=(3, 3)))[0], [random.uniform(1, 60)]
        first = turn * np.sqrt(starts)
        found = two_layers((first, first.T), np.diag(goals), times)[0]
        expected = aligned_modes(starts, goals, 2, times)[0]
        np.testing.assert_allclose(np.diag(found), expected, rtol=1e-12)


def test_two_layers_agree_with_one_output():
    start, target, times = [0.1, -0.2, 0.3], [0.5, 0.1, -0.7], [0.0, 0.5, 2.0, 30.0]
    weights = initialisation.balanced_from(tw.LinearNetwork([3, 2, 1]), [start])
    # two closed forms: rounding alone
    np.testing.assert_allclose(
        two_layers(weights, target, times)[:, 0], one_output(start, target, 2, times), atol=1e-13
    )


UNBALANCED = (np.eye(2), np.array([[1.0, 2.0]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: two_layers(UNBALANCED, [[1.0, 1.0]], [1.0]), "must be balanced"),
        (lambda: one_output_weights(UNBALANCED, [1.0, 1.0], [1.0]), "must be balanced"),
        (lambda: one_output([1.0], [1.0, 2.0], 3, [1.0]), "as many entries, got 1 and 2"),
        (lambda: one_output([0.0], [1.0], 3, [1.0]), r"\|start\|` must be positive"),
        (lambda: one_output([1.0], [1.0], 3, [2.0, 1.0]), "increasing times"),
        (lambda: aligned_modes([-1.0], [1.0], 3, [1.0]), "none of them negative"),
        (
            lambda: two_layers((np.eye(2), np.eye(2)), [[1.0, 1.0]], [1.0]),
            r"`target` must be outputs x features, \(2, 2\)",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(tw.InputError, match=message):
        call()
