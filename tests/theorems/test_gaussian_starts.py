"""Gaussian starts of every layer: how likely they are balanced, and have a margin."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, ndtr

import strategies
import thalweg as tw
from thalweg.certificates import Case, RandomStart, Verdict
from thalweg.theorems.probability.gaussian_products import GaussianChain
from thalweg.theorems.probability.gaussian_starts import (
    NORM_CONSTANT,
    BalancedStartConverges,
    BalanceOfGaussianStart,
    MarginOfGaussianStart,
    margin_frequency,
)
from thalweg.theorems.settings.matrix_approximation import largest_imbalance

SEEDS = st.integers(0, 2**32 - 1)
THEOREMS = (BalancedStartConverges(), BalanceOfGaussianStart(), MarginOfGaussianStart())


def gaussian_case(widths, scale, target=1.0):
    """The weights are zero: only the law from which they would be drawn matters."""
    network = tw.LinearNetwork(widths)
    objective = tw.Objective(network, tw.TargetMatrix(target * np.eye(widths[-1], widths[0])))
    weights = tuple(np.zeros(shape) for shape in network.shapes)
    return Case(objective, weights, random_start=RandomStart("gaussian", scale))


@pytest.mark.statement("arora2019:claim2", "holds")
@settings(max_examples=10)
@given(
    st.sampled_from([(4, 5, 3, 2), (20, 5, 1), (3, 2), (1, 1, 1)]),
    st.floats(0.01, 2),
    st.floats(0.05, 3),
    SEEDS,
)
def test_gaussian_layers_are_balanced_as_often_as_stated(widths, scale, part, seed):
    """At deltas from far below to far above those that are likely."""
    case = gaussian_case(list(widths), scale)
    delta = part * scale**2 * max(widths) ** 1.5
    certificate = BalanceOfGaussianStart(delta=delta, samples=2000, seed=seed).check(case)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert len(certificate.conclusions) == 3


@pytest.mark.statement("arora2019:claim2", "tight")
def test_how_loose_the_balance_of_gaussian_layers_is():
    """Where 1/2 is promised the imbalance is six times its median; the moments promise 0.957."""
    case = gaussian_case([4, 5, 3, 2], 0.1)
    certificate = BalanceOfGaussianStart().check(case)
    printed, exact = (answer.value for answer in certificate.answers)
    assert printed == pytest.approx(0.5)
    chain = GaussianChain((4, 5, 3, 2), 0.1)
    assert sum(chain.expected_squared_imbalances) == pytest.approx(0.0326)
    assert exact == pytest.approx(1 - 0.0326 / 0.75)
    assert "0.866" in certificate.answers[0].condition
    found = largest_imbalance(chain.draw(40_000, np.random.default_rng(6)))
    assert np.median(found) == pytest.approx(0.1378, rel=0.01)  # to 0.4 %, twice
    assert np.quantile(found, 0.999) == pytest.approx(0.312, rel=0.04)  # from the last 40


@pytest.mark.statement("arora2019:claim2", "tight")
def test_the_balance_of_a_wide_input():
    chain = GaussianChain((20, 5, 1), 0.1)
    found = largest_imbalance(chain.draw(40_000, np.random.default_rng(7)))
    assert np.median(found) == pytest.approx(0.483, rel=0.01)
    condition = BalanceOfGaussianStart().check(gaussian_case([20, 5, 1], 0.1)).answers[0].condition
    assert "5.66" in condition


@pytest.mark.statement("arora2019:claim2", "fails")
def test_balance_is_stated_for_gaussian_layers_and_positive_delta():
    case = gaussian_case([3, 2, 1], 0.1)
    drawn = BalanceOfGaussianStart().check(replace(case, random_start=RandomStart("residual", 0.1)))
    assert drawn.verdict is Verdict.NOT_APPLICABLE
    assert drawn.first_failure.margin == -1
    assert BalanceOfGaussianStart(delta=-1.0).check(case).first_failure.margin == -1
    without = BalanceOfGaussianStart(delta=1e-9).check(case)  # applies, but promises nothing
    assert [answer.value for answer in without.answers] == [0, 0]


@pytest.mark.statement("arora2019:claim3", "value")
@pytest.mark.parametrize(
    ("widths", "scale", "margin"),
    [((20, 5, 1), 5.95e-4, 2.4e-27), ((20, 5, 5, 1), 5.4e-3, 1.3e-35)],
    ids=str,
)
def test_the_largest_scale_and_margin_of_claim_3(widths, scale, margin):
    """To the two digits that are known; the conditions on s meet at the largest margin."""
    n, hidden = len(widths) - 1, 5 ** (len(widths) - 2)
    most = (1 / (1e5 * 20**3 * hidden * NORM_CONSTANT)) ** (1 / (2 * n))
    assert most == pytest.approx(scale, rel=0.01)
    certificate = MarginOfGaussianStart().check(gaussian_case(list(widths), most * (1 - 1e-12)))
    assert certificate.applies, certificate
    at_most = next(claim for claim in certificate.assumptions if claim.statement.startswith("c <="))
    assert float(at_most.lesser) == pytest.approx(margin, rel=0.03)
    assert at_most.margin == pytest.approx(0, abs=1e-9)
    assert [answer.value for answer in certificate.answers] == pytest.approx(
        [0.49, 0.494459], abs=5e-7
    )


@pytest.mark.statement("arora2019:claim3", "holds")
@settings(max_examples=10)
@given(
    st.sampled_from([(20, 1), (20, 5, 1), (35, 2, 7, 1), (20, 1, 1, 1, 1)]),
    st.floats(1e-3, 1 - 1e-9),
    st.floats(0.01, 100),
    SEEDS,
)
def test_small_gaussian_layers_have_a_margin_as_often_as_stated(widths, part, target, seed):
    n, hidden = len(widths) - 1, int(np.prod(widths[1:-1]))
    most = (target**2 / (1e5 * widths[0] ** 3 * hidden * NORM_CONSTANT)) ** (1 / (2 * n))
    case = gaussian_case(list(widths), part * most, target)
    certificate = MarginOfGaussianStart(samples=2000, seed=seed).check(case)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert len(certificate.conclusions) == 1


@pytest.mark.statement("arora2019:claim3", "tight")
@pytest.mark.parametrize(
    ("margin", "probability"), [(2.4e-27, 0.5), (1e-12, 0.5), (1e-8, 0.494), (1e-6, 0.092)]
)
def test_how_loose_the_margin_of_claim_3_is(margin, probability):
    """At the largest scale the margin could be 10^18 times as large for the same probability."""
    chain = GaussianChain((20, 5, 1), 5.95e-4)
    found, error = margin_frequency(chain, margin, samples=100_000, seed=8)
    assert found == pytest.approx(probability, abs=5e-4 + 4 * error)


@pytest.mark.statement("arora2019:claim3", "value")
@pytest.mark.parametrize("depth", [1, 2, 3, 10, 100])
def test_the_constant_of_claim_3_is_large_enough(depth):
    """The tail of a product of chi-squares by its moment of order -0.4, exactly; d = 1 is worst."""
    width = np.arange(1, 400)
    log_moment = 0.4 * np.log(width / 2) + gammaln(width / 2 - 0.4) - gammaln(width / 2)
    moments = np.exp(log_moment)
    assert 4.0677 < moments[0] <= 4.0678
    assert np.all(np.diff(moments) < 0)
    if depth == 1:
        tail = 2 * ndtr(1 / NORM_CONSTANT) - 1
    else:
        tail = (moments[0] * (NORM_CONSTANT * depth) ** -0.8) ** depth
    assert tail <= 1 / 2000


@pytest.mark.statement("arora2019:claim3", "fails")
def test_what_claim_3_does_not_cover_is_said_with_the_margin():
    theorem = MarginOfGaussianStart()
    large = theorem.check(gaussian_case([20, 5, 1], 0.1)).first_failure
    assert large.statement.startswith("s <=")
    assert large.margin == pytest.approx(np.log(5.95e-4 / 0.1), abs=0.01)
    few = theorem.check(gaussian_case([19, 5, 1], 1e-4)).first_failure
    assert few.margin == -1
    greedy = MarginOfGaussianStart(margin=1e-20).check(gaussian_case([20, 5, 1], 5e-4))
    assert greedy.first_failure.statement.startswith("c <=")
    for margin in (0.0, -1.0):
        none = MarginOfGaussianStart(margin=margin).check(gaussian_case([20, 5, 1], 5e-4))
        assert none.first_failure.statement == "0 < c"
    two = theorem.check(gaussian_case([20, 5, 2], 1e-4))
    assert two.first_failure.statement == "the network has one output"


def test_claims_2_and_3_cannot_be_combined():
    """Where claim 3 speaks, the failures that claim 2 allows for theorem 1's delta are 10^106."""
    most = (1 / (1e5 * 20**3 * NORM_CONSTANT)) ** (1 / 4)
    case = gaussian_case([20, 1, 1], most * (1 - 1e-12))
    margin = next(
        claim.lesser
        for claim in MarginOfGaussianStart().check(case).assumptions
        if claim.statement.startswith("c <=")
    )
    delta = float(margin) ** 2 / (256 * 2**3)
    failures = 10 * 2 * most**4 * 20**3 / delta**2
    assert np.log10(failures) == pytest.approx(106, abs=0.5)
    assert BalanceOfGaussianStart(delta=delta).check(case).answers[1].value == 0


@pytest.mark.parametrize("start", ["balanced", "gaussian", None])
@pytest.mark.parametrize("kind", strategies.KINDS[::3], ids=lambda kind: f"{kind[0]}, {kind[1]}")
def test_any_case_gets_a_certificate(kind, start):
    case = strategies.case(kind, strategies.Spec(1))
    known = None if start is None else RandomStart(start, 0.1)
    subject = Case(case.objective, case.weights, 0.1, 1.0, random_start=known)
    for theorem in THEOREMS:
        certificate = theorem.check(subject)
        assert certificate.verdict in (Verdict.NOT_APPLICABLE, Verdict.CONFIRMED)
        assert str(certificate)
