"""Descent as a numerical solution of its flow: how far apart they are [elkabetz2021].

Descent is Euler's method for theta' = -grad f(theta). Between two records of time the error r of
any approximate solution obeys

    r' = m r + delta,

where m bounds the logarithmic norm (of a gradient flow: minus the smallest eigenvalue of the
Hessian) between both curves, and delta the defect, by how much the approximate one misses the
equation. Where m is constant and delta is constant or linear in time, the solution is a sum of

    exp(m h),    h phi_1(m h),    h phi_2(m h),    phi_k(x) = integral_0^1 e^{(1-s) x} s^{k-1} ds,

and with a constant delta monotone, so that its largest value is one at the records. Descent with
learning rate eta has delta <= beta gamma eta where beta bounds the Hessian and gamma the gradient:
the step size that keeps r below a radius follows from

    eta beta gamma J(t) + e^{mu(t)} r(0) < radius,    J' = m J + 1,    mu' = m.

`following` applies this to networks.

[elkabetz2021] O. Elkabetz, N. Cohen, "Continuous vs. discrete optimization of deep neural
    networks", arXiv:2107.06608.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, expm1, inf, log, sqrt
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg.certificates.certificate import AbstractTheorem, Claim, requirement, rounding
from thalweg.certificates.magnitude import Magnitude

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
class Tube:
    """What is known on the balls of one radius around a flow, over a horizon.

    Args:
        times: increasing from 0 to the horizon.
        growth: m on each interval: minus the least eigenvalue of the Hessian on the balls.
        smoothness: beta, what the Hessian's norm stays below on all balls.
        steepness: gamma, likewise of the gradient.
        radius: of the balls.
        start_distance: how far from the flow's start descent begins.
    """

    times: Times
    growth: Intervals
    smoothness: float
    steepness: float
    radius: float
    start_distance: float = 0.0

    @classmethod
    def of(
        cls,
        growth: Callable[[Times], Times],
        time: float,
        *,
        smoothness: float,
        steepness: float,
        radius: float,
        start_distance: float = 0.0,
        intervals: int = 4000,
    ) -> "Tube":
        """From m as a function of time, of which Simpson's rule takes means over short intervals.

        These are no bounds on m: the result is right up to the error of the rule.
        """
        times = np.linspace(0.0, time, intervals + 1)
        ends, middles = growth(times), growth((times[1:] + times[:-1]) / 2)
        means = (ends[:-1] + 4 * middles + ends[1:]) / 6
        return cls(times, means, smoothness, steepness, radius, start_distance)

    @property
    def exponents(self) -> Times:
        """The integral mu of m, at the times."""
        return np.concatenate([[0.0], np.cumsum(self.growth * np.diff(self.times))])

    @property
    def log_amplification(self) -> Times:
        """The logarithm of J(t) = integral_0^t e^{mu(t) - mu(s)} ds at the times; -inf at 0."""
        lengths, exponents = np.diff(self.times), self.exponents
        sources = np.log(lengths) + _log_phi_1(self.growth * lengths) - exponents[1:]
        return np.concatenate([[-inf], exponents[1:] + np.logaddexp.accumulate(sources)])

    @property
    def offset(self) -> Magnitude:
        """What the distance between the starts can grow to: the largest e^mu |theta_0 - theta(0)|.

        The infimum over times begins after 0, but its limit there needs the start inside, too.
        """
        return Magnitude.of(self.start_distance) * Magnitude.exp(np.max(self.exponents))

    @property
    def largest_rate(self) -> Magnitude:
        """The infimum of the theorem; zero where the starts are too far apart."""
        room = self.radius - self.start_distance * np.exp(np.minimum(self.exponents, 700.0))
        if not np.all(room > 0):
            return Magnitude.of(0.0)
        logs = np.log(room[1:]) - self.log_amplification[1:]
        if self.smoothness == 0 or self.steepness == 0:
            return Magnitude(inf)
        return Magnitude(float(np.min(logs)) - log(self.smoothness) - log(self.steepness))

    def distance(self, learning_rate: float) -> float:
        """The largest solution of r' = m r + beta gamma eta; a bound while below the radius."""
        if self.smoothness == 0 or self.steepness == 0:
            return self.start_distance * float(np.exp(np.max(self.exponents)))
        defect = log(self.smoothness) + log(self.steepness) + log(learning_rate)
        start = log(self.start_distance) if self.start_distance > 0 else -inf
        logs = np.logaddexp(self.exponents + start, self.log_amplification + defect)
        return float(Magnitude(float(np.max(logs))))


