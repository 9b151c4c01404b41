"""What cannot be interrupted goes on beside the worker, which meanwhile serves who is more urgent.

Compiling a function, which networks with kinks and objectives of one's own need, takes seconds, and
nothing stops it. Whoever asked may be superseded meanwhile: what was begun then ends unheard.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from thalweg.explorer.computation import Computation

_Found = TypeVar("_Found")
_PATIENCE = 0.01  # seconds between looks at who else waits


def beside(known: Computation, function: Callable[[], _Found]) -> _Found:
    """What the function returns; raises where nobody waits for it any more."""
    found = _threads().submit(function)
    while True:
        try:
            return found.result(timeout=_PATIENCE)
        except TimeoutError:
            if found.done():
                return found.result()
            try:
                known.turn()
            except BaseException:
                found.cancel()
                raise


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, "explorer-beside")
