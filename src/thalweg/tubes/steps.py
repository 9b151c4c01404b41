"""The largest learning rate whose run is proven to stay near the flow.

One validated flow z, within e of the exact one, judges every run:

    |run - z| + e <= radius at all steps     it stays within the radius,
    |run - z| - e >  radius at some step     it leaves it,

and since e is around 1e-11, hardly a run is left undecided.

What is proven is about single runs. The search takes the rates that stay for an interval, which is
what they are wherever the largest distance grows with the learning rate; of rates that were not
tried nothing is proven.
"""

from math import inf, sqrt

import equinox as eqx
import numpy as np
from jaxtyping import Float

from thalweg._arguments import checked
from thalweg._checks import InputError, described, finite_weights, require_positive
from thalweg._shown import shown
from thalweg._typing import Weights
from thalweg.curvature import ball_bounds
from thalweg.dynamics import Descent, ValidatedFlow, descend, distance, flow
from thalweg.objective import Objective
from thalweg.validated import can_validate

_MOST_STEPS = 2_000_000

Distances = Float[np.ndarray, " times"]


@shown
class CertifiedStep(eqx.Module):
    """A learning rate whose run is proven to stay near the flow, and the next one that was tried.

    Attributes:
        learning_rate: the largest one tried that is proven to stay within the radius.
        run: its run, all steps recorded.
        lower: at each step the distance from the run to the exact flow is at least this.
        upper: and at most this.
        refused: the smallest learning rate tried above it; infinite where all that fit into the
            time stay.
        leaves: whether the run at `refused` is proven to leave the radius; if not, then it is not
            decided.
        flow: the validated flow that all runs were held against.
    """

    learning_rate: float
    run: Descent
    lower: Distances
    upper: Distances
    refused: float
    leaves: bool
    flow: ValidatedFlow


@checked
def certified_step(
    objective: Objective,
    weights: Weights,
    radius: float,
    time: float,
    *,
    precision: float = 1e-4,
) -> CertifiedStep:
    """The largest learning rate found whose steps are proven to stay within a radius, over a time.

    Both sides of the answer are proven: at `learning_rate` every step up to the time is within the
    radius of the exact flow, at `refused` some step is not, unless `leaves` says that this is
    undecided. The search doubles or halves from 2 / (a bound on the sharpness), and then bisects
    the ratio of the two.

    Args:
        objective: the loss.
        weights: the start of descent and flow.
        radius: how near descent must stay to the flow.
        time: for how long.
        precision: the search ends where `refused` is at most 1 + precision times the answer.
    """
    for name, value in (("radius", radius), ("time", time), ("precision", precision)):
        require_positive(name, value)
    weights = finite_weights(weights)
    exact = _proven_flow(objective, weights, time)
    trials = _Trials(weights, radius, time, exact)
    first = min(2 / float(ball_bounds(objective, weights, 0.0).hessian), time)
    good, bad = trials.bracket(first)
    while bad is not None and bad.rate > (1 + precision) * good.rate:
        middle = trials.at(sqrt(good.rate * bad.rate))
        good, bad = (middle, bad) if middle.stays else (good, middle)
    refused, leaves = (inf, False) if bad is None else (bad.rate, bad.leaves)
    return CertifiedStep(good.rate, good.run, good.lower, good.upper, refused, leaves, exact)


class _Trial(eqx.Module):
    """One run, and what is proven of its distance to the flow."""

    rate: float
    run: Descent
    lower: Distances
    upper: Distances
    stays: bool
    leaves: bool


class _Trials(eqx.Module):
    """Runs at one learning rate after the other."""

    weights: Weights
    radius: float
    time: float
    flow: ValidatedFlow

    def at(self, rate: float) -> _Trial:
        """The run at this learning rate, over all steps up to the time."""
        steps = _steps_until(self.time, rate)
        if steps > _MOST_STEPS:
            raise InputError(
                f"No learning rate down to {rate:.1e} is proven to stay within {self.radius:g} for "
                f"{self.time:g}; ask for a larger radius or a shorter time."
            )
        run = descend(self.flow.objective, self.weights, learning_rate=rate, steps=steps)
        gap = distance(run, self.flow)
        lower, upper = np.asarray(gap.lower), np.asarray(gap.upper)
        # A run that diverged has distances that are no numbers, which are within nothing.
        stays, leaves = bool(np.all(upper <= self.radius)), bool(np.any(lower > self.radius))
        return _Trial(rate, run, lower, upper, stays, leaves)

    def bracket(self, first: float) -> tuple[_Trial, _Trial | None]:
        """One that stays, and one at twice its rate that does not; None if no longer step fits."""
        good, bad = self.at(first), None
        while not good.stays:
            good, bad = self.at(good.rate / 2), good
        while bad is None and 2 * good.rate <= self.time:
            longer = self.at(2 * good.rate)
            good, bad = (longer, None) if longer.stays else (good, longer)
        return good, bad


def _steps_until(time: float, rate: float) -> int:
    """How many steps end by this time, as the run counts its times."""
    steps = int(time / rate) + 1
    while steps * rate > time:
        steps -= 1
    return steps


def _proven_flow(objective: Objective, weights: Weights, time: float) -> ValidatedFlow:
    if not can_validate(objective):
        raise InputError(
            "`certified_step` needs a flow that can be validated, that of a linear network with a "
            f"loss that has a power series, got {described(objective)}."
        )
    proven = flow(objective, weights, times=[time], validate=True)
    if proven.failed_at is not None:
        raise InputError(
            f"The flow is proven up to time {proven.failed_at:g}, got `time` = {time:g}; ask for a "
            "shorter one."
        )
    return proven
