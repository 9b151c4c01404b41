"""Which starts have a deficiency margin; derived from arora2019.

The margin of W is c = sigma_min(Phi) - |W - Phi|_F, and theorem 1 needs it to be positive.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from thalweg.certificates import AbstractTheorem, Claim, requirement, rounding
from thalweg.theorems.settings.matrix_approximation import Approximation


@dataclass(frozen=True, eq=False)
class Start:
    """A product of layers, and the target."""

    matrix: Any
    target: Any

    @property
    def point(self) -> Approximation:
        """The same, as one layer."""
        return Approximation.of([np.atleast_2d(np.asarray(self.matrix, float))], self.target)


class IdentityStart(AbstractTheorem[Start]):
    """Layers that start at the identity have a margin for targets nearer to it than one half.

    With rho = |Phi - I|_F < 1/2, c = sigma_min(Phi) - rho >= 1 - 2 rho > 0, because
    sigma_min(Phi) >= 1 - rho; equality for Phi = I - rho e_1 e_1^T. Identity layers are balanced,
    so that theorem 1 applies with this c.
    """

    reference: ClassVar[str] = "arora2019:cor-residual"

    @override
    def assumptions(self, subject: Start, /) -> tuple[Claim, ...]:
        point = subject.point
        is_identity = point.is_square and np.array_equal(point.product, np.eye(len(point.target)))
        claims = (requirement("the product is the identity", bool(is_identity)),)
        if not is_identity:
            return claims
        return (*claims, Claim("rho < 1/2", float(point.distance), 0.5, rounding(1.0)))

    @override
    def conclusions(self, subject: Start, /) -> tuple[Claim, ...]:
        point = subject.point
        least = 1 - 2 * float(point.distance)
        return (Claim("1 - 2 rho <= c", least, point.margin, rounding(point.norm)),)


class SmallStart(AbstractTheorem[Start]):
    """A start with a margin is not small, unless there is one output or one feature.

    With k = min(outputs, features), c > 0 implies |W|_F >= (sqrt(k) - 1) sigma_min(Phi) + c,
    because |Phi|_F >= sqrt(k) sigma_min(Phi); equality where Phi and W are multiples of I.
    """

    reference: ClassVar[str] = "arora2019:cor-smallinit"

    @override
    def assumptions(self, subject: Start, /) -> tuple[Claim, ...]:
        point = subject.point
        return (Claim("0 < c", 0.0, point.margin, point.margin_resolution),)

    @override
    def conclusions(self, subject: Start, /) -> tuple[Claim, ...]:
        point = subject.point
        least = float(np.linalg.svd(point.target, compute_uv=False)[-1])
        size = float(np.linalg.norm(point.product))
        bound = (min(point.target.shape) ** 0.5 - 1) * least + point.margin
        statement = "(sqrt(k) - 1) sigma_min(Phi) + c <= |W|_F"
        return (Claim(statement, bound, size, rounding(point.norm + size)),)
