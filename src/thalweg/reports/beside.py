"""A report's pictures, drawn in a second process while this one goes on.

The process is begun before the run and loads what it draws with while the run is computed. It is
then told what was measured, draws what can be drawn of that while theorems are checked, and the
rest when all is known. What it draws is to the byte what this process would have drawn, which is
spared loading Matplotlib. Whatever goes wrong there, all pictures are drawn here.

What is sent is pickled: both ends of the pipe are this program's own, and nothing of it is kept.
"""

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import IO

import xarray as xr

_LONGEST = 60.0  # seconds to wait for pictures, which take one or two
_HEAD = 8  # bytes that say how long a message is
_SEAL = b"pictures by name:"  # before what is sent back
_BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from thalweg.reports import beside; beside.main()"
_ALLOCATIONS = 100_000  # before unreachable objects are looked for, as in commands


class Beside:
    """The second process, in a `with` statement; where there is one core, there is none.

    `draw` tells it what to draw, `drawn` waits for it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False

    def __enter__(self) -> "Beside":
        if _cores() > 1 and sys.executable:
            # Modules are looked for where this process does, so that none is of another version.
            command = [sys.executable, "-P", "-c", _BEGIN, *sys.path]
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

    def draw(self, results: xr.Dataset, but: Collection[str] = ()) -> None:
        """Draw the pictures of these results that were not drawn yet, but those of these names."""
        if self._process is None or self._process.stdin is None:
            return
        self._asked = True
        try:
            _send(self._process.stdin, pickle.dumps((results, tuple(but))))
        except Exception:  # a process that has ended, or what cannot be pickled
            self._asked = False

    def drawn(self) -> dict[str, bytes]:
        """All pictures by name, in the order of a report; none where they did not come."""
        process = self._process
        if process is None or process.stdin is None or not self._asked:
            return {}
        with suppress(OSError):
            process.stdin.close()
        process.stdin = None  # which `communicate` would write to
        try:
            sent, _ = process.communicate(timeout=_LONGEST)
        except subprocess.TimeoutExpired:
            return {}
        return {} if process.returncode else _received(sent)


def _cores() -> int:
    """How many this process may use: one where it is told to have one thread."""
    if os.environ.get("OMP_NUM_THREADS") == "1":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _received(sent: bytes) -> dict[str, bytes]:
    """The pictures; none where something else came, such as what a start-up file prints."""
    try:
        return dict(pickle.loads(sent.removeprefix(_SEAL))) if sent.startswith(_SEAL) else {}
    except Exception:  # cut off
        return {}


def _send(to: IO[bytes], message: bytes) -> None:
    to.write(len(message).to_bytes(_HEAD, "big") + message)
    to.flush()


def _listen(messages: SimpleQueue[bytes]) -> None:
    """Take what is sent at once, for a pipe holds little; nothing is the end of it."""
    while head := sys.stdin.buffer.read(_HEAD):
        messages.put(sys.stdin.buffer.read(int.from_bytes(head, "big")))
    messages.put(b"")


def _draw_as_told(messages: SimpleQueue[bytes]) -> Mapping[str, bytes]:
    """All pictures that were asked for."""
    from thalweg.figures.overview import picture_names
    from thalweg.reports.writing import picture_in

    found: dict[str, bytes] = {}
    names: tuple[str, ...] = ()
    while message := messages.get():
        results, but = pickle.loads(message)
        names = picture_names(results)
        for name in names:
            if name not in but and name not in found:
                found[name] = picture_in(("png",), results, name)["png"]
    return {name: found[name] for name in names}


def main() -> None:
    """What the second process does."""
    gc.set_threshold(_ALLOCATIONS)
    messages: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(messages,), daemon=True).start()
    # What drawing takes, before there is anything to be drawn.
    import matplotlib.backends.backend_agg  # noqa: F401

    import thalweg.figures.overview  # noqa: F401

    drawn = _draw_as_told(messages)
    if drawn:  # nothing where the other process has ended
        sys.stdout.buffer.write(_SEAL + pickle.dumps(drawn))
