"""The distance from descent to the flow, within what is proven of it."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from thalweg.figures.curves import STAND_IN, log_axis, run_line, runs, stand_in

_BOUND_LINE: dict[str, Any] = {"linewidth": 0.8, "linestyle": ":"}


def draw_distance(axes: Axes, results: xr.Dataset) -> None:
    """Lines are measured, bands are proven from each run alone, for as long as they last."""
    axes.set_title("Distance from descent to the flow")
    banded = False
    for rate, colour, run in runs(results):
        run_line(axes, rate, run.time[1:], run.distance[1:], colour)
        banded = _draw_band(axes, run, colour) or banded
    if banded:
        stand_in(axes, "certified upper bound", **_BOUND_LINE)
        axes.fill_between([], [], color=STAND_IN, alpha=0.25, linewidth=0, label="certified range")
    if "flow_error" in results:
        axes.fill_between(
            results.flow_time, 1e-30, results.flow_error, facecolor="none", edgecolor="0.6",
            hatch="//////", linewidth=0, label="error of the flow",
        )  # fmt: skip
    log_axis(axes, *_limits(results))
    axes.set_ylabel(r"distance  $|\theta_{\eta}(t) - \theta(t)|$")


def _draw_band(axes: Axes, run: xr.Dataset, colour: str) -> bool:
    """Whether there was one to draw."""
    proven = (np.isfinite(run.distance_upper) & (run.time > 0)).values
    if not proven.any():
        return False
    time, low, high = (run[name][proven] for name in ("time", "distance_lower", "distance_upper"))
    axes.plot(time, high, color=colour, **_BOUND_LINE)
    for where, strength in ((low >= 0, 0.08), (low > 0, 0.17)):  # darker where from both sides
        axes.fill_between(
            time, np.maximum(low, 1e-30), high, where=where.values, color=colour, alpha=strength,
            linewidth=0,
        )  # fmt: skip
    return True


def _limits(results: xr.Dataset) -> tuple[float, float]:
    settled = results.distance.where(results.diverged_at < 0).values[:, 1:]
    values = settled[np.isfinite(settled) & (settled > 0)]
    if not values.size:  # no flow: show what is proven
        values = results.distance_upper.values[:, 1:]
        values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return 1e-6, 1.0
    error = float(results.flow_error[1:].median()) if "flow_error" in results else 0.0
    return max(min(values.min(), max(error, 1e-14)) / 3, values.max() * 1e-12), 5 * values.max()
