"""Progress in plain lines, for logs: what is being done, how much of it, and how long it may take.

Short work says nothing. After two seconds, and then every ten, a line tells where it is; so does
the begin of each stage. A thread of its own sees to it, because compiled code may keep the others
busy for minutes.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from thalweg._sizes import time_in_words

FIRST, THEN = 2.0, 10.0
"""Seconds before the first line, and between any two others of one stage."""

Update = Callable[[str, float], None]


@dataclass
class _Stage:
    """What is being done, since when, and which share of it is."""

    name: str
    share: float = 0.0
    began: float = field(default_factory=monotonic)

    def line(self) -> str:
        """Where it is."""
        passed = monotonic() - self.began
        if self.share > 0:
            left = _whole(passed * (1 - self.share) / self.share)
            return f"{self.name} {100 * self.share:.0f} %, about {left} left"
        return f"{self.name} ..." if passed < 1 else f"{self.name}, {_whole(passed)} so far"


def _whole(seconds: float) -> str:
    return time_in_words(float(max(1, round(seconds))))


class _Teller:
    """Keeps the stage, and says where it is when it is time to."""

    def __init__(self, say: Callable[[str], None]):
        self._say, self._began = say, monotonic()
        self._stage: _Stage | None = None
        self._last = self._began  # a stage began where the one before was last heard of
        self._lock, self._over = threading.Lock(), threading.Event()

    def update(self, name: str, share: float) -> None:
        """Note how much of a stage is done; a new stage gets a line, unless all goes quickly."""
        with self._lock:
            before, self._last = self._last, monotonic()
            if self._stage is not None and self._stage.name == name:
                self._stage.share = share
                return
            self._stage = _Stage(name, share, before)
            if share < 1 and monotonic() - self._began >= FIRST:
                self._say(self._stage.line())

    def tell(self) -> None:
        """Say where it is, now and then, until `stop`."""
        pause = FIRST
        while not self._over.wait(pause):
            pause = THEN
            with self._lock:
                if self._stage is not None and self._stage.share < 1:
                    self._say(self._stage.line())

    def stop(self) -> None:
        """Say no more."""
        self._over.set()


@contextmanager
def plain_lines(say: Callable[[str], None]) -> Iterator[Update]:
    """Gives a function of a stage and the share done; `say` is called with each line."""
    teller = _Teller(say)
    thread = threading.Thread(target=teller.tell, daemon=True)
    thread.start()
    try:
        yield teller.update
    finally:
        teller.stop()
        thread.join()
