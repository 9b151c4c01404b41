"""Networks with GELU, from the later code of marion2024's authors."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._typing import Weights
from thalweg.network import Model
from thalweg.studies import marion2024_drawing as drawing
from thalweg.studies import marion2024_findings as found
from thalweg.studies.marion2024_common import (
    FEATURES,
    Place,
    Row,
    authors_bounds,
    authors_data,
    authors_objective,
    gaussian_network,
    sweep_starts,
)
from thalweg.studies.marion2024_sweep import Sweep
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size, Variant

TABLE = (Row(0.005, 160_000, 20), Row(0.02, 40_000, 20), Row(0.07, 16_000, 20))
REPETITIONS = (2, 4, 8)  # of the authors' 20
SCALES = tuple(float(scale) for scale in np.linspace(0.428, 0.7, 8))


FITTED = 1e-2
"""A loss below which a network counts as fitted; a constant zero has 0.97."""

ONE_IN_FIVE = 0.2
"""How many runs may go astray: at the edge of stability rounding decides which ones do."""


def gelu_network(
    weights: Weights, x: Float[Array, "samples features"]
) -> Float[Array, "samples outputs"]:
    """Fully connected, with GELU (its tanh approximation) after every layer but the last."""
    hidden = x
    for layer in weights[:-1]:
        hidden = jax.nn.gelu(hidden @ layer.T, approximate=True)
    return hidden @ weights[-1].T


class Gelu(AbstractStudy):
    """What remains of the linear picture where the network is not linear."""

    name: ClassVar[str] = "marion2024-gelu"
    title: ClassVar[str] = "GELU networks: sharpness after training"
    variants: ClassVar[Mapping[str, Variant]] = {
        "all-repetitions": Variant(
            "all of the authors' 20 repetitions are done", {"all_repetitions": True}
        )
    }
    protocol: ClassVar[str] = """
Not in the paper's text, but in the authors' later code. The network of figure 1 with GELU (tanh
approximation) after every layer but the last, on data without noise; Gaussian starts with eight
scales from 0.428 to 0.7. Learning rates and steps: 0.005 / 160,000, 0.02 / 40,000, 0.07 / 16,000.
The authors do 20 repetitions each; here the first two, four and eight of them are done, for all
(`--variant all-repetitions`) take more than 20 minutes of computation, most of it at 0.005. These
are too few for means, so that the picture shows every run. A network is *fitted* if its loss is
below 0.01; starts have 0.8 and more, and a constant zero has 0.97.

Data and starts are the authors', the latter to a unit or two in the last place of single precision,
in which their scales are spaced; training is in double precision, and the sharpness, after the last
step, is an eigenvalue of the whole Hessian. The dotted lines are the bounds for the linear network,
as in the authors' picture; nothing is proven here. The authors' code also draws a distance, of the
product of the layers without GELU, which means nothing and is left out.
"""
    comparison: ClassVar[str] = """
* There is no figure in the paper's text; the authors' later code draws the sharpness as in
  figure 1b, with the bounds of linear networks dotted. The same is drawn here, run by run.
* 105 of 112 networks are fitted, with losses of 4.5e-6 to 3.7e-3. Two are dead (below). Five
  others are not fitted: one at 0.02 and scale 0.7 (loss 0.27), and four at 0.07, at scale 0.66
  (0.11) and 0.7 (0.09, 0.78 and 0.85).
* As with linear networks the sharpness stops at 2/η: of the fitted networks 40 of 59 end within
  5 % of it or above at learning rate 0.07 (from scale 0.58 on the medians are 28.3 to 29.0 of
  28.6), 11 of 30 at 0.02, and 7 of 16 at 0.005. One of all 105 is more than a tenth above 2/η,
  with 44 at 0.07.
* On the whole it is larger at large scales, but it does not rise from each scale to the next:
  the medians at 0.005, of two runs each, are 17, 296, 57, 247, 242, 231, 396 and 317.
* Unlike with linear networks the end from the smallest scales is not independent of the learning
  rate (medians of 17, 48 and 25 at scale 0.428), and single runs with the same scale and rate
  differ by up to a factor of 11: there are many minimisers, and training is not finished.
* The lower bound of linear networks does not carry over: 14 of 112 runs end below 2 L A = 19.35,
  all of them fitted, the flattest at 9.3.
