"""The command line: parse, call, print; no mathematics.

Exit codes: 0 done, 1 a verdict failed, 2 bad input (one sentence on the error stream).
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from thalweg._checks import InputError
from thalweg._version import __version__

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="How gradient descent travels over the loss of a deep network, next to the gradient flow.",
)
out = Console()
err = Console(stderr=True)


def main() -> None:
    """Run the command line; bad input ends in one sentence and exit code 2."""
    before = signal.signal(signal.SIGINT, _stop_at_once)
    try:
        app()
    except InputError as error:
        err.print(f"[bold red]error:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(2)
    finally:
        signal.signal(signal.SIGINT, before)


def _stop_at_once(*_: Any) -> None:
    """End here: an exception cannot be thrown through compiled code, and would crash inside of it.

    Commands write their results in one go at the end, so that nothing half done is left behind.
    """
    err.show_cursor(True)
    err.print("interrupted", highlight=False)
    os._exit(130)


def _show_version(wanted: bool | None) -> None:
    if wanted:
        out.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = None,
) -> None:
    """Options of every command."""


File = Annotated[
    Path | None,
    typer.Argument(
        help="An experiment in TOML; without one, the built-in experiment.", metavar="FILE"
    ),
]
LearningRates = Annotated[
    list[float] | None, typer.Option("--learning-rate", help="May be given several times.")
]
Depth = Annotated[int | None, typer.Option(help="How many layers.")]
Start = Annotated[str | None, typer.Option(help="gaussian, balanced or residual.")]
InitScale = Annotated[float | None, typer.Option(help="Standard deviation of what is drawn.")]
Time = Annotated[float | None, typer.Option(help="How long: learning rate x steps.")]
Seed = Annotated[int | None, typer.Option(help="Seed of data and start.")]
White = Annotated[bool | None, typer.Option("--white/--raw", help="Whiten the samples or not.")]


@app.command()
def run(
    file: File = None,
    folder: Annotated[Path, typer.Option("--out", help="Where the report goes.")] = Path(
        "thalweg-run"
    ),
    learning_rate: LearningRates = None,
    depth: Depth = None,
    start: Start = None,
    init_scale: InitScale = None,
    time: Time = None,
    seed: Seed = None,
    white: White = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Descend and flow from one start; draw loss, sharpness and distance; write a report."""
    from thalweg import report
    from thalweg.experiment import perform

    experiment = _experiment(
        file, learning_rates=tuple(learning_rate) if learning_rate else None, depth=depth,
        start=start, init_scale=init_scale, time=time, seed=seed, white=white,
    )  # fmt: skip
    columns = (TextColumn("{task.description:>10}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bars:
        tasks = {
            name: bars.add_task(name, total=1.0) for name in ("descent", "flow", "tube", "spectrum")
        }
        results = perform(
            experiment, lambda stage, share: bars.update(tasks[stage], completed=share)
        )
    page = report.write(results, folder)
    rows = report.summary(results)
    if as_json:
        print(json.dumps({"report": str(page), "runs": rows}, indent=1))
        return
    _print_rows(f"At time {float(results.flow_time[-1]):g}; distance is to the flow", rows)
    bound = float(results.stronger_sharpness_bound)
    for line in (
        f"The flow took {results.attrs['flow_gradient_evaluations']} gradient evaluations "
        f"({results.attrs['flow_method']}); its error is {float(results.flow_error.max()):.1e}.",
        f"No minimiser is flatter than {bound:.2f}, so descent cannot settle above a learning "
        f"rate of {2 / bound:.3g}.",
        f"Report: {page}",
    ):
        out.print(line, highlight=False, soft_wrap=True)


@app.command()
def certify(
    file: File = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of the descent that is to be guaranteed.")
    ] = None,
    target_loss: Annotated[
        float | None, typer.Option(help="To be reached; a hundredth of the excess if not given.")
    ] = None,
    depth: Depth = None,
    start: Start = None,
    init_scale: InitScale = None,
    time: Time = None,
    radius: Annotated[
        float | None, typer.Option(help="How near descent is to stay to the flow.")
    ] = None,
    seed: Seed = None,
    white: White = None,
    simulated: Annotated[
        bool, typer.Option("--run", help="Simulate, and compare what is promised with it.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the certificates as JSON.")
    ] = False,
) -> None:
    """Say which published guarantees hold for this training, by what margin, promising what."""
    from thalweg import theorems

    experiment = _experiment(
        file, depth=depth, start=start, init_scale=init_scale, time=time, radius=radius, seed=seed,
        white=white,
    )  # fmt: skip
    rate = experiment.learning_rates[0] if learning_rate is None else learning_rate
    case = experiment.case(rate, target_loss)
    with err.status("simulating ..." if simulated else "checking ..."):
        case = theorems.simulate(case) if simulated else case
        found = theorems.certify_case(case)
    if as_json:
        print(found.to_json())
    else:
        out.print(found)
    if found.violated:
        err.print(f"violated: {', '.join(each.reference for each in found.violated)}")
        raise typer.Exit(1)


@app.command(name="theorems")
def list_theorems(
    paper: Annotated[
        str | None, typer.Option(help="Only the statements of this paper, by its key.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List every statement that the package knows: what it says, where it is, how loose it was."""
    from thalweg.theorems import catalogue
    from thalweg.theorems.certificate import plain_table

    rows = catalogue.rows(paper)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = plain_table("statement", "meaning", "code", "tests", "looseness")
    for row in rows:
        name = row["statement"] + (" (ours)" if row["ours"] else "")
        tests = ", ".join(f"{kind} {len(found)}" for kind, found in row["tests"].items())
        table.add_row(*map(Text, (name, row["meaning"], row["code"], tests, row["looseness"])))
    out.print(table)
    out.print(
        f"{len(rows)} statements; (ours) stands in no paper; --json names the tests.",
        highlight=False,
    )


@app.command()
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which ones; all where none is named.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure speed next to the plain way of doing the same, as ratios within one run."""
    from thalweg import bench as benchmarks

    rows = []
    for comparison in benchmarks.measure(names or [], lambda name: err.print(f"{name} ...")):
        rows.append(comparison.row())
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    _print_rows("Speed next to the plain way", rows)


def _experiment(file: Path | None, **changes: Any) -> Any:
    """The experiment of a file, or the built-in one, with what was given on the command line."""
    from thalweg.experiment import Experiment, read

    given = {name: value for name, value in changes.items() if value is not None}
    return replace(Experiment() if file is None else read(file), **given)


def _print_rows(title: str, rows: list[dict[str, str]]) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row.values())
    out.print(table)
