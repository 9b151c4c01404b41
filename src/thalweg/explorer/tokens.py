"""The secret part of the explorer's address: one per user and port, which a restart keeps.

A page that stays open, or a link to what it shows, then finds the server again that is started anew
on the same port. Who can read the user's own files can read it, and nobody else.
"""

import os
import secrets
from pathlib import Path

from thalweg._compiled import _is_private


def token_for(port: int) -> str:
    """The token of this user at this port; a new one where none is kept, or none can be."""
    folder = _state_folder()
    if not _is_private(folder):
        return new_token()
    place = folder / f"explorer-{port}"
    try:
        kept = place.read_text(encoding="ascii").strip()
        if len(kept) >= 32 and kept.replace("-", "").replace("_", "").isalnum():
            return kept
    except (OSError, UnicodeDecodeError):
        pass
    token = new_token()
    _keep(place, token)
    return token


def new_token() -> str:
    """192 random bits that may stand in an address."""
    return secrets.token_urlsafe(24)


def _keep(place: Path, token: str) -> None:
    try:
        place.unlink(missing_ok=True)
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)
    except OSError:
        return  # then a restart has another address


def _state_folder() -> Path:
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(root) / "thalweg"
