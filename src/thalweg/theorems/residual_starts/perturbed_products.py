"""Products of many matrices under small changes of each.

[marion2024] P. Marion, L. Chizat, "Deep linear networks for regression are implicitly regularized
    towards flat minima", arXiv:2405.13456.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg.certificates import AbstractTheorem, Claim, requirement, rounding

Matrices = tuple[Float[np.ndarray, "_ _"], ...]


@dataclass(frozen=True, eq=False)
class DisturbedChain:
    """Matrices W_1, ..., W_L and changes of them: W_k becomes W_k + theta_k / L."""

    matrices: Matrices
    changes: Matrices

    @property
    def disturbed(self) -> Matrices:
        """The matrices W_k + theta_k / L."""
        depth = len(self.matrices)
        pairs = zip(self.matrices, self.changes, strict=True)
        return tuple(matrix + change / depth for matrix, change in pairs)

    @property
    def largest(self) -> float:
        """M, at least one: no partial product W_k ... W_1 has a larger norm."""
        return max(1.0, *(float(values[0]) for values in _spectra(self.matrices)))

    @property
    def smallest(self) -> float:
        """The number m, at most one, that is below the singular values of partial products."""
        return min(1.0, *(float(values[-1]) for values in _spectra(self.matrices)))


class DisturbedProducts(AbstractTheorem[DisturbedChain]):
    """Products of many matrices stay well conditioned if each changes by a part of their number.

    For square W_1, ..., W_L with |W_k ... W_1| <= M and sigma_min(W_k ... W_1) >= m for all k,
    where M >= 1 >= m > 0, and V_k = W_k + theta_k / L,

        |theta_k| <= m^2 / (4 M^2) for all k
            ==>  |V_k ... V_1| <= 2 M  and  sigma_min(V_k ... V_1) >= m / 2 for all k,

    and |W_k ... W_{j+1}| <= M / m for all j < k without any condition on theta. The paper has
    m < 1; the case m = 1 is its limit. M and m are the best there are.
    """

    reference: ClassVar[str] = "marion2024:lem9"

    @override
    def assumptions(self, subject: DisturbedChain, /) -> tuple[Claim, ...]:
        sizes = {shape for matrix in subject.matrices for shape in matrix.shape}
        square = requirement("all matrices are square and of one size", len(sizes) == 1)
        if not square.holds:
            return (square,)
        low, high = subject.smallest, subject.largest
        limit = low**2 / (4 * high**2)
        changed = max(float(np.linalg.norm(change, 2)) for change in subject.changes)
        return (
            square,
            Claim("rounding <= m", float(rounding(high)), low),
            Claim("|theta_k| <= m^2 / (4 M^2)", changed, limit, rounding(limit)),
        )

    @override
    def conclusions(self, subject: DisturbedChain, /) -> tuple[Claim, ...]:
        low, high, depth = subject.smallest, subject.largest, len(subject.matrices)
        spectra = np.array(_spectra(subject.disturbed))
        between = np.array(
            [
                np.linalg.norm(product, 2)
                for first in range(1, depth)
                for product in _products(subject.matrices[first:])
            ]
        )
        slack = rounding(2 * high, units=64.0 * depth)
        claims = [
            Claim("|V_k ... V_1| <= 2 M", spectra[:, 0], 2 * high, slack),
            Claim("m / 2 <= sigma_min(V_k ... V_1)", low / 2, spectra[:, -1], slack),
        ]
        if depth > 1:
            wide = rounding(high / low, units=64.0 * depth)
            claims.append(Claim("|W_k ... W_{j+1}| <= M / m", between, high / low, wide))
        return tuple(claims)


def _products(matrices: Matrices) -> list[Float[np.ndarray, "_ _"]]:
    """W_1, W_2 W_1, ..., W_L ... W_1."""
    return list(accumulate(matrices, lambda below, above: above @ below))


def _spectra(matrices: Matrices) -> list[Float[np.ndarray, " size"]]:
    """The singular values of each partial product, largest first."""
    return [np.linalg.svd(product, compute_uv=False) for product in _products(matrices)]
