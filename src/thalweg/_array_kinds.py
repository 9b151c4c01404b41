"""The kinds of arguments that are numbers, keys, arrays or weights; this needs JAX.

Values that JAX traces pass, but for their shapes.
"""

from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, ScalarLike

from thalweg._checks import as_array, is_array, is_traced
from thalweg._kinds import Kind, UnfitError, fit
from thalweg._typing import Weights

NUMBERS = get_args(ScalarLike)
NUMBER = Kind("one number", lambda name, value: _number(name, value))
LAYERS = Kind("a tuple with one array per layer", lambda name, value: _weights(name, value))


def kind_of(annotation: Any) -> Kind | None:
    """The kind that an annotation stands for; None where it is made of several."""
    known = {
        Weights: LAYERS,
        PRNGKeyArray: Kind("a random key", _key),
        ScalarLike: NUMBER,
        float: Kind("one number", lambda name, value: _as_float(_number(name, value))),
        int: Kind("a whole number", _whole, plain=int),
    }
    return _array(annotation) if hasattr(annotation, "dim_str") else known.get(annotation)


# --- numbers, keys and paths ---------------------------------------------------------------------


def _number(name: str, value: Any) -> Any:
    if isinstance(value, float):
        return value
    if isinstance(value, str):
        raise UnfitError("write it without quotes" if _is_numeral(value) else "")
    if isinstance(value, int) and not isinstance(value, bool):
        fit(_is_finite(value), value, "floating point ends near 1.8e308")
        return value if abs(value) < 2**63 else float(value)  # no array holds larger whole ones
    return fit(is_array(value) and value.ndim == 0 and _is_real(value.dtype), value)


def _is_real(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer))


def _as_float(value: Any) -> Any:
    return value if isinstance(value, float) or is_traced(value) else float(value)


def _is_finite(value: int) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _is_numeral(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _whole(name: str, value: Any) -> Any:
    if is_traced(value):
        return value
    number = _number(name, value)
    whole = isinstance(value, int) or (np.isfinite(number) and number == np.round(number))
    fit(bool(whole), value)
    return fit(abs(int(value)) < 2**63, int(value), "whole numbers end at 2^63")


def _key(name: str, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        seed = value if 0 <= value < 2**31 else 0
        raise UnfitError(f"make one: jax.random.key({seed})")
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return fit(value.shape == (), value, "map over several with jax.vmap")
    old = getattr(value, "dtype", None) == np.uint32 and np.shape(value) in ((2,), (4,))
    return jnp.asarray(fit(old, value, "make one: jax.random.key(0)"))


# --- arrays and weights --------------------------------------------------------------------------


def _array(annotation: Any) -> Kind:
    """An array of so many axes, as a jaxtyping annotation says."""
    axes = annotation.dim_str.split()
    loose = any(axis == "..." or axis.startswith("*") for axis in axes)
    rank = "numbers" if loose else {0: "one number", 1: "a vector", 2: "a matrix"}.get(len(axes))
    recorded = annotation.array_type is np.ndarray

    def take(name: str, value: Any) -> Any:
        listed = isinstance(value, list | tuple | int | float | complex)
        fit(listed or hasattr(value, "__array__"), value)
        found = as_array(name, value)
        fit(loose or np.ndim(found) == len(axes), value)
        return np.asarray(found) if recorded and not is_traced(found) else found

    return Kind(rank or f"an array with {len(axes)} axes", take)


def _weights(name: str, value: Any) -> Any:
    if hasattr(value, "final") and hasattr(value, "times"):
        raise UnfitError("give one point of the run, such as `run.final`")
    if is_array(value):
        raise UnfitError("weights of one layer are (array,)")
    fit(isinstance(value, tuple | list), value)
    fit(len(value) > 0, value, "a run that has an `observe` keeps only `run.final`")
    return tuple(_layer(f"{name}[{place}]", array) for place, array in enumerate(value))


def _layer(name: str, array: Any) -> Any:
    ready = is_array(array) and (array.dtype.kind == "f" or _is_real(array.dtype))
    return array if ready else as_array(name, array)
