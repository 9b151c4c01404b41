"""Fully connected networks with an activation of two slopes.

    x -> W_N s(W_{N-1} ... s(W_1 x)),    s(z) = alpha max(z, 0) - beta max(-z, 0),

with slopes (alpha, beta): (1, 0) is ReLU, (1, b) leaky ReLU, (1, 1) linear. Such a map is
homogeneous in each layer, and linear in each layer as long as no pre-activation changes sign.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, as_floating
from thalweg._typing import Scalar, Weights
from thalweg.network.base import AbstractNetwork
from thalweg.network.linear import chain_of_widths, layer_shapes


class HomogeneousNetwork(AbstractNetwork):
    """x -> W_N s(W_{N-1} ... s(W_1 x)) with a two-slope activation s."""

    widths: tuple[int, ...] = eqx.field(static=True)
    slopes: tuple[Scalar, Scalar]

    @checked
    def __init__(self, widths: Sequence[int], slopes: Sequence[float] = (1.0, 0.0)):
        """Take the widths d_0, ..., d_N, and the slopes above and below zero."""
        self.widths = chain_of_widths(widths)
        self.slopes = two_slopes(slopes)

    @property
    @override
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return layer_shapes(self.widths)

    @property
    @override
    def outputs(self) -> int:
        return self.widths[-1]

    @property
    @override
    def features(self) -> int:
        return self.widths[0]

    @checked
    @override
    def __call__(
        self, weights: Weights, x: Float[Array, "samples features"]
    ) -> Float[Array, "samples outputs"]:
        for matrix in weights[:-1]:
            x = two_slope_activation(x @ matrix.T, self.slopes)
        return x @ weights[-1].T


def two_slopes(slopes: Sequence[float]) -> tuple[Scalar, Scalar]:
    """The slopes above and below zero as arrays, so that they may vary in a sweep."""
    if len(slopes) != 2:
        raise InputError(
            f"`slopes` must be two numbers, the slope above and below zero, got {len(slopes)}."
        )
    return as_floating("slopes[0]", slopes[0]), as_floating("slopes[1]", slopes[1])


def two_slope_activation(
    z: Float[Array, "..."], slopes: tuple[Scalar, Scalar]
) -> Float[Array, "..."]:
    """Alpha max(z, 0) - beta max(-z, 0); at zero its derivative is taken to be beta."""
    above, below = (slope.astype(z.dtype) for slope in slopes)
    return jnp.where(z > 0, above, below) * z
