"""An objective that descent follows only with steps of order e^{-a t}: the worst case, checked.

The objective is `adversarial.WorstCase`. Its flow grows at the rates a and a / 2 in two
coordinates, and from the second one's passage of a short transition of length r on at the rate a in
both; descent does the same by powers of 1 + a eta and 1 + a eta / 2. Beyond the transition both
move along rays from the origin, and what descent missed until then is the angle between the rays.
At the time t of interest the first coordinate is of the size e^{a t}, 1e15 in use, so that
distances of order one are beyond floating point; all is computed with 60 decimal digits. The steps
need not be run: powers replace them, except in the transition.
"""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from math import inf, log
from typing import ClassVar

import jax.numpy as jnp
from typing_extensions import override

from thalweg._checks import InputError
from thalweg.adversarial import WorstCase
from thalweg.certificates import AbstractTheorem, Claim, Magnitude, requirement

_DIGITS = 60
_SERIES = 40  # terms of the arctangent of less than 0.01
_MOST_STEPS = 1_000_000  # through the transition, a few seconds


@dataclass(frozen=True, eq=False)
class Horizon:
    """Descent on the worst case, and the time at which its flow is looked at.

    Args:
        objective: with the tolerance that is asked for.
        start: the first three coordinates.
        time: of the flow.
        learning_rate: of the descent.
    """

    objective: WorstCase
    start: tuple[float, float, float]
    time: float
    learning_rate: float

    @property
    def tolerance(self) -> float:
        """The distance that descent is to keep."""
        return float(self.objective.tolerance)

    @property
    def least_failing_rate(self) -> Magnitude:
        """1e14 e^{-a t} tolerance / a."""
        a = float(self.objective.a)
        return Magnitude.of(1e14 * self.tolerance / a) * Magnitude.exp(-a * self.time)

    def ray_distance(self) -> Magnitude:
        """From the flow at the time to the ray along which descent moves after the transition."""
        with localcontext(prec=_DIGITS):
            first, second, _ = self._flow()
            _, one, other = self._descent_after_transition()
            return _magnitude(abs(first * other - second * one) / (one**2 + other**2).sqrt())

    def closest_approach(self) -> Magnitude:
        """What the distance from the flow at the time to every iterate is at least.

        Before the transition, and beyond the edge, it is the second coordinate's; on the ray it is
        that of the nearest iterate, exactly; where the third coordinate grows, it is that one's.
        """
        with localcontext(prec=_DIGITS):
            a, eta = self._number(self.objective.a), Decimal(self.learning_rate)
            third = abs(Decimal(self.start[2]))
            if 6 * a * eta > 1:
                return _magnitude(third - abs(self._flow()[2]))
            return _magnitude(min(self._second_coordinate_gaps() + self._nearest_on_ray()))

    def _second_coordinate_gaps(self) -> list[Decimal]:
        """How far in the second coordinate every iterate is that is not on the ray."""
        flow, edge = self._flow()[1], self._number(self.objective.b) + 1
        return [flow - 1, edge - flow]

    def _nearest_on_ray(self) -> list[Decimal]:
        flow, (step, one, other) = self._flow(), self._descent_after_transition()
        a, eta = self._number(self.objective.a), Decimal(self.learning_rate)
        scale = (flow[0] * one + flow[1] * other) / (one**2 + other**2)
        growth = 1 + a * eta
        further = max(scale, Decimal(1)).ln() / growth.ln()
        distances = []
        for rounding in (ROUND_FLOOR, ROUND_CEILING):
            k = further.to_integral_value(rounding)
            third = Decimal(self.start[2]) * (1 - 12 * a * eta) ** (step + k)
            point = (one * growth**k, other * growth**k, third)
            squares = sum((p - q) ** 2 for p, q in zip(point, flow, strict=True))
            distances.append(Decimal(squares).sqrt())
        return distances

    def _flow(self) -> tuple[Decimal, Decimal, Decimal]:
        """The flow at the time, which must be after the transition."""
        a, r, t = self._number(self.objective.a), self._transition, Decimal(self.time)
        first, second, third = (Decimal(coordinate) for coordinate in self.start)
        entry = 2 * ((2 - 3 * r / 2) / (second + 1 - r / 2)).ln()  # times a
        k = (4 * r * (1 - r)).sqrt()
        crossing = 4 * r / k * _arctan((r / k) / (1 + 2 * (r / k) ** 2))
        return (
            first * (a * t).exp(),
            (a * t - entry - crossing).exp(),
            third * (-12 * a * t).exp(),
        )

    def _descent_after_transition(self) -> tuple[Decimal, Decimal, Decimal]:
        """The step at which descent is past the transition, and its first two coordinates there."""
        a, r, eta = self._number(self.objective.a), self._transition, Decimal(self.learning_rate)
        first, second, _ = (Decimal(coordinate) for coordinate in self.start)
        if r > _MOST_STEPS * a * eta:
            least = float(r / a / _MOST_STEPS)
            raise InputError(
                f"`learning_rate` must be at least {least:.0e} to be run through the transition, "
                f"got {self.learning_rate:g}."
            )
        top = r / 2 - 1
        slow = 1 + a * eta / 2
        ratio = ((2 - 3 * r / 2) / (second - top)).ln() / slow.ln()
        step = ratio.to_integral_value(ROUND_CEILING)
        reached = top + (second - top) * slow**step
        while reached < 1:
            reached += eta * a * (reached + (reached - 1) ** 2 / (4 * r))
            step += 1
        return step, first * (1 + a * eta) ** step, reached

    @property
    def _transition(self) -> Decimal:
        b, tolerance = self._number(self.objective.b), self._number(self.objective.tolerance)
        return min(Decimal(-12).exp() / 2, tolerance / (2 * b))

    def _number(self, value: object) -> Decimal:
        return Decimal(float(value))  # pyright: ignore[reportArgumentType]


