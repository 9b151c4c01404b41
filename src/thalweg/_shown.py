"""How results print: `repr` in one line with their numbers, `str` one line for each field.

No array is written out: of many numbers, how many there are and between what they lie.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

import jax.core
import numpy as np

_Kind = TypeVar("_Kind", bound=type)

_WIDEST = 100  # characters of a line
_NESTED = 50  # of a part inside of a line


def shown(kind: _Kind) -> _Kind:
    """A class of results, a module, a named tuple or a dataclass, that prints as a person reads."""
    type.__setattr__(kind, "__repr__", _line)
    type.__setattr__(kind, "__str__", _lines)
    return kind


def _line(self: Any) -> str:
    return _fitted(self, _WIDEST)


def _fitted(self: Any, widest: int) -> str:
    """The kind and its fields, single numbers first, as many as fit into so many characters."""
    texts = [(name, value, _text(value)) for name, value in _fields(self) if value is not None]
    said = [(name, text) for name, value, text in texts if text and not _is_long(value)]
    said += [(name, text) for name, value, text in texts if text and _is_long(value)]
    line, name = "", type(self).__name__
    for field, text in said:
        longer = f"{line}, {field}={text}" if line else f"{field}={text}"
        if len(name) + len(longer) > widest - 2:
            break
        line = longer
    return f"{name}({line})"


def _lines(self: Any) -> str:
    fields = [(name, value) for name, value in _fields(self) if value is not None]
    widest = max((len(name) for name, _ in fields), default=0)
    rows = [f"  {name:<{widest}}  {_text(value) or type(value).__name__}" for name, value in fields]
    return "\n".join([type(self).__name__, *rows])


def _fields(self: Any) -> Iterator[tuple[str, Any]]:
    """What a class puts first (`headline`), then the public fields by name, in their order."""
    if hasattr(self, "headline"):
        yield from self.headline().items()
    named = dataclasses.fields(self) if dataclasses.is_dataclass(self) else ()
    for name in [each.name for each in named] or getattr(self, "_fields", ()):
        if not name.startswith("_"):
            yield name, getattr(self, name, None)


def _is_long(value: Any) -> bool:
    return _is_array(value) and value.ndim > 0


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _text(value: Any) -> str:
    """A value in a few characters; empty where there is nothing short to say."""
    if isinstance(value, jax.core.Tracer):
        return "traced"
    if _is_array(value):
        return _array_text(np.asarray(value)) if value.size <= 10**8 else _shape_text(value)
    if isinstance(value, bool | int | str):
        return repr(value) if isinstance(value, str) else str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return _sequence_text(value)
    return _fitted(value, _NESTED) if type(value).__repr__ is _line else type(value).__name__


def _sequence_text(values: Any) -> str:
    if all(isinstance(each, int | float | str) for each in values) and len(values) <= 12:
        return "(" + ", ".join(map(_text, values)) + ")"
    if values and all(map(_is_array, values)):
        return (
            " and ".join(map(_shape_text, values)) if len(values) < 4 else f"{len(values)} arrays"
        )
    return _text(values[0]) if len(values) == 1 else f"{len(values)} parts"


def _shape_text(array: Any) -> str:
    return "x".join(map(str, array.shape)) or "one number"


def _array_text(array: np.ndarray) -> str:
    if array.size == 1 and array.ndim == 0:
        return f"{array:.6g}" if array.dtype.kind == "f" else str(array)
    if array.dtype.kind not in "fiu" or not array.size:
        return _shape_text(array)
    known = array[np.isfinite(array)]
    if not known.size:
        return f"[{_shape_text(array)}, none finite]"
    missing = "" if known.size == array.size else f", {array.size - known.size} not finite"
    return f"[{_shape_text(array)}, {known.min():.4g} to {known.max():.4g}{missing}]"
