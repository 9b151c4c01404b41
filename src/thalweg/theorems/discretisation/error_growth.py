"""Descent as a numerical solution of its flow: how far apart they are [elkabetz2021].

Descent is Euler's method for theta' = -grad f(theta). Between two records of time the error r of
any approximate solution obeys

    r' = m r + delta,

where m bounds the logarithmic norm (of a gradient flow: minus the smallest eigenvalue of the
Hessian) between both curves, and delta the defect, by how much the approximate one misses the
equation. Where m is constant and delta is constant or linear in time, the solution is a sum of

    exp(m h),    h phi_1(m h),    h phi_2(m h),    phi_k(x) = integral_0^1 e^{(1-s) x} s^{k-1} ds,

and with a constant delta monotone, so that its largest value is one at the records. `tubes` makes
step sizes of this, and `following` applies it to networks.

[elkabetz2021] O. Elkabetz, N. Cohen, "Continuous vs. discrete optimization of deep neural
    networks", arXiv:2107.06608.
"""

from dataclasses import dataclass
from math import exp, expm1
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg.certificates import AbstractTheorem, Claim, requirement, rounding

Times = Float[np.ndarray, " times"]
Intervals = Float[np.ndarray, " intervals"]

_TAYLOR = 1e-4  # below it phi_2 is a Taylor sum of three terms, wrong by 1e-14


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two curves at the same times: a solution, and one that solves the equation approximately.

    Args:
        times: increasing from 0, one more than there are intervals.
        growth: m, what bounds the logarithmic norm on each interval.
        defect_before: delta at the beginning of each interval, from which it goes linearly
        defect_after: to its end.
        start_distance: how far apart the curves begin.
        seen_growth: the largest logarithmic norm found on each interval, between the curves.
        seen_defect: the defect found at the end of each interval.
        distances: how far apart they are at the times.
        distance_error: how far off the distances may be.
    """

    times: Times
    growth: Intervals
    defect_before: Intervals
    defect_after: Intervals
    start_distance: float
    seen_growth: Intervals
    seen_defect: Intervals
    distances: Times
    distance_error: float = 0.0

    @property
    def bound(self) -> Times:
        """The right-hand side of the theorem at the times, without overflow of e^mu."""
        reached = [self.start_distance]
        lengths = np.diff(self.times)
        for h, m, first, last in zip(
            lengths, self.growth, self.defect_before, self.defect_after, strict=True
        ):
            added = h * (first * _phi_1(m * h) + (last - first) * _phi_2(m * h))
            reached.append(exp(m * h) * reached[-1] + added)
        return np.array(reached)


class ErrorGrowth(AbstractTheorem[Comparison]):
    """The error of an approximate solution grows by the logarithmic norm and the defect.

    Where lambda_max((J + J^T) / 2) <= m(t) on the segment between the two curves, J the Jacobian,
    and |approximate' - g(approximate)| <= delta(t),

        |theta(t) - approximate(t)| <= e^{mu(t)} (|theta(0) - approximate(0)|
                                       + integral_0^t e^{-mu(s)} delta(s) ds),    mu' = m.

    The right-hand side is computed as the solution of r' = m r + delta.
    """

    reference: ClassVar[str] = "elkabetz2021:thm2"

    @override
    def assumptions(self, subject: Comparison, /) -> tuple[Claim, ...]:
        return (
            Claim(
                "logarithmic norm between the curves <= m",
                subject.seen_growth,
                subject.growth,
            ),
            Claim(
                "|approximate' - g(approximate)| <= delta",
                subject.seen_defect,
                subject.defect_after,
            ),
        )

    @override
    def conclusions(self, subject: Comparison, /) -> tuple[Claim, ...]:
        bound = subject.bound
        return (
            Claim(
                "|theta(t) - approximate(t)| <= e^mu (r(0) + integral e^-mu delta)",
                subject.distances,
                bound,
                rounding(bound) + subject.distance_error,
            ),
        )


@dataclass(frozen=True, eq=False)
class SmoothFlow:
    """A flow of a function whose Hessian's norm is bounded everywhere.

    Args:
        smoothness: that bound.
        slope_at_origin: the norm of the gradient at zero.
        times: increasing from 0.
        norms: of the weights at those times.
        seen_curvature: the largest norm of the Hessian found.
    """

    smoothness: float
    slope_at_origin: float
    times: Times
    norms: Times
    seen_curvature: float


class SmoothFlowIsGlobal(AbstractTheorem[SmoothFlow]):
    """The flow of a function that is smooth everywhere exists for all time.

    It grows exponentially at most, with beta the smoothness and g = |grad f(0)|:

        |theta(t)| <= ((g + beta |theta(0)|) e^{beta t} - g) / beta.

    The paper needs only that the right-hand side is finite; it is part of its proof.
    """

    reference: ClassVar[str] = "elkabetz2021:lem19"

    @override
    def assumptions(self, subject: SmoothFlow, /) -> tuple[Claim, ...]:
        smooth = Claim("|H| <= beta", subject.seen_curvature, subject.smoothness)
        return requirement("beta > 0", subject.smoothness > 0), smooth

    @override
    def conclusions(self, subject: SmoothFlow, /) -> tuple[Claim, ...]:
        beta, start = subject.smoothness, subject.norms[0]
        growth = np.exp(beta * subject.times)
        bound = start * growth + subject.slope_at_origin * np.expm1(beta * subject.times) / beta
        statement = "|theta(t)| <= ((g + beta |theta(0)|) e^(beta t) - g) / beta"
        return (Claim(statement, subject.norms, bound, rounding(bound)),)


def _phi_1(x: float) -> float:
    return expm1(x) / x if x else 1.0


def _phi_2(x: float) -> float:
    if abs(x) < _TAYLOR:
        return 0.5 + x / 6 + x**2 / 24
    return (expm1(x) - x) / x**2
