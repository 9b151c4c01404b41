"""How likely random starts are covered: Theorem 2's success, and the joint probability."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.colors import LogNorm
from typing_extensions import override

from thalweg.figures import PALETTE, STYLE
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size
from thalweg.theorems.joint import joint_probability, scalar_chain_limit
from thalweg.theorems.randomness import event_probability, success_bound


class SuccessProbability(AbstractStudy):
    """The success of balanced starts: the bound of Theorem 2, the exact probability, and draws."""

    features: tuple[int, ...]
    ratios: tuple[float, ...]
    draws: int

    name: ClassVar[str] = "arora2019-success"
    title: ClassVar[str] = "the probability of Theorem 2: promised, exact, drawn"
    protocol: ClassVar[str] = """
One output, a target of norm one. The end-to-end vector is Gaussian with deviation 1 / (sqrt(a) d),
as Theorem 2 wants it. The theorem succeeds if the margin is at least half the typical squared norm;
the paper bounds that probability from below, it can be computed, and it is seen in draws.
"""
    comparison: ClassVar[str] = """
Theorem 2 promises a success with any probability below one half, if a and the number of features
are large enough. Seen here: the true probability tends to one half from below as a grows, and its
bound follows, useful only for a above 17.6. Half of all starts point away from the target and have
no margin, so one half is the best that can be had.
"""

    @classmethod
    @override
    def of_size(cls, size: Size) -> "SuccessProbability":
        ratios = (20.0, 50.0, 100.0, 1e3, 1e4)
        if size is Size.QUICK:
            return cls((20, 200), ratios, 20_000)
        return cls((20, 50, 200, 1000), ratios, 1_000_000)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        work = {f"features-{each}": partial(self._row, each) for each in self.features}
        return parts.gather("features", work, progress)

    def _row(self, features: int) -> xr.Dataset:
        generator = np.random.default_rng(features)
        shape = ("features", "ratio")
        exact = [event_probability(features, ratio) for ratio in self.ratios]
        bound = [success_bound(features, ratio) for ratio in self.ratios]
        drawn = [_frequency(features, ratio, self.draws, generator) for ratio in self.ratios]
        return xr.Dataset(
            {
                "exact": (shape, [exact]),
                "bound": (shape, [bound]),
                "drawn": (shape, [drawn]),
                "draws": self.draws,
            },
            {"features": [features], "ratio": list(self.ratios)},
        )

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        noise = np.sqrt(results.exact * (1 - results.exact) / results.draws)
        largest = results.exact.sel(ratio=results.ratio[-1])
        slack = results.exact - results.bound
        return [
            Finding("exact probability - bound, least", float(slack.min()), 0.0, 0.5,
                    "at least 0 (Theorem 2)"),
            Finding("drawn - exact, in standard errors, largest modulus",
                    float(abs((results.drawn - results.exact) / noise).max()), 0.0, 4.5),
            Finding("exact probability at the largest a", float(largest.min()), 0.49, 0.5,
                    "any p < 1/2"),
            Finding("bound at the largest a and most features",
                    float(results.bound.isel(features=-1, ratio=-1)), 0.45, 0.5),
        ]  # fmt: skip

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, axes = plt.subplots(figsize=(6.0, 3.8), layout="constrained")
            for colour, features in zip(PALETTE, results.features.values, strict=False):
                row = results.sel(features=features)
                axes.semilogx(row.ratio, row.exact, color=colour, label=f"{features} features")
                axes.semilogx(row.ratio, row.drawn, "o", color=colour, mfc="white", ms=5)
                axes.semilogx(row.ratio, np.maximum(row.bound, 0), ":", color=colour)
            axes.axhline(0.5, color="0.5", linewidth=0.8)
            axes.set_xlabel("a: how small the start is")
            axes.set_ylabel("probability of success")
            axes.set_title("Exact (lines), drawn (circles), Theorem 2's bound (dotted)")
            axes.legend(loc="lower right")
        return {"success": figure}


class JointMap(AbstractStudy):
    """Balance and margin at once, under layer-wise Gaussian starts: left open in the paper."""

    chains: tuple[tuple[int, ...], ...]
    samples: int
    scales: tuple[float, ...]

    name: ClassVar[str] = "arora2019-joint"
    title: ClassVar[str] = "how likely Gaussian layers are balanced enough and have a margin"
    protocol: ClassVar[str] = """
Layers with independent Gaussian entries of deviation s, one output, a target of norm one. The event
is: the margin c is positive, and the imbalance at most c^2 / K. Theorem 1 asks for K = 256 N^3;
K = 1 and 16 show what a better theorem could hope for. The angle to the target is integrated
exactly, so that one set of draws serves all scales and all K.
"""
    comparison: ClassVar[str] = """
