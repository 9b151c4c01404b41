"""Commands for proofs: make one of a run, and check one that somebody made."""

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

_COPIES = 16  # of each step's weights: as numbers, and as the digits of the file


@app.command()
def prove(
    file: File = None,
    proof: Annotated[Path, typer.Option("--out", help="The file to write.")] = Path("proof.json"),
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Of the run; the experiment's first one if not given.",
            callback=number("--learning-rate", above=0.0),
        ),
    ] = None,
    start_distance: Annotated[
        float,
        typer.Option(
            help="How far the flow may start from the run.",
            callback=number("--start-distance", least=0.0),
        ),
    ] = 0.0,
    changes: Changes = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Prove the distance of a descent run to the exact flow, in a file that anyone can check."""
    from thalweg import experiment
    from thalweg.dynamics import descend
    from thalweg.tubes import prove as make

    require_new(proof, force)
    settings = read_experiment(file, changes)
    training = settings.training
    rate = training.learning_rate[0] if learning_rate is None else learning_rate
    objective = experiment.objective(settings, folder_of(file))
    steps = training.steps_at(rate)
    require_memory(
        f"A proof over {steps} steps of {objective.network.size} weights",
        _COPIES * steps * objective.network.size,
        "lower `training.steps` or `training.time`, or take a larger learning rate",
    )
    weights = experiment.finite_start(settings, objective)
    with working("proving"):
        run = descend(objective, weights, learning_rate=rate, steps=steps)
        made = make(run, start_distance)
    try:
        made.write(proof)
    except OSError as error:
        raise InputError(
            f"`--out` must be a file that can be written, got {proof}: {error.strerror}."
        ) from error
    _tell(made, proof, as_json)


def _tell(made: Any, proof: Path, as_json: bool) -> None:
    if as_json:
        numbers = {
            "upper": float(made.upper.max()), "steps": made.times.size - 1,
            "time": float(made.times[-1]), "failed_at": made.failed_at,
        }  # fmt: skip
        print(json.dumps({"proof": str(proof), **finite(numbers)}, indent=1))
        return
    until = "" if made.failed_at is None else f"; nothing is proven from time {made.failed_at:g} on"
    out.print(
        f"The exact flow stays within {made.upper.max():.6g} of {made.times.size - 1} steps, to "
        f"time {made.times[-1]:g}{until}.\nProof: {proof}",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A proof, as `thalweg prove` writes it.")],
    as_json: AsJson = False,
) -> None:
    """Check a proof with ball arithmetic, without the code that made it."""
    from thalweg.tubes import check as verdict_on

    verdict = verdict_on(file)
    print(json.dumps(finite(asdict(verdict)), indent=1) if as_json else verdict)
    if not verdict.accepted:
        raise typer.Exit(1)
