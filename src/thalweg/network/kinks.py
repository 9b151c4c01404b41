"""Where the gradient of a network jumps, laid open for those who follow it across.

A kink is a function z_i of the weights, for one sample, whose sign selects the piece of the map: a
pre-activation that goes into an activation with two slopes. A *mask* a_i in [0, 1] says on which
side the map is taken: 1 where z_i > 0, 0 where z_i < 0, in between for a mean over both. With
given masks the map is smooth, and the gradient of a function f of its outputs is

    g(a),    dg / da_i = delta_i grad z_i,    delta_i = (alpha - beta) df / ds(z_i),

so it *jumps* by delta_i grad z_i where z_i crosses zero. Whoever integrates across kinks needs the
map and its gradient for given masks, the deltas, and the Gram matrix M_ij = <grad z_i, grad z_j>,
which for fully connected layers is a sum over layers k of (B_k B_k^T) * (H_k H_k^T), entry by
entry: B_k has the slopes of z_i in the output of layer k, H_k what goes into it.

The first layer sees the samples as they are, so that its output is linear in its weights: a
pass at a point on a line is made of the *images* of both ends, and no product with the samples.

All arrays are NumPy's: how many kinks matter changes from step to step, and nothing is to be
compiled for their number.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int, Real
from typing_extensions import override

Rows = Float[np.ndarray, "rows _"]
Masks = Float[np.ndarray, "rows kinks"]
Arrays = tuple[Float[np.ndarray, "..."], ...]
Index = Int[np.ndarray, " _"]

_KEPT = 4096  # samples whose products with each other fill 128 MB


@dataclass(frozen=True)
class Forward:
    """What a pass through the network leaves behind, on some samples.

    Attributes:
        weights: of the network.
        inputs: what goes into each layer.
        slopes: of the activation behind each layer but the last, by the masks.
        z: the functions whose signs select the piece, layer after layer.
        outputs: what comes out.
    """

    weights: Arrays
    inputs: tuple[Rows, ...]
    slopes: tuple[Rows, ...]
    z: Masks
    outputs: Rows


@dataclass(frozen=True)
class Backward:
    """The slopes of f in the output of each layer, and the deltas of the jumps."""

    slopes: tuple[Rows, ...]
    deltas: Masks


Passes = tuple[Forward, Backward]


class AbstractKinks(ABC):
    """A network on its samples, for given masks: one array (samples, kinks).

    `samples` is how many there are, `upper_share` which part of the operations of a pass is left
    where the output of the first layer is known, `crowded` whether most samples have a kink in
    most steps, so that a pass on those that have is one on all.
    """

    samples: int
    upper_share: float
    crowded: bool

    @abstractmethod
    def image(self, weights: Arrays) -> Rows:
        """The output of the first layer; linear in the weights."""

    @abstractmethod
    def forward(self, weights: Arrays, image: Rows, masks: Masks | None = None) -> Forward:
        """The pass through the network; without masks, by the signs that it meets."""

    @abstractmethod
    def remasked(self, forward: Forward, rows: Index, masks: Masks) -> Forward:
        """The pass on these samples alone, with other masks for them."""

    @abstractmethod
    def with_masks(self, forward: Forward, masks: Masks) -> Forward:
        """The same pass with masks that differ where z is nearly zero only."""

    @abstractmethod
    def backward(self, forward: Forward, slopes: Rows) -> Backward:
        """The pass back, given the slopes of f in the outputs."""

    @abstractmethod
    def gradient(self, forward: Forward, backward: Backward) -> Arrays:
        """The gradient of f in the weights."""

    @abstractmethod
    def change(self, old: Passes, new: Passes, rows: Index) -> tuple[Arrays, Rows]:
        """What the gradient changes by with these samples' passes, and the image of that."""

    @abstractmethod
    def gram(self, forward: Forward, rows: Index, kinks: Index) -> Float[np.ndarray, "c c"]:
        """<grad z_i, grad z_j> for these pairs of sample and kink."""

    @abstractmethod
    def squares(self, forward: Forward, rows: Index, kinks: Index) -> Float[np.ndarray, " c"]:
        """|grad z_i|^2 for these pairs of sample and kink."""

    @abstractmethod
    def spread(self, forward: Forward, factors: Masks) -> Arrays:
        """The sum of factor_i grad z_i."""

    @abstractmethod
    def reach(self, forward: Forward, rows: Index, kinks: Index) -> Float[np.ndarray, " c"]:
        """A part of |grad z_i|; zero where z_i is zero whatever the weights of its own layer."""

    def roughly_squares(
        self, forward: Forward, rows: Index, kinks: Index
    ) -> Float[np.ndarray, " c"]:
        """About |grad z_i|^2, by what is known without a pass back; infinity where it is not."""
        return np.full(rows.size, np.inf)

    def labels(self, forward: Forward, rows: Index, kinks: Index) -> Index:
        """Which of these pairs have the same z whatever the weights: those with the same label.

        Labels are 0, 1, ... without a gap; as they are here, all z are different.
        """
        return np.arange(rows.size)


