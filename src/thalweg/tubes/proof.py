"""A tube as a proof: a file in which every bound on a run of descent can be checked.

What is proven, and why, is in `checker`, which needs nothing of this package. Here a file is made
that passes: the step's own inequalities are evaluated in the checker's ball arithmetic, and what
comes out is rounded up. The correction also takes up the rounding of the recorded points, so that
hardly anything is left to be added to the radius.
"""

import json
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._shown import shown
from thalweg.dynamics import Descent
from thalweg.dynamics.descent import plain_objective
from thalweg.problem import TargetMatrix

Times = Float[np.ndarray, " times"]

_ATTEMPTS = 60
_ROOM = 1.02  # how far above what is reached the next guess lies
_LARGEST = 1e6  # a radius above this is no radius
_SLACK = 1e-12  # by which hints are put on the safe side of rounding
_TINY = float(np.finfo(float).tiny)


@shown
@dataclass(frozen=True)
class Proof:
    """A proof of where the exact flow is, seen from a descent run, ready to be written.

    Attributes:
        content: what the file holds; numbers are hexadecimal strings.
        failed_at: the time of the run from which on nothing is proven; None if there is none. The
            proof then ends one step before. It is not part of the file.
    """

    content: dict[str, Any]
    failed_at: float | None = None
    level: ClassVar[str] = "rigorous"

    @property
    def times(self) -> Times:
        """Learning rate x step."""
        rate = float.fromhex(self.content["learning_rate"])
        return rate * np.arange(len(self.content["radii"]))

    @property
    def lower(self) -> Times:
        """The distance from the run to the flow is at least this."""
        return _array(self.content["lower"])

    @property
    def upper(self) -> Times:
        """The distance from the run to the flow is at most this."""
        return _array(self.content["upper"])

    @property
    def correction(self) -> Times:
        """The first-order correction of the distance."""
        return np.array([np.linalg.norm(_array(each)) for each in self.content["corrections"]])

    @property
    def radius(self) -> Times:
        """How far the flow may be from the corrected run."""
        return _array(self.content["radii"])

    def write(self, path: str | Path) -> None:
        """Write the file that `thalweg check`, or checker.py alone, checks."""
        from thalweg.storage.files import write_text  # brings xarray, which `import thalweg` spares

        signed = {**self.content, "sha256": _checker().digest(self.content)}
        write_text(Path(path), json.dumps(signed, separators=(",", ":")) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> "Proof":
        """Read a file, whose form is checked here, and its mathematics only by `check`."""
        checker, raw = _checker(), Path(path).read_bytes()
        try:
            checker.parse(raw)
        except checker.Rejected as refusal:
            raise InputError(f"{path} holds no proof: {refusal}") from refusal
        content = json.loads(raw)
        del content["sha256"]
        return cls(content)


@checked
def prove(run: Descent, start_distance: float = 0.0, *, curvature: str = "exact") -> Proof:
    """Prove how far a run of descent is from the exact flow, by ball arithmetic.

    Where the bounds break down the proof covers the steps before; `failed_at` says so.

    Args:
        run: one run of a linear network on a square loss, with every step recorded.
        start_distance: how far the flow may start from where the run does.
        curvature: "exact" bounds the smallest eigenvalue at every step; "norms" by norms of the
            layers' products, which costs less and proves less.
    """
    _require_usable(run, start_distance, curvature)
    checker = _checker()
    points = _flat_records(run)
    with checker.ctx.workprec(checker.PRECISION):
        maker = _Maker(checker, run, float(start_distance), curvature == "exact")
        while maker.steps + 1 < len(points) and maker.advance(points[maker.steps + 1]):
            pass
        content = maker.content()
    if not maker.steps:
        raise InputError(
            "No step of this run can be proven to stay near the flow; take a smaller learning "
            "rate or `start_distance`."
        )
    whole = maker.steps + 1 == len(points)
    return Proof(content, None if whole else float(run.times[maker.steps + 1]))


@checked
def check(path: str | Path) -> Any:
    """The checker's verdict on a file: `accepted`, `reason`, and what is proven; see `checker`."""
    try:
        return _checker().check(path)
    except OSError as error:
        raise InputError(
            f"The proof must be a file that can be read, got {path}: {error.strerror}."
        ) from error


class _Maker:
    """What is proven so far, and how to prove one step more."""

    def __init__(self, checker: ModuleType, run: Descent, start_distance: float, exact: bool):
        self.checker, self.exact = checker, exact
        self.header = _header(run, start_distance)
        self.rate = checker.arb(float(run.learning_rate))
        self.objective = checker.Objective(checker.parse_problem(self.header))
        self.points = [_flat_records(run)[0]]
        self.corrections = [[0.0] * len(self.points[0])]
        self.radii = [start_distance]
        self.hints: list[Any] = []

    @property
    def steps(self) -> int:
        return len(self.hints)

    def advance(self, following: list[float]) -> bool:
        """Prove the step to the following point; False where that fails."""
        checker, point = self.checker, self.points[-1]
        if not all(map(isfinite, following)):
            return False
        place = checker.Place(self.objective, point)
        hint = self._hint(place)
        place.measure(hint)
        step = checker.Step(place, checker.column(self.corrections[-1]), self.rate)
        found = self._within(step, checker.arb(self.radii[-1]))
        if found is None:
            return False
        within, after = found
        moved = checker.column(following) - checker.column(point) + self.rate * step.gradient
        centre = step.correction - moved
        correction = [float(entry) for entry in centre.entries()]
        radius = checker.rounded_up(after + checker.norm(centre - checker.column(correction)))
        if not radius < _LARGEST or not all(map(isfinite, correction)):
            return False
        self.points.append(following)
        self.corrections.append(correction)
        self.radii.append(radius)
        self.hints.append(checker.Hint(within, hint.smallest, hint.norms, hint.slope))
        return True

    def _within(self, step: Any, radius: Any) -> tuple[float, Any] | None:
        """A guess b that the flow is proven to stay below in this step, and the radius after it."""
        defect = step.constant + self.rate * (step.linear + self.rate * step.quadratic / 2)
        guess = _ROOM * float(radius + self.rate * defect) + _TINY
        for _ in range(_ATTEMPTS):
            if not guess < _LARGEST:
                return None
            reached, after = step.grown(radius, self.checker.arb(guess))
            if reached < guess:
                return guess, after
            guess = _ROOM * float(reached)
        return None

    def _hint(self, place: Any) -> Any:
        smallest = None
        if self.exact:
            values = np.linalg.eigvalsh(_floats(place.hessian))
            smallest = float(values[0] - _SLACK * np.abs(values).max())
        indices = self.checker.pairs(place.depth)
        wanted = [place.products[i, j] for i, j in indices if not i == j < place.depth]
        norms = [_norm(matrix) for matrix in wanted]
        return self.checker.Hint(1.0, smallest, norms, _norm(place.slope_matrix))

    def content(self) -> dict[str, Any]:
        checker = self.checker
        sizes = [checker.arb_norm(checker.column(each)) for each in self.corrections]
        both = list(zip(sizes, self.radii, strict=True))
        hints = [
            {
                "within": each.within.hex(),
                "smallest": None if each.smallest is None else each.smallest.hex(),
                "norms": _hex(each.norms),
                "slope": each.slope.hex(),
            }
            for each in self.hints
        ]
        return {
            **self.header,
            "points": [_hex(each) for each in self.points],
            "corrections": [_hex(each) for each in self.corrections],
            "radii": _hex(self.radii),
            "lower": _hex([max(0.0, -checker.rounded_up(r - size)) for size, r in both]),
            "upper": _hex([checker.rounded_up(size + r) for size, r in both]),
            "hints": hints,
        }


def _header(run: Descent, start_distance: float) -> dict[str, Any]:
    """The part of the content that says what the flow is."""
    objective = plain_objective(run, "`prove`")
    network, problem = objective.network.linear, objective.problem.least_squares
    assert network is not None  # as `_require_usable` has checked
    assert problem is not None
    if isinstance(problem, TargetMatrix):  # which the file writes without its samples
        loss: dict[str, Any] = {"kind": "target", "target": _hex_rows(problem.minimiser)}
    else:
        norm = 2 * float(problem.scale) * float(problem.spectrum[-1]) * (1 + _SLACK)
        loss = {
            "kind": "regression",
            "inputs": _hex_rows(problem.inputs),
            "targets": _hex_rows(problem.targets),
            "scale": float(problem.scale).hex(),
            "norm": max(norm, _TINY).hex(),
        }
    return {
        "format": _checker().FORMAT,
        "network": {
            "widths": list(network.widths),
            "readout": None if network.readout is None else _hex_rows(network.readout),
        },
        "loss": loss,
        "weight_decay": float(objective.weight_decay).hex(),
        "learning_rate": float(run.learning_rate).hex(),
        "start_distance": start_distance.hex(),
    }


def _checker() -> ModuleType:
    """The checker, which alone needs python-flint."""
    try:
        from thalweg.tubes import checker
    except ImportError as error:
        raise InputError(
            "Proofs need python-flint, which is not there; `pip install python-flint` brings it."
        ) from error
    return checker


def _norm(matrix: Any) -> float:
    """The spectral norm, put above by more than rounding can make of it."""
    floats = matrix if isinstance(matrix, np.ndarray) else _floats(matrix)
    return float(np.linalg.norm(floats, 2)) * (1 + _SLACK)


def _floats(matrix: Any) -> Float[np.ndarray, "_ _"]:
    return np.array([[float(entry) for entry in row] for row in matrix.tolist()])


def _array(numbers: list[str]) -> Float[np.ndarray, " _"]:
    return np.array([float.fromhex(number) for number in numbers])


def _hex(numbers: list[float]) -> list[str]:
    return [number.hex() for number in numbers]


def _hex_rows(matrix: Any) -> list[list[str]]:
    return [_hex(row) for row in np.asarray(matrix, float).tolist()]


def _flat_records(run: Descent) -> list[list[float]]:
    rows = [np.asarray(array, float).reshape(run.times.size, -1) for array in run.weights]
    return np.concatenate(rows, axis=1).tolist()


def _require_usable(run: Descent, start_distance: float, curvature: str) -> None:
    objective = plain_objective(run, "`prove`")
    network, problem = objective.network, objective.problem
    if run.learning_rate.ndim:
        raise InputError(
            f"`prove` takes one run, got a batch of shape {run.learning_rate.shape}; one at a time."
        )
    if not run.weights or not np.array_equal(run.steps, np.arange(run.steps.size)):
        raise InputError(
            "`prove` needs the weights of every step, but this run recorded only some; descend "
            "with record_every=1 and without `observe`."
        )
    if network.linear is None:
        raise InputError(
            f"`prove` is for linear networks, whose loss is smooth, got {type(network).__name__}."
        )
    if problem.least_squares is None:
        raise InputError(
            "`prove` is for the square loss, Regression or TargetMatrix, got "
            f"{type(problem).__name__}; `tube` also takes Classification."
        )
    if not (start_distance >= 0 and isfinite(start_distance)):
        raise InputError(f"`start_distance` must be a finite number >= 0, got {start_distance}.")
    if curvature not in ("exact", "norms"):
        raise InputError(f"`curvature` must be exact or norms, got {curvature!r}.")
