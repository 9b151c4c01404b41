"""Files that are there whole or not at all, whenever the power goes off.

Everything is written under another name, brought to the disk, and renamed: renaming is atomic. What
an interruption leaves behind has `.part` in its name and is swept away by the next writer.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from thalweg._checks import InputError

PART = ".part"
"""Names with this in them are unfinished."""

LOCK = ".lock"


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """What the disk refuses becomes a sentence that says what stands and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"The disk of {folder} must have room for the results, but it is full; free some "
                "space and run the same command again, for what was finished is kept."
            ) from error
        raise InputError(
            f"The results must go to a folder that can be written to, got {folder}: "
            f"{error.strerror or error}; choose another one, or change its permissions."
        ) from error


def write_file(path: Path, write: Callable[[Path], None]) -> None:
    """Put a file in place once `write` has made all of it."""
    part = _part_of(path)
    try:
        write(part)
        _to_disk(part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)  # a full disk needs the room
        raise
    _to_disk(path.parent)


def write_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Put a folder in place once `write` has made all of it; one that was there is replaced."""
    part, old = _part_of(path), path.with_name(f"{path.name}.old{PART}")
    remove(part)
    try:
        write(part)
        for each in [*part.rglob("*"), part]:
            _to_disk(each)
        if path.exists():
            remove(old)
            os.replace(path, old)
        os.replace(part, path)
    except BaseException:
        remove(part)
        raise
    _to_disk(path.parent)
    remove(old)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Remove what interrupted writers left in a folder."""
    for path in folder.glob(f"*{PART}*"):
        remove(path)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keep other processes from writing into a folder; the lock ends with the process."""
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / LOCK).open("w")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"Only one command at a time may write to {folder}, but another one is at work "
                "there; wait for it, or choose another folder."
            ) from error
        except OSError:
            pass  # some network disks know no locks; renaming is still atomic
        yield


def _part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}{PART}")


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
