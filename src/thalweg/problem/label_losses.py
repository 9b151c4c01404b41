"""Losses of one sample's outputs and its label, with the bounds that they declare.

    cross-entropy    log sum_c exp(z_c) - z_label          labels 0, ..., classes - 1
    logistic         log(1 + exp(-m))                      margin m = s z, labels s = +1 or -1
    exponential      exp(-m)

Cross-entropy: the second derivative is the covariance of the classes under the softmax p. By
Gershgorin's theorem its norm is at most max_c 2 p_c (1 - p_c) <= 1/2; the third derivative along v
is a third central moment of a variable of range <= sqrt(2) |v|, hence at most sqrt(2) times that,
and at most sqrt(2)^3 / (6 sqrt(3)), the extreme being a variable of two values. Log-odds move by at
most sqrt(2) times what the outputs do. The gradient p - e_label is no longer than sqrt(2), and
p_c (1 - p_c) is no larger than it. The logistic loss is alike with the range 1; the derivatives of
the exponential loss grow by e^change.

A new margin loss derives from `AbstractMarginLoss` and defines `value`, and its bounds where these
are needed; not from one of these losses, whose bounds are not its own.
"""

from abc import abstractmethod
from math import sqrt
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from typing_extensions import override

from thalweg._checks import InputError, class_labels, signs
from thalweg._errors import UndeclaredError
from thalweg._shown import shown
from thalweg._typing import Matrix, Scalar
from thalweg.problem.base import Inputs, OutputBounds, Outputs, PerSample, Rounding, units

Labels = Int[Array, " samples"]

_SKEWNESS = 1 / (6 * sqrt(3))  # the largest third central moment of a variable of range 1


@shown
class AbstractLabelLoss(eqx.Module):
    """A loss of outputs and a label, for each sample on its own."""

    @property
    def name(self) -> str:
        """What the loss is called in settings and reports."""
        return type(self).__name__

    @abstractmethod
    def read(self, labels: Any, classes: int | None, count: int) -> tuple[Labels, int]:
        """The labels of so many samples as the loss takes them, and how many classes there are."""

    @abstractmethod
    def width(self, classes: int) -> int:
        """How many outputs a sample has."""

    @abstractmethod
    def values(self, outputs: Outputs, labels: Labels) -> PerSample:
        """The samples' losses."""

    @abstractmethod
    def gradients(self, outputs: Outputs, labels: Labels) -> Outputs:
        """Their gradients."""

    @abstractmethod
    def hessian_actions(self, outputs: Outputs, labels: Labels, direction: Outputs) -> Outputs:
        """Their second derivatives, applied to a direction."""

    @abstractmethod
    def hits(self, outputs: Outputs, labels: Labels) -> Bool[Array, " samples"]:
        """Whether the outputs predict the label."""

    @abstractmethod
    def bounds(self, outputs: Outputs, labels: Labels, changes: PerSample) -> OutputBounds:
        """`output_bounds` of a problem."""

    @abstractmethod
    def rounding(self, outputs: Outputs, labels: Labels) -> Rounding:
        """`output_rounding` of a problem."""

    @property
    def largest_gradient(self) -> float | None:
        """What the gradient stays below, whatever the outputs; None: nothing."""
        return None

    @property
    def least_value(self) -> float:
        """What no value is below."""
        return -jnp.inf

    def second_by_rounding(
        self, outputs: Outputs, labels: Labels, off: PerSample, steepness: PerSample
    ) -> PerSample:
        """`second_by_rounding` of a problem."""
        return self.bounds(outputs, labels, off).second

    def value_and_gradient(
        self, inputs: Inputs, labels: Labels, matrix: Matrix
    ) -> tuple[Scalar, Matrix]:
        """The mean over samples of a linear predictor's losses, and its gradient."""
        outputs = inputs @ matrix.T
        slopes = self.gradients(outputs, labels) / labels.size
        return jnp.mean(self.values(outputs, labels)), slopes.T @ inputs


