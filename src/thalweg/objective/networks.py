"""A network on a problem: f(weights) = loss of the network + weight_decay / 2 |weights|^2.

Linear networks never see the samples where triangular factors of them suffice, and multiply their
layers first where they must see them; every other network is differentiated automatically.
"""

from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._arguments import as_layers, checked
from thalweg._checks import InputError, as_floating, described, is_traced, placed, require_ordinary
from thalweg._typing import Scalar, Weights
from thalweg.kernels.chain import Chain, chain_of
from thalweg.network import AbstractNetwork, LinearNetwork
from thalweg.objective.base import AbstractObjective, floating
from thalweg.objective.kinked import KinkedObjective
from thalweg.problem import AbstractProblem


@final
class Objective(AbstractObjective):
    """A network on a problem, as a function of the network's weights."""

    network: AbstractNetwork
    problem: AbstractProblem
    _weight_decay: Scalar | None  # None where there is none, so that a zero costs nothing

    @checked
    def __init__(self, network: AbstractNetwork, problem: AbstractProblem, weight_decay: Any = 0.0):
        """Take a network and a problem that fit, and lambda of the term lambda / 2 |weights|^2."""
        self.network = network
        self.problem = problem
        self._weight_decay = _checked_decay(weight_decay)
        _require_fit(network, problem)

    @property
    def weight_decay(self) -> Scalar:
        """Lambda of the term lambda / 2 |weights|^2."""
        return placed(np.zeros(())) if self._weight_decay is None else self._weight_decay

    @property
    def least_value(self) -> Scalar:
        """What no value is below, whatever the weights; minus infinity where that is not known.

        The problem's least value is that of linear predictors, below which other networks may go.
        """
        linear = self.linear is not None
        return self.problem.least_value if linear else self.problem.least_output_value

    @property
    @override
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.network.shapes

    @property
    @override
    def smooth(self) -> bool:
        return self.network.smooth and self.problem.smooth

    @property
    @override
    def linear(self) -> LinearNetwork | None:
        return self.network.linear

    @property
    @override
    def chain(self) -> Chain | None:
        linear, squares = self.linear, self.problem.squared_distance
        if linear is None or squares is None:
            return None
        return chain_of(
            linear.widths,
            linear.readout,
            squares.factor,
            squares.target,
            scale=squares.scale,
            minimum=squares.minimum,
            decay=float(self.weight_decay),
        )

    @property
    @override
    def kinked(self) -> KinkedObjective | None:
        kinks = self.network.kinks_on(np.asarray(self.problem.inputs, float))
        if kinks is None or not self.problem.smooth:
            return None
        return KinkedObjective(kinks, self.problem, float(self.weight_decay))

    @override
    def operations(self, weights: Any = None) -> int:
        # A product takes two operations per number, there are three for each layer.
        outputs, features = self.problem.shape
        if self.linear is None:
            return 6 * self.network.size * self.problem.inputs.shape[0]
        return 6 * self.network.size * min(outputs, features) + 6 * outputs * features**2

    @override
    def as_weights(self, weights: Any, *, name: str = "weights", many: bool = True) -> Weights:
        layers = as_layers(name, weights)
        self.check(layers, name=name, many=many)
        return layers

    @override
    def check(self, weights: Any, *, name: str = "weights", many: bool = True) -> None:
        self.network.check(weights, name=name, many=many)

    @checked
    @override
    def __call__(self, weights: Weights) -> Scalar:
        weights = floating(weights)
        linear = self.linear
        if linear is not None:
            loss = self.problem.value(linear.end_to_end(weights))
        else:
            loss = self._sample_loss(weights)
        return self._with_decay(loss, weights)

    @override
    def as_precise(self, weights: Weights) -> Weights:
        """Weights as precise as loss and gradient are, which the data may make more precise."""
        if all(layer.dtype == np.float64 for layer in weights):
            return weights
        pairs = zip(self.shapes, weights, strict=True)
        one = tuple(jax.ShapeDtypeStruct(shape, layer.dtype) for shape, layer in pairs)
        value, gradient = jax.eval_shape(self.value_and_gradient, one)
        precise = np.result_type(value.dtype, *(each.dtype for each in gradient))
        return tuple(layer.astype(precise) for layer in weights)

    @checked
    @override
    def value_and_gradient(self, weights: Weights) -> tuple[Scalar, Weights]:
        weights = floating(weights)
        linear = self.linear
        if linear is not None:
            value, gradient = linear.value_and_gradient(weights, self.problem.value_and_gradient)
        else:
            value, gradient = jax.value_and_grad(self._sample_loss)(weights)
        return self._with_decay(value, weights), self._with_decay_gradient(gradient, weights)

    @override
    def value_and_gradient_in_lanes(
        self, weights: Weights
    ) -> tuple[Float[Array, " lanes"], Weights]:
        linear = self.linear
        if linear is not None:
            value, gradient = linear.value_and_gradient_in_lanes(
                weights, self.problem.value_and_gradient_in_lanes
            )
        else:
            value, gradient = jax.vmap(
                jax.value_and_grad(self._sample_loss), in_axes=-1, out_axes=(0, -1)
            )(weights)
        value = jax.vmap(self._with_decay, in_axes=(0, -1))(value, weights)
        return value, self._with_decay_gradient(gradient, weights)

    def _sample_loss(self, weights: Weights) -> Scalar:
        inputs, wanted = self.problem.inputs, self.problem.shape[0]
        outputs = self.network(weights, inputs)
        if outputs.shape != (inputs.shape[0], wanted):  # it would be broadcast against the targets
            raise InputError(
                f"The network must return one row of {wanted} outputs per sample, got shape "
                f"{outputs.shape} for {inputs.shape[0]} samples."
            )
        return self.problem.output_value(outputs)

    def _with_decay(self, value: Scalar, weights: Weights) -> Scalar:
        if self._weight_decay is None:
            return value
        squares = sum(jnp.sum(array**2) for array in weights)
        return value + self._weight_decay.astype(value.dtype) / 2 * squares

    def _with_decay_gradient(self, gradient: Weights, weights: Weights) -> Weights:
        if self._weight_decay is None:
            return gradient
        decay = self._weight_decay.astype(weights[0].dtype)
        return jax.tree.map(lambda part, array: part + decay * array, gradient, weights)


def _checked_decay(weight_decay: Any) -> Scalar | None:
    if isinstance(weight_decay, int | float) and weight_decay == 0:
        return None
    decay = as_floating("weight_decay", weight_decay)
    if decay.shape != () or (not is_traced(decay) and decay < 0):
        raise InputError(f"`weight_decay` must be one number >= 0, got {described(weight_decay)}.")
    require_ordinary("weight_decay", decay)
    return decay


def _require_fit(network: AbstractNetwork, problem: AbstractProblem) -> None:
    outputs, features = problem.shape
    if network.features not in (None, features):
        raise InputError(
            f"The input dimension must match: the network takes {network.features} features, the "
            f"problem has {features}."
        )
    if network.outputs not in (None, outputs):
        raise InputError(
            f"The output dimension must match: the network has {network.outputs} outputs, the "
            f"problem {outputs}."
        )
