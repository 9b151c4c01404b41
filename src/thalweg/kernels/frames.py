"""Frames: all that a kernel touches for a few lanes, in one piece of memory."""

import numpy as np

_LINE = 64  # bytes of a line of the cache, which eight lanes fill exactly


class Areas:
    """Hands out the rows of a frame."""

    def __init__(self, size: int = 0):
        """Begin with so many rows in use."""
        self.size = size

    def take(self, rows: int) -> int:
        """Where the next rows begin."""
        begin = self.size
        self.size += rows
        return begin


def aligned(frames: int, rows: int, lanes: int) -> np.ndarray:
    """Room for frames, each row of which lies within one line of the cache."""
    numbers = frames * rows * lanes
    room = np.empty(numbers + _LINE // 8)
    begin = -room.ctypes.data // 8 % (_LINE // 8)
    return room[begin : begin + numbers].reshape(frames, rows, lanes)
