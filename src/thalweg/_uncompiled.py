"""Functions that are written for JAX, evaluated in NumPy: traced once, never compiled.

XLA takes a second or two to compile a function of a deep network that then runs for milliseconds.
Where few numbers are asked for, at the points of a trajectory of a small network, JAX's trace of
the function is gone through here, one operation of NumPy for each of its primitives, at many points
at once. Results differ from JAX's by rounding. What has no counterpart in the tables below is left
to JAX.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from thalweg._checks import is_array

_AT_ONCE = 128  # points, whose intermediate results are all in memory


class NoCounterpartError(Exception):
    """There is no operation of NumPy's for a primitive of JAX's."""


def evaluated(function: Callable[..., Any], common: Any, points: Any) -> Any:
    """`function(common, point)` at each point, for points stacked along their first axes.

    The function is traced once for each of its shapes, if it belongs to a module. Raises
    `NoCounterpartError` where NumPy cannot do what it does.
    """
    points = jax.tree.map(np.asarray, points)
    parts = []
    for begin in range(0, len(jax.tree.leaves(points)[0]), _AT_ONCE):
        few = jax.tree.map(lambda array, i=begin: array[i : i + _AT_ONCE], points)
        parts.append(_evaluated(function, common, few))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def _evaluated(function: Callable[..., Any], common: Any, points: Any) -> Any:
    arrays, static = eqx.partition((common, points), is_array)
    leaves, tree = jax.tree.flatten(arrays)
    kept, kept_tree = jax.tree.flatten(static)
    kinds = tuple((np.shape(leaf), np.dtype(leaf.dtype)) for leaf in leaves)
    closed, result = _traced(function, tree, kinds, tuple(kept), kept_tree)
    with np.errstate(all="ignore"):
        found = _run(closed.jaxpr, closed.consts, [np.asarray(leaf) for leaf in leaves])
    return jax.tree.unflatten(result, found)


@lru_cache(maxsize=64)
def _traced(function: Any, tree: Any, kinds: Any, kept: Any, kept_tree: Any) -> tuple[Any, Any]:
    def mapped(*leaves: Any) -> Any:
        static = jax.tree.unflatten(kept_tree, kept)
        common, points = eqx.combine(jax.tree.unflatten(tree, leaves), static)
        return jax.vmap(lambda point: function(common, point))(points)

    examples = [jax.ShapeDtypeStruct(*kind) for kind in kinds]
    closed, shapes = jax.make_jaxpr(mapped, return_shape=True)(*examples)
    return closed, jax.tree.structure(shapes)


def _run(jaxpr: Any, constants: Any, arguments: list[Any]) -> list[np.ndarray]:
    """Go through the equations of a trace."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments), strict=True))
    for each in jaxpr.eqns:
        given = [_value(name, known) for name in each.invars]
        found = _applied(each.primitive.name, given, each.params)
        known.update(zip(each.outvars, found, strict=True))
    return [_value(name, known) for name in jaxpr.outvars]


def _value(name: Any, known: dict[Any, Any]) -> np.ndarray:
    return np.asarray(name.val if isinstance(name, Literal) else known[name])


def _applied(name: str, given: list[np.ndarray], settings: dict[str, Any]) -> list[np.ndarray]:
    if name in _DIRECT:
        return [np.asarray(_DIRECT[name](*given))]
    if name in _WITH_SETTINGS:
        return [np.asarray(_WITH_SETTINGS[name](settings, *given))]
    if name in _SEVERAL:
        return _SEVERAL[name](settings, *given)
    for inner in ("jaxpr", "call_jaxpr"):  # a function that is called
        if name in ("jit", "pjit", "custom_jvp_call", "custom_vjp_call") and inner in settings:
            called = settings[inner]
            if isinstance(called, ClosedJaxpr):
                return _run(called.jaxpr, called.consts, given)
            return _run(called, (), given)
    raise NoCounterpartError(name)


# --- primitives ----------------------------------------------------------------------------------

_DIRECT: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative,
    "div": np.divide, "max": np.maximum, "min": np.minimum, "abs": np.abs, "sign": np.sign,
    "sqrt": np.sqrt, "square": np.square, "pow": np.power, "exp": np.exp, "log": np.log,
    "log1p": np.log1p, "expm1": np.expm1, "tanh": np.tanh, "is_finite": np.isfinite,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or,
    "not": np.logical_not, "copy": np.array, "stop_gradient": np.asarray,
    "add_any": np.add, "rsqrt": lambda x: 1 / np.sqrt(x),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "select_n": lambda which, *cases: np.where(which, cases[1], cases[0]),
}  # fmt: skip


