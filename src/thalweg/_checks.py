"""One sentence for bad input: what must hold, what was got, where, and the likely fix.

Values can only be looked at outside of `jax.jit`; inside, the checks on values pass silently and
those on shapes still speak.
"""

from typing import Any

import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class InputError(ValueError):
    """What the caller gave cannot be used; the message is one sentence with the fix."""


def is_traced(value: Any) -> bool:
    """Whether JAX is tracing this value, so that it cannot be looked at."""
    return isinstance(value, jax.core.Tracer)


def as_floating(name: str, values: Any) -> Float[Array, "..."]:
    """The values as a finite floating array; integers and lists become float64."""
    try:
        array = jnp.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`{name}` must be an array of numbers, got {type(values).__name__}: {error}."
        ) from error
    if not jnp.issubdtype(array.dtype, jnp.floating):
        if not (jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == jnp.bool_):
            raise InputError(f"`{name}` must hold real numbers, got dtype {array.dtype}.")
        array = array.astype(jnp.result_type(float))
    require_finite(name, array)
    return array


def require_finite(name: str, array: Array) -> None:
    """Refuse NaN and infinity, and say where the first one is."""
    if is_traced(array):
        return
    finite = np.isfinite(np.asarray(array))
    if not finite.all():
        where = tuple(int(index) for index in np.argwhere(~finite)[0])
        value = np.asarray(array)[where]
        raise InputError(
            f"`{name}` must be finite, got {value} at index {where} "
            f"({int((~finite).sum())} of {finite.size} entries are NaN or infinite); "
            "drop or impute those samples first."
        )


def require_positive(name: str, value: Any) -> None:
    """Refuse zero, negative and NaN numbers, alone or in an array."""
    if is_traced(value):
        return
    array = np.asarray(value)
    if not np.all(array > 0) or not np.all(np.isfinite(array)):
        bad = array[~((array > 0) & np.isfinite(array))].ravel()[0]
        raise InputError(f"`{name}` must be positive and finite, got {bad}.")


def require_count(name: str, value: Any, least: int = 1) -> int:
    """The value as an int, which must be whole and at least `least`."""
    if isinstance(value, bool) or int(value) != value or value < least:
        raise InputError(f"`{name}` must be a whole number >= {least}, got {value}.")
    return int(value)
