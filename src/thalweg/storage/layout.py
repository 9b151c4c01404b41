"""Where results of many runs lie: named dimensions, their coordinates, and windows of bounded size.

A *cell* is one point of the grid that the dimensions span, counted with the last dimension fastest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Int

from thalweg._quantity import attributes_of

_CELLS_AT_ONCE = 4096

Window = tuple[slice, ...]


@dataclass(frozen=True)
class Layout:
    """The grid of a sweep.

    Attributes:
        dims: the names of the dimensions, outermost first.
        coords: each coordinate's dimension ("" for a number that all runs share) and its values.
            A dimension's own coordinate has its name.
        attrs: what the dataset says about itself.
        long_names: what coordinates are, where that is not known from their names.
    """

    dims: tuple[str, ...]
    coords: Mapping[str, tuple[str, tuple[Any, ...]]]
    attrs: Mapping[str, Any]
    long_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each dimension has."""
        return tuple(len(self.coords[name][1]) for name in self.dims)

    @property
    def size(self) -> int:
        """How many cells there are."""
        return prod(self.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a window: whole inner dimensions, as many as fit."""
        chunks, room = [], _CELLS_AT_ONCE
        for length in reversed(self.shape):
            chunks.append(max(1, min(length, room)))
            room //= chunks[-1]
        return tuple(reversed(chunks))

    def windows(self) -> Iterator[Window]:
        """Parts of the grid that are small and cover all of it."""
        starts = (range(0, n, chunk) for n, chunk in zip(self.shape, self.chunks, strict=True))
        for corner in product(*starts):
            yield tuple(
                slice(first, min(first + chunk, length))
                for first, chunk, length in zip(corner, self.chunks, self.shape, strict=True)
            )

    def cells(self, window: Window) -> Int[np.ndarray, "..."]:
        """The numbers of the cells in a window, in its shape."""
        axes = [np.arange(part.start, part.stop) for part in window]
        if not axes:
            return np.zeros((), int)
        return np.ravel_multi_index(np.meshgrid(*axes, indexing="ij"), self.shape)

    def dataset(self) -> xr.Dataset:
        """The grid without anything on it."""
        coords = {}
        for name, (dim, values) in self.coords.items():
            array = np.asarray(_numbers(values) if dim else _numbers(values)[0])
            coords[name] = ((dim,) if dim else (), array, self._described(name, array))
        return xr.Dataset(coords=coords, attrs=dict(self.attrs))

    def _described(self, name: str, values: np.ndarray) -> dict[str, Any]:
        said = {"long_name": self.long_names[name]} if name in self.long_names else {}
        units = {"units": "1"} if said and values.dtype.kind in "iuf" else {}
        return {**said, **units, **attributes_of(name)}

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        coords = {name: [dim, list(values)] for name, (dim, values) in self.coords.items()}
        return {
            "dims": list(self.dims),
            "coords": coords,
            "attrs": dict(self.attrs),
            "long_names": dict(self.long_names),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Layout":
        """From what `to_json` gave."""
        coords = {name: (dim, tuple(values)) for name, (dim, values) in data["coords"].items()}
        return cls(tuple(data["dims"]), coords, data["attrs"], data["long_names"])


def _numbers(values: tuple[Any, ...]) -> list[Any]:
    """Numbers with NaN where there is none; lists and mixtures as words."""
    if all(isinstance(value, bool) for value in values):
        return list(values)
    if all(value is None or isinstance(value, int | float) for value in values):
        return [np.nan if value is None else value for value in values]
    return ["" if value is None else str(value) for value in values]
