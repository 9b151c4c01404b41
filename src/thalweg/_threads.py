"""How many threads linear algebra may use: one.

On the small matrices that fill this package, threads of BLAS and LAPACK wait for each other: where
the cores were busy, eigendecompositions of some hundred rows took a hundred times as long. And one
thread rounds alike on every machine.
"""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit linear algebra to one thread: from now on, or within a `with` statement."""
    return _libraries().limit(limits=1, user_api="blas")


@cache
def _libraries() -> ThreadpoolController:
    # It knows what is loaded when it is made; NumPy and SciPy bring a library each.
    import numpy as np  # noqa: F401
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
