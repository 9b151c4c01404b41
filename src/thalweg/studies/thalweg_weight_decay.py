"""Does weight decay bring descent closer to the flow? Measured, and proven by tubes."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from typing_extensions import override

from thalweg import initialisation
from thalweg.dynamics import descend, distance, flow
from thalweg.figures import PALETTE, STYLE, plain_log_ticks
from thalweg.objective import Objective
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size
from thalweg.studies.thalweg_common import aligned_example
from thalweg.tubes import tube

_RATE = 0.01


class WeightDecay(AbstractStudy):
    """The distance to the flow of the same objective, over weight decays and starts."""

    decays: tuple[float, ...]
    seeds: int
    time: float

    name: ClassVar[str] = "thalweg-weight-decay"
    title: ClassVar[str] = "weight decay brings descent closer to the flow"
    protocol: ClassVar[str] = """
Three layers of width 4 with one output, 1/2 |w - e1|^2 + decay/2 |theta|^2, learning rate 0.01.
Starts: balanced layers whose product has norm 0.1, and Gaussian ones of deviation 0.35, which are
not balanced. For each decay the flow is that of the objective with the same decay, at a tolerance
of 1e-10, and the tube is made from the descent run alone.
"""
    comparison: ClassVar[str] = """
elkabetz2021 (section 8) conjecture that weight decay brings descent closer to the flow, because
it raises the smallest eigenvalue of the Hessian everywhere. Seen here: yes, for both kinds of
starts.
The largest distance falls slowly with the decay, by a fifth at 0.2, because most of it arises on
the way out of the saddle. The last distance of the balanced start falls by a factor of 400,
because minimisers become isolated and the error contracts; that of the Gaussian starts, which
begin farther out, by a third. The proven bounds fall along with the true ones.
"""

    @classmethod
    @override
    def of_size(cls, size: Size) -> "WeightDecay":
        if size is Size.QUICK:
            return cls((0.0, 0.1), 1, 8.0)
        return cls((0.0, 0.01, 0.03, 0.1, 0.15, 0.2), 8, 16.0)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        work = {f"decay-{decay}": partial(self._with_decay, decay) for decay in self.decays}
        return parts.gather("weight_decay", work, progress)

    def _with_decay(self, decay: float) -> xr.Dataset:
        objective, balanced = aligned_example(3, weight_decay=jnp.asarray(decay))
        starts = {"balanced": balanced}
        for seed in range(self.seeds):
            starts[f"gaussian {seed}"] = initialisation.gaussian(
                objective.network, 0.35, key=jax.random.key(seed)
            )
        names = ("largest", "last", "proven", "proven_last", "travelled")
        found = [self._distances(objective, start) for start in starts.values()]
        columns = np.asarray(found).T[:, None, :]
        return xr.Dataset(
            {
                name: (("weight_decay", "start"), column)
                for name, column in zip(names, columns, strict=True)
            },
            {"weight_decay": [decay], "start": list(starts)},
        )

    def _distances(self, objective: Objective, start: Any) -> tuple[float, ...]:
        run = descend(objective, start, learning_rate=_RATE, steps=round(self.time / _RATE))
        exact = flow(objective, start, times=run.times, rtol=1e-10, atol=1e-12)
        apart, proven = distance(run, exact), tube(run)
        moved = sum(np.sum((a[-1] - a[0]) ** 2) for a in run.weights) ** 0.5
        return (
            float(apart.max()), float(apart[-1]), float(proven.upper.max()),
            float(proven.upper[-1]), float(moved),
        )  # fmt: skip

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        without, most = results.sel(weight_decay=0.0), results.sel(weight_decay=0.1)
        balanced, drawn = results.start == "balanced", results.start != "balanced"
        found = []
        for words, chosen in (("balanced", balanced), ("gaussian", drawn)):
            for name, what, limit in (("largest", "largest", 0.97), ("last", "last", 0.8)):
                ratio = most[name].where(chosen) / without[name].where(chosen)
                statement = f"{words} starts: {what} distance with a decay of 0.1 / without, median"
                found.append(Finding(statement, float(ratio.median()), 0.0, limit, "conjectured"))
        inside = results.largest <= results.proven * (1 + 1e-9)
        found.append(
            Finding(
                "share of runs with the true distance inside of the tube",
                float(inside.mean()),
                1.0,
                1.0,
            )
        )
        ratio = (most.proven / without.proven).where(balanced)
        found.append(
            Finding(
                "balanced start: proven bound with a decay of 0.1 / without",
                float(ratio.median()),
                0.0,
                0.97,
            )
        )
        return found

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, panels = plt.subplots(1, 2, figsize=(8.4, 4.0), layout="constrained")
            for axes, (name, bound, title) in zip(
                panels,
                (
                    ("largest", "proven", "Largest distance on the way"),
                    ("last", "proven_last", f"Distance at the last time, {self.time:g}"),
                ),
                strict=True,
            ):
                kinds = (("balanced", "balanced start"), ("gaussian", "Gaussian starts (median)"))
                for colour, (kind, label) in zip(PALETTE, kinds, strict=False):
                    chosen = results.start.str.startswith(kind)
                    values = results.where(chosen).median("start")
                    axes.plot(results.weight_decay, values[name], "o-", color=colour, label=label)
                    proven = values[bound].where(np.isfinite(values[bound]))
                    axes.plot(results.weight_decay, proven, ":", color=colour, label="proven")
                axes.set_yscale("log")
                axes.set_xlabel("weight decay")
                axes.set_ylabel("distance to the flow")
                axes.set_title(title)
            plain_log_ticks(panels[0].yaxis)
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=4)
        return {"distance": figure}
