"""Objectives that another library computes, on the host: JAX cannot trace them.

Such an objective gives its value, its gradient and its products with the Hessian in NumPy's arrays.
What looks at one point at a time (descent, eigenvalues) calls them as they are; loops that JAX has
compiled (the solvers of flows) call back to them. A callback costs some tenths of a millisecond,
which is little beside a gradient, and less than the same loop takes uncompiled.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import is_traced, require_alike
from thalweg._typing import AnyWeights
from thalweg.objective.base import AbstractObjective, require_dense

Product = Callable[[AnyWeights], AnyWeights]


class AbstractHostObjective(AbstractObjective):
    """A function of weights that is computed outside of JAX; the three methods below define it.

    They are given a pytree of NumPy arrays, and return such.
    """

    @abstractmethod
    def value_on_host(self, weights: AnyWeights) -> Any:
        """The value."""

    @abstractmethod
    def gradient_on_host(self, weights: AnyWeights) -> tuple[Any, AnyWeights]:
        """The value and the gradient."""

    @abstractmethod
    def product_on_host(self, weights: AnyWeights) -> Product:
        """The function v -> H v with the Hessian H at the weights, for several v."""

    @property
    @override
    def on_host(self) -> bool:
        return True

    @override
    def __call__(self, weights: AnyWeights) -> Any:
        if not _any_traced(weights):
            return self.value_on_host(_as_numpy(self.as_weights(weights, many=False)))
        value = jax.custom_jvp(self._value_called_back)

        @value.defjvp
        def _(points: tuple, changes: tuple) -> tuple[Any, Any]:  # pyright: ignore[reportUnusedFunction]
            found, gradient = self.value_and_gradient(points[0])
            return found, _inner(gradient, changes[0])

        return value(weights)

    @checked
    @override
    def value_and_gradient(self, weights: AnyWeights) -> tuple[Any, AnyWeights]:
        if not _any_traced(weights):
            return self.gradient_on_host(_as_numpy(weights))
        both = jax.custom_jvp(self._gradient_called_back)

        @both.defjvp
        def _(points: tuple, changes: tuple) -> tuple[Any, Any]:  # pyright: ignore[reportUnusedFunction]
            found = self.value_and_gradient(points[0])
            change = _inner(found[1], changes[0])
            return found, (change, self._product_called_back(points[0], changes[0]))

        return both(weights)

    @checked
    @override
    def hvp(self, weights: AnyWeights, direction: AnyWeights) -> AnyWeights:
        require_alike("direction", direction, "weights", weights)
        if _any_traced(weights) or _any_traced(direction):
            return self._product_called_back(weights, direction)
        return self.product_on_host(_as_numpy(weights))(_as_numpy(direction))

    @checked
    @override
    def hessian(self, weights: AnyWeights) -> Float[Any, "size size"]:
        if _any_traced(weights):
            return super().hessian(weights)
        point = _as_numpy(weights)
        flat, unravel = flattened(point), ravel_pytree(point)[1]
        require_dense(flat.size)
        product = self.product_on_host(point)
        units: Any = np.eye(flat.size, dtype=flat.dtype)
        columns = np.stack([flattened(product(_as_numpy(unravel(each)))) for each in units])
        return (columns + columns.T) / 2

    # --- from loops that JAX has compiled ----------------------------------------------------

    def _value_called_back(self, weights: AnyWeights) -> Any:
        return _called(self.value_on_host, _number_of(weights), weights)

    def _gradient_called_back(self, weights: AnyWeights) -> tuple[Any, AnyWeights]:
        return _called(self.gradient_on_host, (_number_of(weights), _like(weights)), weights)

    def _product_called_back(self, weights: AnyWeights, direction: AnyWeights) -> AnyWeights:
        self.require_products(weights)
        return _called(
            lambda point, change: self.product_on_host(point)(change),
            _like(weights),
            weights,
            jax.tree.map(lambda change, like: change.astype(like.dtype), direction, weights),
        )

    def require_products(self, weights: AnyWeights) -> None:
        """Refuse, while a loop is compiled, what has no second derivatives; by default nothing."""


def flattened(weights: AnyWeights) -> Float[np.ndarray, " size"]:
    """The arrays in turn, each row by row, as one vector; nothing is compiled for their shapes."""
    return np.concatenate([np.ravel(array) for array in jax.tree.leaves(weights)])


def _called(function: Callable[..., Any], shapes: Any, *arguments: Any) -> Any:
    def on_host(*given: Any) -> Any:
        return jax.tree.map(
            lambda found, shape: np.asarray(found, shape.dtype),
            function(*map(_as_numpy, given)),
            shapes,
        )

    arrays = jax.tree.map(jnp.asarray, arguments)
    return jax.pure_callback(on_host, shapes, *arrays, vmap_method="sequential")


def _any_traced(weights: AnyWeights) -> bool:
    return any(map(is_traced, jax.tree.leaves(weights)))


def _as_numpy(weights: AnyWeights) -> AnyWeights:
    return jax.tree.map(np.asarray, weights)


def _like(weights: AnyWeights) -> AnyWeights:
    return jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), weights)


def _number_of(weights: AnyWeights) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), jnp.result_type(*jax.tree.leaves(weights)))


def _inner(left: AnyWeights, right: AnyWeights) -> Any:
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), left, right)
    return sum(jax.tree.leaves(products))
