"""How large a step may be: promised by theorems, certified by a tube, and true."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from typing_extensions import override

from thalweg.certificates import Case, Question
from thalweg.dynamics import flow
from thalweg.figures import PALETTE, STYLE
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size
from thalweg.studies.thalweg_common import aligned_example, farthest, largest_rate
from thalweg.theorems import registry
from thalweg.tubes import certified_step

_TIME = 6.0
_TARGET_LOSS = 0.1
_LARGEST_NORM = 0.2  # of a start that Theorem 15 speaks of
Setting = tuple[int, float, float]
_BASE: Setting = (3, 0.1, 0.01)
_KINDS = ("empirical", "certified", "theorem_3", "theorem_15")
_LABELS = {
    "empirical": "really stays that near",
    "certified": "certified by its tube",
    "theorem_3": "Theorem 3, around the computed flow",
    "theorem_15": "Theorem 15, before any run",
}


class StepSizes(AbstractStudy):
    """The largest step sizes that keep descent within a radius of the flow, of four kinds."""

    settings: tuple[Setting, ...]

    name: ClassVar[str] = "thalweg-steps"
    title: ClassVar[str] = "step sizes that are promised, certified and true"
    protocol: ClassVar[str] = """
Linear networks of width 4 with one output, 1/2 |w - e1|^2, from balanced layers whose product has
a given norm and cosine 0.3 with the target, to time 6. Around depth 3, norm 0.1 and radius 0.01
one of the three is varied. Four step sizes: the largest that really keeps descent within the
radius of the flow (integrated at 1e-10; bisected to 1 %); the largest that `certified_step`
proves from the descent run alone; what Theorem 3 allows with constants on balls around the
computed flow; what Theorem 15 allows before any run, for a loss of 0.1.
"""
    comparison: ClassVar[str] = """
* elkabetz2021 state Theorem 15 with a step size that falls exponentially with depth, and note that
  a step size of 0.001, which seemed to suffice in their experiments, is many orders of magnitude
  greater (section 6). Here the certified step is 18 orders above it at depth 2, 22 at depth 3, 26
  at depth 4 and 30 at depth 5. These orders compare two goals: Theorem 15 promises a loss of 0.1
  at the end, whatever the time, the others a distance to the flow up to time 6. They say how far
  apart the numbers are, and not how much a proof gives away.
* Theorem 3, around a flow that has been computed, is 60 to 345 times below what is true for radii
  up to 0.01, 163 times at a radius of 0.03 and 1,640 times at 0.1.
* The same fundamental theorem, centred on the computed descent, gives 0.87 to 0.99 of the largest
  true step size for radii up to 0.01, depth up to 4 and norms up to 0.1. Bounds over balls cost
  more where much is unknown: 0.73 of it is left at depth 5, 0.54 at a norm of 0.3, where Theorem
  15 does not apply, 0.59 at a radius of 0.03, and 0.25 at a radius of 0.1.
