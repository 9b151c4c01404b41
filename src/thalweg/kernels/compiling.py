"""How kernels are compiled: by Numba, once ever, outside of Python's lock."""

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit

_HOW: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_NOT_FROM_PYTHON: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


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
    """Compile a function as a part of the kernels that call it.

    Numba optimises a part again in everything that calls it: parts of parts take long to compile.
    Python never calls one, so it gets no entry from there, which would take an eighth of the time.
    """
    return njit(_plain(function), **_NOT_FROM_PYTHON, **_HOW)


def inlined(function: Callable[..., Any]) -> Any:
    """Write a function out where it is called: for what is short, or called in one place."""
    return njit(_plain(function), inline="always", **_HOW)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return inspect.unwrap(function)  # the tests wrap every function to check its arguments
