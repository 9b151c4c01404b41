"""arora2019: claim 1, equation 11 and lemmas 3 to 6, on random matrices and at equality."""

from dataclasses import replace

import numpy as np
import pytest
from balanced_chains import balanced, imbalance, nearly_balanced
from hypothesis import assume, given
from hypothesis import strategies as st

import thalweg as tw
from thalweg.certificates import Case, Question, Verdict
from thalweg.dynamics.exact import aligned_modes
from thalweg.theorems.balance.end_to_end import EndToEndFlow
from thalweg.theorems.balance.products import (
    Approach,
    Chain,
    LayerNorms,
    MarginBoundsRank,
    Pair,
    PowersOfProducts,
    RotatedDiagonals,
    Rotation,
    SingularValuesMoveLittle,
    layer_norm_bound,
    printed_claims,
)
from thalweg.theorems.settings.linear import product_training

SEEDS = st.integers(0, 2**32 - 1)


# --- claim 1 -----------------------------------------------------------------------------------


@pytest.mark.statement("arora2019:claim1", "holds")
@given(
    SEEDS,
    st.sampled_from([(2, 2), (1, 3), (3, 2)]),
    st.floats(0.01, 0.99),
    st.floats(0.01, 0.99),
)
def test_nearer_matrices_keep_full_rank(seed, shape, away, share):
    random = np.random.default_rng(seed)
    target, first, second = (random.standard_normal(shape) for _ in range(3))
    least = np.linalg.svd(target, compute_uv=False)[-1]
    assume(least > 1e-3)  # or the margin is within rounding of zero
    matrix = target + away * least * first / np.linalg.norm(first)
    other = target + share * away * least * second / np.linalg.norm(second)
    certificate = MarginBoundsRank().check(Approach(matrix, other, target))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:claim1", "tight")
def test_the_margin_is_attained_along_the_smallest_direction():
    other = np.diag([2.0, 0.7])
    certificate = MarginBoundsRank().check(Approach(other, other, np.diag([2.0, 1.0])))
    assert certificate.verdict is Verdict.CONFIRMED
    np.testing.assert_allclose(certificate.conclusions[0].looseness, 1, rtol=1e-15)


@pytest.mark.statement("arora2019:claim1", "fails")
def test_further_matrices_may_lose_rank():
    target = np.diag([2.0, 1.0])
    near, far = np.diag([2.0, 0.7]), np.diag([2.0, 0.0])
    certificate = MarginBoundsRank().check(Approach(near, far, target))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(certificate.first_failure.margin, -0.7, rtol=1e-14)
    assert MarginBoundsRank().conclusions(Approach(near, far, target))[0].fails
    hopeless = MarginBoundsRank().check(Approach(-target, near, target))
    assert hopeless.first_failure.statement == "0 < c"


# --- lemmas 3 and 4 ----------------------------------------------------------------------------


@pytest.mark.statement("arora2019:lemma3", "holds")
@given(SEEDS, st.tuples(st.integers(1, 5), st.integers(1, 5)), st.floats(-8, 1))
def test_singular_values_move_less_than_the_matrix(seed, shape, exponent):
    random = np.random.default_rng(seed)
    first = random.standard_normal(shape)
    second = first + 10**exponent * random.standard_normal(shape)
    certificate = SingularValuesMoveLittle().check(Pair(first, second))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:lemma3", "tight")
def test_shared_singular_vectors_attain_both_bounds():
    pair = Pair(np.diag([3.0, 2.0, 1.0]), np.diag([3.5, 2.25, 0.5]))
    for claim in SingularValuesMoveLittle().check(pair).conclusions:
        np.testing.assert_allclose(claim.looseness, 1, rtol=1e-15)


@pytest.mark.statement("arora2019:lemma3", "fails")
def test_other_shapes_are_not_compared():
    certificate = SingularValuesMoveLittle().check(Pair(np.eye(2), np.eye(2, 3)))
    assert certificate.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.statement("arora2019:lemma4", "holds")
@given(SEEDS, st.integers(1, 5), st.floats(-6, 1))
def test_rotated_diagonals(seed, size, exponent):
    random = np.random.default_rng(seed)
    first, second = (np.sort(random.uniform(0, 2, size))[::-1] for _ in range(2))
    skew = 10**exponent * random.standard_normal((size, size))
    turn = np.linalg.qr(np.eye(size) + skew - skew.T)[0]
    certificate = RotatedDiagonals().check(Rotation(first, second, turn))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:lemma4", "tight")
