"""Commands that sweep grids of runs, and unite what they found."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from thalweg.cli.base import (
    AsJson,
    Changes,
    app,
    folder_of,
    out,
    print_rows,
    progress_bars,
    read_experiment,
    say,
    say_if_long,
)

_DEFAULT_FOLDER = "thalweg-sweep"


@app.command()
def sweep(
    file: Annotated[
        Path, typer.Argument(help="An experiment in TOML with a table [\\[sweep]].", metavar="FILE")
    ],
    folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder of the results.")
    ] = None,
    changes: Changes = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Compute on the cluster of this Dask scheduler."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew instead of going on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment over a grid of values; the same command goes on after an interruption."""
    from thalweg import sweeps
    from thalweg.storage.files import require_no_writer

    experiment = read_experiment(file, changes)
    base = folder or _folder(experiment.output.folder)
    named = folder is not None or base != Path(_DEFAULT_FOLDER)
    if named:
        require_no_writer(base)
    plan = sweeps.prepared(experiment, folder_of(file))
    place = base if named or fresh else _free(plan, base)
    if not fresh and sweeps.is_finished(plan, place):
        say(f"{place} holds this very sweep: shown, not repeated; `--fresh` runs it again")
    else:
        say_if_long(plan.seconds())
    with progress_bars("sweep") as show:

        def progress(done: int, total: int) -> None:
            show("sweep", done / total)

        found = sweeps.perform(plan, place, scheduler, progress, fresh)
    tell_sweep(found, place, (), as_json)


def _free(plan: Any, base: Path) -> Path:
    """The folder of this name, or with the least number behind it, that is not in use."""
    from thalweg import sweeps
    from thalweg.storage.files import numbered

    place = next(each for each in numbered(base) if sweeps.other_in(plan, each) is None)
    if place != base:
        say(f"{base} holds {sweeps.other_in(plan, base)}; this sweep goes to {place}")
    return place


@app.command()
def merge(
    first: Annotated[Path, typer.Argument(help="The folder of a sweep.", metavar="A")],
    second: Annotated[Path, typer.Argument(help="Another one, over the same fields.", metavar="B")],
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder of the united results.")
    ],
    as_json: AsJson = False,
) -> None:
    """Unite two sweeps of one experiment; where both have a run, the first one's is taken."""
    from thalweg import sweeps

    found = sweeps.merge(first, second, folder)
    tell_sweep(found, folder, (), as_json)


def _folder(named: str) -> Path:
    """The experiment's own folder, unless that is the one where single runs go by default."""
    from thalweg.experiment import folders

    return Path(_DEFAULT_FOLDER if named == folders.DEFAULT else named)


def tell_sweep(found: Any, place: Path, drawn: tuple[str, ...] | None, as_json: bool) -> None:
    """Say what a sweep has found; draw its phase diagram, as PNG and in these forms, if any."""
    if drawn is not None and "phase" in found:
        _draw_phases(found, place, ("png", *drawn))
    summary = _summary(found, place)
    if as_json:
        out.print_json(json.dumps(summary))
        return
    sizes = " x ".join(f"{length} {name}" for name, length in summary["grid"].items())
    rows = [
        {"outcome": name, "runs": str(count)} for name, count in summary["phases"].items() if count
    ]
    if rows:
        print_rows(found.attrs.get("title") or "sweep", rows)
    lines = [_count(summary, sizes or "one point", place)]
    lines += [f"{name} is damaged and will be computed again." for name in summary["damaged"]]
    for line in (*lines, f"Results: {place}"):
        out.print(line, highlight=False, soft_wrap=True)


def _draw_phases(found: Any, place: Path, forms: tuple[str, ...]) -> None:
    """The phase diagram, of a sweep over learning rates and scales."""
    phases = found["phase"]
    if not {"learning_rate", "scale"} <= set(phases.dims) or not bool((phases >= 0).any()):
        return
    from thalweg import figures
    from thalweg.storage.files import writing_to
    from thalweg.sweeps import predicted_edges

    edges = predicted_edges(found)
    figure = figures.phase_map(found if edges is None else found.assign(edge_learning_rate=edges))
    with writing_to(place):
        for form in forms:
            figure.savefig(place / f"phases.{form}")


def _count(summary: dict[str, Any], sizes: str, place: Path) -> str:
    from thalweg.storage.files import is_written_to

    if not summary["unfinished"]:
        return f"{summary['runs']} runs over {sizes}"
    at_work = is_written_to(place)
    goes_on = "another command is at work on it" if at_work else "the same command continues"
    return f"{summary['runs']} of {summary['runs_wanted']} runs over {sizes}, unfinished; {goes_on}"


def _summary(found: Any, place: Path) -> dict[str, Any]:
    from thalweg.phases import Phase

    grid = {name: int(found.sizes[name]) for name in json.loads(found.attrs["fields"])}
    summary = {
        "results": str(place),
        "runs": 0,
        "runs_wanted": int(found.attrs["runs"]),
        "unfinished": "unfinished" in found.attrs,
        "damaged": list(found.attrs.get("damaged", [])),
        "network_steps": 0,
        "grid": grid,
        "diverged": 0,
        "phases": {},
    }
    if "last_step" not in found:  # no block is done
        return summary
    steps, phases = found["last_step"], found["phase"]
    return summary | {
        "runs": int(steps.notnull().sum()),
        "network_steps": int(steps.sum()),
        "diverged": int((found["diverged_at"] >= 0).sum()),
        "phases": {phase.meaning: int((phases == phase).sum()) for phase in Phase},
    }
