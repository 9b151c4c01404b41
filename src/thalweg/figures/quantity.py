"""Any quantity of the weights over time, with what the registry knows about it."""

from textwrap import fill

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from thalweg._quantity import Quantity
from thalweg.figures.curves import Draw, finite, flow_line, log_axis, run_line, runs

_LETTERS = 55  # of a title, on one line
_WIDE = 30  # between the smallest and the largest value, where powers of ten show more


def drawer(quantity: Quantity) -> Draw:
    """What draws the quantity along every run and along the flow."""

    def draw(axes: Axes, results: xr.Dataset) -> None:
        axes.set_title(fill(quantity.title, _LETTERS))
        for rate, colour, run in runs(results):
            run_line(axes, rate, run.time, run[quantity.name], colour)
        flow_line(axes, results, quantity.name)
        _limit(axes, quantity, finite(results, quantity.name))
        axes.set_ylabel(quantity.axis_label)

    return draw


def _limit(axes: Axes, quantity: Quantity, values: np.ndarray) -> None:
    """Its own limits, or powers of ten where it asks for them and the numbers are wide apart."""
    if quantity.limits is not None:
        low, high = quantity.limits
        axes.set_ylim(low - 0.02 * (high - low), high + 0.04 * (high - low))
        return
    positive = values[values > 0]
    if quantity.logarithmic and positive.max(initial=0) > _WIDE * positive.min(initial=np.inf):
        log_axis(axes, positive.min() / 2, 3 * positive.max())
        return
    low, high = min(values.min(initial=0.0), 0.0), values.max(initial=0.0)
    beyond = 0.06 * (high - low) or 1e-16
    axes.set_ylim(low - (beyond if low < 0 else 0.0), high + beyond)