"""

    @classmethod
    @override
    def of_size(cls, size: Size) -> "StepSizes":
        if size is Size.QUICK:
            return cls(((2, 0.1, 0.01),))
        depth, norm, radius = _BASE
        varied = (
            [(each, norm, radius) for each in (2, 3, 4, 5)]
            + [(depth, each, radius) for each in (0.01, 0.03, 0.1, 0.3)]
            + [(depth, norm, each) for each in (0.1, 0.03, 0.01, 0.003, 0.001)]
        )
        return cls(tuple(dict.fromkeys(varied)))

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        work = {
            "-".join(f"{value:g}" for value in setting): partial(_step_sizes, setting)
            for setting in self.settings
        }
        return parts.gather("setting", work, progress)

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        share = results.certified / results.empirical
        covered = (results.norm <= _LARGEST_NORM).values  # by Theorem 15
        easy = (
            (results.norm <= 0.1) & (results.radius <= 0.01) & (results.depth <= 4)
        ).values  # fmt: skip
        gap = (np.log(results.certified) - results.log_theorem_15)[covered] / np.log(10)
        rows = [
            Finding("certified / true, at most (a proof cannot exceed the truth)",
                    float(share.max(skipna=False)), 0.0, 1.01),
            Finding("certified / true, at least, for radii up to 0.01, depth to 4, norms to 0.1",
                    float(share[easy].min(skipna=False)), 0.8),
            Finding("orders of magnitude from Theorem 15's step (for a loss) to the certified one "
                    "(for a radius), at least", float(gap.min(skipna=False)), 15.0,
                    reported='"many orders of magnitude greater than the upper bound"'),
            Finding("certified / Theorem 3, at least",
                    float((results.certified / results.theorem_3).min(skipna=False)), 10.0),
            Finding("Theorem 3 / true, at most",
                    float((results.theorem_3 / results.empirical).max(skipna=False)), 0.0, 1.0),
        ]  # fmt: skip
        if len(self.settings) > 1:
            silent = results.log_theorem_15.isnull().values == ~covered
            rows += [
                Finding("certified / true, at least, for all of them",
                        float(share.min(skipna=False)), 0.2),
                Finding(f"share of settings where Theorem 15 is silent if the norm is above "
                        f"{_LARGEST_NORM:g}, and speaks if not", float(silent.mean()), 1.0, 1.0),
            ]  # fmt: skip
        for (depth, norm, radius), certified, true in (
            ((2, 0.1, 0.01), 0.0463, 0.0518),
            ((3, 0.1, 0.01), 0.0317, 0.0353),
        ):
            chosen = (
                (results.depth == depth) & (results.norm == norm) & (results.radius == radius)
            ).values
            if chosen.any():
                row = results.isel(setting=int(np.flatnonzero(chosen)[0]))
                what = f"depth {depth}, norm {norm:g}, radius {radius:g}"
                for kind, known in (("certified", certified), ("empirical", true)):
                    rows.append(
                        Finding(f"{what}: {kind}", float(row[kind]), 0.98 * known, 1.02 * known)
                    )
        return rows

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        base: dict[str, float] = dict(zip(("depth", "norm", "radius"), _BASE, strict=True))
        if results.sizes["setting"] == 1:  # nothing is varied
            base = {name: float(results[name][0]) for name in base}
        with plt.rc_context(STYLE):
            figure, panels = plt.subplots(
                2, 3, figsize=(9.6, 6.0), layout="constrained", sharex="col", sharey="row",
                height_ratios=(1.5, 1),
            )  # fmt: skip
            for (above, under), name in zip(panels.T, base, strict=True):
                others = [each for each in base if each != name]
                same = np.logical_and.reduce([results[each] == base[each] for each in others])
                rows = results.isel(setting=np.flatnonzero(same)).sortby(name)
                for colour, kind in zip(PALETTE, _KINDS, strict=False):
                    logs = (
                        rows.log_theorem_15 / np.log(10)
                        if kind == "theorem_15"
                        else np.log10(rows[kind])
                    )
                    above.plot(rows[name], logs, "o-", color=colour, label=_LABELS[kind], ms=4)
                share = rows.certified / rows.empirical
                under.plot(rows[name], share, "o-", color=PALETTE[1], ms=4)
                under.axhline(1.0, color=PALETTE[0], linewidth=0.9)
                under.grid(axis="y", color="0.9", linewidth=0.6)
                for place, value in zip(rows[name].values, share.values, strict=True):
                    under.annotate(
                        f"{value:.2f}", (place, value), xytext=(-1, -5), va="top", ha="right",
                        textcoords="offset points", fontsize=8, color=PALETTE[1],
                    )  # fmt: skip
                if name == "depth":
                    under.set_xticks(rows[name].values)
                else:
                    under.set_xscale("log")
                    under.set_xticks(rows[name].values, [f"{each:g}" for each in rows[name].values])
                    under.minorticks_off()
                for axes in (above, under):
                    axes.margins(x=0.15)
                under.set_xlabel({"norm": "norm of the start's product"}.get(name, name))
            panels[0, 0].set_ylabel(r"$\log_{10}$ of the step size")
            panels[1, 0].set_ylabel("certified / true")
            panels[1, 0].set_ylim(0.0, 1.08)
            handles, labels = panels[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper left", ncols=2)
        return {"steps": figure}


def _step_sizes(setting: Setting) -> xr.Dataset:
    depth, norm, radius = setting
    objective, weights = aligned_example(depth, norm=norm)
    exact = flow(objective, weights, time=_TIME, rtol=1e-10, atol=1e-12)
    certified = certified_step(objective, weights, radius, _TIME).learning_rate
    true = largest_rate(
        lambda rate: farthest(objective, weights, exact, rate) <= radius, guess=certified
    )
    third = _answer(
        "elkabetz2021:thm3", Case(objective, weights, radius=radius, flow=exact, time=_TIME)
    )
    last = _answer("elkabetz2021:thm15", Case(objective, weights, target_loss=_TARGET_LOSS))
    return xr.Dataset(
        {
            "empirical": ("setting", [true]),
            "certified": ("setting", [certified]),
            "theorem_3": ("setting", [np.nan if third is None else float(third)]),
            "log_theorem_15": ("setting", [np.nan if last is None else last.log]),
        },
        {
            "depth": ("setting", [depth]),
            "norm": ("setting", [norm]),
            "radius": ("setting", [radius]),
        },
    )


def _answer(reference: str, case: Case) -> Any:
    """The learning rate that a theorem promises; None where it does not apply."""
    certificate = registry[reference]().check(case)
    wanted = (Question.FOLLOWING_RATE, Question.LEARNING_RATE)
    return next((each.value for each in certificate.answers if each.question in wanted), None)
