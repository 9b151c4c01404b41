"""Rounding: its units, and what every bound is enlarged by.

Numbers of double precision have the unit roundoff u = 2^-53. A sum of n products is off by at most
n u / (1 - n u) times the sum of their sizes, whatever the order of summation; so is each entry of a
product of matrices of inner dimension n, and the whole of it in Frobenius norms. Bounds are sums
and products of numbers that are not negative, and lose a few thousand units at most: `SLACK` covers
them.
"""

from math import sqrt
from typing import Any

import numpy as np
from jaxtyping import Float

UNIT = float(np.finfo(float).eps) / 2
"""The unit roundoff of double precision."""

EXTENDED = np.longdouble
"""The widest numbers that there are: 64 bits where double precision has 53, on some machines 53."""

SLACK = 1 + 1e-12
"""What bounds are enlarged by, for their own rounding."""


def roundoff(kind: Any) -> float:
    """The unit roundoff of these numbers."""
    return float(np.finfo(kind).eps) / 2


def product_error(inner: int) -> float:
    """What a product of matrices is off by at most, relative to the product of their norms."""
    return (inner + 2) * UNIT


def computed_norm(array: Float[np.ndarray, "..."]) -> float:
    """The Frobenius norm as computed, to the bit NumPy's, which takes longer to be called."""
    numbers = array.ravel(order="K")
    return sqrt(numbers.dot(numbers))
