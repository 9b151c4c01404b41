"""A function of an objective at many points, such as those that a trajectory recorded."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from thalweg._uncompiled import NoCounterpartError, evaluated
from thalweg.objective.base import AbstractObjective

_SMALL = 2000  # weights of a linear network; above, compiled code is worth its time
_SMALL_ALONE = 10_000  # the same at a single point


def at_points(
    function: Callable[..., Any], objective: AbstractObjective, points: Any, *known: Any
) -> Any:
    """`function(objective, point, *known)` at each point, as NumPy arrays.

    Args:
        function: of a module, so that it is traced once for all objectives of one shape.
        objective: of any kind; linear networks of few weights are evaluated in NumPy.
        points: weights, or any tree of arrays, one entry per point along the first axis.
        known: what else the function takes.
    """
    common = (objective, known)
    alone = len(jax.tree.leaves(points)[0]) == 1
    if _is_small(objective, _SMALL_ALONE if alone else _SMALL):
        try:
            return evaluated(_Applied(function), common, points)
        except NoCounterpartError:
            pass
    found = _compiled(_Applied(function), common, jax.tree.map(jnp.asarray, points))
    return jax.tree.map(np.asarray, found)


def value_at(objective: AbstractObjective, weights: Any) -> float:
    """The objective at one point, as a number."""
    return float(_at(_value, objective, weights))


def gradient_at(objective: Any, weights: Any) -> tuple[np.ndarray, ...]:
    """The gradient at one point, as NumPy arrays."""
    return _at(_gradient, objective, weights)


def _at(function: Callable[..., Any], objective: Any, weights: Any) -> Any:
    if not _is_small(objective, _SMALL_ALONE):
        return jax.tree.map(np.asarray, function(objective, weights))
    one = jax.tree.map(lambda array: np.asarray(array)[None], weights)
    return jax.tree.map(lambda array: array[0], at_points(function, objective, one))


def _is_small(objective: AbstractObjective, most: int) -> bool:
    return objective.linear is not None and objective.linear.size <= most


def _value(objective: Any, weights: Any) -> Any:
    return objective(weights)


def _gradient(objective: Any, weights: Any) -> Any:
    return objective.gradient(weights)


class _Applied(eqx.Module):
    """The function, of what is the same for all points and of a point."""

    function: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, common: tuple[AbstractObjective, tuple[Any, ...]], point: Any) -> Any:
        objective, known = common
        return self.function(objective, point, *known)


@eqx.filter_jit
def _compiled(function: _Applied, common: Any, points: Any) -> Any:
    return jax.lax.map(lambda point: function(common, point), points)
