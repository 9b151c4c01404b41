"""Linear layers in NumPy, with the products that a flow across kinks is made of.

A map takes rows x to W(w) x. With `back` the gradient of some function in its output, row by
row, it pulls them back to slopes in x, and turns them into slopes in w: summed over all rows, or
row by row. The layers themselves (`layers`) are for JAX; here nothing is compiled, because which
rows matter changes from step to step.
"""

from abc import ABC, abstractmethod
from math import prod

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

Rows = Float[np.ndarray, "rows _"]
Weight = Float[np.ndarray, "..."]

_CHUNK = 2**20  # numbers in the patches that are held at a time: what a cache holds


class AbstractMap(ABC):
    """A layer's products; `channels` is how many biases it would have."""

    channels: int

    @abstractmethod
    def forward(self, weight: Weight, x: Rows) -> Rows:
        """W(w) x for each row."""

    @abstractmethod
    def pulled(self, weight: Weight, back: Rows) -> Rows:
        """W(w)^T back for each row."""

    @abstractmethod
    def gradient(self, back: Rows, x: Rows) -> Weight:
        """The gradient in w of the sum over rows of <back, W(w) x>."""

    @abstractmethod
    def each(self, back: Rows, x: Rows) -> Rows:
        """The gradient in w of <back, W(w) x>, flattened, for each row."""

    @abstractmethod
    def sizes(self, x: Rows) -> Rows:
        """For each place of what comes out, the sum of squares of what goes into it."""

    def gram(self, back: Rows, x: Rows) -> Float[np.ndarray, "rows rows"]:
        """The products of these gradients with each other."""
        rows = self.each(back, x)
        return rows @ rows.T

    def squares(self, back: Rows, x: Rows) -> Float[np.ndarray, " rows"]:
        """Their squared lengths."""
        rows = self.each(back, x)
        return np.einsum("ij,ij->i", rows, rows)


class DenseMap(AbstractMap):
    """A full matrix."""

    def __init__(self, outputs: int):
        """Take how many numbers come out."""
        self.channels = outputs

    @override
    def forward(self, weight: Weight, x: Rows) -> Rows:
        return x @ weight.T

    @override
    def pulled(self, weight: Weight, back: Rows) -> Rows:
        return back @ weight

    @override
    def gradient(self, back: Rows, x: Rows) -> Weight:
        return back.T @ x

    @override
    def each(self, back: Rows, x: Rows) -> Rows:
        return (back[:, :, None] * x[:, None]).reshape(len(x), -1)

    @override
    def sizes(self, x: Rows) -> Rows:
        return np.einsum("ij,ij->i", x, x)[:, None]

    @override
    def gram(self, back: Rows, x: Rows) -> Float[np.ndarray, "rows rows"]:
        return (back @ back.T) * (x @ x.T)

    @override
    def squares(self, back: Rows, x: Rows) -> Float[np.ndarray, " rows"]:
        return np.einsum("ij,ij->i", back, back) * np.einsum("ij,ij->i", x, x)


class PatternMap(AbstractMap):
    """Any pattern of zeros and shared weights, by its matrix."""

    def __init__(self, pattern: Int[np.ndarray, "outputs features"], shape: tuple[int, ...]):
        """Take which coordinate stands where, -1 for none, and the shape of the weights."""
        self.channels = pattern.shape[0]
        self._shape = shape
        self._pattern = pattern
        self._places = np.nonzero(pattern >= 0)
        self._coordinates = pattern[self._places]

    def _matrix(self, weight: Weight) -> Float[np.ndarray, "outputs features"]:
        found = np.zeros(self._pattern.shape)
        found[self._places] = weight.ravel()[self._coordinates]
        return found

    @override
    def forward(self, weight: Weight, x: Rows) -> Rows:
        return x @ self._matrix(weight).T

    @override
    def pulled(self, weight: Weight, back: Rows) -> Rows:
        return back @ self._matrix(weight)

    @override
    def gradient(self, back: Rows, x: Rows) -> Weight:
        entries = (back.T @ x)[self._places]
        found = np.bincount(self._coordinates, entries, minlength=prod(self._shape))
        return found.reshape(self._shape)

    @override
    def each(self, back: Rows, x: Rows) -> Rows:
        found = np.zeros((len(x), prod(self._shape)))
        np.add.at(found.T, self._coordinates, (back[:, self._places[0]] * x[:, self._places[1]]).T)
        return found

    @override
    def sizes(self, x: Rows) -> Rows:
        return x**2 @ (self._pattern >= 0).T


