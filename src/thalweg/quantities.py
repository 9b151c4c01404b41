"""Every quantity that runs and sweeps store: its name, its symbol, what it is, and its codes.

Stores carry them as attributes after the CF conventions, so that other tools can label an axis and
decode a flag. All quantities are pure numbers: weights and losses have no units of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import xarray as xr

__all__ = [
    "NEVER",
    "NO_RUN",
    "PHASES",
    "QUANTITIES",
    "TOO_FEW_RECORDS",
    "Quantity",
    "attributes_of",
    "described",
    "stored_as",
]


def __dir__() -> list[str]:
    return __all__


NEVER = -1
"""What `diverged_at` is where the loss stayed finite."""

NO_RUN = -1
"""What `phase` is where a grid has no run."""

TOO_FEW_RECORDS = -2
"""What `phase` is where a run has too few records to say."""

PHASES = {
    0: "converged monotonically",
    1: "converged through a catapult",
    2: "at the edge of stability",
    3: "oscillating",
    4: "diverged",
    5: "stuck at a saddle",
    6: "still descending",
}
"""What becomes of a run, by the codes of `phases.Phase`."""


@dataclass(frozen=True)
class Quantity:
    """One thing that is stored.

    Attributes:
        name: the variable.
        symbol: as figures write it; empty where there is none.
        long_name: what it is.
        missing: the value where a grid has no run.
        dtype: how it is stored.
        flags: what some of its values mean.
        comment: what else must be known.
    """

    name: str
    symbol: str
    long_name: str
    missing: float | int = nan
    dtype: str = "float64"
    flags: Mapping[int, str] = field(default_factory=dict)
    comment: str = ""

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of a variable that holds it."""
        found: dict[str, Any] = {"long_name": self.long_name, "units": "1"}
        if self.flags:
            found["flag_values"] = list(self.flags)
            found["flag_meanings"] = " ".join(w.replace(" ", "_") for w in self.flags.values())
        return found | ({"comment": self.comment} if self.comment else {})


_LARGEST, _SMALLEST = r"$\lambda_{\max}$", r"$\lambda_{\min}$"
_UNMEASURED = "NaN where it was not measured"
_UNKNOWN = "NaN where it is not known"

_BASIC = [
    Quantity("learning_rate", r"$\eta$", "learning rate"),
    Quantity("step", "$k$", "step of gradient descent"),
    Quantity("time", "$t$", "time, which is learning rate times step"),
    Quantity("flow_time", "$t$", "time along the gradient flow"),
    Quantity("loss", "$f$", "loss"),
    Quantity("minimum", r"$f^*$", "least loss that the network can have", comment=_UNKNOWN),
    Quantity(
        "diverged_at",
        "",
        "first step at which the loss is not finite",
        missing=-2,
        dtype="int64",
        flags={-2: "no run", NEVER: "never diverged"},
    ),
    Quantity(
        "phase",
        "",
        "what became of the run",
        missing=NO_RUN,
        dtype="int8",
        flags={TOO_FEW_RECORDS: "too few records", NO_RUN: "no run", **PHASES},
    ),
]

_ALONG = [
    Quantity("excess", "$f - f^*$", "loss above its minimum, which counts as 0 where unknown"),
    Quantity("imbalance", "", "largest imbalance of consecutive layers"),
    Quantity("alignment", "", "squared cosine of leading directions, least over the layers"),
    Quantity("accuracy", "", "share of samples that are classified correctly"),
    Quantity("sharpness", _LARGEST, "largest eigenvalue of the Hessian", comment=_UNMEASURED),
    Quantity("sharpness_error", "", "error bound of the largest eigenvalue", comment=_UNMEASURED),
    Quantity(
        "smallest_eigenvalue", _SMALLEST, "smallest eigenvalue of the Hessian", comment=_UNMEASURED
    ),
    Quantity(
        "smallest_eigenvalue_error", "", "error bound of the smallest eigenvalue",
        comment=_UNMEASURED,
    ),
]  # fmt: skip

_NEXT_TO_THE_FLOW = [
    Quantity("distance", "", "Euclidean distance from descent to the gradient flow"),
    Quantity("distance_lower", "", "proven lower bound of the distance to the exact flow"),
    Quantity("distance_upper", "", "proven upper bound of the distance to the exact flow"),
    Quantity("flow_loss", "$f$", "loss of the gradient flow"),
    Quantity("flow_loss_lower", "", "proven lower bound of the loss of the exact flow"),
    Quantity("flow_loss_upper", "", "proven upper bound of the loss of the exact flow"),
    Quantity("flow_error", "", "estimated error of the weights of the computed flow"),
    Quantity("proven_until", "", "last recorded time at which the distance is bounded"),
    Quantity(
        "proven_forever", "", "proven bound of the distance at all later times",
        comment="NaN where nothing is proven",
    ),
]  # fmt: skip

_THEORY = [
    Quantity("greatest_sharpness", "", "sharpness that the minimiser found cannot exceed"),
    Quantity("least_sharpness", "", "sharpness of the flattest minimiser"),
    Quantity("balanced_sharpness", "", "sharpness of the balanced minimisers"),
    Quantity("paper_sharpness_bound", "", "lower bound of a minimiser's sharpness, marion2024"),
    Quantity("stronger_sharpness_bound", "", "lower bound of a minimiser's sharpness"),
]

_OF_A_SWEEP = [
    Quantity("last_step", "", "number of steps taken", comment="NaN where there is no run"),
    Quantity("final_loss", "", "loss after the last step"),
    Quantity("excess_loss", "", "loss above its minimum after the last step", comment=_UNKNOWN),
    Quantity(
        "squared_distance", "", "squared Frobenius distance of the product from the minimiser",
        comment=_UNKNOWN,
    ),
    Quantity("largest_sharpness", "", "largest sharpness measured during the run"),
    Quantity("lowest_eigenvalue", "", "smallest Hessian eigenvalue measured during the run"),
]  # fmt: skip


def _variant(quantity: Quantity, prefix: str, where: str) -> Quantity:
    return Quantity(
        f"{prefix}_{quantity.name}",
        quantity.symbol,
        f"{quantity.long_name}, {where}",
        comment=quantity.comment,
    )


_SPECTRUM = [each for each in _ALONG if "sharpness" in each.name or "eigenvalue" in each.name]

QUANTITIES: dict[str, Quantity] = {
    each.name: each
    for each in [
        *_BASIC,
        *_ALONG,
        *(_variant(each, "flow", "along the gradient flow") for each in _ALONG),
        *_NEXT_TO_THE_FLOW,
        *_THEORY,
        *_OF_A_SWEEP,
        *(_variant(each, "initial", "before the first step") for each in _SPECTRUM),
        *(_variant(each, "final", "after the last step") for each in _SPECTRUM),
    ]
}
"""All of them, by name."""


def described(results: xr.Dataset) -> xr.Dataset:
    """The dataset, with attributes on every variable that is a quantity of the table."""
    found = results.copy()
    for name, variable in found.variables.items():
        variable.attrs = {**attributes_of(str(name)), **variable.attrs}
    return found


def stored_as(name: str) -> Quantity:
    """How a variable is stored: as the table says, or as plain numbers if it is not in it."""
    return QUANTITIES.get(name, Quantity(name, "", ""))


def attributes_of(name: str) -> dict[str, Any]:
    """The attributes of a variable; none for one that is not in the table."""
    return QUANTITIES[name].attrs if name in QUANTITIES else {}
