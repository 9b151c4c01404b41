"""Certified against empirical learning rates and iteration counts, on twelve problems."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from typing_extensions import override

from thalweg import initialisation
from thalweg.dynamics import descend
from thalweg.figures import PALETTE, STYLE
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import TargetMatrix
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size
from thalweg.theorems.approximation import start_of
from thalweg.theorems.case import Case
from thalweg.theorems.convergence import guarantee_of
from thalweg.theorems.step_sizes import Measured, stability_limit

_TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])
_SKEW = np.array([[0.1, 0.2, 0.0], [-0.1, 0.0, 0.1], [0.0, 0.1, -0.1]])
PROBLEMS: dict[str, tuple[int, np.ndarray, np.ndarray]] = {
    "one number": (1, np.eye(1), 0.5 * np.eye(1)),
    "rotation": (2, np.eye(2) + 0.25 * _TURN / 2**0.5, np.eye(2)),
    "one output": (2, np.array([[0.6, 0.0, 0.8]]), np.array([[0.3, 0.2, 0.4]])),
    "three by three": (3, np.eye(3) + 0.25 * _SKEW / np.linalg.norm(_SKEW), np.eye(3)),
}
"""Hidden width, target, and product at the start."""
_REDUCTION = 1e-6
_MOST_STEPS = 20_000
_GRID = 1.02  # the ratio of neighbouring learning rates tried


class LearningRates(AbstractStudy):
    """What is promised, what is certified with measured constants, and what works."""

    depths: tuple[int, ...]
    problems: tuple[str, ...]

    name: ClassVar[str] = "arora2019-learning-rates"
    title: ClassVar[str] = "certified against empirical learning rates and iteration counts"
    protocol: ClassVar[str] = """
Four problems (one number; a rotation of two; one output and three inputs; three by three), two to
four layers, balanced starts; the loss is to fall to a millionth. Learning rates: Theorem 1's; the
one certified by the same induction with measured constants; the largest that works in practice (a
grid of ratio 1.02, all smaller ones reach the goal within 20,000 steps); and the limit of linear
stability at a balanced minimiser, 2 / (N sigma_max^p).
"""
    comparison: ClassVar[str] = """
arora2019 note that their constants are not optimised. How far they are from practice: the empirical
rate is 4e5 to 1.5e7 times Theorem 1's, and equals the limit of linear stability at a balanced
minimiser to the grid's resolution in all cases. With measured constants instead of worst-case ones,
the same induction certifies rates within a factor of 5 to 415 of the empirical ones.
"""

    @classmethod
    @override
    def of_size(cls, size: Size) -> "LearningRates":
        if size is Size.QUICK:
            return cls((2,), ("one number", "rotation"))
        return cls((2, 3, 4), tuple(PROBLEMS))

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        work = {
            f"{problem.replace(' ', '-')}-{depth}": partial(_row, problem, depth)
            for depth in self.depths
            for problem in self.problems
        }
        return parts.gather("row", work, progress)

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        gap = results.empirical / results.theorem_1
        stable = results.empirical / results.stability
        measured = results.empirical / results.measured
        faster = results.promised_steps / results.fastest_steps
        return [
            Finding("empirical rate / Theorem 1's, least", float(gap.min()), 1e5),
            Finding("empirical rate / Theorem 1's, largest", float(gap.max()), 1e5, 3e7),
            Finding("empirical rate / limit of linear stability, least", float(stable.min()),
                    0.95, 1.02),
            Finding("empirical rate / limit of linear stability, largest", float(stable.max()),
                    0.95, 1.02),
            Finding("empirical rate / certified with measured constants, least",
                    float(measured.min()), 1.0),
            Finding("empirical rate / certified with measured constants, largest",
                    float(measured.max()), 1.0, 600.0),
            Finding("promised steps / fewest steps needed, least", float(faster.min()), 1e6),
        ]  # fmt: skip

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        kinds = (
            ("theorem_1", "Theorem 1"),
            ("measured", "same induction, measured constants"),
            ("empirical", "works in practice"),
            ("stability", "limit of linear stability"),
        )
        with plt.rc_context(STYLE):
            figure, axes = plt.subplots(figsize=(8.4, 4.2), layout="constrained")
            places = np.arange(results.sizes["row"])
            for colour, (name, label) in zip(PALETTE, kinds, strict=False):
                open_mark = name == "stability"
                axes.semilogy(
                    places, results[name], "s" if open_mark else "o", color=colour, label=label,
                    mfc="none" if open_mark else colour, ms=9 if open_mark else 5,
                )  # fmt: skip
            axes.set_xticks(
                places,
                [
                    f"{problem}, {depth}"
                    for problem, depth in zip(
                        results.problem.values, results.depth.values, strict=True
                    )
                ],
                rotation=35,
                ha="right",
            )
            axes.set_ylabel("learning rate")
            axes.set_title("Largest learning rates: promised, certified, true (problem, layers)")
            figure.legend(loc="outside lower center", ncols=4)
        return {"rates": figure}


def _row(problem: str, depth: int) -> xr.Dataset:
    hidden, target, product = PROBLEMS[problem]
    network = LinearNetwork([target.shape[1], *[hidden] * (depth - 1), target.shape[0]])
    objective = Objective(network, TargetMatrix(target))
    start = initialisation.balanced_from(network, product)
    case = Case(objective, start)
    promise, limit = guarantee_of(case), float(stability_limit(target, depth))
    empirical, fewest = _practice(objective, start, limit)
    values = {
        "theorem_1": float(promise.learning_rate),
        "promised_steps": float(promise.iterations(1 / _REDUCTION)),
        "measured": float(Measured.of(start_of(case)).largest_rate()),
        "stability": limit,
        "empirical": empirical,
        "fastest_steps": fewest,
    }
    return xr.Dataset(
        {name: ("row", [value]) for name, value in values.items()},
        {"problem": ("row", [problem]), "depth": ("row", [depth])},
    )


def _practice(objective: Objective, start: Any, limit: float) -> tuple[float, float]:
    """The largest rate that works with all smaller ones, and the fewest steps of any."""
    rates = limit * _GRID ** np.arange(-60, 12.0)
    run = descend(
        objective, start, learning_rate=rates, steps=_MOST_STEPS, record_every=_MOST_STEPS
    )
    with np.errstate(invalid="ignore"):
        works = run.loss[:, -1] <= _REDUCTION * run.loss[:, 0]
    last = int(np.argmin(works)) if not works.all() else works.size
    early = descend(objective, start, learning_rate=rates, steps=200)
    with np.errstate(invalid="ignore"):
        reached = early.loss <= _REDUCTION * early.loss[:, :1]
    steps = np.where(reached.any(axis=1), reached.argmax(axis=1), np.inf)
    return float(rates[last - 1]) if last else np.nan, float(steps.min())
