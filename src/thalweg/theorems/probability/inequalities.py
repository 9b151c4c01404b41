"""Inequalities about numbers, and distributions of Gaussian matrices, that proofs are built from.

    (1 - x)^a >= 1 - 2 a x,    (1 + x)^a <= 1 + 2 a x       powers near one
    L exp(-sqrt(L) x) <= (4 / e) exp(-x)                    union bound
    P(chi2(p) >= p + u) <= exp(-u^2 / (4 (p + u)))          tails
    |N h|^2 / |h|^2 ~ chi2(d),  h^T N h / |h|^2 ~ N(0, 1)   one Gaussian matrix on one vector

[marion2024] P. Marion, L. Chizat, "Deep linear networks for regression are implicitly regularized
    towards flat minima", arXiv:2405.13456.
"""

from dataclasses import dataclass
from math import exp, log, log1p, sqrt
from typing import ClassVar

import numpy as np
import scipy
from jaxtyping import Float
from typing_extensions import override

from thalweg.certificates import AbstractTheorem, Claim, Magnitude, rounding

SIGNIFICANCE = 1e-6
"""Below this a Kolmogorov-Smirnov test rejects; so seldom that no test need be repeated."""


@dataclass(frozen=True)
class PowerNearOne:
    """The number (1 - x)^a, or (1 + x)^a."""

    x: float
    a: float


class PowersNearOne(AbstractTheorem[PowerNearOne]):
    """Powers of numbers near one are nearly straight.

    For a > 0 and x >= 0,

        (1 - x)^a >= 1 - 2 a x    if x <= 1/2,
        (1 + x)^a <= 1 + 2 a x    if a x <= 1.

    Whichever condition holds, its inequality is looked at.
    """

    reference: ClassVar[str] = "marion2024:lem4"

    @override
    def assumptions(self, subject: PowerNearOne, /) -> tuple[Claim, ...]:
        x, a = subject.x, subject.a
        return (
            Claim("0 <= x", 0.0, x),
            Claim("0 <= a", 0.0, a),
            Claim("min(2 x, a x) <= 1", min(2 * x, a * x), 1.0),
        )

    @override
    def conclusions(self, subject: PowerNearOne, /) -> tuple[Claim, ...]:
        x, a, claims = subject.x, subject.a, []
        straight = 2 * a * x
        slack = rounding(1.0, straight)
        if x <= 0.5:
            below = exp(a * log1p(-x))
            claims.append(Claim("1 - 2 a x <= (1 - x)^a", 1 - straight, below, slack))
        if a * x <= 1:
            above = exp(a * log1p(x))
            claims.append(Claim("(1 + x)^a <= 1 + 2 a x", above, 1 + straight, slack))
        return tuple(claims)


@dataclass(frozen=True)
class SmallProbabilities:
    """L events of probability exp(-sqrt(L) x) each."""

    count: float
    x: float


class UnionBound(AbstractTheorem[SmallProbabilities]):
    """A union bound over many small probabilities is small, if they fall fast enough.

    For x >= 1 and every L >= 1,

        L exp(-sqrt(L) x) <= (4 / e) exp(-x) <= 4 exp(-x).

    The paper has the last bound, for L large enough (its proof needs L >= 12). The rest is ours:
    the logarithm of the quotient of the outer sides is at most 2 log(s / 2) - (s - 1) with
    s = sqrt(L), which is largest at s = 2, and -1 there.
    """

    reference: ClassVar[str] = "marion2024:lem5"

    @override
    def assumptions(self, subject: SmallProbabilities, /) -> tuple[Claim, ...]:
        return (Claim("1 <= L", 1.0, subject.count), Claim("1 <= x", 1.0, subject.x))

    @override
    def conclusions(self, subject: SmallProbabilities, /) -> tuple[Claim, ...]:
        root = sqrt(subject.count)
        lesser = Magnitude(log(subject.count) - root * subject.x)
        slack = float(rounding(1.0, root * subject.x))
        printed, sharper = (Magnitude(log(4) - shift - subject.x) for shift in (0.0, 1.0))
        return (
            Claim("L exp(-sqrt(L) x) <= 4 exp(-x)", lesser, printed, slack),
            Claim("L exp(-sqrt(L) x) <= (4 / e) exp(-x)", lesser, sharper, slack),
        )


@dataclass(frozen=True)
class Tail:
    """How far a chi-squared variable is above its mean, the degrees of freedom."""

    freedom: float
    excess: float


class ChiSquaredTail(AbstractTheorem[Tail]):
    """A chi-squared variable is seldom far above its mean.

    For u >= 0, with the exact tail on the left,

        P(chi2(p) >= p + u) <= exp(-u^2 / (4 (p + u))).
    """

    reference: ClassVar[str] = "marion2024:chi2-tail"

    @override
    def assumptions(self, subject: Tail, /) -> tuple[Claim, ...]:
        return (
            Claim("0 < p", 0.0, subject.freedom),
            Claim("0 <= u", 0.0, subject.excess),
        )

    @override
    def conclusions(self, subject: Tail, /) -> tuple[Claim, ...]:
        p, u = subject.freedom, subject.excess
        exact = Magnitude(float(scipy.stats.chi2.logsf(p + u, p)))
        bound = Magnitude.exp(-(u**2) / (4 * (p + u)))
        # The exact tail is good to ten digits or so where it is very small.
        return (Claim("P(chi2(p) >= p + u) <= exp(-u^2 / (4 (p + u)))", exact, bound, 1e-9),)


@dataclass(frozen=True, eq=False)
class GaussianDraws:
    """Square matrices that were drawn, and a vector that they act on."""

    matrices: Float[np.ndarray, "draws size size"]
    vector: Float[np.ndarray, " size"]


class GaussianForms(AbstractTheorem[GaussianDraws]):
    """A Gaussian matrix makes a chi-squared variable and a Gaussian one of any vector.

    If the entries of N (d x d) are independent standard Gaussians and h is not zero,

        |N h|^2 / |h|^2 ~ chi2(d),    h^T N h / |h|^2 ~ N(0, 1);

    the two are not independent of each other. Laws are compared by Kolmogorov-Smirnov tests, and a
    claim is that a test does not reject. That entries are independent is not looked at.
    """

    reference: ClassVar[str] = "marion2024:lem6"

    @override
    def assumptions(self, subject: GaussianDraws, /) -> tuple[Claim, ...]:
        size = float(np.linalg.norm(subject.vector))
        return (
            Claim("0 < |h|", 0.0, size),
            _follows("the entries of N", subject.matrices.ravel(), scipy.stats.norm(), "N(0, 1)"),
        )

    @override
    def conclusions(self, subject: GaussianDraws, /) -> tuple[Claim, ...]:
        unit = subject.vector / np.linalg.norm(subject.vector)
        images = subject.matrices @ unit
        law = scipy.stats.chi2(unit.size)
        return (
            _follows("|N h|^2 / |h|^2", np.sum(images**2, axis=1), law, f"chi2({unit.size})"),
            _follows("h^T N h / |h|^2", images @ unit, scipy.stats.norm(), "N(0, 1)"),
        )


def _follows(what: str, values: Float[np.ndarray, " draws"], law: object, name: str) -> Claim:
    """The claim that a Kolmogorov-Smirnov test does not reject the distribution."""
    chance = float(scipy.stats.kstest(values, law.cdf).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    statement = f"{SIGNIFICANCE:g} <= p-value of {what} ~ {name} (Kolmogorov-Smirnov)"
    return Claim(statement, SIGNIFICANCE, chance)
