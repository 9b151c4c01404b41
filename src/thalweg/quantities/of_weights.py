"""Quantities that are functions of the weights, and so are measured along every trajectory."""

from collections.abc import Callable
from math import isnan

import jax.numpy as jnp

from thalweg import measurement
from thalweg._quantity import Measure, Quantity
from thalweg._typing import Scalar, Weights
from thalweg.objective import Objective
from thalweg.quantities import stacked

Function = Callable[[Weights], Scalar]

_UNMEASURED = "NaN where it was not measured"


def _of_networks(measure: Callable[[Objective], Function | stacked.Stacked | None]) -> Measure:
    """A measure that makes no sense for objectives that are no network on a problem."""
    return lambda objective: measure(objective) if isinstance(objective, Objective) else None


def _excess(objective: Objective) -> Function | None:
    linear, squares = objective.network.linear, objective.problem.least_squares
    least = measurement.least_loss(objective)
    if isnan(least) or linear is None or squares is None:
        return None
    # Without cancellation, where the network can come to the problem's own minimum.
    gap = least - float(squares.minimum)
    return lambda weights: squares.excess(linear.end_to_end(weights)) - gap


def _unbalancedness(objective: Objective) -> Function | None:
    network = objective.network
    return None if network.linear is None or network.depth == 1 else measurement.unbalancedness


def _norm_imbalance(objective: Objective) -> Function | None:
    network = objective.network
    if network.linear is not None or network.depth == 1:
        return None
    return lambda weights: jnp.max(jnp.abs(jnp.stack(measurement.conserved(network, weights))))


def _alignment(objective: Objective) -> Function | None:
    if objective.network.linear is None or objective.network.depth == 1:
        return None
    return lambda weights: jnp.min(measurement.alignment(weights))


def _accuracy(objective: Objective) -> Function | None:
    problem, accuracy = objective.problem, objective.problem.accuracy
    if accuracy is None:
        return None
    return lambda weights: accuracy(objective.network(weights, problem.inputs))


MEASURED = (
    Quantity(
        "excess",
        "loss above its minimum, which counts as 0 where unknown",
        symbol="$f - f^*$",
        formula="f(theta) - min f",
        measure=_of_networks(_excess),
        stacked=_of_networks(stacked.excess),
        logarithmic=True,
    ),
    Quantity(
        "unbalancedness",
        "largest nuclear norm of an imbalance of consecutive layers",
        symbol=r"max$_j$ $|W_{j+1}^T W_{j+1} - W_j W_j^T|_*$",
        formula="max_j |W_{j+1}^T W_{j+1} - W_j W_j^T|_nuclear",
        heading="imbalance of consecutive layers",
        caption="Zero where the layers are balanced; constant along every gradient flow.",
        measure=_of_networks(_unbalancedness),
        stacked=_of_networks(stacked.unbalancedness),
        logarithmic=True,
    ),
    Quantity(
        "norm_imbalance",
        "largest difference of the squared norms of consecutive layers",
        symbol=r"max$_j$ $||W_{j+1}|^2 - |W_j|^2|$",
        formula="max_j ||w_{j+1}|^2 - |w_j|^2|",
        heading="imbalance of consecutive layers",
        caption="Zero where the layers have equal norms; constant along every gradient flow.",
        measure=_of_networks(_norm_imbalance),
        logarithmic=True,
    ),
    Quantity(
        "alignment",
        "squared cosine of leading directions, least over consecutive layers",
        symbol=r"min$_k$ $\langle v_{k+1}, u_k \rangle^2$",
        formula="min_k <v_{k+1}, u_k>^2, u and v the top singular vectors",
        heading="alignment of consecutive layers, the weakest pair",
        limits=(0.0, 1.0),
        caption=(
            "Squared cosine between the leading output direction of a layer and the leading input "
            "direction of the next one, for the pair that agrees least; 1 where all layers pass on "
            "one direction."
        ),
        measure=_of_networks(_alignment),
        stacked=_of_networks(stacked.least_alignment),
    ),
    Quantity(
        "accuracy",
        "share of samples that are classified correctly",
        formula="mean_i [predicted class of sample i is its label]",
        heading="accuracy",
        label="accuracy",
        limits=(0.0, 1.0),
        caption="Share of the training samples that are classified correctly.",
        measure=_of_networks(_accuracy),
    ),
)
"""Measured at every record, each by its own function."""

SPECTRUM = (
    Quantity(
        "sharpness",
        "largest eigenvalue of the Hessian",
        symbol=r"$\lambda_{\max}$",
        formula="lambda_max(H(theta))",
        label="sharpness",
        comment=_UNMEASURED,
    ),
    Quantity("sharpness_error", "error bound of the largest eigenvalue", comment=_UNMEASURED),
    Quantity(
        "smallest_eigenvalue",
        "smallest eigenvalue of the Hessian",
        symbol=r"$\lambda_{\min}$",
        formula="lambda_min(H(theta))",
        label="smallest eigenvalue",
        comment=_UNMEASURED,
    ),
    Quantity(
        "smallest_eigenvalue_error",
        "error bound of the smallest eigenvalue",
        comment=_UNMEASURED,
    ),
)
"""Both ends of the spectrum, measured together and at fewer records where a network is large."""
