"""Whether a function is still the one that it was: a digest of what it does.

What users register is known by a name. Results that were kept under this name must not be taken for
those of a function that was edited since, so that its code is a part of what results depend on: its
instructions and constants, its defaults, what it closes over, and the functions that it calls, as
far as they stand in the same module.
"""

import hashlib
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def fingerprint(function: Any) -> str:
    """The digest of a function, the same in every process of one version of Python."""
    total = hashlib.sha256()
    for part in _parts(function, set()):
        total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()[:16]


def _parts(value: Any, seen: set[int]) -> Iterator[bytes]:
    """All that a value is made of, in an order that does not depend on the process."""
    yield type(value).__name__.encode()
    if isinstance(value, _PLAIN):
        yield repr(value).encode("utf-8", "surrogatepass")
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif id(value) not in seen:
        seen.add(id(value))
        for inner in _inside(value):
            yield from _parts(inner, seen)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, dict):
        return [each for pair in value.items() for each in pair]
    if isinstance(value, CodeType):
        return [value.co_code, value.co_names, value.co_consts]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, FunctionType):
        return _of_function(value)
    own = vars(value) if hasattr(value, "__dict__") and not isinstance(value, type) else {}
    called = vars(type(value)).get("__call__")  # of an object that is used as a function
    return [type(value).__qualname__, own, *([called] if isinstance(called, FunctionType) else [])]


def _of_function(function: FunctionType) -> list[Any]:
    cells = [_content(cell) for cell in function.__closure__ or ()]
    used = [function.__globals__.get(name) for name in _names(function.__code__)]
    near = [
        each for each in used
        if isinstance(each, FunctionType) and each.__module__ == function.__module__
    ]  # fmt: skip
    return [function.__code__, function.__defaults__, function.__kwdefaults__, cells, near]


def _names(code: CodeType) -> list[str]:
    """What it looks up, and what the functions that are defined in it do."""
    nested = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [*code.co_names, *(name for each in nested for name in _names(each))]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has none yet
        return None
