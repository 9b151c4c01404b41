"""The potentials of elkabetz2021's worst case as printed, with rational coefficients.

`thalweg.adversarial.WorstCase` writes the same functions otherwise, such that floating point can
hold them; here they are as in eq. (25) and (26), and what is said of them is exact.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from jaxtyping import Float

Polynomial = tuple[Fraction, ...]
"""Coefficients of 1, z, z^2, ... ."""


@dataclass(frozen=True)
class Piecewise:
    """A function of z >= `first` given by a polynomial on each interval between its joints."""

    joints: tuple[Fraction, ...]
    pieces: tuple[Polynomial, ...]

    def jumps(self) -> list[Fraction]:
        """By how much value, slope and curvature jump at each joint; exact."""
        return [
            abs(_at(_derived(right, order), joint) - _at(_derived(left, order), joint))
            for joint, (left, right) in zip(self.joints, pairwise(self.pieces), strict=True)
            for order in range(3)
        ]

    def slope(self, z: Fraction) -> Fraction:
        """The first derivative, exactly."""
        index = sum(z > joint for joint in self.joints)
        return _at(_derived(self.pieces[index], 1), z)

    def values(self, z: Float[np.ndarray, " points"], order: int) -> Float[np.ndarray, " points"]:
        """The derivative of this order, in floating point."""
        place = np.searchsorted([float(joint) for joint in self.joints], z)
        found = np.empty_like(z)
        for index, piece in enumerate(self.pieces):
            terms = [float(term) for term in _derived(piece, order)]
            inside = place == index
            found[inside] = np.polynomial.polynomial.polyval(z[inside], terms)
        return found


def hill(a: Fraction, edge: Fraction) -> Piecewise:
    """Phi for z >= 0, as printed in eq. (25)."""
    top = a * (edge + 1) ** 2 / 2 - a * Fraction(5, 12) - a * edge / 2
    falling = (top, Fraction(0), -a / 2)
    return Piecewise((edge, edge + 1), (falling, _levelling(falling, a, edge), (Fraction(0),)))


def ridge(a: Fraction, edge: Fraction, r: Fraction) -> Piecewise:
    """Phibar to the right of its top z_0 = r / 2 - 1, as printed in eq. (26)."""
    shift = r / 2 - 7 * r**2 / 48
    top = a * (edge + 1) ** 2 / 2 + a / 12 - a * edge / 2 - a * shift
    slow = _plus((top,), _scaled(_power(r / 2 - 1, 2), -a / 4))
    base = (top - a / 2 + a * shift, Fraction(0), -a / 2)
    bend = _plus(base, _scaled(_power(Fraction(1), 3), -a / (12 * r)))
    joints = (1 - r, Fraction(1), edge, edge + 1)
    return Piecewise(joints, (slow, bend, base, _levelling(base, a, edge), (Fraction(0),)))


# --- polynomials with rational coefficients ------------------------------------------------------


def _at(polynomial: Polynomial, z: Fraction) -> Fraction:
    return sum((term * z**k for k, term in enumerate(polynomial)), Fraction(0))


def _derived(polynomial: Polynomial, order: int) -> Polynomial:
    for _ in range(order):
        polynomial = tuple(k * term for k, term in enumerate(polynomial))[1:] or (Fraction(0),)
    return polynomial


def _plus(one: Polynomial, other: Polynomial) -> Polynomial:
    length = max(len(one), len(other))
    zeros = (Fraction(0),) * length
    pairs = zip((one + zeros)[:length], (other + zeros)[:length], strict=True)
    return tuple(left + right for left, right in pairs)


def _scaled(polynomial: Polynomial, factor: Fraction) -> Polynomial:
    return tuple(factor * term for term in polynomial)


def _power(root: Fraction, exponent: int) -> Polynomial:
    """(z - root)^exponent."""
    found: Polynomial = (Fraction(1),)
    for _ in range(exponent):
        found = _plus((Fraction(0), *found), _scaled(found, -root))
    return found


def _levelling(falling: Polynomial, a: Fraction, edge: Fraction) -> Polynomial:
    cubic = _scaled(_power(edge, 3), a * (Fraction(2, 3) + edge))
    quartic = _scaled(_power(edge, 4), -a * (Fraction(1, 4) + edge / 2))
    return _plus(falling, _plus(cubic, quartic))
