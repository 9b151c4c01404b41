"""Figures 1c and 1d of marion2024: two runs from one Gaussian start."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr
from typing_extensions import override

from thalweg.studies import marion2024_drawing as drawing
from thalweg.studies.marion2024_common import Place, gaussian_network
from thalweg.studies.marion2024_traces import (
    RATES,
    Expected,
    Version,
    findings,
    made,
    traces,
)
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size

_EXPECTED = {
    "paper": Expected(0.37744, 23.39288, largest=34.88, final_distance=0.0114, at_a_tenth=155.0),
    "later": Expected(2.69933, 24.86934, largest=38.41, final_distance=0.0169),
}


class GaussianTraces(AbstractStudy):
    """A run that settles below the edge of stability, and one that enters it."""

    name: ClassVar[str] = "marion2024-fig1cd"
    title: ClassVar[str] = "Gaussian starts: two runs, below and at the edge of stability"
    figures: ClassVar[tuple[str, ...]] = ("1c", "1d")
    revision: ClassVar[int] = 2
    protocol: ClassVar[str] = """
The network and the data of figure 1, one start with scale 0.3, 400 steps at the learning rates 0.02
(figure 1c) and 0.1 (figure 1d), looked at every five steps. The authors' later code has scale 0.35,
450 steps, and another teacher; both versions are run, and the pictures show the paper's. Data and
starts are the authors' own numbers; training is in double precision. The sharpness is an eigenvalue
with a proven error, and at every 25th step it is computed once more from the whole Hessian.

Some findings compare with numbers that were computed apart from this package, with the authors'
keys and in their single precision. They are given to three to five digits, and the limits are those
digits: 0.01 % for the start, 0.1 % for the end at 0.02, and 0.5 % at 0.1, where an oscillation
could have made more of the rounding of single precision.
"""
    comparison: ClassVar[str] = """
* Figure 1c, "the network does not enter edge of stability": the distance falls slowly from 0.995
  to 0.93 at step 100, 0.81 at 120 and 0.63 at 130, is below a tenth by step 155, and ends at
  4e-15; the sharpness rises from 0.38 to 23.4, far below 2/η = 100 and at the end between the
  two dotted lines.
* Figure 1d, "the network enters edge of stability": the sharpness passes 2/η = 20 between steps
  30 and 35, goes up to 34.9 at step 50, and then jumps to and fro across 20 (73 crossings between
  81 looks), with a mean of 20.6 over the last 100 steps. The distance falls to 0.0012 at step
  40, jumps back to 0.067 at step 55, and decreases from there while it oscillates, to 0.011.
* Progressive sharpening: the paper's Appendix D makes no statement on the monotonicity of the
  sharpness, and it is not monotone. At 0.02 it first falls, from 0.37744 to 0.37691 within five
  steps, and rises at every look from then on. In the later code's run it falls from 2.70 to 1.64
  within 45 steps before it rises to 24.87, and by 0.0003 more after step 240.
* The runs are the authors' own, so the numbers can be compared one by one: the sharpness at the
  start (0.37744), at the end (23.393) and at its largest (34.88 at 0.1), the distance at the end
  (0.0114 at 0.1) and the step of a tenth of it (155 at 0.02) are those of a separate computation
  with their keys and precision, to all digits that it has. So single precision changes nothing
  that can be seen, also at the edge of stability; but the distance in figure 1c then stays above
  1e-13.
* The later code's runs (scale 0.35, 450 steps) show the same: 2.70 to 24.87 at 0.02, up to 38.4
  at 0.1, with a distance of 0.0169 at the end.
* The upper dotted line is at 8 L Λ = 127.5; the authors' code of that time draws it at 47.8.
"""

    versions: tuple[Version, ...]

    @classmethod
    @override
    def of_size(cls, size: Size) -> "GaussianTraces":
        paper, later = Version("paper", 0.3, 400), Version("later", 0.35, 450)
        return cls((paper, later) if size is Size.FULL else (paper,))

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        return traces(self.versions, Place.GAUSSIAN_TRACE, gaussian_network(), parts, progress)

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        return [
            each
            for version in self.versions
            for each in findings(results, version, _EXPECTED[version.name], figure=1)
        ]

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        paper = made(results, self.versions[0])
        lower, upper = float(paper.paper_sharpness_bound), float(paper.greatest_sharpness)
        bounds = [
            (lower, rf"Theorem 1: $2L\lambda$ = {lower:.2f}"),
            (upper, rf"Corollary 3: $8L\Lambda$ = {upper:.1f}"),
        ]
        letters = ("c", "d")
        return {
            f"fig1{letter}": drawing.trace(
                paper.sel(learning_rate=rate),
                rf"One run from a Gaussian start, scale 0.3, $\eta$ = {rate:g} "
                f"(marion2024, fig. 1{letter})",
                bounds,
            )
            for letter, rate in zip(letters, RATES, strict=True)
        }
