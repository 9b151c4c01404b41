"""How a balanced network with one output escapes from near zero, stage by stage [elkabetz2021].

On white inputs, in units in which the target has norm 1, the flow of the product w moves in the
plane of w(0) and the target. With depth N and the time tau of dt = |u|^-(1 - 2/N) dtau it is u(tau)
with u(0) = w(0), whose norm and cosine to the target obey

    |u|' = N |u| (nu - |u|),    nu' = 1 - nu^2,    t = xi(tau) = integral_0^tau |u|^-(1 - 2/N).

The stages: for nu(0) < |u(0)| the norm first falls, to u_min; by the time t_a the product is
aligned to the target (nu >= 2/3), by t_a + t_c its norm is of order one, and from there the
distance to the target falls exponentially, to a gap |u - target|^2 / 2 within t_gap. With
rho = (1 - nu(0)) / (1 + nu(0)),

    t_a = log(max{5 rho, 1}) / 2,    t_c = 3 / (2 N) log(2 N / (3 u_min)),
    t_gap = 3 (N + 1) / (2 N) log(6 / (5 sqrt(2 gap))).

u(tau) is elementary (`dynamics.exact`), so that every lemma is held against the flow itself.
"""

from math import atanh, cosh, log, sqrt
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg.certificates import AbstractTheorem, Claim, Magnitude, identity, requirement, rounding
from thalweg.theorems.settings.ray import Ray, ray_claims

Series = Float[np.ndarray, " times"]

_POINTS = 64


class Reparametrisation(AbstractTheorem[Ray]):
    """In a time of its own the product's cosine and norm obey two simple equations.

        |u|' = N |u| (nu - |u|),    nu' = 1 - nu^2,    nu(tau) = 1 - 2 rho / (rho + e^{2 tau}).

    The paper's equation for u itself, u' = -|u| (N u - target) + (N - 1) u <u, target> / |u|, says
    the same, because u stays in one plane. Derivatives are differences over 2e-4, hence known to
    1e-8 N^3.
    """

    reference: ClassVar[str] = "elkabetz2021:lem43"

    @override
    def assumptions(self, subject: Ray, /) -> tuple[Claim, ...]:
        return ray_claims(subject)

    @override
    def conclusions(self, subject: Ray, /) -> tuple[Claim, ...]:
        n, step = subject.depth, 1e-4
        taus = step + _stages(subject)
        norms, cosines = _along(subject, taus)
        ahead, behind = _along(subject, taus + step), _along(subject, taus - step)
        slopes = [(a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True)]
        rho = subject.opposition
        explicit = np.tanh(taus - log(rho) / 2) if rho > 0 else np.ones(taus.size)
        known = 1e-8 * n**3
        residuals = (
            ("|u|' = N |u| (nu - |u|)", slopes[0] - n * norms * (cosines - norms), known * norms),
            ("nu' = 1 - nu^2", slopes[1] - (1 - cosines**2), known),
            ("nu = 1 - 2 rho / (rho + e^(2 tau))", cosines - explicit, 1e-12),
        )
        return tuple(identity(name, np.abs(found), slack) for name, found, slack in residuals)


