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
from thalweg.dynamics import descend, nothing
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
from thalweg.studies.marion2024_sweep import few, mean_and_interval, squared_distance
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

A learning rate *learns* if the median distance is below 0.01 at it and at all smaller ones, and
*fails* if the median is above 0.05, where a run that diverged counts as infinitely far away; in
between it does neither. The curves are means of the runs that did not diverge, with 95 % bootstrap
intervals, and have no points where those are fewer than a quarter.
"""
    comparison: ClassVar[str] = """
* There is no figure in the paper's text; the authors' later code draws the distance over the
  learning rate with dashed lines at 2 / (2 A L), A = w*ᵀ Σ w*. The same is drawn here, with
  squared norms: their picture has a fifth of it, so that their limits -0.01 and 0.21 are -0.05
  and 1.05 here.
* At each depth the distance is small up to the dashed line and rises behind it. At the last rate
  before the line the mean is 7e-11, 7e-6, 0.0008 and 0.0045 at depth 5, 10, 20 and 40; that rate
  is the largest of the 25 that learns, 0.88, 0.92, 0.95 and 0.99 times the predicted one, the
  grid's ratio being 1.18. It goes with depth to the power -0.94.
* The rise is not a jump: the first rate at which the median is above 0.05 is 1.2 to 1.6 times the
  predicted one, and at about twice of it a part is still learnt: the mean distance is 0.32 at
  1.83 times (depth 20), 0.40 at 1.91 (depth 40), 0.79 at 2.07 (depth 10) and 0.90 at 2.15 (depth
  20).
* Theorem 1's own S_min = 2 L λ would put the lines 1.56 times higher. At the rates next to that,
  1.43 to 1.62 times the prediction, the mean distance is 0.09 to 0.17: the median is above 0.05
  at every depth, but runs come nearer to the regressor than zero is.
* The first runs diverge at 1.7, 2.1, 2.5 and 3.1 times the predicted rate at depth 5, 10, 20 and
  40. The curve of depth 5 ends with 22 of 50 runs.
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
        diverged = run.diverged
        distance = np.asarray(jax.jit(jax.vmap(jax.vmap(squared_distance(objective))))(run.final))
        bounds, dimensions = authors_bounds(objective), ("learning_rate", "repetition")
        part = xr.Dataset(
            {
                "final_distance": (dimensions, np.where(diverged, np.nan, distance)),
                "diverged": (dimensions, diverged.astype(float)),
                "predicted": 2 / bounds["moment_sharpness_bound"],
                "predicted_exact": 2 / float(least_sharpness(objective).sharpness),
                "predicted_paper": 2 / bounds["paper_sharpness_bound"],
            },
            {"learning_rate": list(RATES)},
        )
        return part.expand_dims(depth=[depth])

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        learnt, failed = _transition(results)
        predicted = results.predicted
        # Either end may be one step of the grid off, and that tilts the line.
        slack = 0.02 + np.log(GRID) / np.log(results.depth.values[-1] / results.depth.values[0])
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
                -1 - slack,
                -1 + slack,
                reported="the sharpness of minimisers grows linearly with depth",
            ),
            # Of rates on a grid, the theorem speaks of the first above 2 / S_min.
            Finding(
                "smallest learning rate that fails over 2 / S_min of Theorem 1, the largest",
                float((failed / results.predicted_paper).max(skipna=False)),
                0.0,
                GRID,
                reported="no convergence as soon as η > 2 / S_min",
            ),
            self._complete(results),
        ]

    def _complete(self, results: xr.Dataset) -> Finding:
        """Whether each run has its distance, exactly where it did not diverge."""
        results = results.reindex(
            depth=list(self.depths), learning_rate=list(RATES),
            repetition=np.arange(self.repetitions),
        )  # fmt: skip
        known = results[["predicted", "predicted_exact", "predicted_paper"]]
        wrong = int((~results.diverged.isin([0.0, 1.0])).sum())
        wrong += int((np.isfinite(results.final_distance) != (results.diverged == 0)).sum())
        wrong += sum(int((~np.isfinite(values)).sum()) for values in known.values())
        statement = "numbers that are missing, and such of the end of runs that diverged"
        return Finding(statement, float(wrong), 0.0, 0.0)

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, axes = plt.subplots(figsize=(6.4, 4.3), layout="constrained")
            for place, depth in enumerate(results.depth.values):
                _draw_depth(axes, results.sel(depth=depth), place)
            axes.set_xscale("log")
            ticks = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set_ylim(-0.05, 1.05)
            axes.set_xlabel("learning rate")
            axes.set_ylabel("squared distance to the optimal regressor")
            axes.set_title(
                "mean and 95 % bootstrap interval of the runs that did not diverge; "
                "not drawn: fewer than a quarter", fontsize=8, color="0.25", loc="left",
            )  # fmt: skip
            figure.suptitle(
                "Distance after 1,000 steps, residual starts; dashed: 2 / (2AL)",
                fontsize=10, x=0.01, ha="left",
            )  # fmt: skip
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8.5)
        return {"distance": figure}


def _draw_depth(axes: Axes, run: xr.Dataset, place: int) -> None:
    enough = ~few(run.diverged)
    mean, low, high = (each.where(enough) for each in mean_and_interval(run.final_distance))
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
