"""What the public functions are given, held against their annotations before anything is computed.

`checked` reads a function's annotations once. What cannot be used is refused with one sentence,
what only looks different is converted: lists of lists are weights, too. Ranges are for the
functions themselves: here it is only seen that a number is one. JAX is loaded for functions that
take numbers or arrays, not for those that open a file.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, signature
from os import PathLike, fsencode, fspath
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

from thalweg._errors import InputError
from thalweg._kinds import MANY, TREE, Kind, UnfitError, fit

_P = ParamSpec("_P")
_R = TypeVar("_R")


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, which refuses arguments that its annotations do not allow."""

    @wraps(function)
    def refusing(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        taken, named = _plan(function).taken(args, kwargs)
        return cast(Any, function)(*taken, **named)

    return refusing


def as_layers(name: str, weights: Any) -> Any:
    """Weights as a tuple with one array per layer, whatever sequence they were given as."""
    from thalweg._array_kinds import LAYERS

    return _take(name, LAYERS, weights)


def checked_class(kind: type[_R]) -> type[_R]:
    """A dataclass that refuses what its fields' annotations do not allow."""
    kind.__init__ = checked(kind.__init__)
    return kind


class _Plan(NamedTuple):
    """What a function's arguments must be, and how they belong together.

    Attributes:
        places: the kinds by place.
        names: the kinds by name.
        weights: whether batch axes are allowed, for each argument that holds layers.
        trees: the same for each argument whose structure the objective beside it decides.
        axes: the names of an array's axes, for each argument that is one.
    """

    places: tuple[tuple[str, Kind | None], ...]
    names: dict[str, Kind]
    weights: dict[str, bool]
    trees: dict[str, bool]
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
        if self.weights or self.trees or self.axes:
            placed = [name for name, _ in self.places[: len(found)]]
            given = self._with_trees(dict(zip(placed, found, strict=True)) | named)
            self._fit(given)
            self._agree(given)
            found = [given.pop(name) for name in placed]
            named = given
        return [*found, *args[len(found) :]], named

    def _with_trees(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments, with pytrees of weights as the objective beside them takes them."""
        owner: Any = given.get("objective", given.get("self"))
        if not hasattr(owner, "as_weights"):
            return given
        taken = {
            name: owner.as_weights(given[name], name=name, many=many)
            for name, many in self.trees.items()
            if name in given
        }
        return given | taken

    def _fit(self, given: Mapping[str, Any]) -> None:
        """See that weights are those of the network that is given beside them."""
        from thalweg._checks import require_shapes

        owner = given.get("objective", given.get("self"))
        network = given.get("network", getattr(owner, "network", owner))
        if hasattr(network, "shapes"):
            for name, many in self.weights.items():
                if name in given:
                    require_shapes(name, given[name], network.shapes, many)

    def _agree(self, given: Mapping[str, Any]) -> None:
        """See that axes of one name are of one length."""
        owner, lengths = given.get("self"), {}
        for name in (each for each in self.axes if each in given):
            shape = given[name].shape
            for axis, length in zip(self.axes[name], shape, strict=False):
                if not axis.isidentifier() or axis == "_":
                    continue
                own = _length(owner, axis)
                first = (f"`{name}`", length) if own is None else (type(owner).__name__, own)
                other, known = lengths.setdefault(axis, first)
                if known != length:
                    raise InputError(
                        f"`{name}` must have as many {axis} as {other}, {known}, got shape "
                        f"{shape}; is it transposed?"
                    )


def _length(owner: Any, axis: str) -> int | None:
    """What the owner of a method says about an axis; asked by its class, for methods are slow."""
    own = getattr(type(owner), "length", None)
    return None if own is None else own(owner, axis)


@cache
def _plan(function: Callable[..., Any]) -> _Plan:
    parameters = signature(function).parameters.values()
    kinds = {each.name: _kind(each.annotation) for each in parameters}
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return _Plan(
        tuple((each.name, kinds[each.name]) for each in parameters if each.kind in by_place),
        {name: kind for name, kind in kinds.items() if kind is not None},
        {each.name: _is_many(each.annotation) for each in parameters if _is_weights(each)},
        {each.name: _is_many(each.annotation) for each in parameters if _is_tree(each.annotation)},
        {
            each.name: each.annotation.dim_str.split()
            for each in parameters
            if not _is_loose(getattr(each.annotation, "dim_str", "..."))
        },
    )


def _take(name: str, kind: Kind, value: Any) -> Any:
    try:
        return kind.take(name, value)
    except UnfitError as unfit:
        from thalweg._checks import described

        fix = f"; {unfit}" if str(unfit) else ""
        raise InputError(f"`{name}` must be {kind.phrase}, got {described(value)}{fix}.") from None


# --- kinds, by annotation ------------------------------------------------------------------------


def _kind(annotation: Any) -> Kind | None:
    """The kind that an annotation means; None where it allows anything."""
    if annotation in (Any, Parameter.empty) or isinstance(annotation, TypeVar | str):
        return None
    if _is_of_arrays(annotation):
        from thalweg._array_kinds import kind_of

        known = kind_of(annotation)
        if known is not None:
            return known
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kind(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return _one_of(_members(get_args(annotation)))
    if origin is Literal:
        return _choice(get_args(annotation))
    return _PLAIN.get(annotation) or _collection(annotation, origin)


def _is_of_arrays(annotation: Any) -> bool:
    """Whether numbers or arrays are in it."""
    own = annotation in (float, int, complex) or hasattr(annotation, "dim_str")
    plural = get_origin(annotation) in (tuple, Union, UnionType)
    return own or (plural and any(_is_of_arrays(each) for each in get_args(annotation)))


def _members(annotations: tuple[Any, ...]) -> list[Kind | None]:
    if complex in annotations:  # numbers, which are spread out where they are one of several
        from thalweg._array_kinds import NUMBER, NUMBERS

        return [NUMBER, *(_kind(each) for each in annotations if each not in NUMBERS)]
    paths = any(PathLike in (each, get_origin(each)) or each is Path for each in annotations)
    return [_PATH if paths and each is str else _kind(each) for each in annotations]


def _collection(annotation: Any, origin: Any) -> Kind | None:
    if origin is Callable or annotation is Callable:
        return Kind("a function", lambda _, value: fit(callable(value), value))
    if origin is not None and issubclass(origin, Mapping):
        return _instance(Mapping, "a table of names and values")
    if PathLike in (origin, annotation):
        return _PATH
    if origin is not None and issubclass(origin, Sequence):
        return _sequence(_kind(get_args(annotation)[0]))
    kind = origin or annotation
    return _instance(kind, _with_article(kind.__name__.removeprefix("Abstract")))


_LONGEST_NAME, _LONGEST_PATH = 255, 4095  # bytes; what is longer raises wherever it is looked at

_PATH = Kind("a path", lambda _, value: _path(value))
_PLAIN = {
    bool: Kind("True or False", lambda _, value: bool(fit(_is_truth(value), value))),
    str: Kind("a text", lambda _, value: fit(isinstance(value, str), value)),
    NoneType: Kind("None", lambda _, value: fit(value is None, value)),
    Path: Kind("a path", lambda _, value: Path(_path(value))),
}


def _is_weights(parameter: Parameter) -> bool:
    annotation = parameter.annotation
    layers = get_origin(annotation) is tuple and get_args(annotation)[1:] == (Ellipsis,)
    many = _is_many(annotation) and not _is_tree(annotation)
    return (layers and _is_of_arrays(annotation)) or many


def _is_many(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and MANY in get_args(annotation)


def _is_tree(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and TREE in get_args(annotation)


def _is_loose(axes: str) -> bool:
    return "..." in axes or "*" in axes


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ == "bool"  # NumPy's has this name, too


def _one_of(kinds: list[Kind | None]) -> Kind | None:
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None  # one of them is anything

    def take(name: str, value: Any) -> Any:
        fixes = []
        for kind in known:
            try:
                return kind.take(name, value)
            except UnfitError as unfit:
                fixes.append(str(unfit))
        raise UnfitError(next(filter(None, fixes), ""))

    return Kind(" or ".join(dict.fromkeys(kind.phrase for kind in known)), take)


def _choice(values: tuple[Any, ...]) -> Kind:
    def take(_: str, value: Any) -> Any:
        return fit(isinstance(value, str) and value in values, value)

    return Kind(f"one of {', '.join(map(str, values))}", take)


def _sequence(inner: Kind | None) -> Kind:
    def take(name: str, value: Any) -> Any:
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        shape = getattr(value, "shape", None)
        array = hasattr(value, "dtype") and isinstance(shape, tuple) and len(shape) > 0
        found: Any = fit(listed or array, value)
        if inner is None or _are_plain(found, inner.plain):
            return found
        return tuple(_take(f"{name}[{place}]", inner, each) for place, each in enumerate(found))

    return Kind("a list", take)


def _are_plain(values: Any, plain: type | None) -> bool:
    """Whether all values of a list, or of an array, are of this type and need no closer look."""
    return set(map(type, values)) == {plain} and (plain is not int or max(values) < 2**63)


def _instance(wanted: type, phrase: str) -> Kind:
    def take(_: str, value: Any) -> Any:
        if not isinstance(value, wanted):
            raise UnfitError(_fix(wanted, value))
        return value

    return Kind(phrase, take)


_FIXES = {
    ("Objective", "network"): "join it with a problem: tw.Objective(network, problem)",
    ("Objective", "problem"): "join it with a network: tw.Objective(network, problem)",
    ("Objective", "run"): "give its `objective`",
    ("Objective", "Objective"): "only a network on a problem has what this needs",
    ("Descent", "Objective"): "a run knows its objective: give the run alone",
    ("Descent", "run"): "give what tw.descend returns",
    ("Flow", "run"): "give what tw.flow returns",
    ("Trajectory", "Objective"): "a run knows its objective: give the run alone",
    ("Network", "Objective"): "give its `network`",
    ("LinearNetwork", "Objective"): "give its `network`",
    ("Problem", "Objective"): "give its `problem`",
    ("Experiment", "text"): "read a file with thalweg.experiment.read",
    ("Case", "Objective"): "make one of it and its start: tw.certificates.Case(objective, weights)",
}


def _fix(wanted: type, value: Any) -> str:
    bases = [base.__name__.removeprefix("Abstract") for base in type(value).__mro__]
    roles = {"Network": "network", "Problem": "problem", "Trajectory": "run", "str": "text"}
    names = [*bases, *(roles[base] for base in bases if base in roles)]
    expected = wanted.__name__.removeprefix("Abstract")
    return next((_FIXES[expected, name] for name in names if (expected, name) in _FIXES), "")


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name}"


def _path(value: Any) -> Any:
    fit(isinstance(value, str | PathLike), value)
    text = fspath(value)
    try:
        name = fsencode(text) if isinstance(text, str) else b"\0"
    except UnicodeEncodeError:  # half of a pair of surrogates, which no file is named by
        name = b"\0"
    fit(b"\0" not in name, value)
    if max(map(len, name.split(b"/"))) > _LONGEST_NAME or len(name) > _LONGEST_PATH:
        raise UnfitError("no disk holds a name that long")
    return value
