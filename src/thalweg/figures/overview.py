"""Descent next to the flow in one picture: loss, sharpness and distance over time."""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thalweg.experiment.folders import IN_OVERVIEW
from thalweg.figures.curves import Draw, handles_by_label, is_shared, picture, time_axis
from thalweg.figures.distance import draw_distance
from thalweg.figures.edges import draw_oscillation
from thalweg.figures.kinks import draw_crossings, draw_ridge_distance, draw_sliding
from thalweg.figures.loss import draw_loss
from thalweg.figures.quantity import drawer
from thalweg.figures.spectrum import draw_sharpness, draw_smallest_eigenvalue
from thalweg.figures.style import STYLE
from thalweg.quantities import QUANTITIES


def pictures(results: xr.Dataset) -> dict[str, Figure]:
    """Every picture that these results have the numbers for, one panel each."""
    return {name: picture(results, draw) for name, draw in _drawn(results).items()}


def picture_names(results: xr.Dataset) -> tuple[str, ...]:
    """The names of these pictures, and of the overview."""
    return (*_drawn(results), "overview")


def picture_of(results: xr.Dataset, name: str) -> Figure:
    """One of them."""
    return overview(results) if name == "overview" else picture(results, _drawn(results)[name])


def overview(results: xr.Dataset) -> Figure:
    """Loss, sharpness and distance below each other, on one axis of time."""
    drawn = _drawn(results)
    chosen = [drawn[name] for name in IN_OVERVIEW if name in drawn]
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            len(chosen), 1, figsize=(7.2, 0.8 + 2.6 * len(chosen)), sharex=True,
            layout="constrained", squeeze=False,
        )  # fmt: skip
        for axes, draw in zip(panels[:, 0], chosen, strict=True):
            draw(axes, results)
            _small_legend(axes)
        time_axis(panels[-1, 0], results)
        found = handles_by_label(*panels[:, 0])
        handles = [handle for label, handle in found.items() if is_shared(label)]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)))
        figure.suptitle(_headline(results), fontsize=10.5, x=0.01, ha="left")
    return figure


def _drawn(results: xr.Dataset) -> dict[str, Draw]:
    """By name, in the order of a report; without those that have nothing to show."""
    drawn = _SPECIAL | {
        name: drawer(quantity)
        for name, quantity in QUANTITIES.items()
        if quantity.measure is not None and name != "excess"  # which is the loss's own picture
    }
    proven = bool((results.proven_until > 0).any())
    return {
        name: draw
        for name, draw in drawn.items()
        if name in results
        and (bool(np.isfinite(results[name]).any()) or (name == "distance" and proven))
    }


_SPECIAL: dict[str, Draw] = {
    "loss": draw_loss,
    "distance": draw_distance,
    "central_swing": draw_oscillation,
    "flow_crossings": draw_crossings,
    "flow_sliding": draw_sliding,
    "flow_ridge_distance": draw_ridge_distance,
    "sharpness": draw_sharpness,
    "smallest_eigenvalue": draw_smallest_eigenvalue,
}
"""Pictures that show more than one quantity."""


def _small_legend(axes: Axes) -> None:
    """What a panel shows besides the runs and the flow."""
    others = [each for label, each in handles_by_label(axes).items() if not is_shared(label)]
    if others:
        axes.legend(
            handles=others, loc="best", fontsize=8, frameon=True, framealpha=0.85, edgecolor="none"
        )


def _headline(results: xr.Dataset) -> str:
    facts = results.attrs
    if "network" not in facts:
        return (
            "Gradient descent next to the gradient flow, from one start\n"
            f"a model of one's own with {facts['weights']} weights"
        )
    data = (
        f"a target of {facts['outputs']} x {facts['features']}"
        if facts["problem"] == "TargetMatrix"
        else f"{facts['samples']} samples with {facts['features']} features"
    )
    return (
        "Gradient descent next to the gradient flow, from one start\n"
        f"{facts['network']} network of depth {facts['depth']} on {data}"
    )
