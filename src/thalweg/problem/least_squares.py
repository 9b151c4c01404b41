"""The squared error, of samples or of a matrix.

The data are kept as triangular factors F and T of the samples (`factors`), with which

    value = scale * |M F^T - T^T|^2 + minimum,    gradient = 2 scale (M F^T - T^T) F,

at a cost that does not depend on the number of samples, and as right as sums over the samples would
be. Moments would square the condition number of X; and the minimiser M*, which is as long as that
number for nearly collinear features, would cancel. Neither is in any loss.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import (
    InputError,
    as_floating,
    is_traced,
    placed,
    require_ordinary,
    require_positive,
    samples_and_targets,
)
from thalweg._host import hosted, settled
from thalweg._typing import Matrix, Scalar
from thalweg.problem.base import (
    AbstractProblem,
    Inputs,
    MatrixLanes,
    OutputBounds,
    Outputs,
    PerSample,
    Rounding,
    SquaredDistance,
    units,
)
from thalweg.problem.factors import factorise

Factor = Float[Array, "rank features"]
Fitted = Float[Array, "rank outputs"]


class AbstractLeastSquares(AbstractProblem):
    """value = scale * |M F^T - T^T|^2 + minimum, for the factors F and T of some samples.

    Attributes:
        targets: what is to come out on the samples, one row each.
        scale: of the loss.
        input_factor: F, for which F^T F = Sigma.
        fitted: T = F M*^T, the part of the targets that a linear predictor can reach.
        minimiser: the least-squares minimiser M* of least norm.
        minimum: the value there.
        fit_error: how far T and sqrt(minimum / scale) may be off by rounding; it grows with the
            condition number, and is infinite where X has not full column rank.
        spectrum: the eigenvalues of the input moment Sigma, ascending.
    """

    targets: eqx.AbstractVar[Outputs]
    scale: eqx.AbstractVar[Scalar]
    input_factor: eqx.AbstractVar[Factor]
    fitted: eqx.AbstractVar[Fitted]
    minimiser: eqx.AbstractVar[Matrix]
    minimum: eqx.AbstractVar[Scalar]
    fit_error: eqx.AbstractVar[Scalar]
    spectrum: eqx.AbstractVar[Float[Array, " features"]]

    @abstractmethod
    def image(self, matrix: Array) -> Array:
        """M F^T for a matrix M; matrices may be stacked along a third axis."""

    @abstractmethod
    def pull_back(self, residual: Array) -> Array:
        """R F for a residual R = M F^T - T^T; residuals may be stacked along a third axis."""

    @property
    @override
    def least_squares(self) -> "AbstractLeastSquares":
        return self

    @property
    def input_moment(self) -> Float[Array, "features features"]:
        """Sigma = X^T X / n. Its condition number is that of X squared: no loss is made of it."""
        _, (factor,) = hosted(self.input_factor)
        return settled(factor.T @ factor)

    @property
    @override
    def loss_name(self) -> str:
        return "square"

    @property
    @override
    def least_output_value(self) -> Scalar:
        return jnp.zeros((), self.inputs.dtype)

    @property
    @override
    def least_value(self) -> Scalar:
        library, (minimum, scale, error) = hosted(self.minimum, self.scale, self.fit_error)
        root = library.sqrt(minimum / scale) - error
        return settled(scale * library.maximum(root, 0.0) ** 2)

    @checked
    def excess(self, matrix: Matrix) -> Scalar:
        """The loss above its minimum, without cancellation."""
        return self.scale * jnp.sum((self.image(matrix) - self.fitted.T) ** 2)

    def root_excess_bound(self, matrix: Matrix) -> Scalar:
        """What the root of the excess is at most, rounding included."""
        off = self._residual_error(matrix) + self.fit_error
        return jnp.sqrt(self.excess(matrix)) + jnp.sqrt(self.scale) * off

    @checked
    @override
    def value_and_gradient(self, matrix: Matrix) -> tuple[Scalar, Matrix]:
        residual = self.image(matrix) - self.fitted.T
        value = self.scale * jnp.sum(residual**2) + self.minimum
        return value, self.pull_back(2 * self.scale * residual)

    @override
    def value_and_gradient_in_lanes(
        self, matrices: MatrixLanes
    ) -> tuple[Float[Array, " lanes"], MatrixLanes]:
        residuals = self.image(matrices) - self.fitted.T[..., None]
        values = self.scale * jnp.sum(residuals**2, axis=(0, 1)) + self.minimum
        return values, self.pull_back(2 * self.scale * residuals)

    @checked
    @override
    def hessian_action(self, matrix: Matrix, direction: Matrix) -> Matrix:
        return self.pull_back(2 * self.scale * self.image(direction))

    @override
    def rounding(self, matrix: Matrix) -> Rounding:
        value, unit = self.value(matrix), units(self.fitted.dtype)
        off, residual = self._residual_error(matrix), jnp.sqrt(value / self.scale)
        return Rounding(
            self.scale * (2 * residual + off) * off + unit * value,
            2 * self.scale * jnp.linalg.norm(self.input_factor) * (off + unit * residual),
        )

    def _residual_error(self, matrix: Matrix) -> Scalar:
        """What the samples' residual is off by, as if all samples had been rounded."""
        columns = jnp.linalg.norm(self.input_factor, axis=0)
        targets = jnp.sqrt(jnp.sum(self.fitted**2) + self.minimum / self.scale)
        predicted = jnp.sum(jnp.linalg.norm(matrix, axis=0) * columns)
        return units(self.fitted.dtype) * (predicted + targets)

    @checked
    @override
    def output_value(self, outputs: Outputs) -> Scalar:
        return self.scale * jnp.sum((outputs - self.targets) ** 2) / outputs.shape[0]

    @checked
    @override
    def output_gradient(self, outputs: Outputs) -> Outputs:
        return 2 * self.scale * (outputs - self.targets) / outputs.shape[0]

    @checked
    @override
    def output_hessian_action(self, outputs: Outputs, direction: Outputs) -> Outputs:
        return 2 * self.scale * direction / outputs.shape[0]

    @override
    def output_bounds(self, outputs: Outputs, changes: PerSample) -> OutputBounds:
        second = jnp.full(outputs.shape[0], 2 * self.scale)
        return OutputBounds(second, jnp.zeros_like(second))

    @override
    def output_rounding(self, outputs: Outputs) -> Rounding:
        value, unit = self.output_value(outputs), units(self.fitted.dtype)
        return Rounding(unit * value, 2 * unit * jnp.sqrt(self.scale * value))