arora2019 leave this probability open. Seen here: it is never appreciable. Small scales make the
margin small compared with the imbalance, large ones lose the margin: there is a best scale in
between, and even there the probability for K = 1 falls from 5.5 % for two scalar layers by orders
of magnitude with width and depth, and like a power of 1 / K. For scalar chains the limit is known
in closed form and agrees.
"""

    @classmethod
    @override
    def of_size(cls, size: Size) -> "JointMap":
        scales = tuple(float(each) for each in np.round(np.geomspace(0.1, 3.0, 16), 4))
        if size is Size.QUICK:
            return cls(((1, 1, 1), (5, 1, 1), (1, 1, 1, 1)), 200_000, scales)
        chains = (
            (1, 1, 1), (2, 1, 1), (5, 1, 1), (20, 1, 1), (2, 2, 1), (3, 2, 1), (3, 3, 1),
            (1, 1, 1, 1), (2, 1, 1, 1), (5, 1, 1, 1), (2, 2, 2, 1), (1, 1, 1, 1, 1),
        )  # fmt: skip
        return cls(chains, 10_000_000, scales)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        work = {"-".join(map(str, chain)): partial(self._row, chain) for chain in self.chains}
        return parts.gather("chain", work, progress)

    def _row(self, chain: tuple[int, ...]) -> xr.Dataset:
        depth = len(chain) - 1
        strictness = (1.0, 16.0, 256.0, 256.0 * depth**3)
        found = joint_probability(chain, self.scales, strictness, self.samples, seed=sum(chain))
        shape = ("chain", "strictness", "scale")
        return xr.Dataset(
            {"probability": (shape, found.estimate[None]), "hits": (shape, found.hits[None])},
            {
                "chain": ["-".join(map(str, chain))],
                "strictness": ["1", "16", "256", "256 N^3"],
                "scale": list(self.scales),
            },
        )

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        best = results.probability.max("scale")
        rows = [
            Finding(f"{chain}, K = 1: largest probability over the scales",
                    float(best.sel(chain=chain, strictness="1")), 0.8 * known, 1.2 * known)
            for chain, known in (("1-1-1", 0.0555), ("5-1-1", 3.9e-3), ("1-1-1-1", 8.5e-3))
        ]  # fmt: skip
        pair = results.probability.sel(chain="1-1-1", strictness="256")
        limit = np.asarray([scalar_chain_limit(2, scale) / 256 for scale in pair.scale.values])
        trusted = results.hits.sel(chain="1-1-1", strictness="256").values > 100
        ratios = pair.values[trusted] / limit[trusted]
        rows.append(
            Finding("1-1-1, K = 256: drawn / closed-form limit, mean over scales",
                    float(np.mean(ratios)) if ratios.size else np.nan, 0.85, 1.15)
        )  # fmt: skip
        rows.append(
            Finding("largest probability that Theorem 1 covers a start, over all chains and scales",
                    float(best.sel(strictness="256 N^3").max()), 0.0, 1e-3, "left open")
        )  # fmt: skip
        return rows

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, panels = plt.subplots(
                1, 2, figsize=(9.4, 0.9 + 0.32 * max(6, results.sizes["chain"])),
                layout="constrained", sharey=True,
            )  # fmt: skip
            for axes, strictness in zip(panels, ("1", "16"), strict=True):
                values = results.probability.sel(strictness=strictness)
                axes.pcolormesh(
                    results.scale, np.arange(results.sizes["chain"]),
                    np.ma.masked_less_equal(values.values, 0),
                    norm=LogNorm(1e-8, 0.1), cmap="viridis", shading="nearest",
                )  # fmt: skip
                axes.set_xscale("log")
                axes.set_facecolor("0.92")
                axes.set_xlabel("deviation s of the entries")
                axes.set_title(f"K = {strictness}: imbalance at most c$^2$ / K")
            panels[0].set_yticks(np.arange(results.sizes["chain"]), results.chain.values)
            panels[0].set_ylabel("widths")
            image = panels[0].collections[0]
            figure.colorbar(image, ax=list(panels), label="probability (grey: not one draw)")
        return {"map": figure}


def _frequency(features: int, ratio: float, draws: int, generator: np.random.Generator) -> float:
    """How often a margin of at least 1 / (2 a d) is drawn; in two coordinates, which suffice."""
    spread = 1 / (np.sqrt(ratio) * features)
    along = spread * generator.standard_normal(draws)
    across = spread**2 * generator.chisquare(features - 1, draws)
    # 1 - sqrt((1 - along)^2 + across), without cancellation.
    square = 2 * along - along**2 - across
    margin = square / (1 + np.sqrt((1 - along) ** 2 + across))
    return float(np.mean(margin >= 1 / (2 * ratio * features)))
