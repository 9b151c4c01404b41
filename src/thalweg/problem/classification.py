"""The mean over samples of a loss of outputs and labels (`label_losses`)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, samples
from thalweg._typing import Matrix, Scalar
from thalweg.problem.base import (
    AbstractProblem,
    Inputs,
    OutputBounds,
    Outputs,
    PerSample,
    Rounding,
)
from thalweg.problem.label_losses import LABEL_LOSSES, AbstractLabelLoss, Labels


class Classification(AbstractProblem):
    """Mean cross-entropy over classes, or a margin loss of one output for two classes.

        cross_entropy    log sum_c exp(z_c) - z_label          labels 0, ..., classes - 1
        logistic         log(1 + exp(-s z))                    s = +1 or -1
        exponential      exp(-s z)

    The two labels of a margin loss may be given as {-1, 1} or {0, 1}. Another loss is given as an
    object, an `AbstractMarginLoss` for two classes.
    """

    inputs: Inputs
    labels: Labels
    classes: int = eqx.field(static=True)
    loss: AbstractLabelLoss

    @checked
    def __init__(
        self,
        x: Any,
        labels: Any,
        classes: int | None = None,
        loss: str | AbstractLabelLoss = "cross_entropy",
    ):
        """Take samples (one row each), integer labels, and the loss by name or as an object."""
        if isinstance(loss, str) and loss not in LABEL_LOSSES:
            raise InputError(
                f"`loss` must be one of {', '.join(LABEL_LOSSES)}, or an AbstractMarginLoss, got "
                f"{loss!r}."
            )
        self.inputs = samples(x)
        self.loss = LABEL_LOSSES[loss] if isinstance(loss, str) else loss
        self.labels, self.classes = self.loss.read(labels, classes, self.inputs.shape[0])

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return self.loss.width(self.classes), self.inputs.shape[1]

    @property
    @override
    def loss_name(self) -> str:
        return self.loss.name

    @checked
    @override
    def value_and_gradient(self, matrix: Matrix) -> tuple[Scalar, Matrix]:
        return self.loss.value_and_gradient(self.inputs, self.labels, matrix)

    @checked
    @override
    def output_value(self, outputs: Outputs) -> Scalar:
        return jnp.mean(self.loss.values(outputs, self.labels))

    @checked
    @override
    def output_gradient(self, outputs: Outputs) -> Outputs:
        return self.loss.gradients(outputs, self.labels) / outputs.shape[0]

    @checked
    @override
    def output_hessian_action(self, outputs: Outputs, direction: Outputs) -> Outputs:
        return self.loss.hessian_actions(outputs, self.labels, direction) / outputs.shape[0]

    @override
    def output_bounds(self, outputs: Outputs, changes: PerSample) -> OutputBounds:
        return self.loss.bounds(outputs, self.labels, changes)

    @override
    def output_rounding(self, outputs: Outputs) -> Rounding:
        return self.loss.rounding(outputs, self.labels)

    @override
    def second_by_rounding(
        self, outputs: Outputs, off: PerSample, steepness: PerSample
    ) -> PerSample:
        return self.loss.second_by_rounding(outputs, self.labels, off, steepness)

    @property
    @override
    def largest_gradient(self) -> float | None:
        return self.loss.largest_gradient

    @property
    @override
    def least_output_value(self) -> Scalar:
        return jnp.asarray(self.loss.least_value, self.inputs.dtype)

    @property
    @override
    def accuracy(self) -> Callable[[Outputs], Scalar]:
        return self._accuracy

    @checked
    def _accuracy(self, outputs: Outputs) -> Scalar:
        share = jnp.mean(self.loss.hits(outputs, self.labels), dtype=outputs.dtype)
        return jnp.where(jnp.any(jnp.isnan(outputs)), jnp.nan, share)  # a diverged run has none
