"""Commands that run an experiment and write a report, and that read one back."""

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
from thalweg.cli.sweeping import tell_sweep


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
    _tell(results, page, as_json)


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


@app.command()
def show(
    result: Annotated[
        Path, typer.Argument(help="The folder of a run or sweep, or its results.zarr.")
    ],
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw pictures and report again, from the data.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say again what a run or a sweep has found, without running anything."""
    from thalweg.storage import open_results

    results = open_results(result)
    folder = result.parent if result.name == "results.zarr" else result
    kind = results.attrs.get("kind")
    if kind == "run":
        _show_run(results, folder, figures, as_json)
    elif kind == "sweep":
        tell_sweep(results, folder, figures, as_json)
    elif as_json or figures:
        raise InputError(f"{result} must hold a run or a sweep for this, got {kind}.")
    else:
        out.print(results)


def _show_run(results: Any, folder: Path, figures: bool, as_json: bool) -> None:
    from thalweg import report
    from thalweg.experiment.results import FORMAT

    if results.attrs.get("format") != FORMAT:
        raise InputError(
            f"The results in {folder} must have format {FORMAT}, got "
            f"{results.attrs.get('format')}: another version of thalweg wrote them; run it again, "
            "or read them by `thalweg.open`."
        )
    page = report.draw(results, folder) if figures else folder / "report.html"
    _tell(results, page, as_json)


def _tell(results: Any, page: Path, as_json: bool) -> None:
    from thalweg import report

    if as_json:
        rows, found = report.summary(results), report.findings(results)
        for row in rows:
            row["phase"] = None if row["phase"] is None else row["phase"].meaning
        print(json.dumps({"report": str(page), "found": found, "runs": rows}, indent=1))
        return
    print_rows(results.attrs["title"] or "Descent next to the flow", report.table(results))
    for line in (*report.findings(results), f"Report: {page}"):
        out.print(line, highlight=False, soft_wrap=True)
