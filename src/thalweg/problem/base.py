"""What every problem is: data, and a convex loss of a network's outputs.

A problem is met in two ways. As a function of the outputs Z of any predictor on the samples, one
row each (`output_value`, `output_gradient`, `output_hessian_action`), and as a function of the
end-to-end matrix M of a linear predictor x -> M x, for which Z = X M^T (`value_and_gradient`,
`hessian_action`). With n samples,

    Regression        value = scale * sum_i |M x_i - y_i|^2 / n
    TargetMatrix      value = |M - target|_F^2 / 2
    Classification    value = sum_i loss(M x_i, label_i) / n

A new loss defines `inputs`, `shape` and `output_value`, a mean over samples each of which sees its
own outputs alone; everything else is differentiated automatically. What no differentiation can find
the problem declares: bounds on its derivatives away from a point (`output_bounds`), its rounding
(`output_rounding`), and where there are such, the largest gradient and the least value. Where a
bound is needed and not declared, it is refused; none is guessed.

A problem declares what it is, too; its type is never asked for: `least_squares` gives it as a
squared error with its factors and its minimiser, `accuracy` how many samples are classified as they
should be, where it is one.

The scale is explicit because papers differ: arora2019 and elkabetz2021 use 1/2, marion2024 uses 1.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, no_type_check

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from thalweg._arguments import checked
from thalweg._errors import UndeclaredError
from thalweg._shown import shown
from thalweg._typing import Matrix, Scalar

if TYPE_CHECKING:  # its module imports this one
    from thalweg.problem.least_squares import AbstractLeastSquares

Inputs = Float[Array, "samples features"]
Outputs = Float[Array, "samples outputs"]
PerSample = Float[Array, " samples"]
MatrixLanes = Float[Array, "rows columns lanes"]

_UNITS = 64  # in the last place


class Rounding(NamedTuple):
    """How far rounding can put a value and the norm of its gradient off, on the safe side."""

    value: Scalar
    gradient: Scalar


class OutputBounds(NamedTuple):
    """What the second and third derivative of each sample's own loss stay below, in norm."""

    second: PerSample
    third: PerSample


class SquaredDistance(NamedTuple):
    """A loss scale |M F^T - T^T|^2 + minimum, in plain numbers, for kernels.

    Attributes:
        factor: F; None for the identity.
        target: T^T.
        scale: of the square.
        minimum: what is added to it.
    """

    factor: Float[np.ndarray, "rank features"] | None
    target: Float[np.ndarray, "outputs rank"]
    scale: float
    minimum: float


