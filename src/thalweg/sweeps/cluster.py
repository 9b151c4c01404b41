"""The blocks of a sweep on a Dask cluster.

Workers compute and send back what they found, a few hundred kilobytes per block; the process that
sweeps is the only one that writes, so that workers need no common disk (except to read data files).
A block whose worker is lost is given to another one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax.numpy as jnp

from thalweg._checks import InputError
from thalweg._compiled import keep_compiled
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
    from distributed import KilledWorker, as_completed

    with _client(address) as client:
        todo = iter(tasks)
        open_tasks: dict[str, tuple[Task, int]] = {}
        finished = as_completed(loop=client.loop)

        def submit(task: Task, tries: int = 1) -> None:
            future = client.submit(compute_for_another, task, pure=False, retries=1)
            open_tasks[future.key] = (task, tries)
            finished.add(future)

        def top_up() -> None:
            room = _WAITING_PER_THREAD * max(1, sum(client.nthreads().values()))
            while len(open_tasks) < room:
                make = next(todo, None)
                if make is None:
                    return
                submit(make())

        top_up()
        for future in finished:
            task, tries = open_tasks.pop(future.key)
            try:
                sent = future.result()
            except KilledWorker:
                if tries >= _TRIES:
                    raise
                submit(task, tries + 1)
                continue
            _require_same(sent.versions)
            keep(task.number, sent.block)
            note(task.work)
            future.release()
            top_up()


def compute_for_another(task: Task) -> Sent:
    """Compute a block on a worker; as `run_locally` would, to the last bit."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, "blas")
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
def _client(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"A Dask scheduler must answer at {address}, but none does; start one with `dask "
            "scheduler` and give the address it prints."
        ) from error
    with client:
        yield client
