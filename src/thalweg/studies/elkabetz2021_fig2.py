"""Figure 2 of elkabetz2021 and the lower bound of its proposition 20, in exact arithmetic."""

from collections.abc import Mapping
from fractions import Fraction
from math import exp, log, log10
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from typing_extensions import override

from thalweg._bisection import bisected
from thalweg.adversarial import WorstCase
from thalweg.certificates import Verdict
from thalweg.figures.style import PALETTE, STYLE
from thalweg.studies.elkabetz2021_potentials import hill, ridge
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size, yes
from thalweg.theorems.discretisation.worst_case import Horizon, RaysPart, StepsMustShrink

_CASES = ((1.0, 1e6, 0.5), (2.0, 1e8, 0.1), (1.0, 1e10, 0.9))  # a, b, tolerance
_START = (0.7, 0.75 * exp(-12) - 1, 3.0)
_BISECTIONS = 24


class Figure2(AbstractStudy):
    """The two potentials, and how small a step must be to come near the flow on their sum."""

    name: ClassVar[str] = "elkabetz2021-fig2"
    title: ClassVar[str] = "a smooth objective on which steps must shrink exponentially with time"
    figures: ClassVar[tuple[str, ...]] = ("2",)
    protocol: ClassVar[str] = """
Both potentials are built from the printed formulas (25) and (26) with rational coefficients, so
that continuity of value, slope and curvature at every joint is decided exactly, at cut
points as large as the true ones and at those of the picture. The picture's are small, since
nothing could be seen otherwise.

On the sum of both with 6 a q_3^2, for three choices of a, b and tolerance and times over the part
of proposition 20's window where its step is stable, descent at exactly that step is checked to
miss the flow at that time by more than the tolerance at every iteration, with 60 decimal digits.
Then the largest step is sought, by bisection, for which the ray that descent moves along passes
the flow within the tolerance: a larger one cannot come near, while this one may or may not. Its
rate of decay in time is what the proposition is about.
"""
    comparison: ClassVar[str] = """
* **Figure 2.** The paper draws two smooth hills that level off at zero, the second one wider at
  its top, where its curvature is -a / 2, and both with curvature -a further down. So they are
  here; grey lines mark the joints, and the exact jumps there are zero.
* **Proposition 20.** At the printed step no iterate comes near the flow, for all times looked at.
* **The exponent.** The largest step that is not ruled out shrinks as e^{-a t} to four digits: the
  exponent of corollary 4 cannot be improved, as the paper says.
* **The constant.** The printed step is 3,270 to 3,450 times larger than the largest one that is not
  ruled out, and so at least as many times larger than the largest that does.
"""

    times: int

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Figure2":
        return cls(5 if size is Size.QUICK else 25)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        found = [parts.get("potentials", _potentials)]
        for index, (a, b, tolerance) in enumerate(_CASES):
            progress(f"a = {a:g}, b = {b:g}", index / len(_CASES))
            case = WorstCase(a, b, tolerance)

            def measured(case: WorstCase = case) -> xr.Dataset:
                return _measured(case, self.times)

            found.append(parts.get(f"case{index}", measured).expand_dims(case=[index]))
        progress("done", 1.0)
        return xr.merge([found[0], xr.concat(found[1:], "case")])

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        found = [
            yes(
                "phi and phibar are twice continuously differentiable, by exact arithmetic",
                float(results.largest_jump) == 0,
                "twice continuously differentiable",
            ),
            Finding(
                "their least curvature over -a",
                float(results.least_curvature),
                1.0 - 1e-9,
                1.0 + 1e-9,
                "minimal curvature equal to -a",
            ),
            Finding("their least value", float(results.least_value), -1e-9, 1e-9, "non-negative"),
            Finding(
                "slopes of the package's objective against the printed formulas, relative",
                float(results.slope_gap),
                0.0,
                1e-10,
            ),
            yes(
                "no iterate comes within the tolerance at the proposition's step",
                bool((results.shrink == 1).all()),
                "necessarily leads to |theta_k - theta(t)| > eps for all k",
            ),
            yes("the rays part as lemma 86 says", bool((results.part == 1).all()), "lemma 86"),
        ]
        for index, (a, b, _) in enumerate(_CASES):
            own = results.sel(case=index)
            falls = np.diff(np.log(own.largest_rate.values)) / np.diff(own.time.values)
            found.append(
                Finding(
                    f"a = {a:g}, b = {b:g}: rate in time at which the largest step that is not "
                    "ruled out falls, over -a",
                    float(np.mean(falls) / -a),
                    0.98,
                    1.02,
                    "e^{-a t}, which corollary 4 matches",
                )
            )
        return found

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            return {"fig2": _draw_potentials(results), "steps": _draw_steps(results)}


# --- what is measured ----------------------------------------------------------------------------


def _potentials() -> xr.Dataset:
    """Both functions to a scale at which they can be seen, and the exact facts about them."""
    a, r = Fraction(1), Fraction(1, 4)
    shown = {"hill": hill(a, Fraction(4)), "ridge": ridge(a, Fraction(4), r)}
    true = [
        function
        for b, tolerance in ((Fraction(10**6), Fraction(1, 2)), (Fraction(10**10), Fraction(9, 10)))
        for function in (
            hill(a, b * 10**13 + 1),
            ridge(a, b + 1, tolerance / (2 * b)),
        )
    ]
    jumps = [jump for function in (*shown.values(), *true) for jump in function.jumps()]
    z = np.linspace(-0.875, 6, 1101)
    curves = {name: function.values(np.abs(z), 0) for name, function in shown.items()}
    curves["ridge"] = shown["ridge"].values(z, 0)
    bends = np.concatenate([f.values(z[z >= 0], 2) for f in shown.values()])
    return xr.Dataset(
        {
            **{name: ("z", values) for name, values in curves.items()},
            "largest_jump": float(max(jumps)),
            "least_curvature": -bends.min(),
            "least_value": min(values.min() for values in curves.values()),
            "slope_gap": _slope_gap(),
        },
        coords={"z": z},
    )


