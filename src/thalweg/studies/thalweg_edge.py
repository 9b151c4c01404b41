"""What descent follows across the edge of stability: the flow, a modified flow, a central flow."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from typing_extensions import override

from thalweg._typing import AnyWeights
from thalweg.curvature import sharpness
from thalweg.dynamics import CentralFlow, Descent, central_flow, descend, flow
from thalweg.figures import PALETTE, STYLE
from thalweg.objective import Objective
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size
from thalweg.studies.thalweg_common import KINDS, random_case

_WINDOW = 50  # steps of an average
_TRIED = 4  # starts of a case, the first of which that arrives is taken
_LIMIT_TIME = 400.0  # of the flow, after which its sharpness is that of the minimiser
_LINES = {
    "to_flow": (PALETTE[0], "the flow"),
    "to_modified": (PALETTE[1], "the modified flow"),
    "to_central": (PALETTE[3], "the central flow"),
}
_SHOWN = 1.3  # of the shares, in the picture of distances
_SMALL = 1e-8  # of the variance: below it nothing oscillates any more


class Edge(AbstractStudy):
    """Midpoints of descent next to three flows, over depth and learning rate."""

    depths: tuple[int, ...]
    shares: tuple[float, ...]
    steps: int

    name: ClassVar[str] = "thalweg-edge"
    title: ClassVar[str] = "what descent follows across the edge of stability"
    protocol: ClassVar[str] = """
Linear networks of width 5 with one output on the data of marion2024's later code, from residual
and Gaussian starts. The gradient flow is followed to its minimiser, of sharpness S; descent takes
600 steps at shares of 2 / S from below the edge to above it. Its midpoints
(w_{k-1} + 2 w_k + w_{k+1}) / 4 are compared with the flow, the modified flow of order one and the
central flow; variance and loss are averages over 50 steps. The central flow has descent's own steps
until the oscillation does not fade, and predicts from there on; what is said of it is about
the windows of 50 steps after that.
"""
    comparison: ClassVar[str] = """
Cohen, Damian, Talwalkar, Kolter and Lee (2024) follow descent at the edge of stability by a flow of
its centre alone, with the least covariance that keeps the sharpness there. Here the oscillation is
followed itself. Above 2 / S, which is the edge at the minimiser that the flow finds, residual
starts oscillate on their way to flatter minimisers, far from the flow and from the modified flow.
The prediction loses little on the way: its relative error grows as the oscillation dies down.

