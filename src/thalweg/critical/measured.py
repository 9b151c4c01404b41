"""The largest learning rate that still trains, by bracketing and multisection over starts."""

from math import prod
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from thalweg._arguments import checked
from thalweg._checks import InputError, require_count, require_positive
from thalweg._shown import shown
from thalweg._typing import AnyWeights, ManyAnyWeights
from thalweg.critical.predictions import Prediction, predictions
from thalweg.critical.search import Criterion, Search, criterion_of
from thalweg.curvature.minimisers import least_sharpness
from thalweg.curvature.path import spectrum_along
from thalweg.dynamics.batch import Iteration
from thalweg.dynamics.starts import starts_of
from thalweg.objective import AbstractObjective, Objective
from thalweg.objective.base import shaped
from thalweg.optimisers import PLAIN, as_optimiser

_FINEST = 1e-9  # the relative width of an interval that rounding leaves room for
_LEAST_SHARPNESS = 1e-6  # below it the start says nothing about where to look


@shown
class CriticalLearningRate(eqx.Module):
    """The largest learning rate that trains, for each start, as a bracket.

    Attributes:
        lowers: for each start, a rate that trains, and so did all smaller ones that were tried,
            down to where the budget is too short for them; 0 where no rate trained.
        uppers: for each start, the first rate above that fails; infinite where none did.
        isolated: for each start, rates above its bracket that train again: the edge is ragged.
        criterion: what it means to train.
        predictions: what theory says; empty for optimisers that declare no `stability`.
    """

    lowers: Float[np.ndarray, "*starts"]
    uppers: Float[np.ndarray, "*starts"]
    isolated: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    criterion: Criterion
    predictions: tuple[Prediction, ...] = eqx.field(static=True)

    @property
    def lower(self) -> float:
        """The lower end for the middle start: half of the starts or more train with it."""
        return _middle(self.lowers)

    @property
    def upper(self) -> float:
        """The upper end for the middle start."""
        return _middle(self.uppers)

    def headline(self) -> dict[str, Any]:
        """What it prints first: the bracket, and why it may exceed the limit of stability."""
        return {"lower": self.lower, "upper": self.upper, "remark": self.remark or None}

    @property
    def spread(self) -> tuple[float, float]:
        """From where every start trains to where none does."""
        return float(self.lowers.min()), float(self.uppers.max())

    @property
    def remark(self) -> str:
        """Why the measured rate may exceed the limit of linear stability; empty where it does not.

        A rate trains if its loss is below the target, whether or not descent converges.
        """
        limits = [each for each in self.predictions if each.is_limit]
        rates = {each.rate: each.name for each in limits if each.rate is not None}
        limit = min(rates, default=np.inf)
        if not self.lower > limit:
            return ""
        return (
            f"The critical learning rate is above {rates[limit]} = {limit:.4g}, where no minimiser "
            "is linearly stable: between the two, descent does not converge to a minimiser, but "
            "trains at the edge of stability, oscillating with a loss below the target. That "
            "counts as training here; a smaller `share` of the excess loss excludes it."
        )

    def prediction(self, name: str) -> Prediction:
        """The prediction of this name."""
        for each in self.predictions:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.predictions)
        raise InputError(f"`name` must be one of {known}, got {name!r}.")

    def ratio(self, prediction: Prediction) -> float | None:
        """A predicted rate over the middle of the measured interval; None if either is unknown.

        Where each start has its own prediction, the middle one of their own ratios.
        """
        shared = prediction.rates.ndim == 0
        ends = (self.lower, self.upper) if shared else (self.lowers.ravel(), self.uppers.ravel())
        measured = np.sqrt(np.asarray(ends[0]) * np.asarray(ends[1]))
        known = np.isfinite(prediction.rates) & (measured > 0) & (measured < np.inf)
        if not known.any():
            return None
        return _middle((prediction.rates / np.where(measured > 0, measured, np.nan))[known])

    def to_dict(self) -> dict[str, Any]:
        """Plain data; None for what is unknown or infinite."""
        return {
            "criterion": self.criterion.sentence,
            "lower": self.lower,
            "upper": _finite(self.upper),
            "lowers": self.lowers.ravel().tolist(),
            "uppers": [_finite(value) for value in self.uppers.ravel().tolist()],
            "isolated": [list(rates) for rates in self.isolated],
            "remark": self.remark,
            "predictions": [
                {
                    "name": each.name,
                    "meaning": each.meaning,
                    "rate": each.rate,
                    "ratio": self.ratio(each),
                    "reason": each.reason,
                }
                for each in self.predictions
            ],
        }


