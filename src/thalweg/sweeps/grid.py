"""All grids of an experiment united: dimensions, coordinates, and which cells have a run.

A dimension is called like its field, "scale" for start.scale; with the table in front where two
would be called alike, "start_seed" and "data_seed", and for "training_time". A grid that does not
vary a field which another one varies takes the experiment's own value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Int

from thalweg._errors import InputError
from thalweg._sizes import require_memory
from thalweg.experiment import Experiment
from thalweg.experiment.files import field_description
from thalweg.sweeps.axes import RATE, Axis, point_key, read_axes

_LARGEST = 2**31  # cells; their numbers alone would take 16 GB
_COPIES = 8  # of each run's place in the grid, while runs are sorted into blocks
_TAKEN = ("time",)  # what every dataset calls something else


@dataclass(frozen=True)
class Dimension:
    """A direction of the grid.

    Attributes:
        name: what it is called in the dataset.
        fields: what varies along it; the first has one value per point, once each.
        rows: the values of all fields, point by point; None where the experiment's own stands.
    """

    name: str
    fields: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def changes(self, point: int) -> dict[str, Any]:
        """What is changed in the experiment at a point."""
        pairs = zip(self.fields, self.rows[point], strict=True)
        return {field: value for field, value in pairs if value is not None}


@dataclass(frozen=True)
class Grid:
    """Dimensions, and for each run its point along each of them; all runs differ."""

    dimensions: tuple[Dimension, ...]
    points: Int[np.ndarray, "runs dimensions"]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many points each dimension has."""
        return tuple(len(dimension.rows) for dimension in self.dimensions)

    @cached_property
    def cells(self) -> Int[np.ndarray, " runs"]:
        """The cell of each run."""
        return np.asarray(np.ravel_multi_index(tuple(self.points.T), self.shape))

    def changes(self, run: int) -> dict[str, Any]:
        """What is changed in the experiment for a run."""
        found: dict[str, Any] = {}
        for dimension, point in zip(self.dimensions, self.points[run], strict=True):
            found |= dimension.changes(int(point))
        return found

    def coordinates(self) -> dict[str, tuple[str, tuple[Any, ...]]]:
        """Each coordinate's dimension and values, dimensions first."""
        found = {each.name: (each.name, _column(each, 0)) for each in self.dimensions}
        for each in self.dimensions:
            for number, field in enumerate(each.fields[1:], start=1):
                found[_short(field, self._fields)] = (each.name, _column(each, number))
        return found

    def long_names(self) -> dict[str, str]:
        """What each coordinate is: the description of its field."""
        firsts = {each.name: each.fields[0] for each in self.dimensions}
        others = [field for each in self.dimensions for field in each.fields[1:]]
        named = {**firsts, **{_short(field, self._fields): field for field in others}}
        return {name: field_description(field) for name, field in named.items()}

    @property
    def _fields(self) -> list[str]:
        return [field for dimension in self.dimensions for field in dimension.fields]


def read_grid(experiment: Experiment) -> Grid:
    """The union of an experiment's grids; several learning rates are a dimension of their own."""
    tables = [
        read_axes(table, "[[sweep]]" if len(experiment.sweep) == 1 else f"[[sweep]] number {n}")
        for n, table in enumerate(experiment.sweep, start=1)
    ]
    if not tables:
        raise InputError(
            "A sweep needs at least one table [[sweep]] in its experiment, e.g. [[sweep]] with "
            '"start.scale" = { from = 0.25, to = 0.6, count = 10 }.'
        )
    tables = [_with_rates(axes, experiment) for axes in tables]
    firsts = list(dict.fromkeys(axis.fields[0] for axes in tables for axis in axes))
    partners = _partners(tables, firsts)
    named = firsts + [field for fields in partners.values() for field in fields]
    values = _values(tables, firsts, experiment)
    return _united(tables, firsts, partners, values, named, experiment)


def _with_rates(axes: tuple[Axis, ...], experiment: Experiment) -> tuple[Axis, ...]:
    if any(RATE in axis.fields for axis in axes):
        return axes
    rates = experiment.training.learning_rate
    if len(rates) == 1:
        return axes
    return (Axis((RATE,), tuple((rate,) for rate in dict.fromkeys(rates))), *axes)


def _partners(tables: list[tuple[Axis, ...]], firsts: list[str]) -> dict[str, tuple[str, ...]]:
    """Which other fields vary along each dimension."""
    partners: dict[str, tuple[str, ...]] = {first: () for first in firsts}
    for axis in (axis for axes in tables for axis in axes):
        new = [field for field in axis.fields if field not in firsts]
        taken = [field for fields in partners.values() for field in fields]
        partners[axis.fields[0]] += tuple(field for field in new if field not in taken)
    return partners


def _values(
    tables: list[tuple[Axis, ...]], firsts: list[str], experiment: Experiment
) -> dict[str, list[Any]]:
    """The points along each dimension: as written, or in order where several grids meet."""
    values: dict[str, list[Any]] = {}
    for field in firsts:
        found: dict[Any, Any] = {}
        for axes in tables:
            axis = next((axis for axis in axes if field in axis.fields), None)
            if axis is None:
                own = own_value(experiment, field)
                found.setdefault(point_key(own), own)
                continue
            for row in axis.rows:
                value = row[axis.fields.index(field)]
                found.setdefault(point_key(value), value)
        values[field] = list(found.values())
        if len(tables) > 1 and all(isinstance(key, int | float) for key in found):
            values[field].sort()
    return values


