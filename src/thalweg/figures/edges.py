"""The oscillation of descent at the edge of stability, within what the central flow predicts."""

from typing import Any

import xarray as xr
from matplotlib.axes import Axes

from thalweg.figures.curves import REFERENCE, STAND_IN, line, run_line, runs
from thalweg.quantities import QUANTITIES

_MEAN_LINE: dict[str, Any] = {"color": "black", "linewidth": 0.9, "zorder": 4}


def draw_oscillation(axes: Axes, results: xr.Dataset) -> None:
    """Descent's steps to both sides of the central flow, with the predicted standard deviation."""
    axes.set_title(QUANTITIES["central_swing"].title)
    axes.axhline(0, color="0.7", linewidth=0.8, gid=REFERENCE)
    for rate, colour, run in runs(results):
        known = run.central_spread.notnull().values
        if not known.any():
            continue
        time, spread = run.time[known], run.central_spread[known]
        axes.fill_between(time, -spread, spread, color=colour, alpha=0.25, linewidth=0)
        run_line(axes, rate, run.time, run.central_swing, colour)
        axes.lines[-1].set(linestyle="none", marker=".", markersize=3.5)
    axes.fill_between(
        [], [], color=STAND_IN, alpha=0.25, linewidth=0, label="predicted standard deviation"
    )
    axes.set_ylabel("to either side of the central flow")


def draw_mean_loss(axes: Axes, results: xr.Dataset, above: float) -> None:
    """The mean loss that the central flow predicts, less a minimum; nothing where there is none."""
    if "central_loss" not in results:
        return
    for _, _, run in runs(results):
        line(axes, run.time, run.central_loss - above, **_MEAN_LINE)
    axes.plot([], [], label="mean loss by the central flow", **_MEAN_LINE)
