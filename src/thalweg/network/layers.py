"""Linear layers: full matrices, convolutions, and any other pattern of shared weights.

Each entry of a layer's matrix W(w) is zero or tied to one coordinate of its weight array w, and no
coordinate is repeated within a row [elkabetz2021, App. C]. A layer declares its `pattern`, the
matrix of which coordinate (of w, flattened row by row) stands where, with -1 for a zero. Because
coordinate c stands in n_c entries,

    |W(w)|_F^2 = sum_c n_c w_c^2,    operator norm of w -> W(w) = sqrt(max_c n_c).

The matrices are there for the theory; a convolution is computed as a convolution.

[elkabetz2021] O. Elkabetz, N. Cohen, "Continuous vs. discrete optimization of deep neural
    networks", arXiv:2107.06608.
"""

from abc import abstractmethod
from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, described, require_count
from thalweg._typing import Matrix
from thalweg.network.maps import AbstractMap, ConvolutionMap, DenseMap, PatternMap

Pattern = Int[Array, "outputs features"]
Rows = Float[Array, "samples features"]
OutputRows = Float[Array, "samples outputs"]


class AbstractLayer(eqx.Module):
    """A linear map x -> W(w) x of flat rows, whose matrix is tied to a weight array w.

    `shape` is that of w; `features` and `outputs` are its input and output dimension;
    `most_tied` is the largest number of entries of W(w) that are tied to one coordinate.
    """

    shape: eqx.AbstractVar[tuple[int, ...]]
    features: eqx.AbstractVar[int]
    outputs: eqx.AbstractVar[int]
    pattern: eqx.AbstractVar[Pattern]
    most_tied: eqx.AbstractVar[int]

    @abstractmethod
    def __call__(self, weight: Float[Array, "..."], x: Rows) -> OutputRows:
        """The map, applied to each row."""

    @property
    def channels(self) -> int:
        """How many biases the layer would have: one for each output channel."""
        return self.outputs

    @property
    def out_image(self) -> tuple[int, int]:
        """Height and width of each output channel."""
        return 1, 1

    def on_host(self) -> AbstractMap:
        """The same map in NumPy, with its derivatives."""
        return PatternMap(np.asarray(self.pattern), self.shape)

    @property
    def operator_norm(self) -> float:
        """The largest |W(w)|_F over |w| = 1."""
        return sqrt(self.most_tied)

    def matrix(self, weight: Float[Array, "..."]) -> Matrix:
        """The matrix W(weight)."""
        pattern = self.pattern
        tied = weight.ravel()[jnp.maximum(pattern, 0)]
        return jnp.where(pattern >= 0, tied, jnp.zeros((), weight.dtype))


class Dense(AbstractLayer):
    """A full matrix: every entry is a coordinate of its own."""

    features: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)

    @checked
    def __init__(self, inputs: int, outputs: int):
        """Take how many numbers go in and come out."""
        self.features = require_count("inputs", inputs)
        self.outputs = require_count("outputs", outputs)

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return self.outputs, self.features

    @property
    @override
    def pattern(self) -> Pattern:
        return jnp.arange(self.outputs * self.features).reshape(self.shape)

    @property
    @override
    def most_tied(self) -> int:
        return 1

    @override
    def on_host(self) -> AbstractMap:
        return DenseMap(self.outputs)

    @override
    def __call__(self, weight: Float[Array, "outputs features"], x: Rows) -> OutputRows:
        return x @ weight.T

    @override
    def matrix(self, weight: Float[Array, "outputs features"]) -> Matrix:
        return weight


