"""What cases find on the disk: small experiments, a table, proofs, results of a run and a sweep.

Everything is made once by the program itself, when a case first asks for it, and copied for it.
"""

import fcntl
import itertools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TINY = {
    "data": {"samples": 6, "features": 2},
    "network": {"depth": 2},
    "training": {"learning_rate": 0.1, "steps": 5, "records": 3},
}
"""What every experiment starts from: all that is accepted is done in a second."""

SETS = tuple(
    f"{table}.{field}={value}" for table, fields in TINY.items() for field, value in fields.items()
)

_QUIET = """
flow.enabled = false
flow.tube = "off"
curvature.enabled = false
certificates.enabled = false
"""
EXPERIMENT = _QUIET + "".join(
    f"{table}.{field} = {value}\n"
    for table, fields in TINY.items()
    for field, value in fields.items()
)
SWEEP = EXPERIMENT + '[[sweep]]\n"start.seed" = [0, 1]\n"start.scale" = [0.4, 0.8]\n'
TABLE = "a,b,y\n" + "".join(
    f"{a},{b},{2 * a - b + 0.1 * c}\n"
    for a, b, c in ((0, 1, 1), (1, 0.5, -1), (-1, 2, 0), (0.5, -1, 1), (2, 2, -1), (1, -2, 0.5))
)


def _with_the_program(*arguments: str) -> None:
    from thalweg import cli

    before, sys.argv = sys.argv, ["thalweg", *arguments]
    try:
        cli.main()
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"thalweg {' '.join(arguments)} ended with {stop.code}") from stop
    finally:
        sys.argv = before


def _experiment(place: Path) -> None:
    place.write_text(EXPERIMENT)


def _grid(place: Path) -> None:
    place.write_text(SWEEP)


def _table(place: Path) -> None:
    place.write_text(TABLE)


def _proof(place: Path) -> None:
    _with_the_program(
        "prove", *(word for change in SETS for word in ("--set", change)), "--out", str(place)
    )


def _target(place: Path) -> None:
    from thalweg import LinearNetwork, Objective, TargetMatrix

    network = LinearNetwork([2, 2, 2], np.array([[1.0], [0.5]]))
    _write_proof(place, Objective(network, TargetMatrix(np.array([[1.0, -0.5]])), 0.1))


def _classes(place: Path) -> None:
    from thalweg import Classification, LinearNetwork, Objective

    x = np.array([[1.0, 0.2], [-0.4, 1.0], [0.3, -0.8], [0.9, 0.7]])
    _write_proof(place, Objective(LinearNetwork([2, 2, 3]), Classification(x, [0, 1, 2, 0])))


def _write_proof(place: Path, objective: Any) -> None:
    from thalweg.proofs.making import prove_descents

    sizes = itertools.pairwise(objective.network.widths)
    start = tuple(np.cos(np.arange(1.0, a * b + 1)).reshape(b, a) for a, b in sizes)
    prove_descents(objective, start, [(0.1, 4), (0.3, 2)]).write(place)


def _run(place: Path) -> None:
    _experiment(place.with_name("run-of.toml"))
    _with_the_program("run", str(place.with_name("run-of.toml")), "--out", str(place))


def _swept(place: Path) -> None:
    _grid(place.with_name("sweep-of.toml"))
    _with_the_program("sweep", str(place.with_name("sweep-of.toml")), "--out", str(place))


THINGS: dict[str, Callable[[Path], None]] = {
    "small.toml": _experiment,
    "grid.toml": _grid,
    "table.csv": _table,
    "proof.json": _proof,
    "target.json": _target,
    "classes.json": _classes,
    "a-run": _run,
    "a-sweep": _swept,
}


def held(world: Path, name: str) -> Path:
    """The thing of this name, made if it is not there; by one process at a time."""
    place = world / name
    with (world / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            made = world / "making" / name
            made.parent.mkdir(exist_ok=True)
            THINGS[name](made)
            made.rename(place)
    return place


def provide(world: Path, name: str, folder: Path) -> None:
    """Copy a thing into the folder of a case."""
    source = held(world, name)
    if source.is_dir():
        shutil.copytree(source, folder / name)
    else:
        shutil.copyfile(source, folder / name)
