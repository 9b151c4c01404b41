"""Fewer samples than features, from the later code of marion2024's authors."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.stats import linregress
from typing_extensions import override

from thalweg._typing import Scalar, Weights
from thalweg.figures.style import PALETTE, STYLE
from thalweg.studies import marion2024_drawing as drawing
from thalweg.studies import marion2024_findings as found
from thalweg.studies.marion2024_common import (
    Place,
    Row,
    authors_bounds,
    authors_data,
    authors_objective,
    gaussian_network,
    sweep_starts,
)
from thalweg.studies.marion2024_sweep import Sweep, few
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size

TABLE = (Row(0.001, 40_000, 100), Row(0.004, 10_000, 20), Row(0.01, 4_000, 20))
SCALES = tuple(float(scale) for scale in np.linspace(0.1, 0.36, 9))
SAMPLES, FEATURES, DEPTH = 15, 20, 5
INTERPOLATES = 1e-3
"""A loss below which a network counts as interpolating; starts have 1.7 and more. From small scales
the direction in which the samples vary least is still being learnt after the last step."""


class Underdetermined(AbstractStudy):
    """How sharp the interpolators are, and how well flat ones generalise."""

    name: ClassVar[str] = "marion2024-underdetermined"
    title: ClassVar[str] = "fewer samples than features: sharpness and generalisation"
    protocol: ClassVar[str] = """
Not in the paper's text, but in the authors' later code. 15 samples with 20 features, a linear
network of depth 5 (four 20 x 20 layers and one output), Gaussian starts with nine scales from 0.1
to 0.36. Learning rates, steps and repetitions: 0.001 / 40,000 / 100, 0.004 / 10,000 / 20,
0.01 / 4,000 / 20, together 38.5 million network-steps. A network interpolates if its loss is below
0.001; the generalisation gap is the loss on 15 more samples minus the loss on the first 15, both
after the last step, and its logarithm is regressed on that of the sharpness for the smallest
learning rate, over all runs that did not diverge. All their gaps are positive. Data and starts are
the authors', the latter to a unit or two in the last place of single precision, in which their
scales are spaced; training is in double precision. The curves are means of the runs that did not
diverge, with 95 % bootstrap intervals; a point is open where they are fewer than a quarter.
"""
    comparison: ClassVar[str] = """
* There is no figure in the paper's text; the authors' later code draws the sharpness over the
  scale, with a dotted line at 2 L A, and the generalisation gap against the sharpness.
* 1,199 of the 1,260 runs do not diverge, and all of these interpolate, with losses up to 2.6e-4.
  The median at the smallest scale is still 4e-5 to 5e-5 after the last step, for the direction in
  which the samples vary least is learnt last; the sharpness does not notice it.
* Sharpness: as with more samples than features it ends near its least value from small starts
  (means of 20.4 to 20.5 at scale 0.1; balanced interpolators of least norm have 18.98), whatever
  the learning rate, and rises with the scale, to a mean of 1,102 at 0.001. At 0.004 and 0.01 it
  stays below 2/η, and most runs from the largest scales diverge: 3 of 20 are left at 0.004
  (scale 0.36), one at 0.01 (0.33). No interpolator is below the dotted line, which is proven
  only by the sharper bound here, for λ is zero and with it the bound of Theorem 1.
* Generalisation: flat interpolators generalise better. The median gap at 0.001 grows from 0.36 to
  2.2, close to the 0.33 of the solution of least norm at the smallest scale; the slope of the
  logarithms is 0.42 with R² = 0.53, over 899 of 900 runs.
* The authors' regression tests for a *negative* slope, so that its p-value is 1. That follows
  from the slope, and is no finding of its own.
* The product of the layers is not the solution of least norm (the median of its norm at 0.001
  grows from 1.007 to 1.75), so that the authors' picture of the distance to it has no meaning
  here and is left out.
