"""Descent against the rate of arora2019's Theorem 1, over depth, margin and imbalance."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from typing_extensions import override

from thalweg import initialisation
from thalweg._bisection import bisected
from thalweg._typing import Weights
from thalweg.dynamics import descend, nothing
from thalweg.figures import PALETTE, STYLE, plain_log_ticks
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import TargetMatrix
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size, largest, least
from thalweg.theorems.convergence.linear_rate import Guarantee
from thalweg.theorems.settings.matrix_approximation import largest_imbalance

_TARGET = np.diag([1.0, 0.95])
_LEAST = 0.95  # its smallest singular value
_TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])
_RATE = 0.01  # near the flow, where a rate per time means most
_REDUCTION = 1e-6
_LONGEST = 400.0  # time to wait for the reduction; a tenth of it is promised at margin 0.6
_UNEVEN_MARGIN = 0.6
_STARTS = ("shrunk", "turned")


class Rates(AbstractStudy):
    """How fast the loss falls, and how fast it was promised to."""

    depths: tuple[int, ...]
    margins: tuple[float, ...]
    imbalances: tuple[float, ...]
    certified_margin: float

    name: ClassVar[str] = "arora2019-rates"
    title: ClassVar[str] = "descent against Theorem 1's rate, over depth, margin and imbalance"
    protocol: ClassVar[str] = """
Target diag(1, 0.95), two inputs, hidden units and outputs, one to six layers. Starts are balanced
and have a given deficiency margin c, by two constructions. Shrunk: the product is diag(1, c), whose
smallest singular value is the margin; the theorem's bound on singular values is tight there.
Turned: the product is the target plus a multiple of a rotation by a right angle; its smallest
singular value is 0.951 to 1.139, far above the margin. Theorem 1 promises
l(t) <= (1 - eta c^p)^t l(0), p = 2 - 2/N. The measured rate is log(1e6) / time until the loss has
fallen to a millionth, at a learning rate of 0.01, at which descent is nearly the flow; the loss is
looked at after every step. Imbalance: the shrunk start of margin 0.6, the first layer times 1 + a,
the last one divided by it, which leaves the product as it is, at learning rates of 0.01 and 0.001.
An imbalance is borne if this one and all smaller ones tried reach the goal at the promised rate or
faster. A run that is not there at time 400 (with imbalance: 40) has the rate zero. The certified
run (two layers, turned) has the theorem's own largest learning rate and goes on for as many steps
as the theorem says.
"""
    comparison: ClassVar[str] = """
arora2019 has no such figure; its Theorem 1 is what is drawn. Seen here:

- The promise is kept at every depth and margin. With one layer the factor is 2 at every margin.
- Shrunk starts are where the promise is nearly tight: the rate of their first step is 2 N c^p. The
  factor 2 N is not in the theorem's rate; N is there because there are as many outputs as features.
  As the loss falls the smallest singular value leaves c, and descent gets faster: over the whole
  way to a millionth the factor is 4 (two layers) to 13 (six) at c = 0.9 and 54 to 642 at c = 0.05.
- Turned starts have no small singular value at any margin, so their rate hardly depends on the
  margin, and the factor (80 to 1770 at c = 0.05) says more about this start than about the theorem.
- Up to imbalances of 1 descent converges about as fast as from balanced starts, beyond that faster,
  until the learning rate is too large for the steeper valley: at 0.01 from 1024 on (two and three
  layers) or 4096 on (four and six), at 0.001 from 16384 on at all depths. What is borne is 2e6 to
  3e8 times what the theorem allows at 0.01, and 3e7 to 1e9 times at 0.001; it is the learning rate
  that sets the limit. The theorem allows far smaller learning rates only.
