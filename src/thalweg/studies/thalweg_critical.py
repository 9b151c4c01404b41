"""The largest learning rate that trains, over depth, and which prediction of it is right."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator
from typing_extensions import override

from thalweg.critical import CriticalLearningRate, critical_learning_rate
from thalweg.figures import PALETTE, STYLE
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size
from thalweg.studies.thalweg_common import KINDS, random_case

_STEPS = 4000
_DEEP = 14  # beyond it the budget stops Gaussian starts, and not the rate
_PRECISION = 0.02  # of the search, unless told otherwise
_BEST, _PAPER, _LIMIT = "2 / least sharpness", "2 / S_min", "2 / sharpness of the limit"
_SMALL = "2 / small-start bound"
_LINES: dict[str, tuple[str, Any]] = {
    _PAPER: (PALETTE[3], (0, (1, 1.2))),
    _BEST: (PALETTE[2], "-"),
    _LIMIT: (PALETTE[1], "-"),
    "2 / sharpness at the start": (PALETTE[0], "-"),
    _SMALL: (PALETTE[4], (0, (3, 1.2, 1, 1.2))),
}
_MARKERS = (("o", "0.1"), ("s", "0.55"))


class CriticalOverDepth(AbstractStudy):
    """Measured critical learning rates, with every prediction divided by them."""

    name: ClassVar[str] = "thalweg-critical"
    title: ClassVar[str] = "the largest learning rate that trains, and what predicts it"
    protocol: ClassVar[str] = """
Linear networks of width 5 with one output, depth 2 to 40, on the data of marion2024's later code.
Residual starts of scale 0.25, read along a random direction, and Gaussian ones of deviation
1/sqrt(5), 12 of each. `critical_learning_rate` searches the largest rate with which 4,000 steps
leave a share of 0.01, and of 0.0001, of the start's excess loss, to 2 %. The interval is that of
the middle start. Predictions that belong to a start are compared start by start.
"""
    comparison: ClassVar[str] = """
* marion2024 predict that training fails above 2 / S_min. It fails earlier: their bound has the
  smallest eigenvalue of the data where the sharper bound has, in effect, the second moment along
  the regressor.
* What comes nearest for the middle of 12 starts is the rate at which the *flattest* of all
  minimisers becomes unstable, 2 / least sharpness. With a share of 0.01 it is 0.91 to 1.03 times
  the measured rate for residual starts, and 0.98 to 1.06 times for Gaussian ones up to depth 14.
  With a share of 0.0001 it is 1.00 to 1.03 for residual starts, but for Gaussian ones 1.02 to 1.07
  only up to depth 7, and then 1.12 and 1.22 at depth 10 and 14.
* Single Gaussian starts may fail much earlier. With a share of 0.01 rate x depth goes from 0.25 to
  1.12 over the 12 starts of depth 7, from 0.53 to 1.51 at depth 14 and from 0.044 to 1.00 at
  depth 20. The prediction is no promise for a start; with a share of 0.0001 it is a limit that no
  start exceeds, of either kind and at any depth.
* Linear stability at the minimiser that slow descent finds is too pessimistic: larger steps do
  not settle there, but travel on to flatter ones.
* Residual starts of share 0.01 train slightly above 2 / least sharpness, where descent oscillates
  with a small amplitude; with a share of 0.0001 they do not.
* Gaussian starts deeper than 14 fail for want of steps and not of stability: with 64,000 steps
  those of depth 40 come to the same 1 / (A L) (see *The critical learning rate*).
