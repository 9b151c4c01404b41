"""What pictures of a run have in common: colours, the flow's line, the axis of time, the legend."""

from collections.abc import Callable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from thalweg.figures.style import PALETTE, STYLE

Draw = Callable[[Axes, xr.Dataset], None]

FLOW_LINE: dict[str, Any] = {"color": "black", "linestyle": (0, (1, 1))}
EDGE_LINE: dict[str, Any] = {"linestyle": "--", "linewidth": 0.9}
_SIZE = (4.8, 3.5)  # inches: letters stay readable where a phone shows the picture


def runs(results: xr.Dataset) -> Iterator[tuple[float, Any, xr.Dataset]]:
    """Learning rate, colour and records of every run."""
    for colour, rate in zip(_colours(results), results.learning_rate.values, strict=True):
        run = results.sel(learning_rate=rate)
        yield float(rate), colour, run.isel(record=run.time.notnull().values)


def picture(results: xr.Dataset, draw: Draw) -> Figure:
    """One panel over time, its legend below, where it hides nothing."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=_SIZE, layout="constrained")
        draw(axes, results)
        time_axis(axes, results)
        handles = [*handles_of_runs(results), *_other_handles(axes)]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=_columns(len(handles)),
            columnspacing=1.2, handlelength=1.8,
        )  # fmt: skip
    return figure


def handles_of_runs(results: xr.Dataset) -> list[Line2D]:
    """For the legend: one line per learning rate, and the flow's."""
    lines = [Line2D([], [], color=c, label=rf"$\eta$ = {rate:g}") for rate, c, _ in runs(results)]
    if "flow_time" in results.coords:
        lines.append(Line2D([], [], label="flow", **FLOW_LINE))
    return lines


def time_axis(axes: Axes, results: xr.Dataset) -> None:
    """The horizontal axis that all of them share."""
    axes.set_xlabel(r"time  $t$ = learning rate $\times$ step")
    axes.set_xlim(0, float(results.time.max()))


def line(axes: Axes, time: Any, values: Any, **style: Any) -> None:
    """A curve without the records at which nothing was measured."""
    known = np.isfinite(np.asarray(values))
    axes.plot(np.asarray(time)[known], np.asarray(values)[known], **style)


def log_axis(axes: Axes, low: float, high: float) -> None:
    """A vertical axis in powers of ten, with numbers between them only where these are few."""
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    if high > 20 * low:
        axes.yaxis.set_minor_formatter(NullFormatter())


def flow_line(axes: Axes, results: xr.Dataset, name: str) -> None:
    """The flow's curve, where there is one."""
    if f"flow_{name}" in results:
        line(axes, results.flow_time, results[f"flow_{name}"], zorder=3, **FLOW_LINE)


def finite(results: xr.Dataset, name: str) -> np.ndarray:
    """All numbers of this name that runs which did not diverge, and the flow, have come to."""
    steady = results[name].where(results.diverged_at < 0).values.ravel()
    if not np.isfinite(steady).any():
        steady = results[name].values[:, :1].ravel()  # of the start, if all diverged
    flowing = results[f"flow_{name}"].values if f"flow_{name}" in results else np.zeros(0)
    values = np.concatenate([steady, flowing])
    return values[np.isfinite(values)]


def _columns(entries: int) -> int:
    """As many as a narrow picture has room for, with rows that are evenly filled."""
    rows = -(-entries // 4)
    return -(-entries // rows)


def _other_handles(axes: Axes) -> list[Any]:
    handles, labels = axes.get_legend_handles_labels()
    return list(dict(zip(labels, handles, strict=True)).values())


def _colours(results: xr.Dataset) -> list[Any]:
    count = results.sizes["learning_rate"]
    if count <= len(PALETTE):
        return list(PALETTE[:count])
    return [plt.get_cmap("viridis")(share) for share in np.linspace(0, 0.9, count)]
