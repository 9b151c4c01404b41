"""How kernels are compiled: by Numba, once ever, outside of Python's lock."""

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit

_HOW: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, and keep it on disk where that can be.

    Numba looks for a folder beside the module, then in the user's cache; where it may write to
    neither, every process compiles for itself.
    """
    try:
        return njit(_plain(function), cache=True, **_HOW)
    except RuntimeError:  # there is no folder
        return njit(_plain(function), **_HOW)


def part(function: Callable[..., Any]) -> Any:
    """Compile a function as a part of the kernels that call it."""
    return njit(_plain(function), **_HOW)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return inspect.unwrap(function)  # the tests wrap every function to check its arguments