class NormEnvelope(AbstractTheorem[Ray]):
    """The norm of the product falls until it meets the cosine, then grows, and stays below one.

    |u(0)| e^{-2 N tau} <= |u(tau)| <= |u(0)| e^{N tau},    |u(tau)| < 1,
    |u(tau)|' < 0 while nu < |u|, and >= 0 from then on.
    """

    reference: ClassVar[str] = "elkabetz2021:lem46"

    @override
    def assumptions(self, subject: Ray, /) -> tuple[Claim, ...]:
        return ray_claims(subject)

    @override
    def conclusions(self, subject: Ray, /) -> tuple[Claim, ...]:
        n, turn = subject.depth, subject.turning_time
        taus = _stages(subject)
        norms = _along(subject, taus)[0]
        falling = _along(subject, np.linspace(0.0, turn, _POINTS))[0]
        rising = _along(subject, turn + taus)[0]
        lower, upper = (subject.norm * np.exp(rate * taus) for rate in (-2 * n, n))
        slack = rounding(1.0)
        return (
            Claim("|u(0)| e^(-2 N tau) <= |u(tau)|", lower, norms, rounding(lower)),
            Claim("|u(tau)| <= |u(0)| e^(N tau)", norms, upper, rounding(upper)),
            Claim("|u(tau)| < 1", norms, 1.0, slack),
            Claim(
                "|u(tau_{i+1})| <= |u(tau_i)|, until (nu = |u|)",
                falling[1:],
                falling[:-1],
                rounding(falling[1:]),
            ),
            Claim(
                "|u(tau_i)| <= |u(tau_{i+1})|, from (nu = |u|) on",
                rising[:-1],
                rising[1:],
                rounding(rising[1:]),
            ),
        )


class LeastNorm(AbstractTheorem[Ray]):
    """The product comes only so near to zero.

    With rho = (1 - nu) / (1 + nu) at the start, u_min >= |w| min{1, (2 / (3 rho))^N}. From the
    closed form, ours and sharper: u_min = |w| where nu >= |w|, and otherwise

        1 / u_min <= 1 / |w| + N artanh|w|                                            nu >= 0,
        1 / u_min <= (1 - nu^2)^{-N/2} (1 / |w| + N artanh|nu|) + N artanh|w|         nu < 0,

    because 1 / |u| is at most cosh(c)^N (1 / |w| + N |c|), c = artanh nu, until nu = 0, and grows
    by N per unit of tau at most during the time artanh|w| in which nu reaches |w|.
    """

    reference: ClassVar[str] = "elkabetz2021:lem48"

    @override
    def assumptions(self, subject: Ray, /) -> tuple[Claim, ...]:
        return ray_claims(subject)

    @override
    def conclusions(self, subject: Ray, /) -> tuple[Claim, ...]:
        found, (printed, sharper) = subject.least_norm, least_norm_bounds(subject)
        slack = 1e-12 * found  # of the closed form, a sum of N + 1 exponentials
        return (
            Claim("|w| min{1, (2 / (3 rho))^N} <= u_min", printed, found, slack),
            Claim("the sharper bound <= u_min", sharper, found, slack),
        )


def least_norm_bounds(ray: Ray) -> tuple[float, float]:
    """Lower bounds on u_min: the paper's, and the sharper one of `LeastNorm`."""
    n, norm, nu = ray.depth, ray.norm, ray.cosine
    rho = ray.opposition
    printed = norm * min(1.0, (2 / (3 * rho)) ** n) if rho > 0 else norm
    if nu >= norm:
        return printed, norm
    reached = 1 / norm
    if nu < 0:
        reached = cosh(atanh(nu)) ** n * (1 / norm + n * atanh(-nu))
    return printed, 1 / (reached + n * atanh(norm))


class Alignment(AbstractTheorem[Ray]):
    """From t_a on the product is aligned to the target: nu >= 2/3."""

    reference: ClassVar[str] = "elkabetz2021:lem50"

    @override
    def assumptions(self, subject: Ray, /) -> tuple[Claim, ...]:
        return ray_claims(subject)

    @override
    def conclusions(self, subject: Ray, /) -> tuple[Claim, ...]:
        cosines = _along(subject, subject.alignment_time + _stages(subject))[1]
        return (Claim("2/3 <= nu(t_a + tau)", 2 / 3, cosines, 1e-12),)


