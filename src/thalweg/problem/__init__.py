"""The convex part: data, and a convex loss of a network's outputs."""

from thalweg.problem.base import AbstractProblem, OutputBounds, Rounding
from thalweg.problem.classification import Classification
from thalweg.problem.label_losses import AbstractLabelLoss, AbstractMarginLoss
from thalweg.problem.least_squares import AbstractLeastSquares, Regression, TargetMatrix

__all__ = [
    "AbstractLabelLoss",
    "AbstractLeastSquares",
    "AbstractMarginLoss",
    "AbstractProblem",
    "Classification",
    "OutputBounds",
    "Regression",
    "Rounding",
    "TargetMatrix",
]


def __dir__() -> list[str]:
    return __all__
