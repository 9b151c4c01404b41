"""What all commands share: the application, its two streams, options, progress and tables."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from thalweg._errors import InputError
from thalweg._sizes import LONG, time_in_words
from thalweg.cli.lines import plain_lines

app = typer.Typer(
    no_args_is_help=True,
    help="How gradient descent travels over the loss of a deep network, next to the gradient flow.",
)
# Without markup: titles, paths and messages may hold [brackets] of their own.
out = Console(markup=False, emoji=False)
err = Console(markup=False, emoji=False, stderr=True)

File = Annotated[
    Path | None,
    typer.Argument(
        help="An experiment in TOML; without one, the built-in experiment.", metavar="FILE"
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change a field, e.g. network.depth=3; may be given several times.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def read_experiment(file: Path | None, changes: list[str] | None) -> Any:
    """The experiment of a file, or the built-in one, with what was changed on the command line."""
    from thalweg import experiment

    start = experiment.Experiment() if file is None else experiment.read(file)
    return experiment.changed(start, dict(map(_change, changes))) if changes else start


def folder_of(file: Path | None) -> Path:
    """Where relative paths of an experiment's data start."""
    return Path() if file is None else file.parent


def _change(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"`--set` must have the form FIELD=VALUE, got {text!r}.")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return name.strip(), value.strip()  # a word without quotes


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values for JSON, which knows no infinite numbers: they are None."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in values.items()
    }


def say(words: str) -> None:
    """A line for the person who waits, apart from what the command prints as its result."""
    err.print(words, highlight=False, soft_wrap=True)


def say_if_long(seconds: float) -> None:
    """Tell how long something may take, before it begins, if that is long."""
    if seconds > LONG:
        say(f"this may take about {time_in_words(seconds)}; the estimate is rough")


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say that something is being done whose share done is unknown."""
    if err.is_terminal:
        with err.status(f"{what} ..."):
            yield
        return
    with plain_lines(say) as update:
        update(what, 0.0)
        yield


@contextmanager
def progress_bars(*stages: str) -> Iterator[Any]:
    """One bar per stage, with an estimate; gives a function of a stage and the share done.

    Without a terminal these are lines, now and then.
    """
    if not err.is_terminal:
        with plain_lines(say) as tell:
            yield tell
        return
    columns = (
        TextColumn("{task.description:>12}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bars:
        tasks = {name: bars.add_task(name, total=1.0, start=False) for name in stages}

        def update(stage: str, share: float) -> None:
            bars.start_task(tasks[stage])
            bars.update(tasks[stage], completed=share)

        yield update


def print_rows(title: str, rows: list[dict[str, str]]) -> None:
    """A table with one column per key of the rows; words to the left, numbers to the right."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        cells = [row[name] for row in rows]
        are_words = any(cell[:1].isalpha() for cell in cells)
        table.add_column(
            name,
            justify="left" if are_words else "right",
            overflow="fold",
            no_wrap=not any(" " in cell for cell in cells),
        )
    for row in rows:
        table.add_row(*row.values())
    out.print(table)
