"""One worker for all pages: what is quick goes first, and what nobody waits for any more stops.

A page that posts a setting gets a *job*, a list of parts in the order of their cost. The worker
always goes on with the job whose next part comes earliest in that order, so that the curves of one
page do not wait for the phase diagram of another. A part that takes long calls `turn` now and then:
it lets what is more urgent go ahead, and ends the part where its page has asked for something else.
"""

import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from thalweg._errors import InputError
from thalweg._threads import one_blas_thread
from thalweg.explorer.frames import frame

Part = Callable[[Any], Iterator[bytes]]
Sink = Callable[[bytes | None], None]
"""Takes frames; None where there are no more."""


_PATIENCE = 3  # seconds that the thread gets to end; it dies with the process in any case


class Superseded(Exception):
    """Nobody waits for this any more."""


@dataclass(eq=False)
class Job:
    """What one page waits for.

    Attributes:
        tab: the page.
        number: which of its requests.
        subject: what the parts are given.
        parts: what is left to be done: rank, name and function.
        sink: where frames go.
    """

    tab: str
    number: int
    subject: Any
    parts: list[tuple[int, str, Part]]
    sink: Sink
    order: int = 0
    superseded: bool = False
    dropped: threading.Event = field(default_factory=threading.Event)
    running: Iterator[bytes] | None = None

    def drop(self, superseded: bool = False) -> None:
        """Let it end as soon as it can."""
        self.superseded = self.superseded or superseded
        self.dropped.set()

    @property
    def urgency(self) -> tuple[int, int]:
        """The lower the sooner: by the part that comes next, then by age."""
        return self.parts[0][0], self.order


class Worker:
    """The thread that computes, and the jobs that wait for it."""

    def __init__(self, warm_up: Callable[[], None]):
        self._jobs: list[Job] = []
        self._changed = threading.Condition()
        self._numbers, self._busy = count(), False
        self._stopped, self.ready = threading.Event(), threading.Event()
        self._warm_up = warm_up
        self._thread = threading.Thread(target=self._run, name="explorer", daemon=True)

    def start(self) -> None:
        """Begin, with the warm-up."""
        self._thread.start()

    def drop_all(self) -> None:
        """Let nothing be computed any more, and nobody wait for it."""
        with self._changed:
            self._stopped.set()
            for job in self._jobs:
                job.drop()
                job.sink(None)
            self._changed.notify()

    def stop(self) -> None:
        """The same, and end the thread."""
        self.drop_all()
        if self._thread.is_alive():
            self._thread.join(timeout=_PATIENCE)

    def add(self, job: Job) -> bool:
        """Take a job, which supersedes older ones of its page; not where a newer one is there."""
        with self._changed:
            same = [other for other in self._jobs if other.tab == job.tab]
            if any(other.number > job.number for other in same):
                return False
            for other in same:
                other.drop(superseded=True)
            job.order = next(self._numbers)
            self._jobs.append(job)
            self._changed.notify()
        return True

    def turn(self, job: Job) -> None:
        """Let more urgent work go ahead; raises where the job has been dropped."""
        self.check(job)
        while (other := self._more_urgent(job)) is not None:
            self._advance(other)
            self.check(job)

    def check(self, job: Job) -> None:
        """Raise where the job has been dropped."""
        if job.dropped.is_set() or self._stopped.is_set():
            raise Superseded

    def _run(self) -> None:
        with one_blas_thread():
            try:
                self._warm_up()
            except Exception:  # what fails there is said where it is asked for
                traceback.print_exc()
            self.ready.set()
            while not self._stopped.is_set():
                job = self._next()
                if job is not None:
                    self._advance(job)

    def _next(self) -> Job | None:
        with self._changed:
            while not self._jobs and not self._stopped.is_set():
                self._changed.wait()
            return min(self._jobs, key=lambda job: job.urgency, default=None)

    def _more_urgent(self, job: Job) -> Job | None:
        """Another job that is to go ahead of this one, and is not underway below it."""
        with self._changed:
            found = min(self._jobs, key=lambda each: each.urgency, default=None)
        if found is None or found is job or found.running is not None:
            return None
        return found if found.urgency < job.urgency else None

    def _advance(self, job: Job) -> None:
        """One part of a job, or what is left of it."""
        _, name, part = job.parts[0]
        try:
            self.check(job)
            job.running = part(job.subject)
            for each in job.running:
                self.check(job)
                if each:
                    job.sink(each)
        except Superseded:
            job.parts.clear()
        except InputError as error:  # what does not apply to this setting
            job.sink(frame(name, state="refused", reason=str(error)))
        except Exception:  # one part that fails must not end the others
            traceback.print_exc()
            sentence = f"The part {name} failed; what went wrong is in the terminal."
            job.sink(frame(name, state="refused", reason=sentence))
        finally:
            job.running = None
        del job.parts[:1]
        if not job.parts:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        with self._changed:
            self._jobs.remove(job)
        job.sink(frame("end", state="superseded" if job.dropped.is_set() else "ok"))
        job.sink(None)
