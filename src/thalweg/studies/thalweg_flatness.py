"""The sharpness of the minimiser found, over the scale of the start: from flow to edge."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from typing_extensions import override

from thalweg import data, initialisation
from thalweg._typing import Weights
from thalweg.curvature import (
    balanced_sharpness,
    minimiser_sharpness_bounds,
    small_start_sharpness_bounds,
    spectrum_along,
)
from thalweg.dynamics import descend, flow
from thalweg.dynamics.escape import escape
from thalweg.figures import PALETTE, STYLE, plain_log_ticks
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Regression
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size

_LEFT = 1e-2  # the norm of the gradient at which a plateau counts as left
_CONVERGED = 1e-6  # the excess loss below which a run has found a minimiser


class Flatness(AbstractStudy):
    """Where flow and descent end, for starts of many scales."""

    scales: tuple[float, ...]
    seeds: int
    rates: tuple[float, ...]
    time: float

    name: ClassVar[str] = "thalweg-flatness"
    title: ClassVar[str] = "how sharp the minimiser is, from the flow to the edge of stability"
    protocol: ClassVar[str] = """
Ten layers of width 5 with one output on 50 Gaussian samples (the set-up of marion2024, loss
without a half). Gaussian starts of many scales. Each is followed by its length (`escape`) until
the gradient has the norm 0.01, because a plateau would take up to 1e28 units of time; from there
both the flow and descents at several learning rates go on. The sharpness of where they end is
compared with the bound that holds for all minimisers, the limit S0 for starts that tend to zero,
marion2024's upper bound for small starts, and 2/eta.
"""
    comparison: ClassVar[str] = """
