"""What the flow of a network with kinks meets: crossings, sliding, and ridges that are near."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from thalweg.figures.curves import FLOW_LABEL, FLOW_LINE, line, log_axis
from thalweg.figures.style import PALETTE
from thalweg.quantities import QUANTITIES


def draw_crossings(axes: Axes, results: xr.Dataset) -> None:
    """How many kinks the flow has crossed so far."""
    _draw_count(axes, results, "flow_crossings")


def draw_sliding(axes: Axes, results: xr.Dataset) -> None:
    """Along how many kinks the flow slides."""
    _draw_count(axes, results, "flow_sliding")


def draw_ridge_distance(axes: Axes, results: xr.Dataset) -> None:
    """How near to a repelling kink; where its error is larger, the branch is uncertain."""
    time, distance = results.flow_time, results.flow_ridge_distance
    error = results.flow_error
    axes.set_title(QUANTITIES["flow_ridge_distance"].title)
    met = np.isfinite(distance.values)
    axes.plot(
        time[met], distance[met], ".", color=PALETTE[3], markersize=4,
        label="distance to the nearest repelling kink",
    )  # fmt: skip
    known = ((error > 0) & (time > 0)).values
    axes.plot(time[known], error[known], color="0.4", label="error of the flow")
    uncertain = float(results.branch_uncertain_from)
    if np.isfinite(uncertain):
        axes.axvspan(
            uncertain, float(time.max()), color="0.5", alpha=0.15, linewidth=0,
            label="branch uncertain",
        )  # fmt: skip
    values = np.concatenate([distance.values[met], error.values[known]])
    values = values[values > 0]
    log_axis(axes, values.min() / 3, 3 * values.max())
    axes.set_ylabel("distance in weight space")


def _draw_count(axes: Axes, results: xr.Dataset, name: str) -> None:
    quantity = QUANTITIES[name]
    axes.set_title(quantity.title)
    line(axes, results.flow_time, results[name], label=FLOW_LABEL, **FLOW_LINE)
    axes.set_ylim(0, 1.06 * max(float(results[name].max()), 1.0))
    axes.set_ylabel(quantity.axis_label)
