"""From an objective to what the validated flow needs of it, in plain double precision.

A loss is found as a power series by its type, in a table to which anybody may add (`loss_series`,
and `label_series` for the losses of labels): a series is arithmetic in NumPy with bounds on every
remainder, of which the problems, in a layer below, need not know. Whoever writes a loss may leave
it out; then its flow is integrated, and not validated.
"""

from functools import singledispatch

import numpy as np

from thalweg._checks import InputError
from thalweg.objective import AbstractObjective, Objective
from thalweg.problem import (
    AbstractLabelLoss,
    AbstractLeastSquares,
    AbstractProblem,
    Classification,
    TargetMatrix,
)
from thalweg.problem.base import units
from thalweg.problem.label_losses import CrossEntropy, Exponential, Logistic
from thalweg.validated.curve import Setting
from thalweg.validated.losses import AbstractLossSeries, SquareSeries
from thalweg.validated.probabilities import CrossEntropySeries, ExponentialSeries, LogisticSeries

_DENSE = 600  # weights up to which eigenvalues are computed from dense Hessians


def setting_of(objective: Objective, dense: bool | None = None) -> Setting:
    """The setting of a linear network's objective; by its size, dense or by norms."""
    network = objective.network.linear
    if network is None:
        raise InputError(
            "A flow can be validated for linear networks, got "
            f"{type(objective.network).__name__}; leave `validate` out for an estimate of its "
            "error."
        )
    readout = np.eye(network.outputs) if network.readout is None else np.asarray(network.readout)
    small = network.size <= _DENSE
    return Setting(
        readout.astype(float),
        loss_series(objective.problem),
        float(objective.weight_decay),
        small if dense is None else dense,
        extended=small,  # NumPy multiplies such matrices a hundred times as slowly
    )


def can_validate(objective: AbstractObjective) -> bool:
    """Whether a flow of this objective can be validated."""
    if not isinstance(objective, Objective):
        return False
    try:
        setting_of(objective)
    except InputError:
        return False
    return True


@singledispatch
def loss_series(problem: AbstractProblem) -> AbstractLossSeries:
    """A problem as a power series; that of a new one is registered for its type."""
    raise _no_series(problem, "loss_series")


@singledispatch
def label_series(loss: AbstractLabelLoss, problem: Classification) -> AbstractLossSeries:
    """A loss of labels on its problem as a power series; a new one is registered for its type."""
    raise _no_series(loss, "label_series")


@loss_series.register
def _(problem: AbstractLeastSquares) -> AbstractLossSeries:
    factor, target = np.asarray(problem.input_factor, float), np.asarray(problem.fitted, float)
    return SquareSeries(
        factor,
        target.T,
        float(problem.scale),
        float(problem.minimum),
        blur=units(problem.fitted.dtype),
        unreached=float(problem.fit_error),
        samples=(problem.inputs, problem.targets),
    )


@loss_series.register
def _(problem: TargetMatrix) -> AbstractLossSeries:
    target = np.asarray(problem.minimiser, float)
    return SquareSeries(np.eye(target.shape[1]), target, float(problem.scale))


@loss_series.register
def _(problem: Classification) -> AbstractLossSeries:
    # What derives from a loss that has a series is another loss.
    if type(problem) is not Classification:
        raise _no_series(problem, "loss_series")
    if type(problem.loss) not in label_series.registry:
        raise _no_series(problem.loss, "label_series")
    return label_series(problem.loss, problem)


@label_series.register
def _(loss: CrossEntropy, problem: Classification) -> AbstractLossSeries:
    labels = np.asarray(problem.labels)
    return CrossEntropySeries(np.asarray(problem.inputs, float), labels, problem.classes)


@label_series.register
def _(loss: Logistic, problem: Classification) -> AbstractLossSeries:
    return LogisticSeries(np.asarray(problem.inputs, float), np.asarray(problem.labels))


@label_series.register
def _(loss: Exponential, problem: Classification) -> AbstractLossSeries:
    return ExponentialSeries(np.asarray(problem.inputs, float), np.asarray(problem.labels))


def _no_series(loss: AbstractProblem | AbstractLabelLoss, table: str) -> InputError:
    return InputError(
        f"`{type(loss).__name__}` has no power series (`validated.building.{table}`), which a "
        "validated flow needs; register one, or leave `validate` out for an estimate of its error."
    )