class StepsMustShrink(AbstractTheorem[Horizon]):
    """On the worst case no iterate comes near the flow unless steps shrink with e^{-a t}.

    For b >= 3, a tolerance below one, a start with q_1 in (1/2, 1), q_2 + 1 in (e^{-12}/2, e^{-12})
    and q_3 > 2, and a time t in the window of `adversarial.WorstCase.window`,

        eta >= 1e14 e^{-a t} tolerance / a  ==>  |theta_k - theta(t)| > tolerance for every k.

    The curvature is nowhere below -a, so that by `FollowsWhereSmooth` steps of order e^{-a t} do:
    the exponent cannot be improved.
    """

    reference: ClassVar[str] = "elkabetz2021:prop20"

    @override
    def assumptions(self, subject: Horizon, /) -> tuple[Claim, ...]:
        claims = _start_claims(subject)
        if any(claim.fails for claim in claims):
            return claims
        early, late = subject.objective.window(jnp.asarray(subject.start))
        rate = Magnitude.of(subject.learning_rate)
        return (
            *claims,
            Claim("start of the window <= t", float(early), subject.time),
            Claim("t <= end of the window", subject.time, float(late)),
            Claim("1e14 e^(-a t) tolerance / a <= eta", subject.least_failing_rate, rate),
        )

    @override
    def conclusions(self, subject: Horizon, /) -> tuple[Claim, ...]:
        tolerance = Magnitude.of(subject.tolerance)
        statement = "tolerance < min_k |theta_k - theta(t)|"
        return (Claim(statement, tolerance, subject.closest_approach()),)


class ThirdCoordinateGrows(AbstractTheorem[Horizon]):
    """Above the learning rate 1 / (6 a) the third coordinate alone leaves the flow.

    There |1 - 12 a eta| > 1, so that |q_3| grows by descent while it falls by the flow; from the
    time log(2) / (12 a) on they are more than 1 > tolerance apart at every step.
    """

    reference: ClassVar[str] = "elkabetz2021:lem66"

    @override
    def assumptions(self, subject: Horizon, /) -> tuple[Claim, ...]:
        a, rate = float(subject.objective.a), subject.learning_rate
        return (
            *_start_claims(subject),
            Claim("log(2) / (12 a) <= t", log(2) / (12 * a), subject.time),
            Claim("1 / (6 a) < eta", 1 / (6 * a), rate),
        )

    @override
    def conclusions(self, subject: Horizon, /) -> tuple[Claim, ...]:
        statement = "1 < min_k |theta_k - theta(t)|"
        return (Claim(statement, Magnitude.of(1.0), subject.closest_approach()),)


class RaysPart(AbstractTheorem[Horizon]):
    """Past the transition descent is on a ray that misses the flow by the order of its step.

    For 0 < eta <= 1 / (6 a), with z_0 = r / 2 - 1, the flow at a time t in the window is at least

        ((q_2 - z_0) / (2 - 3 r / 2))^2 a eta e^{a t} / 20  >  1e-14 a eta e^{a t}

    away from every point of the ray of descent.
    """

    reference: ClassVar[str] = "elkabetz2021:lem86"

    @override
    def assumptions(self, subject: Horizon, /) -> tuple[Claim, ...]:
        claims = _start_claims(subject)
        if any(claim.fails for claim in claims):
            return claims
        early, late = subject.objective.window(jnp.asarray(subject.start))
        a, rate = float(subject.objective.a), subject.learning_rate
        return (
            *claims,
            Claim("start of the window <= t", float(early), subject.time),
            Claim("t <= end of the window", subject.time, float(late)),
            requirement("0 < eta", rate > 0),
            Claim("eta <= 1 / (6 a)", rate, 1 / (6 * a)),
        )

    @override
    def conclusions(self, subject: Horizon, /) -> tuple[Claim, ...]:
        a, r = float(subject.objective.a), float(subject.objective.transition)
        share = (subject.start[1] + 1 - r / 2) / (2 - 1.5 * r)
        size = Magnitude.exp(a * subject.time) * (a * subject.learning_rate)
        bound, found = size * (share**2 / 20), subject.ray_distance()
        formula = "((q_2 - z_0) / (2 - 3 r / 2))^2 a eta e^(a t) / 20"
        return (
            Claim(f"1e-14 a eta e^(a t) < {formula}", size * 1e-14, bound),
            Claim(f"{formula} <= distance of the flow from the ray", bound, found),
        )


def _start_claims(subject: Horizon) -> tuple[Claim, ...]:
    objective = subject.objective
    covered = bool(objective.start_is_covered(jnp.asarray(subject.start)))
    return (
        Claim("3 <= b", 3.0, float(objective.b)),
        Claim("tolerance < 1", subject.tolerance, 1.0),
        requirement("the start is covered", covered),
    )


def _arctan(x: Decimal) -> Decimal:
    """By its series."""
    return sum(((-1) ** j * x ** (2 * j + 1) / (2 * j + 1) for j in range(_SERIES)), Decimal(0))


def _magnitude(number: Decimal) -> Magnitude:
    return Magnitude(float(number.ln()) if number > 0 else -inf)
