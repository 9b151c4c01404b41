"""The critical learning rate over depth, from the later code of marion2024's authors."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from typing_extensions import override

from thalweg.curvature import least_sharpness
from thalweg.dynamics import descend
from thalweg.figures.style import PALETTE, STYLE
from thalweg.studies.marion2024_common import (
    Place,
    Row,
    authors_bounds,
    authors_data,
    authors_objective,
    authors_readout,
    residual_network,
    sweep_starts,
)
from thalweg.studies.marion2024_drawing import MARKERS
from thalweg.studies.marion2024_sweep import mean_and_interval, nothing, squared_distance
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size

DEPTHS = (5, 10, 20, 40)
RATES = tuple(float(rate) for rate in np.logspace(-2, -0.3, 25))
TABLE = tuple(Row(rate, 1_000, 50) for rate in RATES)
SCALE = 0.25
GRID = RATES[1] / RATES[0]
LEARNT, FAILED = 1e-2, 5e-2


class CriticalRate(AbstractStudy):
    """From which learning rate on a residual network of some depth no longer learns."""

    name: ClassVar[str] = "marion2024-depth"
    title: ClassVar[str] = "the largest learning rate that learns, over depth"
    protocol: ClassVar[str] = """
Not in the paper's text, but in the authors' later code. Residual networks of depth 5, 10, 20 and 40
with 5 x 5 layers, scale 0.25, on the data of that code; 25 learning rates, evenly spaced in their
logarithms from 0.01 to 0.5; 1,000 steps, 50 repetitions, and for each depth another direction to
read along. Data, directions and starts are the authors' own numbers. The distance is the squared
norm after the last step; the authors' picture has its fifth, the mean over entries.
"""
    comparison: ClassVar[str] = """
* There is no figure in the paper's text; the authors' later code draws the distance over the
  learning rate with dashed lines at 2 / (2 A L), A = w*ᵀ Σ w*. The same is drawn here, with
  squared norms: their picture has a fifth of it, so that their limits -0.01 and 0.21 are -0.05
  and 1.05 here.
* At each depth the distance is nil up to the dashed line and rises behind it: the largest of the
  25 rates that learns is 0.88, 0.92, 0.95 and 0.99 times the predicted one at depth 5, 10, 20
  and 40, the grid's ratio being 1.18. It goes with depth to the power -0.94.
* The rise is not a jump: half of the runs are beyond 0.05 at 1.2 to 1.4 times the predicted
  rate, and nothing is learnt at about twice of it.
* Theorem 1's own S_min = 2 L λ would put the lines 1.56 times higher, where every depth has long
  failed.
