"""Some of a report's pictures, drawn in a second process while this one draws the others.

The process is begun before the run and loads what it draws with while the run is computed. Then it
reads the results from the folder that they were written to, and what it draws is to the byte what
this process would have drawn. Whatever goes wrong there, pictures that do not come are drawn here.
"""

import os
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_LONGEST = 60.0  # seconds to wait for pictures, which take one or two
_HEAD = 8  # bytes that say how long a picture is


class Beside:
    """The second process, in a `with` statement; where there is one core, there is none.

    `draw` tells it what to draw, `drawn` waits for it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: list[str] = []

    def __enter__(self) -> "Beside":
        if _cores() > 1 and sys.executable:
            command = [sys.executable, "-P", "-m", "thalweg.reports.beside"]
            pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
            with suppress(OSError):
                self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def draw(self, folder: Path, names: Collection[str]) -> None:
        """Draw these pictures of the results in a folder."""
        process, self._asked = self._process, list(names)
        if process is None or process.stdin is None:
            return
        with suppress(OSError):
            process.stdin.write(b"\0".join(map(os.fsencode, (folder.absolute(), *names))))
        with suppress(OSError):
            process.stdin.close()
        process.stdin = None  # which `communicate` would write to

    def drawn(self) -> dict[str, bytes]:
        """The pictures that were asked for, by name, as far as they came."""
        if self._process is None or not self._asked:
            return {}
        try:
            sent, _ = self._process.communicate(timeout=_LONGEST)
        except subprocess.TimeoutExpired:
            return {}
        if self._process.returncode:
            return {}
        return dict(zip(self._asked, _parts(sent), strict=False))


def _cores() -> int:
    """How many this process may use: one where it is told to have one thread."""
    if os.environ.get("OMP_NUM_THREADS") == "1":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _parts(sent: bytes) -> list[bytes]:
    """Each behind its length."""
    found = []
    while sent:
        end = _HEAD + int.from_bytes(sent[:_HEAD], "big")
        found.append(sent[_HEAD:end])
        sent = sent[end:]
    return found


def _draw_as_told(said: bytes) -> bytes:
    """All pictures that were asked for, each behind its length."""
    from thalweg.reports.writing import picture_in
    from thalweg.storage import open_results

    folder, *names = map(os.fsdecode, said.split(b"\0"))
    results = open_results(folder).load()
    parts = [picture_in(("png",), results, name)["png"] for name in names]
    return b"".join(len(part).to_bytes(_HEAD, "big") + part for part in parts)


def _load() -> None:
    """What drawing takes, before there is anything to be drawn."""
    import matplotlib.backends.backend_agg  # noqa: F401
    import zarr  # noqa: F401

    import thalweg.figures.overview  # noqa: F401


if __name__ == "__main__":
    _load()
    told = sys.stdin.buffer.read()
    if told:  # nothing where the other process has ended
        sys.stdout.buffer.write(_draw_as_told(told))
