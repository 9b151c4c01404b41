"""What a computation takes, estimated before anything is allocated: memory and time.

Memory is counted in 8-byte numbers and held against what the machine has left; time comes from a
rough model of one core, good to a factor of ten, that keeps apart seconds, hours and centuries:

    compiling      some hundredths of a second per layer and compiled function, more in deep ones
    computing      about 1e10 operations per second

What cannot be afforded is refused with the number, in one sentence.
"""

import os
from math import log10
from pathlib import Path

from thalweg._errors import InputError

LONG = 600.0
"""Seconds above which an estimate is worth a word before the work begins."""

LONGEST = 30 * 86400.0
"""The longest wait in seconds: what is estimated to take longer is refused."""

NUMBER = 8
"""Bytes of a number."""

_OPERATIONS = 1e10  # per second and core, of compiled loops over small networks
_TIMES = (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0))
_MEMORY = (("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))


def available_memory() -> int:
    """Bytes that are free, or would be if files were not kept in memory; within a group's limit."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            free = min(free, 1024 * int(line.split()[1]))
    group = Path("/sys/fs/cgroup")
    limit, used = (_lines(group / f"memory.{name}") for name in ("max", "current"))
    if limit and used and limit[0].isdigit() and used[0].isdigit():
        free = min(free, max(int(limit[0]) - int(used[0]), 0))
    return free


def require_memory(what: str, numbers: int, fix: str) -> None:
    """Refuse so many numbers at once where they do not fit into the memory that is left."""
    needed, free = NUMBER * int(numbers), available_memory()
    if needed > free:
        raise InputError(
            f"{what} must fit in memory, but would take {memory_in_words(needed)} of the "
            f"{memory_in_words(free)} that are free here; {fix}."
        )


def require_time(what: str, seconds: int | float, fix: str) -> None:
    """Refuse what is estimated to take longer than anybody waits."""
    if seconds > LONGEST:
        raise InputError(
            f"{what} must be done within {time_in_words(LONGEST)}, but would take about "
            f"{time_in_words(seconds)} here; {fix}."
        )


def compiling_seconds(layers: int, functions: int = 1) -> float:
    """Roughly how long functions of a chain of layers take to be compiled."""
    return functions * (0.5 + 0.02 * layers + 5e-5 * float(layers) ** 2)


def computing_seconds(operations: int | float) -> float:
    """Roughly how long so many additions and multiplications take on one core."""
    return min(operations, 10**300) / _OPERATIONS  # no float is larger than 10^308


def memory_in_words(count: int) -> str:
    """Bytes with a unit, e.g. "4 TB"."""
    unit, size = next(((unit, size) for unit, size in _MEMORY if count >= size), _MEMORY[-1])
    return f"{_short(count, size)} {unit}"


def time_in_words(seconds: int | float) -> str:
    """Seconds in the largest unit of which there is more than one, e.g. "12 days"."""
    unit, size = next(((unit, size) for unit, size in _TIMES if seconds >= 2 * size), _TIMES[-1])
    count = _short(seconds, size)
    return f"{count} {unit}" if count == "1" else f"{count} {unit}s"


def _short(count: int | float, size: int | float) -> str:
    """A quotient with two or three digits, or a power of ten where it has more than six."""
    if count // size >= 10**6:
        return f"1e{int(log10(count) - log10(size))}"
    value = count / size
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):  # another system, or nothing that can be read
        return []