class Regression(AbstractLeastSquares):
    """Least squares with any number of outputs: value = scale * sum_i |M x_i - y_i|^2 / n.

    Kept as triangular factors of the samples (see the module), which cost the same for any number
    of samples, whose condition number is never squared. The samples are kept for networks that are
    not linear.
    """

    inputs: Inputs
    targets: Outputs
    scale: Scalar
    input_factor: Factor
    fitted: Fitted
    minimiser: Matrix
    minimum: Scalar
    fit_error: Scalar
    spectrum: Float[Array, " features"]

    def __init__(self, x: Any, y: Any, scale: Any = 0.5):
        """Take samples x (one row each), targets y (a vector, or one row each), and the scale."""
        self.inputs, self.targets = samples_and_targets(x, y)
        require_positive("scale", scale)
        require_ordinary("scale", scale)
        dtype = self.inputs.dtype
        number = scale if is_traced(scale) else np.asarray(scale, dtype)
        self.scale = _placed(number, dtype)
        found = factorise(self.inputs, self.targets)
        self.input_factor = _placed(found.inputs, dtype)
        self.fitted = _placed(found.fitted, dtype)
        self.minimiser = _placed(found.minimiser, dtype)
        self.minimum = _placed(number * found.minimum, dtype)
        self.fit_error = _placed(found.fit_error, dtype)
        self.spectrum = _placed(found.spectrum, dtype)

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return self.targets.shape[1], self.inputs.shape[1]

    @property
    def cross_moment(self) -> Matrix:
        """Y^T X / n."""
        return self.targets.T @ self.inputs / self.inputs.shape[0]

    @property
    @override
    def squared_distance(self) -> SquaredDistance | None:
        return _in_numbers(self) if type(self) is Regression else None

    @override
    def image(self, matrix: Array) -> Array:
        return _times(matrix, self.input_factor.T)

    @override
    def pull_back(self, residual: Array) -> Array:
        return _times(residual, self.input_factor)


class TargetMatrix(AbstractLeastSquares):
    """Whitened least squares: approximate a target matrix, value = |M - target|_F^2 / 2.

    For networks that are not linear the samples are the smallest whitened set with this target:
    x_i = sqrt(features) e_i with y_i = target x_i, on which every linear predictor has the same
    loss as above.
    """

    minimiser: Matrix

    def __init__(self, phi: Any):
        """Take the target; a vector means one output."""
        target = as_floating("phi", phi)
        target = target[None] if target.ndim == 1 else target
        if target.ndim != 2 or 0 in target.shape:
            raise InputError(
                f"`phi` must be a matrix (outputs x features) or a vector, got {target.shape}."
            )
        require_ordinary("phi", target)
        self.minimiser = target

    @property
    @override
    def minimum(self) -> Scalar:
        return jnp.zeros((), self.minimiser.dtype)  # the target itself is reached

    @property
    @override
    def fit_error(self) -> Scalar:
        return jnp.zeros((), self.minimiser.dtype)

    @property
    @override
    def scale(self) -> Scalar:
        return jnp.asarray(0.5, self.minimiser.dtype)

    @property
    @override
    def input_factor(self) -> Factor:
        return jnp.eye(self.shape[1], dtype=self.minimiser.dtype)  # the samples are white

    @property
    @override
    def fitted(self) -> Fitted:
        return self.minimiser.T

    @property
    @override
    def spectrum(self) -> Float[Array, " features"]:
        return jnp.ones(self.shape[1], self.minimiser.dtype)

    @property
    @override
    def inputs(self) -> Inputs:
        return jnp.sqrt(jnp.asarray(self.shape[1], self.minimiser.dtype)) * self.input_factor

    @property
    @override
    def targets(self) -> Outputs:
        return self.inputs @ self.minimiser.T

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return self.minimiser.shape[0], self.minimiser.shape[1]

    @property
    @override
    def squared_distance(self) -> SquaredDistance | None:
        white = type(self) is TargetMatrix
        return _in_numbers(self)._replace(factor=None) if white else None

    @override
    def image(self, matrix: Array) -> Array:
        return matrix

    @override
    def pull_back(self, residual: Array) -> Array:
        return residual


def _in_numbers(problem: AbstractLeastSquares) -> SquaredDistance:
    """For kernels; asked of no class that derives from ours, whose loss may be another one."""
    return SquaredDistance(
        np.asarray(problem.input_factor, float),
        np.asarray(problem.fitted, float).T,
        float(problem.scale),
        float(problem.minimum),
    )


def _times(left: Array, right: Matrix) -> Array:
    """The product, or that of many, stacked along the last axis: sums of contiguous vectors."""
    if left.ndim == 2:
        return left @ right
    return jnp.sum(left[:, :, None] * right[None, :, :, None], axis=1)


def _placed(numbers: Any, dtype: Any) -> Array:
    return jnp.asarray(numbers, dtype) if is_traced(numbers) else placed(np.asarray(numbers, dtype))
