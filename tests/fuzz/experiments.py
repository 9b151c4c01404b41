"""Experiment files: fields that exist with values of their type, others, and broken syntax."""

import copy
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import drawing
import worlds
from cases import Case
from commands import command
from drawing import Rng, chance
from writing import document

_COMMANDS = (
    ["certify"] * 8 + ["run"] * 3 + ["prove"] * 3 + ["critical"] * 2 + ["sweep"] * 3
)  # fmt: skip
_OPTIONS = {
    "critical": ["--steps", "5", "--starts", "2"],
    "sweep": ["--out", "out"],
    "run": ["--out", "out"],
}


@cache
def kinds() -> dict[str, tuple[type, ...]]:
    """The classes of each table of an experiment."""
    from thalweg.experiment import files
    from thalweg.experiment.settings import Experiment

    return {
        name: tuple(files._kinds(name, info.annotation))
        for name, info in Experiment.model_fields.items()
    }


def case(rng: Rng) -> Case:
    """A command on an experiment file."""
    name = rng.choice(_COMMANDS)
    raw = _text(rng, sweeps=name == "sweep").encode("utf-8", "surrogatepass")
    if chance(rng, 0.15):
        raw = drawing.damaged(rng, raw)
    if chance(rng, 0.02):
        raw = rng.choice((b"\xef\xbb\xbf" + raw, raw.decode("utf-8", "replace").encode("utf-16")))
    words = [name, "case.toml", *_OPTIONS.get(name, [])]
    if chance(rng, 0.3):
        words.append("--json")
    if name == "certify" and chance(rng, 0.3):
        words.append("--run")
    return command(words, {"case.toml": raw, "table.csv": worlds.TABLE.encode()})


def _text(rng: Rng, sweeps: bool) -> str:
    if chance(rng, 0.1):
        return document({drawing.word(rng)[:300]: drawing.tree(rng) for _ in range(3)})
    values = small()
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change(rng, values)
    if sweeps or chance(rng, 0.02):
        values["sweep"] = [_grid(rng) for _ in range(rng.choice((1, 1, 1, 2)))]
    if chance(rng, 0.03):
        values[drawing.word(rng)[:300]] = drawing.tree(rng)
    return document(values)


def small() -> dict[str, Any]:
    """An experiment that is done at once; what takes compiling is off."""
    values: dict[str, Any] = copy.deepcopy(worlds.TINY)
    values["curvature"] = {"enabled": False}
    return values


def _change(rng: Rng, values: dict[str, Any]) -> None:
    """Give a field a value of its type, or any."""
    table = rng.choice([name for name in kinds() if name != "sweep"])
    if not kinds()[table]:
        values[table] = drawing.scalar(rng)
        return
    kind: Any = rng.choice(kinds()[table])
    held = values.setdefault(table, {})
    if not isinstance(held, dict):
        return
    for choice in ("source", "kind"):  # which of several kinds it is
        if len(kinds()[table]) > 1 and choice in kind.model_fields:
            tags = get_args(kind.model_fields[choice].annotation)
            if held.get(choice) not in tags:
                held.clear()
                held[choice] = rng.choice(tags)
                _complete(held)
    name = rng.choice(list(kind.model_fields)) if chance(rng, 0.95) else drawing.word(rng)[:300]
    if name in kind.model_fields and chance(rng, 0.7):
        held[name] = conforming(rng, kind.model_fields[name].annotation)
    elif chance(rng, 0.3):
        values[table] = drawing.tree(rng)
    else:
        held[name] = drawing.tree(rng, 2)


def _complete(held: dict[str, Any]) -> None:
    """What a kind of data needs, or what makes it small."""
    more: dict[str, dict[str, Any]] = {
        "gaussian": {"samples": 6, "features": 2},
        "conditioned": {"samples": 6, "features": 2},
        "csv": {"path": "table.csv", "target": "y"},
        "digits": {"samples": 12, "only": [0, 1]},
        "mnist": {"path": "nowhere"},
    }
    if "source" in held:
        held.update(more.get(held["source"], {}))


def conforming_value(rng: Rng, field: str) -> Any:
    """A value of the type of a field that is named like "network.depth"."""
    table, _, name = field.rpartition(".")
    for kind in kinds().get(table, ()):
        fields: Any = getattr(kind, "model_fields", {})
        if name in fields:
            return conforming(rng, fields[name].annotation)
    return drawing.scalar(rng)


def conforming(rng: Rng, annotation: Any) -> Any:
    """A value of a type, whatever its size."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return conforming(rng, inner[0])
    if origin in (Union, UnionType):
        return conforming(rng, rng.choice([each for each in inner if each is not type(None)]))
    if origin is Literal:
        return rng.choice(inner)
    if origin is tuple:
        if inner[-1] is not Ellipsis:
            return [conforming(rng, each) for each in inner]
        return [conforming(rng, inner[0]) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    plain = {bool: lambda: chance(rng, 0.5), int: lambda: drawing.whole(rng),
             float: lambda: drawing.real(rng), str: lambda: drawing.word(rng)}  # fmt: skip
    return plain[annotation]() if annotation in plain else drawing.tree(rng)


def _grid(rng: Rng) -> dict[str, Any]:
    """A table [[sweep]]."""
    from thalweg.experiment.files import field_names

    table: dict[str, Any] = {}
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        fields = [
            rng.choice(field_names()) if chance(rng, 0.5) else
            rng.choice(("start.seed", "start.scale", "training.learning_rate", "data.seed"))
            for _ in range(rng.choice((1, 1, 1, 2)))
        ]  # fmt: skip
        name = ", ".join(fields) if chance(rng, 0.95) else drawing.word(rng)[:300]
        table[name] = _axis(rng, fields)
    return table


def _axis(rng: Rng, fields: list[str]) -> Any:
    roll = rng.random()
    if roll < 0.1:
        return drawing.tree(rng)
    if roll < 0.4:
        span = {"from": drawing.real(rng), "to": drawing.real(rng), "count": drawing.whole(rng)}
        if chance(rng, 0.3):
            span["spacing"] = rng.choice(("log", "linear", drawing.word(rng)))
        if chance(rng, 0.2):
            span.pop(rng.choice(list(span)))
        return span
    rows = []
    for _ in range(rng.choice((0, 1, 2, 2))):
        row = [conforming_value(rng, field) for field in fields]
        rows.append(row if len(fields) > 1 else row[0])
    return rows
