"""An objective as a proof file describes it: its numbers, exactly."""

from functools import singledispatch
from typing import Any

import numpy as np

from thalweg._checks import InputError
from thalweg._typing import Weights
from thalweg.objective import Objective
from thalweg.problem import AbstractLeastSquares, AbstractProblem, Classification, TargetMatrix
from thalweg.problem.label_losses import CrossEntropy


def described(objective: Objective) -> dict[str, Any]:
    """The part of a file that says what flows."""
    network = objective.network.linear
    if network is None:
        raise InputError(
            "`prove` is for linear networks, whose loss is smooth, got "
            f"{type(objective.network).__name__}."
        )
    return {
        "network": {
            "widths": list(network.widths),
            "readout": None if network.readout is None else _rows(network.readout),
        },
        "loss": described_loss(objective.problem),
        "weight_decay": float(objective.weight_decay).hex(),
    }


@singledispatch
def described_loss(problem: AbstractProblem) -> dict[str, Any]:
    """A problem's part of a file; the checker knows these losses and no others."""
    raise InputError(
        "`prove` is for the square loss, Regression or TargetMatrix, and for cross-entropy, got "
        f"{type(problem).__name__}; `flow` with `validate` also takes other losses."
    )


@described_loss.register
def _(problem: AbstractLeastSquares) -> dict[str, Any]:
    return {
        "kind": "regression",
        "inputs": _rows(problem.inputs),
        "targets": _rows(problem.targets),
        "scale": float(problem.scale).hex(),
    }


@described_loss.register
def _(problem: TargetMatrix) -> dict[str, Any]:  # whose samples are no doubles
    return {"kind": "target", "target": _rows(problem.minimiser)}


@described_loss.register
def _(problem: Classification) -> dict[str, Any]:
    # What derives from a loss is another loss.
    if type(problem) is not Classification or type(problem.loss) is not CrossEntropy:
        raise InputError(
            "`prove` is for the square loss and for cross-entropy, got the loss "
            f"{problem.loss_name}; `flow` with `validate` also takes other losses."
        )
    return {
        "kind": "cross-entropy",
        "inputs": _rows(problem.inputs),
        "labels": [int(label) for label in np.asarray(problem.labels)],
    }


def flat(weights: Weights) -> list[float]:
    """All weights, layers in order and each of them by rows."""
    return np.concatenate([np.asarray(array, float).ravel() for array in weights]).tolist()


def hexadecimal(numbers: list[float]) -> list[str]:
    """Numbers as a file spells them."""
    return [float(number).hex() for number in numbers]


def _rows(matrix: Any) -> list[list[str]]:
    return [hexadecimal(row) for row in np.asarray(matrix, float).tolist()]
