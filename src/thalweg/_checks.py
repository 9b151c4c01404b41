"""One sentence for bad input: what must hold, what was got, where, and the likely fix.

Values can only be looked at outside of `jax.jit`; inside, the checks on values pass silently and
those on shapes still speak.
"""

from typing import Any

import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thalweg._errors import InputError as InputError


def is_traced(value: Any) -> bool:
    """Whether JAX is tracing this value, so that it cannot be looked at."""
    return isinstance(value, jax.core.Tracer)


def as_floating(name: str, values: Any) -> Float[Array, "..."]:
    """The values as a finite floating array; integers and lists become float64."""
    try:
        array = jnp.asarray(values)
    except (TypeError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise InputError(
            f"`{name}` must be an array of numbers, got {type(values).__name__}: {reason}."
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
    try:
        whole = not isinstance(value, bool) and int(value) == value
    except (TypeError, ValueError, OverflowError):  # a word, None, NaN, infinity
        whole = False
    if not whole or value < least:
        raise InputError(f"`{name}` must be a whole number >= {least}, got {value}.")
    return int(value)


def samples(x: Any) -> Float[Array, "samples features"]:
    """The samples as rows of finite numbers, at least one of each."""
    inputs = as_floating("x", x)
    if inputs.ndim != 2:
        raise InputError(
            f"`x` must have one row per sample and one column per feature, got shape "
            f"{inputs.shape}; images are flattened with x.reshape(len(x), -1)."
        )
    if 0 in inputs.shape:
        raise InputError(
            f"`x` must hold at least one sample and feature, got shape {inputs.shape}."
        )
    return inputs


def samples_and_targets(
    x: Any, y: Any
) -> tuple[Float[Array, "samples features"], Float[Array, "samples outputs"]]:
    """The samples, and the targets as one row per sample; a vector of targets is one output."""
    inputs = samples(x)
    targets = as_floating("y", y).astype(inputs.dtype)
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2 or targets.shape[0] != inputs.shape[0] or targets.shape[1] == 0:
        raise InputError(
            f"`y` must have one row per sample of `x` ({inputs.shape[0]}), got shape "
            f"{targets.shape}; is one of them transposed?"
        )
    return inputs, targets


def _whole_labels(labels: Any, count: int) -> Int[Array, " samples"]:
    array = as_floating("labels", labels)
    if array.shape != (count,):
        raise InputError(
            f"`labels` must be a vector with one entry per sample ({count}), got shape "
            f"{array.shape}; one-hot rows become labels with argmax(axis=1)."
        )
    if not is_traced(array):
        values = np.asarray(array)
        broken = values[values != np.round(values)]
        if broken.size:
            raise InputError(
                f"`labels` must be whole numbers, got {broken[0]}; real targets belong in a "
                "Regression."
            )
    return array.astype(int)


def class_labels(
    labels: Any, classes: int | None, count: int
) -> tuple[Int[Array, " samples"], int]:
    """The labels as integers 0, ..., classes - 1, and how many classes there are."""
    array = _whole_labels(labels, count)
    total = None if classes is None else require_count("classes", classes, least=2)
    if is_traced(array):
        if total is None:
            raise InputError("`classes` must be given when the labels are traced by JAX.")
        return array, total
    low, high = int(array.min()), int(array.max())
    if total is None and high == 0:
        raise InputError(
            "`labels` must name at least two classes, got only 0; give `classes` if the others "
            "have no sample here."
        )
    total = high + 1 if total is None else total
    if low < 0 or high >= total:
        raise InputError(
            f"`labels` must lie in 0, ..., {total - 1} for {total} classes, got {low} to {high}; "
            "labels that start at 1 need a shift, and `classes` must count all."
        )
    return array, total


def signs(labels: Any, count: int) -> Int[Array, " samples"]:
    """The two labels as -1 and 1."""
    array = _whole_labels(labels, count)
    either = jnp.where(array == 1, jnp.ones_like(array), -1)
    if is_traced(array):
        return either
    found = set(np.unique(np.asarray(array)).tolist())
    if not (found <= {-1, 1} or found <= {0, 1}):
        raise InputError(
            f"`labels` of a margin loss must be -1 and 1, or 0 and 1, got {sorted(found)[:5]}; "
            "more than two classes need loss='cross_entropy'."
        )
    return either
