"""The learning rate from which on descent is predicted to meet the edge of stability.

Below the edge the central flow is the gradient flow. So whether descent meets the edge and hovers
there, or settles as the flow does, can be read from the flow alone, which knows no learning rate:
with the largest sharpness M(t) that it has had up to time t, descent with the rate eta meets its
edge 2 / eta within so many steps if M(eta steps) >= 2 / eta, that is if

    t M(t) >= 2 steps    at    t = eta steps.

The left side rises, so that one rate divides those that settle from those that hover.
"""

import jax
import numpy as np
from jaxtyping import Float

from thalweg._arguments import checked
from thalweg._checks import require_count, require_positive
from thalweg._typing import AnyWeights, ManyAnyWeights
from thalweg.curvature.path import spectrum_along
from thalweg.dynamics import descend
from thalweg.dynamics.starts import starts_of
from thalweg.objective import AbstractObjective
from thalweg.objective.base import shaped

_SLOWER = 60  # than the largest rate that is asked about: such a descent stands for the flow
_RECORDS, _STRETCHES = 12, 9  # of each stretch; each but the second is twice as long as the last
_FLOW = 1.0  # learning rate x sharpness above which slow descent does not stand for the flow


@checked
def edge_learning_rate(
    objective: AbstractObjective, weights: ManyAnyWeights, *, steps: int, highest: float
) -> Float[np.ndarray, "*starts"]:
    """The learning rate above which descent is predicted to meet the edge within so many steps.

    Below it descent is predicted to settle where the gradient flow does, for which a descent stands
    that is 60 times slower than the highest rate, or than 2 / the sharpness at the start. At a
    start that is nowhere flatter than later on it is 2 / the sharpness there.

    Args:
        objective: what is descended.
        weights: the start, or several along leading axes that all layers share.
        steps: of the descents that are predicted.
        highest: the largest rate of interest: the flow is followed up to its time.

    Returns:
        One rate for each start; infinite where no rate up to the highest meets the edge, NaN where
        the slow descent itself became too sharp to stand for the flow.
    """
    steps = require_count("steps", steps)
    require_positive("highest", highest)
    batch, shapes, points = starts_of(objective, weights)
    arrays, structure = jax.tree.flatten(points)
    pairs = zip(arrays, shapes, strict=True)
    starts = structure.unflatten([np.reshape(array, (-1, *shape)) for array, shape in pairs])
    objective = shaped(objective, jax.tree.map(lambda array: array[0], starts))
    alone = jax.tree.map(lambda array: array[:, None], starts)
    first = spectrum_along(objective, alone).largest[:, 0]
    rates = np.minimum(highest, 2 / np.maximum(first, 1e-300)) / _SLOWER
    counts, largest, reached = _largest_sharpness(objective, starts, rates, first, _SLOWER * steps)
    times = rates[:, None] * counts
    found = _first_time(times, times * largest, 2.0 * steps) / steps
    found = np.where(found <= highest * (1 + 1e-9), found, np.inf)
    within = times <= np.minimum(found, highest)[:, None] * steps
    seen = np.max(np.where(within, largest, 0.0), axis=1)
    followed = np.minimum(found, highest) * steps <= rates * reached * (1 + 1e-9)
    return np.where((rates * seen <= _FLOW) & followed, found, np.nan).reshape(batch)


def _largest_sharpness(
    objective: AbstractObjective,
    starts: AnyWeights,
    rates: Float[np.ndarray, " starts"],
    first: Float[np.ndarray, " starts"],
    steps: int,
) -> tuple[np.ndarray, Float[np.ndarray, "starts records"], np.ndarray]:
    """After how many steps of slow descent, the largest sharpness so far, and until when it ran.

    The last is infinite where slow descent did not diverge.
    """
    spacing = -(-steps // (_RECORDS * 2 ** (_STRETCHES - 1)))
    now, counts, found = starts, [np.zeros(1, int)], [first[:, None]]
    reached = np.full(first.shape, np.inf)
    for number in range(_STRETCHES):
        every = spacing * 2 ** max(0, number - 1)
        run = descend(
            objective, now, learning_rate=rates, steps=_RECORDS * every, record_every=every
        )
        counts.append(counts[-1][-1] + run.steps[1:])
        found.append(spectrum_along(objective, run).largest[:, 1:])
        reached[run.diverged & np.isinf(reached)] = counts[-2][-1]
        now = jax.tree.map(lambda array: np.where(np.isfinite(array), array, 0.0), run.final)
    counts, largest = np.concatenate(counts), np.concatenate(found, axis=1)
    return counts, np.fmax.accumulate(largest, axis=1), reached


def _first_time(
    times: Float[np.ndarray, "starts records"], rising: np.ndarray, level: float
) -> Float[np.ndarray, " starts"]:
    """When each row first reaches the level, between records along a line; infinite if never."""
    reached = rising >= level * (1 - 1e-9)
    place = np.maximum(reached.argmax(axis=1), 1)
    rows = np.arange(len(rising))
    low, high = rising[rows, place - 1], rising[rows, place]
    before, after = times[rows, place - 1], times[rows, place]
    with np.errstate(invalid="ignore", divide="ignore"):
        between = before + (level - low) / (high - low) * (after - before)
    return np.where(reached.any(axis=1), between, np.inf)
