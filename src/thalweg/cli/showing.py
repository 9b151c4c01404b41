"""The command that says what a folder holds: results, finished or not, or none."""

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from thalweg._errors import InputError
from thalweg.cli.base import AsJson, app, out
from thalweg.cli.reproducing import tell_study
from thalweg.cli.running import tell_run
from thalweg.cli.sweeping import tell_sweep

Drawn = tuple[str, ...] | None
"""In which forms pictures are to be drawn, beside PNG; None if not at all."""


class Form(StrEnum):
    """Forms of pictures for papers, which a run does not draw: that takes as long as all else."""

    PDF = "pdf"
    SVG = "svg"


@app.command()
def show(
    result: Annotated[
        Path, typer.Argument(help="The folder of a run, a sweep or a study, or its results.zarr.")
    ],
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw pictures and report again, from the data.")
    ] = False,
    form: Annotated[
        list[Form] | None,
        typer.Option("--form", help="Draw the pictures again, in this form, too."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say again what a run, a sweep or a study has found, without running anything."""
    from thalweg.storage import RESULTS, explain, holds

    folder = result.parent if result.name == RESULTS else result
    try:
        if holds(result) is not None or holds(folder) is not None:
            also = tuple(each.value for each in form or ())
            _show_results(result, folder, also if figures or also else None, as_json)
        elif not _show_unfinished(folder, as_json):
            raise InputError(explain(result))
    except OSError as error:
        raise InputError(
            f"{result} must be a folder that can be read, but: {error.strerror or error}."
        ) from error


def _show_results(result: Path, folder: Path, drawn: Drawn, as_json: bool) -> None:
    from thalweg.storage import FORMAT, open_results

    results = open_results(result)
    ways: dict[str, Callable[..., None]] = {
        "run": _show_run,
        "sweep": tell_sweep,
        "study": _show_study,
    }
    kind, written_in = (results.attrs.get(name) for name in ("kind", "format"))
    if kind not in ways:
        raise InputError(
            f"{result} must hold a run, a sweep or a study, but does not say which; "
            "`thalweg.open` reads it as a dataset."
        )
    if written_in != FORMAT:
        raise InputError(
            f"The results in {folder} must have format {FORMAT}, got {written_in}: another version "
            f"of thalweg wrote this {kind}; give its command again, or read it by `thalweg.open`."
        )
    ways[kind](results, folder, drawn, as_json)


def _show_run(results: Any, folder: Path, drawn: Drawn, as_json: bool) -> None:
    from thalweg import reports

    page = folder / reports.PAGE if drawn is None else reports.draw(results, folder, drawn)
    fault = reports.fault_of(page)
    tell_run(results, page if fault is None else None, as_json)
    if fault is not None and not as_json:
        _print(f"Report: {page} {fault}; `--figures` writes it again.")


def _show_study(results: Any, folder: Path, drawn: Drawn, as_json: bool) -> None:
    from thalweg import studies

    (study,) = studies.find([results.attrs["study"]])
    tell_study(studies.recalled(study, results, folder, draw=drawn is not None), as_json)


def _show_unfinished(folder: Path, as_json: bool) -> bool:
    """Say what there is of a run or a study that did not come to its end; False if nothing is."""
    from thalweg import studies
    from thalweg.experiment import folders
    from thalweg.storage.files import is_written_to

    begun = folders.begun_in(folder) or studies.begun_in(folder)
    if begun is None:
        return False
    if as_json:
        print(json.dumps({"unfinished": begun.what, "done": begun.done, "damaged": begun.damaged}))
        return True
    goes_on = "another command is at work on it" if is_written_to(folder) else begun.command
    _print(f"{begun.what}, unfinished: {begun.done} parts of it are done; {goes_on}.")
    for name in begun.damaged:
        _print(f"{name} is damaged and will be computed again.")
    return True


def _print(line: str) -> None:
    out.print(line, highlight=False, soft_wrap=True)
