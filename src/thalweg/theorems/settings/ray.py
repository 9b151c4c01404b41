"""Where the product of a network with one output starts, and its exact flow from there.

On white inputs, in units in which the target has norm 1, all depends on the depth, the norm of the
product and its cosine to the target; `one_output.stages` has the formulas.
"""

from dataclasses import dataclass
from math import atanh, exp, inf, log, sqrt, tanh

import scipy

from thalweg.certificates import Claim, requirement, rounding
from thalweg.dynamics.exact import reciprocal_norm

LARGEST_NORM = 0.2
"""What the norm of the product at the start must not exceed, in units of the target's."""

LEAST_COSINE = 1e-12 - 1
"""The cosine of a product that is told from an antiparallel one, up to rounding."""

_ALIGNED = 1 - 1e-15  # a cosine above it is one, up to rounding


@dataclass(frozen=True)
class Ray:
    """Where the product starts: the depth, its norm in units of the target's, and its cosine."""

    depth: int
    norm: float
    cosine: float

    @property
    def opposition(self) -> float:
        """Rho = (1 - cosine) / (1 + cosine)."""
        return (1 - self.cosine) / (1 + self.cosine) if self.cosine > -1 else inf

    @property
    def is_resolved(self) -> bool:
        """Whether |u| stays within the range of floating point."""
        return self.cosine >= 0 or self.depth * atanh(min(-self.cosine, -LEAST_COSINE)) < 600

    def norm_at(self, tau: float) -> float:
        """|u(tau)|."""
        if self.cosine >= _ALIGNED:
            return 1 / (1 + exp(-self.depth * tau) * (1 / self.norm - 1))
        return 1 / reciprocal_norm(tau, self.norm, atanh(self.cosine), self.depth)

    def cosine_at(self, tau: float) -> float:
        """The cosine nu(tau) of u(tau) to the target."""
        return 1.0 if self.cosine >= _ALIGNED else tanh(tau + atanh(self.cosine))

    def gap_at(self, tau: float) -> float:
        """|u(tau) - target|^2 / 2, by a sum that does not cancel where nu is near one."""
        size = self.norm_at(tau)
        lateral = 1 / (1 + exp(2 * tau) / self.opposition) if self.cosine < _ALIGNED else 0.0
        return (1 - size) ** 2 / 2 + 2 * size * lateral  # lateral is (1 - nu) / 2

    def elapsed(self, tau: float) -> float:
        """Xi(tau), the flow's own time."""
        power = 1 - 2 / self.depth
        if power == 0:
            return tau
        turn = min(self.turning_time, tau)  # where the integrand has its peak

        def pace(at: float) -> float:
            return self.norm_at(at) ** -power

        parts = [(0.0, turn), (turn, tau)]
        return sum(
            scipy.integrate.quad(pace, *part, epsabs=0, epsrel=1e-10, limit=200)[0]
            for part in parts
        )

    @property
    def turning_time(self) -> float:
        """T_m, from which on |u| grows: the first time with nu >= |u|."""
        if self.cosine >= self.norm:
            return 0.0
        latest = atanh(self.norm) - atanh(self.cosine)  # where nu has reached |u(0)| >= |u|

        def late(tau: float) -> float:
            return self.cosine_at(tau) - self.norm_at(tau)

        return float(
            scipy.optimize.root_scalar(late, bracket=(0.0, latest), xtol=1e-14, rtol=1e-14).root
        )

    @property
    def least_norm(self) -> float:
        """u_min, the least |u|."""
        return self.norm_at(self.turning_time)

    @property
    def alignment_time(self) -> float:
        """T_a, in tau."""
        return log(max(5 * self.opposition, 1.0)) / 2

    @property
    def growth_time(self) -> float:
        """T_c, in tau."""
        return 3 / (2 * self.depth) * log(2 * self.depth / (3 * self.least_norm))

    def approach_time(self, gap: float) -> float:
        """t_gap, in tau; zero where the gap is met from the beginning of the last stage."""
        n = self.depth
        return max(3 * (n + 1) / (2 * n) * log(6 / (5 * sqrt(2 * gap))), 0.0)

    def total_time(self, gap: float) -> float:
        """T_a + t_c + t_gap, in tau."""
        return self.alignment_time + self.growth_time + self.approach_time(gap)


def ray_claims(ray: Ray, largest: float = LARGEST_NORM) -> tuple[Claim, ...]:
    """What the paper assumes of the start, beside balance."""
    small = f"|w(0)| / |target| <= {largest:g}"
    return (
        Claim("2 <= depth", 2, ray.depth),
        requirement("the product is not zero", ray.norm > 0),
        Claim(small, ray.norm, largest, rounding(largest)),
        Claim("w(0) is not antiparallel to the target: -1 + 1e-12 <= nu", LEAST_COSINE, ray.cosine),
    )
