"""What simulating a case gives, beside what theorems promise of it."""

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg.certificates.answers import Answer, Place, Question
from thalweg.certificates.case import Case, UndeclaredCase
from thalweg.certificates.points import smallest_along
from thalweg.certificates.trajectories import own_flow, own_run, start_distance
from thalweg.curvature import sharpness
from thalweg.dynamics import AbstractFlow, Descent, descend, distance, flow, proven_flow
from thalweg.dynamics.trajectory import AbstractTrajectory
from thalweg.objective.points import gradient_at

Records = Float[np.ndarray, " records"]

_RECORDS = 400
_SETTLED = 1e-6  # a gradient below this part of the start's is that of a minimiser
_SHARPNESS = (Question.LEAST_SHARPNESS, Question.GREATEST_SHARPNESS, Question.PREDICTED_SHARPNESS)


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured, by what it answers and where.

    Attributes:
        values: for a question, what was found at a place.
        times: of the distances.
        distances: from descent to the flow.
    """

    values: dict[tuple[Question, Place], float]
    times: Records = field(default_factory=lambda: np.zeros(0))
    distances: Records = field(default_factory=lambda: np.zeros(0))

    def beside(self, answer: Answer) -> float | None:
        """What was measured at the place, and up to the time, that an answer speaks of."""
        if answer.question is not Question.DISTANCE:
            return self.values.get((answer.question, answer.place))
        seen = (self.times <= answer.until * (1 + 1e-12)) & np.isfinite(self.distances)
        return float(np.max(self.distances[seen])) if seen.any() else None


@checked
def simulate(case: Case, *, rtol: float = 1e-9, atol: float = 1e-11) -> Case:
    """The case with a descent (where it has a learning rate) and the flow, over its time.

    The flow is validated where that can be done; the tolerances are those of one that is not.
    """
    time, rate = case.time, case.learning_rate
    if time is None:
        raise InputError("`time` must say how long to simulate, got None.")
    run = case.run or (None if rate is None else _descent(case, rate, time))
    times = np.linspace(0, time, _RECORDS + 1) if run is None else run.times
    exact = case.flow or proven_flow(case.objective, case.weights, times)[0]
    if exact is None:
        exact = flow(case.objective, case.weights, times=times, rtol=rtol, atol=atol)
    return replace(case, run=run, flow=exact)


def measure(case: Case | UndeclaredCase) -> Measured:
    """The measured answers, to those questions that the case's run and flow can answer.

    A flow that starts beside the case is not the one that theorems speak of; and where no theorem
    speaks, there is nothing to measure beside it.
    """
    if isinstance(case, UndeclaredCase):
        return Measured({})
    run, exact = own_run(case), own_flow(case)
    exact = exact if start_distance(case) == 0 else None
    if run is None and exact is None:
        return Measured({})
    values = _curvature(replace(case, run=run, flow=exact)) | _sharpnesses(run, exact)
    if run is not None:
        values |= _when_reached(Question.ITERATIONS, run, np.asarray(run.steps, float), case)
    if exact is not None:
        values |= _when_reached(Question.TIME, exact, exact.times, case)
    if run is None or exact is None:
        return Measured(values)
    return Measured(values, np.asarray(run.times), distance(run, exact))


def _descent(case: Case, rate: float, time: float) -> Descent:
    steps = max(1, round(min(time / rate, 2.0**62)))  # so many are refused below
    every = max(1, steps // _RECORDS)
    return descend(
        case.objective, case.weights, learning_rate=rate, steps=steps, record_every=every
    )


def _curvature(case: Case) -> dict[tuple[Question, Place], float]:
    """The smallest eigenvalue at the start, along the flow, and everywhere that is known of."""
    found = {place.points.where: float(np.min(place.value)) for place in smallest_along(case)}
    places = {Place.START: ("at the start",), Place.FLOW: ("at the start", "along the flow")}
    least = {place: [found[w] for w in where if w in found] for place, where in places.items()}
    if "along the flow" not in found:
        del least[Place.FLOW]
    least[Place.ANYWHERE] = list(found.values())
    return {(Question.CURVATURE, place): min(some) for place, some in least.items() if some}


def _sharpnesses(
    run: Descent | None, exact: AbstractFlow | None
) -> dict[tuple[Question, Place], float]:
    """At the minimiser that the flow has come to, and at the flattest that either has."""
    ends = [None if each is None else _sharpness_at_rest(each) for each in (run, exact)]
    known, at_flow = [value for value in ends if value is not None], ends[1]
    found = {}
    if known:
        found[Question.LEAST_SHARPNESS, Place.ANYWHERE] = min(known)
    if at_flow is not None:
        found |= dict.fromkeys(((question, Place.FLOW) for question in _SHARPNESS), at_flow)
    return found


def _when_reached(
    question: Question, path: AbstractTrajectory, clock: np.ndarray, case: Case
) -> dict[tuple[Question, Place], float]:
    """The first recorded step or time at which the target loss is reached."""
    if case.target_loss is None:
        return {}
    reached = np.flatnonzero(path.loss <= case.target_loss)
    return {(question, Place.ANYWHERE): float(clock[reached[0]])} if reached.size else {}


def _sharpness_at_rest(path: AbstractTrajectory) -> float | None:
    """The sharpness where the run or flow ended, if it has come to rest there."""
    objective, steepness = path.objective, []
    for place in (0, -1):
        gradient = gradient_at(objective, tuple(array[place] for array in path.weights))
        steepness.append(float(np.sqrt(sum(np.sum(part**2) for part in gradient))))
    # A start near a saddle is as flat, but above the loss that it will come to.
    settled = steepness[1] <= _SETTLED * steepness[0] and path.loss[-1] < path.loss[0]
    if not settled or _left(path) > _SETTLED:
        return None
    return sharpness(objective, path.final).value


def _left(path: AbstractTrajectory) -> float:
    """What is left of the excess loss, where the least loss is known; else nothing."""
    squared = path.objective.problem.least_squares
    if squared is None or path.objective.network.linear is None:
        return 0.0
    excess = path.loss - float(squared.minimum)
    return float(excess[-1] / max(excess[0], np.finfo(float).tiny))
