import json
from math import exp, inf, nan
from typing import ClassVar

import numpy as np
import pytest

from labels import faults, text_faults
from thalweg._checks import InputError
from thalweg.certificates import (
    AbstractTheorem,
    Answer,
    Certificate,
    Claim,
    Magnitude,
    Question,
    Verdict,
    identity,
    requirement,
    rounding,
)
from thalweg.certificates.answers import sorted_by_strength
from thalweg.certificates.claim import split_label
from thalweg.theorems.probability.sampling import Proportion

GOOD, CLOSE, BAD, UNKNOWN = (
    Claim("good <= 1", 0.0, 1.0, 0.1),
    Claim("close <= 1.05", 1.0, 1.05, 0.1),
    Claim("bad <= 0", 1.0, 0.0, 0.1),
    Claim("unknown <= 1", nan, 1.0, 0.1),
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
    claim = Claim("at every step: x <= 1", np.array([0.0, nan, 0.0]), 1.0)
    assert not claim.holds
    assert not claim.holds_clearly
    assert not claim.fails
    assert np.isnan(claim.margin)


def test_a_resolution_without_limit_confirms_nothing():
    claim = Claim("x <= 1", inf, 1.0, inf)
    assert not claim.holds
    assert not claim.fails


def test_a_claim_about_no_step_confirms_nothing():
    claim = Claim("at late steps: x <= 1", np.zeros(0), 1.0, np.zeros(0))
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
    assert rounding(1.0, -4.0) == 64 * 4 * 2.0**-52
    assert rounding(3.0, units=2.0) == 2 * 3 * 2.0**-52
    np.testing.assert_array_equal(rounding([1.0, -8.0], 2.0), 64 * 2.0**-52 * np.array([2, 8]))


def test_plain_data_survives_json_beyond_floating_point():
    answers = (Answer(Question.LEARNING_RATE, Magnitude(-3000.0)),)
    claims = (Claim("tiny <= 1", Magnitude(-3000.0), 1.0), requirement("linear", True))
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
    assert found.at_least("0.31 <= p", 0.31).holds  # within the noise
    assert found.at_least("0.4 <= p", 0.4).fails
    assert found.at_most("p <= 0.2", 0.2).fails


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (Claim("x <= 1", 0.5, 1.0), "0.5 <= 1"),
        (Claim("x <= 0", 1.58e-9, 0.0, 1.97e-9), "1.58e-09 <= 0 within 2e-09"),
        (Claim("x <= 0", 1.58e-9, 0.0, 1e-9), "1.58e-09 <= 0"),
        (Claim("x <= y", 0.0, 0.0), "0 <= 0 (equal)"),
        (Claim("x < y", 0.0, 0.0), "0 < 0"),
        (Claim("x < y", 0.0, 0.0, 1e-12), "0 < 0 within 1e-12"),
        (Claim("x <= y", 1.00001, 1.0), "1.00001 <= 1"),
        (Claim("x <= y", 1.0, 1 + 1e-12), "1 <= 1, less by 1e-12"),
        (Claim("x <= y", 1e6, 1e6 + 4.0000000004e-07), "1e+06 <= 1e+06, less by 4e-07"),
        (Claim("x <= y", 1.000001, 1.0), "1 <= 1, more by 1e-06"),
        (Claim("x <= y", 1e7, 1e7 + 1), "1e+07 <= 1e+07, less by 1"),
        (Claim("x <= 0", 1.2e-9, 0.0, 1.21e-9), "1.2e-09 <= 0 within 1.3e-09"),
        (Claim("x <= 1", nan, 1.0), "nan <= 1, not a number"),
        (Claim("x <= 1", 0.5, 1.0, nan), "0.5 <= 1, not a number"),
        (Claim("x <= 1", 0.5, 1.0, inf), "0.5 <= 1, not a number"),
        (Claim("x <= y", Magnitude(0.5), 1.0, 1.0), "1.65 <= 1 within a factor 2.72"),
        (Claim("x <= y", Magnitude(0.5), 1.0, 1.5), "1.65 <= 1 within a factor 4.48"),
        (identity("x = y", 1.0, 2.0), "differ by 1, within 2"),
        (identity("x = y", 1e-9, nan), "differ by 1e-09, not a number"),
        (identity("x = y", nan, 1e-9), "differ by nan, not a number"),
        (Claim("x <= y", Magnitude(-3000.0), 1.0), "1.31e-1303 <= 1"),
        (
            Claim("x <= y", Magnitude(1e-9), 1.0, 1e-8),
            "1 <= 1, more by a factor 1 + 1e-09, within a factor 1 + 1.1e-08",
        ),
        (identity("x = y", 1.58e-9, 1.97e-9), "differ by 1.58e-09, within 2e-09"),
        (identity("x = y", 0.3, 1e-9), "differ by 0.3, more than 1e-09"),
        (identity("x = y", 0.0, 1e-9), "equal"),
    ],
)  # fmt: skip
def test_the_text_of_a_claim_says_why_it_was_decided_so(claim, text):
    assert claim.describe_sides() == text
    assert not list(text_faults(claim, assumed=False))
    assert requirement("linear", False).describe_sides() == "no"
    assert requirement("linear", True).describe_sides() == "yes"


def test_an_assumption_that_is_too_close_to_call_says_so():
    assert CLOSE.describe_sides(clearly=True) == "1 <= 1.05, too close to call within 0.1"
    assert CLOSE.describe_sides() == "1 <= 1.05"