class Convolution(AbstractLayer):
    """A convolution of images, with zeros around them, as a map of flat rows.

    Rows hold channels one after the other, each row by row, so that a row of the MNIST set is an
    image of one channel. Kernels are not flipped, as is the custom in deep learning:

        out[o, i, j] = sum_{c, a, b} w[o, c, a, b] in[c, s i + a - p, s j + b - p].

    A signal of one dimension is an image of height 1.
    """

    in_channels: int = eqx.field(static=True)
    out_channels: int = eqx.field(static=True)
    kernel: tuple[int, int] = eqx.field(static=True)
    image: tuple[int, int] = eqx.field(static=True)
    stride: tuple[int, int] = eqx.field(static=True)
    padding: tuple[int, int] = eqx.field(static=True)

    @checked
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int | Sequence[int],
        image: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
    ):
        """Take the channels, and four sizes: each a pair (vertical, horizontal) or one for both.

        Args:
            in_channels: channels of the images that go in.
            out_channels: channels of the images that come out.
            kernel: height and width of the kernel.
            image: height and width of the images that go in, without padding.
            stride: how far the kernel moves between two outputs.
            padding: how many zeros are put on each side of the images.
        """
        self.in_channels = require_count("in_channels", in_channels)
        self.out_channels = require_count("out_channels", out_channels)
        self.kernel = _pair("kernel", kernel)
        self.image = _pair("image", image)
        self.stride = _pair("stride", stride)
        self.padding = _pair("padding", padding, least=0)
        if min(self.out_image) < 1:
            raise InputError(
                f"`kernel` must fit in the padded image: it is {self.kernel}, the image "
                f"{self.image} with padding {self.padding}; give the height and width of one "
                "image as `image`, or more padding."
            )

    @property
    @override
    def channels(self) -> int:
        return self.out_channels

    @property
    @override
    def out_image(self) -> tuple[int, int]:
        height, width = (
            (size + 2 * margin - taps) // step + 1
            for size, margin, taps, step in zip(
                self.image, self.padding, self.kernel, self.stride, strict=True
            )
        )
        return height, width

    @property
    @override
    def shape(self) -> tuple[int, int, int, int]:
        return self.out_channels, self.in_channels, *self.kernel

    @property
    @override
    def features(self) -> int:
        return self.in_channels * prod(self.image)

    @property
    @override
    def outputs(self) -> int:
        return self.out_channels * prod(self.out_image)

    @property
    @override
    def pattern(self) -> Pattern:
        coordinate = np.arange(prod(self.shape)).reshape(self.shape)
        pattern = np.full(
            (self.out_channels, *self.out_image, self.in_channels, *self.image), -1, dtype=int
        )
        for a in range(self.kernel[0]):
            for b in range(self.kernel[1]):
                (i, y), (j, x) = self._meetings(0, a), self._meetings(1, b)
                place = np.s_[:, i[:, None], j[None], :, y[:, None], x[None]]
                pattern[place] = coordinate[:, :, a, b]
        return jnp.asarray(pattern.reshape(self.outputs, self.features))

    @override
    def on_host(self) -> AbstractMap:
        return ConvolutionMap(self.shape, self.image, self.out_image, self.stride, self.padding)

    @property
    @override
    def most_tied(self) -> int:
        # A tap of the kernel meets the image in a rectangle of positions: the largest is the
        # product of the longest along each axis, whatever the channels.
        longest = (
            max(self._meetings(axis, tap)[0].size for tap in range(self.kernel[axis]))
            for axis in (0, 1)
        )
        return prod(longest)

    @override
    def __call__(
        self, weight: Float[Array, "out_channels in_channels kh kw"], x: Rows
    ) -> OutputRows:
        images = x.reshape(-1, self.in_channels, *self.image)
        (top, left) = self.padding
        outputs = jax.lax.conv_general_dilated(
            images,
            weight,
            window_strides=self.stride,
            padding=((top, top), (left, left)),
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )
        return outputs.reshape(x.shape[0], -1)

    def _meetings(self, axis: int, tap: int) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Along an axis: the outputs that a tap contributes to, and the pixels it meets there."""
        output = np.arange(self.out_image[axis])
        pixel = self.stride[axis] * output + tap - self.padding[axis]
        inside = (pixel >= 0) & (pixel < self.image[axis])
        return output[inside], pixel[inside]


class Tied(AbstractLayer):
    """Any pattern of zeros and shared weights."""

    pattern: Pattern
    size: int = eqx.field(static=True)
    most_tied: int = eqx.field(static=True)

    @checked
    def __init__(self, pattern: Any):
        """Take a matrix of whole numbers: -1 for a zero, otherwise the coordinate that is there."""
        entries = _checked_pattern(pattern)
        counts = np.bincount(entries[entries >= 0])
        self.pattern = jnp.asarray(entries)
        self.size = counts.size
        self.most_tied = int(counts.max())

    @property
    @override
    def shape(self) -> tuple[int]:
        return (self.size,)

    @property
    @override
    def features(self) -> int:
        return self.pattern.shape[1]

    @property
    @override
    def outputs(self) -> int:
        return self.pattern.shape[0]

    @override
    def __call__(self, weight: Float[Array, " size"], x: Rows) -> OutputRows:
        return x @ self.matrix(weight).T


def _pair(name: str, value: int | Sequence[int], least: int = 1) -> tuple[int, int]:
    if not isinstance(value, Sequence):
        size = require_count(name, value, least)
        return size, size
    sizes = tuple(require_count(f"{name}[{i}]", size, least) for i, size in enumerate(value))
    if len(sizes) != 2:
        raise InputError(
            f"`{name}` must be one whole number or a pair (vertical, horizontal), got {value}."
        )
    return sizes[0], sizes[1]


def _checked_pattern(pattern: Any) -> Int[np.ndarray, "outputs features"]:
    try:
        entries = np.asarray(pattern)
    except (TypeError, ValueError) as error:
        raise InputError(
            "`pattern` must be a matrix (outputs x features) of whole numbers, got "
            f"{described(pattern)}."
        ) from error
    if entries.ndim != 2 or 0 in entries.shape or not np.issubdtype(entries.dtype, np.integer):
        raise InputError(
            "`pattern` must be a matrix (outputs x features) of whole numbers, got shape "
            f"{entries.shape} and dtype {entries.dtype}."
        )
    used = np.unique(entries[entries >= 0])
    if used.size == 0 or entries.min() < -1 or used.size != used[-1] + 1:
        raise InputError(
            f"`pattern` must use the coordinates 0, 1, ... without a gap, and -1 for a zero, got "
            f"the entries {np.unique(entries).tolist()}; renumber them."
        )
    for index, row in enumerate(entries):
        tied = np.sort(row[row >= 0])
        repeated = tied[:-1][tied[1:] == tied[:-1]]
        if repeated.size:
            raise InputError(
                "`pattern` must not repeat a coordinate within a row, got coordinate "
                f"{repeated[0]} twice in row {index}; the theory of shared weights needs this, "
                "give the second entry a coordinate of its own."
            )
    return entries
