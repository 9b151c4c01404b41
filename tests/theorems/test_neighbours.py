"""Balanced weights and what is near them: products, gradients, curvature; white losses."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import oracles
import thalweg as tw
from thalweg.certificates import Case, Verdict
from thalweg.curvature import dense_spectrum, gradient_norm_bounds, hessian_norm_bounds
from thalweg.dynamics.exact import one_output, one_output_weights
from thalweg.initialisation import balanced_from, nearest_balanced
from thalweg.measurement import unbalancedness
from thalweg.theorems.balance.end_to_end import EndToEndFlow
from thalweg.theorems.balance.neighbourhood import (
    BalancedNeighbourhood,
    NearbyProduct,
    Neighbours,
    growth_bound,
    growth_integral,
)
from thalweg.theorems.one_output.white_loss import Predictor, WhiteLoss
from thalweg.theorems.settings.linear import product_training
from thalweg.theorems.settings.ray import Ray

WIDTHS = ([3, 2, 1], [3, 4, 2, 1])
SEEDS = st.integers(0, 2**32 - 1)
TARGET = np.array([0.6, 0.0, 0.8])


def balanced(widths, random, norm):
    """Balanced weights whose product has this norm, in turned coordinates of the hidden layers."""
    product = random.standard_normal(widths[0])
    layers = balanced_from(tw.LinearNetwork(widths), norm * product / np.linalg.norm(product))
    turns = [np.linalg.qr(random.standard_normal((w, w)))[0] for w in widths[1:-1]]
    turns = [np.eye(widths[0]), *turns, np.eye(1)]
    return tuple(
        after @ np.asarray(layer) @ before.T
        for layer, before, after in zip(layers, turns, turns[1:], strict=False)
    )


def moved(weights, random, distance):
    """The weights, moved by this distance in a random direction."""
    steps = [random.standard_normal(np.shape(layer)) for layer in weights]
    size = np.sqrt(sum(np.sum(step**2) for step in steps))
    return tuple(layer + distance / size * step for layer, step in zip(weights, steps, strict=True))


@eqx.filter_jit
def norm_bounds(objective, weights):
    """Both bounds of lemma 62, in one compilation."""
    return hessian_norm_bounds(objective, weights), gradient_norm_bounds(objective, weights)


# --------------------------------------------------------------------------------- white losses


@pytest.mark.statement("elkabetz2021:appF", "holds")
@pytest.mark.statement("elkabetz2021:appF", "tight")
@given(SEEDS, st.floats(0.1, 2.0))
def test_white_losses_are_distances(seed, scale):
    """An identity, to rounding; inputs are whitened by the root of their moment."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((30, 3)), random.standard_normal((30, 2))
    values, vectors = np.linalg.eigh(x.T @ x / 30)
    white = x @ (vectors / np.sqrt(values)) @ vectors.T
    predictor = Predictor(
        tw.Regression(white, y, scale), jnp.asarray(random.standard_normal((2, 3)))
    )
    certificate = WhiteLoss().check(predictor)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert max(float(claim.lesser) for claim in certificate.conclusions) < 1e-12


@pytest.mark.statement("elkabetz2021:appF", "fails")
def test_losses_that_are_not_white():
    problem = tw.Regression([[1.0, 0.0], [0.0, 2.0]], [1.0, 0.0])  # Sigma = diag(1/2, 2)
    certificate = WhiteLoss().check(Predictor(problem, jnp.ones((1, 2))))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.assumptions[0].margin == pytest.approx(-np.sqrt(1.25), rel=1e-9)


# -------------------------------------------------------------------------- end-to-end dynamics


@pytest.mark.statement("elkabetz2021:lem35", "holds")
@pytest.mark.parametrize("widths", [[3, 4, 2, 1], [3, 3, 2]], ids=str)
@settings(max_examples=4)
@given(seed=SEEDS)
def test_products_of_balanced_layers_move_by_themselves(widths, seed):
    """Any loss, here with general inputs."""
    random = np.random.default_rng(seed)
    problem = tw.Regression(
        random.standard_normal((20, 3)), random.standard_normal((20, widths[-1])), scale=0.8
    )
    network = tw.LinearNetwork(widths)
    weights = balanced_from(network, random.standard_normal((widths[-1], 3)))
    certificate = EndToEndFlow().check(Case(tw.Objective(network, problem), weights))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    vectors = [each for each in certificate.conclusions if each.statement.startswith("w' = ")]
    assert len(vectors) == (1 if widths[-1] == 1 else 0)


