"""Does weight decay bring descent closer to the flow? Measured, and proven by tubes."""

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.ticker import MultipleLocator
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
_DECAY = 0.1  # that the findings compare with none
_PAPER = '"bringing gradient descent closer to gradient flow"'


class WeightDecay(AbstractStudy):
    """The distance to the flow of the same objective, over weight decays and starts."""

    decays: tuple[float, ...]
    seeds: int
    time: float

    name: ClassVar[str] = "thalweg-weight-decay"
    title: ClassVar[str] = "does weight decay bring descent closer to the flow?"
    revision: ClassVar[int] = 2
    protocol: ClassVar[str] = """
Three layers of width 4 with one output, 1/2 |w - e1|^2 + decay/2 |theta|^2, learning rate 0.01, to
time 16. Starts: one of balanced layers whose product has norm 0.1, and eight Gaussian ones of
deviation 0.35, which are not balanced. For each of six decays up to 0.2 the flow is that of the
objective with the same decay, at a tolerance of 1e-10, and the tube is made from the descent run
alone. A distance is compared with that of the same start without decay; of the eight ratios the
median is given.
"""
    comparison: ClassVar[str] = """
* elkabetz2021 (section 8.2) suggest that weight decay brings descent closer to the flow, because it
  adds a positive constant to the eigenvalues of the Hessian. Seen here: on the way yes, at the end
  not for all starts.
* The largest distance on the way is smaller with every decay for all nine starts, though not by
  much, because most of it arises on the way out of the saddle. At a decay of 0.2 it is 0.82 of what
  it was for the balanced start, and 0.75 to 0.91 for the Gaussian ones (median 0.85, the same as
  at 0.15).
* The last distance of the balanced start falls 438 times. That of the Gaussian starts falls for all
  eight with decays of 0.01 and 0.03; with 0.1 one of them ends farther from its flow than without
  decay (1.16 times), with 0.15 two, and with 0.2 three (up to 1.15 times). The median stays
  between 0.67 and 0.69 from a decay of 0.03 on. This is why the table asks for more than half of
  them, and not for all. What is left lies mostly along rotations of the hidden layers: they change
  neither the network's function nor the norm of the weights, so that decay contracts nothing there.
* The true distance stays inside of every tube at every time. But the proven bounds do not fall as
  the true ones do. That of the balanced start's last distance falls 7.6 times, not 438; at a
  decay of 0.2 it is 86 times too large. Of the eight bounds of the Gaussian starts' last
  distances, three are larger with a decay of 0.2 than without.
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
        names = ("largest", "last", "proven", "proven_last", "filled", "slope")
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
        apart, upper = np.asarray(distance(run, exact)), tube(run).upper
        # Both are zero at the start; where nothing is proven, nothing is inside.
        filled = (apart[1:] / upper[1:]).max() if np.isfinite(upper).all() else inf
        slopes = objective.gradient(tuple(jnp.asarray(layer[-1]) for layer in run.weights))
        slope = sum(float(jnp.sum(each**2)) for each in slopes) ** 0.5
        return (
            float(apart.max()), float(apart[-1]), float(upper.max()), float(upper[-1]),
            float(filled), slope,
        )  # fmt: skip

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        balanced, drawn = (_starts(results, kind) for kind in ("balanced", "gaussian"))
        found = []
        for words, rows in (("balanced start: ", balanced), ("Gaussian starts, median: ", drawn)):
            for name, limit in (("largest", 0.97), ("last", 0.8)):
                ratio = _relative(rows[name], _DECAY).median(skipna=False)
                found.append(
                    Finding(f"{words}{name} distance with a decay of {_DECAY:g} / without",
                            float(ratio), 0.0, limit, _PAPER)
                )  # fmt: skip
        smaller = _relative(drawn.largest, _DECAY) < 1
        found.append(
            Finding("Gaussian starts: share whose largest distance is smaller with a decay of "
                    f"{_DECAY:g} than without", float(smaller.mean()), 1.0, 1.0, _PAPER)
        )  # fmt: skip
        for decay in sorted({_DECAY, max(self.decays)}):
            nearer = _relative(drawn["last"], decay) < 1
            found.append(
                Finding(f"Gaussian starts: share that end nearer with a decay of {decay:g} than "
                        "without", float(nearer.mean()), 0.5, 1.0, _PAPER)
            )  # fmt: skip
        last = results["last"] / results.proven_last
        for words, value, least, most in (
            ("distance / proven radius, largest over all times", results.filled, 0.0, 1.0),
            ("last distance / last proven radius, largest", last, 0.0, 1.0),
            ("largest proven radius / largest distance, largest",
             results.proven / results.largest, 1.0, 10.0),
        ):  # fmt: skip
            highest = float(value.max(skipna=False))
            found.append(Finding(f"all runs: {words}", highest, least, most))
        for name, words, limit in (("proven", "largest", 0.97), ("proven_last", "last", 0.8)):
            found.append(
                Finding(f"balanced start: {words} proven radius with a decay of {_DECAY:g} / "
                        "without", float(_relative(balanced[name], _DECAY).item()), 0.0, limit)
            )  # fmt: skip
        return found

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        balanced, drawn = (_starts(results, kind) for kind in ("balanced", "gaussian"))
        with plt.rc_context(STYLE):
            figure, panels = plt.subplots(1, 2, figsize=(8.8, 4.3), layout="constrained")
            for axes, (name, bound, title) in zip(
                panels,
                (
                    ("largest", "proven", "Largest distance on the way"),
                    ("last", "proven_last", f"Distance at the last time, {self.time:g}"),
                ),
                strict=True,
            ):
                decays, (first, second) = results.weight_decay, PALETTE[:2]
                middle = drawn.median("start", skipna=False)
                proven: dict[str, Any] = {"linestyle": ":", "linewidth": 1.6}
                axes.plot(
                    decays, balanced[name], "o-", ms=4, color=first, label="the balanced start"
                )
                axes.plot(decays, _finite(balanced[bound]), color=first, label="proven", **proven)
                for number, each in enumerate(drawn[name].transpose("start", ...)):
                    label = "each Gaussian start" if number == 0 else None
                    axes.plot(decays, each, color=second, lw=0.7, alpha=0.55, label=label)
                axes.plot(decays, middle[name], "o-", ms=4, color=second, label="their median")
                axes.plot(
                    decays, _finite(middle[bound]), color=second, label="median proven", **proven
                )
                axes.set_yscale("log")
                axes.xaxis.set_major_locator(MultipleLocator(0.05))
                axes.set_xlabel("weight decay")
                axes.set_title(title)
            panels[0].set_ylabel("distance to the flow")
            plain_log_ticks(panels[0].yaxis)
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=5)
        return {"distance": figure}


def _starts(results: xr.Dataset, kind: str) -> xr.Dataset:
    """The starts of a kind, and no others."""
    return results.isel(start=np.flatnonzero(results.start.str.startswith(kind)))


def _relative(values: xr.DataArray, decay: float) -> xr.DataArray:
    """What a decay leaves of what is there without."""
    return values.sel(weight_decay=decay) / values.sel(weight_decay=0.0)


def _finite(values: xr.DataArray) -> xr.DataArray:
    return values.where(np.isfinite(values))
