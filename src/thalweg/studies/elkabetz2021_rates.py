"""Runs of one network that differ in their learning rate: how far apart they are, and what of it.

With theta^r the run at eta_0 / r, looked at every r-th iteration, the *drift* of r is
|theta^1 - theta^r|. As r grows theta^r comes to the flow; the flow itself is extrapolated from two
runs, and how far the extrapolation moves the finer one is reported beside as its error, which is
too much where runs approach the flow at first order. Runs at less than a fifth of the rate have no
say in that: in single precision their steps are too short for the last digit of many weights. At a
fifth this adds to the drift already, which is why first order is better looked for in double
precision, or early.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from thalweg._typing import Weights
from thalweg.dynamics.trajectory import Recorded
from thalweg.figures.style import PALETTE
from thalweg.objective import Objective
from thalweg.studies.elkabetz2021_common import (
    Motion,
    apart,
    extrapolated,
    from_start,
    long_descent,
)
from thalweg.studies.parts import Parts
from thalweg.studies.study import Finding, yes

_FINEST = 5  # the largest r whose drift is not one of rounding above all, in single precision
_COLOURS = {2: PALETTE[2], 5: PALETTE[1], 10: PALETTE[5], 20: PALETTE[3]}


@dataclass(frozen=True)
class Schedule:
    """Which rates are run, for how long, and how finely that is recorded and kept."""

    divisors: tuple[int, ...]
    iterations: int
    record_every: int
    piece: int

    @property
    def steps(self) -> int:
        """How many steps all runs take together."""
        return self.iterations * (1 + sum(self.divisors))


@dataclass(frozen=True)
class Reference:
    """What the authors' plots show, to .02: distance travelled and loss, by iteration."""

    travelled: dict[int, float]
    loss: dict[int, float]


@dataclass(frozen=True)
class Limits:
    """What is expected of a network.

    Attributes:
        drift: the largest drift at the end, as a part of the distance travelled.
        loss: the largest difference between the losses of two runs at equal times.
        spread: within which factor drift / (1 - 1 / r) may vary over r.
        halved: how far from one half the ratio of the distances of eta_0 / 2 and eta_0 may be.
    """

    drift: float
    loss: float
    spread: float
    halved: float


def run_all(
    parts: Parts,
    name: str,
    objective: Objective,
    start: Weights,
    schedule: Schedule,
    note: Callable[[int], None],
    *,
    every_layer: int = 1,
) -> dict[int, Motion]:
    """One run per rate; `every_layer` is 2 where every second array is a bias, to be left out."""
    runs: dict[int, Motion] = {}
    for divisor in (1, *schedule.divisors):
        run = long_descent(
            parts,
            f"{name}-{divisor}",
            objective,
            start,
            divisor=divisor,
            iterations=schedule.iterations,
            record_every=schedule.record_every,
            piece=schedule.piece,
            note=note,
        )
        runs[divisor] = Motion(run.weights[::every_layer], run.loss)
    return runs


def compared(runs: dict[int, Motion], schedule: Schedule) -> xr.Dataset:
    """The distances between runs, and to the flow that they point to."""
    coarse, fine = sorted(r for r in runs if r <= _FINEST)[-2:]
    flow = extrapolated(runs[coarse].weights, runs[fine].weights, (coarse, fine))
    axes = ("divisor", "iteration")
    base = runs[1].weights
    return xr.Dataset(
        {
            "loss": (axes, np.stack([run.loss for run in runs.values()])),
            "drift": (axes, np.stack([apart(base, run.weights) for run in runs.values()])),
            "to_flow": (axes, np.stack([apart(flow, run.weights) for run in runs.values()])),
            "travelled": ("iteration", from_start(base)),
            "one_unit": ("iteration", in_one_unit(runs[coarse].weights, runs[fine].weights)),
        },
        coords={
            "divisor": list(runs),
            "iteration": np.append(
                np.arange(0, schedule.iterations, schedule.record_every), schedule.iterations
            ),
        },
    )


