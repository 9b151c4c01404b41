"""Both ends of the Hessian's spectrum, against the edge of stability and what theory allows."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from thalweg.figures.curves import (
    EDGE_LINE,
    REFERENCE,
    edge_label,
    finite,
    flow_line,
    log_axis,
    run_line,
    runs,
    stand_in,
)
from thalweg.quantities import QUANTITIES
from thalweg.quantities.of_runs import stability

_FAR = 30  # an edge this many times above all that was measured would flatten the rest


def draw_sharpness(axes: Axes, results: xr.Dataset) -> None:
    """The largest eigenvalue; where it exceeds the edge, descent is unstable."""
    axes.set_title("Sharpness: the largest Hessian eigenvalue")
    values = finite(results, "sharpness")
    highest = values.max(initial=1e-12)
    top, limit, drawn = highest, stability(results), False
    for rate, colour, run in runs(results):
        run_line(axes, rate, run.time, run.sharpness, colour)
        edge = limit / rate
        if edge <= _FAR * highest:
            drawn = True
            axes.axhline(edge, color=colour, **EDGE_LINE)
            top = max(top, edge)
    flow_line(axes, results, "sharpness")
    if drawn:
        stand_in(axes, edge_label(limit), **EDGE_LINE)
    _draw_theory(axes, results)
    positive = values[values > 0]
    least = float(results.least_sharpness)
    low = min(positive.min(initial=highest), least if least > 0 else np.inf)
    log_axis(axes, max(low / 1.5, top * 1e-4), 2 * top)
    axes.set_ylabel(f"{QUANTITIES['sharpness'].symbol} (loss / weight$^2$)")


def draw_smallest_eigenvalue(axes: Axes, results: xr.Dataset) -> None:
    """The smallest eigenvalue; below zero the loss is not convex."""
    axes.set_title("The smallest Hessian eigenvalue")
    axes.axhline(0, color="0.7", linewidth=0.8, gid=REFERENCE)
    values = finite(results, "smallest_eigenvalue")
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    room = 0.08 * max(high - low, 1e-12)
    low, high = low - room, high + room
    for rate, colour, run in runs(results):
        shown = _until_it_leaves(run.smallest_eigenvalue.values, low, high)
        run_line(axes, rate, run.time, shown, colour)
    flow_line(axes, results, "smallest_eigenvalue")
    axes.set_ylim(low, high)
    axes.set_ylabel(f"{QUANTITIES['smallest_eigenvalue'].symbol} (loss / weight$^2$)")


def _until_it_leaves(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """The values until a run that diverges leaves the picture: the rest is a vertical line."""
    outside = (values < low) | (values > high)
    return np.where(np.cumsum(outside) > 0, np.nan, values)


def _draw_theory(axes: Axes, results: xr.Dataset) -> None:
    """Where minimisers can be, and those that this start may lead to."""
    least, greatest = float(results.least_sharpness), float(results.greatest_sharpness)
    if not least > 0:
        return
    if greatest == greatest:
        axes.axhspan(
            least, greatest, color="0.5", alpha=0.2, linewidth=0, label="theory's interval"
        )
    else:
        axes.axhspan(1e-12, least, color="0.5", alpha=0.2, linewidth=0, label="no minimiser")