class ConvolutionMap(AbstractMap):
    """A convolution, as one product of the kernels with the patches of each image."""

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        image: tuple[int, int],
        out_image: tuple[int, int],
        stride: tuple[int, int],
        padding: tuple[int, int],
    ):
        """Take the shape of the kernels, and four pairs (vertical, horizontal)."""
        self.channels, self._in_channels, *kernel = shape
        self._shape, self._kernel = shape, tuple(kernel)
        self._image, self._out, self._stride, self._padding = image, out_image, stride, padding
        per_row = prod(shape[1:]) * prod(out_image)
        self._rows = max(1, _CHUNK // per_row)

    @override
    def forward(self, weight: Weight, x: Rows) -> Rows:
        kernels = weight.reshape(self.channels, -1)
        found = np.empty((len(x), self.channels, prod(self._out)))
        for part in self._parts(len(x)):
            np.matmul(kernels, self._patches(x[part]), out=found[part])
        return found.reshape(len(x), -1)

    @override
    def pulled(self, weight: Weight, back: Rows) -> Rows:
        kernels = np.ascontiguousarray(weight.reshape(self.channels, -1).T)
        found = np.empty((len(back), self._in_channels * prod(self._image)))
        slopes = back.reshape(len(back), self.channels, -1)
        for part in self._parts(len(back)):
            found[part] = self._gathered(kernels @ slopes[part])
        return found

    @override
    def gradient(self, back: Rows, x: Rows) -> Weight:
        slopes = back.reshape(len(back), self.channels, -1)
        found = np.zeros(self._shape).reshape(self.channels, -1)
        for part in self._parts(len(x)):
            found += (slopes[part] @ self._patches(x[part]).transpose(0, 2, 1)).sum(axis=0)
        return found.reshape(self._shape)

    @override
    def each(self, back: Rows, x: Rows) -> Rows:
        slopes = back.reshape(len(back), self.channels, -1)
        found = np.empty((len(x), self.channels, prod(self._shape[1:])))
        for part in self._parts(len(x)):
            np.matmul(slopes[part], self._patches(x[part]).transpose(0, 2, 1), out=found[part])
        return found.reshape(len(x), -1)

    @override
    def sizes(self, x: Rows) -> Rows:
        found = np.empty((len(x), prod(self._out)))
        for part in self._parts(len(x)):
            found[part] = np.sum(self._patches(x[part] ** 2), axis=1)
        return found

    def _parts(self, count: int) -> list[slice]:
        return [slice(first, first + self._rows) for first in range(0, count, self._rows)]

    def _patches(self, x: Rows) -> Float[np.ndarray, "rows taps places"]:
        """What each place of the kernel sees."""
        (top, left), (height, width) = self._padding, self._image
        images = x.reshape(-1, self._in_channels, height, width)
        if top or left:
            images = np.pad(images, ((0, 0), (0, 0), (top, top), (left, left)))
        rows, channels, down, across = images.strides
        (step, pace) = self._stride
        seen = np.lib.stride_tricks.as_strided(
            images,
            (len(x), self._in_channels, *self._kernel, *self._out),
            (rows, channels, down, across, step * down, pace * across),
            writeable=False,
        )
        return seen.reshape(len(x), -1, prod(self._out))

    def _gathered(self, patches: Float[np.ndarray, "rows taps places"]) -> Rows:
        """The sum of patches where they came from."""
        (top, left), (height, width) = self._padding, self._image
        taps = patches.reshape(-1, self._in_channels, *self._kernel, *self._out)
        found = np.zeros((len(taps), self._in_channels, height + 2 * top, width + 2 * left))
        (step, pace), (rows, columns) = self._stride, self._out
        for a in range(self._kernel[0]):
            for b in range(self._kernel[1]):
                down = slice(a, a + step * rows, step)
                across = slice(b, b + pace * columns, pace)
                found[:, :, down, across] += taps[:, :, a, b]
        inner = found[:, :, top : top + height, left : left + width]
        return inner.reshape(len(taps), -1)
