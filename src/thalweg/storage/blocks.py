"""Results of many runs in blocks: each is a part that is kept until all are there (`keeper`).

A folder of blocks has a manifest that says what is computed and where every run belongs. When all
blocks are there they are put together into one Zarr store, a window of the grid at a time, so that
memory does not grow with the number of runs; then the blocks go.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
import zarr
from jaxtyping import Float, Int

from thalweg._errors import InputError
from thalweg._quantity import attributes_of, stored_as
from thalweg.storage.contents import MANIFEST, RESULTS, attributes
from thalweg.storage.files import remove, remove_at_once, remove_parts, write_folder, writing_to
from thalweg.storage.keeper import Arrays, Keeper, forget
from thalweg.storage.layout import Layout, Window
from thalweg.storage.sealed import read_record, write_record
from thalweg.storage.sums import DamageError

_BLOCKS, _FORMAT = "blocks", 3
_NUMBER, _PATH = "number.", "path."
_AT_HAND = 32  # blocks in memory while windows are filled
_ALL: Any = {"write_empty_chunks": True}  # what is not there is missing, to every reader
_log = logging.getLogger(__name__)


Variable = tuple[tuple[str, ...], tuple[int, ...]]
"""The names and lengths of an array's dimensions."""


class Block(NamedTuple):
    """Some of the runs: where they belong, and what was found.

    Attributes:
        cells: the cell of each run.
        numbers: per name, one number for each run.
        paths: per name, one row of records for each run; all have the same number of records.
    """

    cells: Int[np.ndarray, " runs"]
    numbers: Mapping[str, Float[np.ndarray, " runs"]]
    paths: Mapping[str, Float[np.ndarray, "runs records"]]


class _Index(NamedTuple):
    """In which block each cell lies, and in which row; -1 where no run belongs."""

    block: Int[np.ndarray, " cells"]
    row: Int[np.ndarray, " cells"]


