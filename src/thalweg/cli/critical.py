"""The command that measures the largest learning rate that still trains."""

import json
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from thalweg._errors import InputError
from thalweg._sizes import require_memory
from thalweg.cli.base import (
    AsJson,
    Changes,
    File,
    Force,
    app,
    folder_of,
    out,
    read_experiment,
    say,
    working,
)
from thalweg.cli.options import count, number, require_new

_FORMS = (".png", ".pdf", ".svg")


@app.command()
def critical(
    file: File = None,
    changes: Changes = None,
    depths: Annotated[
        str | None, typer.Option(help="Depths to go through instead of the file's, e.g. 2,5,10.")
    ] = None,
    scales: Annotated[
        str | None, typer.Option(help="Or scales of the start, e.g. 0.1,0.2,0.5.")
    ] = None,
    starts: Annotated[
        int,
        typer.Option(
            help="How many random starts, with seeds from 0 on.", callback=count("--starts")
        ),
    ] = 6,
    steps: Annotated[
        int, typer.Option(help="What every run may take.", callback=count("--steps"))
    ] = 2000,
    share: Annotated[
        float,
        typer.Option(
            help="Of the start's excess loss, left by a run that trains.",
            callback=number("--share", above=0.0, below=1.0),
        ),
    ] = 0.01,
    precision: Annotated[
        float,
        typer.Option(
            help="Relative width of the interval.", callback=number("--precision", least=1e-9)
        ),
    ] = 0.02,
    as_json: AsJson = False,
    picture: Annotated[
        Path | None, typer.Option("--out", help="Draw the rates over them into this file.")
    ] = None,
    force: Force = False,
) -> None:
    """Find the largest learning rate that still trains, next to what theory predicts."""
    searches = _changes(depths, scales)
    if picture is not None:
        _require_picture(picture, force)
    settings = read_experiment(file, changes)
    found = []
    for change in searches:
        words = ", ".join(f"{field.split('.')[1]} {value:g}" for field, value in change.items())
        with working(words or "searching"):
            found.append(
                _measure(settings, change, folder_of(file), starts, steps, share, precision)
            )
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        for each in found:
            _print(each)
    if picture is not None:
        _draw(found, "depth" if scales is None else "scale", picture)


def _changes(depths: str | None, scales: str | None) -> list[dict[str, Any]]:
    """What is set before each search: a depth, a scale, or nothing."""
    if depths is not None and scales is not None:
        raise InputError("Either `--depths` or `--scales` must be given, got both.")
    if depths is not None:
        return [{"network.depth": depth} for depth in _numbers(depths, "--depths", int, 1)]
    if scales is not None:
        return [{"start.scale": scale} for scale in _numbers(scales, "--scales", float, 0)]
    return [{}]


def _numbers(text: str, option: str, kind: type[int] | type[float], least: int) -> list[Any]:
    try:
        numbers = [kind(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(least <= number < inf for number in numbers):
        example = "whole numbers >= 1 like 2,5,10" if kind is int else "numbers like 0.1,0.2,0.5"
        raise InputError(f"`{option}` must be {example}, got {text!r}.")
    return numbers


def _measure(
    settings: Any,
    change: dict[str, Any],
    folder: Path,
    starts: int,
    steps: int,
    share: float,
    precision: float,
) -> dict[str, Any]:
    import numpy as np

    from thalweg import experiment
    from thalweg.critical import critical_learning_rate

    settings = experiment.changed(settings, change)
    objective = experiment.objective(settings, folder)
    drawn = "seed" in type(settings.start).model_fields
    total = starts if drawn else 1
    require_memory(
        f"{total} starts of {objective.network.size} weights", 2 * total * objective.network.size,
        "lower `--starts`",
    )  # fmt: skip
    weights = [
        experiment.finite_start(
            experiment.changed(settings, {"start.seed": seed}) if drawn else settings, objective
        )
        for seed in range(total)
    ]
    together = tuple(
        np.stack([np.asarray(each) for each in layer]) for layer in zip(*weights, strict=True)
    )
    result = critical_learning_rate(
        objective, together, steps=steps, share=share, precision=precision
    )
    return {
        "depth": objective.network.depth,
        "scale": getattr(settings.start, "scale", None),
        "starts": total,
        **result.to_dict(),
    }


def _print(found: dict[str, Any]) -> None:
    lower, upper = found["lower"], found["upper"]
    scale = "" if found["scale"] is None else f" of scale {found['scale']:g}"
    title = (
        f"depth {found['depth']}, {found['starts']} starts{scale}: a learning rate trains if it "
    )
    out.print(title + found["criterion"], style="bold", highlight=False, soft_wrap=True)
    if lower == 0 or upper is None:
        tried = "trains" if upper is None else "trains within this budget"
        which = f"every rate up to {lower:.3g}" if upper is None else f"no rate down to {upper:.3g}"
        out.print(f"{which} {tried}; change --steps or --share", highlight=False)
    else:
        ends = [each for each in found["uppers"] if each is not None]
        most = f"{max(ends):.4g}" if len(ends) == len(found["uppers"]) else "beyond all tried"
        out.print(
            f"critical learning rate: {lower:.4g} to {upper:.4g} for the middle start, "
            f"{min(found['lowers']):.4g} to {most} over all of them",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    again = sum(bool(rates) for rates in found["isolated"])
    if again:
        out.print(f"from {again} starts, some larger rates train again", highlight=False)
    if found["remark"]:
        out.print(found["remark"], highlight=False, soft_wrap=True)
    table = Table(box=SIMPLE_HEAD)
    table.add_column("prediction", no_wrap=True)
    table.add_column("rate", justify="right", no_wrap=True)
    table.add_column("/ measured", justify="right", no_wrap=True)
    table.add_column("meaning, or why there is none")
    for each in found["predictions"]:
        rate, ratio = each["rate"], each["ratio"]
        table.add_row(
            each["name"],
            "-" if rate is None else f"{rate:.4g}",
            "-" if ratio is None else f"{ratio:.3g}",
            each["reason"] or each["meaning"],
        )
    out.print(table)


def _require_picture(picture: Path, force: bool) -> None:
    require_new(picture, force)
    if picture.suffix.lower() not in _FORMS:
        raise InputError(
            f"`--out` must be a picture, with a name that ends in {', '.join(_FORMS)}, got "
            f"{picture}."
        )


def _draw(found: list[dict[str, Any]], along: str, picture: Path) -> None:
    from thalweg.figures import critical_rates

    figure = critical_rates({"": found}, along)
    try:
        figure.savefig(picture)
    except (OSError, ValueError) as error:
        raise InputError(f"`--out` must be a picture that can be written: {error}.") from error
    say(f"{picture}")
