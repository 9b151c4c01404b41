"""A case is narrowed once: claims and setting belong together, and nothing is confirmed without."""

from typing import ClassVar

import numpy as np
import pytest

import thalweg as tw
from thalweg.certificates import (
    AbstractTheorem,
    AbstractTrainingTheorem,
    Case,
    Claim,
    Narrowed,
    Statement,
    Verdict,
    requirement,
)
from thalweg.certificates.guarantees import check_all, theorems_about_cases

OBJECTIVE = tw.Objective(tw.LinearNetwork([2, 1]), tw.TargetMatrix([1.0, 0.0]))
CASE = Case(OBJECTIVE, (np.ones((1, 2)),), learning_rate=0.25)


def rate_of(case):
    """The learning rate, where one is given."""
    claim = requirement("a learning rate is given", case.learning_rate is not None)
    return Narrowed((claim,), case.learning_rate)


class SmallRate(AbstractTrainingTheorem[float]):
    """A learning rate below one half has a square below a quarter."""

    reference: ClassVar[str] = "mine:small"
    asked: ClassVar[list[float]] = []

    def narrowed(self, case, /):
        self.asked.append(case.learning_rate)
        return rate_of(case)

    def assumptions(self, subject, /):
        return (Claim("eta <= 1/2", subject, 0.5),)

    def conclusions(self, subject, /):
        return (Claim("eta^2 <= 1/4", subject**2, 0.25),)


class AnyCase(AbstractTheorem[Case]):
    """A network has weights."""

    reference: ClassVar[str] = "mine:any"

    def assumptions(self, subject, /):
        return (requirement("there are weights", bool(subject.weights)),)

    def conclusions(self, subject, /):
        return ()


def test_a_case_is_narrowed_once_and_its_claims_come_first():
    SmallRate.asked.clear()
    certificate = SmallRate().check(CASE)
    assert SmallRate.asked == [0.25]
    assert certificate.verdict is Verdict.CONFIRMED
    statements = [claim.statement for claim in certificate.assumptions]
    assert statements == ["a learning rate is given", "eta <= 1/2"]
    assert certificate.conclusions[0].margin == 0.25 - 0.0625


def test_a_case_of_another_kind_is_asked_nothing_more():
    certificate = SmallRate().check(Case(OBJECTIVE, CASE.weights))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "a learning rate is given"
    assert certificate.conclusions == ()


def test_a_setting_can_be_checked_without_a_case():
    assert SmallRate().check(0.5).verdict is Verdict.CONFIRMED
    refused = SmallRate().check(0.75)
    assert refused.verdict is Verdict.NOT_APPLICABLE
    assert refused.first_failure.margin == -0.25


def test_narrowing_further_keeps_all_claims_and_stops_at_the_first_that_fails():
    def positive(rate):
        return Narrowed.where((Claim("0 < eta", 0.0, rate),), rate)

    def never(_):
        raise AssertionError

    found = rate_of(CASE).further(positive)
    assert [claim.statement for claim in found.claims] == ["a learning rate is given", "0 < eta"]
    assert found.known == 0.25
    none = Narrowed.where((Claim("1 <= eta", 1.0, 0.25),), 0.25)
    assert none.setting is None
    assert none.further(never).claims == none.claims
    with pytest.raises(tw.InputError, match="only where '1 <= eta' holds, and it does not"):
        none.known  # noqa: B018


def test_what_is_not_a_number_narrows_to_nothing():
    found = Narrowed.where((Claim("x <= 1", np.nan, 1.0),), 1.0)
    assert found.setting is None
    with pytest.raises(tw.InputError, match="must have a claim that says so"):
        Narrowed((Claim("0 <= 1", 0.0, 1.0),), None)


def test_a_catalogue_of_ones_own_is_tried_beside_that_of_the_papers():
    mine = (
        Statement("mine:small", "Small rates have small squares.", SmallRate),
        Statement("mine:again", "The same by another name.", SmallRate),
        Statement("mine:any", "A network has weights.", AnyCase),
        Statement("mine:start", "No theorem at all.", tw.initialisation.gaussian),
    )
    assert theorems_about_cases(mine) == (SmallRate, AnyCase)
    found = check_all(mine, CASE)
    assert len(found) == 2
    assert found["mine:again"] is found["mine:small"]
    together = tw.theorems.certify_case(CASE, (*tw.theorems.STATEMENTS, *mine))
    assert together["mine:small"].verdict is Verdict.CONFIRMED
    assert together["arora2019:thm1"].title == tw.theorems.registry["arora2019:thm1"].title()
