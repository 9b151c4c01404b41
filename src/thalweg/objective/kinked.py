"""The gradient of a network on a problem for given masks: what a flow across kinks is made of."""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg.network.kinks import AbstractKinks, Arrays, Backward, Forward, Index, Masks, Rows
from thalweg.problem import AbstractProblem


@dataclass(frozen=True)
class Evaluation:
    """A point, and the gradient there for some masks.

    `image` is the output of the first layer with the gradient for weights.
    """

    forward: Forward
    backward: Backward
    gradient: Arrays
    image: Rows
    masks: Masks

    @property
    def z(self) -> Masks:
        """The functions whose signs select the piece."""
        return self.forward.z

    @property
    def deltas(self) -> Masks:
        """What the gradient jumps by, in units of grad z."""
        return self.backward.deltas


class KinkedObjective:
    """An objective with its kinks laid open; `gradients` counts what was evaluated.

    By operations: a pass through the network, or back, is one half, a part of it that part.
    """

    def __init__(self, kinks: AbstractKinks, problem: AbstractProblem, weight_decay: float):
        """Take the network's kinks on the problem's samples, the problem, and the decay."""
        self.kinks = kinks
        self.gradients = 0.0
        self._problem, self._decay = problem, weight_decay

    def start(self, weights: Arrays) -> Forward:
        """The pass through the network, by the signs that it meets."""
        self.gradients += 0.5
        return self.kinks.forward(weights, self.kinks.image(weights))

    def onwards(self, point: Evaluation, along: Evaluation, step: float, masks: Any) -> Forward:
        """The pass at a point, moved by a step down the gradient of an evaluation."""
        self.gradients += 0.5 * self.kinks.upper_share
        pairs = zip(point.forward.weights, along.gradient, strict=True)
        weights = tuple(weight - step * slope for weight, slope in pairs)
        first = point.z[:, : along.image.shape[1]]
        return self.kinks.forward(weights, first - step * along.image, masks)

    def evaluate(self, forward: Forward, masks: Masks) -> Evaluation:
        """The gradient where a pass has been, which had these masks."""
        self.gradients += 0.5 + 0.5 * (1 - self.kinks.upper_share)
        backward = self.kinks.backward(forward, self._output_slopes(forward.outputs))
        gradient = self.kinks.gradient(forward, backward)
        if self._decay:
            pairs = zip(gradient, forward.weights, strict=True)
            gradient = tuple(part + self._decay * weight for part, weight in pairs)
        return Evaluation(forward, backward, gradient, self.kinks.image(gradient), masks)

    def spread(self, at: Evaluation, factors: Masks) -> Arrays:
        """The sum of factor_i grad z_i."""
        self.gradients += 0.5 + 0.5 * (1 - self.kinks.upper_share)
        return self.kinks.spread(at.forward, factors)

    def remasked(self, old: Evaluation, masks: Masks) -> Evaluation:
        """The same point with other masks; only samples for which they differ are passed again."""
        rows = np.flatnonzero(np.any(masks != old.masks, axis=1))
        if rows.size == 0:
            return old
        if self.kinks.crowded:
            self.gradients += 0.5
            return self.evaluate(self.kinks.forward(old.forward.weights, old.image, masks), masks)
        self.gradients += rows.size / self.kinks.samples
        forward = self.kinks.remasked(old.forward, rows, masks[rows])
        outputs = _replaced(old.forward.outputs, rows, forward.outputs)
        backward = self.kinks.backward(forward, self._output_slopes(outputs)[rows])
        change, image = self.kinks.change((old.forward, old.backward), (forward, backward), rows)
        return Evaluation(
            replace(
                old.forward,
                inputs=(
                    old.forward.inputs[0],
                    *_all_replaced(old.forward.inputs[1:], rows, forward.inputs[1:]),
                ),
                slopes=_all_replaced(old.forward.slopes, rows, forward.slopes),
                z=_replaced(old.forward.z, rows, forward.z),
                outputs=outputs,
            ),
            Backward(
                _all_replaced(old.backward.slopes, rows, backward.slopes),
                _replaced(old.backward.deltas, rows, backward.deltas),
            ),
            tuple(whole + part for whole, part in zip(old.gradient, change, strict=True)),
            old.image + image,
            masks,
        )

    def _output_slopes(self, outputs: Float[np.ndarray, "samples outputs"]) -> np.ndarray:
        return np.asarray(_output_gradient(self._problem, jnp.asarray(outputs)), float)


@eqx.filter_jit
def _output_gradient(
    problem: AbstractProblem, outputs: Float[Array, "samples outputs"]
) -> Float[Array, "samples outputs"]:
    return problem.output_gradient(outputs)


def _replaced(whole: np.ndarray, rows: Index, part: np.ndarray) -> np.ndarray:
    found = whole.copy()
    found[rows] = part
    return found


def _all_replaced(wholes: Arrays, rows: Index, parts: Arrays) -> Arrays:
    pairs = zip(wholes, parts, strict=True)
    return tuple(_replaced(whole, rows, part) for whole, part in pairs)
