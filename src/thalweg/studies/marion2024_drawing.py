"""Pictures in the form of marion2024: a quantity over the scale of the start, or over the steps."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thalweg.figures.style import PALETTE, STYLE
from thalweg.studies.marion2024_sweep import few, mean_and_interval

MARKERS = ("o", "s", "D", "^", "v", "P")
SINGLE_PRECISION = (5e-13, 5e-9)
"""Where squared distances stop falling in the authors' single precision, by the learning rate."""

_SIZE = (6.4, 4.3)
_RATES = (0.005, 0.02, 0.07, 0.1, 0.2)  # of figures 1 to 4, so that each keeps its colour
_START: dict[str, Any] = {"color": "0.35", "linestyle": "-."}
_BOUND: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.1}
_NOTE: dict[str, Any] = {"fontsize": 8, "color": "0.25"}
_OPEN: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white"}
_MEANS = (
    "mean and 95 % bootstrap interval of the runs that did not diverge; "
    "open: fewer than a quarter did not"
)


def distance_over_scale(results: xr.Dataset, title: str, rates: Sequence[float]) -> Figure:
    """The squared distance to the minimiser at the start and at the end (figures 1a, 3a)."""
    with plt.rc_context(STYLE):
        figure, axes = _canvas(title, "squared distance to the optimal regressor", _MEANS)
        floor = 1e-34  # double precision ends above
        _start_line(axes, results.start_distance)
        for rate in rates:
            _line(axes, results, "final_distance", rate, rates, floor)
        axes.axhspan(*SINGLE_PRECISION, color="0.93", linewidth=0, zorder=0)
        axes.annotate(
            "grey: where the authors' single precision ends",
            (0.012, SINGLE_PRECISION[0]), xytext=(0, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", **_NOTE,
        )  # fmt: skip
        axes.set_yscale("log")
        axes.set_ylim(floor / 2, None)
        _legend_below(figure, axes)
    return figure


def sharpness_over_scale(
    results: xr.Dataset,
    title: str,
    rates: Sequence[float],
    bounds: Sequence[tuple[float, str]],
    limits: tuple[float, float] = (0.1, 3e4),
) -> Figure:
    """The sharpness at the start and at the end, with 2 / rate and bounds (figures 1b, 3b)."""
    with plt.rc_context(STYLE):
        figure, axes = _canvas(title, "sharpness", _MEANS)
        _start_line(axes, results.start_sharpness)
        for rate in rates:
            colour = _line(axes, results, "final_sharpness", rate, rates)
            _threshold(axes, rate, colour)
        for value, text in bounds:
            _dotted(axes, value, text)
        axes.set_yscale("log")
        axes.set_ylim(*limits)
        _legend_below(figure, axes)
    return figure


def sharpness_of_runs(
    results: xr.Dataset,
    title: str,
    fitted: xr.DataArray,
    bounds: Sequence[float],
    limits: tuple[float, float],
) -> Figure:
    """The same run by run, where there are too few for means; open where not `fitted`."""
    rates = [float(rate) for rate in results.learning_rate]
    width = 0.14 * float(results.scale.diff("scale").min())
    with plt.rc_context(STYLE):
        figure, axes = _canvas(title, "sharpness", "each point is one run; open: not fitted")
        starts = results.start_sharpness.transpose("scale", ...).values.reshape(
            results.sizes["scale"], -1
        )
        across = np.broadcast_to(results.scale.values[:, None], starts.shape)
        axes.plot(
            across.ravel(), starts.ravel(), "_", color="0.45", markersize=8, label="initialisation"
        )
        for rate in rates:
            place = _place(rate, rates)
            runs = results.final_sharpness.sel(learning_rate=rate).transpose("repetition", "scale")
            good = fitted.sel(learning_rate=rate).transpose("repetition", "scale").values
            beside = (rates.index(rate) - (len(rates) - 1) / 2) * 1.6 * width
            across = np.broadcast_to(runs.scale.values + beside, runs.shape)
            look: dict[str, Any] = {
                "marker": MARKERS[place], "color": PALETTE[place], "linestyle": "none",
                "markersize": 4, "alpha": 0.8,
            }  # fmt: skip
            count = int(runs.notnull().any("scale").sum())
            label = f"learning rate {rate:g}, {count} {'run' if count == 1 else 'runs'} per scale"
            axes.plot(across[good], runs.values[good], label=label, **look)
            axes.plot(across[~good], runs.values[~good], **(look | _OPEN))
            _threshold(axes, rate, PALETTE[place])
        for value in bounds:
            _dotted(axes, value, "")
        axes.set_yscale("log")
        axes.set_ylim(*limits)
        _legend_below(figure, axes, columns=2)
    return figure


def divergence_over_scale(results: xr.Dataset, title: str, rates: Sequence[float]) -> Figure:
    """How many of the runs diverge (figures 2, 4)."""
    runs = results.diverged.isel(scale=0).notnull().sum("repetition")
    counts = [f"{int(runs.sel(learning_rate=rate))} at {rate:g}" for rate in rates]
    with plt.rc_context(STYLE):
        figure, axes = _canvas(
            title, "probability of divergence", f"runs per scale: {', '.join(counts)}"
        )
        chance = results.diverged.mean("repetition")
        for rate in rates:
            place = _place(rate, rates)
            axes.plot(
                chance.scale, chance.sel(learning_rate=rate), label=f"learning rate {rate:g}",
                color=PALETTE[place], marker=MARKERS[place], markersize=4.5,
            )  # fmt: skip
        axes.set_ylim(-0.03, 1.03)
        _legend_below(figure, axes)
    return figure


def trace(run: xr.Dataset, title: str, bounds: Sequence[tuple[float, str]]) -> Figure:
    """Distance and sharpness over the steps of one run (figures 1c, 1d, 3c, 3d)."""
    rate = float(run.learning_rate)
    colour = colour_of(rate)
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.5), layout="constrained")
        left.plot(run.step, run.distance, color=colour)
        left.set_yscale("log")
        left.set_ylabel(r"squared distance to $w^*$")
        right.plot(run.step, run.sharpness, color=colour)
        _threshold(right, rate, colour)
        for value, text in bounds:
            _dotted(right, value, text)
        right.set_yscale("log")
        right.set_ylim(0.1, 3e4)  # as in the pictures over scales
        right.set_ylabel("sharpness")
        for axes in (left, right):
            axes.set_xlabel("training steps")
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    return figure