@pytest.mark.statement("elkabetz2021:lem35", "tight")
def test_velocity_by_hand():
    """Two numbers: w = w_1 w_2 with w_1 = w_2 has w' = -(w_1^2 + w_2^2)(w - 1) = -2 w (w - 1)."""
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1]), tw.TargetMatrix([1.0]))
    weights = (np.full((1, 1), 0.5), np.full((1, 1), 0.5))
    matrix, *_, vector = EndToEndFlow().check(Case(objective, weights)).conclusions
    assert max(float(matrix.lesser), float(vector.lesser)) < 1e-16
    slopes = objective.gradient(weights)
    assert float(0.5 * slopes[0][0, 0] + 0.5 * slopes[1][0, 0]) == pytest.approx(2 * 0.25 * -0.75)


@pytest.mark.statement("elkabetz2021:lem35", "fails")
def test_products_of_other_layers_do_not():
    objective = tw.Objective(tw.LinearNetwork([3, 2, 1]), tw.TargetMatrix(TARGET))
    ones = (np.ones((2, 3)), np.ones((1, 2)))
    certificate = EndToEndFlow().check(Case(objective, ones))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.assumptions[-1].margin < -0.1
    forced = EndToEndFlow().conclusions(product_training(Case(objective, ones)).setting)
    assert float(forced[0].lesser) > 0.1  # the identity is really false there
    # And what it is known to does not hide that, at any size.
    for size in (0.1, 1.0, 10.0):
        layers = tuple(size * layer for layer in ones)
        training = product_training(Case(objective, layers)).setting
        matrix, *_, vector = EndToEndFlow().conclusions(training)
        assert matrix.fails
        assert vector.fails
    decayed = tw.Objective(objective.network, objective.problem, 0.1)
    certificate = EndToEndFlow().check(Case(decayed, ones))
    assert certificate.first_failure.statement == "there is no weight decay"


# ----------------------------------------------------------------------- near balanced weights


@pytest.mark.statement("elkabetz2021:lem60", "holds")
@pytest.mark.statement("elkabetz2021:lem61", "holds")
@pytest.mark.statement("elkabetz2021:lem62", "holds")
@pytest.mark.statement("elkabetz2021:lem64", "holds")
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@given(seed=SEEDS, norm=st.floats(1e-3, 1.0), share=st.floats(0.0, 0.999))
def test_neighbours_of_balanced_weights(widths, seed, norm, share):
    random = np.random.default_rng(seed)
    weights = balanced(widths, random, norm * 0.999)
    nearby = moved(weights, random, share / (2 * len(weights)))
    subject = Neighbours(weights, nearby, TARGET)
    certificate = BalancedNeighbourhood().check(subject)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    hessian, gradient = norm_bounds(subject.objective, nearby)  # lemma 62 at the same point
    values = np.asarray(dense_spectrum(subject.objective, nearby))
    assert np.max(np.abs(values)) <= hessian.sharper * (1 + 1e-12)
    assert hessian.sharper <= hessian.paper * (1 + 1e-12)
    slope = next(c.lesser for c in certificate.conclusions if c.statement.startswith("|grad f|"))
    assert slope <= gradient.sharper * (1 + 1e-12)
    assert gradient.sharper <= gradient.paper * (1 + 1e-12)


@pytest.mark.statement("elkabetz2021:lem60", "tight")
@pytest.mark.statement("elkabetz2021:lem61", "tight")
@pytest.mark.statement("elkabetz2021:lem64", "tight")
def test_neighbours_along_the_layers():
    """Every layer longer by r / sqrt(N) moves the product as far as one layer may by r / sqrt(N).

    So |w_r - w| is (|w|^{1/N} + r / sqrt(N))^N - |w|: the bound has sqrt(N) too much to first
    order, and 2 N r instead of N r. A point itself, r = 0, attains all but the curvature.
    """
    weights = balanced([3, 2, 1], np.random.default_rng(0), 0.99)
    size = 0.99**0.5
    grown = tuple(layer * (1 + 1e-4 / np.sqrt(2) / size) for layer in weights)
    claims = BalancedNeighbourhood().check(Neighbours(weights, grown, TARGET)).conclusions
    assert claims[1].looseness == pytest.approx(np.sqrt(2), rel=1e-3)
    reach = (size + 1e-4) ** 2 - 0.99
    assert (4e-4) / reach == pytest.approx(2.0, rel=0.01)
    still = BalancedNeighbourhood().check(Neighbours(weights, weights, TARGET)).conclusions
    assert [claim.looseness for claim in still[:1]] == pytest.approx([1.0], abs=1e-12)
    assert still[3].looseness == pytest.approx(1.0, abs=1e-9)
    assert still[4].looseness < 3


