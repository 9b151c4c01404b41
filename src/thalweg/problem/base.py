"""What every problem is: data, and a convex loss of what a network puts out.

A problem is met in two ways. As a function of the end-to-end matrix M of a linear predictor
x -> M x (`value_and_gradient`, `hessian_action`), and as a function of the outputs Z of any
predictor on the samples, one row each (`output_value`, `output_gradient`,
`output_hessian_action`). Both are exact closed forms. With n samples,

    Regression        value = scale * sum_i |M x_i - y_i|^2 / n
    TargetMatrix      value = |M - target|_F^2 / 2
    Classification    value = sum_i loss(M x_i, label_i) / n

A problem declares what it is, and nobody asks for its type: `least_squares` gives it as a squared
error with its factors and its minimiser, where it is one.

The scale is explicit because papers differ: arora2019 and elkabetz2021 use 1/2, marion2024 uses 1.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple, no_type_check

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from thalweg._arguments import checked
from thalweg._shown import shown
from thalweg._typing import Matrix, Scalar

if TYPE_CHECKING:  # its module imports this one
    from thalweg.problem.least_squares import AbstractLeastSquares

Inputs = Float[Array, "samples features"]
Outputs = Float[Array, "samples outputs"]
MatrixLanes = Float[Array, "rows columns lanes"]

_UNITS = 64  # in the last place


class Rounding(NamedTuple):
    """How far rounding can put a value and the norm of its gradient off, on the safe side."""

    value: Scalar
    gradient: Scalar


@shown
class AbstractProblem(eqx.Module):
    """Data and a convex loss.

    `inputs` are the samples, one row each; `shape` is outputs x features, the shape of a linear
    predictor's matrix.
    """

    inputs: eqx.AbstractVar[Inputs]
    shape: eqx.AbstractVar[tuple[int, int]]
    least_value: eqx.AbstractVar[Scalar]
    """What no value is below, whatever the rounding of the data's factors."""

    @abstractmethod
    def value_and_gradient(self, matrix: Matrix) -> tuple[Scalar, Matrix]:
        """The loss of the linear predictor x -> matrix x, and its gradient."""

    @abstractmethod
    def value_and_gradient_in_lanes(
        self, matrices: MatrixLanes
    ) -> tuple[Float[Array, " lanes"], MatrixLanes]:
        """`value_and_gradient` of many predictors at once, stacked along the last axis."""

    @abstractmethod
    def hessian_action(self, matrix: Matrix, direction: Matrix) -> Matrix:
        """The second derivative with respect to the matrix, applied to a direction."""

    @abstractmethod
    def rounding(self, matrix: Matrix) -> Rounding:
        """How far `value_and_gradient` can be off the exact sums over the samples."""

    @abstractmethod
    def output_value(self, outputs: Outputs) -> Scalar:
        """The loss of a predictor that puts out these rows on the samples."""

    @abstractmethod
    def output_gradient(self, outputs: Outputs) -> Outputs:
        """The gradient of `output_value`."""

    @abstractmethod
    def output_hessian_action(self, outputs: Outputs, direction: Outputs) -> Outputs:
        """The second derivative of `output_value`, applied to a direction."""

    @abstractmethod
    def output_rounding(self, outputs: Outputs) -> Rounding:
        """How far `output_value` can be off, and the gradients of the samples' own losses.

        Of the gradients, which are n times the rows of `output_gradient`, the root of the mean
        square over the samples.
        """

    @property
    @no_type_check  # run-time checkers cannot see the type, which is imported for editors alone
    def least_squares(self) -> "AbstractLeastSquares | None":
        """The same loss as a squared error with its factors; None where it is none."""
        return None

    def length(self, axis: str) -> int | None:
        """How long the axes of this name are, in annotations; None where it may be any length."""
        if axis == "samples":
            return self.inputs.shape[0]
        outputs, features = self.shape
        known = {"rows": outputs, "columns": features, "outputs": outputs, "features": features}
        return known.get(axis)

    @checked
    def value(self, matrix: Matrix) -> Scalar:
        """The loss of the linear predictor x -> matrix x."""
        return self.value_and_gradient(matrix)[0]

    @checked
    def gradient(self, matrix: Matrix) -> Matrix:
        """The gradient of the loss with respect to the matrix."""
        return self.value_and_gradient(matrix)[1]


def units(dtype: DTypeLike) -> float:
    """The rounding of a few dozen operations, relative to what they are made of."""
    return _UNITS * float(jnp.finfo(dtype).eps)
