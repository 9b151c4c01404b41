"""Tables as plain text, no wider than a page, and as HTML for notebooks."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import zip_longest
from textwrap import wrap

Row = Mapping[str, str]

NUMBERS = ("bound", "measured")
"""Columns that are set flush right, wherever a table is shown."""

_WIDTH, _GAP = 110, "  "
_NARROWEST = 12  # what is left of a column, however long the others are


def columns(rows: Sequence[Row]) -> list[str]:
    """The names of the columns, but for those that are empty in every row."""
    return [name for name in (rows[0] if rows else ()) if any(row[name] for row in rows)]


def table(rows: Sequence[Row]) -> str:
    """The rows under their columns' names, with long cells over several lines."""
    names = columns(rows)
    if not names:
        return ""
    longest = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    widths = _fitted(longest)
    rule = {name: "-" * width for name, width in widths.items()}
    lines = [_line(dict(zip(names, names, strict=True)), widths), _line(rule, widths)]
    return "\n".join(lines + [line for row in rows for line in _lines(row, widths)])


def html_table(rows: Sequence[Row]) -> str:
    """The same as HTML."""
    names = columns(rows)
    if not names:
        return ""

    def line(cells: Sequence[str], tag: str) -> str:
        inner = (f'<{tag} style="text-align:left">{escape(each)}</{tag}>' for each in cells)
        return f"<tr>{''.join(inner)}</tr>"

    body = "".join(line([row[name] for name in names], "td") for row in rows)
    return f"<table>{line(names, 'th')}{body}</table>"


def _fitted(longest: dict[str, int]) -> dict[str, int]:
    """Widths that fit on the page: the widest columns give way, all alike."""
    left = _WIDTH - len(_GAP) * (len(longest) - 1)
    for most in range(max(longest.values()), _NARROWEST - 1, -1):
        widths = {name: min(width, most) for name, width in longest.items()}
        if sum(widths.values()) <= left:
            return widths
    return {name: min(width, _NARROWEST) for name, width in longest.items()}


def _lines(row: Row, widths: dict[str, int]) -> list[str]:
    cells = [wrap(row[name], width) or [""] for name, width in widths.items()]
    parts = zip_longest(*cells, fillvalue="")
    return [_line(dict(zip(widths, part, strict=True)), widths) for part in parts]


def _line(cells: Row, widths: dict[str, int]) -> str:
    aligned = (
        f"{cells[name]:>{width}}" if name in NUMBERS else f"{cells[name]:<{width}}"
        for name, width in widths.items()
    )
    return _GAP.join(aligned).rstrip()
