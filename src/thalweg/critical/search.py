"""Which of many learning rates train, and the bracket that they leave.

Whether a rate trains is asked of many rates and starts at once, as lanes of one descent: a block of
small networks costs no more than one of them, so that eight rates between two others narrow a
bracket ninefold for the price that halving it has.
"""

from math import isfinite, isnan
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from thalweg._checks import InputError, described, require_count, require_positive
from thalweg._typing import AnyWeights
from thalweg.dynamics import descend, nothing
from thalweg.dynamics.batch import Iteration
from thalweg.measurement import least_loss
from thalweg.objective import AbstractObjective, Objective

SCAN_RATIO = 2.0
"""From one rate to the next while no bracket is known."""

_SCANS = 6  # how often the scan goes farther before it gives up
_LAST_SHARE = 0.1  # of a run's steps, over which its loss is averaged
_RECORDS = 200
_MOST_STEPS = 5_000_000

Rates = Float[np.ndarray, "starts rates"]


class Criterion(eqx.Module):
    """When a run counts as trained.

    Its loss above the minimum, on average over the last tenth of its steps, is at most `share` of
    what it was at the start. The average forgives single spikes, and asks that a run that passed
    the target by chance be still there.

    Attributes:
        minimum: the least value of the objective.
        share: of the start's excess.
        steps: how many steps every run has; None where `time` is given.
        time: learning rate x steps, the same for every run; None where `steps` is given.
    """

    minimum: float
    share: float
    steps: int | None
    time: float | None

    def steps_at(self, rates: Rates) -> np.ndarray:
        """How many steps a run with each of these rates has."""
        if self.steps is not None:
            return np.full(rates.shape, self.steps)
        assert self.time is not None
        return np.clip(np.ceil(self.time / rates - 1e-9), 1, 2.0**62).astype(int)

    def target(self, loss: Any) -> float:
        """The loss that a run from a start with this loss is to fall to."""
        return self.minimum + self.share * (float(loss) - self.minimum)

    @property
    def sentence(self) -> str:
        """What it asks for."""
        length = f"{self.steps} steps" if self.steps is not None else f"time {self.time:g}"
        return f"leaves at most {self.share:.3g} of the start's excess loss within {length}"


class Bracket(NamedTuple):
    """What the rates tried from one start say.

    Attributes:
        lower: the rate below the first failure; 0 where none trains.
        upper: the first rate above it that fails; infinite where none does.
        isolated: rates above `upper` that train again.
    """

    lower: float
    upper: float
    isolated: tuple[float, ...]


def bracket(rates: Float[np.ndarray, " rates"], trained: Bool[np.ndarray, " rates"]) -> Bracket:
    """The bracket of one start.

    Rates below the first that trains are no failure of stability: they are too slow for the budget.
    """
    order = np.argsort(rates)
    rates, trained = rates[order], trained[order]
    if not trained.any():
        return Bracket(0.0, float(rates[0]), ())
    first = int(np.argmax(trained))
    failures = np.flatnonzero(~trained[first:])
    if not failures.size:
        return Bracket(float(rates[-1]), np.inf, ())
    failure = first + int(failures[0])
    again = rates[failure:][trained[failure:]]
    return Bracket(float(rates[failure - 1]), float(rates[failure]), tuple(again.tolist()))