@dataclass(frozen=True)
class BlockStore:
    """A folder of blocks.

    Attributes:
        folder: where they are.
        identity: what makes the numbers what they are; another identity is another sweep.
        layout: the grid.
        count: how many blocks there are to be.
    """

    folder: Path
    identity: Mapping[str, Any]
    layout: Layout
    count: int

    @classmethod
    def read(cls, folder: Path) -> "BlockStore":
        """The store that a folder's manifest describes."""
        try:
            held = read_record(folder / MANIFEST)
            if held["format"] != _FORMAT:
                raise DamageError(
                    f"another version of thalweg wrote it, in format {held['format']}"
                )
            layout = Layout.from_json(held["layout"])
            return cls(folder, held["identity"], layout, held["blocks"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{folder / MANIFEST} must be that of a sweep: {error}; `thalweg sweep` with "
                "`--fresh` begins anew."
            ) from error

    @property
    def results(self) -> Path:
        """Where everything is in the end."""
        return self.folder / RESULTS

    @property
    def complete(self) -> bool:
        """Whether the blocks have been put together: the store there is of this very sweep."""
        said = attributes(self.results) if self.results.is_dir() else {}
        same = all(said.get(name) == value for name, value in self.identity.items())
        return same and said.get("kind") == "sweep"

    def write_manifest(self) -> None:
        """Begin: the manifest is there before any block, and blocks of whatever else are not."""
        held = {
            "format": _FORMAT,
            "identity": dict(self.identity),
            "blocks": self.count,
            "layout": self.layout.to_json(),
        }
        with writing_to(self.folder):
            forget(self._blocks)
            self._keeper.begin()
            write_record(self.folder / MANIFEST, held)

    def clean(self) -> None:
        """Remove what an interrupted writer left behind."""
        with writing_to(self.folder):
            for path in (self.results, self.folder / MANIFEST):
                remove_parts(path)
            if self.complete:
                forget(self._blocks)
            else:
                self._keeper.begin()
                self._keeper.clean()

    def clear(self) -> None:
        """Remove the sweep, and nothing else that is in the folder."""
        with writing_to(self.folder):
            remove_at_once(self.results)
            forget(self._blocks)
            remove(self.folder / MANIFEST)

    def done(self) -> set[int]:
        """The numbers of the blocks that are there; a damaged one is not, and that is said."""
        whole, damaged = self.checked()
        for name in damaged:
            _log.warning("%s of %s is damaged and will be computed again.", name, self.folder)
        return whole

    def checked(self) -> tuple[set[int], list[str]]:
        """The numbers of the blocks that are there and whole, and the names of damaged ones."""
        kept = self._keeper.checked()
        numbers = {int(name) for name in kept.whole if name.isdecimal()}
        return {number for number in numbers if number < self.count}, kept.damaged

    def write(self, number: int, block: Block) -> None:
        """Put a block in place."""
        self._keeper.put(_name(number), _arrays(block))

    def assemble(self) -> None:
        """Put all blocks together, then remove them."""
        with writing_to(self.folder):
            write_folder(self.results, self._write_results)
            forget(self._blocks)

    def unfinished(self) -> xr.Dataset:
        """What there is so far, in memory; NaN where nothing is."""
        if not self._blocks.is_dir():  # there from the beginning until the results are
            raise DamageError(
                f"The sweep in {self.folder} must have its blocks or its {RESULTS}, but both are "
                "gone; take them from a copy, or give its command again to compute it anew."
            )
        whole, damaged = self.checked()
        done = sorted(whole)
        empty = self.layout.dataset().assign_attrs(
            unfinished=f"{len(done)} of {self.count} blocks are done", damaged=damaged
        )
        variables = self._variables(done)
        arrays = {name: _unset(name, shape) for name, (_, shape) in variables.items()}
        for window, parts in self._filled(done, variables):
            for name, part in parts.items():
                arrays[name][window] = part
        return empty.assign(
            {
                name: (dims, arrays[name], attributes_of(name))
                for name, (dims, _) in variables.items()
            }
        )

    @property
    def _blocks(self) -> Path:
        return self.folder / _BLOCKS

    @cached_property
    def _keeper(self) -> Keeper:
        return Keeper(self._blocks, self.identity)

    def _read(self, number: int) -> Block:
        try:
            return _block(self._keeper.read(_name(number)))
        except DamageError as error:
            raise DamageError(
                f"The blocks in {self._blocks} must be what was written there, but {error}; run "
                "the same command again to compute it anew."
            ) from error

    def _variables(self, numbers: list[int]) -> dict[str, Variable]:
        """The dimensions and shape of everything that blocks hold."""
        names: dict[str, Variable] = {}
        dims, shape = self.layout.dims, self.layout.shape
        if numbers:
            block = self._read(numbers[0])
            names = dict.fromkeys(block.numbers, (dims, shape))
            for name, path in block.paths.items():
                names[name] = ((*dims, "record"), (*shape, path.shape[1]))
        return names

    def _write_results(self, path: Path) -> None:
        numbers = list(range(self.count))
        self.layout.dataset().to_zarr(path, mode="w", zarr_format=2, consolidated=False)
        variables = self._variables(numbers)
        arrays = create_variables(path, self.layout, variables)
        for window, parts in self._filled(numbers, variables):
            for name, part in parts.items():
                arrays[name][window] = part
        zarr.consolidate_metadata(path, zarr_format=2)

    def _index(self, numbers: list[int]) -> _Index:
        index = _Index(*np.full((2, self.layout.size), -1))
        for number in numbers:
            cells = self._read(number).cells
            index.block[cells], index.row[cells] = number, np.arange(cells.size)
        return index

    def _filled(
        self, numbers: list[int], variables: Mapping[str, Variable]
    ) -> Iterator[tuple[Window, dict[str, np.ndarray]]]:
        """Window by window, what there is to put there."""
        index, dims = self._index(numbers), len(self.layout.dims)
        block_at = lru_cache(_AT_HAND)(self._read)
        for window in self.layout.windows():
            cells = self.layout.cells(window)
            owners, rows = index.block[cells], index.row[cells]
            parts = {
                name: _unset(name, cells.shape + shape[dims:])
                for name, (_, shape) in variables.items()
            }
            for number in np.unique(owners[owners >= 0]):
                block, here = block_at(int(number)), owners == number
                for name, values in {**block.numbers, **block.paths}.items():
                    parts[name][here] = values[rows[here]]
            yield window, parts


def create_variables(
    path: Path, layout: Layout, variables: Mapping[str, Variable]
) -> dict[str, zarr.Array]:
    """Arrays on the grid of a Zarr store, each window of which is to be filled."""
    group = zarr.open_group(path, mode="a")
    return {
        name: group.create_array(
            name,
            shape=shape,
            chunks=layout.chunks + shape[len(layout.dims) :],
            dtype=stored_as(name).dtype,
            # An integer that stood for what is missing would be read back as NaN.
            fill_value=np.nan if stored_as(name).dtype == "float64" else None,
            config=_ALL,
            attributes={"_ARRAY_DIMENSIONS": list(dims), **attributes_of(name)},
        )
        for name, (dims, shape) in variables.items()
    }


def _unset(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Room for a quantity, with what it is where there is no run."""
    return np.full(shape, stored_as(name).missing, stored_as(name).dtype)


def _name(number: int) -> str:
    return f"{number:06d}"


def _arrays(block: Block) -> Arrays:
    """A block as a part that can be kept."""
    numbers = {f"{_NUMBER}{name}": values for name, values in block.numbers.items()}
    paths = {f"{_PATH}{name}": values for name, values in block.paths.items()}
    return {"cells": block.cells, **numbers, **paths}


def _block(arrays: Arrays) -> Block:
    """The block that was kept as this part."""
    numbers, paths = (
        {name.removeprefix(kind): held for name, held in arrays.items() if name.startswith(kind)}
        for kind in (_NUMBER, _PATH)
    )
    return Block(arrays["cells"], numbers, paths)
