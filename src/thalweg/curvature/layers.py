"""The Hessian layer by layer: the blocks of it that belong to one layer's weights each.

For weights theta = (theta_1, ..., theta_L) in layers the blocks on the diagonal are

    H_ll = d^2 f / d theta_l d theta_l,

symmetric operators by themselves: their ends, densities and spectra are found as those of H are.
By Cauchy's interlacing the ends of each lie between those of H.
"""

from collections.abc import Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import finite_weights
from thalweg._typing import AnyWeights
from thalweg.curvature.operators import AbstractSymmetricOperator, Vector
from thalweg.curvature.spectrum import Extremes, extreme_eigenvalues
from thalweg.objective import AbstractObjective

By = Literal["layer", "leaf"]


class LayerOperator(AbstractSymmetricOperator):
    """One block on the Hessian's diagonal, that of some of the leaves of the weights."""

    objective: AbstractObjective
    weights: AnyWeights
    leaves: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, objective: AbstractObjective, weights: AnyWeights, leaves: tuple[int, ...]):
        """Take what is differentiated twice, where, and the numbers of the block's leaves."""
        self.objective, self.weights, self.leaves = objective, weights, leaves

    @property
    def size(self) -> int:
        """How many weights the block has."""
        return sum(int(np.size(leaf)) for leaf in self._own(self.weights))

    @override
    def __call__(self, vector: Vector) -> Vector:
        arrays, structure = jax.tree.flatten(self.weights)
        direction = [jnp.zeros(array.shape, array.dtype) for array in arrays]
        for place, part in zip(self.leaves, self.shaped(vector), strict=True):
            direction[place] = part
        image = self.objective.hvp(self.weights, structure.unflatten(direction))
        return jnp.concatenate([jnp.ravel(part) for part in self._own(image)])

    @property
    @override
    def traceable(self) -> bool:
        return not self.objective.on_host

    @property
    @override
    def surely_symmetric(self) -> bool:
        return True

    @override
    def shaped(self, vector: Vector) -> tuple[Any, ...]:
        """A vector as the arrays of this block's leaves."""
        own, parts, first = self._own(self.weights), [], 0
        for leaf in own:
            part = vector[first : first + leaf.size]
            parts.append(part.reshape(leaf.shape).astype(leaf.dtype))
            first += leaf.size
        return tuple(parts)

    def _own(self, weights: AnyWeights) -> list[Any]:
        arrays = jax.tree.leaves(weights)
        return [arrays[place] for place in self.leaves]


@checked
def layer_operators(
    objective: AbstractObjective, weights: AnyWeights, by: By = "layer"
) -> dict[str, LayerOperator]:
    """The blocks on the Hessian's diagonal by name, each to be given to whatever takes operators.

    Args:
        objective: what is differentiated twice.
        weights: where.
        by: "layer" puts leaves together that differ in the last part of their names alone, such as
            a layer's matrix and bias; "leaf" takes each array by itself.
    """
    point = finite_weights(weights)
    objective.try_out(point)
    groups: dict[str, list[int]] = {}
    for place, (path, _) in enumerate(jax.tree.leaves_with_path(point)):
        groups.setdefault(_name(path, by), []).append(place)
    return {name: LayerOperator(objective, point, tuple(own)) for name, own in groups.items()}


@checked
def layer_spectra(
    objective: AbstractObjective,
    weights: AnyWeights,
    k: int = 1,
    *,
    by: By = "layer",
    tolerance: float = 1e-6,
    start: Mapping[str, Extremes] | None = None,
) -> dict[str, Extremes]:
    """Both ends of the spectrum of each block on the Hessian's diagonal, by the layer's name.

    Args:
        objective: what is differentiated twice.
        weights: where.
        k: how many at each end; all of a layer that has fewer weights.
        by: "layer" or "leaf", see `layer_operators`.
        tolerance: the error that is asked for, as a part of the block's spectral norm.
        start: what was found at a nearby point.
    """
    return {
        name: extreme_eigenvalues(
            block,
            k=min(k, block.size),
            tolerance=tolerance,
            start=None if start is None else start.get(name),
        )
        for name, block in layer_operators(objective, weights, by).items()
    }


def _name(path: tuple[Any, ...], by: By) -> str:
    """Of a leaf, or of its layer: keys joined by dots."""
    keys = [
        str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path
    ]
    if len(keys) > 1 and keys[-1] in ("value", "raw_value"):  # of a variable of Flax
        keys = keys[:-1]
    keys = ".".join(keys).split(".")  # names may have dots of their own
    return ".".join(keys[:-1] if by == "layer" and len(keys) > 1 else keys) or "weights"
