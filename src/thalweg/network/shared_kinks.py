"""The kinks of layers that share weights, with or without biases and max pooling between them.

Behind each linear layer but the last stand *stages* (`stages`), each with a kink per output.
Pooling stands before the activation: where that is monotone the network is the same the other way
round.

Shared weights make kinks coincide: all patches with the same pixels have the same z, and where a
bias passes zero, all patches of an empty background do. `labels` tells which are one function, by
the values that they take at weights which were drawn once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg.network.kinks import (
    AbstractKinks,
    Arrays,
    Backward,
    Forward,
    Index,
    Masks,
    Passes,
    Rows,
)
from thalweg.network.maps import AbstractMap
from thalweg.network.stages import AbstractStage, Pairing

_TOGETHER = 256  # kinks that are pulled back at a time
_SAME = 1e-11  # of the largest value: nearer ones are the same, but for rounding


@dataclass(frozen=True)
class Block:
    """A linear layer, and the stages behind it: none behind the last."""

    map: AbstractMap
    stages: tuple[AbstractStage, ...]


class SharedKinks(AbstractKinks):
    """Blocks one after the other; with biases each map's weights are followed by its biases."""

    upper_share = 1.0  # the first layer is applied anew at each point
    crowded = True

    def __init__(self, blocks: Sequence[Block], x: Rows, biases: bool):
        """Take the blocks, the samples, and whether there are biases."""
        self.samples = len(x)
        self._x, self._biases, self._blocks = x, biases, tuple(blocks)
        self._stages = [stage for block in blocks for stage in block.stages]
        ends = np.cumsum([0, *(stage.size for stage in self._stages)])
        self._columns = [slice(a, b) for a, b in pairwise(ends)]
        self._stage_of = np.repeat(np.arange(len(self._stages)), np.diff(ends))
        lengths = np.cumsum([0, *(len(block.stages) for block in blocks)])
        self._stages_of = [range(a, b) for a, b in pairwise(lengths)]
        self._drawn: list[Rows] | None = None
        self._first_sizes: Rows | None = None

    @override
    def image(self, weights: Arrays) -> Rows:
        return np.zeros((self.samples, 0))

    @override
    def forward(self, weights: Arrays, image: Rows, masks: Masks | None = None) -> Forward:
        return self._onwards(weights, self._x, masks)

    @override
    def remasked(self, forward: Forward, rows: Index, masks: Masks) -> Forward:
        return self._onwards(forward.weights, self._x[rows], masks)

    def _onwards(self, weights: Arrays, x: Rows, masks: Masks | None) -> Forward:
        z = np.empty((len(x), self._stage_of.size))
        inputs, factors, here = [], [], x
        for block, (weight, bias), stages in self._layers(weights):
            inputs.append(here)
            here = _shifted(block.map.forward(weight, here), bias)
            for stage, s in zip(block.stages, stages, strict=True):
                own = z[:, self._columns[s]]
                own[...] = stage.z(here)
                mask = own > 0 if masks is None else masks[:, self._columns[s]]
                factors.append(stage.factors(mask))
                here = stage.forward(factors[-1], here, own)
        return Forward(weights, tuple(inputs), tuple(factors), z, here)

    def _layers(self, weights: Arrays) -> Iterator[tuple[Block, tuple, range]]:
        """Each block with its weights, its biases or None, and the numbers of its stages."""
        if self._biases:
            pairs = zip(weights[::2], weights[1::2], strict=True)
        else:
            pairs = ((weight, None) for weight in weights)
        return zip(self._blocks, pairs, self._stages_of, strict=True)

    @override
    def with_masks(self, forward: Forward, masks: Masks) -> Forward:
        pairs = zip(self._stages, self._columns, strict=True)
        return replace(forward, slopes=tuple(stage.factors(masks[:, own]) for stage, own in pairs))

    @override
    def backward(self, forward: Forward, slopes: Rows) -> Backward:
        deltas = np.empty(forward.z.shape)
        found, back = [slopes], slopes
        layers = list(self._layers(forward.weights))
        for above, (block, _, stages) in zip(layers[:0:-1], layers[-2::-1], strict=True):
            back = above[0].map.pulled(above[1][0], back)
            for stage, s in zip(block.stages[::-1], stages[::-1], strict=True):
                deltas[:, self._columns[s]] = stage.deltas(back)
                back = stage.pulled(forward.slopes[s], back)
            found.append(back)
        return Backward(tuple(found[::-1]), deltas)

    @override
    def spread(self, forward: Forward, factors: Masks) -> Arrays:
        layers = list(self._layers(forward.weights))
        back = np.zeros(forward.outputs.shape)
        found = [back]
        for above, (block, _, stages) in zip(layers[:0:-1], layers[-2::-1], strict=True):
            back = above[0].map.pulled(above[1][0], back)
            for stage, s in zip(block.stages[::-1], stages[::-1], strict=True):
                back = stage.added(
                    stage.pulled(forward.slopes[s], back), factors[:, self._columns[s]]
                )
            found.append(back)
        return self.gradient(forward, Backward(tuple(found[::-1]), factors))

    @override
    def gradient(self, forward: Forward, backward: Backward) -> Arrays:
        found: list[np.ndarray] = []
        for block, slope, below in zip(self._blocks, backward.slopes, forward.inputs, strict=True):
            found.append(block.map.gradient(slope, below))
            if self._biases:
                found.append(_by_channel(block.map, slope).sum(axis=0))
        return tuple(found)

    @override
    def change(self, old: Passes, new: Passes, rows: Index) -> tuple[Arrays, Rows]:
        (forward, backward), (forward_new, backward_new) = old, new
        was = self.gradient(
            replace(forward, inputs=tuple(each[rows] for each in forward.inputs)),
            replace(backward, slopes=tuple(each[rows] for each in backward.slopes)),
        )
        pairs = zip(self.gradient(forward_new, backward_new), was, strict=True)
        return tuple(a - b for a, b in pairs), np.zeros((self.samples, 0))

    @override
    def gram(self, forward: Forward, rows: Index, kinks: Index) -> Float[np.ndarray, "c c"]:
        found = np.zeros((rows.size, rows.size))
        parts: dict[int, list] = {}
        for block, chosen, back in self._pulled_back(forward, rows, kinks):
            parts.setdefault(block, []).append((chosen, back))
        for block, pieces in parts.items():
            chosen, back = (np.concatenate(each) for each in zip(*pieces, strict=True))
            each = self._blocks[block].map
            own = each.gram(back, forward.inputs[block][rows[chosen]])
            if self._biases:
                sums = _by_channel(each, back)
                own += sums @ sums.T
            found[np.ix_(chosen, chosen)] += own
        return found

    @override
    def squares(self, forward: Forward, rows: Index, kinks: Index) -> Float[np.ndarray, " c"]:
        found = np.zeros(rows.size)
        for block, chosen, back in self._pulled_back(forward, rows, kinks):
            found[chosen] += self._squares(forward, block, rows[chosen], back)
        return found

    @override
    def reach(self, forward: Forward, rows: Index, kinks: Index) -> Float[np.ndarray, " c"]:
        found = np.sqrt(self.roughly_squares(forward, rows, kinks))
        pairs = np.array([isinstance(stage, Pairing) for stage in self._stages])
        chosen = np.flatnonzero(pairs[self._stage_of[kinks]])
        if chosen.size:
            # Patches with the same pixels: their difference is zero at all weights.
            found[chosen] *= self._drawn_at(forward, rows[chosen], kinks[chosen]) != 0
            chosen = chosen[found[chosen] > 0]
        for block, part, back in self._pulled_back(forward, rows[chosen], kinks[chosen], own=True):
            squares = self._squares(forward, block, rows[chosen[part]], back)
            found[chosen[part]] = np.sqrt(squares)
        return found

    @override
    def roughly_squares(
        self, forward: Forward, rows: Index, kinks: Index
    ) -> Float[np.ndarray, " c"]:
        """What its own layer gives to it; of pooled patches, the largest."""
        found = np.zeros(rows.size)
        stage_of = self._stage_of[kinks]
        for number, (block, stages) in enumerate(zip(self._blocks, self._stages_of, strict=True)):
            if not np.isin(stage_of, stages).any():
                continue
            sizes = self._sizes_of(forward, number)
            for stage, s in zip(block.stages, stages, strict=True):
                if isinstance(stage, Pairing):
                    one, other = stage.halves(sizes)
                    own, sizes = 2 * (one + other), np.maximum(one, other)
                else:
                    own = sizes + self._biases
                here = np.flatnonzero(stage_of == s)
                place = (kinks[here] - self._columns[s].start) % own.shape[1]
                found[here] = own[rows[here], place]
        return found

    def _sizes_of(self, forward: Forward, block: int) -> Rows:
        if block:
            return self._blocks[block].map.sizes(forward.inputs[block])
        if self._first_sizes is None:
            self._first_sizes = self._blocks[0].map.sizes(self._x)
        return self._first_sizes

    def _squares(
        self, forward: Forward, block: int, rows: Index, back: Rows
    ) -> Float[np.ndarray, " c"]:
        each = self._blocks[block].map
        found = each.squares(back, forward.inputs[block][rows])
        return found + np.sum(_by_channel(each, back) ** 2, axis=1) if self._biases else found

    def _pulled_back(
        self, forward: Forward, rows: Index, kinks: Index, own: bool = False
    ) -> Iterator[tuple[int, Index, Rows]]:
        """For each block: some kinks that see it, and their slopes in its map's output.

        With `own`, for the block alone that they stand in.
        """
        for first in range(0, rows.size, _TOGETHER):
            part = slice(first, first + _TOGETHER)
            for block, chosen, back in self._some_pulled_back(
                forward, rows[part], kinks[part], own
            ):
                yield block, first + chosen, back

    def _some_pulled_back(
        self, forward: Forward, rows: Index, kinks: Index, own: bool
    ) -> Iterator[tuple[int, Index, Rows]]:
        stage_of = self._stage_of[kinks]
        layers = list(self._layers(forward.weights))
        chosen, back = np.zeros(0, int), np.zeros((0, 0))
        for number in reversed(range(len(layers) - 1)):
            block, _, stages = layers[number]
            if own:
                chosen = chosen[:0]
            if chosen.size:
                above, (weight, _), _ = layers[number + 1]
                back = above.map.pulled(weight, back)
            for stage, s in zip(block.stages[::-1], stages[::-1], strict=True):
                if chosen.size:
                    back = stage.pulled(forward.slopes[s][rows[chosen]], back)
                here = np.flatnonzero(stage_of == s)
                if here.size:
                    slopes = stage.slopes_of(kinks[here] - self._columns[s].start)
                    back = np.concatenate([back, slopes]) if chosen.size else slopes
                    chosen = np.concatenate([chosen, here])
            if chosen.size:
                yield number, chosen, back

    @override
    def labels(self, forward: Forward, rows: Index, kinks: Index) -> Index:
        stages = self._stage_of[kinks]
        labels = _classes(stages, forward.z[rows, kinks])
        twins = np.flatnonzero(np.bincount(labels)[labels] > 1)
        if twins.size:
            values = self._drawn_at(forward, rows[twins], kinks[twins])
            labels[twins] = labels.max() + 1 + _classes(stages[twins], values)
        return np.unique(labels, return_inverse=True)[1]

    def _drawn_at(self, forward: Forward, rows: Index, kinks: Index) -> Float[np.ndarray, " c"]:
        """These z at the weights that were drawn, with their own layer's masks."""
        found, stage_of = np.zeros(rows.size), self._stage_of[kinks]
        drawn = self._drawn_values(forward.weights)
        for here, block, stages in zip(drawn, self._blocks, self._stages_of, strict=True):
            for stage, s in zip(block.stages, stages, strict=True):
                z = stage.z(here)
                own = np.flatnonzero(stage_of == s)
                found[own] = z[rows[own], kinks[own] - self._columns[s].start]
                here = stage.forward(forward.slopes[s], here, z)
        return found

    def _drawn_values(self, weights: Arrays) -> list[Rows]:
        """The output of each map at weights that were drawn, with masks that were, too."""
        if self._drawn is None:
            rng = np.random.default_rng(0)
            drawn = tuple(rng.normal(size=array.shape) for array in weights)
            found, here = [], self._x
            for block, (weight, bias), _ in self._layers(drawn):
                here = _shifted(block.map.forward(weight, here), bias)
                found.append(here)
                for stage in block.stages:
                    # No half: with slopes (1, -1) nothing would be left.
                    masks = np.full((self.samples, stage.size), rng.uniform(0.5, 1.0))
                    factors = stage.factors(masks)
                    here = stage.forward(factors, here, stage.z(here))
            self._drawn = found
        return self._drawn


def _shifted(rows: Rows, bias: Float[np.ndarray, " channels"] | None) -> Rows:
    if bias is not None:
        rows.reshape(len(rows), bias.size, -1)[...] += bias[:, None]
    return rows


def _by_channel(each: AbstractMap, back: Rows) -> Float[np.ndarray, "rows channels"]:
    return back.reshape(len(back), each.channels, -1).sum(axis=2)


def _classes(kinds: Index, values: Float[np.ndarray, " c"]) -> Index:
    """Numbers from 0 on, the same for the same kind and value but for rounding."""
    order = np.lexsort((values, kinds))
    gaps = np.diff(values[order]) > _SAME * np.abs(values).max(initial=0.0)
    found = np.zeros(values.size, int)
    found[order[1:]] = np.cumsum(gaps | (np.diff(kinds[order]) != 0))
    return found