"""

    rows: tuple[Row, ...]

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Underdetermined":
        if size is Size.FULL:
            return cls(TABLE)
        return cls((Row(0.004, 10_000, 11), Row(0.01, 4_000, 11)))

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        data = authors_data(
            Place.UNDERDETERMINED_DATA, samples=SAMPLES, features=FEATURES, later=True
        )
        network = gaussian_network(FEATURES, DEPTH)
        objective = authors_objective(data, network)

        def test_loss(weights: Weights) -> Scalar:
            outputs = network(weights, jnp.asarray(data.test_x))[:, 0]
            return jnp.mean((outputs - data.test_y) ** 2)

        def norm(weights: Weights) -> Scalar:
            return jnp.linalg.norm(network.end_to_end(weights))

        sweep = Sweep(
            objective,
            lambda row: sweep_starts(Place.UNDERDETERMINED_SWEEP, TABLE, row, SCALES, network),
            self.rows,
            SCALES,
            {"test_loss": test_loss, "norm": norm},
            together=50,
        )
        solution = np.linalg.lstsq(data.x, data.y, rcond=None)[0]
        at_solution = float(np.mean((data.test_x @ solution - data.test_y) ** 2))
        known = authors_bounds(objective) | {"test_loss_of_least_norm": at_solution}
        return sweep.run(parts, progress).assign_attrs(known)

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        reached = results.final_sharpness.where(results.final_loss < INTERPOLATES)
        enough = ~few(results.diverged)
        slowest = found.medians(reached).where(enough).isel(learning_rate=0)
        gaps = found.medians(results.final_test_loss - results.final_loss)
        gaps = gaps.where(enough).isel(learning_rate=0)
        fit = _regression(results)
        relative = reached * reached.learning_rate / 2
        return [
            Finding(
                "sharpness of every interpolator reached, over 2LA, at least",
                float((reached / results.attrs["moment_sharpness_bound"]).min()),
                least=1.0,
            ),
            Finding(
                "the same over the sharper bound, which needs no invertible Σ",
                float((reached / results.attrs["sharper_sharpness_bound"]).min()),
                least=1.0 - 1e-6,
            ),
            Finding(
                "median sharpness at the smallest scale, over that of balanced interpolators of "
                "least norm",
                float(slowest[0] / results.attrs["balanced_sharpness"]),
                1.0,
                1.15,
            ),
            Finding(
                "median sharpness at the largest scale at which a quarter of the runs or more do "
                "not diverge, over the smallest scale, smallest learning rate",
                _growth(slowest),
                least=10.0,
            ),
            Finding(
                "sharpness of every interpolator reached, over 2/η, at most: some come near",
                float(relative.max()),
                0.8,
                1.02,
            ),
            Finding(
                "median generalisation gap at that scale over the smallest",
                _growth(gaps),
                least=2.0,
            ),
            Finding("slope of log gap on log sharpness", fit.slope, 0.3, 0.65),
            Finding("R² of that regression", fit.rvalue**2, 0.3, 0.75),
            Finding(
                "share of the runs that interpolate, of those that do not diverge",
                float((results.final_loss < INTERPOLATES).where(results.diverged == 0).mean()),
                0.95,
                1.0,
            ),
            found.complete(results, self.rows),
        ]

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        lower = results.attrs["moment_sharpness_bound"]
        return {
            "sharpness": drawing.sharpness_over_scale(
                results,
                "Sharpness before and after training, fewer samples than features",
                [float(rate) for rate in results.learning_rate],
                [(lower, rf"$2LA$ = {lower:.2f}")],
                limits=(1.0, 1e4),
            ),
            "generalisation": _scatter(results),
        }


def _growth(values: xr.DataArray) -> float:
    """The last value that is known over the first; NaN if that one is not known."""
    known = values.dropna("scale")
    return float(known[-1] / values[0]) if known.size else np.nan


def _points(results: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Sharpness and generalisation gap of the runs that did not diverge, smallest rate."""
    runs = results.isel(learning_rate=0)
    sharpness = runs.final_sharpness.values.ravel()
    gap = (runs.final_test_loss - runs.final_loss).values.ravel()
    kept = (runs.diverged == 0).values.ravel()
    return sharpness[kept], gap[kept]


class _Line(NamedTuple):
    """log10 gap = intercept + slope log10 sharpness."""

    slope: float
    intercept: float
    rvalue: float
    pvalue: float


def _regression(results: xr.Dataset) -> _Line:
    sharpness, gap = _points(results)
    if np.unique(sharpness).size < 3 or not (np.all(sharpness > 0) and np.all(gap > 0)):
        return _Line(np.nan, np.nan, np.nan, np.nan)
    fit: Any = linregress(np.log10(sharpness), np.log10(gap), alternative="less")
    return _Line(*(float(each) for each in (fit.slope, fit.intercept, fit.rvalue, fit.pvalue)))


def _scatter(results: xr.Dataset) -> Figure:
    sharpness, gap = _points(results)
    fit = _regression(results)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
        axes.scatter(sharpness, gap, s=9, color=PALETTE[0], alpha=0.45, linewidth=0)
        ends = np.array([sharpness.min(), sharpness.max()])
        axes.plot(
            ends, 10**fit.intercept * ends**fit.slope, color=PALETTE[3],
            label=f"slope {fit.slope:.3f}, R² = {fit.rvalue**2:.2f}",
        )  # fmt: skip
        axes.plot(
            results.attrs["balanced_sharpness"], results.attrs["test_loss_of_least_norm"], "*",
            color="black", markersize=10, label="balanced, of least norm", linestyle="none",
        )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("sharpness after training")
        axes.set_ylabel("generalisation gap")
        axes.legend(loc="upper left")
        rate = float(results.learning_rate[0])
        figure.suptitle(
            f"Generalisation against sharpness, learning rate {rate:g}",
            fontsize=10, x=0.01, ha="left",
        )  # fmt: skip
    return figure