@pytest.mark.statement("elkabetz2021:lem61", "value")
def test_every_side_near_balanced_weights_by_hand():
    """From the layers alone, the gradient and the Hessian by autodiff; some eigenvalue is < 0."""
    random = np.random.default_rng(3)
    weights = balanced([3, 4, 2, 1], random, 0.5)
    nearby = moved(weights, random, 0.1)
    claims = BalancedNeighbourhood().conclusions(Neighbours(weights, nearby, TARGET))

    def loss(layers):
        return oracles.half_squared_distance(layers[2] @ layers[1] @ layers[0], TARGET[None])

    values = np.linalg.eigvalsh(oracles.hessian(loss, nearby))
    slope = np.sqrt(sum(np.sum(np.square(part)) for part in jax.grad(loss)(nearby)))
    w, near = (a[2] @ a[1] @ a[0] for a in (weights, nearby))
    away, room = np.linalg.norm(w - TARGET), 2 * 3 * 0.1
    lengths = np.sort([np.linalg.norm(layer) for layer in nearby])[::-1]
    reach = (0.5 ** (1 / 3) + 0.1) ** 3
    expected = [
        (reach, 0.5 + room),
        (np.linalg.norm(near - w), reach - 0.5),
        (np.linalg.norm(near - TARGET), away + room),
        (np.cumprod(lengths), [(0.5 + room) ** (k / 3) for k in (1, 2, 3)]),
        (-values[0], 2 * (away + room) * (0.5 + room) ** (1 / 3)),
        (np.max(np.abs(values)), 48.0),
        (slope, 6 * np.sqrt(3)),
    ]
    assert values[0] < -0.1
    for claim, (lesser, greater) in zip(claims, expected, strict=True):  # rounding, in a few steps
        np.testing.assert_allclose(claim.lesser, lesser, rtol=1e-10, err_msg=claim.statement)
        np.testing.assert_allclose(claim.greater, greater, rtol=1e-10, err_msg=claim.statement)


@pytest.mark.statement("elkabetz2021:lem64", "tight")
def test_the_curvature_near_zero_is_attained():
    """At tiny weights aligned with the target -lambda_min is nearly (N - 1) |w|^{1 - 2/N}.

    With three layers the correction is of the order of |w|^{2/3} = 1e-6.
    """
    weights = balanced_from(tw.LinearNetwork([3, 4, 2, 1]), 1e-9 * TARGET)
    claims = BalancedNeighbourhood().check(Neighbours(weights, weights, TARGET)).conclusions
    assert claims[4].looseness == pytest.approx(1.0, abs=1e-5)


@pytest.mark.statement("elkabetz2021:lem62", "tight")
def test_the_hessian_bound_at_equal_layers():
    """Scalar layers all 1 with target 0: H = 1 1^T + (1 1^T - I), so |H| = N + (N - 1)."""
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1, 1]), tw.TargetMatrix([0.0]))
    weights = (np.ones((1, 1)),) * 3
    bounds = hessian_norm_bounds(objective, weights)
    assert float(bounds.sharper) == pytest.approx(5.0, rel=1e-12)
    assert float(bounds.paper) == pytest.approx(3 + 6, rel=1e-12)
    assert float(dense_spectrum(objective, weights)[-1]) == pytest.approx(5.0, rel=1e-12)


