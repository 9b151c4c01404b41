"""One grid as it is written: which fields vary, alone or together, and their values.

"start.scale" = [0.25, 0.4]                                  a list
"start.scale" = { from = 0.25, to = 0.6, count = 10 }        evenly spaced, both ends included
"training.learning_rate" = { from = 1e-3, to = 1, count = 7, spacing = "log" }
"start.seed" = { from = 0, to = 19 }                         whole numbers, one by one
"training.learning_rate, training.steps" = [[0.005, 40000], [0.02, 10000]]    together, in rows
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from thalweg._checks import InputError
from thalweg.experiment.files import field_names

RATE = "training.learning_rate"
"""The field of which an experiment may have several values, but a run only one."""

LARGEST = 10**6
"""Values along one axis: each is looked at by itself, which then takes a minute."""

_UNUSED_TABLES = ("title", "flow", "certificates", "output", "sweeping")
_UNUSED_FIELDS = ("training.records", "curvature.enabled")
_RANGE_KEYS = ("from", "to", "count", "spacing")


@dataclass(frozen=True)
class Axis:
    """Fields that vary together: the first names a dimension, one row per point along it."""

    fields: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def read_axes(grid: Mapping[str, Any], place: str) -> tuple[Axis, ...]:
    """The axes of one table [[sweep]]; `place` is what errors call it."""
    if not grid:
        raise InputError(f"{place} must name the fields that vary, but it is empty.")
    axes = tuple(_axis(names, values, place) for names, values in grid.items())
    fields = [field for axis in axes for field in axis.fields]
    for field in fields:
        if fields.count(field) > 1:
            raise InputError(f"{place} must name `{field}` once, but it does so twice.")
    return axes


def field_hint(name: str, known: list[str]) -> str:
    """What a misspelt field may have meant."""
    nearest = get_close_matches(name, known, 1) or get_close_matches(
        name, [each for each in known if each.endswith(f".{name}")], 1, cutoff=0.0
    )
    return f"; did you mean `{nearest[0]}`?" if nearest else "; see `thalweg init` for all fields."


def _axis(names: str, values: Any, place: str) -> Axis:
    fields = tuple(name.strip() for name in names.split(","))
    for field in fields:
        _require_field(field, place)
    listed = _values(names, values, place)
    if not listed:
        raise InputError(f"`{names}` in {place} must have at least one value, but has none.")
    if len(fields) == 1:
        rows = tuple((value,) for value in listed)
    else:
        rows = _rows(names, len(fields), listed, place)
    for row in rows:
        for field, value in zip(fields, row, strict=True):
            _require_value(field, value, place)
    firsts = [point_key(row[0]) for row in rows]
    if len(set(firsts)) < len(firsts):
        again = next(key for key in firsts if firsts.count(key) > 1)
        fix = "" if len(fields) == 1 else "; name first a field whose values all differ"
        raise InputError(
            f"`{fields[0]}` in {place} must have different values, but {again!r} is there "
            f"twice{fix}."
        )
    return Axis(fields, rows)


def point_key(value: Any) -> Any:
    """A value as something that can be compared and looked up; lists become tuples."""
    return tuple(map(point_key, value)) if isinstance(value, list | tuple) else value


def _require_field(field: str, place: str) -> None:
    known = [
        name
        for name in field_names()
        if name.split(".")[0] not in _UNUSED_TABLES and name not in _UNUSED_FIELDS
    ]
    if field in known:
        return
    if field in field_names():
        raise InputError(
            f"{place} must not vary `{field}`, which changes nothing in the runs of a sweep."
        )
    raise InputError(
        f"{place} must vary fields of an experiment, and there is no `{field}`"
        f"{field_hint(field, known)}"
    )


def _require_value(field: str, value: Any, place: str) -> None:
    """Refuse what cannot be one point of an axis."""
    try:
        hash(point_key(value))
    except TypeError as error:
        raise InputError(
            f"`{field}` in {place} must have numbers, words or lists of them as its values, got "
            f"{value!r}; a range stands alone, without brackets around it."
        ) from error
    if field == RATE and isinstance(value, list | tuple):
        raise InputError(
            f"`{field}` in {place} must be one number for each run, got {value!r}; list the rates "
            "one by one, without brackets around several."
        )


def _rows(names: str, width: int, values: list[Any], place: str) -> tuple[tuple[Any, ...], ...]:
    for row in values:
        if not isinstance(row, list | tuple) or len(row) != width:
            raise InputError(
                f"`{names}` in {place} must have rows of {width} values, one per field, got "
                f"{row!r}."
            )
    return tuple(tuple(row) for row in values)


def _values(names: str, values: Any, place: str) -> list[Any]:
    if isinstance(values, Mapping):
        return _range(names, values, place)
    return list(values) if isinstance(values, list | tuple) else [values]


def _range(names: str, table: Mapping[str, Any], place: str) -> list[Any]:
    for key in table:
        if key not in _RANGE_KEYS:
            raise InputError(
                f"`{names}` in {place} must be a range with {', '.join(_RANGE_KEYS)}, got `{key}`."
            )
    low, high, count = (table.get(key) for key in ("from", "to", "count"))
    spacing = table.get("spacing", "linear")
    for key, value in (("from", low), ("to", high)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise InputError(
                f"`{names}` in {place} must be a range with numbers `from` and `to`, got "
                f"{key} = {value!r}."
            )
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    if spacing not in ("linear", "log"):
        raise InputError(
            f'`{names}` in {place} must have the spacing "linear" or "log", got {spacing!r}.'
        )
    if count is None:
        return _whole_range(names, low, high, spacing, place)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"`{names}` in {place} must have a whole `count` >= 1, got {count!r}.")
    _require_few(names, count, place)
    return _spaced(names, low, high, count, spacing, place)


def _require_few(names: str, count: int, place: str) -> None:
    if count > LARGEST:
        raise InputError(f"`{names}` in {place} must have at most {LARGEST} values, got {count}.")


def _whole_range(
    names: str, low: float | int, high: float | int, spacing: str, place: str
) -> list[int]:
    if not (isinstance(low, int) and isinstance(high, int)) or spacing != "linear":
        raise InputError(
            f"`{names}` in {place} must have a `count`; only whole numbers are counted one by one."
        )
    _require_few(names, high - low + 1, place)
    return list(range(low, high + 1))


def _spaced(
    names: str, low: float | int, high: float | int, count: int, spacing: str, place: str
) -> list[float] | list[int]:
    if spacing == "log":
        if low <= 0 or high <= 0:
            raise InputError(
                f"`{names}` in {place} must have positive ends to be spaced by factors, got "
                f"{low} and {high}."
            )
        values = np.geomspace(low, high, count)
    else:
        values = np.linspace(low, high, count)
    # Whole ends whose spacing is whole too are meant as whole numbers: depths, widths.
    if isinstance(low, int) and isinstance(high, int) and np.array_equal(values, values.round()):
        return [int(value) for value in values]
    return [float(value) for value in values]
