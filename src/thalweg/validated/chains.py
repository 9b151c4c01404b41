"""The products that a linear network's Hessian is made of, and how far rounding has put them off.

With a_j and b_j of `series`, the images V_j = W_j ... W_1 K and C_ij = W_{j-1} ... W_{i+1}, all at
one point. A product of matrices of inner dimension w is off by at most gamma_w |X| |Y| in Frobenius
norm, gamma_w = w u / (1 - w u) [higham2002]. What goes wrong at one layer is carried on by the
partial product of the layers after it, which may be far below the product of their norms.

All norms here are Frobenius norms, enlarged by what may have underflowed in them.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from thalweg.validated.losses import AbstractLossSeries, Reach
from thalweg.validated.rounding import SLACK, UNIT, computed_norm

Layers = Sequence[Float[np.ndarray, "_ _"]]
Square = Float[np.ndarray, "_ _"]
Numbers = Float[np.ndarray, " _"]

TINY = 1e-150
"""What squares that underflow can hide of a norm."""

_LOST = 1e-300  # and what products that underflow can hide


class Chains:
    """a_j, b_j, V_j and C_ij at one point; `errors` says how far they may be off."""

    def __init__(self, layers: Layers, readout: np.ndarray, loss: AbstractLossSeries):
        """Multiply everything out."""
        depth = len(layers)
        self.layers = tuple(layers)
        self.loss = loss.fresh()
        self.upper = [readout]
        for layer in reversed(layers):
            self.upper.append(layer.T @ self.upper[-1])
        self.upper.reverse()
        self.lower = [self.loss.extend(self.upper[0].T).T]
        self.images = [loss.images]
        for layer in layers[:-1]:
            self.lower.append(layer @ self.lower[-1])
            self.images.append(layer @ self.images[-1])
        self.middle = {}
        for i in range(depth):
            product = np.eye(layers[i].shape[0])
            for j in range(i + 1, depth):
                self.middle[i, j] = product
                product = layers[j] @ product

    @cached_property
    def errors(self) -> "ChainErrors":
        """How far all of it may be off."""
        return _errors(self)


class ChainErrors(NamedTuple):
    """Norms of what was computed, and how far the exact products may be from it.

    Attributes:
        upper: |a_1|, ..., |a_N| and their errors.
        lower: |b_0|, ..., |b_{N-1}| and their errors.
        images: |V_0|, ..., |V_{N-1}| and their errors.
        middle: |C_ij| at (i, j), one where it is the identity, and their errors.
        curvature: what |phi''| is at most.
        bent: how far phi'' may be off.
    """

    upper: tuple[Numbers, Numbers]
    lower: tuple[Numbers, Numbers]
    images: tuple[Numbers, Numbers]
    middle: tuple[Square, Square]
    curvature: float
    bent: float

    @property
    def pairs(self) -> tuple[Square, Square]:
        """|a_j| |b_{i-1}| at (i, j), i < j, and how far a_j b_{i-1}^T may be off."""
        (a, a_off), (b, b_off) = self.upper, self.lower
        sizes = np.triu(np.outer(b, a), 1)
        return sizes, np.triu(np.outer(b + b_off, a_off) + np.outer(b_off, a), 1) + TINY

    @property
    def derivative(self) -> tuple[float, float]:
        """|J|, and how far it may be off."""
        (a, a_off), (v, v_off) = self.upper, self.images
        off = a_off * (v + v_off) + a * v_off
        return length(a * v), length(off)

    @property
    def indefinite(self) -> float:
        """How far B may be off: its blocks' errors, taken together."""
        (sizes, sizes_off), (between, between_off) = self.pairs, self.middle
        blocks = sizes_off * (between + between_off) + sizes * between_off
        return length(np.triu(blocks, 1)) * 2**0.5

    @property
    def definite(self) -> float:
        """How far A may be off."""
        size, off = self.derivative
        return self.bent * (size + off) ** 2 + self.curvature * (2 * size + off) * off


def length(matrix: Float[np.ndarray, "..."]) -> float:
    """The Frobenius norm, at most."""
    return computed_norm(matrix) * SLACK + TINY


def _errors(chains: Chains) -> ChainErrors:
    layers, depth = chains.layers, len(chains.layers)
    unit = (max(max(each.shape) for each in (*layers, chains.upper[-1])) + 2) * UNIT * 1.01
    sizes = np.array([length(each) for each in layers])
    upper, lower, images = (
        np.array([length(each) for each in kind])
        for kind in (chains.upper[1:], chains.lower, chains.images)
    )
    middle = _middle(chains, sizes, unit)
    spans = middle[0] + middle[1]
    made = unit * sizes * upper + _LOST
    upper_off = np.array(
        [np.dot(spans[j - 1, j:], made[j:]) if j < depth else 0.0 for j in range(1, depth + 1)]
    )
    product_off = float(sizes[0] * upper_off[0] + made[0])
    near = np.array([length(chains.upper[0]) + product_off])
    left = chains.loss.remainder(near, 0, 1.0, product_off)
    slope_off = chains.loss.stretch * left.outputs + left.gradient
    return ChainErrors(
        (upper, upper_off),
        (lower, _carried(slope_off, unit * sizes * lower + _LOST, sizes[0], spans)),
        (
            images,
            _carried(chains.loss.images_error, unit * sizes * images + _LOST, sizes[0], spans),
        ),
        middle,
        chains.loss.second(Reach(0.0, 0.0)),
        chains.loss.bending_rate * left.unknown,
    )


def _middle(chains: Chains, sizes: Numbers, unit: float) -> tuple[Square, Square]:
    """|C_ij| and its errors; the identity has the norm one."""
    depth = len(chains.layers)
    found, off = np.zeros((depth, depth)), np.zeros((depth, depth))
    for (i, j), product in chains.middle.items():
        found[i, j] = 1.0 if j == i + 1 else length(product)
    for i in range(depth - 1, -1, -1):
        for j in range(i + 3, depth):
            inner = slice(i + 2, j)  # what was multiplied on, one after the other
            made = unit * sizes[inner] * found[i, inner] + _LOST
            off[i, j] = np.dot(found[inner, j] + off[inner, j], made)
    return found, off


def _carried(first: float, made: Numbers, bottom: float, spans: Square) -> Numbers:
    """The errors of a chain from below: the `first`, and what is made at each layer."""
    found = np.zeros_like(made)
    found[0] = first
    for j in range(1, made.size):
        # made[k - 1] is what the product with layer k was off by, spans[k - 1, j] what follows.
        found[j] = spans[0, j] * bottom * first + np.dot(spans[:j, j], made[:j])
    return found
