"""Certificates and statements in a terminal, with rich; the rows are those of `certificates`.

Set for 80 columns: what is short stands in columns, sentences have lines of their own. Where the
output goes to a file or another program, a line is as long as what it says.
"""

from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Row = Mapping[str, str]


def guarantees(overview: Mapping[str, Any]) -> Group:
    """What is guaranteed, what does not apply and why, and conclusions against measurements."""
    parts: list[RenderableType] = []
    for each in overview["answers"]:
        parts += [_heading(each["question"]), *_answers(each["rows"])]
    refused, checked = overview["checked"] - overview["applying"], overview["checked"]
    title = f"What does not apply, and why ({refused} of {checked} statements about training)"
    parts += [_heading(title), *_refused(overview["refused"])]
    if overview["compared"]:
        parts += [_heading("Conclusions against measurements"), *_compared(overview["compared"])]
    return Group(*parts)


def one_line_each(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """A name and what it says, each pair on one line; cut where a terminal ends."""
    width = max(len(name) for name, _ in rows)
    for name, words in rows:
        line = Text.assemble((f"{name:<{width}}", "bold"), "  ", words)
        if console.is_terminal:
            console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            console.print(line, soft_wrap=True)


def statement(row: Mapping[str, Any], documentation: str | None) -> Group:
    """One statement in full: what it says, its formulas, where it is, and what the tests show."""
    parts: list[RenderableType] = [
        Text(row["statement"] + (" (ours: stands in no paper)" if row["ours"] else ""), "bold"),
        _indented(row["meaning"]),
    ]
    if documentation:
        parts += [Text(), *_flowing(documentation)]
    facts = [("code", f"thalweg.{row['code']}"), ("looseness", row["looseness"])]
    facts += [(kind, _tests(tests)) for kind, tests in row["tests"].items()]
    return Group(*parts, Padding(_pairs([each for each in facts if each[1]]), (0, 0, 0, 2)))


def _flowing(documentation: str) -> Iterator[RenderableType]:
    """A docstring, its paragraphs set to the width that there is, and its formulas as they are."""
    for paragraph in cleandoc(documentation).split("\n\n"):
        formula = paragraph.startswith(" ")
        yield _indented(paragraph if formula else " ".join(paragraph.split()))
        yield Text()


def _tests(names: Sequence[str]) -> str:
    """What tests show, in their own words, and the file of each group."""
    files: dict[str, list[str]] = {}
    for name in names:
        file, _, function = name.partition("::")
        files.setdefault(file, []).append(function.removeprefix("test_").replace("_", " "))
    return "\n".join(f"{'; '.join(words)} (tests/{file})" for file, words in files.items())


def _heading(words: str) -> Text:
    return Text(f"\n{words[:1].upper()}{words[1:]}", style="bold")


def _answers(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """Each theorem on a line, and below it its bounds with their conditions."""
    width = max(len(row["bound"]) for row in rows)
    for row in rows:
        if row["statement"]:  # told once, for all answers of one theorem that follow each other
            yield _indented(f"{row['source']}: {row['statement']}")
        measured = f"; measured {row['measured']}" if row["measured"] else ""
        cells = Table.grid(padding=(0, 2))
        cells.add_column(justify="right", min_width=width, no_wrap=True, style="bold")
        cells.add_column(overflow="fold")
        cells.add_row(Text(row["bound"]), Text(row["condition"] + measured))
        yield Padding(cells, (0, 0, 0, 4))


def _refused(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """Each assumption that fails, by how much, and the statements that need it."""
    for row in rows:
        told = [row["assumption"]]
        if row["values"] not in ("", "no"):
            told.append(f"here {row['values']}, margin {row['margin']}")
        yield _indented("; ".join(told))
        yield _indented(row["source"], by=4, style="dim")


def _compared(rows: Sequence[Row]) -> Iterator[RenderableType]:
    for row in rows:
        yield _indented(f"{row['verdict']}: {row['source']}")
        yield _indented(f"{row['conclusion']}; here {row['values']}", by=4)


def _pairs(facts: Sequence[tuple[str, str]]) -> Table:
    shown = Table.grid(padding=(0, 2))
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")
    for name, words in facts:
        shown.add_row(name, Text(words))
    return shown


def _indented(words: str, by: int = 2, style: str = "") -> Padding:
    return Padding(Text(words, style), (0, 0, 0, by))