class Search:
    """All rates tried so far from every start, and which of them trained."""

    def __init__(
        self, iteration: Iteration, starts: AnyWeights, criterion: Criterion, candidates: int
    ):
        """Take the starts along one axis; `candidates` rates are tried at once from each."""
        self.iteration, self.starts, self.criterion = iteration, starts, criterion
        self.candidates = require_count("candidates", candidates)
        count = jax.tree.leaves(starts)[0].shape[0]
        self.rates: list[list[float]] = [[] for _ in range(count)]
        self.trained: list[list[bool]] = [[] for _ in range(count)]

    def run(self, around: float, precision: float) -> list[Bracket]:
        """Scan for a bracket near this rate, then narrow it to this relative width."""
        half = max(self.candidates // 2, 1)
        powers = np.arange(-half, half) + 0.5  # a guess may be the edge itself: not on it
        everyone = list(range(len(self.rates)))
        self._try(everyone, [around * SCAN_RATIO**powers] * len(everyone))
        for _ in range(_SCANS):
            unknown = [i for i in everyone if not _closed(self._bracket(i))]
            if not unknown:
                break
            self._try(unknown, [self._farther(i, half) for i in unknown])
        while True:
            wide = [i for i in everyone if _is_wide(self._bracket(i), precision)]
            if not wide:
                return [self._bracket(i) for i in everyone]
            self._try(wide, [self._between(i) for i in wide])

    def _bracket(self, start: int) -> Bracket:
        return bracket(np.asarray(self.rates[start]), np.asarray(self.trained[start]))

    def _farther(self, start: int, half: int) -> np.ndarray:
        """Rates above all others; where none trains yet, also rates below them."""
        powers, tried = SCAN_RATIO ** np.arange(1, half + 1), self.rates[start]
        if self._bracket(start).lower > 0:
            return max(tried) * SCAN_RATIO ** np.arange(1, 2 * half + 1)
        return np.concatenate([min(tried) / powers, max(tried) * powers])

    def _between(self, start: int) -> np.ndarray:
        found = self._bracket(start)
        return np.geomspace(found.lower, found.upper, self.candidates + 2)[1:-1]

    def _try(self, places: list[int], rates: list[np.ndarray]) -> None:
        chosen = jax.tree.map(lambda array: array[np.asarray(places)][:, None], self.starts)
        trained = trains(self.iteration, chosen, np.stack(rates), self.criterion)
        for place, values, answers in zip(places, rates, trained, strict=True):
            self.rates[place] += values.tolist()
            self.trained[place] += answers.tolist()


def _closed(found: Bracket) -> bool:
    return found.lower > 0 and found.upper < np.inf


def _is_wide(found: Bracket, precision: float) -> bool:
    return _closed(found) and found.upper > (1 + precision) * found.lower


def trains(
    iteration: Iteration, weights: AnyWeights, rates: Rates, criterion: Criterion
) -> Bool[np.ndarray, "starts rates"]:
    """Whether descent trains, for starts with one more axis of length one, and their rates."""
    own = criterion.steps_at(rates)
    steps = int(own.max())
    if steps > _MOST_STEPS:
        raise InputError(
            f"`time` must leave a run at most {_MOST_STEPS} steps, got {criterion.time:g}, which "
            f"is {steps} at the rate {rates.min():.3g}; give less, or `steps` instead."
        )
    # Odd, so that an oscillation from step to step is seen on both sides.
    every = max(1, int(own.min()) // _RECORDS) | 1
    run = descend(
        iteration.objective, weights, learning_rate=rates, steps=steps, record_every=every,
        optimiser=iteration.optimiser, observe=nothing,
    )  # fmt: skip
    excess = run.loss - criterion.minimum
    last = (run.steps > (1 - _LAST_SHARE) * own[..., None] - every) & (run.steps <= own[..., None])
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.where(last, excess, 0.0).sum(axis=-1) / last.sum(axis=-1)
        return mean <= criterion.share * excess[..., 0]  # false where the mean is NaN


def criterion_of(
    objective: AbstractObjective, share: float, minimum: Any, steps: Any, time: Any
) -> Criterion:
    """The criterion, checked."""
    require_positive("share", share)
    if share >= 1:
        raise InputError(f"`share` must be below 1, the start's own excess, got {share:g}.")
    if (steps is None) == (time is None):
        raise InputError("The budget must be given either as `steps` or as `time`.")
    if steps is not None:
        steps = require_count("steps", steps)
        if steps > _MOST_STEPS:
            raise InputError(f"`steps` must be at most {_MOST_STEPS}, got {steps}.")
    else:
        require_positive("time", time)
        time = float(time)
    least = _least(objective) if minimum is None else float(minimum)
    return Criterion(least, float(share), steps, time)


def _least(objective: AbstractObjective) -> float:
    if not isinstance(objective, Objective):  # a loss on data has a least value, others may not
        raise InputError(
            "`minimum` must be given for an objective that is no network on a problem, got "
            f"{described(objective)}; 0 will do where no value is below."
        )
    if float(objective.weight_decay) > 0:
        raise InputError(
            "`minimum` must be given where there is weight decay, which moves it; e.g. the "
            "last loss of a long flow."
        )
    known, least = least_loss(objective), float(objective.problem.least_output_value)
    if isnan(known) and not isfinite(least):
        raise InputError(
            f"`minimum` must be given for the loss {objective.problem.loss_name!r}, which declares "
            "no value that it is never below; 0 will do where it is never negative."
        )
    return least if isnan(known) else known


def budget_steps(criterion: Criterion, rate: float) -> int:
    """How many steps the budget leaves one rate."""
    return int(criterion.steps_at(np.asarray([[rate]]))[0, 0])
