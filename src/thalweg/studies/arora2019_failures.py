"""The failures of arora2019's claims 4 and 5: no balance, or no margin, and no convergence."""

from collections.abc import Mapping
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
from thalweg.theorems.failure import Unbalanced

_EIGENVALUES = (1.5, -0.5)
_KNOWN = {2: (0.207100, 0.125005332), 4: (0.194592, 0.128243)}
"""The loss after 10 and 100 steps at 0.1, by the scalar recursion."""


class Failures(AbstractStudy):
    """Losses that grow doubly exponentially, and losses that stall."""

    rates: tuple[float, ...]
    steps: int

    name: ClassVar[str] = "arora2019-failures"
    title: ClassVar[str] = "without balance descent diverges, without margin it stalls"
    protocol: ClassVar[str] = """
Claim 4: the target is the identity, the layers diag(w_j, 1) with a margin of 3/4 and a factor A
between the halves of the layers that makes descent at the given learning rate diverge; the entries
are followed in decimal arithmetic of sixty digits, since the loss leaves floating point after four
steps. Claim 5: all layers are the identity, which is perfectly balanced, and the target
diag(1.5, -0.5) has a negative eigenvalue.
"""
    comparison: ClassVar[str] = """
arora2019 state both without a figure. Claim 4 is seen for every learning rate tried; the loss grows
doubly exponentially, faster than the paper's "at least exponentially". The factor A is the
corrected one: with the printed one the proof fails for margins above 0.89. Claim 5: the loss
falls to exactly half the square of the negative eigenvalue, 0.125, and stays; with four layers it
gets there slowly, because the saddle is degenerate.
"""

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Failures":
        if size is Size.QUICK:
            return cls((0.01, 1.0), 300)
        return cls((1e-4, 1e-2, 0.1, 1.0, 10.0), 1000)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        growing = [[Unbalanced(n, eta, 0.75).log_losses() for eta in self.rates] for n in (2, 4)]
        stalling = [self._stalled(depth) for depth in (2, 4)]
        progress("failures", 1.0)
        return xr.Dataset(
            {
                "log_loss": (("depth", "learning_rate", "step"), np.asarray(growing)),
                "stalled": (("depth", "later"), np.stack(stalling)),
            },
            {
                "depth": [2, 4],
                "learning_rate": list(self.rates),
                "step": np.arange(5),
                "later": np.arange(self.steps + 1),
            },
        )

    def _stalled(self, depth: int) -> np.ndarray:
        network = LinearNetwork([2] * (depth + 1))
        objective = Objective(network, TargetMatrix(np.diag(_EIGENVALUES)))
        start = initialisation.identity(network)
        return descend(objective, start, learning_rate=0.1, steps=self.steps).loss

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        logs = results.log_loss
        floor = 2 * np.log(2.0**results.depth - 1) - np.log(2)
        gains = np.diff(logs.isel(step=slice(1, None)).values, axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            doubling = gains[..., 1:] / gains[..., :-1]
        rows = [
            Finding("claim 4: log of the loss after the first step, less its proven floor, least",
                    float((logs.isel(step=slice(1, None)) - floor).min()), 0.0,
                    reported="never converges"),
            Finding("claim 4: growth of the logarithm from step to step, least factor",
                    float(doubling.min()), 2.0, reported="at least exponentially"),
        ]  # fmt: skip
        for depth, (early, late) in _KNOWN.items():
            row = results.stalled.sel(depth=depth)
            for step, known in ((10, early), (100, late)):
                rows.append(
                    Finding(f"claim 5, {depth} layers: loss after {step} steps",
                            float(row.sel(later=step)), known - 1e-6, known + 1e-6)
                )  # fmt: skip
            rows.append(
                Finding(f"claim 5, {depth} layers: least loss / (half the square of -0.5)",
                        float(row.min() / 0.125), 1.0 - 1e-9, 1.1, "at least 1")
            )  # fmt: skip
        return rows

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained")
            for colour, rate in zip(PALETTE, results.learning_rate.values, strict=False):
                for depth, style in ((2, "o-"), (4, "s--")):
                    row = results.log_loss.sel(learning_rate=rate, depth=depth) / np.log(10)
                    left.plot(row.step, row, style, color=colour, ms=4)
                left.plot([], [], color=colour, label=rf"$\eta$ = {rate:g}")
            left.set_yscale("symlog", linthresh=10)
            left.set_xticks(results.step.values)
            left.set_xlabel("step")
            left.set_ylabel(r"$\log_{10}$ of the loss")
            left.set_title("Unbalanced starts (two layers, dashed: four)")
            left.legend()
            for colour, depth in zip(PALETTE, results.depth.values, strict=False):
                row = results.stalled.sel(depth=depth)
                right.plot(row.later, row - 0.125, color=colour, label=f"{depth} layers")
            right.set_yscale("log")
            right.set_ylim(bottom=1e-10)
            right.set_xlabel("step")
            right.set_ylabel("loss above 0.125")
            right.set_title("Balanced, without margin: the loss stalls")
            right.legend()
        return {"failures": figure}