@pytest.mark.statement("elkabetz2021:lem60", "fails")
@pytest.mark.statement("elkabetz2021:lem61", "fails")
@pytest.mark.statement("elkabetz2021:lem62", "fails")
@pytest.mark.statement("elkabetz2021:lem64", "fails")
def test_neighbours_that_are_too_far_or_of_other_weights():
    random = np.random.default_rng(1)
    weights = balanced([3, 2, 1], random, 0.5)
    far = BalancedNeighbourhood().check(Neighbours(weights, moved(weights, random, 1.0), TARGET))
    assert far.verdict is Verdict.NOT_APPLICABLE
    assert far.first_failure.margin == pytest.approx(0.25 - 1.0)
    large = balanced([3, 2, 1], random, 1.5)
    certificate = BalancedNeighbourhood().check(Neighbours(large, large, TARGET))
    assert certificate.first_failure.statement == "|w| <= 1"
    certificate = BalancedNeighbourhood().check(Neighbours(weights, weights, 2 * TARGET))
    assert certificate.first_failure.statement == "||target| - 1| <= 1e-10"
    ones = (np.ones((2, 3)), np.ones((1, 2)))
    certificate = BalancedNeighbourhood().check(Neighbours(ones, ones, TARGET))
    assert certificate.first_failure.statement.startswith("unbalancedness")
    # Far above |w| = 1 the first inequality is false.
    assert (30.0 ** (1 / 3) + 1 / 6) ** 3 > 30.0 + 2 * 3 * (1 / 6)


@pytest.mark.statement("elkabetz2021:prop14", "tight")
def test_the_integral_of_curvature_along_a_flow():
    """Up to time 60 with balls of 1e-6: 3.621 <= 17.623; the last part of it is below 1e-3."""
    ray = Ray(3, 0.1, 0.0)
    assert growth_integral(ray, 1e-6, gap=1e-12) == pytest.approx(3.621, abs=1e-3)
    assert float(growth_bound(ray, 1e-6, 60.0)) == pytest.approx(17.623, abs=5e-3)


# ----------------------------------------------------------------------- nearly balanced weights


@pytest.mark.statement("elkabetz2021:lem88", "holds")
@settings(max_examples=10)
@given(SEEDS, st.floats(0.02, 0.099), st.floats(0.0, 3e-9))
def test_products_of_nearly_balanced_weights(seed, norm, distance):
    random = np.random.default_rng(seed)
    weights = moved(balanced([3, 4, 2, 1], random, norm), random, distance)
    subject = Neighbours(weights, weights, TARGET)
    certificate = NearbyProduct().check(subject)
    assume(certificate.applies)  # unless the cosine is near -1
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("elkabetz2021:lem88", "tight")
def test_how_near_the_product_of_the_nearest_balanced_weights_is():
    """Two scalar layers a little apart: w^ = w_2^2, and the bound is 6000 times too large."""
    weights = (np.array([[0.2002]]), np.array([[0.2]]))
    subject = Neighbours(weights, weights, np.array([1.0]))
    certificate = NearbyProduct().check(subject)
    assert certificate.verdict is Verdict.NOT_APPLICABLE  # x = sqrt(32 * 8e-5) = 0.05 > |w| / 3
    closer = (np.array([[0.20001]]), np.array([[0.2]]))
    subject = replace(subject, weights=closer)
    certificate = NearbyProduct().check(subject)
    assert certificate.verdict is Verdict.CONFIRMED
    change = certificate.conclusions[0]
    assert float(change.lesser) == pytest.approx(2e-6, rel=1e-6)
    x = np.sqrt(32 * (0.20001**2 - 0.04))
    assert float(change.greater) == pytest.approx(x / (1 - x), rel=1e-9)
    assert change.looseness == pytest.approx(5722, rel=1e-3)


@pytest.mark.statement("elkabetz2021:lem88", "value")
def test_nearly_balanced_weights_in_other_units():
    """A target 8 times as long and layers twice as long: all sides are in units of the target."""
    random = np.random.default_rng(5)
    weights = moved(balanced([3, 4, 2, 1], random, 0.05), random, 1e-9)
    longer = tuple(2 * layer for layer in weights)
    checked = [
        NearbyProduct().check(Neighbours(layers, layers, size * TARGET))
        for layers, size in ((weights, 1.0), (longer, 8.0))
    ]
    pairs = [(*each.assumptions, *each.conclusions) for each in checked]
    for claim, other in zip(*pairs, strict=True):
        # Powers of two are exact, and the unbalancedness of 1e-10 has lost six digits.
        assert float(claim.lesser) == pytest.approx(float(other.lesser), rel=1e-6)
        assert float(claim.greater) == pytest.approx(float(other.greater), rel=1e-6)


