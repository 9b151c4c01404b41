"""Finished parts of a study on disk, so that nothing is computed twice.

A part is written beside its place and then renamed, which either happens or does not: after a kill
at any moment a part is complete or absent. Parts belong to settings; those of others are not seen.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from thalweg._checks import InputError
from thalweg._version import __version__


class Parts:
    """The parts of one study with one set of settings, in a folder."""

    def __init__(self, folder: Path, settings: Any):
        """Keep parts in a folder, under a key made of these settings and the version."""
        text = json.dumps([__version__, settings], sort_keys=True, default=str)
        self._folder = folder / hashlib.sha256(text.encode()).hexdigest()[:16]

    def get(self, name: str, compute: Callable[[], xr.Dataset]) -> xr.Dataset:
        """The part of this name: read if it is there, computed and kept if it is not."""
        place = self._folder / f"{name}.zarr"
        try:
            if not place.exists():
                self._keep(place, compute())
            part = xr.open_zarr(place, chunks=None, consolidated=False).load()
            # Else the width of this part's words would cut those of others that it is joined with.
            return part.drop_encoding()
        except OSError as error:
            raise InputError(
                f"Parts of a study must be kept in a folder that can be written to, got "
                f"{self._folder}: {error.strerror or error}; what is finished stays there."
            ) from error

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

    def _keep(self, place: Path, part: xr.Dataset) -> None:
        unfinished = place.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        part.to_zarr(unfinished, mode="w", zarr_format=2, consolidated=False)
        unfinished.rename(place)

    def clear(self) -> None:
        """Remove them all, once the whole is stored."""
        shutil.rmtree(self._folder, ignore_errors=True)
