"""The convex part: data, and a convex loss of what a network puts out."""

from thalweg.problem.base import AbstractProblem as AbstractProblem
from thalweg.problem.base import OutputBounds as OutputBounds
from thalweg.problem.base import Rounding as Rounding
from thalweg.problem.base import units as units
from thalweg.problem.classification import Classification as Classification
from thalweg.problem.label_losses import AbstractLabelLoss as AbstractLabelLoss
from thalweg.problem.label_losses import AbstractMarginLoss as AbstractMarginLoss
from thalweg.problem.least_squares import AbstractLeastSquares as AbstractLeastSquares
from thalweg.problem.least_squares import Regression as Regression
from thalweg.problem.least_squares import TargetMatrix as TargetMatrix
