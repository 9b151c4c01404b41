"""What the public functions are given, held against their annotations before anything is computed.

`checked` reads a function's annotations once. What cannot be used is refused with one sentence,
what only looks different is converted: lists of lists are weights, too. Values that JAX traces
pass, but for their shapes. Ranges are for the functions themselves: here it is only seen that a
number is one.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, signature
from os import PathLike, fspath
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, ScalarLike

from thalweg._checks import (
    InputError,
    as_array,
    described,
    is_array,
    is_traced,
    require_shapes,
)
from thalweg._typing import MANY, Weights

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Unfit(Exception):
    """This value is not of the kind; the text is a likely fix, or empty."""


class _Kind(NamedTuple):
    """What an argument must be, in words, and how a value becomes one."""

    phrase: str
    take: Callable[[str, Any], Any]


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, which refuses arguments that its annotations do not allow."""

    @wraps(function)
    def refusing(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        taken, named = _plan(function).taken(args, kwargs)
        return cast(Any, function)(*taken, **named)

    return refusing


def checked_class(kind: type[_R]) -> type[_R]:
    """A dataclass that refuses what its fields' annotations do not allow."""
    kind.__init__ = checked(kind.__init__)
    return kind


class _Plan(NamedTuple):
    """What a function's arguments must be, and how they belong together.

    Attributes:
        places: the kinds by place.
        names: the kinds by name.
        weights: whether batch axes are allowed, for each argument that holds weights.
        axes: the names of an array's axes, for each argument that is one.
    """

    places: tuple[tuple[str, _Kind | None], ...]
    names: dict[str, _Kind]
    weights: dict[str, bool]
    axes: dict[str, list[str]]

    def taken(self, args: tuple, kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as the function wants them."""
        found = [
            value if kind is None else _take(name, kind, value)
            for (name, kind), value in zip(self.places, args, strict=False)
        ]
        named = {
            name: _take(name, self.names[name], value) if name in self.names else value
            for name, value in kwargs.items()
        }
        if self.weights or self.axes:
            given = dict(zip((name for name, _ in self.places), found, strict=False)) | named
            self._fit(given)
            self._agree(given)
        return [*found, *args[len(found) :]], named

    def _fit(self, given: Mapping[str, Any]) -> None:
        """See that weights are those of the network that is given beside them."""
        owner = given.get("objective", given.get("self"))
        network = given.get("network", getattr(owner, "network", None))
        if network is not None:
            for name, many in self.weights.items():
                if name in given:
                    require_shapes(name, given[name], network.shapes, many)

    def _agree(self, given: Mapping[str, Any]) -> None:
        """See that axes of one name are of one length."""
        lengths: dict[str, tuple[str, int]] = {}
        for name in (each for each in self.axes if each in given):
            shape = np.shape(given[name])
            for axis, length in zip(self.axes[name], shape, strict=False):
                other, known = lengths.setdefault(axis, (name, length))
                if known != length and axis.isidentifier() and axis != "_":
                    raise InputError(
                        f"`{name}` must have as many {axis} as `{other}`, {known}, got shape "
                        f"{shape}; is one of them transposed?"
                    )


@cache
def _plan(function: Callable[..., Any]) -> _Plan:
    parameters = signature(function).parameters.values()
    kinds = {each.name: _kind(each.annotation) for each in parameters}
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return _Plan(
        tuple((each.name, kinds[each.name]) for each in parameters if each.kind in by_place),
        {name: kind for name, kind in kinds.items() if kind is not None},
        {each.name: _is_many(each.annotation) for each in parameters if _is_weights(each)},
        {
            each.name: each.annotation.dim_str.split()
            for each in parameters
            if not _is_loose(getattr(each.annotation, "dim_str", "..."))
        },
    )


def _take(name: str, kind: _Kind, value: Any) -> Any:
    try:
        return kind.take(name, value)
    except _Unfit as unfit:
        fix = f"; {unfit}" if str(unfit) else ""
        raise InputError(f"`{name}` must be {kind.phrase}, got {described(value)}{fix}.") from None


# --- kinds, by annotation ------------------------------------------------------------------------


def _kind(annotation: Any) -> _Kind | None:
    """The kind that an annotation means; None where it allows anything."""
    if annotation in (Any, Parameter.empty) or isinstance(annotation, TypeVar | str):
        return None
    known = _known_kinds().get(annotation) if _hashable(annotation) else None
    if known is not None:
        return known
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kind(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return _one_of(_members(get_args(annotation)))
    if origin is Literal:
        return _choice(get_args(annotation))
    if hasattr(annotation, "dim_str"):
        return _array(annotation)
    return _collection(annotation, origin)


def _members(annotations: tuple[Any, ...]) -> list[_Kind | None]:
    numbers = get_args(ScalarLike)  # which are spread out where they are one of several
    if set(numbers) <= set(annotations):
        others = [_kind(each) for each in annotations if each not in numbers]
        return [_known_kinds()[ScalarLike], *others]
    paths = any(PathLike in (each, get_origin(each)) or each is Path for each in annotations)
    return [_PATH if paths and each is str else _kind(each) for each in annotations]


def _collection(annotation: Any, origin: Any) -> _Kind | None:
    if origin is Callable or annotation is Callable:
        return _Kind("a function", lambda _, value: _if(callable(value), value))
    if origin is not None and issubclass(origin, Mapping):
        return _instance(Mapping, "a table of names and values")
    if PathLike in (origin, annotation):
        return _PATH
    if origin is not None and issubclass(origin, Sequence):
        return _sequence(_kind(get_args(annotation)[0]))
    kind = origin or annotation
    return _instance(kind, _with_article(kind.__name__.removeprefix("Abstract")))


@cache
def _known_kinds() -> dict[Any, _Kind]:
    one = _Kind("one number", _number)
    return {
        Weights: _Kind("a tuple with one array per layer", _weights),
        PRNGKeyArray: _Kind("a random key", _key),
        ScalarLike: one,
        float: _Kind("one number", lambda name, value: _as_float(_number(name, value))),
        int: _Kind("a whole number", _whole),
        bool: _Kind("True or False", lambda _, value: bool(_if(_is_truth(value), value))),
        str: _Kind("a text", lambda _, value: _if(isinstance(value, str), value)),
        NoneType: _Kind("None", lambda _, value: _if(value is None, value)),
        Path: _Kind("a path", lambda _, value: Path(_path(value))),
        np.ndarray: _Kind("an array", lambda name, value: np.asarray(as_array(name, value))),
    }


_PATH = _Kind("a path", lambda _, value: _path(value))


def _hashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


def _is_weights(parameter: Parameter) -> bool:
    annotation = parameter.annotation
    return annotation == Weights or _is_many(annotation)


def _is_many(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and MANY in get_args(annotation)


def _if(fits: bool, value: Any, fix: str = "") -> Any:
    if not fits:
        raise _Unfit(fix)
    return value


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _one_of(kinds: list[_Kind | None]) -> _Kind | None:
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None  # one of them is anything

    def take(name: str, value: Any) -> Any:
        fixes = []
        for kind in known:
            try:
                return kind.take(name, value)
            except _Unfit as unfit:
                fixes.append(str(unfit))
        raise _Unfit(next(filter(None, fixes), ""))

    return _Kind(" or ".join(dict.fromkeys(kind.phrase for kind in known)), take)


def _choice(values: tuple[Any, ...]) -> _Kind:
    def take(_: str, value: Any) -> Any:
        return _if(isinstance(value, str) and value in values, value)

    return _Kind(f"one of {', '.join(map(str, values))}", take)


def _sequence(inner: _Kind | None) -> _Kind:
    def take(name: str, value: Any) -> Any:
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        found: Any = _if(listed or (is_array(value) and value.ndim > 0), value)
        if inner is None:
            return found
        return tuple(_take(f"{name}[{place}]", inner, each) for place, each in enumerate(found))

    return _Kind("a list", take)


def _instance(wanted: type, phrase: str) -> _Kind:
    def take(_: str, value: Any) -> Any:
        if not isinstance(value, wanted):
            raise _Unfit(_fix(wanted, value))
        return value

    return _Kind(phrase, take)


_FIXES = {
    ("Objective", "network"): "join it with a problem: tw.Objective(network, problem)",
    ("Objective", "problem"): "join it with a network: tw.Objective(network, problem)",
    ("Objective", "run"): "give its `objective`",
    ("Descent", "Objective"): "a run knows its objective: give the run alone",
    ("Descent", "run"): "give what tw.descend returns",
    ("Flow", "run"): "give what tw.flow returns",
    ("Trajectory", "Objective"): "a run knows its objective: give the run alone",
    ("Network", "Objective"): "give its `network`",
    ("LinearNetwork", "Objective"): "give its `network`",
    ("Problem", "Objective"): "give its `problem`",
    ("Experiment", "text"): "read a file with thalweg.experiment.read",
    ("Case", "Objective"): "make one of it and its start: tw.theorems.Case(objective, weights)",
}


def _fix(wanted: type, value: Any) -> str:
    bases = [base.__name__.removeprefix("Abstract") for base in type(value).__mro__]
    roles = {"Network": "network", "Problem": "problem", "Trajectory": "run", "str": "text"}
    names = [*bases, *(roles[base] for base in bases if base in roles)]
    expected = wanted.__name__.removeprefix("Abstract")
    return next((_FIXES[expected, name] for name in names if (expected, name) in _FIXES), "")


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name}"


# --- numbers, keys and paths ---------------------------------------------------------------------


def _number(name: str, value: Any) -> Any:
    if isinstance(value, float):
        return value
    if isinstance(value, str):
        raise _Unfit("write it without quotes" if _is_numeral(value) else "")
    if isinstance(value, int) and not isinstance(value, bool):
        return _if(_is_finite(value), value, "floating point ends near 1.8e308")
    return _if(is_array(value) and value.ndim == 0 and _is_real(value.dtype), value)


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
    _if(bool(whole), value)
    return _if(abs(int(value)) < 2**63, int(value), "whole numbers end at 2^63")


def _key(name: str, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        seed = value if 0 <= value < 2**31 else 0
        raise _Unfit(f"make one: jax.random.key({seed})")
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return _if(value.shape == (), value, "map over several with jax.vmap")
    old = getattr(value, "dtype", None) == np.uint32 and np.shape(value) in ((2,), (4,))
    return jnp.asarray(_if(old, value, "make one: jax.random.key(0)"))


def _path(value: Any) -> Any:
    _if(isinstance(value, str | PathLike), value)
    text = fspath(value)
    return _if(isinstance(text, str) and "\0" not in text, value)


# --- arrays and weights --------------------------------------------------------------------------


def _array(annotation: Any) -> _Kind:
    """An array of so many axes, as a jaxtyping annotation says."""
    axes = annotation.dim_str.split()
    loose = _is_loose(annotation.dim_str)
    rank = "numbers" if loose else {0: "one number", 1: "a vector", 2: "a matrix"}.get(len(axes))
    recorded = annotation.array_type is np.ndarray

    def take(name: str, value: Any) -> Any:
        found = as_array(name, value)
        _if(loose or np.ndim(found) == len(axes), value)
        return np.asarray(found) if recorded and not is_traced(found) else found

    return _Kind(rank or f"an array with {len(axes)} axes", take)


def _is_loose(axes: str) -> bool:
    return "..." in axes or "*" in axes


def _weights(name: str, value: Any) -> Any:
    if hasattr(value, "final") and hasattr(value, "times"):
        raise _Unfit("give one point of the run, such as `run.final`")
    if is_array(value):
        raise _Unfit("weights of one layer are (array,)")
    _if(isinstance(value, tuple | list), value)
    _if(len(value) > 0, value, "a run that has an `observe` keeps only `run.final`")
    return tuple(_layer(f"{name}[{place}]", array) for place, array in enumerate(value))


def _layer(name: str, array: Any) -> Any:
    ready = is_array(array) and (array.dtype.kind == "f" or _is_real(array.dtype))
    return array if ready else as_array(name, array)
