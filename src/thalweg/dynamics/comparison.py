"""A run next to the flow from the same start: how far apart they are, within which error."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._pictured import Pictured
from thalweg._shown import shown
from thalweg.dynamics.descent import Descent
from thalweg.dynamics.trajectory import AbstractFlow, Distance, distance


@shown
@dataclass(frozen=True, eq=False)
class Comparison(Pictured):
    """A run of descent and the flow, at the times of the run.

    Attributes:
        run: descent, one run or a batch.
        flow: the flow at those times.
        distance: from one to the other in weight space.
        error: how far the flow itself may be from the exact one, up to each time.
    """

    run: Descent
    flow: AbstractFlow
    distance: Distance
    error: Float[np.ndarray, "*batch times"]


@checked
def compare(run: Descent, flow: AbstractFlow) -> Comparison:
    """A run next to the flow, at the times of the run; see `distance`."""
    if not (run.has_weights and flow.has_weights):
        raise InputError(
            "`run` must have kept its weights to be compared with a flow, but it kept what "
            "`observe` returned; descend without `observe`."
        )
    there = flow.brought_to(run.times)
    return Comparison(run, there, distance(run, there), there.error_so_far)
