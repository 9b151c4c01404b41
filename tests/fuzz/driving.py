"""Workers, each asked one case at a time, watched from outside: aborts and hangs are seen here.

Time is the smaller of the processor's and the clock's: a busy machine makes no hang. A worker that
is killed, or has grown large, is replaced.
"""

import json
import os
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time as clock
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

SILENT = 20.0
"""Seconds before the first word that count as a hang."""

LONGEST = 60.0
"""Seconds after which a case that has spoken is ended; long work is no fault."""

_BLOCKED = 600.0  # seconds by the clock, after which nobody is busy: it waits for something
_MEMORY = 8 * 2**30  # what is larger must have been refused, not tried
_CASES_PER_WORKER = 3000
_MOST_MAPS = 40_000  # compiled functions take some each, of 65,530


class Name(NamedTuple):
    """Which case."""

    kind: str
    seed: int
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}:{self.number}"


@dataclass
class Tried:
    """A case with what came of it."""

    name: Name
    answer: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    ended: str = ""

    @property
    def faults(self) -> list[str]:
        """All that is wrong."""
        own = [self.ended] if self.ended and not self.ended.startswith("long") else []
        return own + self.answer.get("faults", [])

    @property
    def outcome(self) -> str:
        """In a word: refused, done, verdict, long, or a fault's kind."""
        if self.faults:
            return self.faults[0].partition(":")[0]
        if self.ended:
            return "long"
        return {0: "done", 1: "verdict", 2: "refused"}.get(self.answer.get("code", -1), "?")


class Worker:
    """A process that tries cases."""

    def __init__(self, world: Path):
        """Start it, and wait until it has imported everything."""
        self.log = tempfile.TemporaryFile(dir=world)  # noqa: SIM115  (closed by `end`)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), str(world)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY)),
            env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "120"},
        )  # fmt: skip
        self.tried, self._heard = 0, b""
        line = self._line(600.0)
        if line != "ready":
            raise RuntimeError(f"a worker did not start: {self._said()}")

    @property
    def is_tired(self) -> bool:
        """Whether it should be replaced."""
        maps = Path(f"/proc/{self._process.pid}/maps")
        many = maps.exists() and maps.read_bytes().count(b"\n") > _MOST_MAPS
        return self._process.poll() is not None or self.tried >= _CASES_PER_WORKER or many

    def attempt(self, name: Name) -> Tried:
        """Try a case; whatever happens, there is an answer."""
        self.tried += 1
        began, worked, spoken = clock.perf_counter(), self._worked(), False
        pipe: Any = self._process.stdin
        try:
            pipe.write(json.dumps(name._asdict()).encode() + b"\n")
            pipe.flush()
            while True:
                passed = clock.perf_counter() - began
                spent = min(passed, self._worked() - worked) if passed < _BLOCKED else passed
                if spent > (LONGEST if spoken else SILENT):
                    self.end()
                    kind = "long: after" if spoken else "hang: silent for"
                    return Tried(name, seconds=spent, ended=f"{kind} {spent:.0f} s")
                line = self._line(0.5)
                if line == "word":
                    spoken = True
                elif line is not None:
                    return Tried(name, line, clock.perf_counter() - began)
        except (BrokenPipeError, EOFError):
            code = self._process.wait()
            return Tried(name, ended=f"abort: the process ended with {code}: {self._said()}")

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        self.log.close()

    def _line(self, seconds: float) -> Any:
        """The next line, or None if none has come."""
        pipe: Any = self._process.stdout
        while b"\n" not in self._heard:
            if not select.select([pipe], [], [], seconds)[0]:
                return None
            heard = os.read(pipe.fileno(), 2**16)
            if not heard:
                raise EOFError
            self._heard += heard
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def _worked(self) -> float:
        """The processor's seconds so far."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return clock.perf_counter()  # no Linux: the clock alone
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _said(self) -> str:
        self.log.seek(0)
        return self.log.read()[-1500:].decode("utf-8", "replace")


@contextmanager
def a_world() -> Iterator[Path]:
    """A folder for everything, gone afterwards."""
    world = Path(tempfile.mkdtemp(prefix="thalweg-fuzz-"))
    try:
        yield world
    finally:
        shutil.rmtree(world, ignore_errors=True)


def attempt_all(
    names: Iterable[Name], workers: int, tell: Callable[[Tried], None] = lambda tried: None
) -> list[Tried]:
    """Try all cases, some at a time."""
    todo: SimpleQueue[Name] = SimpleQueue()
    for name in names:
        todo.put(name)
    found: list[Tried] = []

    def work(world: Path) -> None:
        worker = None
        while not todo.empty():
            if worker is None or worker.is_tired:
                if worker is not None:
                    worker.end()
                worker = Worker(world)
            tried = worker.attempt(todo.get())
            found.append(tried)
            tell(tried)
        if worker is not None:
            worker.end()

    with a_world() as world, ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work, world) for _ in range(workers)]:
            done.result()
    return found
