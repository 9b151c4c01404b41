"""The blocks of a sweep on all cores of this machine, one block per core at a time.

Threads are enough: compiled code runs outside Python's lock, and all share what was compiled.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from thalweg._threads import one_blas_thread
from thalweg.storage.blocks import Block
from thalweg.sweeps.plan import Task
from thalweg.sweeps.runs import compute

Keep = Callable[[int, Block], None]
"""Puts a finished block in its place."""


class _Stopped(Exception):
    """Another block failed, or the user interrupted."""


def run_locally(
    tasks: Iterable[Callable[[], Task]], keep: Keep, note: Callable[[int], None]
) -> None:
    """Compute all blocks and keep each as soon as it is there.

    Args:
        tasks: make the blocks' tasks, the longest first.
        keep: called with the number of a block and what was found.
        note: called with network-steps that were taken.
    """
    stopped, lock = threading.Event(), threading.Lock()

    def go_on(steps: int) -> None:
        if stopped.is_set():
            raise _Stopped
        with lock:
            note(steps)

    def work(make: Callable[[], Task]) -> None:
        go_on(0)
        task = make()
        keep(task.number, compute(task, go_on))

    with one_blas_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = [pool.submit(work, make) for make in tasks]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            stopped.set()
