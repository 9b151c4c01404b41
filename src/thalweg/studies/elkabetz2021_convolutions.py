"""The convolutional networks of elkabetz2021, tile by tile and with samples along the last axis.

A tile of outputs is one product of a matrix, which holds the kernel at every place of the tile,
with the window of inputs that the tile sees. Larger tiles have more zeros in that matrix and less
overlap of windows to be copied; those below are the fastest ones. The outputs of the networks are
that of the networks in `thalweg.network`, whose weights these share, but for rounding. That with
max pooling has derivatives in reverse mode only, which is what descent needs.
"""

from collections.abc import Sequence
from math import ceil

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg._typing import Weights
from thalweg.network import Model, max_pooling_network, strided_network

_SIDE, _RIM = 28, 2

Images = Float[Array, "height width channels samples"]
Tiles = Float[Array, "_ _ channels rows columns samples"]
Kernel = Float[Array, "outputs channels size size"]
Rows = Float[Array, "samples 784"]
Scores = Float[Array, "samples 10"]


def fast_strided_network() -> Model:
    """`strided_network`, without its layers' patterns."""
    return Model(_strided, strided_network().shapes, features=784, outputs=10, smooth=False)


def fast_max_pooling_network() -> Model:
    """`max_pooling_network`."""
    return Model(_max_pooling, max_pooling_network().shapes, features=784, outputs=10, smooth=False)


def _strided(weights: Weights, x: Rows) -> Scores:
    first, second, *dense = (jnp.asarray(array) for array in weights)
    h = _put_together(jax.nn.relu(_convolved(first, _images(x), 2, (2, 2))))
    h = _put_together(jax.nn.relu(_convolved(second, h, 2, (1, 5))))
    return _dense(dense, [0.0] * len(dense), h)


def _max_pooling(weights: Weights, x: Rows) -> Scores:
    matrices, biases = ([jnp.asarray(array) for array in weights[i::2]] for i in (0, 1))
    h = _images(x)
    for kernel, bias, tile in zip(matrices[:2], biases[:2], (4, 2), strict=True):
        pooled = _pooled(_convolved(kernel, h, 1, (tile, tile)))
        h = _put_together(jax.nn.relu(pooled + bias[:, None, None, None]))
    return _dense(matrices[2:], [bias[:, None] for bias in biases[2:]], h)


def _images(x: Rows) -> Images:
    rim = (_RIM, _RIM)
    return jnp.pad(x.T.reshape(_SIDE, _SIDE, 1, -1), (rim, rim, (0, 0), (0, 0)))


def _dense(matrices: list[Array], biases: Sequence[Array | float], images: Images) -> Scores:
    """The layers behind the convolutions; the first one's columns go by channels first."""
    height, width, channels, samples = images.shape
    h = images.reshape(-1, samples)
    first = matrices[0].reshape(-1, channels, height * width)
    matrices = [jnp.swapaxes(first, 1, 2).reshape(matrices[0].shape), *matrices[1:]]
    for matrix, bias in zip(matrices[:-1], biases[:-1], strict=True):
        h = jax.nn.relu(matrix @ h + bias)
    return (matrices[-1] @ h + biases[-1]).T


# --- tiles ---------------------------------------------------------------------------------------


def _convolved(
    kernel: Kernel, images: Images, stride: int, tile: tuple[int, int]
) -> Float[Array, "_ _ outputs rows columns samples"]:
    outputs, channels, size, _ = kernel.shape
    samples = images.shape[-1]
    windows = images
    for axis, length in zip((0, 2), tile, strict=True):
        windows = _windows(windows, axis, size, stride, length)
    rows, height, columns, width = windows.shape[:4]
    matrix = jnp.einsum(
        "ocab,aym,bxn->mnoyxc",
        kernel,
        _taps(size, height, stride, tile[0]).astype(kernel.dtype),
        _taps(size, width, stride, tile[1]).astype(kernel.dtype),
    )
    seen = windows.transpose(1, 3, 4, 0, 2, 5).reshape(height * width * channels, -1)
    found = matrix.reshape(-1, seen.shape[0]) @ seen
    return found.reshape(*tile, outputs, rows, columns, samples)


def _windows(images: Array, axis: int, size: int, stride: int, tile: int) -> Array:
    """What each tile along an axis sees, as two axes: which tile, and where in its window."""
    length = images.shape[axis]
    if (length - size) // stride + 1 == tile:
        return jnp.expand_dims(images, axis)
    # A window is a number of chunks, each as long as the way from one window to the next.
    step = stride * tile
    chunks = ceil((stride * (tile - 1) + size) / step)
    pieces = images.reshape(*images.shape[:axis], -1, step, *images.shape[axis + 1 :])
    count = length // step - chunks + 1
    shifted = [jax.lax.slice_in_dim(pieces, k, k + count, axis=axis) for k in range(chunks)]
    return jnp.concatenate(shifted, axis + 1)


def _taps(size: int, length: int, stride: int, tile: int) -> Float[np.ndarray, "size length tile"]:
    """One where an entry of the kernel meets a place of the window, for each output of a tile."""
    tap, place, output = np.ogrid[:size, :length, :tile]
    return (place == stride * output + tap).astype(float)


def _put_together(tiles: Tiles) -> Images:
    height, width, channels, rows, columns, samples = tiles.shape
    ordered = tiles.transpose(3, 0, 4, 1, 2, 5)
    return ordered.reshape(rows * height, columns * width, channels, samples)


@jax.custom_vjp
def _pooled(tiles: Tiles) -> Tiles:
    """The largest of every two by two entries, inside of the tiles."""
    return _pooled_and_kept(tiles)[0]


def _pooled_and_kept(tiles: Tiles) -> tuple[Tiles, Array]:
    """The largest entries, and which of the four each of them is; the first one of equal ones."""
    four = _fours(tiles)
    a, b, c, d = four[:, 0, :, 0], four[:, 0, :, 1], four[:, 1, :, 0], four[:, 1, :, 1]
    upper, lower = jnp.maximum(a, b), jnp.maximum(c, d)
    which = jnp.where(upper >= lower, jnp.where(a >= b, 0, 1), jnp.where(c >= d, 2, 3))
    return jnp.maximum(upper, lower), which.astype(jnp.int8)


def _unpooled(which: Array, change: Tiles) -> tuple[Tiles]:
    # JAX's own derivative of `maximum` makes a step of descent take twice as long.
    height, width, *others = change.shape
    places = jnp.arange(4, dtype=jnp.int8).reshape(1, 2, 1, 2, *(1 for _ in others))
    four = jnp.where(which[:, None, :, None] == places, change[:, None, :, None], 0)
    return (four.reshape(2 * height, 2 * width, *others),)


_pooled.defvjp(_pooled_and_kept, _unpooled)


def _fours(tiles: Tiles) -> Array:
    height, width, *others = tiles.shape
    return tiles.reshape(height // 2, 2, width // 2, 2, *others)
