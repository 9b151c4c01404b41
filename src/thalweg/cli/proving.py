"""Commands for proofs: make one of some runs, and check one that others made."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from thalweg._errors import InputError
from thalweg._sizes import require_memory
from thalweg.cli.base import (
    AsJson,
    Changes,
    File,
    Force,
    app,
    finite,
    folder_of,
    out,
    read_experiment,
    working,
)
from thalweg.cli.options import number, require_new

_COPIES = 40  # numbers that the two bounds of a step take, with the digits of the file


def _rates(values: list[float] | None) -> list[float] | None:
    """Each of the learning rates that are given."""
    one = number("--learning-rate", above=0.0)
    return values and [value for value in map(one, values) if value is not None]


@app.command()
def prove(
    file: File = None,
    proof: Annotated[Path, typer.Option("--out", help="The file to write.")] = Path("proof.json"),
    learning_rate: Annotated[
        list[float] | None,
        typer.Option(
            help="Of a run; may be repeated. The experiment's learning rates if not given.",
            callback=_rates,
        ),
    ] = None,
    start_distance: Annotated[
        float,
        typer.Option(
            help="How far the flow may start from the runs.",
            callback=number("--start-distance", least=0.0),
        ),
    ] = 0.0,
    changes: Changes = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Prove the distance of descent runs to the exact flow, in a file that anyone can check."""
    from thalweg import experiment
    from thalweg.proofs.making import prove_descents

    require_new(proof, force)
    settings = read_experiment(file, changes)
    training = settings.training
    objective = experiment.objective(settings, folder_of(file))
    rates = learning_rate or training.learning_rate
    runs = [(float(rate), training.steps_at(rate)) for rate in rates]
    steps = sum(count for _, count in runs)
    require_memory(
        f"A proof over {steps} steps of {objective.network.size} weights",
        _COPIES * steps,
        "lower `training.steps` or `training.time`, or take a larger learning rate",
    )
    weights = experiment.finite_start(settings, objective)
    with working("proving"):
        made = prove_descents(objective, weights, runs, start_distance)
    try:
        made.write(proof)
    except OSError as error:
        raise InputError(
            f"`--out` must be a file that can be written, got {proof}: {error.strerror}."
        ) from error
    _tell(made, proof, as_json)


def _tell(made: Any, proof: Path, as_json: bool) -> None:
    from thalweg.proofs.proof import checker

    if as_json:
        runs = [
            {
                "learning_rate": run.learning_rate, "steps": run.times.size - 1,
                "lower": float(run.lower.max()), "upper": float(run.upper.max()),
            }
            for run in made.runs
        ]  # fmt: skip
        numbers = {
            "time": float(made.times[-1]), "radius": float(made.radius.max()),
            "failed_at": made.failed_at, "runs": runs,
        }  # fmt: skip
        print(json.dumps({"proof": str(proof), **finite(numbers)}, indent=1))
        return
    until = "" if made.failed_at is None else f"; nothing is proven from time {made.failed_at:g} on"
    rounded = checker().rounded  # upwards: what is printed is proven
    lines = [
        f"The exact flow is known to {rounded(made.radius.max(), 2)} up to time "
        f"{made.times[-1]:g}{until}.",
        *(
            f"Learning rate {run.learning_rate:g}: within {rounded(run.upper.max(), 10)} of it in "
            f"{run.times.size - 1} steps, {rounded(run.upper[-1], 10)} at the last."
            for run in made.runs
        ),
        f"Proof: {proof}",
    ]
    out.print("\n".join(lines), highlight=False, soft_wrap=True)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A proof, as `thalweg prove` writes it.")],
    as_json: AsJson = False,
) -> None:
    """Check a proof with ball arithmetic, without the code that made it."""
    from thalweg.proofs import check as verdict_on

    verdict = verdict_on(file)
    print(json.dumps(finite(asdict(verdict)), indent=1) if as_json else verdict)
    if not verdict.accepted:
        raise typer.Exit(1)
