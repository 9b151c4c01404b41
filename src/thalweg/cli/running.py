"""Commands that write an experiment to begin with, and that run one and write a report."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from thalweg._errors import InputError
from thalweg.cli.base import (
    AsJson,
    Changes,
    File,
    app,
    folder_of,
    out,
    print_rows,
    progress_bars,
    read_experiment,
)


@app.command()
def run(
    file: File = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Where the report goes; `output.folder` if not given."),
    ] = None,
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Descend and flow from one start; measure, prove and check; write a report.

    Interrupted, the same command goes on where it stopped.
    """
    from thalweg import experiment, report
    from thalweg.experiment.pieces import forget
    from thalweg.storage import holds
    from thalweg.storage.files import only_writer

    settings = read_experiment(file, changes)
    folder = Path(settings.output.folder) if folder is None else folder
    # What is wrong is said before there is a folder.
    experiment.start(settings, experiment.objective(settings, folder_of(file)))
    other = holds(folder)
    if other in ("sweep", "study"):
        raise InputError(
            f"{folder} must not hold a {other}, whose results would be replaced; give "
            "another `--out`."
        )
    with only_writer(folder):
        with progress_bars(*experiment.STAGES) as update:
            results = experiment.perform(settings, folder_of(file), update, kept_in=folder)
        results.attrs["experiment"] = experiment.to_toml(
            experiment.moved(settings, folder_of(file), folder)
        )
        page = report.write(results, folder)
        forget(folder)
    tell_run(results, page, as_json)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to be written.")] = Path("experiment.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write an experiment with every field, its default and what it means, to begin with."""
    from thalweg import experiment
    from thalweg.storage.files import write_text, writing_to

    if file.exists() and not force:
        raise InputError(f"{file} must not be there yet; `--force` replaces it.")
    text = experiment.to_toml(experiment.Experiment(), comments=True)
    with writing_to(file.parent):
        write_text(file, text)
    out.print(f"Wrote {file}; `thalweg run {file}` runs it.", highlight=False, soft_wrap=True)


def tell_run(results: Any, page: Path | None, as_json: bool) -> None:
    """Say what a run has found, and where its report is, if there is one."""
    from thalweg import report

    if as_json:
        rows, found = report.summary(results), report.findings(results)
        for row in rows:
            row["phase"] = None if row["phase"] is None else row["phase"].meaning
        print(json.dumps({"report": page and str(page), "found": found, "runs": rows}, indent=1))
        return
    print_rows(results.attrs["title"] or "Descent next to the flow", report.table(results))
    where = [] if page is None else [f"Report: {page}"]
    for line in (*report.findings(results), *where):
        out.print(line, highlight=False, soft_wrap=True)
