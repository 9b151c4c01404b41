import json
from math import inf, nan
from typing import ClassVar

import numpy as np
import pytest

from thalweg.theorems import (
    AbstractTheorem,
    Answer,
    Certificate,
    Claim,
    Magnitude,
    Question,
    Verdict,
)
from thalweg.theorems.certificate import requirement, rounding, sorted_by_strength
from thalweg.theorems.sampling import Proportion

GOOD, CLOSE, BAD, UNKNOWN = (
    Claim("good", 0.0, 1.0, 0.1),
    Claim("close", 1.0, 1.05, 0.1),
    Claim("bad", 1.0, 0.0, 0.1),
    Claim("unknown", nan, 1.0, 0.1),
)


@pytest.mark.parametrize(
    ("assumptions", "conclusions", "verdict"),
    [
        ((GOOD,), (GOOD,), Verdict.CONFIRMED),
        ((GOOD,), (CLOSE,), Verdict.CONFIRMED),
        ((GOOD,), (BAD,), Verdict.VIOLATED),
        ((GOOD,), (UNKNOWN,), Verdict.UNDECIDED),
        ((GOOD,), (UNKNOWN, BAD), Verdict.VIOLATED),
        ((CLOSE,), (GOOD,), Verdict.UNDECIDED),
        ((UNKNOWN,), (GOOD,), Verdict.UNDECIDED),
        ((BAD, UNKNOWN), (GOOD,), Verdict.NOT_APPLICABLE),
        ((), (), Verdict.CONFIRMED),
    ],
)
def test_the_verdict_follows_from_the_claims(assumptions, conclusions, verdict):
    certificate = Certificate("paper:thm", "title", assumptions, conclusions)
    assert certificate.verdict is verdict
    assert certificate.applies == all(claim is GOOD for claim in assumptions)


def test_nan_at_one_step_never_confirms():
    claim = Claim("at every step", np.array([0.0, nan, 0.0]), 1.0)
    assert not claim.holds
    assert not claim.holds_clearly
    assert not claim.fails
    assert np.isnan(claim.margin)


def test_a_resolution_without_limit_confirms_nothing():
    claim = Claim("x <= 1", inf, 1.0, inf)
    assert not claim.holds
    assert not claim.fails


def test_a_claim_about_no_step_confirms_nothing():
    claim = Claim("at late steps", np.zeros(0), 1.0, np.zeros(0))
    certificate = Certificate("paper:thm", "title", (GOOD,), (claim,))
    assert certificate.verdict is Verdict.UNDECIDED
    assert "nan" in str(certificate)


def test_a_claim_along_a_run_knows_its_closest_step():
    claim = Claim("f <= g", np.array([1.0, 4.0, 2.0]), np.array([3.0, 5.0, 4.0]))
    assert claim.margin == 1.0
    assert claim.worst() == (4.0, 5.0)
    assert claim.looseness == pytest.approx(1.25)


def test_magnitudes_are_compared_by_their_logarithms():
    claim = Claim("eta <= eta_max", 1e-3, Magnitude(-1000.0))
    assert claim.logarithmic
    assert claim.margin == pytest.approx(-1000 - np.log(1e-3))
    assert claim.fails
    assert claim.describe_margin().startswith("short by a factor 1.")
    assert "e+431" in claim.describe_margin()
    assert Claim("0 <= 0", Magnitude(-inf), 0.0).margin == 0


def test_infinite_sides_that_agree_have_no_margin():
    assert Claim("inf <= inf", inf, inf).margin == 0


def test_rounding_covers_the_largest_of_the_values():
    assert rounding(1.0, -4.0) == pytest.approx(64 * 4 * 2.2e-16, rel=0.01)


def test_plain_data_survives_json_beyond_floating_point():
    answers = (Answer(Question.LEARNING_RATE, Magnitude(-3000.0)),)
    claims = (Claim("tiny", Magnitude(-3000.0), 1.0), requirement("linear", True))
    data = json.loads(Certificate("p:t", "title", claims, (), answers).to_json())
    assert data["answers"][0]["value"] == "1.31e-1303"
    assert data["assumptions"][0]["lesser"] == "1.31e-1303"
    assert data["verdict"] == "confirmed"


class _Halves(AbstractTheorem[float]):
    """A number below one has a half below a half.

    More words.
    """

    reference: ClassVar[str] = "test:halves"

    def assumptions(self, subject, /):
        return (Claim("x <= 1", subject, 1.0),)

    def conclusions(self, subject, /):
        return (Claim("x / 2 <= 1 / 2", subject / 2, 0.5),)


def test_conclusions_are_drawn_only_where_the_assumptions_hold():
    kept, refused = _Halves().check(0.5), _Halves().check(2.0)
    assert kept.verdict is Verdict.CONFIRMED
    assert kept.conclusions[0].margin == 0.25
    assert refused.verdict is Verdict.NOT_APPLICABLE
    assert refused.conclusions == ()
    assert refused.first_failure is refused.assumptions[0]
    assert refused.first_failure.margin == -1
    text = str(refused)
    assert "A number below one has a half below a half: not applicable" in text
    assert "x <= 1" in text


def test_square_brackets_are_printed_as_they_are():
    claim = Claim("P[margin >= c] <= 1", 0.5, 1.0)
    assert "P[margin >= c] <= 1" in str(Certificate("paper:thm", "P[x]", (claim,)))


def test_answers_are_sorted_by_strength():
    rates = [Answer(Question.LEARNING_RATE, value) for value in (1e-3, Magnitude(-900.0), 0.1)]
    assert [float(a.value) for a in sorted_by_strength(rates)] == [0.1, 1e-3, 0.0]
    curved = [Answer(Question.CURVATURE, value) for value in (-3.0, 0.0, -0.1, 2.0)]
    assert [float(a.value) for a in sorted_by_strength(curved)] == [2.0, 0.0, -0.1, -3.0]
    steps = [Answer(Question.ITERATIONS, value) for value in (1e3, Magnitude(900.0), 10.0)]
    assert [float(a.value) for a in sorted_by_strength(steps)] == [10.0, 1e3, inf]


def test_a_proportion_covers_the_true_probability():
    """Oracle: the interval's definition through the binomial tail."""
    from scipy.stats import binom

    found = Proportion.of(np.arange(1000) < 300)
    low, high = found.interval
    assert binom.sf(299, 1000, low) == pytest.approx(0.0005, rel=1e-6)
    assert binom.cdf(300, 1000, high) == pytest.approx(0.0005, rel=1e-6)
    assert found.at_least("p >= 0.3", 0.31).holds  # within the noise
    assert found.at_least("p >= 0.4", 0.4).fails
    assert found.at_most("p <= 0.2", 0.2).fails
