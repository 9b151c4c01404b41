"""Where runs start: one point, or a batch of them."""

from typing import NamedTuple

import jax
import numpy as np

from thalweg._checks import InputError, finite_weights
from thalweg._typing import AnyWeights
from thalweg.objective import AbstractObjective


class Starts(NamedTuple):
    """One start or several.

    Attributes:
        batch: the batch axes.
        shapes: those of one start's arrays, in the order of the leaves.
        points: the weights as finite NumPy arrays, each with the batch axes first.
    """

    batch: tuple[int, ...]
    shapes: list[tuple[int, ...]]
    points: AnyWeights

    def broadcast(self, batch: tuple[int, ...]) -> AnyWeights:
        """The points with these batch axes, which theirs fit."""
        arrays, structure = jax.tree.flatten(self.points)
        return structure.unflatten(
            np.broadcast_to(array, (*batch, *shape))
            for array, shape in zip(arrays, self.shapes, strict=True)
        )


def starts_of(objective: AbstractObjective, weights: AnyWeights) -> Starts:
    """The weights, taken apart into batch axes and what one start has."""
    points = jax.tree.map(np.asarray, finite_weights(weights))
    objective.check(points)
    points = objective.as_precise(points)
    arrays, structure = jax.tree.flatten(points)
    if objective.shapes is None:  # then there is one start, whatever its shapes are
        objective.try_out(points)
        return Starts((), [array.shape for array in arrays], points)
    shapes = structure.flatten_up_to(objective.shapes)
    batches = {
        array.shape[: array.ndim - len(shape)] for array, shape in zip(arrays, shapes, strict=True)
    }
    if len(batches) > 1:
        raise InputError(
            f"`weights` must have the same batch axes in every array, got {sorted(batches)}."
        )
    batch = batches.pop()
    if 0 not in batch:
        objective.try_out(jax.tree.map(lambda array: array[(0,) * len(batch)], points))
    return Starts(batch, shapes, points)