def _product(settings: dict[str, Any], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Of the axes that both share, those that are summed over, and what is left of each."""
    (summed_left, summed_right), (shared_left, shared_right) = settings["dimension_numbers"]
    free_left = [i for i in range(left.ndim) if i not in (*summed_left, *shared_left)]
    free_right = [i for i in range(right.ndim) if i not in (*summed_right, *shared_right)]
    shared = [left.shape[i] for i in shared_left]
    above, below = [left.shape[i] for i in free_left], [right.shape[i] for i in free_right]
    a = left.transpose(*shared_left, *free_left, *summed_left)
    b = right.transpose(*shared_right, *summed_right, *free_right)
    inner = int(np.prod([left.shape[i] for i in summed_left]))
    rows, columns = int(np.prod(above)), int(np.prod(below))
    found = a.reshape(*shared, rows, inner) @ b.reshape(*shared, inner, columns)
    return found.reshape(*shared, *above, *below)


def _spread(settings: dict[str, Any], x: np.ndarray, *_: Any) -> np.ndarray:
    shape, places = settings["shape"], settings["broadcast_dimensions"]
    sizes = [1] * len(shape)
    for axis, place in enumerate(places):
        sizes[place] = x.shape[axis]
    return np.broadcast_to(x.reshape(sizes), shape)


def _padded(settings: dict[str, Any], x: np.ndarray, filling: np.ndarray) -> np.ndarray:
    sides = settings["padding_config"]
    if any(low < 0 or high < 0 or inner for low, high, inner in sides):
        raise NoCounterpartError("pad")
    return np.pad(x, [side[:2] for side in sides], constant_values=filling)


def _numbered(settings: dict[str, Any], *_: Any) -> np.ndarray:
    shape, axis = settings["shape"], settings["dimension"]
    sizes = [length if place == axis else 1 for place, length in enumerate(shape)]
    numbers = np.arange(shape[axis], dtype=settings["dtype"]).reshape(sizes)
    return np.broadcast_to(numbers, shape)


def _sorted(settings: dict[str, Any], x: np.ndarray, *others: Any) -> np.ndarray:
    if others:
        raise NoCounterpartError("sort")
    return np.sort(x, axis=settings["dimension"])


def _taken(settings: dict[str, Any], x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Entries along one axis, which `jnp.take` asks for."""
    how, sizes = settings["dimension_numbers"], list(settings["slice_sizes"])
    axis, *others = how.start_index_map
    whole = [1 if each == axis else length for each, length in enumerate(x.shape)]
    plain = how.collapsed_slice_dims == (axis,) and places.ndim == 2 and sizes == whole
    kept = tuple(each for each in range(x.ndim) if each != axis)
    inside = np.all((places >= 0) & (places < x.shape[axis]))
    if others or how.operand_batching_dims or how.offset_dims != kept or not (plain and inside):
        raise NoCounterpartError("gather")
    return np.take(x, places[:, 0], axis=axis)


_WITH_SETTINGS: dict[str, Callable[..., np.ndarray]] = {
    "gather": _taken,
    "dot_general": _product,
    "broadcast_in_dim": _spread,
    "pad": _padded,
    "iota": _numbered,
    "sort": _sorted,
    "integer_pow": lambda how, x: x ** how["y"] if how["y"] >= 0 else 1 / x ** -how["y"],
    "convert_element_type": lambda how, x: x.astype(how["new_dtype"]),
    "transpose": lambda how, x: x.transpose(how["permutation"]),
    "reshape": lambda how, x, *_: x.reshape(how["new_sizes"]),
    "squeeze": lambda how, x: x.squeeze(tuple(how["dimensions"])),
    "rev": lambda how, x: np.flip(x, how["dimensions"]),
    "stack": lambda how, *xs: np.stack(xs, how["axis"]),
    "concatenate": lambda how, *xs: np.concatenate(xs, how["dimension"]),
    "reduce_sum": lambda how, x: np.sum(x, axis=tuple(how["axes"])),
    "reduce_prod": lambda how, x: np.prod(x, axis=tuple(how["axes"])),
    "reduce_max": lambda how, x: np.max(x, axis=tuple(how["axes"])),
    "reduce_min": lambda how, x: np.min(x, axis=tuple(how["axes"])),
    "reduce_and": lambda how, x: np.all(x, axis=tuple(how["axes"])),
    "reduce_or": lambda how, x: np.any(x, axis=tuple(how["axes"])),
    "slice": lambda how, x: x[
        tuple(
            slice(*each)
            for each in zip(
                how["start_indices"],
                how["limit_indices"],
                how["strides"] or [1] * x.ndim,
                strict=True,
            )
        )
    ],
}


def _finite(matrices: np.ndarray) -> tuple[Any, np.ndarray]:
    """Which matrices are finite, and zeros in the place of the others: LAPACK refuses them."""
    fine = np.all(np.isfinite(matrices), axis=(-2, -1), keepdims=True)
    return fine, np.where(fine, matrices, 0.0)


def _singular_values(settings: dict[str, Any], matrices: np.ndarray) -> list[np.ndarray]:
    if settings.get("subset_by_index") is not None:
        raise NoCounterpartError("svd")
    fine, known = _finite(matrices)
    if not settings["compute_uv"]:
        return [np.where(fine[..., 0], np.linalg.svd(known, compute_uv=False), np.nan)]
    left, values, right = np.linalg.svd(known, full_matrices=settings["full_matrices"])
    return [
        np.where(fine[..., 0], values, np.nan),
        *(np.where(fine, v, np.nan) for v in (left, right)),
    ]


def _eigenvectors(settings: dict[str, Any], matrices: np.ndarray) -> list[np.ndarray]:
    if settings.get("subset_by_index") is not None:
        raise NoCounterpartError("eigh")
    fine, known = _finite(matrices)
    values, vectors = np.linalg.eigh(known, UPLO="L" if settings["lower"] else "U")
    return [np.where(fine, vectors, np.nan), np.where(fine[..., 0], values, np.nan)]


def _cut(settings: dict[str, Any], x: np.ndarray) -> list[np.ndarray]:
    return np.split(x, np.cumsum(settings["sizes"])[:-1], axis=settings["axis"])


_SEVERAL: dict[str, Callable[..., list[np.ndarray]]] = {
    "svd": _singular_values,
    "eigh": _eigenvectors,
    "split": _cut,
}
