"""What cannot be interrupted goes on beside the worker, which meanwhile serves who is more urgent.

Compiling a function, which networks with kinks and objectives of one's own need, takes seconds, and
nothing stops it. Whoever asked may be superseded meanwhile: what was begun then ends unheard.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from thalweg.explorer.computation import Computation

_Found = TypeVar("_Found")
_PATIENCE = 0.01  # seconds between looks at who else waits
_ROOM = threading.Semaphore(2)  # threads that compute, those among them that nobody hears


def beside(known: Computation, function: Callable[[], _Found]) -> _Found:
    """What the function returns; raises where nobody waits for it any more."""
    found: Future[_Found] = Future()

    def compute() -> None:
        with _ROOM:
            if not found.set_running_or_notify_cancel():
                return
            try:
                found.set_result(function())
            except BaseException as error:  # for whoever asked
                found.set_exception(error)

    # A thread that ends with the process, so that nothing keeps it from ending.
    threading.Thread(target=compute, name="explorer-beside", daemon=True).start()
    while not found.done():
        try:
            found.exception(timeout=_PATIENCE)
        except TimeoutError:
            _let_others(known, found)
    return found.result()


def _let_others(known: Computation, found: "Future[_Found]") -> None:
    try:
        known.turn()
    except BaseException:
        found.cancel()
        raise
