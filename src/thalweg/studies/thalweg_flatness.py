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
from thalweg.solvers import Collocation
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
    revision: ClassVar[int] = 2
    title: ClassVar[str] = "how sharp the minimiser is, from the flow to the edge of stability"
    protocol: ClassVar[str] = """
Ten layers of width 5 with one output on 50 Gaussian samples (the set-up of marion2024, loss
without a half). Gaussian starts of 12 scales from 0.02 to 0.5, 12 seeds each. Each is followed by
its length (`escape`) until the gradient has the norm 0.01, because a plateau would take up to 1e28
units of time; from there both the flow and descents at five learning rates go on for 200 units of
time. A run whose excess loss is then below 1e-6 has found a minimiser; the others have no
sharpness. The sharpness of where they end is compared with the bound that holds for all
minimisers, the limit S0 for starts that tend to zero, marion2024's upper bound for small starts,
and 2/eta.
"""
    comparison: ClassVar[str] = """
* marion2024 prove that flows from small starts end at most 4 kappa times above the bound for all
  minimisers, and show final sharpness over scales for three learning rates (fig. 1b). Seen here in
  between and beyond: for small starts flow and descent end at S0, the sharpness of the balanced
  minimiser, to less than a percent. The flow ends at sharper and sharper minimisers as the scale
  grows.
* Up to the scale 0.3732 every descent finds a minimiser. It is as sharp as the flow's to 0.9 %
  where that is below 1/eta, and to 3.2 % where it is below 2/eta. In the 11 cases in which the
  flow's minimiser is sharper than 2/eta, nine of them at eta = 0.09, descent ends at 0.977 to 0.999
  of 2/eta.
* At the largest scale, 0.5, only 37 of 60 descents find a minimiser. The others diverge: none at
  eta = 0.005, 2 of 12 at 0.02, 4 at 0.05, 8 at 0.07, 9 at 0.09; in all of these cases the flow ends
  beyond 2/eta. The plateau at that scale is thus what 4 and 3 survivors show (at least 0.94 of
  2/eta). With 0.02 and 0.05 those whose flow ends beyond 2/eta end below it, at medians of 0.65 and
  0.90 of 2/eta, and not at it. Descent does not follow the flow there even where the flow ends
  below 1/eta (up to 18 % off), for such starts may themselves be sharper than 2/eta; the finding
  on this is therefore about the smaller scales.
"""

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Flatness":
        if size is Size.QUICK:
            return cls((0.1, 0.45), 6, (0.02, 0.07), 60.0)
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
            sharper_sharpness_bound=float(minimiser_sharpness_bounds(objective).sharper),
            small_start=float(balanced_sharpness(objective)),
            greatest_sharpness=float(small_start_sharpness_bounds(objective).sharper),
        )

    def _at_scale(self, objective: Objective, scale: float) -> xr.Dataset:
        starts = [_past_the_plateau(objective, scale, seed) for seed in range(self.seeds)]
        ends = [
            flow(objective, start, time=self.time, solver=Collocation()).final for start in starts
        ]
        batch = tuple(np.stack(layers) for layers in zip(*starts, strict=True))
        found = [_sharpness_of(objective, tuple(map(np.stack, zip(*ends, strict=True))))]
        excess = []
        for rate in self.rates:
            run = descend(
                objective, batch, learning_rate=np.full(self.seeds, rate),
                steps=round(self.time / rate), record_every=round(self.time / rate),
            )  # fmt: skip
            found.append(_sharpness_of(objective, run.final))
            excess.append(_excess_of(objective, run.final))
        values = np.stack(found)
        return xr.Dataset(
            {
                "flow": (("scale", "seed"), values[None, 0]),
                "descent": (("scale", "learning_rate", "seed"), values[None, 1:]),
                "excess": (("scale", "learning_rate", "seed"), np.stack(excess)[None]),
            },
            {"scale": [scale], "learning_rate": list(self.rates), "seed": np.arange(self.seeds)},
        )

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        first, last = results.isel(scale=0), results.isel(scale=-1)
        ends, edge = results.descent, 2 / results.learning_rate
        arrived, lost = results.excess < _CONVERGED, results.excess >= _CONVERGED
        as_stated = (arrived & ends.notnull()) | (lost & ends.isnull())
        below = results.flow < edge
        slow = (results.flow < edge / 2) & (results.scale < results.scale[-1])
        lowest = np.minimum(results.flow.min(skipna=False), ends.min())
        found = [
            Finding("least sharpness of any end / the bound for all minimisers",
                    float(lowest / results.sharper_sharpness_bound), 1.0 - 1e-6),
            Finding("share of descents with a sharpness where they found a minimiser, else none",
                    float(as_stated.mean()), 1.0, 1.0),
            Finding("share of descents that found a minimiser",
                    float(arrived.mean()), 0.7, 1.0),
            Finding("flow ends below 2/eta: share of descents that found a minimiser",
                    float((arrived & below).sum() / below.sum()), 1.0, 1.0),
            Finding("smallest scale: flow's end / S0, largest deviation from 1",
                    _off_one(first.flow / results.small_start), 0.0, 0.05),
            Finding("smallest scale: flow's end / marion2024's bound for small starts, largest",
                    float(first.flow.max(skipna=False) / results.greatest_sharpness),
                    0.0, 1.0, "at most 1"),
            Finding("smallest scale: descent's end / flow's end, largest deviation from 1",
                    _off_one(first.descent / first.flow), 0.0, 0.02),
            Finding("flow ends below 1/eta, all scales but the largest: descent's end / flow's "
                    "end, largest deviation from 1",
                    _off_one((ends / results.flow).values[slow.transpose(*ends.dims).values]),
                    0.0, 0.05),
            Finding("largest scale: flow's end / S0, median",
                    float(last.flow.median(skipna=False) / results.small_start), 1.5),
            Finding("sharpness of descent's end x eta / 2, largest: none beyond the edge",
                    float((ends / edge).max()), 0.0, 1.02, "plateau at 2/eta"),
            Finding("largest scale, eta = 0.07: sharpness x eta / 2, median of those that arrived",
                    float((last.descent.sel(learning_rate=0.07) * 0.07 / 2).median()), 0.9, 1.02,
                    "plateau at 2/eta"),
        ]  # fmt: skip
        if len(self.scales) > 2:
            beyond = (~below & (results.scale < results.scale[-1])).transpose(*ends.dims).values
            found.append(
                Finding("flow ends beyond 2/eta, all scales but the largest: descent's end x eta / "
                        "2, least", float(np.min((ends / edge).values[beyond], initial=np.inf)),
                        0.9, 1.02, "plateau at 2/eta")
            )  # fmt: skip
        return found

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        seeds = results.sizes["seed"]
        with plt.rc_context(STYLE):
            figure, axes = plt.subplots(figsize=(7.2, 5.2), layout="constrained")
            axes.axhspan(
                1e-3, float(results.sharper_sharpness_bound), color="0.5", alpha=0.16, linewidth=0
            )
            for colour, rate in zip(PALETTE, results.learning_rate.values, strict=False):
                row = results.descent.sel(learning_rate=rate)
                middle, counts = row.median("seed"), row.notnull().sum("seed")
                axes.plot(
                    results.scale, middle, "o-", color=colour, ms=4,
                    label=rf"descent, $\eta$ = {rate:g}",
                )  # fmt: skip
                axes.fill_between(
                    results.scale, row.min("seed"), row.max("seed"), color=colour, alpha=0.12
                )
                for scale in results.scale[(counts < seeds).values].values:
                    place = float(scale), float(middle.sel(scale=scale))
                    axes.plot(*place, "o", color=colour, mfc="white", ms=5)
                    axes.annotate(
                        f"{int(counts.sel(scale=scale))} of {seeds}", place, xytext=(6, 2),
                        textcoords="offset points", fontsize=8, color=colour,
                    )  # fmt: skip
                axes.axhline(2 / rate, color=colour, linestyle="--", linewidth=0.8)
            axes.plot(results.scale, results.flow.median("seed"), "k:", label="gradient flow")
            axes.axhline(float(results.small_start), color="black", linewidth=0.8)
            for level, words in (
                (float(results.sharper_sharpness_bound), r"line: $S_0$, limit of small starts"),
                (float(results.sharper_sharpness_bound) / 1.16, "grey: no minimiser is that flat"),
                (float(results.greatest_sharpness) * 1.28, "marion2024: small starts end below"),
            ):
                axes.annotate(
                    words, (0.01, level), xytext=(0, -3), fontsize=8.5, va="top", color="0.25",
                    xycoords=("axes fraction", "data"), textcoords="offset points",
                )  # fmt: skip
            axes.axhline(
                float(results.greatest_sharpness), color="0.4", linestyle="-.", linewidth=0.8
            )
            axes.set_xscale("log")
            axes.set_yscale("log")
            highest = max(
                float(2 / results.learning_rate.min()),
                float(results.flow.max()),
                float(results.descent.max()),
            )
            axes.set_ylim(float(results.sharper_sharpness_bound) / 1.4, 1.15 * highest)
            axes.set_xlim(float(results.scale[0]) / 1.15, float(results.scale[-1]) * 1.45)
            plain_log_ticks(axes.xaxis, axes.yaxis)
            axes.set_xlabel("scale of the Gaussian start")
            axes.set_ylabel("sharpness of the minimiser found")
            axes.set_title(
                "Median and range of the seeds that found one (open: not all); dashed: 2/$\\eta$"
            )
            axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.93), ncols=2)
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
    return np.where(_excess_of(objective, ends) < _CONVERGED, largest, np.nan)


def _excess_of(objective: Objective, ends: Weights) -> np.ndarray:
    """The excess loss; infinite where a run diverged."""
    excess = np.asarray(
        jax.vmap(lambda weights: objective.problem.excess(objective.network.end_to_end(weights)))(  # pyright: ignore[reportAttributeAccessIssue]
            tuple(map(jnp.asarray, ends))
        )
    )
    return np.where(np.isfinite(excess), excess, np.inf)


def _off_one(ratios: Any) -> float:
    """How far from one any of them is; NaN if one is, or if there is none."""
    off = np.abs(np.asarray(ratios) - 1)
    return float(off.max()) if off.size else np.nan