@shown
class AbstractProblem(eqx.Module):
    """Data and a convex loss.

    `inputs` are the samples, one row each; `shape` is outputs x features, the shape of a linear
    predictor's matrix.
    """

    inputs: eqx.AbstractVar[Inputs]
    shape: eqx.AbstractVar[tuple[int, int]]

    @abstractmethod
    def output_value(self, outputs: Outputs) -> Scalar:
        """The loss of a predictor with these outputs, a row per sample."""

    @checked
    def output_gradient(self, outputs: Outputs) -> Outputs:
        """The gradient of `output_value`."""
        return jax.grad(self.output_value)(outputs)

    @checked
    def output_hessian_action(self, outputs: Outputs, direction: Outputs) -> Outputs:
        """The second derivative of `output_value`, applied to a direction."""
        return jax.jvp(self.output_gradient, (outputs,), (direction,))[1]

    # --- what a problem declares of its loss -----------------------------------------------------

    def output_bounds(self, outputs: Outputs, changes: PerSample) -> OutputBounds:
        """Bounds on each sample's own loss, at all outputs within its `changes` of these.

        Of the loss of sample i, which is n times its part of `output_value`, the spectral norm of
        the second derivative, and how fast that changes per unit of distance; infinite where a
        derivative jumps. Tubes and all bounds on balls are made of them.
        """
        raise UndeclaredError(
            self,
            "bounds on its second and third derivatives",
            "output_bounds",
            "tubes and bounds on balls need",
        )

    def output_rounding(self, outputs: Outputs) -> Rounding:
        """How far `output_value` can be off, and the gradients of the samples' own losses.

        Of the gradients, which are n times the rows of `output_gradient`, the root of the mean
        square over the samples.
        """
        raise UndeclaredError(
            self,
            "bounds on the rounding of its value and gradient",
            "output_rounding",
            "tubes need",
        )

    @property
    def largest_gradient(self) -> float | None:
        """What the gradient of a sample's loss stays below, whatever its outputs; None: nothing."""
        return None

    @property
    def least_output_value(self) -> Scalar:
        """What no outputs' loss is below; minus infinity where that is not known."""
        return jnp.asarray(-jnp.inf, self.inputs.dtype)

    @property
    def least_value(self) -> Scalar:
        """What no linear predictor's loss is below, whatever the rounding of the data's factors."""
        return self.least_output_value

    # --- what a problem declares itself to be ----------------------------------------------------

    @property
    def smooth(self) -> bool:
        """Whether the loss has a continuous gradient; that of a hinge, for one, jumps."""
        return True

    @property
    def loss_name(self) -> str:
        """What the loss is called in reports."""
        return type(self).__name__

    @property
    @no_type_check  # run-time checkers cannot see the type, which is imported for editors alone
    def least_squares(self) -> "AbstractLeastSquares | None":
        """The same loss as a squared error with its factors; None where it is none."""
        return None

    @property
    def squared_distance(self) -> SquaredDistance | None:
        """The same loss of a linear predictor as kernels know it; None: JAX computes it."""
        return None

    @property
    def accuracy(self) -> Callable[[Outputs], Scalar] | None:
        """The share of samples whose class these outputs predict; None where there are no classes.

        It is a function of the outputs.
        """
        return None

    def length(self, axis: str) -> int | None:
        """How long the axes of this name are, in annotations; None where it may be any length."""
        if axis == "samples":
            return self.inputs.shape[0]
        outputs, features = self.shape
        known = {"rows": outputs, "columns": features, "outputs": outputs, "features": features}
        return known.get(axis)

    # --- as a function of the matrix of a linear predictor ---------------------------------------

    @checked
    def value(self, matrix: Matrix) -> Scalar:
        """The loss of the linear predictor x -> matrix x."""
        return self.value_and_gradient(matrix)[0]

    @checked
    def gradient(self, matrix: Matrix) -> Matrix:
        """The gradient of the loss with respect to the matrix."""
        return self.value_and_gradient(matrix)[1]

    @checked
    def value_and_gradient(self, matrix: Matrix) -> tuple[Scalar, Matrix]:
        """The loss of the linear predictor x -> matrix x, and its gradient."""
        outputs = self.inputs @ matrix.T
        return self.output_value(outputs), self.output_gradient(outputs).T @ self.inputs

    def value_and_gradient_in_lanes(
        self, matrices: MatrixLanes
    ) -> tuple[Float[Array, " lanes"], MatrixLanes]:
        """`value_and_gradient` of many predictors at once, stacked along the last axis."""
        return jax.vmap(self.value_and_gradient, in_axes=-1, out_axes=(0, -1))(matrices)

    @checked
    def hessian_action(self, matrix: Matrix, direction: Matrix) -> Matrix:
        """The second derivative with respect to the matrix, applied to a direction."""
        outputs, change = self.inputs @ matrix.T, self.inputs @ direction.T
        return self.output_hessian_action(outputs, change).T @ self.inputs

    def rounding(self, matrix: Matrix) -> Rounding:
        """How far `value_and_gradient` can be off the exact sums over the samples.

        By the rounding of the loss, and by that of the outputs, which the loss passes on by its
        first derivative and its gradient by the second.
        """
        outputs, count = self.inputs @ matrix.T, self.inputs.shape[0]
        sizes, unit = jnp.linalg.norm(self.inputs, axis=1), units(outputs.dtype)
        own = self.output_rounding(outputs)
        off = unit * jnp.linalg.norm(matrix) * sizes
        steepness = count * jnp.linalg.norm(self.output_gradient(outputs), axis=1)
        bend = self.second_by_rounding(outputs, off, steepness)
        gradient = own.gradient * jnp.sqrt(jnp.mean(sizes**2))
        return Rounding(
            own.value + jnp.mean((steepness + jnp.maximum(bend, 1) * off) * off),
            gradient + jnp.mean((bend * off + unit * steepness) * sizes),
        )

    def second_by_rounding(
        self, outputs: Outputs, off: PerSample, steepness: PerSample
    ) -> PerSample:
        """`output_bounds` of the second derivative at outputs that rounding puts off.

        Given the norms of the samples' gradients, which bound it in some losses at no cost.
        """
        return self.output_bounds(outputs, off).second


def units(dtype: DTypeLike) -> float:
    """The rounding of a few dozen operations, relative to what they are made of."""
    return _UNITS * float(jnp.finfo(dtype).eps)
