"""The phase diagram: the outcome of every run, over learning rate and start scale."""

from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from thalweg._checks import InputError
from thalweg.figures.style import STYLE

# In the order of ever larger steps, which is also that of the strips of a cell. Converged is blue
# and green, the edge yellow, what does not learn warm or grey; all light enough for lines on them.
_COLOURS = {
    "stuck_at_a_saddle": "#8D7BA8",
    "still_descending": "#C9CCD1",
    "converged_monotonically": "#4C9BC9",
    "converged_through_a_catapult": "#5CC0A0",
    "at_the_edge_of_stability": "#F3D34A",
    "oscillating": "#E8A04C",
    "diverged": "#C8553D",
}
_UNKNOWN = "#FFFFFF"
_DOTTED = (0, (6, 1.5, 1.2, 1.5))
_MOST_PARTS = 24  # of a cell: finer shares are not seen

_BOUNDARIES = {
    "paper_sharpness_bound": (r"$2/S_{\min}$, marion2024", (0, (1, 1.2))),
    "sharper_sharpness_bound": (
        "2 / sharper bound: limit of linear stability",
        (0, (5, 1.5)),
    ),
}


def phase_map(results: xr.Dataset, rate: str = "learning_rate", scale: str = "scale") -> Figure:
    """A map of phases: every cell is divided among the phases of its runs, by their number.

    Args:
        results: with `phase` over the two dimensions and any others, over which runs are counted.
            Its attributes say what its numbers mean (`flag_values`, `flag_meanings`); negative
            ones, of cells without a run, are not drawn. The variables `paper_sharpness_bound`,
            `sharper_sharpness_bound` and the sharpness at the start (`initial_sharpness`, or the
            first record of `sharpness`) are drawn where they are there, as 2 / sharpness, and so
            are the rates `edge_learning_rate` of all starts, from which on the edge is met.
        rate: the dimension of learning rates.
        scale: the other dimension.
    """
    for name in (rate, scale):
        if "phase" not in results or name not in results.phase.dims:
            raise InputError(f"`results` must have a `phase` along the dimension `{name}`.")
    flags = results.phase.attrs
    values = np.atleast_1d(flags["flag_values"]).tolist()
    meanings = dict(zip(values, flags["flag_meanings"].split(), strict=True))
    found = [v for v in meanings if v >= 0 and bool((results.phase == v).any())]
    order = sorted(found, key=lambda value: [*_COLOURS, meanings[value]].index(meanings[value]))
    others = [name for name in results.phase.dims if name not in (rate, scale)]
    shares = np.stack(
        [(results.phase == v).mean(others).transpose(scale, rate).values for v in order]
    )
    parts = int(np.prod([results.sizes[name] for name in others]))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 5.4), layout="constrained")
        parts_drawn = min(parts, _MOST_PARTS)
        missing = _draw_cells(axes, results, (rate, scale), shares, parts_drawn, order, meanings)
        _draw_boundaries(axes, results, scale)
        _explain(axes, scale, parts, [meanings[value] for value in order], missing)
    return figure


def _draw_cells(
    axes: Axes,
    results: xr.Dataset,
    names: tuple[str, str],
    shares: Float[np.ndarray, "phases scales rates"],
    parts: int,
    order: list[int],
    meanings: dict[int, str],
) -> bool:
    """Paints them, and says whether a part of one is left blank, because it has no run."""
    rates, scales = (np.asarray(results[name].values, float) for name in names)
    columns, rows = _edges(rates), _edges(scales)
    # Each cell is cut into as many strips as it has runs, all of one phase side by side.
    fine = np.concatenate(
        [np.geomspace(low, high, parts + 1)[:-1] for low, high in pairwise(columns)]
        + [columns[-1:]]
    )
    colours = [_COLOURS.get(meanings[value], _UNKNOWN) for value in order]
    painted = _strips(shares, parts)
    axes.pcolormesh(
        fine, rows, np.ma.masked_less(painted, 0), vmin=-0.5, vmax=len(order) - 0.5,
        cmap=ListedColormap(colours), edgecolors="none", rasterized=True,
    )  # fmt: skip
    for edges, draw in ((columns, axes.axvline), (rows, axes.axhline)):
        for edge in edges:
            draw(edge, color="white", linewidth=0.7)
    axes.set_xscale("log")
    if scales.min() > 0 and scales.max() / scales.min() > 20:
        axes.set_yscale("log")
    axes.set_xlim(columns[0], columns[-1])
    axes.set_ylim(rows[0], rows[-1])
    return bool((painted < 0).any())


