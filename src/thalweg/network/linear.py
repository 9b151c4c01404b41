"""Deep linear networks: products of matrices.

A network of depth N computes x -> R W_N ... W_1 x, where the fixed readout R is the identity unless
given. Its loss is a function of the product alone, so all of it is computed from partial products:
the gradient with respect to factor j of F_K ... F_1 is

    (F_K ... F_{j+1})^T G (F_{j-1} ... F_1)^T,    G the gradient with respect to the product.

Multiplied from the narrow end these are O(K) products of a thin matrix with a layer; with one
output the thin matrices are vectors, each layer's gradient is an outer product, and a step costs
O(size of the network).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, as_floating, require_count
from thalweg._host import hosted, quiet, settled
from thalweg._typing import ManyWeights, Matrix, Scalar, Weights
from thalweg.network.base import AbstractNetwork

Multiply = Callable[[Array, Array], Array]
ValueAndGradient = Callable[[Array], tuple[Array, Array]]


class LinearNetwork(AbstractNetwork):
    """x -> readout^T W_N ... W_1 x. A residual network is one that starts near the identity."""

    widths: tuple[int, ...] = eqx.field(static=True)
    readout: Float[Array, "last outputs"] | None

    @checked
    def __init__(self, widths: Sequence[int], readout: Any = None):
        """Take the widths d_0, ..., d_N, and a fixed readout: a vector means one output."""
        self.widths = chain_of_widths(widths)
        self.readout = None if readout is None else _readout_matrix(readout, self.widths[-1])

    @property
    @override
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return layer_shapes(self.widths)

    @property
    @override
    def outputs(self) -> int:
        return self.widths[-1] if self.readout is None else self.readout.shape[1]

    @property
    @override
    def features(self) -> int:
        return self.widths[0]

    @property
    @override
    def smooth(self) -> bool:
        return True

    @property
    @override
    def linear(self) -> "LinearNetwork":
        return self

    @checked
    @override
    def __call__(
        self, weights: Weights, x: Float[Array, "samples features"]
    ) -> Float[Array, "samples outputs"]:
        return x @ self.end_to_end(weights).T

    @checked
    @quiet
    def end_to_end(self, weights: ManyWeights) -> Matrix:
        """The matrix that the network multiplies its input by, readout included."""
        _, (trained, readout) = hosted(weights, self.readout)
        factors = trained if readout is None else (*trained, readout.T)
        if self.outputs > self.features:
            product = factors[0]
            for factor in factors[1:]:
                product = factor @ product
            return settled(product)
        product = factors[-1]
        for factor in reversed(factors[:-1]):
            product = product @ factor
        return settled(product)

    def factors(self, weights: Weights) -> tuple[Matrix, ...]:
        """The weights, and the readout as one more factor where there is one."""
        trained = tuple(jnp.asarray(array) for array in weights)
        return trained if self.readout is None else (*trained, self.readout.T)

    def value_and_gradient(
        self, weights: Weights, value_and_gradient: Callable[[Matrix], tuple[Scalar, Matrix]]
    ) -> tuple[Scalar, Weights]:
        """Pull a function of the end-to-end matrix back to the weights."""
        value, slopes = _chain_gradient(self.factors(weights), value_and_gradient, jnp.matmul)
        return value, slopes[: self.depth]

    def value_and_gradient_in_lanes(
        self, weights: Weights, value_and_gradient: ValueAndGradient
    ) -> tuple[Float[Array, " lanes"], Weights]:
        """`value_and_gradient` for many networks at once, stacked along the last axis.

        With the networks on the last axis every product is a sum of contiguous vectors, which XLA
        turns into SIMD code; batched products of small matrices would be called one by one.
        """
        factors = tuple(jnp.asarray(array) for array in weights)
        if self.readout is not None:
            factors = (*factors, self.readout.T[..., None])
        value, slopes = _chain_gradient(factors, value_and_gradient, _multiply_in_lanes)
        return value, slopes[: self.depth]


def chain_of_widths(widths: Sequence[int]) -> tuple[int, ...]:
    """The widths as a tuple of positive ints, at least two of them."""
    if isinstance(widths, str) or not isinstance(widths, Iterable):
        raise InputError(
            f"`widths` must be a list such as [5, 5, 1], the input width first, got {widths!r}."
        )
    checked = tuple(require_count(f"widths[{i}]", width) for i, width in enumerate(widths))
    if len(checked) < 2:
        raise InputError(
            f"`widths` must hold the input width and at least one layer's, got {list(widths)}."
        )
    return checked


def layer_shapes(widths: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The shape (d_j, d_{j-1}) of each layer."""
    return tuple(zip(widths[1:], widths[:-1], strict=True))


def _readout_matrix(readout: Any, width: int) -> Float[Array, "last outputs"]:
    matrix = as_floating("readout", readout)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or matrix.shape[0] != width:
        raise InputError(
            f"`readout` must have one entry (or row) per unit of the last layer ({width}), got "
            f"shape {matrix.shape}."
        )
    return matrix


def _chain_gradient(
    factors: tuple[Array, ...], value_and_gradient: ValueAndGradient, multiply: Multiply
) -> tuple[Array, tuple[Array, ...]]:
    """The value of a function of F_K ... F_1, and its gradient with respect to each factor."""
    if factors[-1].shape[0] > factors[0].shape[1]:  # fewer inputs than outputs: go from that end
        mirrored = tuple(_transpose(factor) for factor in reversed(factors))

        def value_and_transposed(product: Array) -> tuple[Array, Array]:
            value, slope = value_and_gradient(_transpose(product))
            return value, _transpose(slope)

        value, slopes = _gradient_from_the_output(mirrored, value_and_transposed, multiply)
        return value, tuple(_transpose(slope) for slope in reversed(slopes))
    return _gradient_from_the_output(factors, value_and_gradient, multiply)


def _gradient_from_the_output(
    factors: tuple[Array, ...], value_and_gradient: ValueAndGradient, multiply: Multiply
) -> tuple[Array, tuple[Array, ...]]:
    after = [factors[-1]]  # F_K, F_K F_{K-1}, ..., F_K ... F_1
    for factor in reversed(factors[:-1]):
        after.append(multiply(after[-1], factor))
    value, before = value_and_gradient(after.pop())  # before = G (F_{j-1} ... F_1)^T
    slopes = []
    for factor, product in zip(factors[:-1], reversed(after), strict=True):
        slopes.append(multiply(_transpose(product), before))
        before = multiply(before, _transpose(factor))
    return value, (*slopes, before)


def _transpose(matrix: Array) -> Array:
    return jnp.swapaxes(matrix, 0, 1)


def _multiply_in_lanes(left: Array, right: Array) -> Array:
    """The products of matrices stacked along the last axis, with short cuts for vectors."""
    if left.shape[1] == 1:
        return left * right
    if left.shape[0] == 1:
        return jnp.sum(left[0][:, None] * right, axis=0)[None]
    return jnp.sum(left[:, :, None] * right[None], axis=1)
