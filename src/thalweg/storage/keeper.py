"""Finished parts of work, kept so that an interrupted command goes on where it stopped.

A part is a few arrays under a name, in one archive with checksums (`sealed`) that NumPy reads as
`npz`. It appears in one go: after a kill at any moment it is whole or absent. Parts lie in a folder
that is named after a *key*, all that they depend on, so that those of other settings, other data or
another version are never taken for them; the key itself lies beside them. Runs, studies and sweeps
all keep theirs here; only one command at a time writes (`files.only_writer`).
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from thalweg.storage.files import left_of, remove, write_bytes, writing_to
from thalweg.storage.sealed import read_record, sealed, unsealed, write_record
from thalweg.storage.sums import DamageError, digest_of

Arrays = dict[str, np.ndarray]
"""What a part holds, by name."""

_KEY, _SUFFIX, _SECONDS = "key.json", ".npz", ".seconds"
_KEY_FOLDER = re.compile(r"[0-9a-f]{16}")
_log = logging.getLogger(__name__)


class Kept(NamedTuple):
    """The names of the parts that are there and whole, and of the files that are damaged."""

    whole: list[str]
    damaged: list[str]


class Keeper:
    """The parts that belong to one key.

    Attributes:
        digest: of the key.
        seconds: how long the parts that `get` returned took to compute, the kept ones included.
    """

    def __init__(self, folder: Path | None, key: Mapping[str, Any]):
        """Keep parts under a folder, or nowhere; the key is plain data."""
        self.digest = digest_of(json.dumps(key, sort_keys=True).encode())[:16]
        self.seconds = 0.0
        self._place = None if folder is None else folder / self.digest
        self._key = key

    def get(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """The part of this name: read where it is kept and whole, else computed and kept."""
        found = self._read_if_whole(name)
        if found is None:
            began = perf_counter()
            found = dict(compute())
            found[_SECONDS] = np.asarray(perf_counter() - began)
            self.put(name, found)
        self.seconds += float(found.pop(_SECONDS))
        return found

    def put(self, name: str, part: Arrays) -> None:
        """Keep a part, in place of one that was there."""
        if self._place is not None:
            self.begin()
            with writing_to(self._place):
                write_bytes(self._file(name), sealed(_packed(part)))

    def read(self, name: str) -> Arrays:
        """A part that is known to be there; damage is an error."""
        return _unpacked(unsealed(self._file(name)))

    def begin(self) -> None:
        """Make room for parts, and say of what they are."""
        if self._place is None or (self._place / _KEY).exists():
            return
        with writing_to(self._place):
            self._place.mkdir(parents=True, exist_ok=True)
            write_record(self._place / _KEY, self._key)

    def checked(self) -> Kept:
        """Which parts are there, after a look at all of them."""
        return Kept([], []) if self._place is None else _checked(self._place)

    def clean(self) -> None:
        """Remove what an interrupted writer left behind."""
        for path in _files(self._place):
            if (left_of(path.name) or "").endswith(_SUFFIX):
                remove(path)

    def _read_if_whole(self, name: str) -> Arrays | None:
        if self._place is None or not self._file(name).exists():
            return None
        try:
            return self.read(name)
        except DamageError:
            _log.warning("%s is damaged and is computed again.", self._file(name))
        except FileNotFoundError:
            pass  # gone since
        return None

    def _file(self, name: str) -> Path:
        assert self._place is not None
        return self._place / f"{name}{_SUFFIX}"


def kept_in(folder: Path) -> Kept:
    """The parts under a folder, whatever their key."""
    found = [_checked(place) for place in _key_folders(folder)]
    return Kept([name for each in found for name in each.whole],
                [name for each in found for name in each.damaged])  # fmt: skip


def keys_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The keys of which there are parts under a folder, by digest; an empty one if it is lost."""
    keys: dict[str, dict[str, Any]] = {}
    for place in _key_folders(folder):
        try:
            keys[place.name] = read_record(place / _KEY)
        except (OSError, DamageError):
            keys[place.name] = {}
    return keys


def forget(folder: Path) -> None:
    """Remove the parts of all keys under a folder, and the folder if nothing else is in it."""
    for place in _key_folders(folder):
        remove(place)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _key_folders(folder: Path) -> Iterator[Path]:
    return (path for path in _files(folder) if _KEY_FOLDER.fullmatch(path.name) and path.is_dir())


def _files(folder: Path | None) -> list[Path]:
    return sorted(folder.iterdir()) if folder is not None and folder.is_dir() else []


def _checked(place: Path) -> Kept:
    kept = Kept([], [])
    for path in _files(place):
        if path.suffix != _SUFFIX:
            continue
        try:
            unsealed(path)
            kept.whole.append(path.stem)
        except (DamageError, OSError):
            kept.damaged.append(path.name)
    return kept


def _packed(part: Arrays) -> dict[str, bytes]:
    """The files of an npz archive."""
    files = {}
    for name, array in part.items():
        file = BytesIO()
        np.save(file, array, allow_pickle=False)
        files[f"{name}.npy"] = file.getvalue()
    return files


def _unpacked(files: Mapping[str, bytes]) -> Arrays:
    return {
        name.removesuffix(".npy"): np.load(BytesIO(content), allow_pickle=False)
        for name, content in files.items()
    }
