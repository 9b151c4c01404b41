"""Files that are there whole or not at all, whenever the power goes off.

Everything is written under another name, brought to the disk, and renamed: renaming is atomic. What
an interruption leaves behind has a name that ends in `.part`, with the number of the process that
made it, and is swept away by the next writer of the same name.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from thalweg._errors import InputError
from thalweg.storage.sums import write_sums

PART = ".part"
"""Names that end so are unfinished."""

LOCK = ".lock"

_LEFT = re.compile(rf"(.+)\.(\d+){re.escape(PART)}")


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
    remove_parts(path)
    part = _part_of(path)
    try:
        write(part)
        _to_disk(part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)  # a full disk needs the room
        raise
    _to_disk(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Put a file with this content in place."""

    def write(part: Path) -> None:
        part.write_bytes(content)

    write_file(path, write)


def write_text(path: Path, text: str) -> None:
    """Put a file with this text in place."""
    write_bytes(path, text.encode())


def write_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Put a folder in place once `write` has made all of it; one that was there is replaced.

    Checksums of all that it holds are added.
    """
    part, old = _part_of(path), _old_of(path)
    _restore(path)
    remove_parts(path)
    remove(part)
    try:
        write(part)
        write_sums(part)
        for each in [*part.rglob("*"), part]:
            _to_disk(each)
        if path.exists():
            remove(old)
            os.replace(path, old)
        os.replace(part, path)
    except BaseException:
        _try_to_remove(part)
        _restore(path)
        raise
    _to_disk(path.parent)
    _try_to_remove(old)


def standing(path: Path) -> Path:
    """Where to read a folder: its last version may still have the name that it got to make way.

    Readers do not rename it, since its writer may be about to put the new one in place.
    """
    old = _old_of(path)
    # Not by `Path`, which raises where a name is too long for the disk.
    return old if os.path.isdir(old) and not os.path.exists(path) else path


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there; what cannot be removed is said."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:  # another process removes it too
        remove(path)
    except OSError as error:
        raise InputError(
            f"{error.filename or path} must be removed, but cannot be: {error.strerror or error}; "
            "change its permissions, or choose another folder."
        ) from error


def remove_at_once(path: Path) -> None:
    """Remove a folder so that an interruption leaves all of it or, under its name, nothing."""
    if path.is_dir():
        part = _part_of(path)
        remove(part)
        os.replace(path, part)
        remove(part)


def remove_parts(path: Path) -> None:
    """Remove what interrupted writers of a file or folder left beside it, if that is possible."""
    names: list[str] = []
    with suppress(OSError):  # not there, or not to be listed: then there is nothing to be done
        names = os.listdir(path.parent)
    for name in names:
        if left_of(name) == path.name:
            _try_to_remove(path.with_name(name))
    if path.is_dir():
        _try_to_remove(_old_of(path))


def left_of(name: str) -> str | None:
    """What the file of this name was to be called, if its writer is gone; else None."""
    match = _LEFT.fullmatch(name) if name.endswith(PART) else None
    return match[1] if match and not _is_alive(int(match[2])) else None


def numbered(base: Path) -> Iterator[Path]:
    """A folder, and others beside it with numbers behind its name, from 2 on."""
    yield base
    for number in count(2):
        yield base.with_name(f"{base.name}-{number}")


def require_no_writer(folder: Path) -> None:
    """Refuse a folder that another process writes to, before there is anything to write."""
    if (folder / LOCK).exists():
        with only_writer(folder):
            pass


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keep other processes from writing into a folder; the lock ends with the process."""
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOCK).touch()
    with ExitStack() as held:
        try:
            held.enter_context(_lock(folder))
        except Timeout as error:
            raise InputError(
                f"Only one command at a time may write to {folder}, but another one is at work "
                "there; wait for it, or choose another folder."
            ) from error
        except (OSError, NotImplementedError):
            pass  # some network disks know no locks; renaming is still atomic
        yield


def is_written_to(folder: Path) -> bool:
    """Whether another command is at work in a folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        with _lock(folder):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):
        return False  # a disk that knows no locks, or a folder that is only to be read


def _lock(folder: Path) -> BaseFileLock:
    return FileLock(folder / LOCK, blocking=False)


def _part_of(path: Path) -> Path:
    return path.parent / f"{path.name}.{os.getpid()}{PART}"  # "." has no name to be replaced


def _old_of(path: Path) -> Path:
    return path.parent / f"{path.name}.old{PART}"  # "." has no name to be replaced


def _restore(path: Path) -> None:
    """Give a folder its name back, if an interruption came before the new one was in place."""
    found = standing(path)
    if found != path:
        os.replace(found, path)


def _try_to_remove(path: Path) -> None:
    """Remove what is no longer needed, and leave it if that is refused."""
    with suppress(InputError):
        remove(path)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