@pytest.mark.statement("elkabetz2021:lem88", "fails")
def test_the_printed_intermediate_bound_is_false():
    """|w - w^| <= |w^| x / (1 - x) at w_2 = .01, w_1 = .011: 1e-5 against 2.7e-6."""
    weights = (np.array([[0.011]]), np.array([[0.01]]))
    hats = nearest_balanced(weights)
    change = 0.011 * 0.01 - float(hats[0][0, 0] * hats[1][0, 0])
    x = np.sqrt(32 * float(unbalancedness(weights)))
    assert change == pytest.approx(1e-5, rel=1e-9)
    assert 1e-4 * x / (1 - x) == pytest.approx(2.7e-6, rel=0.02)
    certificate = NearbyProduct().check(Neighbours(weights, weights, np.array([1.0])))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.assumptions[-1].margin < 0
    two = (np.ones((2, 3)), np.ones((2, 2)))
    certificate = NearbyProduct().check(Neighbours(two, two, TARGET))
    assert certificate.first_failure.statement == "the network has one output"


# --------------------------------------------------------------- functions that existed already


@pytest.mark.statement("elkabetz2021:proc13", "value")
def test_the_balanced_start_of_a_product():
    layers = balanced_from(tw.LinearNetwork([2, 3, 2, 1]), [0.06, 0.08])
    root = 0.4641588833612779  # 0.1 ** (1 / 3)
    np.testing.assert_allclose([np.linalg.norm(a) for a in layers], root, rtol=1e-14)
    np.testing.assert_allclose(layers[2] @ layers[1] @ layers[0], [[0.06, 0.08]], rtol=1e-14)
    assert float(unbalancedness(layers)) < 1e-15
    random = tw.initialisation.balanced(tw.LinearNetwork([2, 3, 1]), 0.1, key=jax.random.key(0))
    assert float(unbalancedness(random)) < 1e-15


ORACLE = (
    np.array([[0.5, 0.1], [0.0, 0.3]]),
    np.array([[0.4, 0.0], [0.2, 0.1]]),
    np.array([[0.3, -0.4]]),
)


@pytest.mark.statement("elkabetz2021:def30", "value")
def test_the_unbalancedness_of_an_example():
    assert float(unbalancedness(ORACLE)) == pytest.approx(0.438634243989, rel=1e-11)


@pytest.mark.statement("elkabetz2021:lem31", "value")
def test_the_nearest_balanced_weights_of_an_example():
    """The better of two constructions, .752 by vectors and .818 by polar factors."""
    hats = nearest_balanced(ORACLE)
    expected = [[0.3282660821, -0.1313064329], [-0.3282660821, 0.1313064329]]
    np.testing.assert_allclose(hats[0], expected, atol=1e-10)
    distance = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(hats, ORACLE, strict=True)))
    assert float(distance) == pytest.approx(0.752379066506, rel=1e-11)
    assert 3**1.5 * np.sqrt(0.438634243989) == pytest.approx(3.441384109295, rel=1e-11)
    assert float(unbalancedness(hats)) < 1e-15


@pytest.mark.statement("elkabetz2021:lem31", "holds")
@given(SEEDS, st.floats(0.01, 1.0))
def test_the_nearest_balanced_weights_are_near(seed, size):
    """Within sqrt((N - 1) N (2 N - 1) / 6) sqrt(e), for widths that the paper does not cover."""
    random = np.random.default_rng(seed)
    weights = tuple(size * random.standard_normal(shape) for shape in ((4, 3), (2, 4), (1, 2)))
    hats = nearest_balanced(weights)
    distance = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(hats, weights, strict=True)))
    assert distance <= np.sqrt(5 * float(unbalancedness(weights))) * (1 + 1e-12)


@pytest.mark.statement("elkabetz2021:exactflow", "value")
def test_the_exact_flow_of_an_example():
    start = 0.1 * np.array([0.3, np.sqrt(0.91), 0.0, 0.0])
    target = np.array([1.0, 0.0, 0.0, 0.0])
    path = one_output(start, target, 3, [1.0, 2.0, 5.0, 10.0])
    expected = [
        [0.117427727934, 0.129860444754],
        [0.425105175368, 0.206017558301],
        [0.998464541116, 0.025972185197],
        [0.999999938503, 0.000175271904],
    ]
    np.testing.assert_allclose(path[:, :2], expected, atol=1e-12)
    layers = balanced_from(tw.LinearNetwork([4, 2, 2, 1]), start)
    first, second, third = one_output_weights(layers, target, [1.0, 2.0])
    np.testing.assert_allclose((third @ second @ first)[:, 0], path[:2], atol=1e-12)
