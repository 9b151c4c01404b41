"""Native kernels: what small linear networks do all day, compiled by Numba once and for all shapes.

JAX compiles every function for every shape anew. The kernels here take depth, widths and all
numbers at run time: they are compiled once ever, and kept on disk. They know one form, the squared
distance of a product of matrices (`chain`); everything else, and everything where Numba cannot be
loaded or `THALWEG_KERNELS` is `off`, stays with JAX.
"""

import os
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from thalweg.kernels.chain import Chain

__all__ = ["LANES", "MANY_LANES", "SWITCH", "Chain", "available", "suits"]

SWITCH = "THALWEG_KERNELS"
"""The environment variable that is `off` where JAX is to do everything."""

LANES, MANY_LANES = 4, 8
"""How many runs, or points, go together: compiled in, unlike all other numbers."""


def __dir__() -> list[str]:
    return __all__


# They are for what fits into a core's caches; wider products are better left to BLAS. Of one row a
# step takes a quarter of JAX's time at width 48 and a third at 64; of ten rows, half at 32.
_WIDEST, _WIDEST_OF_ONE_ROW = 32, 64


def suits(chain: Chain | None, arrays: Iterable[Any]) -> bool:
    """Whether kernels are there, and are meant, for weights in such arrays."""
    if chain is None:
        return False
    widest = _WIDEST_OF_ONE_ROW if chain.rows == 1 else _WIDEST
    if int(chain.widths.max()) > widest:
        return False
    return all(np.dtype(array.dtype) == np.float64 for array in arrays) and available()


def available() -> bool:
    """Whether there are kernels; loads Numba when it is first asked."""
    off = os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false")
    return not off and _loads()


@cache
def _loads() -> bool:
    try:
        import numba  # noqa: F401
    except Exception:  # whatever is the matter with it, such as a NumPy that it does not know
        return False
    return True
