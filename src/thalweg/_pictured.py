"""How results show themselves: `plot` on matplotlib's axes, and a few lines in a notebook.

What draws is above all that is drawn, and matplotlib is loaded when it is first called. So a result
knows the name of the module that draws, and nothing else of it.
"""

from importlib import import_module
from typing import Any

_DRAWING = "thalweg.figures.results"


class Pictured:
    """A result with a picture, for classes to derive from."""

    __slots__ = ()

    def plot(self, axes: Any = None) -> Any:
        """Draw it; matplotlib's axes, one below the other where there are several.

        Args:
            axes: what to draw on, as many as are returned; a new figure if not given.
        """
        return import_module(_DRAWING).plot(self, axes)

    def _repr_html_(self) -> str:
        """A small table and the picture, which notebooks show."""
        return import_module(_DRAWING).html(self)
