"""What is measured at every record of a motion besides its curvature, and what theory says of it.

Each function gives arrays by name; what makes no sense for a network or a loss is left out.
"""

from collections.abc import Callable
from math import isnan
from typing import Any

import jax.numpy as jnp
import numpy as np

from thalweg import measurement
from thalweg._checks import InputError
from thalweg._typing import Scalar, Weights
from thalweg.curvature.minimisers import (
    balanced_sharpness,
    least_sharpness,
    minimiser_sharpness_bounds,
)
from thalweg.dynamics import AbstractTrajectory
from thalweg.objective import Objective
from thalweg.problem.base import Outputs
from thalweg.storage.keeper import Arrays

_FLATNESS: tuple[str, ...] = (
    "paper_sharpness_bound", "stronger_sharpness_bound", "balanced_sharpness", "least_sharpness",
)  # fmt: skip


def along(motion: AbstractTrajectory) -> Arrays:
    """Excess loss, balance, alignment and accuracy at every record."""
    objective = motion.objective
    functions: dict[str, Any] = {"imbalance": _imbalance(objective)}
    if objective.network.linear is not None and objective.network.depth > 1:
        functions["alignment"] = _weakest_alignment
    if not isnan(measurement.least_loss(objective)):
        functions["excess"] = _excess(objective)
    if objective.problem.accuracy is not None:
        functions["accuracy"] = _accuracy(objective, objective.problem.accuracy)

    def everything(weights: Weights) -> dict[str, Scalar]:
        return {name: function(weights) for name, function in functions.items()}

    found = measurement.along(motion, everything)
    # A motion that diverged has no direction that its layers could agree on.
    broken = ~np.isfinite(motion.loss)
    found = {name: np.where(broken, np.nan, values) for name, values in found.items()}
    return {"excess": np.where(broken, np.nan, motion.loss)} | found


def theory(objective: Objective) -> dict[str, float]:
    """How flat a minimiser can be, where that is known: one output, square loss, no decay."""
    found = dict.fromkeys(_FLATNESS, float("nan"))
    try:
        bounds = minimiser_sharpness_bounds(objective)
        found["paper_sharpness_bound"] = float(bounds.paper)
        found["stronger_sharpness_bound"] = float(bounds.stronger)
        found["balanced_sharpness"] = float(balanced_sharpness(objective))
        found["least_sharpness"] = float(least_sharpness(objective).sharpness)
    except InputError:
        pass  # nothing is known, or no more than this
    return found


def _imbalance(objective: Objective) -> Any:
    """The largest size of what the flow keeps constant: zero where the layers are balanced."""

    def largest(weights: Weights) -> Scalar:
        if objective.network.linear is not None:
            return measurement.unbalancedness(weights)
        parts = measurement.conserved(objective.network, weights)
        return jnp.max(jnp.abs(jnp.stack(parts))) if parts else jnp.zeros(())

    return largest


def _weakest_alignment(weights: Weights) -> Scalar:
    return jnp.min(measurement.alignment(weights))


def _excess(objective: Objective) -> Any:
    network, problem = objective.network.linear, objective.problem.least_squares
    assert network is not None  # or the least loss would not be known
    assert problem is not None
    # Without cancellation, where the network can come to the problem's own minimum.
    gap = measurement.least_loss(objective) - float(problem.minimum)
    return lambda weights: problem.excess(network.end_to_end(weights)) - gap


def _accuracy(objective: Objective, accuracy: Callable[[Outputs], Scalar]) -> Any:
    inputs = objective.problem.inputs
    return lambda weights: accuracy(objective.network(weights, inputs))