def own_value(experiment: Experiment, field: str) -> Any:
    """The experiment's own value of a field that another grid varies."""
    table, _, name = field.rpartition(".")
    value = getattr(getattr(experiment, table), name, None)
    if field == RATE:
        value = value[0] if value is not None and len(value) == 1 else None
    if value is None:
        raise InputError(
            f"Every [[sweep]] must give `{field}`, or the experiment must set it, since one of the "
            "grids varies it."
        )
    return value


def _united(
    tables: list[tuple[Axis, ...]],
    firsts: list[str],
    partners: Mapping[str, tuple[str, ...]],
    values: Mapping[str, list[Any]],
    named: list[str],
    experiment: Experiment,
) -> Grid:
    place = {field: {point_key(v): i for i, v in enumerate(values[field])} for field in firsts}
    rows: dict[str, list[tuple[Any, ...] | None]] = {f: [None] * len(values[f]) for f in firsts}
    sizes = " x ".join(str(len(each)) for each in values.values())
    if prod(len(each) for each in values.values()) > _LARGEST:
        raise InputError(f"The grids must span at most {_LARGEST} cells, got {sizes}.")
    runs = sum(prod(len(axis.rows) for axis in axes) for axes in tables)
    require_memory(f"A grid of {sizes} points", _COPIES * runs * len(firsts), "take fewer values")
    points = []
    for axes in tables:
        _note_partners(axes, partners, place, rows, values, experiment)
        points.append(_points(axes, firsts, place, experiment))
    united = np.concatenate(points)
    shape = tuple(len(values[field]) for field in firsts)
    _, first_seen = np.unique(np.ravel_multi_index(tuple(united.T), shape), return_index=True)
    dimensions = tuple(
        Dimension(_short(field, named), (field, *partners[field]), _settled(rows[field]))
        for field in firsts
    )
    return Grid(dimensions, united[first_seen])  # in the order of the cells


def _points(
    axes: tuple[Axis, ...],
    firsts: list[str],
    place: Mapping[str, Mapping[Any, int]],
    experiment: Experiment,
) -> Int[np.ndarray, "runs dimensions"]:
    """The runs of one grid, as points along all dimensions."""
    chosen = np.indices([len(axis.rows) for axis in axes]).reshape(len(axes), -1)
    columns = []
    for field in firsts:
        number = next((n for n, axis in enumerate(axes) if field in axis.fields), None)
        if number is None:
            only = place[field][point_key(own_value(experiment, field))]
            columns.append(np.full(chosen.shape[1], only))
            continue
        column = axes[number].fields.index(field)
        where = [place[field][point_key(row[column])] for row in axes[number].rows]
        columns.append(np.asarray(where)[chosen[number]])
    return np.stack(columns, axis=1)


def _note_partners(
    axes: tuple[Axis, ...],
    partners: Mapping[str, tuple[str, ...]],
    place: Mapping[str, Mapping[Any, int]],
    rows: Mapping[str, list[tuple[Any, ...] | None]],
    values: Mapping[str, list[Any]],
    experiment: Experiment,
) -> None:
    """Fill in what varies along the dimensions; two grids must say the same where they meet."""
    for field, others in partners.items():
        axis = next((axis for axis in axes if field in axis.fields), None)
        held = ((own_value(experiment, field),),) if axis is None else axis.rows
        fields = (field,) if axis is None else axis.fields
        _require_beside(axes, axis, others, field)
        for row in held:
            said = dict(zip(fields, row, strict=True))
            point = place[field][point_key(said[field])]
            whole = (values[field][point], *(said.get(other) for other in others))
            before = rows[field][point]
            if before is not None and point_key(before) != point_key(whole):
                raise InputError(
                    f"Grids that meet must agree, but at `{field}` = {said[field]!r} they have "
                    f"{', '.join(others)} = {before[1:]!r} and {whole[1:]!r}; give "
                    f"`{others[0]}` a dimension of its own."
                )
            rows[field][point] = whole


def _require_beside(
    axes: tuple[Axis, ...], axis: Axis | None, others: tuple[str, ...], field: str
) -> None:
    for each in axes:
        for other in others:
            if each is not axis and other in each.fields:
                raise InputError(
                    f"`{other}` must vary together with `{field}` in every grid, or in none."
                )


def _settled(rows: list[tuple[Any, ...] | None]) -> tuple[tuple[Any, ...], ...]:
    assert all(row is not None for row in rows)  # every value comes from a grid
    return tuple(row for row in rows if row is not None)


def _column(dimension: Dimension, number: int) -> tuple[Any, ...]:
    return tuple(row[number] for row in dimension.rows)


def _short(field: str, fields: list[str]) -> str:
    """The last part of a field's name, with its table in front where others end alike."""
    last = field.rpartition(".")[2]
    alike = sum(other.rpartition(".")[2] == last for other in fields)
    return last if alike == 1 and last not in _TAKEN else field.replace(".", "_")