@dataclass(frozen=True, eq=False)
class SmoothTube:
    """What is known of a function that is smooth everywhere.

    Args:
        smoothness: beta, what the Hessian's norm stays below.
        growth: m, minus what the Hessian's eigenvalues stay above.
        excess: f at the flow's start above its infimum, or above any lower bound of it.
        time: the horizon.
        radius: how near descent is to stay.
        start_distance: how far from the flow's start descent begins.
    """

    smoothness: float
    growth: float
    excess: float
    time: float
    radius: float
    start_distance: float = 0.0

    @property
    def offset(self) -> Magnitude:
        """What the distance between the starts can grow to."""
        return Magnitude.of(self.start_distance) * self._largest_growth

    @property
    def largest_rate(self) -> Magnitude:
        """The bound of the corollary; zero where the starts are too far apart."""
        if self.offset >= self.radius:
            return Magnitude.of(0.0)
        room = self.radius - float(self.offset)
        steepness = sqrt(2 * self.smoothness * self.excess) + self.smoothness * self.radius
        return Magnitude.of(room) / self._largest_amplification / self.smoothness / steepness

    def distance(self, learning_rate: float) -> float:
        """The least radius for which the learning rate is allowed; infinite where none is."""
        needed = learning_rate * float(self._largest_amplification)
        steepness = sqrt(2 * self.smoothness * self.excess)
        left = 1 - needed * self.smoothness**2
        least = needed * self.smoothness * steepness + float(self.offset)
        return least / left if left > 0 else inf

    @property
    def _largest_growth(self) -> Magnitude:
        return Magnitude.exp(max(self.growth * self.time, 0.0))

    @property
    def _largest_amplification(self) -> Magnitude:
        """What integral_0^t e^{m s} ds stays below: 1 / |m| for m < 0."""
        if self.growth < 0:
            return Magnitude.of(1 / -self.growth)
        exponent = float(_log_phi_1(np.array([self.growth * self.time]))[0])
        return Magnitude.of(self.time) * Magnitude.exp(exponent)


@dataclass(frozen=True, eq=False)
class Followed:
    """A descent in a tube: its learning rate, and its distances from the flow at its steps."""

    tube: Tube | SmoothTube
    learning_rate: float
    distances: Float[np.ndarray, " steps"]


class FollowsInTube(AbstractTheorem[Followed]):
    """Descent with small steps stays in a tube around the flow.

    With m, beta, gamma as in `Tube`, mu' = m, and mu(0) = 0, let

        eta < inf over 0 < t <= time of
              (radius - e^{mu(t)} |theta_0 - theta(0)|)
              / (beta gamma integral_0^t e^{mu(t) - mu(s)} ds).

    Then |theta_k - theta(k eta)| <= radius for k = 1, ..., floor(time / eta).

    The exponent is mu(t) - mu(s), as the proof has it. The paper prints mu(time) - mu(s), with
    which the statement is false once m changes its sign.
    """

    reference: ClassVar[str] = "elkabetz2021:thm3"

    @override
    def assumptions(self, subject: Followed, /) -> tuple[Claim, ...]:
        return rate_claims(subject.tube, subject.learning_rate)

    @override
    def conclusions(self, subject: Followed, /) -> tuple[Claim, ...]:
        return _stays_near(subject)


class FollowsWhereSmooth(AbstractTheorem[Followed]):
    """Descent with small steps stays near the flow of a function that is smooth everywhere.

    With beta and m as in `SmoothTube` and c = 1 / (sqrt(2 beta^3 excess) + beta^2 radius), let

        eta < c (radius - d) |m|                              where m < 0
              c (radius - d) / time                           where m = 0
              c (radius - d e^{m time}) m / (e^{m time} - 1)  where m > 0

    for d = |theta_0 - theta(0)|. Then |theta_k - theta(k eta)| <= radius up to the horizon. The
    paper has f(theta(0)) for the excess, of a function that is not negative.
    """

    reference: ClassVar[str] = "elkabetz2021:cor4"

    @override
    def assumptions(self, subject: Followed, /) -> tuple[Claim, ...]:
        smooth = isinstance(subject.tube, SmoothTube)
        known = requirement("the constants hold everywhere", smooth)
        return (known, *rate_claims(subject.tube, subject.learning_rate))

    @override
    def conclusions(self, subject: Followed, /) -> tuple[Claim, ...]:
        return _stays_near(subject)


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


def rate_claims(tube: Tube | SmoothTube, learning_rate: float | None) -> tuple[Claim, ...]:
    """That the starts are near enough and, where there is a learning rate, that it is small."""
    near = Claim("e^mu |theta_0 - theta(0)| < radius", tube.offset, Magnitude.of(tube.radius))
    if learning_rate is None or near.fails:
        return (near,)
    slow = "eta < inf (radius - e^mu d) / (beta gamma integral e^mu)"
    return near, Claim(slow, Magnitude.of(learning_rate), tube.largest_rate)


def _stays_near(subject: Followed) -> tuple[Claim, ...]:
    if subject.distances.size == 0:  # the horizon is shorter than a step
        return ()
    radius = subject.tube.radius
    statement = "|theta_k - theta(k eta)| <= radius"
    return (Claim(statement, subject.distances, radius, rounding(radius)),)


def _phi_1(x: float) -> float:
    return expm1(x) / x if x else 1.0


def _phi_2(x: float) -> float:
    if abs(x) < _TAYLOR:
        return 0.5 + x / 6 + x**2 / 24
    return (expm1(x) - x) / x**2


def _log_phi_1(x: Intervals) -> Intervals:
    """Without overflow for any x: phi_1(x) = e^x phi_1(-x)."""
    size = np.where(x == 0, 1.0, np.abs(x))
    return np.maximum(x, 0) + np.where(x == 0, 0.0, np.log(-np.expm1(-size) / size))
