"""Tubes around a flow, and the step sizes with which descent stays in them.

Descent with learning rate eta misses the equation of its flow by beta gamma eta at most, where beta
bounds the Hessian and gamma the gradient. By `error_growth` it stays within a radius r of the flow
where

    eta beta gamma J(t) + e^{mu(t)} r(0) < r,    J' = m J + 1,    mu' = m.

The constants may hold on balls of that radius around the flow (`Tube`), or everywhere
(`SmoothTube`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from thalweg.certificates import Claim, Magnitude

Times = Float[np.ndarray, " times"]
Intervals = Float[np.ndarray, " intervals"]


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
    everywhere: ClassVar[bool] = False

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
        left = self.radius - self.start_distance * np.exp(np.minimum(self.exponents, 700.0))
        if not np.all(left > 0):
            return Magnitude.of(0.0)
        logs = np.log(left[1:]) - self.log_amplification[1:]
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
    everywhere: ClassVar[bool] = True

    @property
    def offset(self) -> Magnitude:
        """What the distance between the starts can grow to."""
        return Magnitude.of(self.start_distance) * self._largest_growth

    @property
    def largest_rate(self) -> Magnitude:
        """The bound of the corollary; zero where the starts are too far apart."""
        if self.offset >= self.radius:
            return Magnitude.of(0.0)
        left = self.radius - float(self.offset)
        steepness = sqrt(2 * self.smoothness * self.excess) + self.smoothness * self.radius
        return Magnitude.of(left) / self._largest_amplification / self.smoothness / steepness

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
    """A descent that is to follow its flow, with what is known around the flow.

    Args:
        tube: of the wanted radius; None where no radius is wanted.
        learning_rate: of the descent; None where the largest is asked for.
        distances: from the flow, at the recorded steps up to the horizon; none may be.
        distance_error: how far off these may be.
        reached: the distance that is proven at the learning rate; infinite where none is.
        time: the horizon.
    """

    tube: Tube | SmoothTube | None
    learning_rate: float | None
    distances: Float[np.ndarray, " steps"]
    distance_error: Any = 0.0
    reached: float = inf
    time: float = inf


def rate_claims(tube: Tube | SmoothTube, learning_rate: float | None) -> tuple[Claim, ...]:
    """That the starts are near enough and, where there is a learning rate, that it is small."""
    near = Claim("e^mu |theta_0 - theta(0)| < radius", tube.offset, Magnitude.of(tube.radius))
    if learning_rate is None or near.fails:
        return (near,)
    slow = "eta < inf (radius - e^mu d) / (beta gamma integral e^mu)"
    return near, Claim(slow, Magnitude.of(learning_rate), tube.largest_rate)


def _log_phi_1(x: Intervals) -> Intervals:
    """Without overflow for any x: phi_1(x) = e^x phi_1(-x)."""
    size = np.where(x == 0, 1.0, np.abs(x))
    return np.maximum(x, 0) + np.where(x == 0, 0.0, np.log(-np.expm1(-size) / size))
