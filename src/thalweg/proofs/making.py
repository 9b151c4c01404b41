"""Make a proof file that passes, with the checker's own arithmetic.

The checker computes the curve and all bounds; what has to be found are the partition of time, the
order and the precisions. An interval is as long as its defect allows, which is predicted from that
of the interval before. Radii and claims are what the checker will find, rounded up.
"""

from collections.abc import Sequence
from math import isfinite, nextafter
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._typing import Weights
from thalweg.dynamics import Descent
from thalweg.dynamics.descent import plain_objective
from thalweg.objective import Objective
from thalweg.proofs.describing import described, flat, hexadecimal
from thalweg.proofs.proof import Proof, checker


class _Effort(NamedTuple):
    """How finely the flow is followed: the order, the bits, and the defect of an interval."""

    order: int
    precision: int
    defect: float  # relative to the size of the weights


# The second where errors grow by more than the first can spare.
_EFFORTS = (_Effort(28, 128, 1e-20), _Effort(48, 256, 1e-45))
_ENOUGH = 1e-12  # a radius that needs no greater effort
_ROOM = 1 + 1e-6  # what a radius is enlarged by, so that rounding never decides
_ATTEMPTS = 60
_SHORTEST = 1e-7  # an interval below this share of the horizon gets nowhere
_LARGEST = 1e6  # the bound has diverged above this
_SHARP = 1e-24  # how well the points of a run are known, far below a unit in a bound's last place
_TINY = float(np.finfo(float).tiny)
_FAR = 1e100  # a run that gets farther has diverged


@checked
def prove(runs: Descent | Sequence[Descent], start_distance: float = 0.0) -> Proof:
    """Prove how far runs of descent are from the exact flow, by ball arithmetic.

    The claims are about descent in real numbers, at each step, whether it was recorded or not.
    Where bounds break down the proof covers the steps before; `failed_at` says so.

    Args:
        runs: one or several runs from the same start, or a batch of them, of a linear network with
            the square loss or cross-entropy.
        start_distance: how far the flow may start from where the runs do.
    """
    every = [runs] if isinstance(runs, Descent) else list(runs)
    objective, start = _shared(every)
    steps = [(rate, int(run.steps[-1])) for run in every for rate in _rates(run)]
    return prove_descents(objective, start, steps, start_distance)


def prove_descents(
    objective: Objective,
    weights: Weights,
    steps: Sequence[tuple[float, int]],
    start_distance: float = 0.0,
) -> Proof:
    """The same for runs that are given by their learning rates and numbers of steps."""
    if not (start_distance >= 0 and isfinite(start_distance)):
        raise InputError(f"`start_distance` must be a finite number >= 0, got {start_distance}.")
    module, header, start = checker(), described(objective), flat(weights)
    problem = module.parse_problem(header)
    runs = [_sharpened(module, problem, start, rate, count) for rate, count in steps]
    maker = _Maker(module, problem, start, float(start_distance), _EFFORTS[0], runs)
    if not maker.succeeds():
        maker = _Maker(module, problem, start, float(start_distance), _EFFORTS[1], runs)
        maker.succeeds()
    if len(maker.times) == 1:
        raise InputError(
            "Nothing can be proven of this flow; start nearer to zero, or take a smaller "
            "`start_distance`."
        )
    ends = [
        rate * len(claim.upper)
        for (rate, count), claim in zip(steps, maker.claims, strict=True)
        if len(claim.upper) <= count
    ]
    return Proof(
        {"format": module.FORMAT, **header, **maker.content(start)}, min(ends, default=None)
    )


class _Run(NamedTuple):
    """A run as it is claimed: how many steps, and the bits that keep all of them sharp."""

    learning_rate: float
    steps: int
    precision: int


def _sharpened(
    module: ModuleType, problem: Any, start: list[float], rate: float, count: int
) -> _Run:
    """The precision that a run needs; fewer steps where it diverges or no precision is enough."""
    precision = 128
    while True:
        kept, blurred = _kept(module, problem, start, _Run(rate, count, precision))
        if not blurred:
            return _Run(rate, kept, precision)
        if precision == module.MOST_BITS_OF_RUNS:
            return _Run(rate, kept, precision)
        # Balls grow by about as much in each step.
        needed = 100 + 1.1 * precision * count / max(1, kept)
        precision = int(min(max(needed, 1.5 * precision), module.MOST_BITS_OF_RUNS))


def _kept(module: ModuleType, problem: Any, start: list[float], run: _Run) -> tuple[int, bool]:
    """How many steps of a run stay sharp and near, and whether they end for lack of bits."""
    descent = module.Descent(problem, start, run.learning_rate, run.precision)
    with module.ctx.workprec(run.precision):
        origin = [each - each for each in descent.point]
        for k in range(run.steps):
            descent.advance()
            size = module.distance(descent.point, origin)
            blur = module.distance(descent.point, [each.mid() for each in descent.point])
            if not size < _FAR and blur < size:
                return k, False
            if not blur < _SHARP * (1 + size):
                return k, True
    return run.steps, False


