"""Dense Hessians of linear networks under the square loss, in NumPy: nothing is compiled."""

from typing import Any, TypeGuard

import jax
import numpy as np
from jaxtyping import Float

from thalweg._checks import is_traced
from thalweg.objective import AbstractObjective, Objective
from thalweg.validated.building import setting_of
from thalweg.validated.hessian import Chains, dense_hessian


def hessian_by_hand(objective: AbstractObjective, weights: Any) -> Float[np.ndarray, "p p"] | None:
    """The Hessian in closed form; None where there is none, or where JAX traces the weights."""
    if not is_of_linear_network(objective) or objective.problem.least_squares is None:
        return None
    layers = tuple(jax.tree.leaves(weights))
    if any(map(is_traced, layers)) or any(layer.dtype != np.float64 for layer in layers):
        return None
    setting = setting_of(objective)
    with np.errstate(over="ignore", invalid="ignore"):  # which is told of by the result
        chains = Chains(tuple(map(np.asarray, layers)), setting.readout, setting.loss)
        return dense_hessian(chains, setting.loss, setting.decay)


def is_of_linear_network(objective: AbstractObjective) -> TypeGuard[Objective]:
    """Whether the layers may be multiplied before they meet the data."""
    return isinstance(objective, Objective) and objective.network.linear is not None
