"""Finished pieces of work, kept in a folder so that an interrupted run goes on where it stopped.

A piece is a few arrays under a name, one file each. The file appears in one go: it is written under
another name first. Pieces lie in a folder named after all that they depend on, so that those of
another experiment, other data or another version of the package are not taken for them.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from thalweg._version import __version__
from thalweg.storage.contents import Begun
from thalweg.storage.files import remove, write_bytes, write_text, writing_to
from thalweg.storage.sealed import sealed, unsealed
from thalweg.storage.sums import DamageError

Arrays = dict[str, np.ndarray]

FOLDER = ".partial"
"""Where pieces lie, in the folder of the results; it is removed once those are written."""

_log = logging.getLogger(__name__)


SETTINGS = "experiment.toml"
"""What says, beside the pieces, of which experiment they are."""


class Pieces:
    """Pieces in a folder; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, settings: str, *depends_on: Iterable[Any]):
        """Take the folder of the results, and settings and arrays that the pieces depend on."""
        self.digest = _digest(settings, depends_on)
        """Of all that they depend on, the version of the package too."""
        self._folder = None if folder is None else folder / FOLDER / self.digest
        self._settings = settings
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
        place = self._folder / f"{name}.npz"
        try:
            return _unpacked(unsealed(place))
        except DamageError:
            _log.warning("%s is damaged and is computed again.", place)
        except OSError:
            pass  # not there
        return None

    def _write(self, name: str, arrays: Arrays) -> None:
        if self._folder is None:
            return
        with writing_to(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            if not (self._folder / SETTINGS).exists():
                write_text(self._folder / SETTINGS, self._settings)
            write_bytes(self._folder / f"{name}.npz", sealed(_packed(arrays)))


def kept_in(folder: Path) -> Begun | None:
    """The run in a folder that left pieces behind, if there is one."""
    files = sorted((folder / FOLDER).glob("*/*.npz"))
    damaged = []
    for file in files:
        try:
            unsealed(file)
        except (DamageError, OSError):
            damaged.append(str(file.relative_to(folder)))
    done = len(files) - len(damaged)
    goes_on = "the same `thalweg run` continues"
    return Begun(f"The run in {folder}", "pieces", done, damaged, goes_on) if files else None


def forget(folder: Path) -> None:
    """Remove all pieces of the results in this folder."""
    remove(folder / FOLDER)


def are_kept(folder: Path, digest: str) -> bool:
    """Whether there are pieces of this very run."""
    return (folder / FOLDER / digest).exists()


def _packed(arrays: Arrays) -> dict[str, bytes]:
    """As the files of an npz archive."""
    files = {}
    for name, array in arrays.items():
        file = BytesIO()
        np.save(file, array, allow_pickle=False)
        files[f"{name}.npy"] = file.getvalue()
    return files


def _unpacked(files: dict[str, bytes]) -> Arrays:
    return {
        name.removesuffix(".npy"): np.load(BytesIO(content), allow_pickle=False)
        for name, content in files.items()
    }


def _digest(settings: str, depends_on: Iterable[Iterable[Any]]) -> str:
    total = hashlib.sha256(__version__.encode() + settings.encode())
    for part in depends_on:
        for array in part:
            total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]
