"""What simulating a case gives, beside what theorems promise of it."""

from dataclasses import replace
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg.curvature import sharpness
from thalweg.dynamics import Descent, Flow, descend, distance, flow
from thalweg.dynamics.trajectory import AbstractTrajectory
from thalweg.network import LinearNetwork
from thalweg.theorems.case import Case
from thalweg.theorems.certificate import Question
from thalweg.theorems.recorded import smallest_along

Measured: TypeAlias = dict[Question, float]

_RECORDS = 400
_SETTLED = 1e-6  # a gradient below this part of the start's is that of a minimiser


@checked
def simulate(case: Case, *, rtol: float = 1e-9, atol: float = 1e-11) -> Case:
    """The case with a descent (where it has a learning rate) and the flow, over its time."""
    if case.time is None:
        raise InputError("`time` must say how long to simulate, got None.")
    run = case.run or (None if case.learning_rate is None else _descent(case, case.learning_rate))
    times = np.linspace(0, case.time, _RECORDS + 1) if run is None else run.times
    exact = case.flow or flow(case.objective, case.weights, times=times, rtol=rtol, atol=atol)
    return replace(case, run=run, flow=exact)


def measure(case: Case) -> Measured:
    """The measured answers, to those questions that the case's run and flow can answer."""
    run = case.run if case.run is not None and case.run.weights else None
    exact = case.flow if case.flow is not None and case.flow.weights else None
    found: Measured = {}
    if run is not None:
        found |= _when_reached(Question.ITERATIONS, run, np.asarray(run.steps, float), case)
        found |= _at_the_end(run)
    if exact is not None:
        found |= _when_reached(Question.TIME, exact, exact.times, case)
        found |= _at_the_end(exact)
    if run is not None and exact is not None:
        found |= _apart(run, exact)
    if run is not None or exact is not None:
        least = min(float(np.min(place.value)) for place in smallest_along(case))
        found[Question.CURVATURE] = least
    return found


def _descent(case: Case, rate: float) -> Descent:
    assert case.time is not None
    steps = max(1, round(min(case.time / rate, 2.0**62)))  # so many are refused below
    every = max(1, steps // _RECORDS)
    return descend(
        case.objective, case.weights, learning_rate=rate, steps=steps, record_every=every
    )


def _when_reached(
    question: Question, motion: AbstractTrajectory, clock: np.ndarray, case: Case
) -> Measured:
    """The first recorded step or time at which the target loss is reached."""
    if case.target_loss is None:
        return {}
    reached = np.flatnonzero(motion.loss <= case.target_loss)
    return {question: float(clock[reached[0]])} if reached.size else {}


def _at_the_end(motion: AbstractTrajectory) -> Measured:
    """The sharpness where the motion ended, if it has come to rest there."""
    objective, steepness = motion.objective, []
    for place in (0, -1):
        point = tuple(jnp.asarray(array[place]) for array in motion.weights)
        slopes = objective.gradient(point)
        steepness.append(float(jnp.sqrt(sum(jnp.sum(slope**2) for slope in slopes))))
    # A start near a saddle is as flat, but above the loss that it will come to.
    settled = steepness[1] <= _SETTLED * steepness[0] and motion.loss[-1] < motion.loss[0]
    if not settled or _left(motion) > _SETTLED:
        return {}
    found = sharpness(objective, motion.final).value
    questions = (
        Question.LEAST_SHARPNESS,
        Question.GREATEST_SHARPNESS,
        Question.PREDICTED_SHARPNESS,
    )
    return dict.fromkeys(questions, found)


def _left(motion: AbstractTrajectory) -> float:
    """What is left of the excess loss, where the least loss is known; else nothing."""
    lowest = getattr(motion.objective.problem, "minimum", None)
    if lowest is None or not isinstance(motion.objective.network, LinearNetwork):
        return 0.0
    excess = motion.loss - float(lowest)
    return float(excess[-1] / max(excess[0], np.finfo(float).tiny))


def _apart(run: Descent, exact: Flow) -> Measured:
    gaps = distance(run, exact)
    return {Question.DISTANCE: float(np.max(gaps[np.isfinite(gaps)], initial=0.0))}
