"""Finished parts of a study: datasets that are kept, so that nothing is computed twice."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from thalweg._version import __version__
from thalweg.storage.keeper import Arrays, Keeper, Kept, forget

_FOLDER, _DATASET = "parts", ".dataset"


class Parts:
    """The parts of one study with one set of settings, in the folder of its results."""

    def __init__(self, folder: Path, key: str):
        """Keep parts in a folder, under a key (`key_of`)."""
        self._keeper = Keeper(folder / _FOLDER, {"settings": key})

    def get(self, name: str, compute: Callable[[], xr.Dataset]) -> xr.Dataset:
        """The part of this name: read if it is there, computed and kept if it is not."""
        return _dataset(self._keeper.get(name, lambda: _arrays(compute())))

    def gather(
        self,
        dimension: str,
        computations: Mapping[str, Callable[[], xr.Dataset]],
        progress: Callable[[str, float], None],
    ) -> xr.Dataset:
        """Several parts, one after the other along a dimension; progress after each."""
        rows = []
        for number, (name, compute) in enumerate(computations.items()):
            rows.append(self.get(name, compute))
            progress(dimension, (number + 1) / len(computations))
        # What does not vary with the dimension must be the same in all parts.
        joined = xr.concat(rows, dimension, data_vars="minimal", coords="minimal", compat="equals")
        assert isinstance(joined, xr.Dataset)
        return joined

    def checked(self) -> Kept:
        """Which parts are there, after a look at all of them."""
        return self._keeper.checked()


def forget_parts(folder: Path) -> None:
    """Remove all parts in the folder of a study, whatever their key."""
    forget(folder / _FOLDER)


def key_of(settings: Any) -> str:
    """All that data depend on: the settings, and the version that computes with them."""
    return json.dumps([__version__, settings], sort_keys=True, default=str)


def _arrays(part: xr.Dataset) -> Arrays:
    """All values by name, and the names of dimensions and coordinates and all attributes as JSON.

    What is not kept is the encoding: the width of its words would cut those it is joined with.
    """
    said = json.dumps(part.to_dict(data=False, encoding=False), default=_plain)
    values = {str(name): _words(variable.values) for name, variable in part.variables.items()}
    return values | {_DATASET: np.asarray(said)}


def _dataset(arrays: Arrays) -> xr.Dataset:
    said = json.loads(str(arrays[_DATASET]))
    for variables in (said["coords"], said["data_vars"]):
        for name, variable in variables.items():
            variable["data"] = arrays[name]
    return xr.Dataset.from_dict(said)


def _words(values: np.ndarray) -> np.ndarray:
    """Words as NumPy's own strings, also where pandas or xarray hold them as objects."""
    is_words = values.dtype.kind == "T" or (
        values.dtype.kind == "O" and all(isinstance(each, str) for each in values.flat)
    )
    return values.astype(str) if is_words else values


def _plain(value: Any) -> Any:
    """A number or an array of NumPy's, as JSON has it."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
