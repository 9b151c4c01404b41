"""Descent against the rate of arora2019's Theorem 1, over depth, margin and imbalance."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from typing_extensions import override

from thalweg import initialisation
from thalweg._typing import Weights
from thalweg.dynamics import descend
from thalweg.figures import PALETTE, STYLE, plain_log_ticks
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import TargetMatrix
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size
from thalweg.theorems.approximation import largest_imbalance
from thalweg.theorems.convergence import Guarantee

_TARGET = np.diag([1.0, 0.95])
_TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])
_RATE = 0.01  # near the flow, where a rate per time means most
_REDUCTION = 1e-6


class Rates(AbstractStudy):
    """How fast the loss falls, and how fast it was promised to."""

    depths: tuple[int, ...]
    margins: tuple[float, ...]
    imbalances: tuple[float, ...]
    certified_margin: float

    name: ClassVar[str] = "arora2019-rates"
    title: ClassVar[str] = "descent against Theorem 1's rate, over depth, margin and imbalance"
    protocol: ClassVar[str] = """
Target diag(1, 0.95), two inputs, hidden units and outputs. The start is balanced, its product the
target plus a rotation that leaves a given deficiency margin c. The loss is to fall to a millionth.
Theorem 1 promises l(t) <= (1 - eta c^p)^t l(0), p = 2 - 2/N; the measured rate is log(1e6) / time
at a learning rate of 0.01, at which descent is nearly the flow. Imbalance: the first layer times
1 + a, the last one divided by it, which leaves the product as it is. The certified run has the
theorem's own largest learning rate and goes on for as many steps as the theorem says.
"""
    comparison: ClassVar[str] = """
