"""What a descent run proves of its own distance to the flow, as a statement about a case."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import numpy as np
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
from thalweg.tubes import Tube, tube


class RecordedTube(NamedTuple):
    """A descent run from the start of a case, and its tube."""

    case: Case
    run: Descent
    tube: Tube


class ProvenDistance(AbstractTrainingTheorem[RecordedTube]):
    """A descent run proves how far the exact flow is from it, without integrating the flow.

    The tube of `thalweg.tubes`, which is ours:

        lower(t) <= |theta_k - theta(t)| <= upper(t),    t = eta k.

    Attributes:
        corrected: whether the first-order correction is carried along; without it lower = 0.
    """

    reference: ClassVar[str] = "elkabetz2021:cert2"
    corrected: bool = eqx.field(default=True, static=True)

    @override
    def narrowed(self, case: Case, /) -> Narrowed[RecordedTube]:
        return linear_training(case).further(self._with_tube)

    @override
    def conclusions(self, subject: RecordedTube, /) -> tuple[Claim, ...]:
        case, run, found = subject
        flow = own_flow(case)
        if flow is None:
            return ()
        exact = flow if np.array_equal(flow.times, run.times) else flow.at(run.times)
        gap = distance(run, exact)
        doubt = FLOW_ERRORS * exact.error + rounding(gap, 1.0)
        return (
            Claim("the tube's lower bound <= distance to the flow", found.lower, gap, doubt),
            Claim("distance to the flow <= the tube's upper bound", gap, found.upper, doubt),
        )

    @override
    def answers(self, subject: RecordedTube, /) -> tuple[Answer, ...]:
        found = subject.tube
        end = float(found.times[-1])
        until = f"up to time {readable(end)}"
        answers = (Answer(Question.DISTANCE, float(np.max(found.upper)), until, until=end),)
        if found.forever is None:
            return answers
        return *answers, Answer(Question.DISTANCE, found.forever, "for ever")

    def _with_tube(self, training: LinearTraining) -> Narrowed[RecordedTube]:
        case, run = training.case, own_run(training.case)
        given = requirement("a run from this start is given", run is not None)
        if run is None:
            return Narrowed((given,), None)
        found = tube(run, start_distance(case), corrected=self.corrected)
        finite = requirement("its tube stays finite", found.failed_at is None)
        return Narrowed.where((given, finite), RecordedTube(case, run, found))
