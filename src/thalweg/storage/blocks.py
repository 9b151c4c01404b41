"""Results of many runs in blocks: each is one file that appears when it is complete.

A folder of blocks has a manifest that says what is computed and where every run belongs. When all
blocks are there they are put together into one Zarr store, a window of the grid at a time, so that
memory does not grow with the number of runs; then the blocks go.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
import zarr
from jaxtyping import Float, Int
from numcodecs import Zstd
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from thalweg._errors import InputError
from thalweg.quantities import attributes_of, stored_as
from thalweg.storage.contents import MANIFEST, RESULTS, attributes
from thalweg.storage.files import (
    left_of,
    remove,
    remove_at_once,
    remove_parts,
    write_bytes,
    write_folder,
    writing_to,
)
from thalweg.storage.layout import Layout, Window
from thalweg.storage.sealed import read_record, sealed, unsealed, write_record
from thalweg.storage.sums import DamageError

_BLOCKS, _FORMAT = "blocks", 2
_BLOCK_NAME = re.compile(r"(\d{6,})\.zarr\.zip")
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
            self._remove_blocks()
            self._blocks.mkdir(parents=True, exist_ok=True)
            write_record(self.folder / MANIFEST, held)

    def clean(self) -> None:
        """Remove what an interrupted writer left behind."""
        with writing_to(self.folder):
            for path in (self.results, self.folder / MANIFEST):
                remove_parts(path)
            for path in self._files():
                if _number(left_of(path.name)) is not None:
                    remove(path)
            if self.complete:
                self._remove_blocks()

    def clear(self) -> None:
        """Remove the sweep, and nothing else that is in the folder."""
        with writing_to(self.folder):
            remove_at_once(self.results)
            self._remove_blocks()
            remove(self.folder / MANIFEST)

    def done(self) -> set[int]:
        """The numbers of the blocks that are there; a damaged one is not, and that is said."""
        whole, damaged = self.checked()
        for name in damaged:
            _log.warning("%s of %s is damaged and will be computed again.", name, self.folder)
        return whole

    def checked(self) -> tuple[set[int], list[str]]:
        """The numbers of the blocks that are there and whole, and the names of damaged ones."""
        whole, damaged = set(), []
        for path in sorted(self._files()):
            number = _number(path.name)
            if number is None or number >= self.count:
                continue
            try:
                unsealed(path)
                whole.add(number)
            except (DamageError, OSError):
                damaged.append(path.name)
        return whole, damaged

    def write(self, number: int, block: Block) -> None:
        """Put a block in place."""
        with writing_to(self.folder):
            self._blocks.mkdir(parents=True, exist_ok=True)
            write_bytes(self._path(number), _packed(block))

    def assemble(self) -> None:
        """Put all blocks together, then remove them."""
        with writing_to(self.folder):
            write_folder(self.results, self._write_results)
            self._remove_blocks()

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

    def _path(self, number: int) -> Path:
        return self._blocks / f"{number:06d}.zarr.zip"

    def _files(self) -> list[Path]:
        """All that is where the blocks are."""
        return list(self._blocks.iterdir()) if self._blocks.is_dir() else []

    def _remove_blocks(self) -> None:
        """Remove all blocks, and their folder if nothing else is in it."""
        for path in self._files():
            if _number(path.name) is not None or _number(left_of(path.name)) is not None:
                remove(path)
        if self._blocks.is_dir() and not self._files():
            self._blocks.rmdir()

    def _variables(self, numbers: list[int]) -> dict[str, Variable]:
        """The dimensions and shape of everything that blocks hold."""
        names: dict[str, Variable] = {}
        dims, shape = self.layout.dims, self.layout.shape
        if numbers:
            block = _read_block(self._path(numbers[0]))
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
            cells = _read_block(self._path(number), only_cells=True).cells
            index.block[cells], index.row[cells] = number, np.arange(cells.size)
        return index

    def _filled(
        self, numbers: list[int], variables: Mapping[str, Variable]
    ) -> Iterator[tuple[Window, dict[str, np.ndarray]]]:
        """Window by window, what there is to put there."""
        index, dims = self._index(numbers), len(self.layout.dims)
        block_at = lru_cache(_AT_HAND)(lambda number: _read_block(self._path(number)))
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
            compressors=Zstd(3),
            config=_ALL,
            attributes={"_ARRAY_DIMENSIONS": list(dims), **attributes_of(name)},
        )
        for name, (dims, shape) in variables.items()
    }


def _unset(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Room for a quantity, with what it is where there is no run."""
    return np.full(shape, stored_as(name).missing, stored_as(name).dtype)


def _number(name: str | None) -> int | None:
    """The number of the block whose file has this name, if it is one."""
    match = _BLOCK_NAME.fullmatch(name or "")
    return int(match[1]) if match else None


def _packed(block: Block) -> bytes:
    """A Zarr group in one file: cells, all numbers side by side, all paths side by side.

    It is made in memory, for a file that a full disk cuts short cannot be closed in peace.
    """
    store = MemoryStore()
    names = {"numbers": list(block.numbers), "paths": list(block.paths)}
    group = zarr.create_group(store, zarr_format=2, attributes=names)
    arrays = {"cells": block.cells}
    for kind, held in (("numbers", block.numbers), ("paths", block.paths)):
        arrays[kind] = np.stack(list(held.values()))
    for name, array in arrays.items():
        group.create_array(name, data=array, chunks=array.shape, compressors=Zstd(3), config=_ALL)
    return sealed({name: part.to_bytes() for name, part in store._store_dict.items()})


def _read_block(path: Path, only_cells: bool = False) -> Block:
    buffer = default_buffer_prototype().buffer
    try:
        members = unsealed(path)
    except DamageError as error:
        raise DamageError(
            f"The blocks in {path.parent} must be what was written there, but {error}; run the "
            "same command again to compute it anew."
        ) from error
    parts = {name: buffer.from_bytes(part) for name, part in members.items()}
    group = zarr.open_group(MemoryStore(parts), mode="r")
    cells = np.asarray(_array(group, "cells")[...])
    if only_cells:
        return Block(cells, {}, {})
    held = []
    for kind in ("numbers", "paths"):
        names: Any = group.attrs[kind]
        held.append(dict(zip(names, np.asarray(_array(group, kind)[...]), strict=True)))
    return Block(cells, held[0], held[1])


def _array(group: zarr.Group, name: str) -> zarr.Array:
    array = group[name]
    assert isinstance(array, zarr.Array)
    return array
