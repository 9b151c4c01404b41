"""Any function of any weights: a model of one's own, in JAX, Flax, Equinox or plain dictionaries.

    loss(weights)                the value f(weights), or
    loss(weights, batch)         the mean over the samples of a batch,

of which f is the mean over all samples: with batches b of n_b of the n samples each,

    f(weights) = sum_b  (n_b / n) loss(weights, b),

and its gradient and Hessian are summed alike, one batch after the other, so that they take no more
memory than one batch does.

A loss must be one number, and the same each time it is asked: what draws random numbers or keeps a
state is refused before anything runs, see `try_out`.
"""

import re
from collections.abc import Callable
from inspect import signature
from typing import Any, TypeVar, final
from weakref import WeakKeyDictionary, ref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, described, is_array, is_traced, placed, require_count
from thalweg._typing import AnyWeights, Scalar
from thalweg.objective.base import AbstractObjective, floating

_Sum = TypeVar("_Sum")

_HALVES = ("float16", "bfloat16")
_CHANGING = ("TraceContextError", "ModifyScopeVariableError", "UnexpectedTracerError")
"""What Flax and JAX raise where a loss writes into something outside of it."""

_TRIED: WeakKeyDictionary[Callable[..., Any], set[Any]] = WeakKeyDictionary()
"""Of each loss, for which shapes it was seen to be one number, and the same each time."""