def test_unrotated_diagonals_attain_the_first_bound():
    near, turned = RotatedDiagonals().check(Rotation([2, 1], [1.5, 1.25], np.eye(2))).conclusions
    np.testing.assert_allclose(near.looseness, 1, rtol=1e-15)
    assert turned.lesser == 0
    angle = 1e-3  # where D_2 = D_1 the second is e against 2 e
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    _, turned = RotatedDiagonals().check(Rotation([2, 1], [2, 1], turn)).conclusions
    np.testing.assert_allclose(turned.looseness, 2, rtol=1e-10)


@pytest.mark.statement("arora2019:lemma4", "fails")
def test_diagonals_must_be_sorted_and_rotations_orthogonal():
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    unsorted = RotatedDiagonals().check(Rotation([2, 1], [1, 2], swap))
    assert unsorted.verdict is Verdict.NOT_APPLICABLE
    assert unsorted.first_failure.margin == -1
    assert RotatedDiagonals().conclusions(Rotation([2, 1], [1, 2], swap))[0].fails
    sheared = RotatedDiagonals().check(Rotation([2, 1], [2, 1], np.eye(2) + 0.1))
    assert sheared.first_failure.statement == "|O^T O - I|_F <= 1e-10"
    negative = RotatedDiagonals().check(Rotation([1, -1], [1, -1], np.eye(2)))
    assert negative.first_failure.margin == -1


# --- lemmas 5 and 6 ----------------------------------------------------------------------------

WIDTHS = [(1, 1, 1), (2, 2, 2), (3, 2, 1), (2, 3, 4), (5, 2, 2), (2, 2, 2, 2), (1, 3, 1, 2, 2)]


def off_balance(widths, seed, exponent):
    """Layers whose imbalance is of the order 10^exponent."""
    random = np.random.default_rng(seed)
    layers = balanced(random.standard_normal((widths[-1], widths[0])), widths, random)
    return [layer + 10**exponent * random.standard_normal(layer.shape) for layer in layers]


@pytest.mark.statement("arora2019:lemma5", "holds")
@given(st.sampled_from(WIDTHS), SEEDS, st.floats(-6, 0))
def test_squares_of_products_are_nearly_powers(widths, seed, exponent):
    chain = Chain(off_balance(widths, seed, exponent))
    certificate = PowersOfProducts().check(chain)
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)
    assert len(certificate.conclusions) == (6 if widths[0] == widths[-1] else 5)


@pytest.mark.statement("arora2019:lemma5", "tight")
@pytest.mark.parametrize("nu", [1e-3, 0.1, 0.9])
def test_scalar_chains_attain_the_sharper_bound(nu):
    """w_1 = M = 1 and w_2^2 = 1 - nu: |w_1^2 w_2^2 - w_1^4| = nu, the bound for n = 2."""
    layers = [np.ones((1, 1)), np.full((1, 1), (1 - nu) ** 0.5)]
    found = PowersOfProducts().check(Chain(layers)).conclusions
    np.testing.assert_allclose(found[0].looseness, 1, rtol=1e-12)  # nu is a difference
    np.testing.assert_allclose(found[2].looseness, 6, rtol=1e-12)  # 3/2 n^2 against n (n - 1) / 2


@pytest.mark.statement("arora2019:lemma5", "tight")
def test_the_printed_bound_is_off_by_six_at_best_for_two_layers():
    """3 n / (n - 1) over the sharper bound: 6 for two layers, 4 for four."""
    chain = Chain(off_balance((1, 1, 1, 1, 1), 3, -3))
    sharp, _, printed, *_ = PowersOfProducts().check(chain).conclusions
    np.testing.assert_allclose(printed.greater / sharp.greater, [6, 4.5, 4], rtol=1e-14)


@pytest.mark.statement("arora2019:lemma5", "fails")
def test_the_printed_singular_value_bound_is_false():
    """Widths (2, 2, 1) and the product (.6, .8): balanced, but sigma_min(W_1) = 0 < 1."""
    chain = Chain(balanced([[0.6, 0.8]], (2, 2, 1)))
    assert PowersOfProducts().check(chain).verdict is Verdict.CONFIRMED
    (printed,) = printed_claims(chain)
    assert printed.fails
    np.testing.assert_allclose(printed.margin, -1, atol=1e-7)  # the 4th power of sigma_min(W_1)