class DenseKinks(AbstractKinks):
    """Fully connected layers with a (leaky-)ReLU activation in between."""

    def __init__(self, widths: Sequence[int], slopes: tuple[float, float], x: Rows):
        """Take the widths of the layers, the slopes above and below zero, and the samples."""
        self.samples, self.crowded = x.shape[0], False
        sizes = [below * above for below, above in pairwise(widths)]
        self.upper_share = sum(sizes[1:]) / sum(sizes)
        self._x, (self._above, self._below) = x, slopes
        self._first_of = np.cumsum([0, *widths[1:-1]])
        self._columns = [slice(a, b) for a, b in pairwise(self._first_of)]
        self._layer_of = np.repeat(np.arange(len(widths) - 2), widths[1:-1])

    @override
    def image(self, weights: Arrays) -> Rows:
        return self._x @ weights[0].T

    @override
    def forward(self, weights: Arrays, image: Rows, masks: Masks | None = None) -> Forward:
        return self._onwards(weights, self._x, image, masks)

    @override
    def remasked(self, forward: Forward, rows: Index, masks: Masks) -> Forward:
        image = forward.z[rows, self._columns[0]]
        return self._onwards(forward.weights, self._x[rows], image, masks)

    def _onwards(self, weights: Arrays, x: Rows, image: Rows, masks: Masks | None) -> Forward:
        """The pass from the output of the first layer, which no mask changes."""
        inputs, slopes, hidden, z = [x], [], [], image
        for weight, columns in zip(weights[1:], self._columns, strict=True):
            mask = z > 0 if masks is None else masks[:, columns]
            slopes.append(self._slope(mask))
            hidden.append(z)
            inputs.append(slopes[-1] * z)
            z = inputs[-1] @ weight.T
        return Forward(weights, tuple(inputs), tuple(slopes), np.concatenate(hidden, axis=1), z)

    @override
    def with_masks(self, forward: Forward, masks: Masks) -> Forward:
        slopes = tuple(self._slope(masks[:, columns]) for columns in self._columns)
        return replace(forward, slopes=slopes)

    def _slope(self, mask: Real[np.ndarray, "rows _"] | Bool[np.ndarray, "rows _"]) -> Rows:
        return self._below + (self._above - self._below) * mask

    @override
    def backward(self, forward: Forward, slopes: Rows) -> Backward:
        back, deltas = [slopes], []
        for weight, slope in zip(forward.weights[:0:-1], forward.slopes[::-1], strict=True):
            above = back[-1] @ weight
            deltas.append((self._above - self._below) * above)
            back.append(slope * above)
        return Backward(tuple(back[::-1]), np.concatenate(deltas[::-1], axis=1))

    @override
    def gradient(self, forward: Forward, backward: Backward) -> Arrays:
        pairs = zip(backward.slopes, forward.inputs, strict=True)
        return tuple(slope.T @ below for slope, below in pairs)

    @override
    def change(self, old: Passes, new: Passes, rows: Index) -> tuple[Arrays, Rows]:
        (forward, backward), (forward_new, backward_new) = old, new
        first = backward_new.slopes[0] - backward.slopes[0][rows]
        inner = self._x @ self._x[rows].T if self._products is None else self._products[:, rows]
        upper = (
            slope_new.T @ below_new - slope[rows].T @ below[rows]
            for slope_new, below_new, slope, below in zip(
                backward_new.slopes[1:],
                forward_new.inputs[1:],
                backward.slopes[1:],
                forward.inputs[1:],
                strict=True,
            )
        )
        return (first.T @ self._x[rows], *upper), inner @ first

    @override
    def gram(self, forward: Forward, rows: Index, kinks: Index) -> Float[np.ndarray, "c c"]:
        found = np.zeros((rows.size, rows.size))
        for layer, chosen, back in self._pulled_back(forward, rows, kinks):
            at = rows[chosen]
            if layer == 0 and self._products is not None:
                inner = self._products[np.ix_(at, at)]
            else:
                below = forward.inputs[layer][at]
                inner = below @ below.T
            found[np.ix_(chosen, chosen)] += (back @ back.T) * inner
        return found

    @override
    def squares(self, forward: Forward, rows: Index, kinks: Index) -> Float[np.ndarray, " c"]:
        found = np.zeros(rows.size)
        for layer, chosen, back in self._pulled_back(forward, rows, kinks):
            below = forward.inputs[layer][rows[chosen]]
            found[chosen] += np.sum(back**2, axis=1) * np.sum(below**2, axis=1)
        return found

    def _pulled_back(
        self, forward: Forward, rows: Index, kinks: Index
    ) -> list[tuple[int, Index, Float[np.ndarray, "_ _"]]]:
        """For each layer: which pairs see it, and their slopes in its output."""
        layers, found = self._layer_of[kinks], []
        chosen, back = np.zeros(0, int), np.zeros((0, 0))
        for layer in reversed(range(len(self._columns))):
            if chosen.size:
                back = (back @ forward.weights[layer + 1]) * forward.slopes[layer][rows[chosen]]
            own = np.flatnonzero(layers == layer)
            units = np.zeros((own.size, forward.weights[layer].shape[0]))
            units[np.arange(own.size), kinks[own] - self._first_of[layer]] = 1.0
            back = np.concatenate([back, units]) if chosen.size else units
            chosen = np.concatenate([chosen, own])
            if chosen.size:
                found.append((layer, chosen, back))
        return found

    @override
    def spread(self, forward: Forward, factors: Masks) -> Arrays:
        back, found = np.zeros(forward.outputs.shape), [np.zeros(forward.outputs.shape)]
        pairs = list(zip(forward.weights[1:], forward.slopes, self._columns, strict=True))
        for weight, slope, columns in pairs[::-1]:
            back = slope * (back @ weight) + factors[:, columns]
            found.append(back)
        return self.gradient(forward, Backward(tuple(found[::-1]), factors))

    @override
    def reach(self, forward: Forward, rows: Index, kinks: Index) -> Float[np.ndarray, " c"]:
        layers, found = self._layer_of[kinks], np.zeros(rows.size)
        for layer in np.unique(layers):
            chosen = np.flatnonzero(layers == layer)
            sizes = np.linalg.norm(forward.inputs[layer], axis=1) if layer else self._sizes
            found[chosen] = sizes[rows[chosen]]
        return found

    @cached_property
    def _sizes(self) -> Float[np.ndarray, " samples"]:
        return np.linalg.norm(self._x, axis=1)

    @cached_property
    def _products(self) -> Float[np.ndarray, "samples samples"] | None:
        """X X^T, where it is not too large to keep."""
        return self._x @ self._x.T if self.samples <= _KEPT else None
