"""One sentence for bad input: what must hold, what was got, where, and the likely fix.

Values can only be looked at outside of `jax.jit`; inside, the checks on values pass silently and
those on shapes still speak.
"""

from itertools import pairwise
from types import BuiltinFunctionType, FunctionType
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from typing_extensions import TypeIs

from thalweg._errors import InputError as InputError


def is_traced(value: Any) -> bool:
    """Whether JAX is tracing this value, so that it cannot be looked at."""
    return isinstance(value, jax.core.Tracer)


def is_array(value: Any) -> TypeIs[np.ndarray | np.generic | jax.Array]:
    """Whether this is an array or a number of NumPy's or JAX's, traced or not."""
    return isinstance(value, np.ndarray | np.generic | jax.Array)


def described(value: Any) -> str:
    """What was got, in a few words: never a whole array, nor where it is in memory."""
    if is_traced(value):
        return f"a value of shape {value.shape} that JAX traces"
    if isinstance(value, str):
        return f"the text {value[:40]!r}{' ...' if len(value) > 40 else ''}"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a whole number of more than 20 digits"
    if value is None or isinstance(value, int | float | complex | np.generic):
        return f"{value}"
    if is_array(value):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if type(value) in (list, tuple, dict, set, bytes):
        return f"a {type(value).__name__} of length {len(value)}"
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return f"the {'class' if isinstance(value, type) else 'function'} {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def placed(array: np.ndarray | np.generic) -> Array:
    """A copy of NumPy's numbers as JAX's; `jnp.asarray` would compile that for every shape."""
    return jax.device_put(np.array(array))


def as_array(name: str, values: Any) -> Float[Array, "..."]:
    """The values as a floating array; integers and lists become float64."""
    if isinstance(values, np.ndarray | np.generic | float) and _is_usual(values):
        return placed(np.asarray(values))
    try:
        array = jnp.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        uneven = isinstance(values, list | tuple) and "nhomogeneous" in str(error)
        fix = "; are its rows of different lengths?" if uneven else "."
        raise InputError(
            f"`{name}` must be an array of numbers, got {described(values)}{fix}"
        ) from error
    if not jnp.issubdtype(array.dtype, jnp.floating):
        if not (jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == jnp.bool_):
            raise InputError(f"`{name}` must hold real numbers, got dtype {array.dtype}.")
        array = array.astype(jnp.result_type(float))
    return array


def _is_usual(values: Any) -> bool:
    """Whether JAX would take the values as they are."""
    return np.asarray(values).dtype == jnp.result_type(float)


def as_floating(name: str, values: Any, fix: str = "") -> Float[Array, "..."]:
    """The values as a floating array without NaN and infinity, see `require_finite`."""
    array = as_array(name, values)
    require_finite(name, array, fix)
    return array


def require_finite(name: str, array: Array | np.ndarray, fix: str = "") -> None:
    """Refuse NaN and infinity, and say where the first one is, and what may help."""
    if is_traced(array):
        return
    finite = np.isfinite(np.asarray(array))
    if not finite.all():
        where = tuple(int(index) for index in np.argwhere(~finite)[0])
        value = np.asarray(array)[where]
        raise InputError(
            f"`{name}` must be finite, got {value} at index {where} "
            f"({int((~finite).sum())} of {finite.size} entries are NaN or infinite)"
            f"{f'; {fix}' if fix else ''}{'' if fix.endswith('?') else '.'}"
        )


_SMALLEST, _LARGEST = 1e-50, 1e50


def require_ordinary(name: str, values: Any) -> None:
    """Refuse numbers, alone or in an array, whose products leave floating point; zero is fine.

    Losses, gradients and curvatures are products of several of them, and norms square these.
    """
    if is_traced(values):
        return
    array = np.asarray(values)
    largest = max(float(np.max(array, initial=0)), -float(np.min(array, initial=0)))  # no copies
    if largest != 0 and not _SMALLEST <= largest <= _LARGEST:
        raise InputError(
            f"`{name}` must be of a size between {_SMALLEST:g} and {_LARGEST:g}, or zero, so that "
            f"its powers stay within floating point, got {largest:.3g}; take another unit."
        )