def colour_of(rate: float) -> str:
    """The colour that a learning rate of figures 1 to 4 has in all of them."""
    return PALETTE[_RATES.index(rate)]


def _place(rate: float, rates: Sequence[float]) -> int:
    return _RATES.index(rate) if set(rates) <= set(_RATES) else list(rates).index(rate)


def _canvas(title: str, label: str, note: str) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=_SIZE, layout="constrained")
    axes.set_xlabel("scale of the initialisation")
    axes.set_ylabel(label)
    axes.set_title(note, loc="left", **_NOTE)
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    return figure, axes


def _start_line(axes: Axes, values: xr.DataArray) -> None:
    """All starts together, whatever is done from them."""
    dimensions = ("learning_rate", "repetition")
    pooled = values.stack(run=dimensions).dropna("run", how="all")
    pooled = xr.DataArray(
        pooled.transpose("scale", "run").values,
        dims=("scale", "repetition"), coords={"scale": values.scale.values},
    )  # fmt: skip
    mean, low, high = mean_and_interval(pooled)
    axes.plot(mean.scale, mean, label="initialisation", **_START)
    axes.fill_between(mean.scale, low, high, color="0.35", alpha=0.18, linewidth=0)


def _line(
    axes: Axes, results: xr.Dataset, name: str, rate: float, rates: Sequence[float],
    floor: float = 0.0,
) -> str:  # fmt: skip
    place = _place(rate, rates)
    runs = results.sel(learning_rate=rate)
    mean, low, high = (each.clip(min=floor) for each in mean_and_interval(runs[name]))
    look: dict[str, Any] = {
        "color": PALETTE[place], "marker": MARKERS[place], "markersize": 4.5, "clip_on": False,
    }  # fmt: skip
    axes.plot(mean.scale, mean, label=f"learning rate {rate:g}", **look)
    open_ones = mean.where(few(runs.diverged))
    axes.plot(mean.scale, open_ones, **(look | _OPEN))
    axes.fill_between(mean.scale, low, high, color=PALETTE[place], alpha=0.2, linewidth=0)
    return PALETTE[place]


def _threshold(axes: Axes, rate: float, colour: str) -> None:
    axes.axhline(2 / rate, color=colour, linestyle="--", linewidth=0.9)
    axes.annotate(
        rf"2/$\eta$ = {2 / rate:.4g}", (1.005, 2 / rate), xycoords=("axes fraction", "data"),
        color=colour, va="center", fontsize=8,
    )  # fmt: skip


def _dotted(axes: Axes, value: float, text: str) -> None:
    """A bound; an upper one is named above its line, a lower one below, away from the data."""
    low = value < 100
    axes.axhline(value, **_BOUND)
    axes.annotate(
        text, (0.99 if low else 0.012, value), xytext=(0, -2 if low else 2), va="top" if low else
        "bottom", xycoords=("axes fraction", "data"), textcoords="offset points",
        ha="right" if low else "left", **_NOTE,
    )  # fmt: skip


def _legend_below(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """Outside of the axes, where it can cover nothing."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8.5)
