"""Figures 3c and 3d of marion2024: two runs from one residual start."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr
from typing_extensions import override

from thalweg.studies import marion2024_drawing as drawing
from thalweg.studies.marion2024_common import Place, authors_readout, residual_network
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
    "paper": Expected(56.604, 30.9716, late_mean=20.29),
    "later": Expected(40.767, 30.4703, late_mean=20.64),
}


class ResidualTraces(AbstractStudy):
    """A run that settles below the edge of stability, and one that enters it."""

    name: ClassVar[str] = "marion2024-fig3cd"
    title: ClassVar[str] = "residual starts: two runs, below and at the edge of stability"
    figures: ClassVar[tuple[str, ...]] = ("3c", "3d")
    revision: ClassVar[int] = 2
    protocol: ClassVar[str] = """
The network and the data of figure 3, one start with scale 0.5, 400 steps at the learning rates 0.02
(figure 3c) and 0.1 (figure 3d), looked at every five steps. The authors' later code does the same
with another teacher; both versions are run, and the pictures show the paper's. Data, direction and
starts are the authors' own numbers; training is in double precision. The sharpness is an eigenvalue
with a proven error, and at every 25th step it is computed once more from the whole Hessian.

Some findings compare with numbers that were computed apart from this package, with the authors'
keys and in their single precision. They are given to four to six digits, and the limits are wider
than those: 0.01 % for the start, 0.1 % for the end at 0.02, and 0.5 % for the mean of the last 100
steps at 0.1, where an oscillation could have made more of the rounding of single precision.
"""
    comparison: ClassVar[str] = """
* Figure 3c, "the network does not enter edge of stability": the sharpness begins at 56.6, below
  2/η = 100, is at 31.3 after five steps, rises to 32.0 and falls to 31.0; the distance falls to
  rounding. There is no progressive sharpening from this start, and the paper's Appendix D makes
  no statement on monotonicity.
* Figure 3d, "the network enters edge of stability": the start is at 2.8 times 2/η = 20. The
  sharpness falls at once, then jumps across 20 (77 crossings between 81 looks), with a mean of
  20.3 over the last 100 steps. The distance falls from 2.6 to 6.5e-4 at step 15, jumps back to
  0.075 at step 30, and decreases from there while it oscillates, to 0.008.
* The upper dotted line of figure 1 is for small starts, so there is only the lower one here, as
  in the paper.
* The runs are the authors' own: the sharpness at the start (56.604), at the end at 0.02 (30.972)
  and the mean at 0.1 (20.29) agree with a separate computation with their keys. With the later
  code's data the sharpness goes from 40.77 to 30.47 at 0.02, and has a mean of 20.64 at 0.1.
"""

    versions: tuple[Version, ...]

    @classmethod
    @override
    def of_size(cls, size: Size) -> "ResidualTraces":
        paper, later = Version("paper", 0.5, 400), Version("later", 0.5, 400)
        return cls((paper, later) if size is Size.FULL else (paper,))

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        network = residual_network(authors_readout())
        return traces(self.versions, Place.RESIDUAL_TRACE, network, parts, progress)

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        return [
            each
            for version in self.versions
            for each in findings(results, version, _EXPECTED[version.name], figure=3)
        ]

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        paper = made(results, self.versions[0])
        lower = float(paper.paper_sharpness_bound)
        letters = ("c", "d")
        return {
            f"fig3{letter}": drawing.trace(
                paper.sel(learning_rate=rate),
                rf"One run from a residual start, scale 0.5, $\eta$ = {rate:g} "
                f"(marion2024, fig. 3{letter})",
                [(lower, rf"Theorem 1: $2L\lambda$ = {lower:.2f}")],
            )
            for letter, rate in zip(letters, RATES, strict=True)
        }
