"""How much of a sphere lies near a target: caps, and the margin of a random vector.

A vector V of norm r has a deficiency margin of at least c with respect to a target of norm F,
|V - target| <= F - c, if and only if its cosine to the target is at least

    (r^2 + 2 c F - c^2) / (2 r F),    c <= F.

Uniform on a sphere of R^d, it has a cosine of at least t >= 0 with probability

    I_{1 - t^2}((d - 1) / 2, 1 / 2) / 2,    I the regularised incomplete beta function,

so that every bound here stands beside the exact number. Lengths are in units of F.
"""

from dataclasses import dataclass
from math import exp, sqrt
from typing import Any, ClassVar

import numpy as np
import scipy
from jaxtyping import Float
from typing_extensions import override

from thalweg._checks import require_count
from thalweg.certificates import AbstractTheorem, Claim, Magnitude, requirement, rounding

LEAST_DIMENSION = 20
"""From which on the papers' bounds on caps are proven."""

_TAIL = 1e-16  # of a distribution of norms, left out of an integral


def cap_share(dimension: int, cosine: Any) -> Float[np.ndarray, "..."]:
    """The share of a sphere of R^d on which the cosine to a direction is at least this."""
    count, cosines = require_count("dimension", dimension), np.asarray(cosine, float)
    inside = np.clip(cosines, -1.0, 1.0)
    if count == 1:
        half = np.full(inside.shape, 0.5)
    else:
        # The same number twice: near the equator t^2 keeps its digits, near the pole 1 - t^2 does.
        a, square, rest = (count - 1) / 2, inside**2, (1 - inside) * (1 + inside)
        half = (
            np.where(
                square < 0.5,
                scipy.special.betaincc(0.5, a, square),
                scipy.special.betainc(a, 0.5, rest),
            )
            / 2
        )
    share = np.where(inside < 0, 1 - half, half)
    return np.where(cosines > 1, 0.0, np.where(cosines <= -1, 1.0, share))


def margin_share(dimension: int, margin: Any, norm: Any) -> Float[np.ndarray, "..."]:
    """The share of the sphere of this radius on which the margin is at least `margin`."""
    margins, norms = np.broadcast_arrays(np.asarray(margin, float), np.asarray(norm, float))
    cosines = norms / 2 + margins * (2 - margins) / (2 * norms)
    return cap_share(dimension, np.where(margins > 1, np.inf, cosines))


def margin_probability(dimension: int, margin: float, norm: Any) -> float:
    """The probability of a margin: a rotation-invariant vector, its norm of this distribution.

    Args:
        dimension: the number of entries.
        margin: in units of the target's norm.
        norm: the distribution of the vector's norm, in the same units, a frozen one of scipy.stats.
    """

    def density(radius: float) -> float:
        return float(margin_share(dimension, margin, radius) * norm.pdf(radius))

    ends = norm.ppf(_TAIL), norm.isf(_TAIL)
    return float(scipy.integrate.quad(density, *ends, epsabs=1e-13, epsrel=1e-11, limit=400)[0])


def cap_bound(distance: Any) -> Float[np.ndarray, "..."]:
    """(3 - 4 Phi(x)) / 2, the papers' lower bound on a cap; positive for x < 0.6745."""
    return np.asarray((3 - 4 * scipy.special.ndtr(distance)) / 2)


def _enough_dimensions(dimension: int) -> Claim:
    return Claim("20 <= d", LEAST_DIMENSION, dimension)


@dataclass(frozen=True)
class Cap:
    """The points of the unit sphere of R^d that are within `height` of a pole's height."""

    dimension: int
    height: float


class CapArea(AbstractTheorem[Cap]):
    """A spherical cap has at least the area that a normal tail of twice the size gives it.

        share{x in S^(d-1): <x, u> >= 1 - h}  >=  (3 - 4 Phi((1 - h) sqrt(d - 1))) / 2

    for d >= 20 and 0 <= h <= 1. The proof gives sqrt(d - 3) in place of sqrt(d - 1), which is more
    and is checked too. Positive only for (1 - h) sqrt(d - 1) < 0.6745.
    """

    reference: ClassVar[str] = "arora2019:lemma14"

    @override
    def assumptions(self, subject: Cap, /) -> tuple[Claim, ...]:
        return (
            _enough_dimensions(subject.dimension),
            Claim("0 <= h", 0.0, subject.height),
            Claim("h <= 1", subject.height, 1.0),
        )

    @override
    def conclusions(self, subject: Cap, /) -> tuple[Claim, ...]:
        level, d = 1 - subject.height, subject.dimension
        exact = cap_share(d, level)
        stated, proven = (cap_bound(level * sqrt(d - less)) for less in (1, 3))
        return (
            Claim("(3 - 4 Phi((1 - h) sqrt(d - 1))) / 2 <= share", stated, exact, rounding(1.0)),
            Claim("(3 - 4 Phi((1 - h) sqrt(d - 3))) / 2 <= share", proven, exact, rounding(1.0)),
        )


@dataclass(frozen=True)
class Shell:
    """The sphere of radius F / sqrt(a d) in R^d, a the `ratio`."""

    dimension: int
    ratio: float


