"""Quantities that belong to a run, to a pair of run and flow, to a setting or to a sweep."""

from typing import Any

from thalweg._quantity import NEVER, NO_RUN, Quantity
from thalweg.phases import PHASE

_UNKNOWN = "NaN where it is not known"

BASIC = (
    Quantity("learning_rate", "learning rate", r"$\eta$"),
    Quantity("step", "step of gradient descent", "$k$"),
    Quantity("time", "time, which is learning rate times step", "$t$", formula="t = eta k"),
    Quantity("flow_time", "time along the gradient flow", "$t$"),
    Quantity("loss", "loss", "$f$", formula="f(theta)", logarithmic=True),
    Quantity("minimum", "least loss that the network can have", r"$f^*$", comment=_UNKNOWN),
    Quantity(
        "edge",
        "sharpness above which descent is unstable",
        comment="2 / learning rate for plain descent; NaN where the optimiser declares none",
    ),
    Quantity(
        "balance_defect",
        "how far steps are from the law of imbalances of descent, in units of rounding",
        comment="of linear networks that kernels descend; NaN elsewhere; above 64 digits are lost",
    ),
    Quantity(
        "diverged_at",
        "first step at which the loss is not finite",
        missing=NO_RUN,
        dtype="int64",
        flags={NO_RUN: "no run", NEVER: "never diverged"},
    ),
    PHASE,
)

NEXT_TO_THE_FLOW = (
    Quantity(
        "distance",
        "Euclidean distance from descent to the gradient flow",
        r"$|\theta_{\eta}(t) - \theta(t)|$",
        formula="|theta_k - theta(eta k)|",
        label="distance",
        logarithmic=True,
    ),
    Quantity("distance_lower", "proven lower bound of the distance to the exact flow"),
    Quantity("distance_upper", "proven upper bound of the distance to the exact flow"),
    Quantity("flow_loss", "loss of the gradient flow", "$f$"),
    Quantity("flow_loss_lower", "proven lower bound of the loss of the exact flow"),
    Quantity("flow_loss_upper", "proven upper bound of the loss of the exact flow"),
    Quantity(
        "flow_error",
        "error of the weights of the computed flow",
        comment="proven where the attribute flow_solver is `validated`, else estimated",
    ),
    Quantity("proven_until", "last recorded time at which the distance is bounded"),
    Quantity(
        "proven_forever",
        "proven bound of the distance at all later times",
        comment="NaN where nothing is proven",
    ),
)

ACROSS_KINKS = (
    Quantity(
        "flow_crossings",
        "kinks that the gradient flow has crossed, each time counted",
        heading="Kinks that the flow has crossed",
        label="crossings so far",
        caption="How often a pre-activation of some unit on some sample has changed its sign along "
        "the flow; the gradient jumps there.",
    ),
    Quantity(
        "flow_sliding",
        "kinks along which the gradient flow slides",
        heading="Kinks along which the flow slides",
        label="pairs of sample and unit",
        caption="For how many pairs of a unit and a sample the flow holds the pre-activation at "
        "zero, because it is pushed there from both sides; descent jumps from one side to the "
        "other instead.",
    ),
    Quantity(
        "flow_ridge_distance",
        "least distance from the gradient flow to a repelling kink since the record before",
        heading="Distance from the flow to repelling kinks",
        label="distance",
        caption="Least distance, in weight space, to a repelling kink since the record before. The "
        "flow leaves such a kink on both sides: where the error is larger, the exact flow may have "
        "passed on the other side.",
        logarithmic=True,
        comment="infinite where it met none",
    ),
    Quantity(
        "branch_uncertain_from",
        "time from which on the flow may have passed a repelling kink on the wrong side",
        comment="NaN where it has not",
    ),
)
"""Of flows that know what kinks they meet."""

AT_THE_EDGE = (
    Quantity(
        "central_loss",
        "mean loss over the oscillation, predicted by the central flow",
        comment="NaN where the central flow predicts nothing",
    ),
    Quantity(
        "central_spread",
        "standard deviation of the oscillation, predicted by the central flow",
        formula="|x|",
        comment="NaN where the central flow predicts nothing",
    ),
    Quantity(
        "central_swing",
        "signed distance of descent from the central flow along the oscillation",
        formula="<theta_k - c, x> / |x|",
        heading="Oscillation around the central flow",
        caption="Each dot is a step of descent: how far it is from the centre, to one side or the "
        "other, along the oscillation that the central flow predicts. The band is the predicted "
        "standard deviation.",
        comment="NaN where the central flow predicts nothing",
    ),
    Quantity(
        "central_distance",
        "distance of descent from where the central flow predicts it",
        formula="|theta_k - c - (-1)^k x|",
        comment="NaN where the central flow predicts nothing",
    ),
)
"""Of runs at the edge of stability; only where there is such a run."""


def edges(results: Any) -> Any:
    """The edge of every learning rate; of results that did not keep it, that of plain descent."""
    return results.edge if "edge" in results else 2 / results.learning_rate


def stability(results: Any) -> float:
    """What learning rate x sharpness must be below for descent to be stable; NaN: not known."""
    return float((edges(results) * results.learning_rate).values.flat[0])


def is_validated(results: Any) -> bool:
    """Whether the error of the flow in a dataset is proven, and with it every distance."""
    return "flow_error" in results and results.attrs.get("flow_solver") == "validated"


FLATNESS = (
    Quantity("least_sharpness", "sharpness of the flattest minimiser"),
    Quantity("balanced_sharpness", "sharpness of the balanced minimisers"),
    Quantity(
        "paper_sharpness_bound",
        "lower bound of a minimiser's sharpness, by marion2024",
    ),
    Quantity("sharper_sharpness_bound", "sharper lower bound of a minimiser's sharpness"),
)

THEORY = (
    Quantity("greatest_sharpness", "sharpness that the minimiser found cannot exceed"),
    *FLATNESS,
)

OF_A_SWEEP = (
    Quantity("last_step", "number of steps taken", comment="NaN where there is no run"),
    Quantity("final_loss", "loss after the last step"),
    Quantity(
        "squared_distance",
        "squared Frobenius distance of the product from the minimiser",
        formula="|W_N ... W_1 - M*|_F^2",
        comment=_UNKNOWN,
    ),
    Quantity("largest_sharpness", "largest sharpness measured during the run"),
    Quantity("lowest_eigenvalue", "smallest Hessian eigenvalue measured during the run"),
)