arora2019 has no such figure; its Theorem 1 is what is drawn. Seen here: the promise is kept with a
factor that grows as the margin shrinks, because the rate is bounded by the worst place that the run
could visit, while it soon leaves it. Descent bears 30,000 to a million times the imbalance that the
theorem allows: up to imbalances of order one it converges as fast as from balanced starts, and
beyond faster.
"""

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Rates":
        if size is Size.QUICK:
            return cls((2, 3), (0.3, 0.9), (1e-4, 1.0), 0.93)
        return cls(
            (1, 2, 3, 4, 6), (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9), (1e-5, 1e-3, 0.1, 1.0, 4.0), 0.9
        )

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        work = {f"depth-{depth}": partial(self._at_depth, depth) for depth in self.depths}
        rates = parts.gather("depth", work, progress)
        return xr.merge([rates, parts.get("certified", self._certified)])

    def _at_depth(self, depth: int) -> xr.Dataset:
        objective = _objective(depth)
        balanced = np.asarray(
            [_measured_rate(objective, _start(objective, margin)) for margin in self.margins]
        )
        uneven = [
            _measured_rate(objective, _unbalanced(_start(objective, 0.6), imbalance))
            for imbalance in self.imbalances
        ]
        power = 2 - 2 / depth
        allowed = float(Guarantee(depth, float(np.linalg.norm(_TARGET)), 0.6).imbalance)
        return xr.Dataset(
            {
                "measured": (("depth", "margin"), balanced[None]),
                "promised": (("depth", "margin"), [[c**power for c in self.margins]]),
                "unbalanced": (("depth", "imbalance"), [uneven]),
                "promised_unbalanced": ("depth", [0.6**power]),
                "allowed_imbalance": ("depth", [allowed]),
            },
            {
                "depth": [depth],
                "margin": list(self.margins),
                "imbalance": list(self.imbalances),
            },
        )

    def _certified(self) -> xr.Dataset:
        """Two layers at the certified learning rate, to the certified end."""
        objective = _objective(2)
        start = _start(objective, self.certified_margin)
        promise = Guarantee(2, float(np.linalg.norm(_TARGET)), self.certified_margin)
        rate, steps = float(promise.learning_rate), int(float(promise.iterations(100.0)))
        run = descend(
            objective, start, learning_rate=rate, steps=steps, record_every=-(-steps // 100)
        )
        bound = run.loss[0] * np.exp(-run.times * self.certified_margin)
        return xr.Dataset(
            {
                "certified_loss": ("step", run.loss),
                "certified_bound": ("step", bound),
                "certified_rate": rate,
            },
            {"step": run.steps},
        )

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        ratio = results.measured / results.promised
        loss, bound = results.certified_loss, results.certified_bound
        deep = ratio.where(results.depth > 1, drop=True)
        rows = [
            Finding("measured rate / promised rate, least over depths and margins",
                    float(ratio.min()), 1.0, reported="at least 1 (Theorem 1)"),
            Finding("the same at the smallest margin, largest over depths: how loose it gets",
                    float(deep.sel(margin=results.margin[0]).max()), 2.0),
            Finding("certified run: loss / promised loss, largest",
                    float((loss / bound).max()), 0.0, 1.0 + 1e-9, "at most 1 (Theorem 1)"),
            Finding("certified run: loss at the certified end / what is promised there",
                    float(loss[-1] / (0.01 * loss[0])), 0.0, 1.0, "at most 1 (Theorem 1)"),
        ]  # fmt: skip
        for depth in results.depth.values:
            if depth == 1:
                continue
            row = results.sel(depth=depth)
            borne = row.imbalance.where(row.unbalanced >= row.promised_unbalanced)
            rows.append(
                Finding(
                    f"depth {depth}: imbalance borne at the promised rate / the one allowed",
                    float(borne.max() / row.allowed_imbalance), 10.0,
                )
            )  # fmt: skip
        return rows

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
            for colour, depth in zip(PALETTE, results.depth.values, strict=False):
                row = results.sel(depth=depth)
                left.loglog(row.margin, row.measured, "o-", color=colour, label=f"depth {depth}")
                left.loglog(row.margin, row.promised, ":", color=colour)
                if depth > 1:
                    right.loglog(row.imbalance, row.unbalanced, "o-", color=colour)
                    right.axhline(float(row.promised_unbalanced), color=colour, linestyle=":")
                    right.axvline(float(row.allowed_imbalance), color=colour, linewidth=0.7)
            plain_log_ticks(left.xaxis, left.yaxis, right.yaxis)
            left.set_xlabel("deficiency margin c")
            left.set_ylabel("rate of the loss per time")
            left.set_title("Balanced starts (dotted: promised)")
            left.legend()
            right.set_xlabel("imbalance of the start")
            right.set_title("Margin 0.6 (thin vertical: imbalance allowed)")
        return {"rates": figure}


def _objective(depth: int) -> Objective:
    return Objective(LinearNetwork([2] * (depth + 1)), TargetMatrix(_TARGET))


def _start(objective: Objective, margin: float) -> Weights:
    """Balanced layers whose product is off by a rotation that leaves this margin."""
    away = (0.95 - margin) / np.linalg.norm(_TURN)
    return initialisation.balanced_from(objective.network, _TARGET + away * _TURN)


def _unbalanced(weights: Weights, imbalance: float) -> Weights:
    """The first layer times 1 + a and the last divided by it, with about this imbalance."""
    if len(weights) == 1:
        return weights
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        now = (weights[0] * (1 + middle), *weights[1:-1], weights[-1] / (1 + middle))
        found = float(np.max(largest_imbalance(now)))
        low, high = (middle, high) if found < imbalance else (low, middle)
    return (weights[0] * (1 + low), *weights[1:-1], weights[-1] / (1 + low))


def _measured_rate(objective: Objective, start: Weights) -> float:
    """log(1e6) over the time that the loss takes to fall to a millionth; NaN if it does not."""
    run = descend(objective, start, learning_rate=_RATE, steps=40_000, record_every=10)
    reached = np.flatnonzero(run.loss <= _REDUCTION * run.loss[0])
    return float(-np.log(_REDUCTION) / run.times[reached[0]]) if reached.size else np.nan
