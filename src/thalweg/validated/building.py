"""From an objective to what the validated flow needs of it, in plain double precision."""

import numpy as np

from thalweg._checks import InputError
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import AbstractLeastSquares, AbstractProblem, Classification
from thalweg.validated.curve import Setting
from thalweg.validated.losses import AbstractLossSeries, SquareLoss
from thalweg.validated.probabilities import CrossEntropy, Exponential, Logistic

_DENSE = 600  # weights up to which eigenvalues are computed from dense Hessians
_MARGINS = {"logistic": Logistic, "exponential": Exponential}


def setting_of(objective: Objective, dense: bool | None = None) -> Setting:
    """The setting of a linear network's objective; by its size, dense or by norms."""
    network = objective.network
    if not isinstance(network, LinearNetwork):
        raise InputError(
            "A flow can be validated for linear networks, got "
            f"{type(network).__name__}; leave `validate` out for an estimate of its error."
        )
    readout = np.eye(network.outputs) if network.readout is None else np.asarray(network.readout)
    return Setting(
        readout.astype(float),
        _loss_of(objective.problem),
        float(objective.weight_decay),
        network.size <= _DENSE if dense is None else dense,
    )


def _loss_of(problem: AbstractProblem) -> AbstractLossSeries:
    """The problem as a power series: least squares by its factors, all others over samples."""
    if isinstance(problem, AbstractLeastSquares):
        factor, target = np.asarray(problem.input_factor, float), np.asarray(problem.fitted, float)
        return SquareLoss(factor, target.T, float(problem.scale), float(problem.minimum))
    if isinstance(problem, Classification):
        x, labels = np.asarray(problem.inputs, float), np.asarray(problem.labels)
        if problem.loss == "cross_entropy":
            return CrossEntropy(x, labels, problem.classes)
        return _MARGINS[problem.loss](x, labels)
    raise InputError(
        "A flow can be validated for regression, target matrices and classification, got "
        f"{type(problem).__name__}; leave `validate` out for an estimate of its error."
    )
