"""How arguments and results are checked against their annotations while tests run."""

import functools
import os
from collections.abc import Callable
from typing import Any

import beartype

MOST = 10**9 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 20
"""How many calls of a function each test checks: all where many examples are asked for."""

_tests = 0


def next_test() -> None:
    """Calls are counted anew."""
    global _tests
    _tests += 1


def first_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the first calls of each test.

    A check takes longer than what many small functions do, and what calls one of them ten thousand
    times calls it with arrays of the same kinds.
    """
    check = beartype.beartype(function)
    test, left = -1, 0

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        nonlocal test, left
        if test != _tests:
            test, left = _tests, MOST
        if left == 0:
            return function(*args, **kwargs)
        left -= 1
        return check(*args, **kwargs)

    return checked
