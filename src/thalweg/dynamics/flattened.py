"""An objective as a function of one long vector, evaluated at several points at once."""

from math import prod
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Float

from thalweg.objective import AbstractObjective
from thalweg.objective.points import at_points

Vector = Float[np.ndarray, " size"]
Rows = Float[np.ndarray, "points size"]


@final
class Flattened:
    """An objective, and a start that says how a vector is shaped into weights.

    Nothing is compiled for small linear networks.

    Attributes:
        objective: the objective.
        start: the start, as a vector.
    """

    def __init__(self, objective: AbstractObjective, start: Any):
        """Take the objective and one start."""
        leaves, self._structure = jax.tree.flatten(jax.tree.map(np.asarray, start))
        self._shapes = [leaf.shape for leaf in leaves]
        self.start = np.concatenate([leaf.ravel() for leaf in leaves]).astype(float)
        self.objective = objective

    def shaped(self, weights: Float[np.ndarray, "*points size"]) -> Any:
        """Vectors as weights."""
        ends = np.cumsum([prod(shape) for shape in self._shapes])[:-1]
        parts = np.split(weights, ends, axis=-1)
        batch = weights.shape[:-1]
        return self._structure.unflatten(
            part.reshape(batch + shape) for part, shape in zip(parts, self._shapes, strict=True)
        )

    def values_and_gradients(self, points: Rows) -> tuple[Float[np.ndarray, " points"], Rows]:
        """The objective and its gradient at some points."""
        if self.objective.on_host:
            values, gradients = zip(*map(self._on_host, points), strict=True)
            return np.array(values), np.stack(gradients)
        values, gradients = at_points(_value_and_gradient, self.objective, self.shaped(points))
        leaves = [np.asarray(leaf).reshape(len(points), -1) for leaf in jax.tree.leaves(gradients)]
        return np.asarray(values), np.concatenate(leaves, axis=1)

    def gradients(self, points: Rows) -> Rows:
        """The gradient at some points."""
        return self.values_and_gradients(points)[1]

    def _on_host(self, point: Vector) -> tuple[float, Vector]:
        value, gradient = self.objective.value_and_gradient(self.shaped(point))
        leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(gradient)]
        return float(value), np.concatenate(leaves)


def _value_and_gradient(objective: AbstractObjective, weights: Any) -> tuple[Any, Any]:
    return objective.value_and_gradient(weights)
