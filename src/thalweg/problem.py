"""The convex part: data, and a convex loss of what a network puts out.

A problem is met in two ways. As a function of the end-to-end matrix M of a linear predictor
x -> M x (`value_and_gradient`, `hessian_action`), and as a function of the outputs Z of any
predictor on the samples, one row each (`output_value`, `output_gradient`,
`output_hessian_action`). Both are exact closed forms. With n samples,

    Regression        value = scale * sum_i |M x_i - y_i|^2 / n
    TargetMatrix      value = |M - target|_F^2 / 2
    Classification    value = sum_i loss(M x_i, label_i) / n

The scale is explicit because papers differ: arora2019 and elkabetz2021 use 1/2, marion2024 uses 1.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from typing_extensions import override

from thalweg._checks import (
    InputError,
    as_floating,
    class_labels,
    require_positive,
    samples,
    samples_and_targets,
    signs,
)
from thalweg._typing import Matrix, Scalar

Inputs = Float[Array, "samples features"]
Outputs = Float[Array, "samples outputs"]


class AbstractProblem(eqx.Module):
    """Data and a convex loss.

    `inputs` are the samples, one row each; `shape` is outputs x features, the shape of a linear
    predictor's matrix.
    """

    inputs: eqx.AbstractVar[Inputs]
    shape: eqx.AbstractVar[tuple[int, int]]

    @abstractmethod
    def value_and_gradient(self, matrix: Matrix) -> tuple[Scalar, Matrix]:
        """The loss of the linear predictor x -> matrix x, and its gradient."""

    @abstractmethod
    def value_and_gradient_in_lanes(
        self, matrices: Float[Array, "rows columns lanes"]
    ) -> tuple[Float[Array, " lanes"], Float[Array, "rows columns lanes"]]:
        """`value_and_gradient` of many predictors at once, stacked along the last axis."""

    @abstractmethod
    def hessian_action(self, matrix: Matrix, direction: Matrix) -> Matrix:
        """The second derivative with respect to the matrix, applied to a direction."""

    @abstractmethod
    def output_value(self, outputs: Outputs) -> Scalar:
        """The loss of a predictor that puts out these rows on the samples."""

    @abstractmethod
    def output_gradient(self, outputs: Outputs) -> Outputs:
        """The gradient of `output_value`."""

    @abstractmethod
    def output_hessian_action(self, outputs: Outputs, direction: Outputs) -> Outputs:
        """The second derivative of `output_value`, applied to a direction."""

    def value(self, matrix: Matrix) -> Scalar:
        """The loss of the linear predictor x -> matrix x."""
        return self.value_and_gradient(matrix)[0]

    def gradient(self, matrix: Matrix) -> Matrix:
        """The gradient of the loss with respect to the matrix."""
        return self.value_and_gradient(matrix)[1]


class Regression(AbstractProblem):
    """Least squares with any number of outputs, kept as sufficient statistics.

    With Sigma = X^T X / n and the least-squares minimiser M* of least norm,

        value = scale * tr((M - M*) Sigma (M - M*)^T) + minimum,

    which is exact whether or not Sigma is invertible, costs the same for any number of samples,
    and loses no digits near the minimum. The samples are kept for networks that are not linear.
    """

    inputs: Inputs
    targets: Outputs
    scale: Scalar
    input_moment: Float[Array, "features features"]
    minimiser: Matrix
    minimum: Scalar

    def __init__(self, x: Any, y: Any, scale: Any = 0.5):
        """Take samples x (one row each), targets y (a vector, or one row each), and the scale."""
        self.inputs, self.targets = samples_and_targets(x, y)
        require_positive("scale", scale)
        self.scale = jnp.asarray(scale, self.inputs.dtype)
        count = self.inputs.shape[0]
        self.input_moment = self.inputs.T @ self.inputs / count
        solution = jnp.linalg.lstsq(self.inputs, self.targets)[0]
        self.minimiser = solution.T
        residual = self.targets - self.inputs @ solution
        self.minimum = self.scale * jnp.sum(residual**2) / count

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return self.targets.shape[1], self.inputs.shape[1]

    @property
    def cross_moment(self) -> Matrix:
        """Y^T X / n."""
        return self.targets.T @ self.inputs / self.inputs.shape[0]

    @property
    def spectrum(self) -> Float[Array, " features"]:
        """The eigenvalues of the input moment Sigma, ascending."""
        return jnp.linalg.eigvalsh(self.input_moment)

    def excess(self, matrix: Matrix) -> Scalar:
        """The loss above its minimum, without cancellation."""
        error = matrix - self.minimiser
        return self.scale * jnp.sum((error @ self.input_moment) * error)

    @override
    def value_and_gradient(self, matrix: Matrix) -> tuple[Scalar, Matrix]:
        error = matrix - self.minimiser
        slope = self.scale * (error @ self.input_moment)
        return jnp.sum(slope * error) + self.minimum, 2 * slope

    @override
    def value_and_gradient_in_lanes(
        self, matrices: Float[Array, "rows columns lanes"]
    ) -> tuple[Float[Array, " lanes"], Float[Array, "rows columns lanes"]]:
        errors = matrices - self.minimiser[..., None]
        terms = errors[:, :, None] * self.input_moment[None, :, :, None]
        slopes = self.scale * jnp.sum(terms, axis=1)  # errors @ input_moment, lanes last
        return jnp.sum(slopes * errors, axis=(0, 1)) + self.minimum, 2 * slopes

    @override
    def hessian_action(self, matrix: Matrix, direction: Matrix) -> Matrix:
        return 2 * self.scale * (direction @ self.input_moment)

    @override
    def output_value(self, outputs: Outputs) -> Scalar:
        return self.scale * jnp.sum((outputs - self.targets) ** 2) / outputs.shape[0]

    @override
    def output_gradient(self, outputs: Outputs) -> Outputs:
        return 2 * self.scale * (outputs - self.targets) / outputs.shape[0]

    @override
    def output_hessian_action(self, outputs: Outputs, direction: Outputs) -> Outputs:
        return 2 * self.scale * direction / outputs.shape[0]


class TargetMatrix(AbstractProblem):
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
        self.minimiser = target

    @property
    def minimum(self) -> Scalar:
        """Zero: the target itself is reached."""
        return jnp.zeros((), self.minimiser.dtype)

    @property
    def scale(self) -> Scalar:
        """One half."""
        return jnp.asarray(0.5, self.minimiser.dtype)

    @property
    def input_moment(self) -> Float[Array, "features features"]:
        """The identity: the samples are white."""
        return jnp.eye(self.shape[1], dtype=self.minimiser.dtype)

    @property
    def spectrum(self) -> Float[Array, " features"]:
        """Ones."""
        return jnp.ones(self.shape[1], self.minimiser.dtype)

    @property
    @override
    def inputs(self) -> Inputs:
        return jnp.sqrt(jnp.asarray(self.shape[1], self.minimiser.dtype)) * self.input_moment

    @property
    def targets(self) -> Outputs:
        """The rows that the target puts out on the samples."""
        return self.inputs @ self.minimiser.T

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return self.minimiser.shape[0], self.minimiser.shape[1]

    def excess(self, matrix: Matrix) -> Scalar:
        """The loss itself, whose minimum is zero."""
        return self.value(matrix)

    @override
    def value_and_gradient(self, matrix: Matrix) -> tuple[Scalar, Matrix]:
        error = matrix - self.minimiser
        return jnp.sum(error**2) / 2, error

    @override
    def value_and_gradient_in_lanes(
        self, matrices: Float[Array, "rows columns lanes"]
    ) -> tuple[Float[Array, " lanes"], Float[Array, "rows columns lanes"]]:
        errors = matrices - self.minimiser[..., None]
        return jnp.sum(errors**2, axis=(0, 1)) / 2, errors

    @override
    def hessian_action(self, matrix: Matrix, direction: Matrix) -> Matrix:
        return direction

    @override
    def output_value(self, outputs: Outputs) -> Scalar:
        return jnp.sum((outputs - self.targets) ** 2) / (2 * outputs.shape[0])

    @override
    def output_gradient(self, outputs: Outputs) -> Outputs:
        return (outputs - self.targets) / outputs.shape[0]

    @override
    def output_hessian_action(self, outputs: Outputs, direction: Outputs) -> Outputs:
        return direction / outputs.shape[0]


# A margin loss is a function of sign * output: itself, its first and its second derivative.
_MARGIN_LOSSES = {
    "logistic": (
        lambda margin: jax.nn.softplus(-margin),
        lambda margin: -jax.nn.sigmoid(-margin),
        lambda margin: jax.nn.sigmoid(margin) * jax.nn.sigmoid(-margin),
    ),
    "exponential": (
        lambda margin: jnp.exp(-margin),
        lambda margin: -jnp.exp(-margin),
        lambda margin: jnp.exp(-margin),
    ),
}


class Classification(AbstractProblem):
    """Mean cross-entropy over classes, or a margin loss of one output for two classes.

        cross_entropy    log sum_c exp(z_c) - z_label          labels 0, ..., classes - 1
        logistic         log(1 + exp(-s z))                    s = +1 or -1
        exponential      exp(-s z)

    The two labels of a margin loss may be given as {-1, 1} or {0, 1}.
    """

    inputs: Inputs
    labels: Int[Array, " samples"]
    classes: int = eqx.field(static=True)
    loss: str = eqx.field(static=True)

    def __init__(
        self,
        x: Any,
        labels: Any,
        classes: int | None = None,
        loss: str = "cross_entropy",
    ):
        """Take samples (one row each), integer labels, and the loss."""
        if loss != "cross_entropy" and loss not in _MARGIN_LOSSES:
            known = ", ".join(["cross_entropy", *_MARGIN_LOSSES])
            raise InputError(f"`loss` must be one of {known}, got {loss!r}.")
        self.inputs = samples(x)
        self.loss = loss
        if loss == "cross_entropy":
            self.labels, self.classes = class_labels(labels, classes, self.inputs.shape[0])
        else:
            if classes not in (None, 2):
                raise InputError(
                    f"`classes` must be 2 for the loss {loss!r}, got {classes}; more classes need "
                    "loss='cross_entropy'."
                )
            self.labels, self.classes = signs(labels, self.inputs.shape[0]), 2

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return (self.classes if self.loss == "cross_entropy" else 1), self.inputs.shape[1]

    @override
    def value_and_gradient(self, matrix: Matrix) -> tuple[Scalar, Matrix]:
        if self.loss == "cross_entropy":
            return self._cross_entropy(matrix)
        outputs = self.inputs @ matrix.T
        return self.output_value(outputs), self.output_gradient(outputs).T @ self.inputs

    def _cross_entropy(self, matrix: Matrix) -> tuple[Scalar, Matrix]:
        """With one row per class instead of per sample both products are a third faster on CPUs."""
        scores = jnp.einsum("oi,ni->on", matrix, self.inputs)
        total = jax.nn.logsumexp(scores, axis=0)
        chosen = jnp.take_along_axis(scores, self.labels[None], axis=0)[0]
        expected = jax.nn.one_hot(self.labels, self.classes, dtype=scores.dtype, axis=0)
        slopes = (jnp.exp(scores - total) - expected) / total.size
        return jnp.mean(total - chosen), slopes @ self.inputs

    @override
    def value_and_gradient_in_lanes(
        self, matrices: Float[Array, "rows columns lanes"]
    ) -> tuple[Float[Array, " lanes"], Float[Array, "rows columns lanes"]]:
        return jax.vmap(self.value_and_gradient, in_axes=-1, out_axes=(0, -1))(matrices)

    @override
    def hessian_action(self, matrix: Matrix, direction: Matrix) -> Matrix:
        outputs, change = self.inputs @ matrix.T, self.inputs @ direction.T
        return self.output_hessian_action(outputs, change).T @ self.inputs

    @override
    def output_value(self, outputs: Outputs) -> Scalar:
        if self.loss == "cross_entropy":
            chosen = jnp.take_along_axis(outputs, self.labels[:, None], axis=1)[:, 0]
            return jnp.mean(jax.nn.logsumexp(outputs, axis=1) - chosen)
        return jnp.mean(_MARGIN_LOSSES[self.loss][0](self._margins(outputs)))

    @override
    def output_gradient(self, outputs: Outputs) -> Outputs:
        count = outputs.shape[0]
        if self.loss == "cross_entropy":
            expected = jax.nn.one_hot(self.labels, self.classes, dtype=outputs.dtype)
            return (jax.nn.softmax(outputs, axis=1) - expected) / count
        slope = _MARGIN_LOSSES[self.loss][1](self._margins(outputs))
        return self.labels[:, None] * slope / count

    @override
    def output_hessian_action(self, outputs: Outputs, direction: Outputs) -> Outputs:
        count = outputs.shape[0]
        if self.loss == "cross_entropy":
            chance = jax.nn.softmax(outputs, axis=1)
            mean = jnp.sum(chance * direction, axis=1, keepdims=True)
            return chance * (direction - mean) / count
        return _MARGIN_LOSSES[self.loss][2](self._margins(outputs)) * direction / count

    def accuracy(self, outputs: Outputs) -> Scalar:
        """The share of samples whose class is predicted."""
        if self.loss == "cross_entropy":
            right = jnp.argmax(outputs, axis=1) == self.labels
        else:
            right = self._margins(outputs)[:, 0] > 0
        return jnp.mean(right, dtype=outputs.dtype)

    def _margins(self, outputs: Outputs) -> Outputs:
        return self.labels[:, None] * outputs
