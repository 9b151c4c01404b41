"""How balanced and how aligned the layers are."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from thalweg.figures.curves import finite, flow_line, log_axis, run_line, runs


def draw_balance(axes: Axes, results: xr.Dataset) -> None:
    """What every gradient flow keeps constant, and descent does not."""
    axes.set_title("Imbalance of consecutive layers")
    for rate, colour, run in runs(results):
        run_line(axes, rate, run.time, run.imbalance, colour)
    flow_line(axes, results, "imbalance")
    values = finite(results, "imbalance")
    values = values[values > 0]
    low, high = (values.min(), values.max()) if values.size else (1e-16, 1e-16)
    if high > 30 * low:
        log_axis(axes, low / 2, 3 * high)
    else:
        axes.set_ylim(0, 1.15 * high)
    linear = results.attrs["network"] == "linear"
    axes.set_ylabel(
        r"max$_j$ $|W_{j+1}^T W_{j+1} - W_j W_j^T|_*$"
        if linear
        else r"max$_j$ $||W_{j+1}|^2 - |W_j|^2|$"
    )


def draw_alignment(axes: Axes, results: xr.Dataset) -> None:
    """How well each layer passes on what the one before puts out most."""
    axes.set_title("Alignment of consecutive layers, the weakest pair")
    for rate, colour, run in runs(results):
        run_line(axes, rate, run.time, run.alignment, colour)
    flow_line(axes, results, "alignment")
    axes.set_ylim(-0.02, 1.04)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_ylabel(r"min$_k$ $\langle v_{k+1}, u_k \rangle^2$")
