"""What is computed in which block: a function of the experiment alone.

Runs that share a problem, a network and a number of steps form a group: they differ in their start
and learning rate, so that they can lie side by side in one compiled loop. A *block* is a part of a
group, often several sets of lanes (`dynamics.batch`). Neither the number of cores nor an
interruption changes it, nor the last bit of any run's numbers.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from pydantic import TypeAdapter, ValidationError

from thalweg._errors import InputError
from thalweg._sizes import compiling_seconds, computing_seconds
from thalweg.data.digit_images import mnist_files
from thalweg.dynamics.batch import block_operations, lanes_of
from thalweg.experiment import Experiment, changed, objective
from thalweg.experiment.data_settings import CsvData, ImageData
from thalweg.experiment.settings import RegisteredStart, Start, spacing
from thalweg.objective import Objective
from thalweg.quantities.registry import registered
from thalweg.sweeps.grid import Dimension, Grid, read_grid

_FUNCTIONS = 8  # that are compiled for runs of one shape
_LARGEST_BLOCK = 400
_BLOCK_WORK = 1e9  # steps x weights: a second or so
_BLOCK_BYTES = 64 * 2**20  # what a block may record
_NOT_THE_RUNS = ("title", "sweep", "flow", "certificates", "output")
_NOT_THE_SHAPES = ("data.seed", "data.noise", "data.condition", "network.seed", "loss.scale")

_START_NAME = "start.name"

_start_settings = TypeAdapter(Start)


@dataclass(frozen=True)
class Task:
    """All that a block is computed from; small, and the same wherever it is computed.

    Attributes:
        number: of the block.
        experiment: of its first run; all others differ in start and learning rate only.
        folder: where relative paths of data start.
        data_digest: of the files that the data are read from, "" if they are drawn.
        cells: where the runs belong.
        rates: the learning rate of each run.
        starts: the settings of each run's start.
        steps: how many each run takes.
        record_every: how many lie between two records.
        records: how many records the longest run of the sweep has.
        lanes: how many runs share a compiled loop.
        registered: the names of the quantities that users have registered.
    """

    number: int
    experiment: Experiment
    folder: Path
    data_digest: str
    cells: Int[np.ndarray, " runs"]
    rates: tuple[float, ...]
    starts: tuple[Any, ...]
    steps: int
    record_every: int
    records: int
    lanes: int
    registered: tuple[str, ...]

    @property
    def work(self) -> int:
        """Network-steps."""
        return len(self.rates) * self.steps


class _Size(NamedTuple):
    """What a run of some shape costs."""

    weights: int
    per_step: int
    lanes: int
    depth: int
    operations: int


class _Block(NamedTuple):
    """Some runs of a group, by their numbers in the grid."""

    runs: Int[np.ndarray, " runs"]
    steps: int
    size: _Size


@dataclass(frozen=True)
class Plan:
    """All blocks of a sweep, each made when it is asked for."""

    experiment: Experiment
    folder: Path
    grid: Grid

    def __len__(self) -> int:
        return len(self._blocks)

    def task(self, number: int) -> Task:
        """What a block is computed from."""
        block, settings = self._blocks[number], self.experiment.sweeping
        shapes = [self._shapes[each] for each in self._shape_of[block.runs]]
        return Task(
            number,
            shapes[0],
            self.folder,
            self.data_files.get(_file_name(shapes[0].data), ""),
            self.grid.cells[block.runs],
            tuple(shape.training.learning_rate[0] for shape in shapes),
            tuple(self._start(int(run)) for run in block.runs),
            block.steps,
            spacing(block.steps, settings.records),
            self.records,
            block.size.lanes,
            tuple(each.name for each in registered()),
        )

    def works(self) -> Int[np.ndarray, " blocks"]:
        """The network-steps of every block."""
        return np.array([block.runs.size * block.steps for block in self._blocks])

    def seconds(self) -> float:
        """Roughly how long it takes on all cores of this machine, compiling included."""
        depths = {block.size.depth for block in self._blocks}
        computing = sum(
            computing_seconds(
                float(block.steps) * block.runs.size / block.size.lanes * block.size.operations
            )
            for block in self._blocks
        )
        return sum(compiling_seconds(depth, _FUNCTIONS) for depth in depths) + computing / (
            os.cpu_count() or 1
        )

    @cached_property
    def records(self) -> int:
        """How many records the longest run has."""
        most = self.experiment.sweeping.records
        steps = {block.steps for block in self._blocks}
        return max(-(-each // spacing(each, most)) + 1 for each in steps)

    def identity(self) -> dict[str, str]:
        """What the numbers depend on, in digests: the experiment, its grid, its data files."""
        return {
            "experiment_digest": self._experiment_digest(),
            "grid_digest": self._grid_digest(),
            "data_digest": _digest(self.data_files),
        }

    def own_starts(self) -> list[str]:
        """The names of all registered initialisations that runs start from."""
        swept = [
            row[each.fields.index(_START_NAME)]
            for each in self.grid.dimensions
            if _START_NAME in each.fields
            for row in each.rows
        ]
        start = self.experiment.start
        fixed = [start.name] if isinstance(start, RegisteredStart) else []
        return sorted({name for name in (*fixed, *swept) if name is not None})

    @cached_property
    def data_files(self) -> dict[str, str]:
        """The digest of all data files that runs read, by their path as it is written.

        Found once: what is computed later must be of these, whatever becomes of the files.
        """
        found = {_file_name(shape.data): shape.data for shape in self._shapes}
        return {name: data_digest(found[name], self.folder) for name in sorted(found) if name}

    # The dimensions along which nothing but the start changes are the cheap ones: there are many
    # points along them, and no experiment has to be built for each.

    @cached_property
    def _start_dimensions(self) -> tuple[int, ...]:
        return tuple(n for n, each in enumerate(self.grid.dimensions) if _only_starts(each))

    @cached_property
    def _shape_of(self) -> Int[np.ndarray, " runs"]:
        return self._shape_columns[1]

    @cached_property
    def _shape_columns(self) -> tuple[Int[np.ndarray, " shapes"], Int[np.ndarray, " runs"]]:
        """The first run of each combination of all other dimensions, and each run's combination."""
        columns = np.delete(self.grid.points, self._start_dimensions, axis=1)
        if not columns.shape[1]:
            return np.zeros(1, int), np.zeros(len(columns), int)
        _, first, which = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        return first, which.reshape(-1)

    @cached_property
    def _shapes(self) -> list[Experiment]:
        """The validated experiment of each combination."""
        base = self.experiment.model_copy(update={"sweep": ()})
        shapes = [changed(base, self.grid.changes(int(run))) for run in self._shape_columns[0]]
        self._require_valid_starts({shape.start.kind: shape for shape in shapes})
        return shapes

    def _require_valid_starts(self, shapes: dict[str, Experiment]) -> None:
        for number in self._start_dimensions:
            dimension = self.grid.dimensions[number]
            for shape in shapes.values():
                held = shape.start.model_dump()
                for point in range(len(dimension.rows)):
                    changes = dimension.changes(point)
                    try:
                        _start_settings.validate_python(held | _without_table(changes))
                    except ValidationError:
                        changed(shape, changes)  # says what is wrong, and where
                        raise

    def _start(self, run: int) -> Any:
        changes: dict[str, Any] = {}
        for number in self._start_dimensions:
            changes |= self.grid.dimensions[number].changes(int(self.grid.points[run, number]))
        held = self._shapes[self._shape_of[run]].start
        if not changes:
            return held
        return _start_settings.validate_python(held.model_dump() | _without_table(changes))

    @cached_property
    def _blocks(self) -> list[_Block]:
        blocks = []
        for runs, steps, size in self._groups():
            length = self._block_length(steps, size)
            parts = [runs[i : i + length] for i in range(0, runs.size, length)]
            blocks += [_Block(part, steps, size) for part in parts]
        return blocks

    def _groups(self) -> Iterator[tuple[Int[np.ndarray, " runs"], int, _Size]]:
        """Runs that may lie side by side, with their number of steps."""
        keys = [_group_key(shape) for shape in self._shapes]
        number_of = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        group_of = np.array([number_of[key] for key in keys])[self._shape_of]
        in_order = np.argsort(group_of, kind="stable")
        ends = np.cumsum(np.bincount(group_of))[:-1]
        sizes: dict[str, _Size] = {}
        for runs in np.split(in_order, ends):
            shape = self._shapes[self._shape_of[runs[0]]]
            key = _key(shape, _NOT_THE_SHAPES)
            if key not in sizes:
                sizes[key] = _size(objective(shape, self.folder))
            yield runs, shape.training.steps_at(shape.training.learning_rate[0]), sizes[key]

    def _block_length(self, steps: int, size: _Size) -> int:
        """Whole sets of lanes, as many as a second of work and the room for records allow."""
        settings = self.experiment.sweeping
        kept = size.weights if settings.spectrum_at_records else 1
        by_work = _BLOCK_WORK / (steps * size.per_step)
        by_room = _BLOCK_BYTES / (8 * kept * min(steps, settings.records))
        sets = int(min(by_work, by_room, _LARGEST_BLOCK) / size.lanes)
        return size.lanes * max(1, sets)

    def _experiment_digest(self) -> str:
        swept = [field for each in self.grid.dimensions for field in each.fields]
        return _digest(_values(self._shapes[0], tuple(swept)))

    def _grid_digest(self) -> str:
        held = [[each.name, each.fields, each.rows] for each in self.grid.dimensions]
        return _digest([held, hashlib.sha256(self.grid.cells.tobytes()).hexdigest()])


