"""Single files that know whether they are whole: archives with checksums, and JSON with its own."""

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from thalweg.storage.files import write_text
from thalweg.storage.sums import (
    SUMS,
    DamageError,
    as_text,
    digest_of,
    from_text,
    require_same_names,
)

_DIGEST = "sha256"


def sealed(members: Mapping[str, bytes]) -> bytes:
    """A zip archive of these members and their checksums; the same members give the same bytes."""
    sums = as_text({name: digest_of(content) for name, content in members.items()})
    archive = BytesIO()
    with ZipFile(archive, "w") as held:
        for name, content in {**members, SUMS: sums.encode()}.items():
            held.writestr(ZipInfo(name), content)
    return archive.getvalue()


def unsealed(path: Path) -> dict[str, bytes]:
    """The members of an archive, once all are known to be what was written."""
    members = _members(path)
    if SUMS not in members:
        raise DamageError(f"{path.name} has no checksums: it is damaged, or of an older version")
    try:
        written = from_text(members.pop(SUMS))
        require_same_names(written, members)
    except DamageError as error:
        raise DamageError(f"{path.name} is damaged: {error}") from error
    for name, content in members.items():
        if digest_of(content) != written[name]:
            raise DamageError(f"{path.name} is damaged: {name} is not what was written")
    return members


def _members(path: Path) -> dict[str, bytes]:
    content = path.read_bytes()
    try:
        with ZipFile(BytesIO(content)) as held:
            return {name: held.read(name) for name in held.namelist()}
    except Exception as error:  # every damaged field of an archive leads to an error of its own
        raise DamageError(f"{path.name} is damaged") from error


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Put plain data in place as JSON, with a checksum of it."""
    write_text(path, json.dumps({**content, _DIGEST: _digest(content)}, indent=1))


def read_record(path: Path) -> dict[str, Any]:
    """What `write_record` has written; a file that is not there is an OSError."""
    text = path.read_bytes()
    try:
        content = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise DamageError(f"{path.name} is not what was written") from error
    written = content.pop(_DIGEST, None)
    if written is None:
        raise DamageError(f"{path.name} has no checksum: it is damaged, or of an older version")
    if written != _digest(content):
        raise DamageError(f"{path.name} is not what was written")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return digest_of(json.dumps(content, sort_keys=True).encode())
