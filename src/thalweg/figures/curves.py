"""What pictures of a run have in common: colours, the flow's line, the axis of time, the legend.

A legend lists what was drawn: every curve has its label, and the legend is made of these. What is
drawn in the colours of several runs has one entry, in grey (`stand_in`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from thalweg.figures.style import PALETTE, STYLE

Draw = Callable[[Axes, xr.Dataset], None]

FLOW_LINE: dict[str, Any] = {"color": "black", "linestyle": (0, (1, 1))}
EDGE_LINE: dict[str, Any] = {"linestyle": "--", "linewidth": 0.9}
FLOW_LABEL = "flow"
REFERENCE = "reference"  # marks lines that belong to the axes, such as zero
STAND_IN = "0.4"  # the colour of a legend's entry that stands for one curve per run
_RATE = r"$\eta$ = "
_LINE, _HANDLE = 62, 5  # letters below a picture; what the line before a label takes of them
_SIZE = (4.8, 3.5)  # inches: letters stay readable where a phone shows the picture


def edge_label(stability: float) -> str:
    """The edge in a legend: 2/eta for plain descent, another number over eta with momentum."""
    return rf"edge, {stability:.4g}/$\eta$"


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
        handles = handles_by_label(axes)
        figure.legend(
            handles=list(handles.values()), loc="outside lower center", columnspacing=1.2,
            ncols=_columns(list(handles)), handlelength=1.8,
        )  # fmt: skip
    return figure


def handles_by_label(*panels: Axes) -> dict[str, Artist]:
    """For the legend: what was drawn with a label and can be seen, runs first."""
    found: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if _is_seen(axes, handle):
                found.setdefault(label, handle)
    order = sorted(found, key=lambda label: (not label.startswith(_RATE), label != FLOW_LABEL))
    return {label: found[label] for label in order}


def _is_seen(axes: Axes, handle: Artist) -> bool:
    """Whether a curve has a point in the picture; a stand-in, which has none at all, counts."""
    if not isinstance(handle, Line2D):
        return True
    x, y = (np.asarray(values, float) for values in handle.get_data())
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    return x.size == 0 or bool(np.any((left <= x) & (x <= right) & (low <= y) & (y <= high)))


def is_shared(label: str) -> bool:
    """Whether a label is that of a run or of the flow, which all panels draw alike."""
    return label.startswith(_RATE) or label == FLOW_LABEL


def stand_in(axes: Axes, label: str, **style: Any) -> None:
    """The legend's entry of what was drawn in the colour of each run."""
    axes.plot([], [], color=STAND_IN, label=label, **style)


def time_axis(axes: Axes, results: xr.Dataset) -> None:
    """The horizontal axis that all of them share."""
    axes.set_xlabel(r"time  $t$ = learning rate $\times$ step")
    axes.set_xlim(0, float(results.time.max()))


def line(axes: Axes, time: Any, values: Any, **style: Any) -> None:
    """A curve without the records at which nothing was measured; none where nothing was."""
    known = np.isfinite(np.asarray(values))
    if known.any():
        axes.plot(np.asarray(time)[known], np.asarray(values)[known], **style)


def run_line(axes: Axes, rate: float, time: Any, values: Any, color: Any) -> None:
    """The curve of a run."""
    line(axes, time, values, color=color, label=f"{_RATE}{rate:g}")


def log_axis(axes: Axes, low: float, high: float) -> None:
    """A vertical axis in powers of ten, with numbers between them only where these are few."""
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    if high > 20 * low:
        axes.yaxis.set_minor_formatter(NullFormatter())


def flow_line(axes: Axes, results: xr.Dataset, name: str) -> None:
    """The flow's curve, where there is one."""
    if f"flow_{name}" in results:
        style = {"zorder": 3, "label": FLOW_LABEL, **FLOW_LINE}
        line(axes, results.flow_time, results[f"flow_{name}"], **style)


def finite(results: xr.Dataset, name: str) -> np.ndarray:
    """All numbers of this name that runs which did not diverge, and the flow, have come to."""
    steady = results[name].where(results.diverged_at < 0).values.ravel()
    if not np.isfinite(steady).any():
        steady = results[name].values[:, :1].ravel()  # of the start, if all diverged
    flowing = results[f"flow_{name}"].values if f"flow_{name}" in results else np.zeros(0)
    values = np.concatenate([steady, flowing])
    return values[np.isfinite(values)]


def _columns(labels: list[str]) -> int:
    """As many as a narrow picture has space for, with rows that are evenly filled."""
    lengths = [len(label.replace(r"$\eta$", "n")) + _HANDLE for label in labels]
    for rows in range(-(-len(labels) // 4), len(labels)):
        columns = [lengths[first : first + rows] for first in range(0, len(labels), rows)]
        if sum(map(max, columns)) <= _LINE:
            return len(columns)
    return 1


def _colours(results: xr.Dataset) -> list[Any]:
    count = results.sizes["learning_rate"]
    if count <= len(PALETTE):
        return list(PALETTE[:count])
    return [plt.get_cmap("viridis")(share) for share in np.linspace(0, 0.9, count)]