def in_one_unit(one: Recorded, other: Recorded) -> Float[np.ndarray, " records"]:
    """The largest share of a squared distance that is in what goes into one unit, or one filter."""
    squares = [
        np.sum((np.asarray(a, float) - b).reshape(*a.shape[:2], -1) ** 2, axis=2)
        for a, b in zip(one, other, strict=True)
    ]
    total = np.sum([each.sum(axis=1) for each in squares], axis=0)
    largest = np.max([each.max(axis=1) for each in squares], axis=0)
    return np.divide(largest, total, out=np.zeros_like(total), where=total > 0)


# --- what is expected ----------------------------------------------------------------------------


def as_in_the_paper(results: xr.Dataset, precision: str, limits: Limits) -> list[Finding]:
    """What the paper says of a network."""
    name, last = _label(results, precision), results.isel(iteration=-1)
    drift = last.drift.where(last.divisor > 1, drop=True)
    highest, lowest = (
        getattr(results.loss, end)("divisor", skipna=False) for end in ("max", "min")
    )
    return [
        Finding(
            f"{name}: largest difference between two losses at equal times",
            float((highest - lowest).max(skipna=False)),
            0.0,
            limits.loss,
            "the curves lie on each other",
        ),
        Finding(
            f"{name}: drift of r = {int(drift.divisor[-1])} at the end over the distance travelled",
            float(drift[-1] / last.travelled),
            0.0,
            limits.drift,
            "the drift between runs is minor compared to the distance traveled",
        ),
        yes(f"{name}: the drift grows with r", bool((np.diff(drift.values) > 0).all()), "as drawn"),
    ]


def spread_of_drifts(
    results: xr.Dataset, precision: str, limits: Limits, at: int | None = None
) -> Finding:
    """How far drifts are from 1 - 1 / r, as they would be where runs differ by their rate alone."""
    last, when = _at(results, at)
    drift = last.drift.where((last.divisor > 1) & (last.divisor <= _FINEST), drop=True)
    saturated = drift / (1 - 1 / drift.divisor)
    return Finding(
        f"{_label(results, precision)}: drift / (1 - 1 / r), largest over smallest of r up to "
        f"{_FINEST}{when}",
        float(saturated.max(skipna=False) / saturated.min(skipna=False)),
        1.0,
        limits.spread,
    )


def _at(results: xr.Dataset, at: int | None) -> tuple[xr.Dataset, str]:
    """The results at an iteration, or at the end, and how that is said."""
    if at is None:
        return results.isel(iteration=-1), ""
    return results.sel(iteration=at), f", at iteration {at}"


def first_order(
    results: xr.Dataset, precision: str, limits: Limits, at: int | None = None
) -> list[Finding]:
    """What follows if descent is off its flow by an amount proportional to its rate.

    It is looked for at some iteration, or at the end.
    """
    last, when = _at(results, at)
    half = last.to_flow.sel(divisor=2) / last.to_flow.sel(divisor=1)
    return [
        spread_of_drifts(results, precision, limits, at),
        Finding(
            f"{_label(results, precision)}: half the rate over the rate, distances to the "
            f"extrapolated flow{when}",
            float(half),
            0.5 - limits.halved,
            0.5 + limits.halved,
        ),
    ]


def next_to_plots(results: xr.Dataset, reference: Reference, first: int = 1) -> list[Finding]:
    """How far the run is from the authors' plots, which began elsewhere, from some iteration on."""
    name = str(results.network.values)
    ways = {k: way for k, way in reference.travelled.items() if k >= first}
    losses = {k: loss for k, loss in reference.loss.items() if k >= first}
    travelled = results.travelled.sel(iteration=list(ways))
    off = np.abs(travelled / np.array(list(ways.values())) - 1)
    loss = results.loss.sel(divisor=1, iteration=list(losses))
    gap = np.abs(loss - np.array(list(losses.values())))
    return [
        Finding(
            f"{name}: distance travelled, largest relative difference to the authors' plot",
            float(off.max(skipna=False)),
            0.0,
            0.15,
            ", ".join(f"{way} at {k}" for k, way in ways.items()),
        ),
        Finding(
            f"{name}: loss, largest difference to the authors' plot",
            float(gap.max(skipna=False)),
            0.0,
            0.15,
            ", ".join(f"{loss} at {k}" for k, loss in losses.items()),
        ),
    ]