@pytest.mark.statement("arora2019:lemma5", "fails")
def test_bounds_that_are_no_bounds_are_refused():
    layers = off_balance((2, 2, 2), 5, -1)
    small = Chain(layers, imbalance=imbalance(layers) - 0.01)
    certificate = PowersOfProducts().check(small)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(certificate.first_failure.margin, -0.01, rtol=1e-9)
    # One layer above the bound is enough.
    unequal = Chain([np.eye(2), 2 * np.eye(2)], layer_norm=1.5)
    certificate = PowersOfProducts().check(unequal)
    assert certificate.first_failure.statement == "|W_j|_2 <= M"
    assert certificate.first_failure.margin == -0.5


@pytest.mark.statement("arora2019:lemma6", "holds")
@given(st.sampled_from(WIDTHS), SEEDS, st.floats(1e-3, 0.98), st.floats(1.0, 1.5))
def test_layers_are_bounded_by_their_product(widths, seed, share, slack):
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((widths[-1], widths[0]))
    layers, depth = balanced(matrix, widths, random), len(widths) - 1
    c = slack * np.linalg.norm(matrix, 2)
    assume(c > 1e-3)
    directions = [random.standard_normal(layer.shape) for layer in layers]
    wanted = share * c ** (2 / depth) / (30 * depth**2)
    moved = nearly_balanced(layers, directions, wanted)
    # The product moved with its layers.
    norm = np.linalg.norm(moved[0] if depth == 1 else np.linalg.multi_dot(moved[::-1]), 2)
    chain = Chain(moved, imbalance=wanted / 0.99, product_norm=float(max(c, norm * 1.001)))
    certificate = LayerNorms().check(chain)
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:lemma6", "holds")
@given(st.sampled_from(WIDTHS), SEEDS, st.floats(-6, 1))
def test_the_sharper_bound_holds_for_any_imbalance(widths, seed, exponent):
    chain = Chain(off_balance(widths, seed, exponent))
    bound = layer_norm_bound(chain.nu, chain.c, len(widths) - 1)
    assert np.max(chain.point.layer_norms) <= bound * (1 + 1e-9)  # nu may be 1e-9 and rounded


@pytest.mark.statement("arora2019:lemma6", "tight")
@given(st.floats(0.01, 10), st.floats(1e-6, 10))
def test_two_scalars_attain_the_sharper_bound(square, nu):
    c = (square * (square + nu)) ** 0.5
    # The root is found to 1e-15 in units of its size.
    np.testing.assert_allclose(layer_norm_bound(nu, c, 2), (square + nu) ** 0.5, rtol=1e-12)


@pytest.mark.statement("arora2019:lemma6", "tight")
def test_the_printed_bound_of_layers_is_nearly_attained():
    """Balanced layers have |W_j| = C^(1/N), so that 2^(1/(2N)) is all there is to lose."""
    chain = Chain(balanced(np.diag([2.0, 1.0]), (2, 3, 2)))
    printed, sharper = LayerNorms().check(chain).conclusions
    np.testing.assert_allclose(printed.looseness, 2**0.25, rtol=1e-12)
    np.testing.assert_allclose(sharper.looseness, 1, rtol=1e-7)  # nu is of the size of rounding
    assert layer_norm_bound(0.0, 0.0, 3) == 0


@pytest.mark.statement("arora2019:lemma6", "fails")
def test_layers_off_balance_may_be_large():
    layers = [np.full((1, 1), 10.0), np.full((1, 1), 0.1)]
    certificate = LayerNorms().check(Chain(layers))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(certificate.first_failure.margin, 1 / 120 - 99.99, rtol=1e-12)
    assert LayerNorms().conclusions(Chain(layers))[0].fails
    understated = LayerNorms().check(Chain([np.eye(2)] * 2, product_norm=0.5))
    assert understated.first_failure.statement == "|W|_2 <= C"


# --- equation 11 -------------------------------------------------------------------------------


def sine_case(widths=(3, 4, 3, 2)):
    i, j = np.indices((2, 3))
    product, target = np.sin(1 + i + 2 * j) + np.eye(2, 3), np.cos(1 + 2 * i + j)
    objective = tw.Objective(tw.LinearNetwork(widths), tw.TargetMatrix(target))
    return Case(objective, tuple(balanced(product, widths)))


