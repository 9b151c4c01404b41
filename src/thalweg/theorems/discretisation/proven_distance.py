"""What a descent run proves of its own distance to the flow, as a statement about a case."""

from typing import ClassVar

import equinox as eqx
import numpy as np
from typing_extensions import override

from thalweg.certificates.case import Case
from thalweg.certificates.certificate import (
    AbstractTheorem,
    Answer,
    Claim,
    Question,
    requirement,
    rounding,
)
from thalweg.certificates.magnitude import readable
from thalweg.certificates.trajectories import (
    FLOW_ERRORS,
    one_network,
    own_flow,
    own_run,
    start_distance,
)
from thalweg.dynamics.trajectory import distance
from thalweg.network import LinearNetwork
from thalweg.tubes import Tube, tube


class ProvenDistance(AbstractTheorem[Case]):
    """A descent run proves how far the exact flow is from it, without integrating the flow.

    The tube of `thalweg.tubes`, which is ours:

        lower(t) <= |theta_k - theta(t)| <= upper(t),    t = eta k.

    Attributes:
        corrected: whether the first-order correction is carried along; without it lower = 0.
    """

    reference: ClassVar[str] = "elkabetz2021:cert2"
    corrected: bool = eqx.field(default=True, static=True)

    @override
    def assumptions(self, subject: Case, /) -> tuple[Claim, ...]:
        linear = isinstance(subject.objective.network, LinearNetwork)
        claims = (
            requirement("the network is linear", linear),
            one_network(subject),
            requirement("a run from this start is given", own_run(subject) is not None),
        )
        if any(claim.fails for claim in claims):
            return claims
        failed = self.tube(subject).failed_at
        return *claims, requirement("its tube stays finite", failed is None)

    @override
    def conclusions(self, subject: Case, /) -> tuple[Claim, ...]:
        run, flow = own_run(subject), own_flow(subject)
        assert run is not None  # one of the assumptions
        if flow is None:
            return ()
        exact = flow if np.array_equal(flow.times, run.times) else flow.at(run.times)
        found = self.tube(subject)
        gap = distance(run, exact)
        doubt = FLOW_ERRORS * exact.error + rounding(gap, 1.0)
        return (
            Claim("the tube's lower bound <= distance to the flow", found.lower, gap, doubt),
            Claim("distance to the flow <= the tube's upper bound", gap, found.upper, doubt),
        )

    @override
    def answers(self, subject: Case, /) -> tuple[Answer, ...]:
        found = self.tube(subject)
        end = float(found.times[-1])
        until = f"up to time {readable(end)}"
        answers = (Answer(Question.DISTANCE, float(np.max(found.upper)), until, until=end),)
        if found.forever is None:
            return answers
        return *answers, Answer(Question.DISTANCE, found.forever, "for ever")

    def tube(self, subject: Case) -> Tube:
        """The tube of the case's run."""
        run = own_run(subject)
        assert run is not None  # one of the assumptions
        return tube(run, start_distance(subject), corrected=self.corrected)
