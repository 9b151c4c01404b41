"""What is proven of the distance from a descent run to the flow, as a statement about a case."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Narrowed,
    Question,
    requirement,
    rounding,
)
from thalweg.certificates.magnitude import readable
from thalweg.certificates.trajectories import FLOW_ERRORS, own_flow, own_run, start_distance
from thalweg.dynamics import Descent
from thalweg.dynamics.trajectory import distance
from thalweg.theorems.settings.linear import LinearTraining, linear_training
from thalweg.tubes import tube

Records = Float[np.ndarray, " records"]


class RecordedDistance(NamedTuple):
    """A descent run from the start of a case, and what is proven of its distance to the flow."""

    case: Case
    run: Descent
    lower: Records
    upper: Records
    forever: float | None = None


class ProvenDistance(AbstractTrainingTheorem[RecordedDistance]):
    """A validated flow, or a descent run by itself, proves how far the exact flow is from the run.

        lower(t) <= |theta_k - theta(t)| <= upper(t),    t = eta k,

    by the radius of the case's flow where that is validated, and else, without integrating the
    flow, by the tube of `thalweg.tubes` around the run. Both are ours.

    Attributes:
        corrected: whether the first-order correction is carried along; without it lower = 0.
    """

    reference: ClassVar[str] = "elkabetz2021:cert2"
    corrected: bool = eqx.field(default=True, static=True)

    @override
    def narrowed(self, case: Case, /) -> Narrowed[RecordedDistance]:
        return linear_training(case).further(self._with_bounds)

    @override
    def conclusions(self, subject: RecordedDistance, /) -> tuple[Claim, ...]:
        flow, run = own_flow(subject.case), subject.run
        if flow is None:
            return ()
        exact = flow.brought_to(run.times)
        gap = np.asarray(distance(run, exact))
        doubt = FLOW_ERRORS * exact.error + rounding(gap, 1.0)
        return (
            Claim("the proven lower bound <= distance to the flow", subject.lower, gap, doubt),
            Claim("distance to the flow <= the proven upper bound", gap, subject.upper, doubt),
        )

    @override
    def answers(self, subject: RecordedDistance, /) -> tuple[Answer, ...]:
        end = float(subject.run.times[-1])
        until = f"up to time {readable(end)}"
        answers = (Answer(Question.DISTANCE, float(np.max(subject.upper)), until, until=end),)
        if subject.forever is None:
            return answers
        return *answers, Answer(Question.DISTANCE, subject.forever, "for ever")

    def _with_bounds(self, training: LinearTraining) -> Narrowed[RecordedDistance]:
        case, run = training.case, own_run(training.case)
        given = requirement("a run from this start is given", run is not None)
        if run is None:
            return Narrowed((given,), None)
        flow = own_flow(case)
        if flow is not None and flow.proven_radius() is not None:
            gap = distance(run, flow)
            assert gap.lower is not None  # as its radius is proven
            assert gap.upper is not None
            finite = requirement("the run stays finite", bool(np.isfinite(gap.upper).all()))
            found = RecordedDistance(case, run, gap.lower, gap.upper)
        else:
            proven = tube(run, start_distance(case), corrected=self.corrected)
            finite = requirement("its tube stays finite", proven.failed_at is None)
            found = RecordedDistance(case, run, proven.lower, proven.upper, proven.forever)
        return Narrowed.where((given, finite), found)
