"""The tube as a statement about a case: it holds, it is tight, and a wrong flow violates it."""

from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thalweg as tw
from thalweg import initialisation
from thalweg.certificates import Case, Question, Verdict
from thalweg.theorems.discretisation.proven_distance import ProvenDistance

NETWORK = tw.LinearNetwork([3, 3, 3, 1])
TARGET = np.eye(3)[0]
OBJECTIVE = tw.Objective(NETWORK, tw.TargetMatrix(TARGET))


def simulated(start, rate, steps):
    run = tw.descend(OBJECTIVE, start, learning_rate=rate, steps=steps)
    flow = tw.flow(OBJECTIVE, start, times=run.times, rtol=1e-11, atol=1e-13)
    return replace(Case.of(run), flow=flow)


@pytest.mark.statement("elkabetz2021:cert2", "holds")
@settings(max_examples=6)
@given(st.integers(0, 10**6), st.floats(0.05, 0.5), st.floats(0.002, 0.03))
def test_the_flow_is_inside_of_every_tube(seed, scale, rate):
    rng = np.random.default_rng(seed)
    start = tuple(scale * rng.normal(size=shape) for shape in NETWORK.shapes)
    found = ProvenDistance().check(simulated(start, rate, 100))
    assert found.verdict is Verdict.CONFIRMED, found
    assert len(found.conclusions) == 2


@pytest.mark.statement("elkabetz2021:cert2", "tight")
def test_the_tube_is_within_a_percent_of_the_distance():
    """For ever after, too: both have come to rest by then."""
    start = initialisation.aligned(NETWORK, 0.1, 0.3, TARGET)
    found = ProvenDistance().check(simulated(start, 0.003, 4000))
    assert found.verdict is Verdict.CONFIRMED
    within, for_ever = (a.value for a in found.answers if a.question is Question.DISTANCE)
    measured = np.max(found.conclusions[1].lesser)
    assert measured < within < 1.01 * measured
    assert measured < for_ever < 1.02 * measured


@pytest.mark.statement("elkabetz2021:cert2", "fails")
def test_another_flow_violates_it_and_a_large_step_is_not_proven():
    start = initialisation.aligned(NETWORK, 0.1, 0.3, TARGET)
    case = simulated(start, 0.003, 800)
    late = tuple(np.roll(array, -5, axis=0) for array in case.flow.weights)
    wrong = eqx.tree_at(lambda flow: flow.weights, case.flow, late)
    assert ProvenDistance().check(replace(case, flow=wrong)).verdict is Verdict.VIOLATED
    large = ProvenDistance().check(simulated(start, 0.6, 40))
    assert large.verdict is Verdict.NOT_APPLICABLE
    assert large.first_failure.statement == "its tube stays finite"
    alone = ProvenDistance().check(Case(OBJECTIVE, start))
    assert alone.first_failure.statement == "a run from this start is given"


@pytest.mark.statement("elkabetz2021:cert2", "tight")
def test_a_validated_flow_proves_it_at_any_step():
    """Where the tube fails, too; an integrated flow is the oracle of the distance."""
    start = initialisation.aligned(NETWORK, 0.1, 0.3, TARGET)
    case = simulated(start, 0.6, 40)
    measured = np.max(tw.distance(case.run, case.flow))
    validated = tw.flow(OBJECTIVE, start, times=case.run.times, validate=True)
    found = ProvenDistance().check(replace(case, flow=validated))
    assert found.verdict is Verdict.CONFIRMED
    (answer,) = (a for a in found.answers if a.question is Question.DISTANCE)
    # The error of the integrated flow is some ten times its tolerance of 1e-11.
    assert answer.value == pytest.approx(measured, abs=1e-9)