**Where it fails.** What is predicted is how an oscillation grows that is there. The Gaussian start
of depth 20 at 1.1 comes to the edge with one of 7e-7, which grows some 18,000-fold. Small errors of
its rate of growth add up, so that the onset is off by some steps: the variance by a factor of 9 in
the window of the onset, and by up to 50 % after it. Depth 10 at 1.1 is the same to a lesser degree
(13 %). Of Gaussian starts of depth 2 and 3 nothing can be predicted, because they settle before. At
first the findings said of all runs that the variance is within 10 % and midpoints within 1/8; they
were divided when these two runs were seen.
"""

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Edge":
        if size is Size.QUICK:
            return cls((2,), (0.8, 1.3), 300)
        return cls((2, 3, 5, 10, 20), (0.8, 1.1, 1.3, 1.5), 600)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        work = {
            f"{kind}-{depth}": partial(self._case, kind, depth)
            for kind in KINDS
            for depth in self.depths
        }
        return parts.gather("case", work, progress)

    def _case(self, kind: str, depth: int) -> xr.Dataset:
        objective, starts = random_case(kind, depth, _TRIED)
        start = jax.tree.map(lambda array: np.asarray(array)[0], starts)
        limit = flow(objective, start, times=[_LIMIT_TIME], rtol=1e-6, estimate_error=False)
        edge = 2 / float(sharpness(objective, limit.final).value)
        rows = [self._run(objective, start, share * edge) for share in self.shares]
        found = xr.concat(rows, "share").expand_dims("case")
        return found.assign_coords(
            share=list(self.shares), depth=("case", [depth]), kind=("case", [kind])
        )

    def _run(self, objective: Objective, start: AnyWeights, rate: float) -> xr.Dataset:
        """Averages over windows of one run; zero where it diverges."""
        run = descend(objective, start, learning_rate=rate, steps=self.steps)
        windows = (np.arange(self.steps // _WINDOW) + 0.5) * _WINDOW
        if run.diverged:
            names = ("to_flow", "to_modified", "to_central", "error", "true_error", *_PAIRED)
            columns = dict.fromkeys(names, np.zeros(windows.size))
            found, met = columns, -1.0
        else:
            central = central_flow(objective, start, learning_rate=rate, times=run.times)
            found = {name: _averages(values) for name, values in _compared(run, central).items()}
            met = -1.0 if np.isnan(central.met_at) else round(central.met_at / rate)
        return xr.Dataset(
            {name: ("window", values) for name, values in found.items()}
            | {"met": met, "diverged": float(bool(run.diverged)), "rate": rate},
            {"window": windows},
        )

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        told = predicted(results)
        near = (results.to_central / results.to_flow).where(told)
        variance = (results.variance_predicted / results.variance).where(told)
        loss = (results.loss_predicted / results.loss).where(told)
        honest = (results.error / results.true_error).where(told)
        at_edge = (results.met >= 0) & (results.share > 1)
        sizes = results.drop_vars("met")
        proper = [
            results.met >= -1,
            *((sizes[name] >= 0) & (sizes[name] < np.inf) for name in sizes),
        ]
        below = results.sel(share=results.share < 1)
        return [
            Finding("share of numbers that are there, none of them negative",
                    float(np.mean([float(each.mean()) for each in proper])), 1.0, 1.0),
            Finding("share of runs above the edge, of those that do not diverge, that the central "
                    "flow predicts", float(at_edge.sum() / _trained(results).sum()), 0.3, 1.0),
            Finding("midpoints to the central flow / to the flow, median", float(near.median()),
                    0.0, 0.01),
            Finding("share of runs whose midpoints stay nearer to the central flow than 1/8 of "
                    "their distance to the flow",
                    _share(near.max("window") < 0.125, told), 0.9, 1.0),
            Finding("variance predicted / measured, median", float(variance.median()), 0.98, 1.02),
            Finding("share of windows whose variance is predicted to 10 %",
                    float((abs(variance - 1) <= 0.1).sum() / told.sum()), 0.85, 1.0),
            Finding("variance predicted / measured where it has not grown since, least",
                    float(variance.where(~_grown(results)).min()), 0.9, 1.1),
            Finding("variance predicted / measured where it has not grown since, largest",
                    float(variance.where(~_grown(results)).max()), 0.9, 1.1),
            Finding("mean loss predicted / measured, least", float(loss.min()), 0.99, 1.01),
            Finding("mean loss predicted / measured, largest", float(loss.max()), 0.99, 1.01),
            Finding("estimated error / true one, median", float(honest.median()), 0.1, 10.0),
            Finding("below the edge: midpoints to the modified flow / to the flow, largest over "
                    "the first windows of all runs",
                    float((below.to_modified / below.to_flow).isel(window=0).max(skipna=False)),
                    0.0, 1.0),
        ]  # fmt: skip

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        return {"distances": _draw_distances(results), "ratios": _draw_ratios(results)}


_PAIRED = ("variance", "variance_predicted", "loss", "loss_predicted")


def predicted(results: xr.Dataset) -> xr.DataArray:
    """Windows in which the central flow predicts, and descent oscillates."""
    begun = (results.met >= 0) & (results.window - _WINDOW / 2 >= results.met)
    return begun & (results.variance > _SMALL)


def _grown(results: xr.Dataset) -> xr.DataArray:
    """Runs whose oscillation was less than a tenth of its later size when the prediction began."""
    last = results.sizes["window"] - 1
    begun = (results.met // _WINDOW).clip(0, last).fillna(0).astype(int)
    return results.variance.isel(window=begun) < 0.1 * results.variance.max("window")


def _share(good: xr.DataArray, told: xr.DataArray) -> float:
    """Of the runs that are predicted, those that are good."""
    ours = told.any("window")
    return float((good & ours).sum() / ours.sum())


def _trained(results: xr.Dataset) -> xr.DataArray:
    """Runs above the edge that do not diverge."""
    return (results.share > 1) & (results.diverged == 0)


def _draw_distances(results: xr.Dataset) -> Any:
    """A panel for each kind and depth, at the largest share that does not diverge."""
    kinds, depths = list(KINDS), sorted(set(results.depth.values.tolist()))
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            len(kinds), len(depths), figsize=(0.8 + 2.3 * len(depths), 5.2), sharex=True,
            sharey=True, layout="constrained", squeeze=False,
        )  # fmt: skip
        for row, kind in zip(panels, kinds, strict=True):
            for axes, depth in zip(row, depths, strict=True):
                case = results.isel(case=((results.depth == depth) & (results.kind == kind)).values)
                _draw_case(axes, case.isel(case=0))
                axes.set_title(f"{kind}, depth {depth}")
        for axes in panels[-1]:
            axes.set_xlabel("step")
        for axes in panels[:, 0]:
            axes.set_ylabel("distance of midpoints")
        handles = dict(zip(*reversed(panels[0, 0].get_legend_handles_labels()), strict=True))
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8.5
        )
    return figure


def _draw_case(axes: Axes, case: xr.Dataset) -> None:
    """The distances of the run at the middle share above the edge."""
    good = [each for each in case.share.values if not float(case.diverged.sel(share=each))]
    share = min(good, key=lambda each: abs(each - _SHOWN))
    run = case.sel(share=share)
    for name, (colour, label) in _LINES.items():
        axes.semilogy(run.window, run[name].clip(min=1e-12), color=colour, label=f"to {label}")
    if float(run.met) >= 0:
        axes.axvline(float(run.met), color="0.6", linewidth=0.8, linestyle=":",
                     label="prediction begins")  # fmt: skip
    axes.annotate(rf"$\eta S / 2$ = {share:g}", (0.97, 0.04), xycoords="axes fraction",
                  ha="right", fontsize=8.5)  # fmt: skip


def _draw_ratios(results: xr.Dataset) -> Any:
    """Predicted over measured variance and mean loss, over the variance."""
    told = predicted(results)
    pairs = (("variance_predicted", "variance", 0.1), ("loss_predicted", "loss", 0.01))
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
        for axes, (over, under, bar) in zip(panels, pairs, strict=True):
            for marker, kind in zip("os", KINDS, strict=True):
                rows = results.isel(case=(results.kind == kind).values)
                kept = told.isel(case=(results.kind == kind).values).values
                for colour, depth in zip(PALETTE, sorted(set(rows.depth.values)), strict=False):
                    ours = kept & (rows.depth == depth).values[:, None, None]
                    axes.semilogx(
                        rows.variance.values[ours], (rows[over] / rows[under]).values[ours], marker,
                        color=colour, markersize=3.5, mfc="white" if marker == "s" else colour,
                        label=f"{kind}, depth {depth}" if ours.any() else None,
                    )  # fmt: skip
            axes.axhspan(1 - bar, 1 + bar, color="0.5", alpha=0.15, linewidth=0)
            axes.set_xlabel("measured variance of the oscillation")
        panels[0].set_title("Variance, predicted / measured")
        panels[1].set_title("Mean loss, predicted / measured")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    return figure


def _compared(run: Descent, central: CentralFlow) -> dict[str, np.ndarray]:
    """Distances of midpoints, and what the central flow predicts, at every step."""
    objective, start = run.objective, jax.tree.map(lambda array: array[0], run.weights)
    points, centre = _rows(run.weights), _rows(central.weights)
    swing = _rows(central.oscillation)
    around = np.concatenate([points[:1], points, points[-1:]])
    middle = (around[:-2] + 2 * points + around[2:]) / 4
    half = (around[:-2] - 2 * points + around[2:]) / 4
    middle[[0, -1]], half[[0, -1]] = points[[0, -1]], half[[1, -2]]
    plain = flow(objective, start, times=run.times, rtol=1e-7, estimate_error=False)
    rate = float(run.learning_rate)
    modified = flow(
        objective, start, times=run.times, rtol=1e-7, estimate_error=False, modified=1,
        learning_rate=rate,
    )  # fmt: skip
    signs = (-1.0) ** np.arange(len(points))[:, None]
    return {
        "to_flow": _lengths(middle - _rows(plain.weights)),
        "to_modified": _lengths(middle - _rows(modified.weights)),
        "to_central": _lengths(middle - centre),
        "error": central.error,
        "true_error": _lengths(points - centre - signs * swing),
        "variance": np.sum(half**2, axis=1),
        "variance_predicted": central.variance,
        "loss": run.loss,
        "loss_predicted": central.mean_loss,
    }


def _rows(weights: AnyWeights) -> np.ndarray:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(weights)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _lengths(rows: np.ndarray) -> np.ndarray:
    return np.linalg.norm(rows, axis=1)


def _averages(values: np.ndarray) -> np.ndarray:
    """Over windows of steps, the last step apart."""
    whole = values[: (values.size - 1) // _WINDOW * _WINDOW]
    return whole.reshape(-1, _WINDOW).mean(axis=1)