* Which runs go astray is decided by rounding, for training at the edge of stability is chaotic.
  The eight runs of the first repetition at 0.07 were done twelve times, with starts changed by
  1e-14 of themselves: in five of the twelve, one network ends more than a tenth above 2/η, in
  three one is not fitted, and the median from scale 0.58 on is 1.006 to 1.038 of 2/η. Findings of
  single runs therefore leave room for one in five; before this was measured, it was 5 %.
* Two of 112 runs, at scales 0.66 and 0.7, are thrown so far out that every unit is dead: the
  output is zero, the loss 0.97, and the sharpness 1e40 and 1e166. In the authors' single
  precision that is infinite, and they are counted as diverged here and not drawn.
"""

    rows: tuple[Row, ...]
    all_repetitions: bool = False

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Gelu":
        if size is Size.FULL:
            pairs = zip(TABLE, REPETITIONS, strict=True)
            return cls(tuple(row._replace(repetitions=count) for row, count in pairs))
        return cls((Row(0.07, 16_000, 2),))

    @property
    def _rows(self) -> tuple[Row, ...]:
        if not self.all_repetitions:
            return self.rows
        authors = {row.learning_rate: row.repetitions for row in TABLE}
        return tuple(row._replace(repetitions=authors[row.learning_rate]) for row in self.rows)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        data, linear = authors_data(noise=0.0, later=True), gaussian_network()
        network = Model(gelu_network, linear.shapes, FEATURES, 1)
        sweep = Sweep(
            authors_objective(data, network),
            lambda row: sweep_starts(Place.GAUSSIAN_SWEEP, TABLE, row, SCALES, network),
            self._rows,
            SCALES,
            {},
            together=2,
        )
        bounds = authors_bounds(authors_objective(data, linear))
        return sweep.run(parts, progress).assign_attrs(bounds)

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        complete = found.complete(results, self._rows)
        results = _without_dead(results)
        sharpness = results.final_sharpness.where(results.final_loss < FITTED)
        relative = sharpness * results.learning_rate / 2
        wide = relative.sel(learning_rate=0.07, scale=slice(0.58, None))
        return [
            Finding(
                "median sharpness of fitted networks over 2/η at learning rate 0.07, scales from "
                "0.58 on",
                float(wide.median()),
                0.9,
                1.1,
            ),
            Finding(
                "share of fitted networks whose sharpness is more than a tenth above 2/η",
                float((relative > 1.1).where(relative > 0).mean()),
                0.0,
                ONE_IN_FIVE,
            ),
            Finding(
                "smallest sharpness of a fitted network, over the linear networks' bound 2LA, "
                "which does not hold here",
                float((sharpness / results.attrs["moment_sharpness_bound"]).min()),
                0.3,
                1.0,
            ),
            Finding(
                "share of runs that diverge or die",
                float(results.diverged.mean()),
                0.0,
                ONE_IN_FIVE,
            ),
            Finding(
                "share of all networks that are fitted",
                float((results.final_loss < FITTED).where(results.diverged.notnull()).mean()),
                1 - ONE_IN_FIVE,
                1.0,
            ),
            complete,
        ]

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        results = _without_dead(results)
        lower, upper = results.attrs["moment_sharpness_bound"], results.attrs["greatest_sharpness"]
        return {
            "sharpness": drawing.sharpness_of_runs(
                results,
                "Sharpness before and after training, GELU networks\n"
                rf"(dotted: bounds of linear networks, $2LA$ = {lower:.2f} and $8L\Lambda$ = "
                rf"{upper:.1f})",
                results.final_loss < FITTED,
                (lower, upper),
                limits=(3e-3, 3e4),
            ),
        }


def _without_dead(results: xr.Dataset) -> xr.Dataset:
    """The results, with runs that ended beyond single precision counted as diverged.

    Where a step throws all units to the flat side of GELU the gradient vanishes: the run stays
    where it is, with a finite loss, and never becomes NaN.
    """
    dead = results.final_sharpness > float(np.finfo(np.float32).max)
    return results.assign(
        diverged=results.diverged.where(~dead, 1.0),
        final_loss=results.final_loss.where(~dead),
        final_sharpness=results.final_sharpness.where(~dead),
    )
