"""Commands that write an experiment to begin with, and that run one and write a report."""

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from thalweg._errors import InputError
from thalweg.cli.base import (
    AsJson,
    Changes,
    File,
    Force,
    app,
    folder_of,
    out,
    print_rows,
    progress_bars,
    read_experiment,
    say,
    say_if_long,
    working,
)
from thalweg.cli.options import require_new


@app.command()
def run(
    file: File = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Where the report goes; `output.folder` if not given."),
    ] = None,
    changes: Changes = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run anew, and then replace the run in the folder.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="FILE.py:FUNCTION",
            help="Run a model of your own: FUNCTION() returns an objective and a start. The file "
            "is your own code and is run as such: name none that you would not run yourself.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Descend and flow from one start; measure, prove and check; write a report.

    Interrupted, the same command goes on where it stopped; finished, it shows what there is. A run
    never replaces another one, unless told so by `--fresh`.
    """
    from thalweg import experiment
    from thalweg.experiment import folders
    from thalweg.storage.files import only_writer, require_no_writer

    if model is not None:
        _require_model_alone(file, changes)
    settings = read_experiment(file, changes)
    base = Path(settings.output.folder) if folder is None else folder
    named = folder is not None or settings.output.folder != folders.DEFAULT
    if named:
        require_no_writer(base)
    # What is wrong is said before there is a folder.
    ready = _ready(settings, file, model)
    wanted = folders.Wanted(
        experiment.moved(settings, folder_of(file), base),
        experiment.keeper_of(settings, ready).digest,
    )
    place = base if fresh else _place(wanted, base, named)
    with only_writer(place):
        if fresh:
            folders.begin_anew(place, wanted.digest)
        else:
            _require_free(wanted, place)  # another command may have been quicker
        if wanted.finished_in(place):
            say(f"{place} holds this very run: shown, not repeated; `--fresh` runs it again")
            results, page = _shown(place, wanted.digest)
        else:
            say_if_long(ready.seconds)
            results, page = _performed(settings, ready, file, place)
    tell_run(results, page, as_json)


def _require_model_alone(file: Path | None, changes: list[str] | None) -> None:
    from thalweg.cli.models import require_settings_of_models

    if file is not None:
        raise InputError(
            f"FILE must be left out where there is a `--model`, got {file}; change its training "
            "with `--set`."
        )
    require_settings_of_models(changes)


def _ready(settings: Any, file: Path | None, model: str | None) -> Any:
    """What is built and can be afforded, of an experiment or of a model of one's own."""
    from thalweg import experiment

    if model is None:
        return experiment.prepared(settings, folder_of(file))
    from thalweg.cli.models import prepared_model

    return prepared_model(settings, model)


def _place(wanted: Any, base: Path, named: bool) -> Path:
    """The folder of a run: the one that was named, or else the next one that is free."""
    from thalweg.experiment import folders

    if named:
        _require_free(wanted, base)
        return base
    place = folders.free_folder(wanted, base)
    if place != base:
        say(f"{base} {wanted.other_in(base)}; this run goes to {place}")
    return place


def _require_free(wanted: Any, place: Path) -> None:
    other = wanted.other_in(place)
    if other is not None:
        raise InputError(
            f"{place} must be a folder of this run or a new one, but it {other}; give another "
            "`--out`, or `--fresh` to replace a run."
        )


def _performed(settings: Any, ready: Any, file: Path | None, place: Path) -> tuple[Any, Path]:
    from thalweg import experiment, reports
    from thalweg.experiment import folders
    from thalweg.quantities.registry import registered
    from thalweg.reports.beside import Beside

    # Another process knows nothing of quantities that were registered in this one.
    with nullcontext() if registered() else Beside() as beside:
        begin = None if beside is None else partial(beside.draw, but=folders.OF_CERTIFICATES)
        with progress_bars(*experiment.STAGES) as update:
            results = experiment.perform(
                settings, folder_of(file), update, kept_in=place, ready=ready, measured=begin
            )
        results.attrs["experiment"] = experiment.settings_of(
            experiment.moved(settings, folder_of(file), place), ready.objective
        )
        with working("report"):
            page = reports.write(results, place, beside)
    folders.finish(place)
    return results, page


def _shown(place: Path, digest: str) -> tuple[Any, Path]:
    """A finished run; what an interruption of its writing left out is made up for."""
    from thalweg import reports
    from thalweg.experiment import folders
    from thalweg.storage import open_results

    results, page = open_results(place).load(), place / reports.PAGE
    unfinished = folders.are_kept(place, digest)
    if unfinished or reports.fault_of(page) is not None:
        page = reports.write(results, place)
    if unfinished:
        folders.finish(place)
    return results, page


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to be written.")] = Path("experiment.toml"),
    force: Force = False,
) -> None:
    """Write an experiment with every field, its default and what it means, to begin with."""
    from thalweg import experiment
    from thalweg.storage.files import write_text, writing_to

    require_new(file, force, "FILE")
    text = experiment.to_toml(experiment.Experiment(), comments=True)
    with writing_to(file.parent):
        write_text(file, text)
    out.print(f"Wrote {file}; `thalweg run {file}` runs it.", highlight=False, soft_wrap=True)


def tell_run(results: Any, page: Path | None, as_json: bool) -> None:
    """Say what a run has found, and where its report is, if there is one."""
    from thalweg import reports

    if as_json:
        rows, found = reports.summary(results), reports.findings(results)
        for row in rows:
            row["phase"] = None if row["phase"] is None else row["phase"].meaning
        print(json.dumps({"report": page and str(page), "found": found, "runs": rows}, indent=1))
        return
    print_rows(results.attrs["title"] or "Descent next to the flow", reports.table(results))
    where = [] if page is None else [f"Report: {page}"]
    for line in (*reports.findings(results), *where):
        out.print(line, highlight=False, soft_wrap=True)
