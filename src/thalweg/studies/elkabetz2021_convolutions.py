"""The convolutional networks of elkabetz2021 with samples along the last axis, which is faster.

A convolution becomes one product of the kernel with all patches (25 shifted copies of the images),
and shifting, pooling and their transposes run along contiguous rows of samples. What they
put out is that of the networks in `thalweg.network`, whose weights these share, but for rounding.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thalweg._typing import Weights
from thalweg.network import Model, max_pooling_network, strided_network

_SIDE, _RIM = 28, 2

Channels = Float[Array, "channels height width samples"]
Rows = Float[Array, "samples 784"]
Scores = Float[Array, "samples 10"]


def fast_strided_network() -> Model:
    """`strided_network`, without its layers' patterns."""
    return Model(_strided, strided_network().shapes, features=784, outputs=10)


def fast_max_pooling_network() -> Model:
    """`max_pooling_network`."""
    return Model(_max_pooling, max_pooling_network().shapes, features=784, outputs=10)


def _strided(weights: Weights, x: Rows) -> Scores:
    first, second, *dense, last = (jnp.asarray(array) for array in weights)
    h = jax.nn.relu(_convolved(first, _images(x), 2))
    h = jax.nn.relu(_convolved(second, h, 2)).reshape(-1, x.shape[0])
    for matrix in dense:
        h = jax.nn.relu(matrix @ h)
    return (last @ h).T


def _max_pooling(weights: Weights, x: Rows) -> Scores:
    arrays = [jnp.asarray(array) for array in weights]
    h = _images(x)
    for kernel, bias in zip(arrays[0:4:2], arrays[1:4:2], strict=True):
        h = jax.nn.relu(_pooled(_convolved(kernel, h, 1)) + bias[:, None, None, None])
    h = h.reshape(-1, x.shape[0])
    for matrix, bias in zip(arrays[4:-2:2], arrays[5:-2:2], strict=True):
        h = jax.nn.relu(matrix @ h + bias[:, None])
    return (arrays[-2] @ h + arrays[-1][:, None]).T


def _images(x: Rows) -> Channels:
    rim = (_RIM, _RIM)
    return jnp.pad(x.T.reshape(1, _SIDE, _SIDE, -1), ((0, 0), rim, rim, (0, 0)))


def _convolved(
    kernel: Float[Array, "out_channels channels size size"], images: Channels, stride: int
) -> Float[Array, "out_channels out_height out_width samples"]:
    outputs, channels, size, _ = kernel.shape
    side = (images.shape[1] - size) // stride + 1
    taps = [slice(tap, tap + stride * (side - 1) + 1, stride) for tap in range(size)]
    patches = [images[:, rows, columns].reshape(channels, -1) for rows in taps for columns in taps]
    flat = jnp.moveaxis(kernel, 1, 3).reshape(outputs, -1)
    return (flat @ jnp.concatenate(patches)).reshape(outputs, side, side, -1)


def _pooled(images: Channels) -> Float[Array, "channels half_height half_width samples"]:
    channels, height, width, samples = images.shape
    windows = images.reshape(channels, height // 2, 2, width // 2, 2, samples)
    upper = jnp.maximum(windows[:, :, 0, :, 0], windows[:, :, 0, :, 1])
    lower = jnp.maximum(windows[:, :, 1, :, 0], windows[:, :, 1, :, 1])
    return jnp.maximum(upper, lower)