def finite_weights(weights: Any, name: str = "weights") -> Any:
    """The weights as floating arrays without NaN and infinity, in the same structure.

    NumPy's stay where they are: JAX compiles a copy for every shape anew.
    """

    def leaf(path: Any, given: Any) -> Any:
        on_host = isinstance(given, np.ndarray) and given.dtype in (np.float64, np.float32)
        array = given if on_host else as_array(f"{name}{_place(path)}", given)
        require_finite(f"{name}{_place(path)}", array, "did the run that they come from diverge?")
        return array

    return jax.tree.map_with_path(leaf, weights)


def require_positive(name: str, value: Any) -> None:
    """Refuse zero, negative and NaN numbers, alone or in an array."""
    if is_traced(value):
        return
    array = _plain_numbers(name, value)
    with np.errstate(invalid="ignore"):
        fine = (array > 0) & np.isfinite(array)
    if not np.all(fine):
        bad = np.asarray(array)[~np.asarray(fine)].ravel()[0]
        raise InputError(f"`{name}` must be positive and finite, got {bad}.")


def _plain_numbers(name: str, value: Any) -> Any:
    """A number or an array of numbers, and no truth values, which would count as 0 and 1."""
    if isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind in "iuf"):
        return value  # nearly always
    if isinstance(value, bool | str) or getattr(value, "dtype", None) in (bool, np.bool_):
        quoted = isinstance(value, str) and value.replace(".", "", 1).isdigit()
        fix = "; write it without quotes." if quoted else "."
        raise InputError(f"`{name}` must be a number, got {described(value)}{fix}")
    return np.asarray(as_array(name, value))


def require_count(name: str, value: Any, least: int = 1) -> int:
    """The value as an int, which must be whole and at least `least`."""
    try:
        whole = not isinstance(value, bool | np.ndarray) and int(value) == value
    except (TypeError, ValueError, OverflowError):  # a word, None, NaN, infinity
        whole = False
    if not whole or value < least:
        raise InputError(f"`{name}` must be a whole number >= {least}, got {described(value)}.")
    return int(value)


def require_shapes(
    name: str, weights: Any, shapes: tuple[tuple[int, ...], ...], many: bool = True
) -> None:
    """Refuse weights of other shapes; leading batch axes are allowed where there may be many."""
    if not isinstance(weights, tuple | list):
        raise InputError(
            f"`{name}` must be a tuple with one array per layer, got {described(weights)}."
        )
    if len(weights) != len(shapes):
        raise InputError(
            f"`{name}` must hold {len(shapes)} arrays, one per layer, got {len(weights)}."
        )
    for layer, (array, shape) in enumerate(zip(weights, shapes, strict=True), start=1):
        got = array.shape if is_array(array) else as_array(f"{name}[{layer - 1}]", array).shape
        if len(got) < len(shape) or got[len(got) - len(shape) :] != shape:
            raise InputError(
                f"`{name}` must fit the network: layer {layer} has shape {got}, expected "
                f"{shape}. Was the tuple given last layer first?"
            )
        if got != shape and not many:
            raise InputError(
                f"`{name}` must be those of one network: layer {layer} has shape {got}, expected "
                f"{shape}; take one point, such as `run.final`, or map over all with jax.vmap "
                "(`curvature.spectrum_along` for both ends of the spectrum)."
            )


def as_tree(name: str, weights: Any) -> Any:
    """The weights as a pytree of arrays; those that are floating already stay as they are."""
    if hasattr(weights, "final") and hasattr(weights, "times"):
        raise InputError(f"`{name}` must be one point of the run, such as `run.final`, got a run.")
    if not jax.tree.leaves(weights):
        raise InputError(
            f"`{name}` must be a pytree with at least one array, got {described(weights)}."
        )

    def leaf(path: Any, array: Any) -> Any:
        place = f"{name}{_place(path)}"
        if callable(array):
            raise InputError(
                f"`{place}` must be an array, got {described(array)}; take a module's arrays with "
                "equinox.filter(module, equinox.is_inexact_array)."
            )
        floating = is_array(array) and jnp.issubdtype(array.dtype, jnp.floating)
        return array if floating else as_array(place, array)

    return jax.tree.map_with_path(leaf, weights)


