"""What the smallest eigenvalue of a matrix is at least, whatever an eigenvalue solver found.

If the Cholesky decomposition of a symmetric matrix of n rows, computed in floating point, runs to
its end, then [demmel1989; rump2006]

    lambda_min >= -gamma / (1 - gamma) trace,    gamma = (n + 1) u / (1 - (n + 1) u),

in whatever order sums are taken. So a value that was found is made smaller until the matrix less it
has such a decomposition. The matrix is scaled by a power of two beforehand, so that what underflows
does not matter.
"""

from math import frexp, inf, isfinite, ldexp

import numpy as np
from jaxtyping import Float

from thalweg.validated.rounding import UNIT

Square = Float[np.ndarray, "_ _"]

_ATTEMPTS = 30
_UNDERFLOW = 1e-290  # of a matrix whose largest entry is about one


def proven_lowest(matrix: Square, doubt: float = 0.0, guess: float | None = None) -> float:
    """A lower bound on the smallest eigenvalue of all symmetric matrices that are so near.

    Args:
        matrix: of which the lower triangle counts.
        doubt: how far, in spectral norm, the matrix in question may be from it.
        guess: about the smallest eigenvalue, where it is known.
    """
    if not matrix.size:
        return inf
    if not (np.isfinite(matrix).all() and isfinite(doubt)):
        return -inf
    if not matrix.any():
        return -doubt
    exponent = frexp(float(np.abs(matrix).max()))[1]
    scaled = _times_power(matrix, -exponent)
    if guess is None:
        value, margin = float(np.linalg.eigvalsh(scaled)[0]), 0.0
    else:
        value, margin = ldexp(guess, -exponent), 1e-6 * abs(ldexp(guess, -exponent))
    margin += 4 * UNIT * (matrix.shape[0] + 2)
    for _ in range(_ATTEMPTS):
        found = _if_definite(scaled, value - margin)
        if found is not None:
            return _scaled_back(found, exponent, doubt)
        margin *= 4
    return -inf


def backward(rows: int, columns: int) -> float:
    """How far a matrix is from the product of its computed QR factors, relatively.

    A + E = Q R for an orthonormal Q, where |E| <= c m n u |A| [higham2002, theorem 19.4]; c = 16.
    """
    return 16 * rows * columns * UNIT


def householder(rows: int, columns: int) -> float:
    """The same, and how far the computed Q may be from that one: by c m n u sqrt(columns of Q)."""
    return backward(rows, columns) * (1 + max(rows, columns) ** 0.5)


def _times_power(matrix: Square, exponent: int) -> Square:
    """The matrix times a power of two, by the product where that power is a normal number."""
    return matrix * ldexp(1.0, exponent) if abs(exponent) < 1000 else np.ldexp(matrix, exponent)


def _if_definite(matrix: Square, shift: float) -> float | None:
    """What the smallest eigenvalue is at least if the matrix less the shift is seen definite."""
    size, moved = matrix.shape[0], matrix.copy()
    places = np.diag_indices(size)
    moved[places] -= shift
    diagonal = moved[places].copy()
    try:
        np.linalg.cholesky(moved)
    except np.linalg.LinAlgError:
        return None
    gamma = (size + 1) * UNIT / (1 - (size + 1) * UNIT)
    hidden = gamma / (1 - gamma) * float(np.sum(diagonal)) * (1 + 2 * gamma)
    rounded = 2 * UNIT * float(diagonal.max())
    return shift - 1.01 * (hidden + rounded) - size**2 * _UNDERFLOW


def _scaled_back(value: float, exponent: int, doubt: float) -> float:
    try:
        found = ldexp(value, exponent)
    except OverflowError:
        return -inf
    # What is subnormal has lost digits; the difference itself is rounded.
    return float(np.nextafter(found - 5e-324, -inf) - doubt * (1 + 4 * UNIT)) - UNIT * abs(found)