class _Maker:
    """The partition of time so far, what is claimed of the runs, and how to go on."""

    def __init__(
        self,
        module: ModuleType,
        problem: Any,
        start: list[float],
        start_distance: float,
        effort: _Effort,
        runs: list[_Run],
    ):
        self.checker, self.effort, self.runs = module, effort, runs
        with module.ctx.workprec(effort.precision):
            self.objective = module.Objective(problem)
            self.point = self.objective.layers(start)
        self.descents = [
            module.Descent(problem, start, run.learning_rate, run.precision) for run in runs
        ]
        self.claims = [
            module.Run(run.learning_rate, run.precision, [0.0], [start_distance]) for run in runs
        ]
        self.times, self.radii = [0.0], [start_distance]
        self.horizon = max(_time_after(module, run) for run in runs)
        self.wanted = effort.defect * (float(np.linalg.norm(start)) or 1.0)

    def succeeds(self) -> bool:
        """Go to the horizon, or as far as it goes; whether that was with a good radius."""
        length = self.horizon / 10
        with self.checker.ctx.workprec(self.effort.precision):
            while self.times[-1] < self.horizon and length is not None:
                length = self._advance(length)
        whole = self.times[-1] == self.horizon
        return whole and self.radii[-1] <= max(_ENOUGH, self.radii[0])

    def _advance(self, length: float) -> float | None:
        """Prove one more interval; how long the next one should be, None where that fails."""
        module, begin = self.checker, self.times[-1]
        for _ in range(_ATTEMPTS):
            end = min(begin + length, self.horizon)
            if not length > _SHORTEST * self.horizon:
                return None
            step = module.Step(
                self.objective, self.point, module.arb(begin), module.arb(end), self.effort.order
            )
            room = self._room(step)
            found = self._radius(step) if room >= 1 else None
            if found is not None:
                self.point, radius = found
                self.times.append(end)
                self.radii.append(radius)
                self._follow(step)
                return (end - begin) * min(2.0, 0.93 * room)
            length = (end - begin) * (max(0.2, 0.93 * room) if room < 1 else 0.5)
        return None

    def _room(self, step: Any) -> float:
        """How much longer the interval could be; below one if it is too long."""
        defect = float(step.defect)
        if not isfinite(defect):
            return 0.0
        return (self.wanted / max(defect, 1e-300)) ** (1 / (self.effort.order + 1))

    def _radius(self, step: Any) -> tuple[Any, float] | None:
        """The next point, and a radius that proves itself."""
        radius = self.checker.arb(self.radii[-1])
        guess = self.checker.rounded_up(radius + step.defect)
        for _ in range(_ATTEMPTS):
            if not guess < _LARGEST:
                return None
            point, reached = step.grown(radius, self.checker.arb(guess))
            if reached < guess:
                return point, guess
            guess = self.checker.rounded_up(reached * _ROOM + _TINY)
        return None

    def _follow(self, step: Any) -> None:
        """Take all runs to the end of the interval, and claim what is proven on the way."""
        module, radius = self.checker, self.radii[-1]
        for run, descent, claim in zip(self.runs, self.descents, self.claims, strict=True):
            while descent.steps < run.steps and descent.next_time <= self.times[-1]:
                descent.advance()
                size = module.distance(descent.point, step.at(descent.time))
                claim.upper.append(module.rounded_up(size + radius))
                claim.lower.append(max(0.0, -module.rounded_up(radius - size)))

    def content(self, start: list[float]) -> dict[str, Any]:
        """The part of a file that is found here."""
        return {
            "start": hexadecimal(start),
            "order": self.effort.order,
            "precision": self.effort.precision,
            "times": hexadecimal(self.times),
            "radii": hexadecimal(self.radii),
            "runs": [
                {
                    "learning_rate": claim.learning_rate.hex(),
                    "precision": claim.precision,
                    "lower": hexadecimal(claim.lower),
                    "upper": hexadecimal(claim.upper),
                }
                for claim in self.claims
            ],
        }


def _time_after(module: ModuleType, run: _Run) -> float:
    """A double at or after the last step of a run."""
    last = run.learning_rate * max(1, run.steps)
    while not run.steps * module.arb(run.learning_rate) <= last:
        last = nextafter(last, np.inf)
    return last


def _rates(run: Descent) -> list[float]:
    return np.asarray(run.learning_rate, float).ravel().tolist()


def _shared(runs: list[Descent]) -> tuple[Objective, Weights]:
    """What all runs descend, and from where."""
    if not runs:
        raise InputError("`prove` needs at least one run, got none.")
    for run in runs:
        if not run.weights or run.steps[0] != 0:
            raise InputError(
                "`prove` needs the weights that a run starts from, but this one recorded none at "
                "step 0; descend without `observe`."
            )
    objectives = [plain_objective(run, "`prove`") for run in runs]
    starts = [start for run in runs for start in _starts(run)]
    same = all(described(each) == described(objectives[0]) for each in objectives[1:])
    if not same or any(not np.array_equal(start, starts[0]) for start in starts):
        raise InputError(
            "`prove` takes runs of one objective from one start, got several; a proof has one flow."
        )
    return objectives[0], (starts[0],)


def _starts(run: Descent) -> np.ndarray:
    """Where the runs of a batch start, one row each."""
    shape = (len(_rates(run)), run.steps.size, -1)
    rows = [np.asarray(array, float).reshape(shape)[:, 0] for array in run.weights]
    return np.concatenate(rows, axis=1)