class NormGrowth(AbstractTheorem[Ray]):
    """Once aligned the product grows like a logistic curve, and is of order one from t_a + t_c on.

    |u(t_a + tau)| >= (2/3) E / (E + 2 / (3 u_min) - 1),    E = e^{2 N tau / 3},
    |u(t_a + t_c + tau)| >= 2 N / (3 (N + 1)).
    """

    reference: ClassVar[str] = "elkabetz2021:lem51"

    @override
    def assumptions(self, subject: Ray, /) -> tuple[Claim, ...]:
        return ray_claims(subject)

    @override
    def conclusions(self, subject: Ray, /) -> tuple[Claim, ...]:
        n, aligned, taus = subject.depth, subject.alignment_time, _stages(subject)
        rate = 2 * n / 3
        logistic = 2 / 3 / (1 + np.exp(-rate * taus) * (2 / (3 * subject.least_norm) - 1))
        norms = _along(subject, aligned + taus)[0]
        late = _along(subject, aligned + subject.growth_time + taus)[0]
        return (
            Claim("(2/3) E / (E + 2 / (3 u_min) - 1) <= |u|", logistic, norms, 1e-12 * norms),
            Claim("2 N / (3 (N + 1)) <= |u(t_a + t_c + tau)|", rate / (n + 1), late, 1e-12),
        )


class Approach(AbstractTheorem[Ray]):
    """In the last stage the distance to the target falls exponentially, to any gap in known time.

    |target - u(t_a + t_c + tau)| <= (6/5) e^{-2 N tau / (3 (N + 1))},
    |target - u(t_a + t_c + t_gap)|^2 / 2 <= gap.
    """

    reference: ClassVar[str] = "elkabetz2021:lem54"
    gap: float = 1e-3

    @override
    def assumptions(self, subject: Ray, /) -> tuple[Claim, ...]:
        return (requirement("gap > 0", self.gap > 0), *ray_claims(subject))

    @override
    def conclusions(self, subject: Ray, /) -> tuple[Claim, ...]:
        n, taus = subject.depth, _stages(subject)
        begins = subject.alignment_time + subject.growth_time
        distances = np.array([sqrt(2 * subject.gap_at(begins + tau)) for tau in taus])
        bound = 1.2 * np.exp(-2 * n / (3 * (n + 1)) * taus)
        reached = subject.gap_at(subject.total_time(self.gap))
        return (
            Claim("|target - u| <= (6/5) e^(-2 N tau / (3 (N + 1)))", distances, bound, 1e-12),
            Claim("|target - u(t_a + t_c + t_gap)|^2 / 2 <= gap", reached, self.gap, 1e-15),
        )


class TimeOfStages(AbstractTheorem[Ray]):
    """In the flow's own time all stages together take no longer than the time of prop. 14.

    xi(t_a + t_c + t_gap) <= 2 N max{1, 3 rho / 2}^N / |w|
                             log(15 N max{1, rho} / (|w| min{1, 2 gap})).
    """

    reference: ClassVar[str] = "elkabetz2021:lem58"
    gap: float = 1e-3

    @override
    def assumptions(self, subject: Ray, /) -> tuple[Claim, ...]:
        return (requirement("gap > 0", self.gap > 0), *ray_claims(subject))

    @override
    def conclusions(self, subject: Ray, /) -> tuple[Claim, ...]:
        taken = Magnitude.of(subject.elapsed(subject.total_time(self.gap)))
        statement = "xi(t_a + t_c + t_gap) <= the time of prop. 14"
        return (Claim(statement, taken, convergence_time(subject, self.gap), 1e-9),)


def convergence_time(ray: Ray, gap: float) -> Magnitude:
    """By when the flow has brought |w - target|^2 / 2 below the gap (elkabetz2021:eq21)."""
    rho, n = ray.opposition, ray.depth
    slow = Magnitude.of(max(1.0, 1.5 * rho)) ** n * (2 * n) / ray.norm
    return slow * log(15 * n * max(1.0, rho) / (ray.norm * min(1.0, 2 * gap)))


def _stages(ray: Ray) -> Series:
    """Times from 0 to past the end of the second stage, at which lemmas are looked at."""
    return np.linspace(0.0, ray.alignment_time + ray.growth_time + 1, _POINTS)


def _along(ray: Ray, taus: Series) -> tuple[Series, Series]:
    norms = np.array([ray.norm_at(float(tau)) for tau in taus])
    return norms, np.array([ray.cosine_at(float(tau)) for tau in taus])
