"""The blocks of a sweep on a Dask cluster.

Workers compute and send back what they found, a few hundred kilobytes per block; the process that
sweeps is the only one that writes, so that workers need no common disk (except to read data files).
A block whose worker is lost is given to another one.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax.numpy as jnp

from thalweg._checks import InputError
from thalweg._compiled import keep_compiled
from thalweg._threads import one_blas_thread
from thalweg.storage import provenance
from thalweg.storage.blocks import Block
from thalweg.sweeps.local import Keep
from thalweg.sweeps.plan import Task
from thalweg.sweeps.runs import compute

_SECONDS_TO_CONNECT = 20
_WAITING_PER_THREAD = 2  # blocks that are ready for a thread which becomes free
_TRIES = 5  # how many workers one block may take down with it


class Sent(NamedTuple):
    """A block, and what it was computed with."""

    block: Block
    versions: dict[str, str]


def run_on_cluster(
    address: str, tasks: list[Callable[[], Task]], keep: Keep, note: Callable[[int], None]
) -> None:
    """Compute all blocks on the cluster of a scheduler and keep each as soon as it is there."""
    with _quiet(), _client(address) as client, _named_losses(address):
        work = _Work(client, iter(tasks))
        work.top_up()
        for future in work.finished:
            task, sent = work.taken(future)
            if sent is None:
                continue
            _require_same(sent.versions)
            keep(task.number, sent.block)
            note(task.work)
            future.release()
            work.top_up()


class _Work:
    """Blocks that a cluster is busy with, and those that it is to have next."""

    def __init__(self, client: Any, todo: Iterator[Callable[[], Task]]):
        from distributed import as_completed

        self._client, self._todo = client, todo
        self._open: dict[str, tuple[Task, int]] = {}
        self.finished = as_completed(loop=client.loop)

    def top_up(self) -> None:
        """Give every thread something to do, and something to do next."""
        room = _WAITING_PER_THREAD * max(1, sum(self._client.nthreads().values()))
        while len(self._open) < room:
            make = next(self._todo, None)
            if make is None:
                return
            self._submit(make())

    def taken(self, future: Any) -> tuple[Task, Sent | None]:
        """A block that came back; None where its workers were lost, and another is to do it."""
        from distributed import KilledWorker

        task, tries = self._open.pop(future.key)
        try:
            return task, future.result()
        except KilledWorker as error:
            if tries >= _TRIES:
                raise InputError(
                    f"Workers must survive a block, but {tries} attempts at block {task.number} "
                    "ended with the loss of theirs; do they have enough memory?"
                ) from error
            self._submit(task, tries + 1)
            return task, None

    def _submit(self, task: Task, tries: int = 1) -> None:
        future = self._client.submit(compute_for_another, task, pure=False, retries=1)
        self._open[future.key] = (task, tries)
        self.finished.add(future)


def compute_for_another(task: Task) -> Sent:
    """Compute a block on a worker; as `run_locally` would, to the last bit."""
    one_blas_thread()  # for good: another thread of the worker may be at a block, too
    keep_compiled()
    return Sent(compute(task), versions())


def versions() -> dict[str, str]:
    """What must be the same everywhere for results not to depend on where they come from."""
    return {**provenance(), "precision": str(jnp.result_type(float))}


def _require_same(theirs: dict[str, str]) -> None:
    for name, ours in versions().items():
        if name != "python" and theirs.get(name) != ours:
            raise InputError(
                f"Workers must have the same {name} as this process, {ours}, but one has "
                f"{theirs.get(name)}; install the same versions everywhere."
            )


@contextmanager
def _named_losses(address: str) -> Iterator[None]:
    """A scheduler that is lost, or workers without this package, are told in one sentence."""
    from distributed import CancelledError

    try:
        yield
    except (CancelledError, OSError) as error:  # what the disk refuses has its own sentence
        raise InputError(
            f"The Dask scheduler at {address} must stay until all blocks are done, but the "
            "connection to it was lost; start it again and run the same command, for what was "
            "finished is kept."
        ) from error
    except ImportError as error:
        raise InputError(
            f"Workers must have thalweg installed, but one of {address} cannot import it: {error}; "
            "install the same versions everywhere."
        ) from error


@contextmanager
def _client(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(
            "Sweeps on a cluster need Dask's `distributed`, which is not installed; install it "
            'with "pip install thalweg[dask]", or leave out the scheduler.'
        ) from error

    try:
        client = Client(address, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:  # TypeError: TLS without a key
        raise InputError(
            f"A Dask scheduler must answer at {address}, but none does; start one with `dask "
            "scheduler` and give the address it prints."
        ) from error
    with client:
        yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's own account of a lost connection from the screen; ours is one sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
