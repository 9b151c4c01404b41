"""The distance from descent to the flow, within what is proven of it."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from thalweg.figures.curves import line, log_axis, runs


def draw_distance(axes: Axes, results: xr.Dataset) -> None:
    """Lines are measured, bands are proven from each run alone, for as long as they last."""
    axes.set_title("Distance from descent to the flow")
    for _, colour, run in runs(results):
        line(axes, run.time[1:], run.distance[1:], color=colour)
        _draw_band(axes, run, colour)
    if "flow_error" in results:
        axes.fill_between(
            results.flow_time, 1e-30, results.flow_error, color="0.6", alpha=0.35, linewidth=0,
            label="error of the flow",
        )  # fmt: skip
    log_axis(axes, *_limits(results))
    axes.set_ylabel(r"distance  $|\theta_{\eta}(t) - \theta(t)|$")


def _draw_band(axes: Axes, run: xr.Dataset, colour: str) -> None:
    proven = (np.isfinite(run.distance_upper) & (run.time > 0)).values
    if not proven.any():
        return
    time, low, high = (run[name][proven] for name in ("time", "distance_lower", "distance_upper"))
    axes.plot(time, high, color=colour, linewidth=0.8, linestyle=":")
    for where, strength in ((low > 0, 0.25), (low == 0, 0.08)):  # from both sides, from above
        axes.fill_between(
            time, np.maximum(low, 1e-30), high, where=where.values, color=colour, alpha=strength,
            linewidth=0,
        )  # fmt: skip


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