@final
class CrossEntropy(AbstractLabelLoss):
    """The softmax's negative log-likelihood, for any number of classes."""

    @property
    @override
    def name(self) -> str:
        return "cross_entropy"

    @override
    def read(self, labels: Any, classes: int | None, count: int) -> tuple[Labels, int]:
        return class_labels(labels, classes, count)

    @override
    def width(self, classes: int) -> int:
        return classes

    @override
    def values(self, outputs: Outputs, labels: Labels) -> PerSample:
        chosen = jnp.take_along_axis(outputs, labels[:, None], axis=1)[:, 0]
        return jax.nn.logsumexp(outputs, axis=1) - chosen

    @override
    def gradients(self, outputs: Outputs, labels: Labels) -> Outputs:
        expected = jax.nn.one_hot(labels, outputs.shape[1], dtype=outputs.dtype)
        return jax.nn.softmax(outputs, axis=1) - expected

    @override
    def hessian_actions(self, outputs: Outputs, labels: Labels, direction: Outputs) -> Outputs:
        chance = jax.nn.softmax(outputs, axis=1)
        mean = jnp.sum(chance * direction, axis=1, keepdims=True)
        return chance * (direction - mean)

    @override
    def value_and_gradient(
        self, inputs: Inputs, labels: Labels, matrix: Matrix
    ) -> tuple[Scalar, Matrix]:
        """With one row per class instead of per sample both products are a third faster on CPUs."""
        scores = jnp.einsum("oi,ni->on", matrix, inputs)
        total = jax.nn.logsumexp(scores, axis=0)
        chosen = jnp.take_along_axis(scores, labels[None], axis=0)[0]
        expected = jax.nn.one_hot(labels, matrix.shape[0], dtype=scores.dtype, axis=0)
        slopes = (jnp.exp(scores - total) - expected) / total.size
        return jnp.mean(total - chosen), slopes @ inputs

    @override
    def hits(self, outputs: Outputs, labels: Labels) -> Bool[Array, " samples"]:
        return jnp.argmax(outputs, axis=1) == labels

    @override
    def bounds(self, outputs: Outputs, labels: Labels, changes: PerSample) -> OutputBounds:
        own = jnp.eye(outputs.shape[1], dtype=bool)
        others = jnp.where(own, -jnp.inf, outputs[:, None, :])
        odds = jnp.abs(outputs - jax.nn.logsumexp(others, axis=2))
        least = jnp.maximum(odds - sqrt(2) * changes[:, None], 0)
        second = jnp.max(2 * _logistic_variance(least), axis=1)
        return OutputBounds(second, sqrt(2) * jnp.minimum(second, 2 * _SKEWNESS))

    @override
    def rounding(self, outputs: Outputs, labels: Labels) -> Rounding:
        value, unit = jnp.mean(self.values(outputs, labels)), units(outputs.dtype)
        largest = jnp.mean(jnp.max(jnp.abs(outputs), axis=1))
        # Outputs are subtracted, and chances from one.
        return Rounding(unit * (value + largest), jnp.asarray(unit, outputs.dtype))

    @override
    def second_by_rounding(
        self, outputs: Outputs, labels: Labels, off: PerSample, steepness: PerSample
    ) -> PerSample:
        return jnp.minimum(2 * steepness, 0.5)

    @property
    @override
    def largest_gradient(self) -> float | None:
        return sqrt(2)

    @property
    @override
    def least_value(self) -> float:
        return 0.0  # approached, never reached


