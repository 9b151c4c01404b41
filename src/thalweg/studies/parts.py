"""Finished parts of a study on disk, so that nothing is computed twice.

After a kill at any moment a part is complete or absent. Parts belong to settings; those of others
are not seen.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from thalweg._version import __version__
from thalweg.storage.files import remove, write_folder, writing_to
from thalweg.storage.sums import DamageError, require_whole

_log = logging.getLogger(__name__)


class Parts:
    """The parts of one study with one set of settings, in a folder."""

    def __init__(self, folder: Path, settings: Any):
        """Keep parts in a folder, under a key made of these settings and the version."""
        self._folder = _place(folder, key_of(settings))

    def get(self, name: str, compute: Callable[[], xr.Dataset]) -> xr.Dataset:
        """The part of this name: read if it is there, computed and kept if it is not."""
        place = self._folder / f"{name}.zarr"
        if not _is_there(place):
            part = compute()
            with writing_to(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                write_folder(place, lambda path: _write(part, path))
        # Without its encoding: the width of its words would cut those it is joined with.
        return xr.open_zarr(place, chunks=None).load().drop_encoding()

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

    def clear(self) -> None:
        """Remove them all, once the whole is stored."""
        remove(self._folder)


def key_of(settings: Any) -> str:
    """All that data depend on: the settings, and the version that computes with them."""
    return json.dumps([__version__, settings], sort_keys=True, default=str)


def checked_parts(folder: Path, key: str) -> tuple[int, list[str]]:
    """How many parts with this key are there and whole, and the names of those that are damaged."""
    whole, damaged = 0, []
    for part in sorted(_place(folder, key).glob("*.zarr")):
        try:
            require_whole(part)
            whole += 1
        except DamageError as error:
            damaged.append(f"{part.name} ({error})")
    return whole, damaged


def _place(folder: Path, key: str) -> Path:
    return folder / hashlib.sha256(key.encode()).hexdigest()[:16]


def _is_there(place: Path) -> bool:
    """Whether a part is kept and whole; a damaged one counts as lost, and that is said."""
    if not place.exists():
        return False
    try:
        require_whole(place)
    except DamageError as error:
        _log.warning("%s is damaged (%s) and is computed again.", place, error)
        return False
    return True


def _write(part: xr.Dataset, path: Path) -> None:
    part.to_zarr(path, mode="w", zarr_format=2, consolidated=True, write_empty_chunks=True)