def _slope_gap() -> float:
    """How far the package's objective is from the printed one, at its true edges."""
    a, b, tolerance = 1.0, 1e6, 0.5
    objective = WorstCase(a, b, tolerance)
    far, near = (Fraction(float(edge)) for edge in objective.edges)
    r = Fraction(float(objective.transition))
    rows = {
        0: (hill(Fraction(1), far), np.array([0.5, 3.0, 1e6, 1e18])),
        1: (
            ridge(Fraction(1), near, r),
            np.array([-0.9, 0.0, float(1 - r / 2), 5.0, 1e4, float(near) + 0.25]),
        ),
    }
    gaps = []
    for coordinate, (function, points) in rows.items():
        for z in points:
            place = jnp.zeros(3).at[coordinate].set(z)
            found = float(jax.grad(objective)(place)[coordinate])
            exact = float(function.slope(Fraction(float(z))))
            gaps.append(abs(found - exact) / max(abs(exact), 1e-300))
    return max(gaps)


def _measured(case: WorstCase, count: int) -> xr.Dataset:
    """Over the proposition's window: steps that must fail, and the largest that need not."""
    a, tolerance = float(case.a), float(case.tolerance)
    early, late = (float(bound) for bound in case.window(jnp.asarray(_START)))
    # From where the proposition speaks of steps that are stable, up to the end of the window.
    first = max(early, log(6e14 * tolerance) / a)
    times = np.linspace(first, late, count + 2)[1:-1]
    rows = []
    for time in times:
        failing = float(case.least_failing_step(time))
        least = Horizon(case, _START, float(time), failing * (1 + 1e-9))
        verdicts = [
            float(theorem().check(least).verdict is Verdict.CONFIRMED)
            for theorem in (StepsMustShrink, RaysPart)
        ]
        distance = least.closest_approach().log
        rows.append([failing, _largest_good_rate(case, float(time)), distance, *verdicts])
    names = ("failing_rate", "largest_rate", "log_closest", "shrink", "part")
    columns = zip(names, np.array(rows).T, strict=True)
    moments = {"time": ("moment", times)}
    return xr.Dataset({**{name: ("moment", column) for name, column in columns}, **moments})


def _largest_good_rate(case: WorstCase, time: float) -> float:
    """The largest step, by bisection, whose ray passes the flow within the tolerance."""
    limit = log(float(case.tolerance))

    def near(log_rate: float) -> bool:
        return Horizon(case, _START, time, exp(log_rate)).ray_distance().log <= limit

    high = log(1 / (6 * float(case.a)))
    low = log(float(case.transition)) - log(float(case.a)) - log(1e4)
    return exp(bisected(near, low, high, halvings=_BISECTIONS))


# --- how it is drawn -----------------------------------------------------------------------------


def _draw_potentials(results: xr.Dataset) -> Any:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", sharey=True)
    z = results.z.values
    right = z >= 0
    both = np.concatenate([-z[right][::-1], z[right]])
    mirrored = np.concatenate([results.hill.values[right][::-1], results.hill.values[right]])
    axes[0].plot(both, mirrored, color=PALETTE[0])
    top = -0.875
    beside = np.concatenate([2 * top - z[::-1], z])
    axes[1].plot(
        beside, np.concatenate([results.ridge.values[::-1], results.ridge.values]), color=PALETTE[3]
    )
    axes[0].set_title(r"$\varphi$, with $z_c = 4$")
    axes[1].set_title(r"$\bar\varphi$, with $\bar z_c = 4$, $\bar\rho = 1/4$")
    for place in (4.0, 5.0, -4.0, -5.0):
        axes[0].axvline(place, color="0.85", linewidth=0.8, zorder=0)
    for place in (0.75, 1.0, 4.0, 5.0):
        axes[1].axvline(place, color="0.85", linewidth=0.8, zorder=0)
        axes[1].axvline(2 * top - place, color="0.85", linewidth=0.8, zorder=0)
    for panel in axes:
        panel.set_xlabel("$z$")
    axes[0].set_ylabel("value, in units of $a$")
    return figure


def _draw_steps(results: xr.Dataset) -> Any:
    figure, axes = plt.subplots(1, len(_CASES), figsize=(11, 3.3), layout="constrained")
    for panel, (index, (a, b, tolerance)) in zip(axes, enumerate(_CASES), strict=True):
        own = results.sel(case=index)
        panel.plot(
            own.time, own.failing_rate, color=PALETTE[3], marker="o", fillstyle="none",
            label="prop. 20: fails from here on",
        )  # fmt: skip
        panel.plot(
            own.time, own.largest_rate, color=PALETTE[0], marker=".",
            label="largest step whose ray\npasses within the tolerance",
        )  # fmt: skip
        slope = own.largest_rate[0] * np.exp(-a * (own.time - own.time[0])) / 3
        panel.plot(own.time, slope, color="0.5", linestyle=":", label="$e^{-at}$")
        panel.set_yscale("log")
        panel.set_title(f"$a = {a:g}$, $b = 10^{{{log10(b):.0f}}}$, tolerance {tolerance:g}")
        panel.set_xlabel("time of the flow")
    axes[0].set_ylabel("step size")
    axes[0].legend(fontsize=7.5, loc="upper right")
    axes[0].set_ylim(top=20)
    return figure