class AbstractMarginLoss(AbstractLabelLoss):
    """A convex function of the margin m = s z, for one output z and the labels s = +1 and -1."""

    @abstractmethod
    def value(self, margins: PerSample) -> PerSample:
        """The function itself, of each margin."""

    def derivative(self, margins: PerSample) -> PerSample:
        """Its derivative."""
        return jax.grad(lambda each: jnp.sum(self.value(each)))(margins)

    def second_derivative(self, margins: PerSample) -> PerSample:
        """Its second derivative."""
        return jax.jvp(self.derivative, (margins,), (jnp.ones_like(margins),))[1]

    def margin_bounds(self, margins: PerSample, changes: PerSample) -> OutputBounds:
        """What the second and third derivative stay below at all margins within the changes."""
        raise UndeclaredError(
            self,
            "bounds on its second and third derivatives",
            "margin_bounds",
            "tubes and bounds on balls need",
        )

    def margin_rounding(self, margins: PerSample) -> tuple[PerSample, PerSample]:
        """How far rounding can put each value and each derivative off."""
        raise UndeclaredError(
            self,
            "bounds on the rounding of its value and derivative",
            "margin_rounding",
            "tubes need",
        )

    @override
    def read(self, labels: Any, classes: int | None, count: int) -> tuple[Labels, int]:
        if classes not in (None, 2):
            raise InputError(
                f"`classes` must be 2 for the loss {self.name!r}, got {classes}; more classes need "
                "loss='cross_entropy'."
            )
        return signs(labels, count), 2

    @override
    def width(self, classes: int) -> int:
        return 1

    @override
    def values(self, outputs: Outputs, labels: Labels) -> PerSample:
        return self.value(_margins(outputs, labels))

    @override
    def gradients(self, outputs: Outputs, labels: Labels) -> Outputs:
        return (labels * self.derivative(_margins(outputs, labels)))[:, None]

    @override
    def hessian_actions(self, outputs: Outputs, labels: Labels, direction: Outputs) -> Outputs:
        return self.second_derivative(_margins(outputs, labels))[:, None] * direction

    @override
    def hits(self, outputs: Outputs, labels: Labels) -> Bool[Array, " samples"]:
        return _margins(outputs, labels) > 0

    @override
    def bounds(self, outputs: Outputs, labels: Labels, changes: PerSample) -> OutputBounds:
        return self.margin_bounds(_margins(outputs, labels), changes)

    @override
    def rounding(self, outputs: Outputs, labels: Labels) -> Rounding:
        values, derivatives = self.margin_rounding(_margins(outputs, labels))
        return Rounding(jnp.mean(values), jnp.sqrt(jnp.mean(derivatives**2)))


class _SelfBounded(AbstractMarginLoss):
    """A positive margin loss whose second derivative is no larger than its first in modulus.

    Value and derivative are computed without cancellation.
    """

    @override
    def margin_rounding(self, margins: PerSample) -> tuple[PerSample, PerSample]:
        unit = units(margins.dtype)
        return unit * self.value(margins), unit * jnp.abs(self.derivative(margins))

    @override
    def second_by_rounding(
        self, outputs: Outputs, labels: Labels, off: PerSample, steepness: PerSample
    ) -> PerSample:
        return steepness

    @property
    @override
    def least_value(self) -> float:
        return 0.0  # approached, never reached


@final
class Logistic(_SelfBounded):
    """log(1 + exp(-m))."""

    @property
    @override
    def name(self) -> str:
        return "logistic"

    @override
    def value(self, margins: PerSample) -> PerSample:
        return jax.nn.softplus(-margins)

    @override
    def derivative(self, margins: PerSample) -> PerSample:
        return -jax.nn.sigmoid(-margins)

    @override
    def second_derivative(self, margins: PerSample) -> PerSample:
        return _logistic_variance(margins)

    @override
    def margin_bounds(self, margins: PerSample, changes: PerSample) -> OutputBounds:
        second = _logistic_variance(jnp.maximum(jnp.abs(margins) - changes, 0))
        return OutputBounds(second, jnp.minimum(second, _SKEWNESS))

    @property
    @override
    def largest_gradient(self) -> float | None:
        return 1.0


@final
class Exponential(_SelfBounded):
    """exp(-m)."""

    @property
    @override
    def name(self) -> str:
        return "exponential"

    @override
    def value(self, margins: PerSample) -> PerSample:
        return jnp.exp(-margins)

    @override
    def derivative(self, margins: PerSample) -> PerSample:
        return -jnp.exp(-margins)

    @override
    def second_derivative(self, margins: PerSample) -> PerSample:
        return jnp.exp(-margins)

    @override
    def margin_bounds(self, margins: PerSample, changes: PerSample) -> OutputBounds:
        second = jnp.exp(changes - margins)
        return OutputBounds(second, second)


LABEL_LOSSES: dict[str, AbstractLabelLoss] = {
    each.name: each for each in (CrossEntropy(), Logistic(), Exponential())
}
"""By the names that settings give them."""


def _margins(outputs: Outputs, labels: Labels) -> PerSample:
    return labels * outputs[:, 0]


def _logistic_variance(odds: Float[Array, "..."]) -> Float[Array, "..."]:
    return jax.nn.sigmoid(odds) * jax.nn.sigmoid(-odds)