@checked
def critical_learning_rate(
    objective: AbstractObjective,
    weights: ManyAnyWeights,
    *,
    steps: int | None = None,
    time: float | None = None,
    share: float = 0.01,
    minimum: float | None = None,
    precision: float = 0.02,
    candidates: int = 8,
    around: float | None = None,
    certified: bool = True,
    optimiser: Any = PLAIN,
) -> CriticalLearningRate:
    """The largest learning rate that still trains from each start, and the predictions for it.

    A rate trains if descent leaves at most `share` of the start's excess loss, see `Criterion`;
    whether it converges to a minimiser, or oscillates at the edge of stability with so small a
    loss, makes no difference, so that it may lie above 2 / least sharpness (`remark` says so). The
    answer depends on the budget: just below the stability limit 2 / S of a minimiser the error
    shrinks by 1 - 2 d per step at the rate (1 - d) 2 / S, so that `steps` find a rate which is
    below the limit by about log(1 / share) / (4 steps), in relative terms, besides what the search
    leaves open. Above it no budget helps, but one too short to see a slow divergence finds a rate
    that is too large by as much.

    Args:
        objective: what is descended.
        weights: the start, or several along leading axes that all layers share.
        steps: the budget of every run; or else
        time: the budget as learning rate x steps, so that slow rates have more of them.
        share: of the start's excess loss that may be left.
        minimum: the least value of the objective; if not given, what `measurement.least_loss`
            knows, or else what the problem declares that no loss is below. An objective of your
            own needs it, and so does a loss that declares nothing.
        precision: the relative width of a bracket at which the search ends.
        candidates: how many rates are tried at once from each start. For small networks eight cost
            as little as one; for large ones 1, which halves the bracket, is cheapest.
        around: where the search begins; where the flattest minimiser becomes unstable if not given.
        certified: ask theorems that need no run, too; they take some seconds, and speak of plain
            descent alone.
        optimiser: as of `descend`. What is predicted by linear stability is so for those that
            declare theirs: plain descent, the heavy ball, Nesterov's method.
    """
    if not precision >= _FINEST:
        raise InputError(f"`precision` must be at least {_FINEST:g}, got {precision:g}.")
    candidates = require_count("candidates", candidates)
    batch, starts = _starts(objective, weights)
    criterion = criterion_of(objective, share, minimum, steps, time)
    first = jax.tree.map(lambda array: array[0], starts)
    objective = shaped(objective, first)
    iteration = Iteration(objective, as_optimiser(optimiser, first))
    if around is None:
        around = _guess(iteration, starts)
    require_positive("around", around)
    found = Search(iteration, starts, criterion, candidates).run(float(around), precision)
    lowers = np.asarray([each.lower for each in found])
    return CriticalLearningRate(
        lowers=lowers.reshape(batch),
        uppers=np.asarray([each.upper for each in found]).reshape(batch),
        isolated=tuple(each.isolated for each in found),
        criterion=criterion,
        predictions=predictions(iteration, starts, lowers, criterion, certified),
    )


def _starts(
    objective: AbstractObjective, weights: AnyWeights
) -> tuple[tuple[int, ...], AnyWeights]:
    """The batch's shape, and the starts along one axis."""
    batch, shapes, points = starts_of(objective, weights)
    if not prod(batch):
        raise InputError(f"`weights` must hold at least one start, got the batch axes {batch}.")
    arrays, structure = jax.tree.flatten(points)
    flat = [array.reshape(-1, *shape) for array, shape in zip(arrays, shapes, strict=True)]
    return batch, structure.unflatten(flat)


def _guess(iteration: Iteration, starts: AnyWeights) -> float:
    """Where a minimiser of a typical sharpness becomes unstable, or would for plain descent."""
    sharpness = _typical_sharpness(iteration.objective, starts)
    if not sharpness > _LEAST_SHARPNESS:
        return 1.0
    limit = float(iteration.optimiser.stability_limit(sharpness))
    return 2 / sharpness if np.isnan(limit) else limit


def _typical_sharpness(objective: AbstractObjective, starts: AnyWeights) -> float:
    """That of the flattest minimiser, or else of the start."""
    if isinstance(objective, Objective):
        try:
            return float(least_sharpness(objective).sharpness)
        except InputError:  # it is about one output
            pass
    points = jax.tree.map(lambda array: array[:, None], starts)
    return float(np.nanmax(spectrum_along(objective, points).largest))


def _middle(values: Float[np.ndarray, "..."]) -> float:
    """The lower median: the same place in the order for both ends, so that they stay a bracket."""
    ordered = np.sort(np.ravel(values))
    return float(ordered[(ordered.size - 1) // 2])


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
