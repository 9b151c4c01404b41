"""Figures 1a, 1b and 2 of marion2024: Gaussian starts over learning rates and scales."""

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
    gaussian_network,
    sweep_starts,
)
from thalweg.studies.marion2024_sweep import Sweep, squared_distance
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size, Variant

TABLE = (
    Row(0.005, 40_000, 20),
    Row(0.02, 10_000, 20),
    Row(0.07, 4_000, 20),
    Row(0.1, 4_000, 20),
    Row(0.2, 2_000, 80),
)
SCALES = tuple(float(scale) for scale in np.linspace(0.25, 0.6, 10))


class GaussianStarts(AbstractStudy):
    """Where training succeeds, how sharp its minimiser is, and where it diverges."""

    name: ClassVar[str] = "marion2024-fig1"
    title: ClassVar[str] = "Gaussian starts: where training succeeds, how sharp it ends, divergence"
    figures: ClassVar[tuple[str, ...]] = ("1a", "1b", "2")
    variants: ClassVar[Mapping[str, Variant]] = {"later-data": LATER_DATA}
    revision: ClassVar[int] = 2
    protocol: ClassVar[str] = """
A linear network of depth 10 (nine 5 x 5 layers and one output) is trained by gradient descent on
the mean squared error of a regression with 50 samples and 5 features whose solution has unit norm.
All entries of the start are N(0, scale²), for ten scales from 0.25 to 0.6. Learning rates, steps
and repetitions: 0.005 / 40,000 / 20, 0.02 / 10,000 / 20, 0.07 / 4,000 / 20, 0.1 / 4,000 / 20,
0.2 / 2,000 / 80, together 13.2 million network-steps.

Data and starts are the authors': the random stream of the JAX of that time, their chain of keys,
single-precision draws. As their scales are spaced in single precision, the starts are theirs to one
or two units in its last place; of 150 that were compared with those of their program, 71 are equal
to the bit. Everything after that is in double precision. The distance is the squared norm, as the
text says (the authors' code divides it by 5), and is taken after the last step, as is the sharpness
(their code: four steps earlier). The sharpness is the largest eigenvalue of the Hessian, with a
proven error; that of the first repetition's ends is computed twice, the second time from the whole
Hessian. A run has reached a minimiser where its distance is below 1e-6.

The pictures show means and 95 % bootstrap intervals. Runs that diverge are left out of them, as in
the authors' code; a point is open where fewer than a quarter of the runs are left. Figure 1b has
the learning rates up to 0.07 only, also as in their code. Most findings are about medians, which
single runs do not move. The one at 0.2 is over the runs of all scales: training is chaotic there,
so that rounding decides where a single run ends, and what is left at large scales is a choice of
lucky runs. `--variant later-data` takes the teacher and noise of the authors' later code instead;
the inputs are the same.
"""
    comparison: ClassVar[str] = """
* Figure 1a, "training succeeds when the learning rate is lower than a critical value independent
  of the initialisation scale": as in the paper, 0.005, 0.02 and 0.07 reach the minimiser at
  every scale at which runs survive, and 0.2 never learns: the mean distance ends between 0.45
  and 0.60. It begins at about 1 up to scale 0.37 and higher from there on, at 2.0 at scale 0.44
  and at 221 at 0.6. At 0.1, which the text counts as a success, the mean distance ends between
  0.0008 and 0.0043: runs stay near the minimiser without settling, at the edge of stability.
* The mean distances of the successful rates end between 6e-31 and 1.1e-9, where the authors'
  single precision ends at 5e-13 to 5e-9, by the learning rate. The mean at 0.07 rises with the
  scale because some runs are still settling after 4,000 steps at the edge of stability; the
  medians are below 2e-13.
* "2 / S_min = 0.2": with the authors' data it is 0.1674, which is 0.2 to one digit. The stronger
  bound, 19.32, gives 0.1035. Between 0.1 and 0.2 nothing is run here. The study thalweg-critical
  searches the largest rate that trains, with the later code's data, and finds it within 10 % of
  2 / least sharpness, to which the sharper bound is close.
* Figure 1b: at the smallest scale the median sharpness after training is 21.8, 21.8 and 21.6 for
  the three learning rates ("independent of the learning rate"). That is 1.82 times S_min = 11.95,
  to which the paper calls it relatively close. Most of that factor is in the bound: balanced
  minimisers, the limit of vanishing scales, have 19.39, and the ends are 12 % above it.
* The mean sharpness rises with the scale and stops at 2/η = 28.57 for 0.07 (27.8 at scale 0.37,
  28.4 to 28.5 from 0.41 on). At 0.02 it comes to 88.7 of 100 before all runs diverge, with single
  runs up to 98.7; at 0.005 to 223 of 400, with single runs up to 395.8. The mean sharpness of
  starts grows from 0.17 to 16,650; a run that began at 29 times 2/η has reached a minimiser.
* Few runs are behind the last points of most curves: 3 of 20 at 0.005 (scale 0.6), 4 of 20 at
  0.02 (0.56) and 0.07 (0.52), 3 and 1 of 20 at 0.1 (0.52 and 0.56), 19 and 8 of 80 at 0.2 (0.44
  and 0.48). They are the ones that are drawn open.
* The upper dotted line is at 8 L Λ = 127.5, as Corollary 3 says. The authors' code of that time
  takes the smallest eigenvalue there, which puts the line of the printed figure at 47.8.
* Figure 2: no divergence at scale 0.25, all runs diverge at 0.6 from learning rate 0.02 on, and
  85 % at 0.005. The curves are ordered by the learning rate but for one crossing: at scale 0.56
  all 20 runs diverge at 0.07, and 19 of 20 at 0.1.
* The authors' power iteration converges to the eigenvalue of largest modulus, which at 13.5 % of
  the starts is the most negative one, and it is stopped after 20 iterations. At starts it is below
  the sharpness as often as above it, by up to 9 %; at minimisers both agree.
* The text does not give the scales, nor (as printed) the repetitions at 0.2; they are the
  code's.
"""

    rows: tuple[Row, ...]
    later_data: bool = False

    @classmethod
    @override
    def of_size(cls, size: Size) -> "GaussianStarts":
        if size is Size.FULL:
            return cls(TABLE)
        return cls((Row(0.02, 2_000, 8), Row(0.07, 2_000, 8), Row(0.1, 2_000, 8), Row(0.2, 500, 8)))

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        objective = authors_objective(authors_data(later=self.later_data), gaussian_network())
        sweep = Sweep(
            objective,
            lambda row: sweep_starts(Place.GAUSSIAN_SWEEP, TABLE, row, SCALES, objective.network),
            self.rows,
            SCALES,
            {"distance": squared_distance(objective)},
            compared=True,
        )
        return sweep.run(parts, progress).assign_attrs(authors_bounds(objective))

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        return [
            *found.learning(results, up_to_scale=0.41),
            *found.smallest_scale(results),
            *found.sharpness_of_minimisers(results, plateau_from=0.4),
            Finding(
                "median sharpness of starts: that of the largest scale over the smallest",
                found.start_sharpness_ratio(results),
                least=1e3,
                reported="large scales: initial sharpness well over 2/η",
            ),
            *found.divergence(results, surely=(0.02, 0.07, 0.1, 0.2)),
            found.exactness(results),
            found.complete(results, self.rows),
        ]

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        rates = [float(rate) for rate in results.learning_rate]
        lower, upper = results.attrs["paper_sharpness_bound"], results.attrs["greatest_sharpness"]
        return {
            "fig1a": drawing.distance_over_scale(
                results, "Squared distance after training, Gaussian starts (marion2024, fig. 1a)",
                rates,
            ),
            "fig1b": drawing.sharpness_over_scale(
                results, "Sharpness before and after training, Gaussian starts (fig. 1b)",
                found.small_rates(results),
                [
                    (lower, rf"Theorem 1: $2L\lambda$ = {lower:.2f}"),
                    (upper, rf"Corollary 3: $8L\Lambda$ = {upper:.1f}"),
                ],
            ),
            "fig2": drawing.divergence_over_scale(
                results, "Probability of divergence, Gaussian starts (fig. 2)", rates
            ),
        }  # fmt: skip
