"""Pictures, drawn from stored results alone, so that each can be drawn again without a run."""

from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "figure.dpi": 110,
    "savefig.dpi": 160,
}
# Four hues that stay apart for colour-blind readers (Okabe and Ito), cool to warm.
PALETTE = ("#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#56B4E9")


def overview(results: xr.Dataset) -> Figure:
    """Loss, sharpness and distance to the flow over time, one line per learning rate."""
    with plt.rc_context(STYLE):
        figure, (loss, sharpness, gap) = plt.subplots(
            3, 1, figsize=(7.2, 8.6), sharex=True, layout="constrained",
            gridspec_kw={"height_ratios": [1.0, 1.35, 1.0]},
        )  # fmt: skip
        colours = [PALETTE[i % len(PALETTE)] for i in range(results.sizes["learning_rate"])]
        _draw_loss(loss, results, colours)
        _draw_sharpness(sharpness, results, colours)
        _draw_distance(gap, results, colours)
        gap.set_xlabel(r"time  $t$ = learning rate $\times$ step")
        gap.set_xlim(0, float(results.flow_time[-1]))
        figure.suptitle(_headline(results), fontsize=10.5, x=0.01, ha="left")
    return figure


def _headline(results: xr.Dataset) -> str:
    settings = results.attrs
    return (
        "Gradient descent next to the gradient flow, from one start\n"
        f"linear network of depth {settings['experiment_depth']} on a regression with "
        f"{settings['experiment_samples']} samples and {settings['experiment_features']} features"
    )


def _runs(results: xr.Dataset, colours: Sequence[str]) -> Iterator[tuple[float, str, xr.Dataset]]:
    for colour, rate in zip(colours, results.learning_rate.values, strict=True):
        yield float(rate), colour, results.sel(learning_rate=rate)


_FLOW_LINE: dict[str, Any] = {"color": "black", "linestyle": (0, (1, 1))}
_NOTE: dict[str, Any] = {"fontsize": 8.5, "color": "0.3", "textcoords": "offset points"}


def _draw_loss(axes: Axes, results: xr.Dataset, colours: Sequence[str]) -> None:
    axes.set_title("Loss above its minimum")
    floor = 1e-16  # below this the difference is rounding
    for rate, colour, run in _runs(results, colours):
        excess = np.maximum(run.loss - run.minimum, floor)
        axes.plot(run.time, excess, color=colour, label=rf"descent, $\eta$ = {rate:g}")
    excess = np.maximum(results.flow_loss - results.minimum, floor)
    axes.plot(results.flow_time, excess, label="gradient flow", **_FLOW_LINE)
    axes.set_yscale("log")
    axes.set_ylabel("mean squared error")
    axes.legend(loc="center right")


def _draw_sharpness(axes: Axes, results: xr.Dataset, colours: Sequence[str]) -> None:
    axes.set_title("Sharpness (largest Hessian eigenvalue), and where it makes descent unstable")
    for rate, colour, run in _runs(results, colours):
        axes.plot(run.time, run.sharpness, color=colour)
        axes.axhline(2 / rate, color=colour, linestyle="--", linewidth=0.9)
        axes.annotate(
            rf"$2/\eta$ = {2 / rate:g}", (1.005, 2 / rate), xycoords=("axes fraction", "data"),
            color=colour, va="center", fontsize=8.5,
        )  # fmt: skip
    axes.plot(results.flow_time, results.flow_sharpness, **_FLOW_LINE)
    bound = float(results.stronger_sharpness_bound)
    axes.axhspan(1e-9, bound, color="0.5", alpha=0.16, linewidth=0)
    axes.annotate(
        f"no minimiser is\nflatter than {bound:.1f}", (0.01, bound), xytext=(0, -3), va="top",
        xycoords=("axes fraction", "data"), bbox={"fc": "0.92", "ec": "none", "pad": 1}, **_NOTE,
    )  # fmt: skip
    low = float(np.nanmin(np.where(results.sharpness > 0, results.sharpness, np.nan)))
    top = max(2 * 2 / float(results.learning_rate.min()), 2 * bound)
    axes.set_yscale("log")
    axes.set_ylim(max(low, bound / 100) / 1.5, top)
    axes.set_ylabel("sharpness")


def _draw_distance(axes: Axes, results: xr.Dataset, colours: Sequence[str]) -> None:
    axes.set_title("Distance from descent to the flow, in weight space (dotted: proven bound)")
    for _, colour, run in _runs(results, colours):
        axes.plot(run.time[1:], run.distance[1:], color=colour)
        proven = np.isfinite(run.distance_upper.values) & (run.time.values > 0)
        time, low, high = (
            run[name][proven] for name in ("time", "distance_lower", "distance_upper")
        )
        axes.plot(time, high, color=colour, linewidth=0.9, linestyle=":")
        axes.fill_between(time, low, high, where=low > 0, color=colour, alpha=0.25, linewidth=0)
    error = results.flow_error
    axes.fill_between(results.flow_time, 1e-30, error, color="0.5", alpha=0.3, linewidth=0)
    axes.annotate(
        "error of the computed flow", (0.99, float(error.max())), xytext=(0, 4), ha="right",
        xycoords=("axes fraction", "data"), **_NOTE,
    )  # fmt: skip
    axes.set_yscale("log")
    farthest = float(results.distance.max())
    axes.set_ylim(
        max(float(error[1:].median()), 1e-14) / 30, 3 * farthest if farthest > 0 else None
    )
    axes.set_ylabel("Euclidean distance")
