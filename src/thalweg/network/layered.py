"""Networks of linear layers with a (leaky-)ReLU activation, of any two slopes, in between.

    x -> W_N(w_N) s(W_{N-1}(w_{N-1}) ... s(W_1(w_1) x)),
    s(z) = alpha max(z, 0) - beta max(-z, 0),

with slopes (alpha, beta): (1, 0) is ReLU, (1, b) leaky ReLU, (1, 1) linear. Each matrix is linear
in its weight array (`layers`). Such a map is homogeneous in each layer, and linear in each layer as
long as no pre-activation changes sign. There is one description of all of them; the constructors
say in a word what is meant:

    HomogeneousNetwork(widths, slopes)    fully connected
    SharedNetwork(layers, slopes)         convolutions and other layers that share weights
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, as_floating
from thalweg._typing import Matrix, Scalar, Weights
from thalweg.network.base import AbstractNetwork
from thalweg.network.kinks import AbstractKinks, DenseKinks
from thalweg.network.layers import AbstractLayer, Convolution, Dense, OutputRows, Rows
from thalweg.network.linear import chain_of_widths
from thalweg.network.shared_kinks import Block, SharedKinks
from thalweg.network.stages import Activation


class LayeredNetwork(AbstractNetwork):
    """Linear layers with a two-slope activation between them; no biases.

    The weights are one array per layer: a matrix for `Dense`, (out_channels, in_channels, height,
    width) for `Convolution`, a vector for `Tied`.
    """

    layers: tuple[AbstractLayer, ...]
    slopes: tuple[Scalar, Scalar]

    @checked
    def __init__(self, layers: Sequence[AbstractLayer], slopes: Sequence[float] = (1.0, 0.0)):
        """Take the layers, first layer first, and the slopes above and below zero."""
        self.layers = chained(layers)
        self.slopes = two_slopes(slopes)

    @property
    @override
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(layer.shape for layer in self.layers)

    @property
    @override
    def features(self) -> int:
        return self.layers[0].features

    @property
    @override
    def outputs(self) -> int:
        return self.layers[-1].outputs

    @property
    @override
    def smooth(self) -> bool:
        return float(self.slopes[0]) == float(self.slopes[1])

    @property
    @override
    def layered(self) -> "LayeredNetwork":
        return self

    @override
    def kinks_on(self, x: Float[np.ndarray, "samples features"]) -> AbstractKinks | None:
        if self.smooth or self.depth == 1:
            return None
        slopes = (float(self.slopes[0]), float(self.slopes[1]))
        if all(isinstance(layer, Dense) for layer in self.layers):
            return DenseKinks(self.widths, slopes, x)
        *lower, last = self.layers
        blocks = [Block(each.on_host(), (Activation(each.outputs, slopes),)) for each in lower]
        return SharedKinks([*blocks, Block(last.on_host(), ())], x, biases=False)

    @property
    def widths(self) -> tuple[int, ...]:
        """How many numbers go into each layer, and come out of the last."""
        return (self.features, *(layer.outputs for layer in self.layers))

    @property
    def largest_slope(self) -> Scalar:
        """The larger modulus of the two slopes."""
        return jnp.maximum(*(jnp.abs(slope) for slope in self.slopes))

    @property
    def operator_norms(self) -> tuple[float, ...]:
        """The operator norm of each map w_j -> W_j(w_j)."""
        return tuple(layer.operator_norm for layer in self.layers)

    @checked
    @override
    def __call__(self, weights: Weights, x: Rows) -> OutputRows:
        last = self.depth - 1
        for index, (layer, weight) in enumerate(zip(self.layers, weights, strict=True)):
            x = layer(jnp.asarray(weight), x)
            x = x if index == last else two_slope_activation(x, self.slopes)
        return x

    def matrices(self, weights: Weights) -> tuple[Matrix, ...]:
        """The matrices W_1(w_1), ..., W_N(w_N)."""
        self.check(weights)
        pairs = zip(self.layers, weights, strict=True)
        return tuple(layer.matrix(jnp.asarray(weight)) for layer, weight in pairs)


@checked
def HomogeneousNetwork(
    widths: Sequence[int], slopes: Sequence[float] = (1.0, 0.0)
) -> LayeredNetwork:
    """The fully connected network of widths d_0, ..., d_N, with the slopes above and below zero."""
    chain = pairwise(chain_of_widths(widths))
    return LayeredNetwork([Dense(inputs, outputs) for inputs, outputs in chain], slopes)


@checked
def SharedNetwork(
    layers: Sequence[AbstractLayer], slopes: Sequence[float] = (1.0, 0.0)
) -> LayeredNetwork:
    """The network of these layers, first layer first, with the slopes above and below zero."""
    return LayeredNetwork(layers, slopes)


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


def chained(
    layers: Sequence[AbstractLayer], windows: Sequence[tuple[int, int]] | None = None
) -> tuple[AbstractLayer, ...]:
    """The layers, if each takes the output of the one below, after pooling it in such windows."""
    chain = tuple(layers)
    if not chain:
        raise InputError("`layers` must hold at least one layer, got none.")
    sizes = [prod(window) for window in windows] if windows else [1] * len(chain)
    for index, (lower, upper) in enumerate(pairwise(chain), start=1):
        left = lower.outputs // sizes[index - 1]
        if left != upper.features:
            pooled = "" if left == lower.outputs else ", pooled,"
            raise InputError(
                f"`layers` must chain: layer {index} ({_description(lower)}){pooled} has output "
                f"dimension {left}, but layer {index + 1} ({_description(upper)}) has "
                f"input dimension {upper.features}; a convolution's `image` is the output of the "
                "layer below, and the first layer comes first."
            )
    return chain


def _description(layer: AbstractLayer) -> str:
    if isinstance(layer, Convolution):
        (height, width), (rows, columns) = layer.image, layer.out_image
        return (
            f"Convolution, {layer.in_channels} x {height} x {width} to "
            f"{layer.out_channels} x {rows} x {columns}"
        )
    return f"{type(layer).__name__}, {layer.features} to {layer.outputs}"
