"""What options may be, said before anything is loaded or computed."""

from collections.abc import Callable
from math import isfinite
from pathlib import Path

from thalweg._errors import InputError

_MOST = 2**31
"""More starts or steps than this are a slip of the pen."""


def count(name: str, least: int = 1) -> Callable[[int | None], int | None]:
    """A callback of the option of this name that takes whole numbers from `least` on."""

    def check(value: int | None) -> int | None:
        if value is not None and not least <= value < _MOST:
            raise InputError(
                f"`{name}` must be a whole number from {least} to {_MOST - 1}, got {value}."
            )
        return value

    return check


def number(
    name: str,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
) -> Callable[[float | None], float | None]:
    """A callback of the option of this name that takes finite numbers within these ends."""
    ends = [
        f"{words} {end:g}"
        for words, end in (("above", above), (">=", least), ("below", below))
        if end is not None
    ]
    wanted = " ".join(["a finite number", " and ".join(ends)]).strip()

    def check(value: float | None) -> float | None:
        if value is None:
            return None
        fits = (
            isfinite(value)
            and (above is None or value > above)
            and (least is None or value >= least)
            and (below is None or value < below)
        )
        if not fits:
            raise InputError(f"`{name}` must be {wanted}, got {value:g}.")
        return value

    return check


def require_new(file: Path, force: bool, name: str = "--out") -> None:
    """Refuse a file that is there already, or whose folder is not."""
    if file.is_dir():
        raise InputError(f"`{name}` must be a file, got {file}, which is a folder.")
    if file.exists() and not force:
        raise InputError(f"{file} must not be there yet; `--force` replaces it.")
    if not file.parent.is_dir():
        raise InputError(
            f"`{name}` must be a file that can be written, got {file}: there is no folder "
            f"{file.parent}."
        )
