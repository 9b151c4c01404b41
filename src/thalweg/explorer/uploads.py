"""Tables that were dropped on a page: in a folder of their own, until the server ends."""

import hashlib
import tempfile
import threading
from pathlib import Path
from typing import Any

from thalweg.data.table import from_csv, read_header
from thalweg.explorer.settings import SettingError

_MOST = 50  # tables at a time; the oldest go


class Uploads:
    """The tables, by names that no page can guess a path with."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # made when it is needed
        self._names: dict[str, None] = {}
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path:
        """Where they are."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="thalweg-explorer-")
        return Path(self._folder.name)

    def add(self, text: bytes) -> dict[str, Any]:
        """Keep a table, read as `thalweg run` would read it; what is in it."""
        name = f"data-{hashlib.sha256(text).hexdigest()[:10]}.csv"
        with self._lock:
            place = self.folder / name
            place.write_bytes(text)
            try:
                header = read_header(place)
                table = from_csv(place, header[-1])
            except ValueError as error:
                place.unlink()
                said = str(error).replace(str(place), "the table")
                raise SettingError(said[:1].upper() + said[1:], "data") from error
            self._names.pop(name, None)
            self._names[name] = None
            for oldest in list(self._names)[:-_MOST]:
                del self._names[oldest]
                (self.folder / oldest).unlink(missing_ok=True)
        rows = int(table.x.shape[0])
        return {"name": name, "columns": list(header), "rows": rows, "target": header[-1]}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def close(self) -> None:
        """Remove them all."""
        if self._folder is not None:
            self._folder.cleanup()
