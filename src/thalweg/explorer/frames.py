"""How results travel: frames of a JSON header and arrays, one after another in one response.

    u32  bytes of the header, padded with spaces so that data begin at a multiple of 8
    u32  bytes of the data
    header in UTF-8: the fields of the part, and for each array its type, shape and offset
    data: the arrays, little endian, rows first, each at a multiple of 8

A page reads them without a copy; missing numbers are NaN in arrays and null in the header.
"""

import json
import struct
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

_LENGTHS = struct.Struct("<II")
_TYPES = {"f8": "<f8", "f4": "<f4", "i4": "<i4", "i1": "|i1"}


def frame(part: str, arrays: Mapping[str, np.ndarray] | None = None, **fields: Any) -> bytes:
    """One frame of a part, with fields that JSON knows and arrays of the types above."""
    told, pieces, place = {}, [], 0
    for name, array in (arrays or {}).items():
        kind = next(k for k, dtype in _TYPES.items() if np.dtype(dtype) == array.dtype)
        data = np.ascontiguousarray(array).tobytes()
        told[name] = {"type": kind, "shape": list(array.shape), "offset": place}
        pieces.append(data + bytes(-len(data) % 8))
        place += len(pieces[-1])
    header = {"part": part, "state": "ok", **fields, "arrays": told}
    text = json.dumps(plain(header), allow_nan=False).encode()
    text += b" " * (-len(text) % 8)
    return _LENGTHS.pack(len(text), place) + text + b"".join(pieces)


def frames_in(data: bytes) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """What a page reads: header and arrays of each frame, for whoever asks from Python."""
    found, place = [], 0
    while place < len(data):
        length, size = _LENGTHS.unpack_from(data, place)
        place += _LENGTHS.size
        header = json.loads(data[place : place + length])
        place += length
        arrays = {}
        for name, told in header.pop("arrays").items():
            dtype, count = np.dtype(_TYPES[told["type"]]), int(np.prod(told["shape"]))
            flat = np.frombuffer(data, dtype, count, place + told["offset"])
            arrays[name] = flat.reshape(told["shape"])
        found.append((header, arrays))
        place += size
    return found


def plain(value: Any) -> Any:
    """The value as JSON has it: numbers that are not finite are null, tuples are lists."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