def test_sides_that_differ_by_the_resolution_are_within_it():
    touching = Claim("x <= 1", 1.5, 1.0, 0.5)
    assert touching.holds
    assert not touching.fails
    assert Claim("x <= 1.5", 1.0, 1.5, 0.5).holds_clearly
    broken = Claim("x <= 1", 2.0, 1.0, 0.5)
    assert broken.describe_sides(clearly=True) == "2 <= 1"  # not too close, but broken
    assert Claim("x <= 1", 0.5, 1.0, 0.1).describe_sides(clearly=True) == "0.5 <= 1"
    nothing = Claim("x <= 1", np.zeros(0), 1.0, np.zeros(0))
    assert not nothing.holds
    assert nothing.to_dict()["resolution"] == 0
    assert requirement("linear", True).margin == 0
    assert requirement("linear", False).margin == -1


@pytest.mark.parametrize(
    ("lesser", "greater", "looseness"),
    [
        (0.25, 0.5, 2.0), ([0.0, 2.0], [1.0, 3.0], 1.5), ([1.0, 2.0], [0.0, 8.0], 4.0),
        ([1.0, 2.0], [3.0, 4.0], 2.0), (0.0, 1.0, nan), (-1.0, 1.0, nan),
        (Magnitude(1.0), 1.0, exp(-1)),
    ],
)  # fmt: skip
def test_looseness_is_the_least_factor_between_positive_sides(lesser, greater, looseness):
    found = Claim("x <= y", lesser, greater).looseness
    assert found == pytest.approx(looseness, nan_ok=True)


def test_a_factor_that_is_missing_is_told():
    short = Claim("x <= y", Magnitude.of(6.0), Magnitude.of(2.0))
    assert short.describe_margin() == "short by a factor 3"
    assert Claim("x <= y", 2.0, Magnitude.of(6.0)).describe_margin() == "by a factor 3"


@pytest.mark.parametrize(
    ("lesser", "resolution", "shown"),
    [
        ([1e-6, 1e-7], [9.9e-7, 0.0], 1e-7),  # broken by more than the first, if by less in all
        ([5.0, 1.0], [1.0, 0.5], 5.0),
        ([1e-8, 1e-10], [1e-6, 2e-10], 1e-10),  # both hold; this one uses half of its tolerance
        ([-1.0, -0.5], [0.0, 0.0], -0.5),
    ],
)
def test_the_place_is_judged_by_its_own_resolution(lesser, resolution, shown):
    claim = Claim("x <= 0", np.array(lesser), 0.0, np.array(resolution))
    assert claim.worst() == (shown, 0.0)


def test_strict_claims_are_those_whose_label_is():
    zero = Claim("0 < c", 0.0, 0.0)
    assert zero.fails
    assert not zero.holds
    assert not zero.holds_clearly
    rounded = Claim("0 < c", 0.0, 0.0, 1e-12)  # cannot be told from a positive number
    assert rounded.holds
    assert not rounded.fails
    assert not rounded.holds_clearly
    assert Claim("0 < c", 0.0, 5e-324).holds_clearly
    assert not Claim("0 < c", 0.0, 0.5).fails
    assert Claim("0 < c", 0.0, 0.5, 0.1).describe_sides() == "0 < 0.5"
    assert Claim("0 <= c", 0.0, 0.0).holds_clearly


def test_the_place_that_is_shown_is_the_one_that_decided():
    lesser, resolution = np.array([0.0, 1e-8, 1e-10]), np.array([0.0, 1e-6, 1e-12])
    broken = Claim("x <= 0", lesser, 0.0, resolution)  # the second is within its tolerance
    assert broken.fails
    assert broken.worst() == (1e-10, 0.0)
    assert broken.to_dict()["resolution"] == 1e-12
    kept = Claim("x <= 0", lesser, 0.0, 1e-7)
    assert kept.describe_sides() == "1e-08 <= 0 within 1e-07"
    start = Claim("l(t) <= l(0)", np.array([1.0, 0.25, 0.5]), 1.0)  # equal at the start, of course
    assert start.describe_sides() == "0.5 <= 1"
    assert start.describe_margin() == "+0.5"
    assert start.margin == 0


@pytest.mark.parametrize("label", ["good", "a <= b <= c", "P(x <= 1)", "x >= 1"])
def test_a_label_without_one_relation_is_refused(label):
    with pytest.raises(InputError, match="must have one of <=, < and = outside of brackets"):
        Claim(label, 0.0, 1.0)


def test_labels_are_split_outside_of_brackets():
    label = "1e-6 <= P(|V|^2 <= s^2 (d - 2)), in 5 draws"
    assert split_label(label) == ("1e-6", "<=", "P(|V|^2 <= s^2 (d - 2)), in 5 draws")


@pytest.mark.parametrize(
    ("claim", "fault"),
    [
        (Claim("R(W(0)) <= R(0)", 0.000852, -0.0133), "must not be negative"),
        (Claim("|W_j| <= 1", -1.0, 1.0), "must not be negative"),
        (Claim("x <= 2/3", 0.5, 0.5), "2/3 is shown as"),
        (Claim("0.5 <= P(x)", 0.5, 1.5), "must be a probability"),
        (Claim("-2 <= nu^", -2.0, 1.5), "must be a cosine"),
    ],
)
def test_sides_that_the_label_does_not_name_are_noticed(claim, fault):
    certificate = Certificate("paper:thm", "title", (), (claim,))
    assert any(fault in each for each in faults(certificate))


def test_one_name_has_one_value_in_a_certificate():
    claims = (Claim("S <= 3", 2.0, 3.0), Claim("1 <= S", 1.0, 2.5))
    (fault,) = faults(Certificate("paper:thm", "title", (), claims))
    assert "another claim has other values of S" in fault
