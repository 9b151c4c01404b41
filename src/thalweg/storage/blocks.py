"""Results of many runs in blocks: each is one file that appears when it is complete.

A folder of blocks has a manifest that says what is computed and where every run belongs. When all
blocks are there they are put together into one Zarr store, a window of the grid at a time, so that
memory does not grow with the number of runs; then the blocks go.
"""

import json
import re
import zipfile
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
from zarr.storage import ZipStore

from thalweg._checks import InputError
from thalweg.storage.contents import MANIFEST, RESULTS, attributes
from thalweg.storage.files import (
    left_of,
    remove,
    remove_at_once,
    remove_parts,
    write_file,
    write_folder,
    write_text,
    writing_to,
)
from thalweg.storage.layout import Layout, Window

_BLOCKS, _FORMAT = "blocks", 1
_BLOCK_NAME = re.compile(r"(\d{6,})\.zarr\.zip")
_AT_HAND = 32  # blocks in memory while windows are filled


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
            held = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if held["format"] != _FORMAT:
                raise KeyError(f"format {held['format']}")
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
            write_text(self.folder / MANIFEST, json.dumps(held, indent=1))

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
        """The numbers of the blocks that are there; a damaged one is not."""
        found = {_number(path.name): path for path in self._files()}
        wanted = (number for number in range(self.count) if number in found)
        return {number for number in wanted if zipfile.is_zipfile(found[number])}

    def write(self, number: int, block: Block) -> None:
        """Put a block in place."""
        with writing_to(self.folder):
            self._blocks.mkdir(parents=True, exist_ok=True)
            write_file(self._path(number), lambda part: _write_block(part, block))

    def assemble(self) -> None:
        """Put all blocks together, then remove them."""
        with writing_to(self.folder):
            write_folder(self.results, self._write_results)
            self._remove_blocks()

    def unfinished(self) -> xr.Dataset:
        """What there is so far, in memory; NaN where nothing is."""
        done = sorted(self.done())
        empty = self.layout.dataset().assign_attrs(
            unfinished=f"{len(done)} of {self.count} blocks are done"
        )
        arrays = {
            name: np.full(shape, np.nan) for name, (_, shape) in self._variables(done).items()
        }
        for window, parts in self._filled(done):
            for name, part in parts.items():
                arrays[name][window] = part
        return empty.assign(
            {name: (dims, arrays[name]) for name, (dims, _) in self._variables(done).items()}
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
        arrays = create_variables(path, self.layout, self._variables(numbers))
        for window, parts in self._filled(numbers):
            for name, part in parts.items():
                arrays[name][window] = part
        zarr.consolidate_metadata(path, zarr_format=2)

    def _index(self, numbers: list[int]) -> _Index:
        index = _Index(*np.full((2, self.layout.size), -1))
        for number in numbers:
            cells = _read_block(self._path(number), only_cells=True).cells
            index.block[cells], index.row[cells] = number, np.arange(cells.size)
        return index

    def _filled(self, numbers: list[int]) -> Iterator[tuple[Window, dict[str, np.ndarray]]]:
        """Window by window, what there is to put there."""
        if not numbers:
            return
        index = self._index(numbers)
        block_at = lru_cache(_AT_HAND)(lambda number: _read_block(self._path(number)))
        for window in self.layout.windows():
            cells = self.layout.cells(window)
            owners, rows = index.block[cells], index.row[cells]
            parts: dict[str, np.ndarray] = {}
            for number in np.unique(owners[owners >= 0]):
                block, here = block_at(int(number)), owners == number
                for name, values in {**block.numbers, **block.paths}.items():
                    empty = np.full(cells.shape + values.shape[1:], np.nan)
                    parts.setdefault(name, empty)[here] = values[rows[here]]
            yield window, parts


def create_variables(
    path: Path, layout: Layout, variables: Mapping[str, Variable]
) -> dict[str, zarr.Array]:
    """Arrays of NaN on the grid of a Zarr store, to be filled window by window."""
    group = zarr.open_group(path, mode="a")
    return {
        name: group.create_array(
            name,
            shape=shape,
            chunks=layout.chunks + shape[len(layout.dims) :],
            dtype="float64",
            fill_value=np.nan,
            compressors=Zstd(3),
            attributes={"_ARRAY_DIMENSIONS": list(dims)},
        )
        for name, (dims, shape) in variables.items()
    }


def _number(name: str | None) -> int | None:
    """The number of the block whose file has this name, if it is one."""
    match = _BLOCK_NAME.fullmatch(name or "")
    return int(match[1]) if match else None


def _write_block(path: Path, block: Block) -> None:
    """A Zarr group in one file: cells, all numbers side by side, all paths side by side."""
    store = ZipStore(path, mode="w")
    names = {"numbers": list(block.numbers), "paths": list(block.paths)}
    group = zarr.create_group(store, zarr_format=2, attributes=names)
    arrays = {"cells": block.cells}
    for kind, held in (("numbers", block.numbers), ("paths", block.paths)):
        arrays[kind] = np.stack(list(held.values()))
    for name, array in arrays.items():
        group.create_array(name, data=array, chunks=array.shape, compressors=Zstd(3))
    store.close()


def _read_block(path: Path, only_cells: bool = False) -> Block:
    store = ZipStore(path, mode="r")
    try:
        group = zarr.open_group(store, mode="r")
        cells = np.asarray(_array(group, "cells")[...])
        if only_cells:
            return Block(cells, {}, {})
        held = []
        for kind in ("numbers", "paths"):
            names: Any = group.attrs[kind]
            held.append(dict(zip(names, np.asarray(_array(group, kind)[...]), strict=True)))
        return Block(cells, held[0], held[1])
    finally:
        store.close()


def _array(group: zarr.Group, name: str) -> zarr.Array:
    array = group[name]
    assert isinstance(array, zarr.Array)
    return array