def require_tree_shapes(name: str, weights: Any, shapes: Any, many: bool = True) -> None:
    """Refuse another structure or other shapes; leading axes are batch axes where there are many.

    Where `shapes` is None nothing is known, and hence nothing is refused.
    """
    if shapes is None:
        return
    leaves, structure = jax.tree.flatten_with_path(weights)
    try:
        wanted = structure.flatten_up_to(shapes)
    except ValueError as error:
        raise InputError(
            f"`{name}` must have the structure of the objective's `shapes`: "
            f"{str(error).rstrip('. ')}."
        ) from error
    for (path, array), shape in zip(leaves, wanted, strict=True):
        got = np.shape(array)
        own = got[max(len(got) - len(shape), 0) :] if many else got
        if own != tuple(shape):
            axes = ", after batch axes that all arrays share" if many else ""
            raise InputError(
                f"`{name}{_place(path)}` must have shape {tuple(shape)}{axes}, got shape {got}."
            )


def require_alike(name: str, tree: Any, other: str, like: Any) -> None:
    """Refuse a pytree whose structure or shapes are not those of another one."""
    if jax.tree.structure(tree) != jax.tree.structure(like):
        raise InputError(
            f"`{name}` must have the structure of `{other}`, {jax.tree.structure(like)}, got "
            f"{jax.tree.structure(tree)}."
        )
    require_tree_shapes(name, tree, jax.tree.map(np.shape, like), many=False)


def _place(path: Any) -> str:
    """Where a leaf of a pytree is, as it is written in Python."""
    return jax.tree_util.keystr(path)


def chained(weights: Any) -> tuple[Float[Array, "_ _"], ...]:
    """The weights as matrices that can be multiplied, first layer first."""
    layers = tuple(
        placed(each) if isinstance(each, np.ndarray) else jnp.asarray(each) for each in weights
    )
    fit = all(layer.ndim == 2 for layer in layers) and all(
        upper.shape[1] == lower.shape[0] for lower, upper in pairwise(layers)
    )
    if not layers or not fit:
        raise InputError(
            "`weights` must be the matrices of one linear network, first layer first, got shapes "
            f"{[layer.shape for layer in layers]}; map over more with `along` or `jax.vmap`."
        )
    return layers


_DROP = "drop or impute those samples first"


def samples(x: Any) -> Float[Array, "samples features"]:
    """The samples as rows of finite numbers, at least one of each."""
    inputs = as_floating("x", x, _DROP)
    if inputs.ndim != 2:
        raise InputError(
            f"`x` must have one row per sample and one column per feature, got shape "
            f"{inputs.shape}; images are flattened with x.reshape(len(x), -1)."
        )
    if 0 in inputs.shape:
        raise InputError(
            f"`x` must hold at least one sample and feature, got shape {inputs.shape}."
        )
    require_ordinary("x", inputs)
    return inputs


def samples_and_targets(
    x: Any, y: Any
) -> tuple[Float[Array, "samples features"], Float[Array, "samples outputs"]]:
    """The samples, and the targets as one row per sample; a vector of targets is one output."""
    inputs = samples(x)
    targets = as_floating("y", y, _DROP).astype(inputs.dtype)
    require_ordinary("y", targets)
    if targets.ndim == 1:
        targets = targets[:, None] if is_traced(targets) else placed(np.asarray(targets)[:, None])
    if targets.ndim != 2 or targets.shape[0] != inputs.shape[0] or targets.shape[1] == 0:
        raise InputError(
            f"`y` must have one row per sample of `x` ({inputs.shape[0]}), got shape "
            f"{targets.shape}; is one of them transposed?"
        )
    return inputs, targets


def _whole_labels(labels: Any, count: int) -> Int[Array, " samples"]:
    array = as_floating("labels", labels, _DROP)
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
    if low < 0:
        raise InputError(
            f"`labels` must be the classes 0, 1, ..., got {low} to {high}; two classes -1 and 1 "
            "need loss='logistic', others a shift."
        )
    if total is None and high == 0:
        raise InputError(
            "`labels` must name at least two classes, got only 0; give `classes` if the others "
            "have no sample here."
        )
    total = high + 1 if total is None else total
    if high >= total:
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