class MarginOnSphere(AbstractTheorem[Shell]):
    """A vector drawn from a small sphere has a margin with a probability of nearly one half.

        |V| = F / sqrt(a d)  ==>  P[margin >= F / (a d)] >= (3 - 4 Phi(2 / sqrt(a))) / 2

    for d >= 20 and a >= 1; positive only for a > 8.79. The cap that is exactly right has its base
    at (3/2 - 1 / (2 a d)) F / (a d), the paper's at 2 F / (a d).
    """

    reference: ClassVar[str] = "arora2019:lemma15"

    @override
    def assumptions(self, subject: Shell, /) -> tuple[Claim, ...]:
        return _enough_dimensions(subject.dimension), Claim("1 <= a", 1.0, subject.ratio)

    @override
    def conclusions(self, subject: Shell, /) -> tuple[Claim, ...]:
        square = 1 / (subject.ratio * subject.dimension)
        exact = margin_share(subject.dimension, square, sqrt(square))
        bound = cap_bound(2 / sqrt(subject.ratio))
        statement = "(3 - 4 Phi(2 / sqrt(a))) / 2 <= P(margin >= F / (a d))"
        return (Claim(statement, bound, exact, rounding(1.0)),)


@dataclass(frozen=True, eq=False)
class RadialLaw:
    """A rotation-invariant law on R^d, and a shell that holds most of it.

    Args:
        dimension: d.
        norm: the distribution of |V| / F, a frozen continuous one of scipy.stats.
        outer: b_1 of the shell's larger radius F / sqrt(b_1 d).
        inner: b_2 of its smaller radius F / sqrt(b_2 d).
    """

    dimension: int
    norm: Any
    outer: float
    inner: float

    @property
    def share(self) -> float:
        """The probability of the shell."""
        radii = [1 / sqrt(ratio * self.dimension) for ratio in (self.inner, self.outer)]
        return float(self.norm.cdf(radii[1]) - self.norm.cdf(radii[0]))


class RadialMargin(AbstractTheorem[RadialLaw]):
    """A rotation-invariant vector of small norm has a margin with probability nearly one half.

        P[F / sqrt(b_2 d) <= |V| <= F / sqrt(b_1 d)] >= 1 - e  ==>
        P[margin >= F / (b_2 d)] >= (1 - e) (3 - 4 Phi(2 / sqrt(b_1))) / 2

    for d >= 20 and b_2 > b_1 >= 1. The square roots of the print cover the products b d. The exact
    probability is the share of a cap, integrated over the distribution of |V|. Positive for
    b_1 > 8.79.
    """

    reference: ClassVar[str] = "arora2019:lemma8"

    @override
    def assumptions(self, subject: RadialLaw, /) -> tuple[Claim, ...]:
        return (
            _enough_dimensions(subject.dimension),
            requirement("the distribution of |V| has a density", hasattr(subject.norm, "pdf")),
            Claim("1 <= b_1", 1.0, subject.outer),
            Claim("b_1 < b_2", subject.outer, subject.inner),
        )

    @override
    def conclusions(self, subject: RadialLaw, /) -> tuple[Claim, ...]:
        margin = 1 / (subject.inner * subject.dimension)
        exact = margin_probability(subject.dimension, margin, subject.norm)
        bound = subject.share * cap_bound(2 / sqrt(subject.outer))
        statement = "(1 - e) (3 - 4 Phi(2 / sqrt(b_1))) / 2 <= P(margin >= F / (b_2 d))"
        return (Claim(statement, bound, exact, 1e-10),)  # the error of the integral


@dataclass(frozen=True)
class GaussianNorm:
    """The squared norm of d standard normal numbers, and an exponent k at which to ask."""

    dimension: int
    exponent: float


class GaussianNormTails(AbstractTheorem[GaussianNorm]):
    """The norm of a Gaussian vector stays close to the root of its dimension.

        P[|V|^2 >= s^2 (d + 2 k + 2 sqrt(k d))] <= exp(-k)
        P[|V|^2 <= s^2 (d - 2 sqrt(k d))] <= exp(-k)

    for V in R^d with independent entries from N(0, s^2) and k > 0. Compared with the exact law,
    chi-squared with d degrees of freedom, which does not depend on s.
    """

    reference: ClassVar[str] = "arora2019:lemma9"

    @override
    def assumptions(self, subject: GaussianNorm, /) -> tuple[Claim, ...]:
        return Claim("1 <= d", 1, subject.dimension), Claim("0 < k", 0.0, subject.exponent)

    @override
    def conclusions(self, subject: GaussianNorm, /) -> tuple[Claim, ...]:
        d, k = subject.dimension, subject.exponent
        above = float(scipy.stats.chi2.sf(d + 2 * k + 2 * sqrt(k * d), d))
        below = float(scipy.stats.chi2.cdf(d - 2 * sqrt(k * d), d))
        limit, resolution = Magnitude.exp(-k), float(rounding(1.0, k))
        return (
            Claim("P(|V|^2 >= s^2 (d + 2 k + 2 sqrt(k d))) <= e^-k", above, limit, resolution),
            Claim("P(|V|^2 <= s^2 (d - 2 sqrt(k d))) <= e^-k", below, limit, resolution),
        )


def typical_shell_probability(dimension: int) -> float:
    """1 - 2 exp(-d / 16): how likely s^2 d / 2 <= |V|^2 <= 2 s^2 d is at least, by the tails."""
    return 1 - 2 * exp(-dimension / 16)
