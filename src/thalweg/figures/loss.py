"""The loss over time, with the interval in which the flow's loss is proven to lie."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from thalweg.figures.curves import finite, flow_line, log_axis, run_line, runs
from thalweg.figures.edges import draw_mean_loss

_FLOOR = 1e-30  # below this an excess is rounding
_NAMES = {"cross_entropy": "cross-entropy (nats)", "square": "square loss"}


def draw_loss(axes: Axes, results: xr.Dataset) -> None:
    """Above its minimum, if that is known."""
    known = bool(results.minimum.notnull())
    axes.set_title("Loss above its minimum" if known else "Loss")
    _draw_proven(axes, results)
    for rate, colour, run in runs(results):
        run_line(axes, rate, run.time, np.maximum(run.excess, _FLOOR), colour)
    flow_line(axes, results, "excess")
    draw_mean_loss(axes, results, float(results.minimum) if known else 0.0)
    values = finite(results, "excess")
    values = values[values > 0]
    # Nothing is above the minimum where descent starts in it.
    low, top = (values.min(), values.max()) if values.size else (1.0, 1.0)
    if low < top / 20:
        log_axis(axes, max(low, top * 1e-20) / 2, 3 * top)
    else:
        axes.set_ylim(0, 1.1 * top)
    name = results.attrs["loss_name"]
    axes.set_ylabel(_NAMES.get(name, f"{name} loss".strip()))


def _draw_proven(axes: Axes, results: xr.Dataset) -> None:
    """The interval of the flow's loss that the smallest step proves, while it says something."""
    run = results.isel(learning_rate=int(np.argmin(results.learning_rate.values)))
    lowest = 0.0 if bool(results.minimum.isnull()) else float(results.minimum)
    low, high = run.flow_loss_lower - lowest, run.flow_loss_upper - lowest
    useful = np.isfinite(high) & (high < 10 * float(run.excess[0]))
    if bool(useful.sum() > 1):
        axes.fill_between(
            run.time, np.maximum(low, _FLOOR), high, where=useful.values, color="0.5", alpha=0.3,
            linewidth=0, label="certified for the flow",
        )  # fmt: skip
