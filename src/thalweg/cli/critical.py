"""The command that measures the largest learning rate that still trains."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from thalweg._checks import InputError
from thalweg.cli.base import AsJson, Changes, File, app, err, folder_of, out, read_experiment


@app.command()
def critical(
    file: File = None,
    changes: Changes = None,
    depths: Annotated[
        str | None, typer.Option(help="Depths to go through instead of the file's, e.g. 2,5,10.")
    ] = None,
    starts: Annotated[int, typer.Option(help="How many random starts, with seeds from 0 on.")] = 6,
    steps: Annotated[int, typer.Option(help="What every run may take.")] = 2000,
    share: Annotated[
        float, typer.Option(help="Of the start's excess loss, left by a run that trains.")
    ] = 0.01,
    precision: Annotated[float, typer.Option(help="Relative width of the interval.")] = 0.02,
    as_json: AsJson = False,
    picture: Annotated[
        Path | None, typer.Option("--out", help="Draw the rates over depth into this file.")
    ] = None,
) -> None:
    """Find the largest learning rate that still trains, next to what theory predicts."""
    settings = read_experiment(file, changes)
    wanted = [settings.network.depth] if depths is None else _depths(depths)
    found = []
    for depth in wanted:
        with err.status(f"depth {depth} ..." if depth else "searching ..."):
            found.append(
                _measure(settings, depth, folder_of(file), starts, steps, share, precision)
            )
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        for each in found:
            _print(each)
    if picture is not None:
        _draw(found, picture)


def _depths(text: str) -> list[int]:
    try:
        depths = [int(word) for word in text.split(",")]
    except ValueError:
        depths = []
    if not depths or min(depths) < 1:
        raise InputError(f"`--depths` must be whole numbers >= 1 like 2,5,10, got {text!r}.")
    return depths


def _measure(
    settings: Any,
    depth: int | None,
    folder: Path,
    starts: int,
    steps: int,
    share: float,
    precision: float,
) -> dict[str, Any]:
    import numpy as np

    from thalweg import experiment
    from thalweg._checks import require_count
    from thalweg.critical import critical_learning_rate

    if depth is not None:
        settings = experiment.changed(settings, {"network.depth": depth})
    objective = experiment.objective(settings, folder)
    drawn = "seed" in type(settings.start).model_fields
    count = require_count("starts", starts) if drawn else 1
    weights = [
        experiment.start(
            experiment.changed(settings, {"start.seed": seed}) if drawn else settings, objective
        )
        for seed in range(count)
    ]
    together = tuple(
        np.stack([np.asarray(each) for each in layer]) for layer in zip(*weights, strict=True)
    )
    result = critical_learning_rate(
        objective, together, steps=steps, share=share, precision=precision
    )
    return {"depth": objective.network.depth, "starts": count, **result.to_dict()}


def _print(found: dict[str, Any]) -> None:
    lower, upper = found["lower"], found["upper"]
    title = f"depth {found['depth']}, {found['starts']} starts: a learning rate trains if it "
    out.print(f"[bold]{title}{found['criterion']}[/]", highlight=False, soft_wrap=True)
    if lower == 0 or upper is None:
        tried = "trains" if upper is None else "trains within this budget"
        which = f"every rate up to {lower:.3g}" if upper is None else f"no rate down to {upper:.3g}"
        out.print(f"{which} {tried}; change --steps or --share", highlight=False)
    else:
        least, most = min(found["lowers"]), max(each or lower for each in found["uppers"])
        out.print(
            f"critical learning rate: {lower:.4g} to {upper:.4g} for the middle start, "
            f"{least:.4g} to {most:.4g} over all of them",
            highlight=False,
        )
    again = sum(bool(rates) for rates in found["isolated"])
    if again:
        out.print(f"from {again} starts, some larger rates train again", highlight=False)
    table = Table(box=SIMPLE_HEAD)
    table.add_column("prediction", no_wrap=True)
    table.add_column("rate", justify="right", no_wrap=True)
    table.add_column("/ measured", justify="right", no_wrap=True)
    table.add_column("what it says, or why there is none")
    for each in found["predictions"]:
        rate, ratio = each["rate"], each["ratio"]
        table.add_row(
            each["name"],
            "-" if rate is None else f"{rate:.4g}",
            "-" if ratio is None else f"{ratio:.3g}",
            each["reason"] or each["meaning"],
        )
    out.print(table)


def _draw(found: list[dict[str, Any]], picture: Path) -> None:
    from thalweg.figures.critical import critical_over_depth

    figure = critical_over_depth({"": found})
    try:
        figure.savefig(picture)
    except (OSError, ValueError) as error:
        raise InputError(f"`--out` must be a picture that can be written: {error}.") from error
    err.print(f"{picture}", highlight=False)