def _label(results: xr.Dataset, precision: str) -> str:
    return f"{results.network.values}, {precision} precision"


# --- how it is drawn -----------------------------------------------------------------------------


def draw_pair(axes: Any, results: xr.Dataset, reference: Reference | None) -> None:
    """The paper's pair of panels: loss, and distances, over iterations at eta_0."""
    left, right = axes
    for r in results.divisor.values:
        run = results.sel(divisor=r)
        label = r"$\eta_0$" if r == 1 else rf"$\eta_0/{r}$"
        style = {"color": "black", "linewidth": 2.4} if r == 1 else {"color": _COLOURS[int(r)]}
        left.plot(run.iteration, run.loss, label=label, **style)
        if r > 1:
            right.plot(run.iteration, run.drift, label=rf"$\eta_0$ to $\eta_0/{r}$", **style)
    right.plot(results.iteration, results.travelled, color="black", label="$\\eta_0$ to start")
    if reference is not None:
        style = {"linestyle": "none", "marker": "o", "fillstyle": "none", "color": "0.35"}
        left.plot(*_line(reference.loss), label="authors' plot", **style)
        right.plot(*_line(reference.travelled), **style)
    left.set_ylabel("training loss")
    right.set_ylabel("distance in weight space")
    for panel in axes:
        panel.set_xlabel(r"iterations at $\eta_0$")
        panel.set_ylim(bottom=0)
        panel.set_title(str(results.network.values))


def draw_distances(axes: Any, results: xr.Dataset, extrapolated: bool = True) -> None:
    """Drifts and distances on a logarithmic scale, which the paper does not show."""
    later = results.isel(iteration=slice(1, None))
    for r in later.divisor.values[1:]:
        drift = later.drift.sel(divisor=r)
        axes.plot(
            later.iteration, drift, color=_COLOURS[int(r)], label=rf"$\eta_0$ to $\eta_0/{r}$"
        )
    if extrapolated:
        finest = max(int(r) for r in later.divisor.values if r <= _FINEST)
        axes.plot(
            later.iteration, later.to_flow.sel(divisor=1), color="black", linestyle="--",
            label=r"$\eta_0$ to the extrapolated flow",
        )  # fmt: skip
        axes.plot(
            later.iteration, later.to_flow.sel(divisor=finest), color="0.5", linestyle=":",
            label=rf"$\eta_0/{finest}$ to the extrapolated flow",
        )  # fmt: skip
    axes.plot(
        later.iteration, later.travelled, color="0.5", linewidth=0.8, label="distance travelled"
    )
    axes.set_yscale("log")
    axes.set_xlabel(r"iterations at $\eta_0$")
    axes.set_ylabel("distance in weight space")
    axes.set_title(str(results.network.values))


def draw_true_distances(axes: Any, results: xr.Dataset) -> None:
    """How far each run is from the flow, and how well the flow is known, on a logarithmic scale."""
    later = results.isel(iteration=slice(1, None))
    for r in later.divisor.values:
        label = r"$\eta_0$ to the flow" if r == 1 else rf"$\eta_0/{r}$ to the flow"
        style = {"color": "black" if r == 1 else _COLOURS[int(r)]}
        axes.plot(later.iteration, later.true_distance.sel(divisor=r), label=label, **style)
    axes.plot(
        later.iteration, later.flow_error, color="0.3", linestyle=":", label="error of the flow"
    )
    axes.plot(
        later.iteration, later.travelled, color="0.5", linewidth=0.8, label="distance travelled"
    )
    axes.set_yscale("log")
    axes.set_xlabel(r"iterations at $\eta_0$")
    axes.set_ylabel("distance in weight space")


def _line(points: dict[int, float]) -> tuple[list[int], list[float]]:
    return list(points), list(points.values())
