"""Commands that state facts: which guarantees hold, which theorems there are, how fast it is."""

import json
from typing import Annotated

import typer

from thalweg.cli.base import (
    AsJson,
    Changes,
    File,
    app,
    err,
    folder_of,
    out,
    print_rows,
    read_experiment,
    working,
)
from thalweg.cli.options import number


@app.command()
def certify(
    file: File = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Of the descent that is to be guaranteed.",
            callback=number("--learning-rate", above=0.0),
        ),
    ] = None,
    target_loss: Annotated[
        float | None,
        typer.Option(
            help="To be reached; a hundredth of the excess if not given.",
            callback=number("--target-loss"),
        ),
    ] = None,
    changes: Changes = None,
    simulated: Annotated[
        bool, typer.Option("--run", help="Simulate, and compare what is promised with it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say which published guarantees hold for this training, by what margin, promising what."""
    from thalweg import certificates, experiment, theorems
    from thalweg.cli import terminal

    settings = read_experiment(file, changes)
    case = experiment.case(settings, learning_rate, target_loss, folder_of(file))
    with working("simulating" if simulated else "checking"):
        case = certificates.simulate(case) if simulated else case
        found = theorems.certify_case(case)
    if as_json:
        print(found.to_json())
    else:
        out.print(terminal.guarantees(found))
    if found.violated:
        err.print(f"violated: {', '.join(each.reference for each in found.violated)}")
        raise typer.Exit(1)


@app.command(name="theorems")
def list_theorems(
    paper: Annotated[
        str | None, typer.Option(help="Only the statements of this paper, by its key.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every statement that the package knows: what it says, where it is, how loose it was."""
    from thalweg.cli import terminal
    from thalweg.theorems import catalogue

    rows = catalogue.rows(paper)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    shown = [
        {
            "statement": row["statement"] + (" (ours)" if row["ours"] else ""),
            "meaning": row["meaning"],
            "code": row["code"],
            "tests": ", ".join(f"{kind} {len(tests)}" for kind, tests in row["tests"].items()),
            "looseness": row["looseness"],
        }
        for row in rows
    ]
    out.print(terminal.table(shown))
    out.print(
        f"{len(rows)} statements; (ours) stands in no paper; --json names the tests.",
        highlight=False,
    )


@app.command()
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which ones; all where none is named.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure speed next to the plain way of doing the same, as ratios within one run."""
    from thalweg import bench as benchmarks

    rows = []
    for comparison in benchmarks.measure(names or [], lambda name: err.print(f"{name} ...")):
        rows.append(comparison.row())
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    print_rows("Speed next to the plain way", rows)
