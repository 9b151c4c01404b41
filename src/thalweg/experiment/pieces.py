"""Finished pieces of work, kept in a folder so that an interrupted run goes on where it stopped.

A piece is a few arrays under a name, one file each. The file appears in one go: it is written under
another name first. Pieces lie in a folder named after all that they depend on, so that those of
another experiment, other data or another version of the package are not taken for them.
"""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any
from zipfile import BadZipFile

import numpy as np

from thalweg._version import __version__
from thalweg.storage.files import remove, write_file, writing_to

Arrays = dict[str, np.ndarray]

FOLDER = ".partial"
"""Where pieces lie, in the folder of the results; it is removed once those are written."""


class Pieces:
    """Pieces in a folder; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, *depends_on: str | Iterable[Any]):
        """Take the folder of the results, and texts and arrays that the pieces depend on."""
        self._folder = None if folder is None else folder / FOLDER / _digest(depends_on)
        self.seconds = 0.0
        """How long the work took, the kept one included."""

    def get(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """The piece of this name: read where it is kept, else computed and kept."""
        found = self._read(name)
        if found is None:
            began = perf_counter()
            found = compute()
            found["seconds"] = np.asarray(perf_counter() - began)
            self._write(name, found)
        self.seconds += float(found["seconds"])
        return found

    def _read(self, name: str) -> Arrays | None:
        if self._folder is None:
            return None
        try:
            with np.load(self._folder / f"{name}.npz", allow_pickle=False) as kept:
                return dict(kept)
        except (OSError, ValueError, EOFError, BadZipFile):  # not there, or not whole
            return None

    def _write(self, name: str, arrays: Arrays) -> None:
        if self._folder is None:
            return
        with writing_to(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_file(self._folder / f"{name}.npz", lambda part: _save(part, arrays))


def forget(folder: Path) -> None:
    """Remove all pieces of the results in this folder."""
    remove(folder / FOLDER)


def _save(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def _digest(depends_on: Iterable[str | Iterable[Any]]) -> str:
    total = hashlib.sha256(__version__.encode())
    for part in depends_on:
        if isinstance(part, str):
            total.update(part.encode())
        else:
            for array in part:
                total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]
