"""Certificates and statements in a terminal, with rich; the rows are those of `certificates`."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from thalweg.certificates import Guarantees
from thalweg.certificates.overview import titled_tables
from thalweg.certificates.text import NUMBERS, Row, columns


def guarantees(found: Guarantees) -> Group:
    """What is guaranteed, what does not apply and why, and conclusions against measurements."""
    parts = []
    for title, rows in titled_tables(found.overview()):
        parts += [Text(f"\n{title}", style="bold"), table(rows)]
    return Group(*parts)


def table(rows: Sequence[Row]) -> Table:
    """Rows under their columns' names, with a line under these alone."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    names = columns(rows)
    for name in names:
        justify = "right" if name in NUMBERS else "left"
        shown.add_column(name, justify=justify, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(row[name]) for name in names))  # brackets in it are no markup
    return shown
