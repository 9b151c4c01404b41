"""What an argument must be: a kind has a phrase for it, and a way to take a value as one."""

from collections.abc import Callable
from typing import Any, NamedTuple

MANY = "leading axes that all layers share are batch axes"
"""Marks weights, in `Annotated`, that may be those of several networks."""

TREE = "any pytree of floating arrays"
"""Marks weights, in `Annotated`, whose structure is for the objective to say."""


class UnfitError(Exception):
    """A value is not of the kind; the text is a likely fix, or empty."""


class Kind(NamedTuple):
    """What an argument must be, in words, and how a value of that name becomes one.

    Values of the type `plain` need not be looked at one by one where there are many.
    """

    phrase: str
    take: Callable[[str, Any], Any]
    plain: type | None = None


def fit(fits: bool, value: Any, fix: str = "") -> Any:
    """The value, if it fits."""
    if not fits:
        raise UnfitError(fix)
    return value