marion2024 prove that flows from small starts end at most 4 kappa times above the bound for all
minimisers, and show final sharpness over scales for three learning rates (fig. 1b). Seen here in
between and beyond: for small starts flow and descent end at S0, the sharpness of the balanced
minimiser, to a percent and less; the flow ends at sharper and sharper minimisers as the scale
grows, and descent follows it until it meets 2/eta, where it stays.
"""

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Flatness":
        if size is Size.QUICK:
            return cls((0.1, 0.45), 2, (0.02, 0.07), 60.0)
        scales = tuple(float(each) for each in np.round(np.geomspace(0.02, 0.5, 12), 4))
        return cls(scales, 12, (0.005, 0.02, 0.05, 0.07, 0.09), 200.0)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        objective = _objective()
        work = {
            f"scale-{scale}": partial(self._at_scale, objective, scale) for scale in self.scales
        }
        results = parts.gather("scale", work, progress)
        return results.assign(
            least=float(minimiser_sharpness_bounds(objective).stronger),
            small_start=float(balanced_sharpness(objective)),
            most=float(small_start_sharpness_bounds(objective).stronger),
        )

    def _at_scale(self, objective: Objective, scale: float) -> xr.Dataset:
        starts = [_past_the_plateau(objective, scale, seed) for seed in range(self.seeds)]
        ends = [flow(objective, start, time=self.time, method="implicit").final for start in starts]
        batch = tuple(np.stack(layers) for layers in zip(*starts, strict=True))
        found = [_sharpness_of(objective, tuple(map(np.stack, zip(*ends, strict=True))))]
        for rate in self.rates:
            run = descend(
                objective, batch, learning_rate=np.full(self.seeds, rate),
                steps=round(self.time / rate), record_every=round(self.time / rate),
            )  # fmt: skip
            found.append(_sharpness_of(objective, run.final))
        values = np.stack(found)
        return xr.Dataset(
            {
                "flow": (("scale", "seed"), values[None, 0]),
                "descent": (("scale", "learning_rate", "seed"), values[None, 1:]),
            },
            {"scale": [scale], "learning_rate": list(self.rates), "seed": np.arange(self.seeds)},
        )

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        first, last = results.isel(scale=0), results.isel(scale=-1)
        edge = 2 / results.learning_rate
        lowest = np.minimum(results.flow.min(), results.descent.min())
        rate = results.sel(learning_rate=0.07)
        return [
            Finding("least sharpness of any end / the bound for all minimisers",
                    float(lowest / results.least), 1.0 - 1e-6),
            Finding("share of descents that found a minimiser",
                    float(results.descent.notnull().mean()), 0.7, 1.0),
            Finding("smallest scale: sharpness of the flow's end / S0, farthest from one",
                    float(first.flow.max() / results.small_start), 1.0 - 1e-6, 1.05),
            Finding("smallest scale: descent's end / flow's end, largest over rates and seeds",
                    float((first.descent / first.flow).max()), 0.9, 1.02),
            Finding("largest scale: flow's end / S0, median",
                    float(last.flow.median() / results.small_start), 1.5),
            Finding("sharpness of descent's end x eta / 2, largest: none beyond the edge",
                    float((results.descent / edge).max()), 0.0, 1.02, "plateau at 2/eta"),
            Finding("largest scale, eta = 0.07: sharpness x eta / 2, median",
                    float((rate.descent.isel(scale=-1) * 0.07 / 2).median()), 0.9, 1.02,
                    "plateau at 2/eta"),
        ]  # fmt: skip

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, axes = plt.subplots(figsize=(6.8, 4.6), layout="constrained")
            axes.axhspan(1e-3, float(results.least), color="0.5", alpha=0.16, linewidth=0)
            for colour, rate in zip(PALETTE, results.learning_rate.values, strict=False):
                row = results.descent.sel(learning_rate=rate)
                axes.plot(
                    results.scale, row.median("seed"), "o-", color=colour, ms=4,
                    label=rf"descent, $\eta$ = {rate:g}",
                )  # fmt: skip
                axes.fill_between(
                    results.scale, row.min("seed"), row.max("seed"), color=colour, alpha=0.12
                )
                axes.axhline(2 / rate, color=colour, linestyle="--", linewidth=0.8)
            axes.plot(results.scale, results.flow.median("seed"), "k:", label="gradient flow")
            axes.axhline(float(results.small_start), color="black", linewidth=0.8)
            for level, words in (
                (float(results.least), r"line: $S_0$, limit of small starts"),
                (float(results.least) / 1.11, "grey: no minimiser is that flat"),
                (float(results.most) * 1.22, "marion2024: small starts end below"),
            ):
                axes.annotate(
                    words, (0.01, level), xytext=(0, -3), fontsize=8.5, va="top", color="0.25",
                    xycoords=("axes fraction", "data"), textcoords="offset points",
                )  # fmt: skip
            axes.axhline(float(results.most), color="0.4", linestyle="-.", linewidth=0.8)
            axes.set_xscale("log")
            axes.set_yscale("log")
            top = max(2.2 * float(results.most), 1.3 * float(results.flow.median("seed").max()))
            axes.set_ylim(float(results.least) / 1.4, top)
            plain_log_ticks(axes.xaxis, axes.yaxis)
            axes.set_xlabel("scale of the Gaussian start")
            axes.set_ylabel("sharpness of the minimiser found")
            axes.set_title("Median and range over seeds; dashed: 2/learning rate")
            axes.legend(loc="upper center", ncols=2)
        return {"sharpness": figure}


def _objective() -> Objective:
    drawn = data.gaussian_regression(jax.random.key(0))
    return Objective(LinearNetwork([5] * 10 + [1]), Regression(drawn.x, drawn.y, scale=1.0))


def _past_the_plateau(objective: Objective, scale: float, seed: int) -> Weights:
    weights = initialisation.gaussian(objective.network, scale, key=jax.random.key(seed))
    slopes = objective.gradient(weights)
    if float(jnp.sqrt(sum(jnp.sum(each**2) for each in slopes))) >= _LEFT:
        return tuple(np.asarray(layer) for layer in weights)
    return escape(objective, weights, gradient=_LEFT).final


def _sharpness_of(objective: Objective, ends: Weights) -> np.ndarray:
    """The sharpness at ends that are minimisers; NaN at the others."""
    largest = spectrum_along(objective, ends).largest
    excess = np.asarray(
        jax.vmap(lambda weights: objective.problem.excess(objective.network.end_to_end(weights)))(  # pyright: ignore[reportAttributeAccessIssue]
            tuple(map(jnp.asarray, ends))
        )
    )
    return np.where(excess < _CONVERGED, largest, np.nan)
