"""Checksums, by which results tell whether they still are what was written.

Every folder that `files.write_folder` puts in place has a file SHA256SUMS in it, which names all
others; `sha256sum -c SHA256SUMS` checks it without this package. Without them a file that is gone
reads back as NaN, which looks like a number that could not be measured.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from thalweg._errors import InputError

SUMS = "SHA256SUMS"
"""The file of the checksums."""

UNSUMMED = "so that an older version of thalweg wrote them or the file was lost"
"""Why there may be no checksums, as part of a sentence."""

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


class DamageError(InputError):
    """What was stored is not what was written."""


def write_sums(folder: Path) -> None:
    """Write the checksums of all files in a folder, in the order of their names."""
    held = {name: digest_of(folder / name) for name in _names(folder)}
    (folder / SUMS).write_text(as_text(held), encoding="utf-8")


def require_whole(folder: Path) -> None:
    """Refuse a folder in which a file is missing, changed or too many, by its name."""
    try:
        written = from_text((folder / SUMS).read_bytes())
        found = _names(folder)
        require_same_names(written, found)
        for name in found:
            if digest_of(folder / name) != written[name]:
                raise DamageError(f"{name} is not what was written")
    except FileNotFoundError as error:
        raise DamageError(f"{SUMS} is missing, {UNSUMMED}") from error
    except OSError as error:
        raise DamageError(f"{error.filename} cannot be read: {error.strerror}") from error


def are_as_written(folder: Path, names: Iterable[str]) -> bool:
    """Whether these files are what was written; true of all in a folder without checksums."""
    try:
        if not (folder / SUMS).exists():
            return True
        written = from_text((folder / SUMS).read_bytes())
        return all(digest_of(folder / name) == written.get(name) for name in names)
    except (DamageError, OSError):
        return False


def require_same_names(written: Mapping[str, str], found: Iterable[str]) -> None:
    """Refuse names that were not written, and the lack of those that were."""
    there = set(found)
    for name in written:
        if name not in there:
            raise DamageError(f"{name} is missing")
    for name in sorted(there):
        if name not in written:
            raise DamageError(f"{name} does not belong there")


def as_text(sums: Mapping[str, str]) -> str:
    """Checksums by name, as `sha256sum` prints them."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items())


def from_text(content: bytes) -> dict[str, str]:
    """Checksums by name, as `as_text` wrote them."""
    text = content.decode(errors="replace")
    matches = [_LINE.fullmatch(line) for line in text.splitlines()]
    if not all(matches) or not text.endswith("\n"):
        raise DamageError(f"{SUMS} is not what was written")
    return {match[2]: match[1] for match in matches if match}


def digest_of(content: Path | bytes) -> str:
    """The checksum of a file or of bytes."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _names(folder: Path) -> list[str]:
    """All files in a folder but the checksums, and but what systems leave anywhere (.DS_Store)."""
    paths = (path for path in folder.rglob("*") if not path.is_dir())
    names = (path.relative_to(folder).as_posix() for path in paths if not _is_none_of_ours(path))
    return sorted(name for name in names if name != SUMS)


def _is_none_of_ours(path: Path) -> bool:
    """Whether nothing that reads a store would look at this file."""
    return path.name.startswith(".") and not path.name.startswith(".z")