"""

    depths: tuple[int, ...]
    repetitions: int

    @classmethod
    @override
    def of_size(cls, size: Size) -> "CriticalRate":
        return cls(DEPTHS, 50) if size is Size.FULL else cls((5, 10), 8)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        data, total = authors_data(later=True), sum(self.depths)
        done: list[xr.Dataset] = []
        for depth in self.depths:
            share = sum(int(part.depth[0]) for part in done) / total

            def update(steps: int, of: int, share: float = share, depth: int = depth) -> None:
                progress(f"depth {depth}", share + depth / total * steps / of)

            done.append(
                parts.get(
                    f"depth-{depth}",
                    lambda depth=depth, update=update: self._at_depth(data, depth, update),
                )
            )
        progress("done", 1.0)
        return xr.concat(
            done, "depth", data_vars="all", coords="minimal", compat="override", join="exact"
        )

    def _at_depth(self, data: Any, depth: int, progress: Any) -> xr.Dataset:
        place = Place.DEPTHS + 3 * DEPTHS.index(depth)
        network = residual_network(authors_readout(place + 1), depth)
        objective = authors_objective(data, network)
        rows = [
            sweep_starts(place + 2, TABLE, row._replace(repetitions=self.repetitions), (SCALE,),
                         network)
            for row in TABLE
        ]  # fmt: skip
        starts = tuple(np.stack(layers)[:, :, 0] for layers in zip(*rows, strict=True))
        run = descend(
            objective, starts, learning_rate=np.array(RATES)[:, None], steps=TABLE[0].steps,
            record_every=TABLE[0].steps, observe=nothing, progress=progress,
        )  # fmt: skip
        diverged = run.divergence_step >= 0
        distance = np.asarray(jax.jit(jax.vmap(jax.vmap(squared_distance(objective))))(run.final))
        bounds, dimensions = authors_bounds(objective), ("learning_rate", "repetition")
        part = xr.Dataset(
            {
                "final_distance": (dimensions, np.where(diverged, np.nan, distance)),
                "diverged": (dimensions, diverged.astype(float)),
                "predicted": 2 / bounds["bound_moment"],
                "predicted_exact": 2 / float(least_sharpness(objective).sharpness),
                "predicted_paper": 2 / bounds["bound_paper"],
            },
            {"learning_rate": list(RATES)},
        )
        return part.expand_dims(depth=[depth])

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        learnt, failed = _transition(results)
        predicted = results.predicted
        return [
            *(
                Finding(
                    f"depth {depth}: largest learning rate that learns, over 1 / (A L)",
                    float((learnt / predicted).sel(depth=depth)),
                    GRID**-2,
                    GRID,
                )
                for depth in results.depth.values
            ),
            *(
                Finding(
                    f"depth {depth}: smallest learning rate that fails, over 1 / (A L)",
                    float((failed / predicted).sel(depth=depth)),
                    1.0,
                    GRID**3,
                )
                for depth in results.depth.values
            ),
            Finding(
                "exponent of depth in the largest learning rate that learns",
                _exponent(learnt),
                -1.1,
                -0.9,
                reported="the sharpness of minimisers grows linearly with depth",
            ),
            Finding(
                "smallest learning rate that fails over 2 / S_min of Theorem 1, the largest",
                float((failed / results.predicted_paper).max(skipna=False)),
                0.0,
                1.0,
                reported="no convergence as soon as η > 2 / S_min",
            ),
        ]

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, axes = plt.subplots(figsize=(6.4, 4.3), layout="constrained")
            for place, depth in enumerate(results.depth.values):
                _draw_depth(axes, results.sel(depth=depth), place)
            axes.set_xscale("log")
            axes.set_ylim(-0.05, 1.05)
            axes.set_xlabel("learning rate")
            axes.set_ylabel("squared distance to the optimal regressor")
            figure.suptitle(
                "Distance after 1,000 steps, residual starts; dashed: 2 / (2AL)",
                fontsize=10, x=0.01, ha="left",
            )  # fmt: skip
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8.5)
        return {"distance": figure}


def _draw_depth(axes: Axes, run: xr.Dataset, place: int) -> None:
    mean, low, high = mean_and_interval(run.final_distance)
    colour = PALETTE[place]
    axes.plot(
        mean.learning_rate, mean, color=colour, marker=MARKERS[place], markersize=4,
        label=f"depth {int(run.depth)}",
    )  # fmt: skip
    axes.fill_between(mean.learning_rate, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.axvline(float(run.predicted), color=colour, linestyle="--", linewidth=0.9)


def _transition(results: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """The largest rate up to which all learn, and the smallest that fails, at each depth.

    A run that diverged is as far away as can be.
    """
    far = results.final_distance.where(results.diverged == 0, np.inf)
    middle = far.median("repetition", skipna=False)
    learns = (middle < LEARNT).astype(int).cumprod("learning_rate").astype(bool)
    rate = results.learning_rate
    return rate.where(learns).max("learning_rate"), rate.where(middle > FAILED).min("learning_rate")


def _exponent(rates: xr.DataArray) -> float:
    """The slope of log rate over log depth."""
    if not np.isfinite(rates).all():
        return float("nan")
    return float(np.polyfit(np.log(rates.depth), np.log(rates), 1)[0])
