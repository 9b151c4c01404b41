"""All quantities by name, and what is done with every one of them."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import xarray as xr

from thalweg import measurement
from thalweg._arguments import checked
from thalweg._errors import InputError
from thalweg._quantity import QUANTITIES, Quantity, attributes_of
from thalweg._threads import one_blas_thread
from thalweg._typing import Scalar, Weights
from thalweg.dynamics.trajectory import AbstractTrajectory
from thalweg.objective import AbstractObjective, Objective
from thalweg.quantities.of_runs import (
    ACROSS_KINKS,
    AT_THE_EDGE,
    BASIC,
    NEXT_TO_THE_FLOW,
    OF_A_SWEEP,
    THEORY,
)
from thalweg.quantities.of_weights import MEASURED, SPECTRUM


def _with_variants(quantity: Quantity) -> tuple[Quantity, ...]:
    """A quantity of the weights along descent, along the flow, and at both ends of a run."""
    return (
        quantity,
        quantity.variant("flow", "along the gradient flow"),
        quantity.variant("initial", "before the first step"),
        quantity.variant("final", "after the last step"),
    )


QUANTITIES.update(
    (each.name, each)
    for each in (
        *BASIC,
        *(variant for each in (*MEASURED, *SPECTRUM) for variant in _with_variants(each)),
        *NEXT_TO_THE_FLOW,
        *ACROSS_KINKS,
        *AT_THE_EDGE,
        *THEORY,
        *OF_A_SWEEP,
    )
)

_OWN: set[str] = set()
"""The names that users have registered."""

_RESERVED = ("overview", "record")
"""A picture that every report has, and a dimension of all results."""


@checked
def register(quantity: Quantity) -> Quantity:
    """Add a quantity, which from now on is measured, stored, drawn and explained like all others.

    In this process: on a cluster, workers must register it, too.
    """
    if quantity.measure is None:
        raise InputError(
            f"`measure` must be given for {quantity.name}: a function that takes the objective and "
            "gives a function of the weights, or None where the quantity makes no sense."
        )
    used = {*QUANTITIES, *_RESERVED}
    taken = [each.name for each in _with_variants(quantity) if each.name in used]
    if taken:
        raise InputError(
            f"`name` must be new, got {quantity.name!r}, but there is {taken[0]!r} already; "
            "`forget` takes one back that was registered."
        )
    for each in _with_variants(quantity):
        QUANTITIES[each.name] = each
    _OWN.add(quantity.name)
    return quantity


@checked
def forget(name: str) -> None:
    """Take back a quantity that was registered."""
    if name not in _OWN:
        known = ", ".join(sorted(_OWN)) or "none"
        raise InputError(f"`name` must be that of a registered quantity ({known}), got {name!r}.")
    for each in _with_variants(QUANTITIES[name]):
        del QUANTITIES[each.name]
    _OWN.remove(name)


def registered() -> tuple[Quantity, ...]:
    """Those that users have registered, in the order of their names."""
    return tuple(QUANTITIES[name] for name in sorted(_OWN))


def measures(
    objective: AbstractObjective, kind: Literal["measure", "stacked"] = "measure"
) -> dict[str, Callable[[Weights], Scalar]]:
    """The functions of the weights that make sense for an objective, by name.

    All are of networks on problems; of other objectives nothing is known to measure.
    """
    if not isinstance(objective, Objective):
        return {}
    makers = {name: getattr(each, kind) for name, each in QUANTITIES.items()}
    found = {name: make(objective) for name, make in makers.items() if make is not None}
    return {name: function for name, function in found.items() if function is not None}


def along(trajectory: AbstractTrajectory) -> dict[str, np.ndarray]:
    """Every quantity of the weights at every record; NaN where the loss is not finite."""
    found, many = {"excess": trajectory.loss}, measures(trajectory.objective, "stacked")
    if many:
        found |= _at_once(trajectory, many)
    functions = measures(trajectory.objective)
    functions = {name: each for name, each in functions.items() if name not in many}

    def everything(weights: Weights) -> dict[str, Any]:  # their shapes are looked at below
        return {name: function(weights) for name, function in functions.items()}

    if functions:
        found |= measurement.along(trajectory, everything)
    return {name: where_finite(name, values, trajectory.loss) for name, values in found.items()}


def _at_once(
    trajectory: AbstractTrajectory, functions: Mapping[str, Callable[..., Any]]
) -> dict[str, np.ndarray]:
    """What is measured at all points together, in NumPy."""
    lead = trajectory.times.shape
    layers = [np.reshape(each, (-1, *each.shape[len(lead) :])) for each in trajectory.weights]
    with np.errstate(over="ignore", invalid="ignore"), one_blas_thread():  # where a run diverges
        return {name: each(layers).reshape(lead) for name, each in functions.items()}


def where_finite(name: str, values: Any, loss: np.ndarray) -> np.ndarray:
    """The values of a quantity, one for each loss; NaN where that is not finite.

    A run that diverged has no direction that its layers could agree on.
    """
    if values.shape != loss.shape:
        raise InputError(
            f"The quantity {name!r} must be one number for each network, got shape "
            f"{values.shape[loss.ndim :]}; take a norm, a sum or an extreme."
        )
    return np.where(np.isfinite(loss), np.asarray(values), np.nan)


def described(results: xr.Dataset) -> xr.Dataset:
    """The dataset, with attributes on every variable that is a quantity of the registry."""
    found = results.copy()
    for name, variable in found.variables.items():
        variable.attrs = {**attributes_of(str(name)), **variable.attrs}
    return found
