"""How kernels are compiled: by Numba, once ever, outside of Python's lock."""

import inspect
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

import numba
from numba import njit

_HOW: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_NOT_FROM_PYTHON: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_KNOWN = "0.68."
"""The Numba whose classes `_linked` derives from are not promised to stay as they are."""


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, and keep it on disk where that can be.

    Numba looks for a folder beside the module, then in the user's cache; where it may write to
    neither, every process compiles for itself.
    """
    try:
        return njit(_stamped(function), cache=True, **_HOW)
    except RuntimeError:  # there is no folder
        return njit(_plain(function), **_HOW)


def part(function: Callable[..., Any]) -> Any:
    """Compile a function as a part of the kernels that call it.

    Python never calls one, so it gets no entry from there, and no machine code of its own.
    """
    return njit(_plain(function), **_linked(), **_NOT_FROM_PYTHON, **_HOW)


def inlined(function: Callable[..., Any]) -> Any:
    """Write a function out where it is called: for what is short, or called in one place."""
    return njit(_plain(function), forceinline=True, **_linked(), **_NOT_FROM_PYTHON, **_HOW)


@cache
def _linked() -> dict[str, Any]:
    """How Numba leaves it to a kernel to optimise and emit its parts; nothing where it cannot.

    Numba would do both for every part, and again in everything that calls it, which takes a third
    of the time.
    """
    if not numba.__version__.startswith(_KNOWN):
        return {}
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler

    class Linked(JITCodeLibrary):
        codegen: Any = property(lambda self: self)

        def set_env(self, name: str, environment: Any) -> None:
            """There is no machine code yet that could be told."""

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._verify_declare_only_symbols()
            self._finalized = True

    class Linking(Compiler):
        def __init__(self, typing: Any, target: Any, library: Any, *others: Any):
            library = Linked(target.codegen(), "part") if library is None else library
            super().__init__(typing, target, library, *others)

    return {"pipeline_class": Linking}


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return inspect.unwrap(function)  # the tests wrap every function to check its arguments


def _stamped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with what all kernels' sources are as a variable around it.

    Numba tells by a kernel's own module and its variables whether what it keeps is still true, and
    does not look at the modules that its parts are in.
    """
    plain: Any = _plain(function)
    code = plain.__code__.replace(co_freevars=("sources",))
    return FunctionType(code, plain.__globals__, plain.__name__, None, (CellType(_sources()),))


@cache
def _sources() -> str:
    files = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
