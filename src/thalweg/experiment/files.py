"""Experiments as TOML: read with errors that name the field and the fix, and written back.

A file may leave out whatever has a default. What is written has all fields, so that results can be
made again although defaults may change.
"""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from os.path import relpath
from pathlib import Path
from typing import Any, get_args

import tomlkit
from pydantic import BaseModel, ValidationError
from tomlkit.items import Table

from thalweg._arguments import checked
from thalweg._checks import InputError, described
from thalweg.experiment import settings as parts
from thalweg.experiment.settings import Experiment

_CHOICES = {"data": ("source", parts.Data), "start": ("kind", parts.Start)}
_KINDS = {f"{table}.{field}" for table, (field, _) in _CHOICES.items()}
"""The tables of which there are several kinds, and the field that tells them apart."""


@checked
def read(path: str | Path) -> Experiment:
    """The experiment that a file describes."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"The experiment must be a file that can be read, got {path}: {error.strerror}."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be a TOML file in UTF-8: {error}.") from error
    return from_toml(text, str(path))


@checked
def from_toml(text: str, place: str = "The experiment") -> Experiment:
    """The experiment that a text describes; `place` is what errors call it."""
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # the latter two of numbers and nests too long
        raise InputError(f"{place} must be TOML: {error}.") from error
    return from_values(values, place)


@checked
def from_values(values: Mapping[str, Any], place: str = "The experiment") -> Experiment:
    """The experiment with these values, given as nested tables."""
    try:
        return Experiment.model_validate(dict(values))
    except ValidationError as error:
        raise refusal(place, error, values, Experiment) from error


@checked
def changed(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """The experiment with some fields changed, named like "network.depth".

    A table that becomes one of another kind loses what that kind does not have, and of two fields
    that exclude each other the one that is not named.
    """
    values = experiment.model_dump(exclude_none=True)
    # Kinds first: what is said about a table holds for the kind that it becomes.
    for name in sorted(changes, key=lambda name: name not in _KINDS):
        value = changes[name]
        table, _, field = name.rpartition(".")
        if table and not isinstance(values.get(table), dict):
            raise InputError(f"There is no field `{name}`{_hint(name, field_names())}")
        inner = values[table] if table else values
        inner[field] = value
        if table in _CHOICES and field == _CHOICES[table][0]:
            values[table] = {field: value} | _shared(table, value, inner)
        for other in _RIVALS.get(name, ()):
            if f"{table}.{other}" not in changes:
                inner.pop(other, None)
    return from_values(values)


@checked
def moved(experiment: Experiment, before: Path, after: Path) -> Experiment:
    """The experiment with paths to its data that start from another folder.

    Where the folders have nothing in common the path stays: it would tell where on a disk it was.
    """
    path = getattr(experiment.data, "path", None)
    if path is None or Path(path).is_absolute():
        return experiment
    held, wanted = (before / path).resolve(), after.resolve()
    if held.parts[:2] != wanted.parts[:2]:
        return experiment
    return changed(experiment, {"data.path": relpath(held, wanted)})


_RIVALS = {
    "training.steps": ("time",),
    "training.time": ("steps",),
    "network.hidden": ("depth", "width"),
    "network.depth": ("hidden",),
    "network.width": ("hidden",),
}


OWN_TABLES = ("title", "training", "flow", "curvature", "output")
"""What is to be said of an experiment whose objective and start are built by somebody else."""


@checked
def to_toml(experiment: Experiment, comments: bool = False, *, own_model: bool = False) -> str:
    """The experiment as a file, with a comment beside each field if asked for.

    Args:
        experiment: what is written.
        comments: what each field means, beside it.
        own_model: write only the tables that say something of a model of one's own.
    """
    document = tomlkit.document()
    for name, info in type(experiment).model_fields.items():
        if own_model and name not in OWN_TABLES:
            continue
        value = getattr(experiment, name)
        if isinstance(value, BaseModel):
            document.add(name, _table(name, value, comments))
        elif name == "sweep":
            if value:
                document.add(name, tomlkit.item([dict(grid) for grid in value]))
        else:
            document.add(name, _commented(value, info.description if comments else None))
    return tomlkit.dumps(document)


def field_names() -> list[str]:
    """All fields that an experiment may have, as "table.field"."""
    names = ["title"]
    for table, info in Experiment.model_fields.items():
        for kind in _kinds(table, info.annotation):
            names += [f"{table}.{field}" for field in kind.model_fields]
    return list(dict.fromkeys(names))


def field_description(name: str) -> str:
    """What a field "table.field" is, as it is said in an experiment file."""
    table, _, field = name.partition(".")
    for kind in _kinds(table, Experiment.model_fields[table].annotation):
        if field in kind.model_fields:
            return (kind.model_fields[field].description or "").strip()
    return ""


def _table(name: str, value: BaseModel, comments: bool) -> Table:
    table = tomlkit.table()
    if comments:
        table.add(tomlkit.comment((type(value).__doc__ or "").strip()))
        if name in _CHOICES:
            choice, kinds = _CHOICES[name]
            table.add(tomlkit.comment(f"`{choice}` may be: {', '.join(_tags(kinds, choice))}"))
    for field, info in type(value).model_fields.items():
        held = getattr(value, field)
        if held is not None:
            table.add(field, _commented(held, info.description if comments else None))
        elif comments:
            table.add(tomlkit.comment(f"{field} = ...  # {info.description}"))
    return table


def _commented(value: Any, comment: str | None) -> Any:
    item = tomlkit.item(_plain(value))
    return item if comment is None else item.comment(comment)


def _plain(value: Any) -> Any:
    """Tuples as arrays, all the way down."""
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


# --- errors --------------------------------------------------------------------------------------


def refusal(
    place: str, error: ValidationError, values: Mapping[str, Any], kind: type[BaseModel]
) -> InputError:
    """The first thing that is wrong, in one sentence; how many others there are."""
    found = error.errors(include_url=False)
    # A misspelt field explains a missing one.
    found.sort(key=lambda each: each["type"] != "extra_forbidden")
    first, more = _one_error(found[0], values, kind), len(found) - 1
    return InputError(f"{place}: {first}{f' ({more} more after this one.)' if more else ''}")


def _one_error(error: Any, values: Mapping[str, Any], kind: type[BaseModel]) -> str:
    place = _place(error["loc"])
    name, got, context = _dotted(place), _brief(error["input"]), error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            table = place[0] if len(place) > 1 else ""
            known = _known(str(table), values) if kind is Experiment else kind.model_fields
            return f"`{name}` must not be set: it does not exist{_hint(str(place[-1]), known)}"
        case "union_tag_invalid":
            choice, kinds = _CHOICES[str(place[0])]
            tags, tag = _tags(kinds, choice), context["tag"]
            return (
                f"`{name}.{choice}` must be one of {', '.join(tags)}, got {tag!r}"
                f"{_hint(str(tag), tags, fallback='.')}"
            )
        case "missing":
            return f"`{name}` must be given, but is missing."
        case "value_error":
            what = str(context["error"])
            return f"`{name}` {what}." if name else f"{what[0].upper()}{what[1:]}."
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"`{name}` must be a table of fields, got {got}."
        case "tuple_type":
            return f"`{name}` must be a list, got {got}."
        case _:
            what = error["msg"].replace("Input should be", "must be").replace("Tuple", "It")
            return f"`{name}` {what[0].lower() + what[1:]}, got {got}."


def _brief(value: Any) -> str:
    """What was given, as it is written, but not all of what is long."""
    if not isinstance(value, str | int | float | list | tuple | dict | None):
        return described(value)
    text = described(value) if isinstance(value, int) else repr(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def _place(location: Iterable[int | str]) -> list[int | str]:
    """The path to a field, without the kind of table that pydantic tells after its name."""
    place = list(location)
    if len(place) > 1 and place[0] in _CHOICES:
        choice, kinds = _CHOICES[str(place[0])]
        if place[1] in _tags(kinds, choice):
            del place[1]
    return place


def _dotted(place: list[int | str]) -> str:
    name = ""
    for part in place:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


def _hint(name: str, known: Iterable[str], fallback: str = "") -> str:
    known = list(known)
    nearest = get_close_matches(name, known, 1)
    if nearest:
        return f"; did you mean `{nearest[0]}`?"
    return fallback or f"; known are {', '.join(known)}."


def _known(table: str, values: Mapping[str, Any]) -> list[str]:
    """The fields that a table of this kind may have, or the tables that there are."""
    if not table:
        return list(Experiment.model_fields)
    for kind in _kinds(table, Experiment.model_fields[table].annotation):
        if table not in _CHOICES:
            return list(kind.model_fields)
        choice = _CHOICES[table][0]
        if values[table].get(choice, "gaussian") in _tags_of(kind, choice):
            return list(kind.model_fields)
    return []


def _kinds(table: str, annotation: Any) -> list[type[BaseModel]]:
    if table in _CHOICES:
        return list(get_args(get_args(_CHOICES[table][1])[0]))
    return (
        [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []
    )


def _tags(kinds: Any, choice: str) -> list[str]:
    return [tag for kind in get_args(get_args(kinds)[0]) for tag in _tags_of(kind, choice)]


def _tags_of(kind: type[BaseModel], choice: str) -> tuple[str, ...]:
    return get_args(kind.model_fields[choice].annotation)


def _shared(table: str, tag: Any, held: Mapping[str, Any]) -> dict[str, Any]:
    """What a table keeps when it becomes one of another kind."""
    choice = _CHOICES[table][0]
    for kind in _kinds(table, None):
        if tag in _tags_of(kind, choice):
            return {name: value for name, value in held.items() if name in kind.model_fields}
    return {}