@final
class FunctionObjective(AbstractObjective):
    """A function of weights, or the mean over data of a function of weights and a batch."""

    loss: Callable[..., Any] = eqx.field(static=True)
    data: Any
    batch_size: int | None = eqx.field(static=True)
    _smooth: bool = eqx.field(static=True)

    @checked
    def __init__(
        self,
        loss: Callable[..., Any],
        data: Any = None,
        batch_size: int | None = None,
        *,
        smooth: bool = True,
    ):
        """Take the function, its data, and how many samples fit into memory at once.

        Args:
            loss: `loss(weights)`, or where there are data `loss(weights, batch)`, the mean over the
                batch's samples; JAX traces it.
            data: a pytree of arrays with one row per sample, such as (inputs, targets); a batch is
                the same pytree with fewer rows.
            batch_size: how many rows `loss` is given at a time; all of them if not given.
            smooth: False for a function with kinks, such as one with ReLU or max pooling.
        """
        _require_arguments(loss, 1 if data is None else 2)
        self.loss = loss if _is_plain(loss) else lambda *given: loss(*given)
        self.data = None if data is None else _with_rows(data)
        self.batch_size = None if batch_size is None else require_count("batch_size", batch_size)
        self._smooth = smooth
        if data is None and batch_size is not None:
            raise InputError("`batch_size` must be left out where there are no `data` to cut up.")

    @property
    def samples(self) -> int:
        """How many rows the data have; 0 where there are none."""
        return 0 if self.data is None else jax.tree.leaves(self.data)[0].shape[0]

    @property
    @override
    def smooth(self) -> bool:
        return self._smooth

    @override
    def as_weights(self, weights: Any, *, name: str = "weights", many: bool = True) -> AnyWeights:
        _require_floating(name, weights)
        return super().as_weights(weights, name=name, many=many)

    @override
    def __call__(self, weights: AnyWeights) -> Scalar:
        # Whoever differentiates this backwards keeps no more than one batch's intermediate values.
        return self._mean(jax.checkpoint(self._on_batch), floating(weights))

    @checked
    @override
    def value_and_gradient(self, weights: AnyWeights) -> tuple[Scalar, AnyWeights]:
        return self._mean(jax.value_and_grad(self._on_batch), floating(weights))

    @override
    def operations(self, weights: AnyWeights) -> int:
        shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), weights)
        lowered = jax.jit(jax.value_and_grad(self._on_batch)).lower(shapes, self._first_batch())
        cost = (lowered.cost_analysis() or {}).get("flops", 0)
        return int(cost * max(self.samples, 1) / max(self._rows, 1))

    @override
    def try_out(self, weights: AnyWeights) -> None:
        """Refuse a loss that is not one finite number at the weights, and the same each time."""
        point = floating(weights)
        if any(map(is_traced, jax.tree.leaves(point))):
            return
        kind = jax.tree.map(lambda array: (array.shape, str(array.dtype)), (point, self.data))
        known = _TRIED.setdefault(self.loss, set())
        key = (jax.tree.structure(kind), tuple(jax.tree.leaves(kind)))
        if key not in known and _traced(self, point) != _traced(self, point):
            raise InputError(_NOT_THE_SAME)
        first, again = (float(_value(self, point)) for _ in range(2))
        if not np.isfinite(first):
            raise InputError(
                f"The loss must be finite where it starts, got {first}; are there NaN in the data, "
                "or a logarithm of zero?"
            )
        if abs(first - again) > 1e-6 * abs(first):  # some devices sum in any order
            raise InputError(_NOT_THE_SAME)
        known.add(key)

    # --- batches -----------------------------------------------------------------------------

    @property
    def _rows(self) -> int:
        """Of a batch."""
        return self.samples if self.batch_size is None else min(self.batch_size, self.samples)

    def _first_batch(self) -> Any:
        return jax.tree.map(lambda array: array[: self._rows], self.data)

    @property
    def _on_batch(self) -> Callable[[AnyWeights, Any], Scalar]:
        """A plain function, which JAX can tell from others by itself: modules are not hashable."""
        loss, alone = self.loss, self.data is None
        return lambda weights, batch: _one_number(loss(weights) if alone else loss(weights, batch))

    def _mean(self, function: Callable[[AnyWeights, Any], _Sum], weights: AnyWeights) -> _Sum:
        """Over all samples of what a function of the weights finds for a batch."""
        count, rows = self.samples, self._rows
        if count == rows:
            return function(weights, self.data)

        def step(total: _Sum, index: Any) -> tuple[_Sum, None]:
            batch = jax.tree.map(
                lambda array: jax.lax.dynamic_slice_in_dim(array, index * rows, rows), self.data
            )
            return _added(total, rows / count, function(weights, batch)), None

        shape = jax.eval_shape(function, weights, self._first_batch())
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        total, _ = jax.lax.scan(step, nothing, jnp.arange(count // rows))
        rest = count % rows
        if rest:
            batch = jax.tree.map(lambda array: array[count - rest :], self.data)
            total = _added(total, rest / count, function(weights, batch))
        return total


_NOT_THE_SAME = (
    "The loss must be the same number each time it is asked at the same weights, got another one; "
    "turn off Dropout and other randomness, or give them one fixed key, and keep no state in it."
)


def _added(total: _Sum, share: float, part: _Sum) -> _Sum:
    return jax.tree.map(lambda whole, new: whole + jnp.asarray(share, new.dtype) * new, total, part)


@eqx.filter_jit
def _value(objective: FunctionObjective, weights: AnyWeights) -> Scalar:
    return objective(weights)


def _traced(objective: FunctionObjective, weights: AnyWeights) -> tuple[str, list[bytes]]:
    """What JAX sees of the loss: operations and constants, which differ where it is random."""
    try:
        found = jax.make_jaxpr(objective._on_batch)(weights, objective._first_batch())
    except Exception as error:
        if type(error).__name__ not in _CHANGING:
            raise
        raise InputError(
            f"The loss must change nothing outside of it ({type(error).__name__}); set the model "
            "to evaluation, or split its state off and merge it inside of the loss."
        ) from error
    return re.sub("0x[0-9a-f]+", "", str(found.jaxpr)), [
        np.asarray(each).tobytes() for each in found.consts
    ]


# --- what is given -------------------------------------------------------------------------------


def _one_number(found: Any) -> Scalar:
    """What a loss returned, if it is one real number of enough digits."""
    if isinstance(found, tuple | list | dict):
        raise InputError(
            f"The loss must return one number, got {described(found)}; return the loss alone."
        )
    value = jnp.asarray(found)
    if value.shape != ():
        raise InputError(
            f"The loss must return one number, got shape {value.shape}; take the mean over the "
            "batch."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating) or value.dtype.name in _HALVES:
        raise InputError(
            f"The loss must return a float32 or float64, got {value.dtype}; half precision is too "
            "coarse for curvature."
        )
    return value


def _require_floating(name: str, weights: Any) -> None:
    """Refuse leaves that cannot be moved."""
    leaves = jax.tree.leaves_with_path(weights)
    for path, leaf in leaves:
        if type(leaf).__module__.partition(".")[0] == "torch":
            raise InputError(
                f"`{name}{jax.tree_util.keystr(path)}` must be an array of JAX or NumPy, got a "
                f"{type(leaf).__name__} of PyTorch; tensor.detach().numpy() is one, and modules "
                "are for tw.torch.ModuleObjective."
            )
    if leaves and not any(_is_floating(leaf) or callable(leaf) for _, leaf in leaves):
        _refuse(name, *leaves[0], "at least one floating array")
    for path, leaf in leaves:
        if is_array(leaf) and leaf.dtype.name in _HALVES:
            raise InputError(
                f"`{name}{jax.tree_util.keystr(path)}` must be float32 or float64, got "
                f"{leaf.dtype}; convert with jax.tree.map(lambda w: w.astype('float32'), weights)."
            )
        looked_at = is_array(leaf) or callable(leaf) or isinstance(leaf, int)
        if looked_at and not _is_floating(leaf):
            _refuse(name, path, leaf, "a floating array")


def _refuse(name: str, path: Any, leaf: Any, wanted: str) -> None:
    raise InputError(
        f"`{name}{jax.tree_util.keystr(path)}` must be {wanted}, got {described(leaf)}; hold fixed "
        "what is not to move: params, fixed = equinox.partition(model, equinox.is_inexact_array), "
        "then equinox.combine(params, fixed) inside of the loss."
    )


def _is_floating(leaf: Any) -> bool:
    if isinstance(leaf, float):
        return True
    return is_array(leaf) and bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _with_rows(data: Any) -> Any:
    """The data as JAX's arrays, all with as many rows."""
    leaves = jax.tree.leaves_with_path(data)
    if not leaves:
        raise InputError(f"`data` must hold at least one array, got {described(data)}.")
    counts = {}
    for path, leaf in leaves:
        name = f"data{jax.tree_util.keystr(path)}"
        array = np.asarray(leaf) if hasattr(leaf, "__array__") else np.zeros(())
        if np.ndim(array) == 0 or array.dtype.kind == "O":
            raise InputError(
                f"`{name}` must be an array with one row per sample, got {described(leaf)}; lists "
                "become one with numpy.asarray."
            )
        counts.setdefault(len(array), name)
    if len(counts) > 1 or 0 in counts:
        told = " and ".join(f"{count} in `{name}`" for count, name in counts.items())
        raise InputError(f"`data` must have equally many rows in every array, got {told}.")
    return jax.tree.map(
        lambda leaf: leaf if isinstance(leaf, jax.Array) else placed(np.asarray(leaf)), data
    )


def _require_arguments(loss: Callable[..., Any], count: int) -> None:
    try:
        own = signature(loss)
    except ValueError:  # of some built-in functions it is unknown
        return
    try:
        own.bind(*range(count))
    except TypeError as error:
        form = "loss(weights)" if count == 1 else "loss(weights, batch)"
        where = "no `data` are" if count == 1 else "`data` are"
        raise InputError(
            f"`loss` must be a function {form} where {where} given, got {described(loss)}: {error}."
        ) from error


def _is_plain(function: Any) -> bool:
    """Whether it can be a key, as functions can; a module with arrays cannot."""
    try:
        hash((function, ref(function)))
    except TypeError:
        return False
    return True