def _strips(
    shares: Float[np.ndarray, "phases scales rates"], parts: int
) -> Int[np.ndarray, "scales strips"]:
    """The place of the phase in each strip of each cell; -1 where a cell has no run."""
    ends = np.cumsum(shares, axis=0)[..., None]
    middles = (np.arange(parts) + 0.5) / parts
    places = (middles > ends + 1e-9).sum(axis=0)
    places = np.where(shares.sum(axis=0)[..., None] > 0, places, -1)
    places = np.where(places == shares.shape[0], -1, places)  # runs that are missing
    return places.reshape(shares.shape[1], -1)


def _edges(values: Float[np.ndarray, " cells"]) -> Float[np.ndarray, " edges"]:
    """Between the values, and as far beyond the outer ones; by ratios where they are even."""
    if values.size == 1:
        return np.array([values[0] / 1.1, values[0] * 1.1])
    steps, ratios = np.diff(values), np.diff(np.log(np.maximum(values, 1e-300)))
    even = np.ptp(ratios) < np.ptp(steps) / max(float(steps.mean()), 1e-300) * ratios.mean()
    if values.min() > 0 and even:
        return np.exp(_edges_of(np.log(values)))
    return _edges_of(values)


def _edges_of(values: Float[np.ndarray, " cells"]) -> Float[np.ndarray, " edges"]:
    middles = (values[1:] + values[:-1]) / 2
    first, last = values[0] - (middles[0] - values[0]), values[-1] + (values[-1] - middles[-1])
    return np.concatenate([[first], middles, [last]])


def _draw_boundaries(axes: Axes, results: xr.Dataset, scale: str) -> None:
    low, high = axes.get_xlim()
    for name, (label, dashes) in _BOUNDARIES.items():
        if name not in results:
            continue
        bound = results[name]
        if scale in bound.dims:
            bound = bound.median([each for each in bound.dims if each != scale])
            lines = 2 / bound.values
        else:
            lines = np.full(results.sizes[scale], 2 / float(bound.median()))
        if np.any((low < lines) & (lines < high)):
            _line(axes, lines, _span(axes, results, scale), label, dashes)
    _draw_predicted(axes, results, scale)
    start = _start_sharpness(results)
    if start is None or scale not in start.dims:
        return
    # The median over starts; where all starts are flat it lies to the right of the picture.
    curve = 2 / start.median([each for each in start.dims if each != scale]).clip(min=1e-300)
    values = np.asarray(results[scale].values, float)
    if np.any((low < curve.values) & (curve.values < high)):
        _line(axes, curve.values, values, "2 / sharpness at the start", "-")


def _draw_predicted(axes: Axes, results: xr.Dataset, scale: str) -> None:
    """The median start's; where half of the starts meet the edge at no rate, it ends."""
    if "edge_learning_rate" not in results or scale not in results.edge_learning_rate.dims:
        return
    rates = results.edge_learning_rate.fillna(np.inf)
    middle = rates.median([each for each in rates.dims if each != scale]).values
    shown = np.isfinite(middle)
    if shown.any():
        values = np.asarray(results[scale].values, float)[shown]
        _line(axes, middle[shown], values, "descent meets the edge, predicted by the flow", _DOTTED)


def _span(axes: Axes, results: xr.Dataset, scale: str) -> Float[np.ndarray, " cells"]:
    """Scales from the lower to the upper border of the picture."""
    values = np.asarray(results[scale].values, float).copy()
    values[0], values[-1] = axes.get_ylim()
    return values


def _line(axes: Axes, x: np.ndarray, y: np.ndarray, label: str, dashes: Any) -> None:
    axes.plot(x, y, color="white", linewidth=3.4, alpha=0.85, solid_capstyle="round")
    axes.plot(x, y, color="0.1", linewidth=1.5, linestyle=dashes, label=label)


def _start_sharpness(results: xr.Dataset) -> xr.DataArray | None:
    if "initial_sharpness" in results:
        return results.initial_sharpness
    if "sharpness" in results and "record" in results.sharpness.dims:
        return results.sharpness.isel(record=0)
    return None


def _explain(axes: Axes, scale: str, parts: int, found: list[str], missing: bool) -> None:
    divided = f"; each cell is divided among its {parts} runs" if parts > 1 else ""
    axes.set_title(f"Outcome of gradient descent{divided}")
    axes.set_xlabel(r"learning rate $\eta$")
    axes.set_ylabel("start scale" if scale == "scale" else scale.replace("_", " "))
    patches: list[Any] = [
        Patch(facecolor=_COLOURS.get(name, _UNKNOWN), label=name.replace("_", " "))
        for name in found
    ]
    if missing:
        patches.append(Patch(facecolor="white", edgecolor="0.6", label="no run"))
    lines, labels = axes.get_legend_handles_labels()
    figure = axes.figure
    figure.legend(
        patches + lines, [patch.get_label() for patch in patches] + labels,
        loc="outside lower center", ncols=3, fontsize=8.5, handlelength=2.2, columnspacing=1.6,
    )  # fmt: skip
