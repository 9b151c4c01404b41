"""The quantities of linear networks at many points at once, in NumPy.

A trajectory has its points stacked, layers of shape (points, outputs, inputs). What `measurement`
says of one network in JAX, which sweeps trace, is said here of all of them without compiling
anything; the tests hold one against the other. What overflows is NaN.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isnan

import numpy as np
from jaxtyping import Float

from thalweg.measurement import least_loss
from thalweg.objective import Objective

Layers = Sequence[Float[np.ndarray, "points _ _"]]
Values = Float[np.ndarray, " points"]
Stacked = Callable[[Layers], Values]


def excess(objective: Objective) -> Stacked | None:
    """The loss above its minimum; without cancellation where that is the problem's own."""
    network, squares = objective.network.linear, objective.problem.least_squares
    least = least_loss(objective)
    if isnan(least) or network is None or squares is None:
        return None
    factor, target = (np.asarray(each, float) for each in (squares.input_factor, squares.fitted))
    gap, scale = least - float(squares.minimum), float(squares.scale)
    last = () if network.readout is None else (np.asarray(network.readout, float).T,)

    def measured(layers: Layers) -> Values:
        *others, product = (*layers, *last)
        for layer in reversed(others):
            product = product @ layer
        return scale * np.sum((product @ factor.T - target.T) ** 2, axis=(1, 2)) - gap

    return measured


def unbalancedness(objective: Objective) -> Stacked | None:
    """The largest nuclear norm of an imbalance W_{j+1}^T W_{j+1} - W_j W_j^T."""

    def measured(layers: Layers) -> Values:
        pairs = pairwise(layers)
        gaps = [_turned(upper) @ upper - lower @ _turned(lower) for lower, upper in pairs]
        return np.max([np.sum(_singular(gap)[1], axis=1) for gap in gaps], axis=0)

    return measured if _has_pairs(objective) else None


def least_alignment(objective: Objective) -> Stacked | None:
    """The least <v_{k+1}, u_k>^2 of consecutive layers."""

    def measured(layers: Layers) -> Values:
        parts = [_singular(layer) for layer in layers]
        pairs = pairwise(parts)
        cosines = [np.sum(upper[2][:, 0] * lower[0][..., 0], axis=1) for lower, upper in pairs]
        return np.min(np.square(cosines), axis=0)

    return measured if _has_pairs(objective) else None


def _has_pairs(objective: Objective) -> bool:
    return objective.network.linear is not None and objective.network.depth > 1


def _turned(layer: Float[np.ndarray, "points _ _"]) -> Float[np.ndarray, "points _ _"]:
    return np.swapaxes(layer, 1, 2)


def _singular(matrices: Float[np.ndarray, "points _ _"]) -> tuple[np.ndarray, ...]:
    """U, s and V^T of each; NaN where it is not finite, of which LAPACK would make an error."""
    known = np.all(np.isfinite(matrices), axis=(1, 2))
    parts = np.linalg.svd(np.where(known[:, None, None], matrices, 0.0), full_matrices=False)
    return tuple(
        np.where(known.reshape(-1, *[1] * (each.ndim - 1)), each, np.nan) for each in parts
    )