def make_plan(experiment: Experiment, folder: Path) -> Plan:
    """Divide a sweep into blocks; refuses what no run could be made of."""
    plan = Plan(experiment, folder, read_grid(experiment))
    if not len(plan):
        raise InputError("A sweep must have at least one run.")
    return plan


def data_digest(data: Any, folder: Path) -> str:
    """The digest of the files that data are read from; "" if they are drawn."""
    total, files = hashlib.sha256(), _files(data, folder)
    for path in files:
        try:
            total.update(path.read_bytes())
        except OSError as error:
            raise InputError(
                f"The data of a run must be a file that can be read, got {path}: {error.strerror}; "
                "a worker of a cluster needs it under the same path."
            ) from error
    return total.hexdigest() if files else ""


def require_data(data: Any, folder: Path, digest: str) -> None:
    """Refuse data files that are not those which the sweep was planned with."""
    if data_digest(data, folder) != digest:
        names = " and ".join(str(path) for path in _files(data, folder))
        raise InputError(
            f"{names} must be the same from the beginning of a sweep to its end, and for all "
            "workers of a cluster, but there is something else in it here; copy it to where it "
            "differs, or give the command again if it was changed."
        )


def _files(data: Any, folder: Path) -> tuple[Path, ...]:
    """Where data are read from."""
    if isinstance(data, CsvData):
        return (folder / data.path,)
    if isinstance(data, ImageData) and data.source == "mnist":
        return mnist_files(None if data.path is None else folder / data.path)
    return ()


