"""The distance from descent to the flow, within what is proven of it."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from thalweg.figures.curves import STAND_IN, log_axis, run_line, runs, stand_in
from thalweg.quantities.of_runs import is_validated

_BOUND_LINE: dict[str, Any] = {"linewidth": 0.8, "linestyle": ":"}


def draw_distance(axes: Axes, results: xr.Dataset) -> None:
    """Lines are measured; bands are proven from each run alone, where the flow is not validated."""
    validated = is_validated(results)
    axes.set_title("Distance from descent to the flow" + (_certified(results) if validated else ""))
    banded, (low, high) = False, _limits(results)
    for rate, colour, run in runs(results):
        run_line(axes, rate, run.time[1:], run.distance[1:], colour)
        banded = (not validated and _draw_band(axes, run, colour)) or banded
    if banded:
        stand_in(axes, "certified upper bound", **_BOUND_LINE)
        axes.fill_between([], [], color=STAND_IN, alpha=0.25, linewidth=0, label="certified range")
    if "flow_error" in results and bool((results.flow_error > low).any()):
        axes.fill_between(
            results.flow_time, 1e-30, results.flow_error, facecolor="none", edgecolor="0.6",
            hatch="//////", linewidth=0,
            label="certified error of the flow" if validated else "error of the flow",
        )  # fmt: skip
    log_axis(axes, low, high)
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
    return max(values.min() / 3, values.max() * 1e-12), 5 * values.max()


def _certified(results: xr.Dataset) -> str:
    """Up to what all distances are proven, rounded up."""
    power = np.ceil(np.log10(max(float(results.flow_error.max()), 1e-300)))
    return rf", certified to $10^{{{power:.0f}}}$"
