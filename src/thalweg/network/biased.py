"""Networks of linear layers with biases, and max pooling behind some of them.

    x -> W_N x_N + b_N,    x_{j+1} = s(pool_j(W_j(w_j) x_j + b_j)),

with one bias per unit of a dense layer, per channel of a convolution, and the largest entry of each
window of each channel, if layer j is pooled. Where the activation increases it may as well come
before the pooling; here it is applied to what is left.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._typing import Scalar, Weights
from thalweg.network.base import AbstractNetwork
from thalweg.network.kinks import AbstractKinks
from thalweg.network.layered import chained, two_slope_activation, two_slopes
from thalweg.network.layers import AbstractLayer
from thalweg.network.shared_kinks import Block, SharedKinks
from thalweg.network.stages import AbstractStage, Activation, Pairing

Window = tuple[int, int]


class BiasedNetwork(AbstractNetwork):
    """Linear layers with biases, a two-slope activation and, where asked for, max pooling.

    The weights are each layer's array followed by its biases; `weights[::2]` leaves these out.
    """

    layers: tuple[AbstractLayer, ...]
    slopes: tuple[Scalar, Scalar]
    windows: tuple[Window, ...] = eqx.field(static=True)

    @checked
    def __init__(
        self,
        layers: Sequence[AbstractLayer],
        slopes: Sequence[float] = (1.0, 0.0),
        pooling: Sequence[Any] = (),
    ):
        """Take the layers, the slopes above and below zero, and how each layer is pooled.

        Args:
            layers: first layer first.
            slopes: above and below zero.
            pooling: for each layer, from the first on, the height and width of its windows: powers
                of two, one for both or a pair; 1 pools nothing, as does what is not given.
        """
        self.windows = _windows(layers, pooling)
        self.layers = chained(layers, self.windows)
        self.slopes = two_slopes(slopes)

    @property
    @override
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(shape for layer in self.layers for shape in (layer.shape, (layer.channels,)))

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
        linear = float(self.slopes[0]) == float(self.slopes[1])
        return linear and all(prod(window) == 1 for window in self.windows)

    @checked
    @override
    def __call__(
        self, weights: Weights, x: Float[Array, "samples features"]
    ) -> Float[Array, "samples outputs"]:
        pairs = zip(self.layers, self.windows, weights[::2], weights[1::2], strict=True)
        for number, (layer, window, array, bias) in enumerate(pairs, start=1):
            x = layer(jnp.asarray(array), x) + jnp.repeat(bias, layer.outputs // layer.channels)
            if prod(window) > 1:
                x = _pooled(x, layer, window)
            if number < len(self.layers):
                x = two_slope_activation(x, self.slopes)
        return x

    @override
    def kinks_on(self, x: Float[np.ndarray, "samples features"]) -> AbstractKinks | None:
        if self.smooth or len(self.layers) == 1:
            return None
        above, below = (float(slope) for slope in self.slopes)
        blocks = []
        for layer, window in zip(self.layers[:-1], self.windows, strict=False):
            stages = _tournament(layer, window)
            left = stages[-1].size if stages else layer.outputs
            if above != below:
                stages.append(Activation(left, (above, below)))
            blocks.append(Block(layer.on_host(), tuple(stages)))
        return SharedKinks([*blocks, Block(self.layers[-1].on_host(), ())], x, biases=True)


def _pooled(
    x: Float[Array, "samples features"], layer: AbstractLayer, window: Window
) -> Float[Array, "samples pooled"]:
    """The largest entry of each window."""
    height, width = layer.out_image
    rows, columns = window
    windows = x.reshape(-1, layer.channels, height // rows, rows, width // columns, columns)
    return jnp.max(windows, axis=(3, 5)).reshape(x.shape[0], -1)


def _tournament(layer: AbstractLayer, window: Window) -> list[AbstractStage]:
    """Rounds between neighbours in a row, until columns are pooled, and then between rows."""
    found: list[AbstractStage] = []
    left = layer.outputs
    for rounds, inner in (
        (window[1], 1),
        (window[0], layer.out_image[1] // window[1]),
    ):
        while rounds > 1:
            left, rounds = left // 2, rounds // 2
            found.append(Pairing(left, inner))
    return found


def _windows(layers: Sequence[AbstractLayer], pooling: Sequence[Any]) -> tuple[Window, ...]:
    """The window of each layer, (1, 1) where it is not pooled."""
    given = tuple(tuple(each) if isinstance(each, Sequence) else (each, each) for each in pooling)
    for number, (layer, window) in enumerate(zip(layers, given, strict=False), start=1):
        _require_window(number, layer, window)
    if len(given) >= max(len(layers), 1):
        raise InputError(
            f"`pooling` must have fewer entries than there are layers, {len(layers)}, because the "
            f"last layer is not pooled, got {len(given)}."
        )
    return given + ((1, 1),) * (len(layers) - len(given))


def _require_window(number: int, layer: AbstractLayer, window: tuple[Any, ...]) -> None:
    whole = [isinstance(size, int) and size >= 1 and size & (size - 1) == 0 for size in window]
    if len(window) != 2 or not all(whole):
        raise InputError(
            f"`pooling[{number - 1}]` must be a power of two, or a pair of them (vertical, "
            f"horizontal), got {window}."
        )
    image = layer.out_image
    if any(length % size for length, size in zip(image, window, strict=True)):
        raise InputError(
            f"`pooling[{number - 1}]` must divide the output of layer {number}, images of "
            f"{image[0]} x {image[1]}, got {window}."
        )