"""
    revision: ClassVar[int] = 2

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Rates":
        if size is Size.QUICK:
            return cls((2, 3), (0.3, 0.9), (1e-4, 1.0), 0.93)
        imbalances = (1e-5, 1e-3, 0.1, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0)
        return cls((1, 2, 3, 4, 6), (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9), imbalances, 0.9)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        work = {f"depth-{depth}": partial(self._at_depth, depth) for depth in self.depths}
        rates = parts.gather("depth", work, progress)
        return xr.merge([rates, parts.get("certified", self._certified)])

    def _at_depth(self, depth: int) -> xr.Dataset:
        objective = _objective(depth)
        balanced = [
            _measured(objective, [make(objective, c) for c in self.margins], _RATE, _LONGEST)
            for make in (_shrunk, _turned)
        ]
        even, rates = _shrunk(objective, _UNEVEN_MARGIN), (_RATE, _RATE / 10)
        starts = [_unbalanced(even, imbalance) for imbalance in self.imbalances]
        uneven = [_measured(objective, starts, rate, _LONGEST / 10)[0] for rate in rates]
        power = 2 - 2 / depth
        allowed = Guarantee(depth, float(np.linalg.norm(_TARGET)), _UNEVEN_MARGIN).imbalance
        shape = ("depth", "start", "margin")
        return xr.Dataset(
            {
                "measured": (shape, [[whole for whole, _ in balanced]]),
                "first": (shape, [[first for _, first in balanced]]),
                "promised": (("depth", "margin"), [[c**power for c in self.margins]]),
                "unbalanced": (("depth", "learning_rate", "imbalance"), [uneven]),
                "promised_unbalanced": ("depth", [_UNEVEN_MARGIN**power]),
                "allowed_imbalance": ("depth", [float(allowed)]),
            },
            {
                "depth": [depth],
                "start": list(_STARTS),
                "margin": list(self.margins),
                "learning_rate": list(rates),
                "imbalance": list(self.imbalances),
            },
        )

    def _certified(self) -> xr.Dataset:
        """Two layers at the certified learning rate, to the certified end."""
        objective = _objective(2)
        start = _turned(objective, self.certified_margin)
        promise = Guarantee(2, float(np.linalg.norm(_TARGET)), self.certified_margin)
        rate, steps = float(promise.learning_rate), int(float(promise.iterations(100.0)))
        run = descend(
            objective, start, learning_rate=rate, steps=steps, record_every=-(-steps // 100)
        )
        bound = run.loss[0] * np.exp(-run.times * self.certified_margin)
        return xr.Dataset(
            {"certified_loss": ("step", run.loss), "certified_bound": ("step", bound)},
            {"step": run.steps},
        )

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        ratio = results.measured / results.promised
        exact = 2 * results.depth * results.promised
        begun = results["first"] / exact
        deep = ratio.where(results.depth > 1, drop=True).sel(start="shrunk")
        looser = deep.isel(margin=0) / deep.isel(margin=-1)
        turned = results.measured.sel(start="turned")
        level = turned.isel(margin=0) / turned.isel(margin=-1)
        loss, bound = results.certified_loss, results.certified_bound
        kept = ((loss / loss[0]) / (bound / bound[0])).isel(step=slice(1, None))
        rows = [
            Finding("measured rate / promised rate, least over starts, depths and margins",
                    least(ratio), 1.0, reported="at least 1 (Theorem 1)"),
            # As many outputs as features: the flow's own rate is 2 N sigma_min^p or more.
            Finding("measured rate / (2 N c^p), least over starts, depths and margins",
                    least(results.measured / exact), 1.0),
            # Steps are not the flow: off by about eta times the rate, half of 0.01 x 12 at most.
            Finding("rate of the first step / (2 N c^p), least over starts, depths and margins",
                    least(begun), 0.94),
            Finding("shrunk starts: rate of the first step / (2 N c^p), largest",
                    largest(begun.sel(start="shrunk")), 0.94, 1.06),
            Finding("shrunk: measured / promised, smallest margin against largest, least (N > 1)",
                    least(looser), 1.0),
            # The ratio of the smallest singular values at the starts, to the power p < 2.
            Finding("turned: measured rate at the smallest margin / at the largest, least",
                    least(level), 0.95, 1.45),
            Finding("turned: measured rate at the smallest margin / at the largest, largest",
                    largest(level), 0.95, 1.45),
            Finding("certified run: loss / promised loss, largest after the start",
                    largest(kept), 0.0, 1.0, "at most 1 (Theorem 1)"),
            Finding("certified run: loss at the certified end / what is promised there",
                    float(loss[-1] / (0.01 * loss[0])), 0.0, 1.0, "at most 1 (Theorem 1)"),
        ]  # fmt: skip
        for depth in results.depth.values[results.depth.values > 1]:
            for rate in results.learning_rate.values:
                row = results.sel(depth=depth, learning_rate=rate)
                borne = _borne(row)
                edge = " (all that were tried)" if borne == row.imbalance[-1] else ""
                rows.append(
                    Finding(f"depth {depth}, rate {rate:g}: imbalance borne / allowed{edge}",
                            float(borne / row.allowed_imbalance), 1.0)
                )  # fmt: skip
        return rows

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, panels = plt.subplots(
                1, 3, figsize=(11.6, 4.0), layout="constrained", sharey=True
            )
            places = {depth: place for place, depth in enumerate(results.depth.values)}
            for colour, depth in zip(PALETTE, results.depth.values, strict=False):
                row = results.sel(depth=depth)
                for axes, start in zip(panels, _STARTS, strict=False):
                    measured = row.measured.sel(start=start)
                    axes.loglog(row.margin, measured, "o-", color=colour, label=f"depth {depth}")
                    axes.loglog(row.margin, row.promised, ":", color=colour)
                begun = row["first"].sel(start="shrunk")
                panels[0].loglog(row.margin, begun, "--", color=colour, linewidth=1.0)
                if depth > 1:
                    _draw_imbalances(panels[2], row, colour, 0.02 + 0.03 * places[depth])
            for axes, start in zip(panels, _STARTS, strict=False):
                plain_log_ticks(axes.xaxis)
                axes.set_xlabel("deficiency margin c")
                axes.set_title(f"Balanced, {start}")
            panels[0].set_ylabel("rate of the loss per time")
            panels[2].set_xlabel("imbalance of the start (thin vertical: allowed)")
            panels[2].set_title(r"Margin 0.6, $\eta$ = 0.01 (open, +: 0.001)")
            panels[2].set_xlim(left=1e-6)
            panels[2].annotate(
                r"$\times$, +: fails", (0.6, 0.1), xycoords="axes fraction", ha="right"
            )
            for style, label in (("--", "first step"), (":", "promised")):
                panels[0].plot([], [], style, color="0.3", label=label)
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return {"rates": figure}


def _draw_imbalances(axes: Any, row: xr.Dataset, colour: str, height: float) -> None:
    """The rates over the imbalance; a cross at some height where the goal is missed or late."""
    styles = (("o-", colour, "x"), ("o--", "white", "+"))
    for rate, (style, fill, cross) in zip(row.learning_rate, styles, strict=True):
        rates = row.unbalanced.sel(learning_rate=rate)
        kept = rates >= row.promised_unbalanced
        axes.loglog(row.imbalance, rates.where(kept), style, color=colour, mfc=fill, ms=4)
        late = row.imbalance.where(~kept, drop=True)
        heights = np.full(late.size, height)
        axes.plot(late, heights, cross, color=colour, transform=axes.get_xaxis_transform())
    axes.axhline(float(row.promised_unbalanced), color=colour, linestyle=":")
    axes.axvline(float(row.allowed_imbalance), color=colour, linewidth=0.7)


def _borne(row: xr.Dataset) -> float:
    """The largest imbalance up to which all keep the promised rate; NaN where one is unknown."""
    slack = (row.unbalanced - row.promised_unbalanced).values
    if np.isnan(slack).any():
        return np.nan
    count = int(np.argmin(slack >= 0)) if (slack < 0).any() else slack.size
    return float(row.imbalance[count - 1]) if count else 0.0


def _objective(depth: int) -> Objective:
    return Objective(LinearNetwork([2] * (depth + 1)), TargetMatrix(_TARGET))


def _shrunk(objective: Objective, margin: float) -> Weights:
    """Balanced layers whose product has this margin, and this as its smallest singular value."""
    return initialisation.balanced_from(objective.network, np.diag([1.0, margin]))


def _turned(objective: Objective, margin: float) -> Weights:
    """Balanced layers whose product is off by a rotation that leaves this margin."""
    away = (_LEAST - margin) / np.linalg.norm(_TURN)
    return initialisation.balanced_from(objective.network, _TARGET + away * _TURN)


def _unbalanced(weights: Weights, imbalance: float) -> Weights:
    """The first layer times 1 + a and the last divided by it, with about this imbalance."""
    if len(weights) == 1:
        return weights

    def scaled(a: float) -> Weights:
        return (weights[0] * (1 + a), *weights[1:-1], weights[-1] / (1 + a))

    def is_less(a: float) -> bool:
        return float(np.max(largest_imbalance(scaled(a)))) < imbalance

    return scaled(bisected(is_less, 0.0, 1e3, halvings=70))


def _measured(
    objective: Objective, starts: Sequence[Weights], learning_rate: float, longest: float
) -> tuple[np.ndarray, np.ndarray]:
    """The rate until the loss is a millionth, zero where it never is; and that of the first step.

    Rates are logarithms of what the loss is divided by, over the time it took.
    """
    together = tuple(np.stack(layers) for layers in zip(*starts, strict=True))
    loss = descend(
        objective,
        together,
        learning_rate=learning_rate,
        steps=round(longest / learning_rate),
        observe=nothing,
    ).loss
    with np.errstate(invalid="ignore"):
        reached = loss <= _REDUCTION * loss[:, :1]
    times = np.where(reached.any(axis=1), learning_rate * reached.argmax(axis=1), np.inf)
    return -np.log(_REDUCTION) / times, -np.log(loss[:, 1] / loss[:, 0]) / learning_rate