def _file_name(data: Any) -> str:
    """What data files are called in the experiment; "" for data that are drawn."""
    if isinstance(data, CsvData):
        return data.path
    return data.path or "mnist" if getattr(data, "source", "") == "mnist" else ""


def _only_starts(dimension: Dimension) -> bool:
    names = [field.split(".") for field in dimension.fields]
    # Another kind of start has other fields: that is for the slow and thorough way.
    return all(table == "start" and name != "kind" for table, name in names)


def _without_table(changes: dict[str, Any]) -> dict[str, Any]:
    return {name.rpartition(".")[2]: value for name, value in changes.items()}


def _size(built: Objective) -> _Size:
    weights = built.network.size
    samples = 1 if built.network.linear is not None else built.problem.inputs.shape[0]
    lanes, depth = lanes_of(built), built.network.depth
    return _Size(weights, weights * samples, lanes, depth, block_operations(built))


def _group_key(shape: Experiment) -> str:
    """All that runs of a group have in common."""
    steps = shape.training.steps_at(shape.training.learning_rate[0])
    return f"{steps} {_key(shape, ('start', 'training'))}"


def _key(experiment: Experiment, without: tuple[str, ...]) -> str:
    return json.dumps(_values(experiment, without), sort_keys=True)


def _values(experiment: Experiment, without: tuple[str, ...]) -> dict[str, Any]:
    held = experiment.model_dump(mode="json", exclude=set(_NOT_THE_RUNS))
    for name in without:
        table, _, field = name.rpartition(".")
        (held.get(table, {}) if table else held).pop(field, None)
    return held


def _digest(held: Any) -> str:
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
