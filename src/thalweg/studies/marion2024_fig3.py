"""Figures 3a, 3b and 4 of marion2024: residual starts over learning rates and scales."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from typing_extensions import override

from thalweg.studies import marion2024_drawing as drawing
from thalweg.studies import marion2024_findings as found
from thalweg.studies.marion2024_common import (
    LATER_DATA,
    Place,
    Row,
    authors_bounds,
    authors_data,
    authors_objective,
    authors_readout,
    residual_network,
    sweep_starts,
)
from thalweg.studies.marion2024_sweep import Sweep, squared_distance
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size, Variant

TABLE = tuple(Row(rate, 4_000, 20) for rate in (0.005, 0.02, 0.07, 0.1, 0.2))
SCALES = tuple(float(scale) for scale in np.linspace(0.0, 1.7, 10))


class ResidualStarts(AbstractStudy):
    """The same as for Gaussian starts, from layers near the identity."""

    name: ClassVar[str] = "marion2024-fig3"
    title: ClassVar[str] = "residual starts: where training succeeds, how sharp it ends, divergence"
    figures: ClassVar[tuple[str, ...]] = ("3a", "3b", "4")
    variants: ClassVar[Mapping[str, Variant]] = {"later-data": LATER_DATA}
    revision: ClassVar[int] = 2
    protocol: ClassVar[str] = """
The data of figure 1. Ten 5 x 5 layers start as W_k = I + s / sqrt(L d) N_k with standard Gaussian
N_k, for ten scales s from 0 to 1.7, and are read along a random direction of unit norm that is not
trained and is the same in all runs. Learning rates 0.005, 0.02, 0.07, 0.1 and 0.2, each with 4,000
steps and 20 repetitions: 4 million network-steps.

Data, direction and starts are the authors', the starts to one or two units in the last place of
single precision, in which their scales are spaced: of 150 that were compared with those of their
program, 132 are equal to the bit. Training is in double precision. Distance (a squared norm; the
authors' code divides it by 5) and sharpness (an eigenvalue with a proven error, at the first
repetition's ends computed twice) are taken after the last step. A run has reached a minimiser where
its distance is below 1e-6.

The pictures show means and 95 % bootstrap intervals. Runs that diverge are left out of them, as in
the authors' code; a point is open where fewer than a quarter of the runs are left. Figure 3b has
the learning rates up to 0.07 only, also as in their code. Most findings are about medians. The one
at 0.2 is over the runs of all scales: training is chaotic there, so that rounding decides where a
single run ends. `--variant later-data` takes the teacher and noise of the authors' later code
instead; the inputs are the same.
"""
    comparison: ClassVar[str] = """
* Figure 3a: as in the paper the picture is that of figure 1a. 0.005, 0.02 and 0.07 reach the
  minimiser: the mean distances end between 6e-31 and 1.5e-19, the worst single run at 2.8e-18,
  and the medians below 4e-28 (the authors' single precision ends at 5e-13 to 5e-9). 0.1 ends
  between 5e-7 and 1.5e-3 in the mean, rising with s, and 0.2 learns at no scale (means of 0.24
  to 0.61) and diverges above s = 1. Distances begin at 2.4 and, in the mean, at 13 for s = 1.7.
* Figure 3b: "the sharpness at initialisation is better conditioned": its median grows from 46 to
  620 over all scales, a factor of 13, where that of Gaussian starts grows by 37,000. The mean,
  which is drawn, grows to 895. After training the mean is 31 to 146 at 0.005, 30 to 70 at 0.02,
  and 25.7 to 28.4 at 0.07, just below 2/η = 28.57. Every minimiser is above the dotted line of
  Theorem 1, by a factor of 2.0 and more.
* Unlike with Gaussian starts the smallest scale does not make the end independent of the
  learning rate: at s = 0 the start has sharpness 46, above 2/η for 0.07, which then ends flatter
  (25.7) than the smaller rates (30.1 and 30.9).
* Figure 4: at 0.005 nothing diverges; at 0.02 a fifth does at s = 1.7; at 0.07 and 0.1 the first
  runs do at s = 0.94 and most do at the largest scales; at 0.2 all runs do from s = 1.1 on. The
  curves are ordered by the learning rate but for one crossing: at s = 1.7 all 20 runs diverge at
  0.07, and 19 of 20 at 0.1.
* Few runs are behind the last points of figure 3a at 0.1 (one of 20 at s = 1.7) and at 0.2 (four
  of 20 at s = 0.94), which are drawn open.
* The authors' power iteration, stopped after 20 iterations, is below the sharpness of starts as
  often as above it, and up to 4 % below that of minimisers.
* The value at s = 0 depends on the random direction that the network is read along; it is the
  authors'.
"""

    rows: tuple[Row, ...]
    later_data: bool = False

    @classmethod
    @override
    def of_size(cls, size: Size) -> "ResidualStarts":
        if size is Size.FULL:
            return cls(TABLE)
        return cls(
            (Row(0.02, 2_000, 8), Row(0.07, 2_000, 8), Row(0.1, 2_000, 8), Row(0.2, 1_000, 8))
        )

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        network = residual_network(authors_readout())
        objective = authors_objective(authors_data(later=self.later_data), network)
        sweep = Sweep(
            objective,
            lambda row: sweep_starts(Place.RESIDUAL_SWEEP, TABLE, row, SCALES, network),
            self.rows,
            SCALES,
            {"distance": squared_distance(objective)},
            compared=True,
        )
        return sweep.run(parts, progress).assign_attrs(authors_bounds(objective))

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        slowest = results.diverged.isel(learning_rate=0).mean("repetition")
        return [
            *found.learning(results, up_to_scale=1.0),
            *found.sharpness_of_minimisers(results, plateau_from=1.3),
            Finding(
                "median sharpness of starts: that of the largest scale over the smallest",
                found.start_sharpness_ratio(results),
                1.0,
                100.0,
                reported="less sensitive to the scale than with Gaussian starts",
            ),
            *found.divergence(results, surely=(0.2,)),
            Finding(
                "probability of divergence at the smallest learning rate, the largest of all "
                "scales",
                float(slowest.max(skipna=False)),
                0.0,
                0.5,
            ),
            found.exactness(results),
            found.complete(results, self.rows),
        ]

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        rates = [float(rate) for rate in results.learning_rate]
        lower = results.attrs["paper_sharpness_bound"]
        return {
            "fig3a": drawing.distance_over_scale(
                results, "Squared distance after training, residual starts (marion2024, fig. 3a)",
                rates,
            ),
            "fig3b": drawing.sharpness_over_scale(
                results, "Sharpness before and after training, residual starts (fig. 3b)",
                found.small_rates(results),
                [(lower, rf"Theorem 1: $2L\lambda$ = {lower:.2f}")],
            ),
            "fig4": drawing.divergence_over_scale(
                results, "Probability of divergence, residual starts (fig. 4)", rates
            ),
        }  # fmt: skip