"""

    depths: tuple[int, ...]
    starts: int
    shares: tuple[float, ...]

    @classmethod
    @override
    def of_size(cls, size: Size) -> "CriticalOverDepth":
        if size is Size.QUICK:
            return cls((2, 5), 12, (1e-2,))
        return cls((2, 3, 5, 7, 10, 14, 20, 28, 40), 12, (1e-2, 1e-4))

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        work = {
            f"{kind}-{depth}": partial(self._measured, kind, depth)
            for depth in self.depths
            for kind in KINDS
        }
        return (
            parts.gather("case", work, progress).set_index(case=["depth", "kind"]).unstack("case")
        )

    def _measured(self, kind: str, depth: int) -> xr.Dataset:
        objective, weights = random_case(kind, depth, self.starts)
        rows = [
            _row(critical_learning_rate(objective, weights, steps=_STEPS, share=share,
                                        certified=False))
            for share in self.shares
        ]  # fmt: skip
        return xr.concat(rows, "share").assign_coords(
            share=list(self.shares), depth=("case", [depth]), kind=("case", [kind])
        )

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        loose = results.isel(share=0)
        share = f"share {float(loose.share):g}"
        residual, gaussian = (loose.ratio.sel(kind=kind) for kind in ("residual", "gaussian"))
        shallow = gaussian.where(gaussian.depth <= _DEEP, drop=True)
        found = []
        for words, ratios in (("residual", residual), (f"Gaussian to depth {_DEEP}", shallow)):
            for name, least, most, reported in (
                (_BEST, 0.88, 1.1, ""),
                (_PAPER, 1.2, 1.8, "no convergence above it"),
                (_LIMIT, 0.2, 0.8, "stability of the minimiser found by the flow"),
            ):
                own = ratios.sel(prediction=name)
                ends = (("least", own.min(skipna=False)), ("largest", own.max(skipna=False)))
                for extreme, value in ends:
                    statement = f"{words}, {share}: {name} over the measured rate, {extreme}"
                    found.append(Finding(statement, float(value), least, most, reported))
        scaled = (loose.lower * loose.depth).sel(kind="residual")
        found += [
            Finding(f"residual, {share}: rate x depth, largest over smallest",
                    float(scaled.max(skipna=False) / scaled.min(skipna=False)), 1.0, 1.3,
                    "the sharpness of minimisers grows linearly with depth"),
            Finding("share of starts whose slow descent arrived, least over depths and kinds",
                    float(results.arrived.min(skipna=False)), 0.5, 1.0),
            *_sound(results),
        ]  # fmt: skip
        return found + (_about_shares(results) if len(self.shares) > 1 else [])

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, panels = plt.subplots(
                2, len(KINDS), figsize=(9.6, 7.4), layout="constrained", sharex="col",
                sharey="row", height_ratios=(1.7, 1),
            )  # fmt: skip
            for (above, under), (kind, (_, title)) in zip(panels.T, KINDS.items(), strict=True):
                _draw_rates(above, results.sel(kind=kind))
                _draw_ratios(under, results.sel(kind=kind), kind)
                above.set_title(title)
                under.set_xlabel("depth")
            panels[0, 0].set_ylabel(r"learning rate $\times$ depth")
            panels[1, 0].set_ylabel("2 / least sharpness\nover the measured rate")
            handles: dict[str, Any] = {}
            for axes in panels[0]:
                handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
            labels = sorted(handles, key=lambda label: not label.startswith("measured"))
            figure.legend(
                [handles[label] for label in labels], labels, loc="outside lower center",
                fontsize=8.5, ncols=2, handlelength=2.4,
                title="points: the middle start, bars: all starts; grey band: the interval of the "
                "findings", title_fontsize=8.5,
            )  # fmt: skip
        return {"rates": figure}


def _sound(results: xr.Dataset) -> list[Finding]:
    """What must hold whatever the rates are: every number is there and as precise as said."""
    proper = (results.ratio > 0) & (results.predicted > 0)
    foreign = (results.prediction == _SMALL) & (results.kind == "residual")
    rows = [
        Finding("share of predictions that are there: all, but the small-start bound of residual "
                "starts", float((proper == ~foreign).mean()), 1.0, 1.0)
    ]  # fmt: skip
    for words, low, high in (
        ("middle start", "lower", "upper"),
        ("every start", "lowers", "uppers"),
    ):
        widest = (results[high] / results[low]).max(skipna=False)
        rows.append(
            Finding(f"{words}: upper / lower end of the rate's interval, largest",
                    float(widest), 1.0, 1.0 + _PRECISION)
        )  # fmt: skip
    return rows


def _about_shares(results: xr.Dataset) -> list[Finding]:
    """What the share that must be left changes."""
    loose, strict = results.isel(share=0), results.isel(share=-1)
    shares = [f"share {float(each.share):g}" for each in (loose, strict)]
    best = loose.ratio.sel(kind="residual", prediction=_BEST)
    beyond = best.where(best.depth > 2, drop=True)
    rows = [
        Finding(f"residual, {shares[0]}, deeper than 2: {_BEST} over the measured rate, largest: "
                "some oscillation trains", float(beyond.max(skipna=False)), 0.88, 1.0)
    ]  # fmt: skip
    for kind, words in (("residual", "residual"), ("gaussian", "Gaussian")):
        row = strict.sel(kind=kind)
        own = row.ratio.sel(prediction=_BEST).min(skipna=False)
        every = row.predicted.sel(prediction=_BEST) / row.lowers.max("start", skipna=False)
        rows += [
            Finding(f"{words}, {shares[1]}: {_BEST} over the measured rate, least: no oscillation "
                    "can lower it", float(own), 0.98, 1.1),
            Finding(f"{words}, {shares[1]}: {_BEST} over the rate of any start, least",
                    float(every.min(skipna=False)), 0.98),
        ]  # fmt: skip
    return rows


def _draw_rates(axes: Axes, rows: xr.Dataset) -> None:
    """Rate x depth: what falls like 1 / depth is level."""
    depth = rows.depth
    for number, share in enumerate(rows.share.values):
        row, (marker, colour) = rows.sel(share=share), _MARKERS[number]
        middle = np.sqrt(row.lower * row.upper) * depth
        low, high = row.lowers.min("start") * depth, row.uppers.max("start") * depth
        axes.errorbar(
            depth * 1.035**number, middle, np.maximum([middle - low, high - middle], 0),
            fmt=marker, color=colour, markersize=4.5, capsize=2.5, linewidth=1.1,
            zorder=5 - number, label=f"measured: leaves at most {share:g} of the excess loss",
        )  # fmt: skip
    for name, (colour, dashes) in _LINES.items():
        rates = rows.predicted.isel(share=0).sel(prediction=name) * depth
        if rates.notnull().any():
            label = f"{name} (also 2 / S0, 2 / sharper bound)" if name == _BEST else name
            axes.plot(depth, rates, color=colour, linestyle=dashes, label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(axis="y", color="0.9", linewidth=0.6)


def _draw_ratios(axes: Axes, rows: xr.Dataset, kind: str) -> None:
    """The best prediction over what was measured."""
    axes.axhspan(0.88, 1.1, color="0.5", alpha=0.16, linewidth=0)
    axes.axhline(1.0, color=_LINES[_BEST][0], linewidth=1.0)
    for number, share in enumerate(rows.share.values):
        marker, colour = _MARKERS[number]
        ratio = rows.ratio.sel(share=share, prediction=_BEST)
        axes.plot(rows.depth * 1.035**number, ratio, marker, color=colour, markersize=4.5)
    depths = rows.depth.values
    if kind == "gaussian" and depths[-1] > _DEEP:
        axes.axvline(1.19 * _DEEP, color="0.6", linewidth=0.8, linestyle=":")
        axes.annotate("too few steps", (1.24 * _DEEP, 1.86), fontsize=8.5, color="0.3", va="center")
    axes.set_xscale("log")
    axes.set_xticks(depths, [f"{each:g}" for each in depths])
    axes.minorticks_off()
    axes.set_xlim(depths[0] / 1.15, depths[-1] * 1.15)
    axes.grid(axis="y", color="0.9", linewidth=0.6)


def _row(found: CriticalLearningRate) -> xr.Dataset:
    """The interval of every start, and each prediction with its ratio."""
    pairs = [(each.rate, found.ratio(each)) for each in found.predictions]
    rates, ratios = np.array(pairs, float).T  # None becomes NaN
    arrived = np.isfinite(found.prediction(_LIMIT).rates).mean()
    return xr.Dataset(
        {
            "lower": (("case",), [found.lower]),
            "upper": (("case",), [found.upper]),
            "lowers": (("case", "start"), found.lowers[None]),
            "uppers": (("case", "start"), found.uppers[None]),
            "arrived": (("case",), [arrived]),
            "predicted": (("case", "prediction"), rates[None]),
            "ratio": (("case", "prediction"), ratios[None]),
        },
        {"prediction": [each.name for each in found.predictions]},
    )