@pytest.mark.statement("arora2019:eq11", "holds")
@pytest.mark.statement("arora2019:eq11", "tight")
def test_the_product_follows_its_own_flow():
    """The published W(1), to its twelve digits, and the eigenvalues of the preconditioner."""
    case = sine_case()
    times = np.array([0.0, 1.0])
    flow = tw.flow(
        case.objective,
        case.weights,
        times=times,
        rtol=1e-10,
        atol=1e-12,
        solver=tw.solvers.Explicit(),
    )
    certificate = EndToEndFlow().check(replace(case, flow=flow))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)
    assert len(certificate.conclusions) == 5
    published = [
        [0.808370575714, -0.170729484105, -0.883350008379],
        [-0.340103700443, 0.116326138845, 0.443692748618],
    ]
    product = np.linalg.multi_dot([array[-1] for array in flow.weights[::-1]])
    np.testing.assert_allclose(product, published, atol=1e-9)  # the flow's tolerance
    least = certificate.conclusions[1]
    np.testing.assert_allclose(least.lesser, 0.13751330600998637, rtol=1e-12)
    np.testing.assert_allclose(least.looseness, 1, rtol=1e-12)  # d_0 > d_N: the paper's own bound
    np.testing.assert_allclose(certificate.conclusions[3].lesser, 9.054603508564032, rtol=1e-12)


@pytest.mark.statement("arora2019:eq11", "holds")
@given(SEEDS, st.sampled_from([(2, 2, 2), (2, 3, 2, 3)]))
def test_balanced_layers_move_as_their_product(seed, widths):
    random = np.random.default_rng(seed)
    layers = balanced(random.standard_normal((widths[-1], widths[0])), widths, random)
    x, y = random.standard_normal((9, widths[0])), random.standard_normal((9, widths[-1]))
    objective = tw.Objective(tw.LinearNetwork(widths), tw.Regression(x, y, scale=1.0))
    certificate = EndToEndFlow().check(Case(objective, tuple(layers)))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)
    assert certificate.answers == ()  # not white
    assert certificate.conclusions[0].lesser <= 1e-11  # numbers of order ten, to rounding


@pytest.mark.statement("arora2019:eq11", "holds")
def test_a_product_of_low_rank_moves_alike():
    """Ten layers: tenth roots of what rounding leaves of a zero are large, and not a violation."""
    objective = tw.Objective(tw.LinearNetwork([2] * 11), tw.TargetMatrix(np.eye(2)))
    layers = balanced(np.array([[0.6, 0.8], [0.3, 0.4]]), (2,) * 11)
    certificate = EndToEndFlow().check(Case(objective, tuple(layers)))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:eq11", "tight")
def test_square_products_gain_the_depth():
    """Identity layers on 1.2 I: the rate 2 N c^p with c = .917, where 2 N sigma_min^p is met."""
    target = 1.2 * np.eye(2)
    objective = tw.Objective(tw.LinearNetwork([2, 2, 2]), tw.TargetMatrix(target))
    case = Case(objective, (np.eye(2),) * 2, target_loss=1e-3)
    rate, time = EndToEndFlow().check(case).answers
    c = 1.2 - 0.2 * 2**0.5
    assert rate.question is Question.RATE
    np.testing.assert_allclose(float(rate.value), 2 * 2 * c, rtol=1e-13)
    np.testing.assert_allclose(float(time.value), np.log(0.04 / 1e-3) / (4 * c), rtol=1e-13)
    # Each of the two modes is a logistic curve from 1 to 1.2.
    times = np.array([0.0, 1e-4, float(time.value)])
    losses = (aligned_modes([1.0], [1.2], 2, times)[:, 0] - 1.2) ** 2
    assert losses[2] <= 1e-3
    # At the start the loss falls like exp(-2 N sigma_min^p t), and sigma_min = 1 there.
    np.testing.assert_allclose(np.log(losses[0] / losses[1]) / 1e-4, 4.0, rtol=1e-3)


@pytest.mark.statement("arora2019:eq11", "holds")
def test_a_flow_that_has_not_moved_says_nothing_about_the_product():
    objective = tw.Objective(tw.LinearNetwork([2, 2, 2]), tw.TargetMatrix(1.2 * np.eye(2)))
    case = Case(objective, (np.eye(2),) * 2)
    still = replace(case, flow=tw.flow(objective, case.weights, times=[0.0]))
    statements = [claim.statement for claim in EndToEndFlow().check(still).conclusions]
    assert statements == [claim.statement for claim in EndToEndFlow().check(case).conclusions]


@pytest.mark.statement("arora2019:eq11", "fails")
def test_unbalanced_layers_have_no_flow_of_the_product():
    case = sine_case()
    first, *rest = case.weights
    unbalanced = replace(case, weights=(2 * first, *rest))
    training, certificate = product_training(unbalanced).setting, EndToEndFlow().check(unbalanced)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin < -1
    assert EndToEndFlow().conclusions(training)[0].lesser > 10  # not 1e-15, as if balanced
