"""Commands that state facts: which guarantees hold, which theorems there are, how fast it is."""

import json
from typing import Annotated

import typer

from thalweg._errors import InputError
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
    """Say which guarantees hold for this training, by what margin, promising what."""
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
        out.print(terminal.guarantees(found.overview()))
    if found.violated:
        err.print(f"violated: {', '.join(each.reference for each in found.violated)}")
        raise typer.Exit(1)


@app.command(name="theorems")
def list_theorems(
    statement: Annotated[
        str | None,
        typer.Argument(
            help="One statement in full, by its id, e.g. elkabetz2021:thm3; without one, the list.",
            metavar="STATEMENT",
        ),
    ] = None,
    paper: Annotated[
        str | None, typer.Option(help="Only the statements of this paper, by its key.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every statement that the package knows, a line each, or show one in full."""
    from thalweg.cli import terminal
    from thalweg.theorems import catalogue

    if statement is not None:
        if paper is not None:
            raise InputError("Either STATEMENT or `--paper` can be given, not both.")
        row = catalogue.row(statement)
        if as_json:
            print(json.dumps(row, indent=1))
        else:
            out.print(terminal.statement(row, _documentation(statement)))
        return
    rows = catalogue.rows(paper)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    terminal.one_line_each(out, [(row["statement"], row["meaning"]) for row in rows])
    ours = sum(row["ours"] for row in rows)
    out.print(
        f"{len(rows)} statements, {ours} of them ours; `thalweg theorems STATEMENT` shows one in "
        "full, its formulas and its tests.",
        highlight=False,
    )


def _documentation(statement: str) -> str | None:
    """The docstring of what a statement became, which has its formulas."""
    from thalweg.theorems import registry

    return registry[statement].__doc__


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
