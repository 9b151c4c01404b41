"""How arguments and results are checked against their annotations while tests run."""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import beartype
import jaxtyping

MOST = 10**9 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 20
"""How many calls of a function each test checks: all where many examples are asked for."""

_tests = 0


def next_test() -> None:
    """Calls are counted anew."""
    global _tests
    _tests += 1


def first_calls(function: Callable[..., Any], make: Callable[..., Any] = beartype.beartype):
    """Check the first calls of each test, by what is made when one is to be checked.

    A check takes longer than what many small functions do, and what calls one of them ten thousand
    times calls it with arrays of the same kinds.
    """
    check = None
    test, left = -1, 0

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        nonlocal check, test, left
        if test != _tests:
            test, left = _tests, MOST
        if left == 0:
            return function(*args, **kwargs)
        left -= 1
        if check is None:
            check = make(function)
        return check(*args, **kwargs)

    return checked


_jaxtyped = jaxtyping.jaxtyped


def jaxtyped(function: Any = None, **kwargs: Any) -> Any:
    """`jaxtyping.jaxtyped`, which binds arguments and remembers shapes in the first calls alone.

    That takes longer than the call of a small function, and to make it longer than to load one.
    """
    if function is None:
        return functools.partial(jaxtyped, **kwargs)
    if inspect.isclass(function) and getattr(function.__init__, "__globals__", None) is globals():
        return function  # what makes its instances is checked, or refuses by itself, already
    if not inspect.isfunction(function):
        return _jaxtyped(function, **kwargs)
    return first_calls(function, functools.partial(_jaxtyped, **kwargs))


jaxtyping.jaxtyped = jaxtyped  # which the hook of `--jaxtyping-packages` puts around all functions
