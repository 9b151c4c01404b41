"""Flows of the convolutional networks of elkabetz2021, figure 3, next to descent.

    python benchmarks/kinks_convolutions.py FOLDER flow NETWORK RTOL
    python benchmarks/kinks_convolutions.py FOLDER descent NETWORK R
    python benchmarks/kinks_convolutions.py FOLDER table

with NETWORK "adapted" or "pooling": 1000 MNIST images and the start of the study, to the paper's
time 10. The flow is in double precision; descent, at the paper's rate over R, in single precision,
as the study's. One line for each tenth of a unit of time. FOLDER keeps weights and records: a run
that was interrupted, by hand or otherwise, goes on where it was. Two flows, at 1.6e-3 and 4e-4,
tell the error: where it is of order 2, their distance is three times that of the second.
"""

import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import thalweg as tw
from thalweg._threads import one_blas_thread
from thalweg.network import max_pooling_network, strided_network
from thalweg.solvers.base import Task
from thalweg.solvers.filippov import _Walk
from thalweg.solvers.filippov_step import State
from thalweg.studies.elkabetz2021_common import RATE, problem, start
from thalweg.studies.elkabetz2021_convolutions import (
    fast_max_pooling_network,
    fast_strided_network,
)

_NETWORKS = {"adapted": strided_network, "pooling": max_pooling_network}
_FAST = {"adapted": fast_strided_network, "pooling": fast_max_pooling_network}
_TIMES = np.arange(101) * 0.1
_COUNTED = ("_length", "_crossings", "_h", "accepted", "time")
COLUMNS = "time, gradients, steps, crossings, sliding, ridge distance, loss, processor seconds"


def beginning(name: str) -> tuple[tw.Objective, tuple[np.ndarray, ...]]:
    """The objective and the start, which is rounded to single precision as the study's."""
    network = _NETWORKS[name]()
    weights = tuple(np.asarray(array, float) for array in start(network, 1, "xavier", "float32"))
    return tw.Objective(network, problem(1000, "random", "float64")), weights


def followed(folder: Path, name: str, rtol: str) -> None:
    """Follow it, and write what is there at every time."""
    file = folder / f"{name}-flow-{rtol}.npz"
    objective, weights = beginning(name)
    numbers = (jnp.asarray(float(rtol)), jnp.asarray(1e-9), None)
    kinked = objective.kinked
    assert kinked is not None, "these networks declare their kinks"
    walk = _Walk(kinked, Task(objective, weights, jnp.asarray(_TIMES), *numbers, 10**6, False))
    points, records = [], []
    if file.exists():
        with np.load(file) as kept:
            points, records = list(kept["points"]), list(kept["records"])
            taken_up(walk, points[-1], kept)
    begun = time.process_time() - (records[-1][-1] if records else 0.0)
    print(COLUMNS)
    for moment in _TIMES[len(points) :]:
        crossings, sliding, ridge = walk.to(float(moment))
        outputs = jnp.asarray(walk.state.point.forward.outputs)
        loss = float(objective.problem.output_value(outputs))
        spent = time.process_time() - begun
        found = (moment, kinked.gradients, walk.accepted, crossings, sliding, ridge, loss, spent)
        records.append(np.array(found))
        points.append(np.concatenate([array.ravel() for array in walk.weights_at(float(moment))]))
        print(*(f"{each:.6g}" for each in found), flush=True)
        keep(file, walk, points, records)


def keep(file: Path, walk: _Walk, points: list, records: list) -> None:
    """Write all that is needed to go on."""
    part = file.with_suffix(".part.npz")
    masks = walk.state.point.masks.flat[walk.state.sliding]
    np.savez(part, points=np.array(points), records=np.array(records),
             sliding=walk.state.sliding, sides=walk.state.sides, masks=masks,
             counted=[getattr(walk, name) for name in _COUNTED])  # fmt: skip
    part.replace(file)


def taken_up(walk: _Walk, point: np.ndarray, kept: np.lib.npyio.NpzFile) -> None:
    """Put the walk where it was."""
    kinked, shapes = walk._objective, [w.shape for w in walk.state.point.forward.weights]
    forward = kinked.start(in_layers(point, shapes))
    masks = (forward.z > 0).astype(float)
    masks.flat[kept["sliding"]] = kept["masks"]
    at = kinked.evaluate(kinked.kinks.with_masks(forward, masks), masks)
    walk.state = State(at, kept["sliding"], kept["sides"])
    for name, value in zip(_COUNTED, kept["counted"], strict=True):
        setattr(walk, name, type(getattr(walk, name))(value))
    kinked.gradients = float(kept["records"][-1][1])


def descended(folder: Path, name: str, divisor: str) -> None:
    """Take the steps between two times at once, and write what is there."""
    file = folder / f"{name}-descent-{divisor}.npz"
    objective = tw.Objective(_FAST[name](), problem(1000, "random", "float32"))
    weights = start(_NETWORKS[name](), 1, "xavier", "float32")
    points = [np.concatenate([np.ravel(array) for array in weights])]
    if file.exists():
        with np.load(file) as kept:
            points = list(kept["points"])
    steps = round((_TIMES[1] - _TIMES[0]) / RATE) * int(divisor)
    for moment in _TIMES[len(points) :]:
        here = in_layers(points[-1], [np.shape(array) for array in weights])
        run = tw.descend(objective, here, learning_rate=RATE / int(divisor), steps=steps,
                         record_every=steps)  # fmt: skip
        points.append(np.concatenate([np.ravel(array[-1]) for array in run.weights]))
        part = file.with_suffix(".part.npz")
        np.savez(part, points=np.array(points))
        part.replace(file)
        print(f"{moment:.1f} {run.loss[-1]:.6g} {time.process_time():.1f}", flush=True)


def tell(folder: Path) -> None:
    """How far all runs of a network are from its flow at the least tolerance, in Markdown."""
    for name in _NETWORKS:
        flows = sorted(folder.glob(f"{name}-flow-*[0-9].npz"), key=tolerance)
        if not flows:
            continue
        shapes = [array.shape for array in beginning(name)[1]]
        with np.load(flows[0]) as kept:
            truth, records = kept["points"], kept["records"]
        print(f"{name}: {flows[0].stem}, {COLUMNS}\n", *records[-1])
        for path in sorted(folder.glob(f"{name}-*[0-9].npz")):
            with np.load(path) as kept:
                points = kept["points"]
            count = min(len(points), len(truth))
            marks = [k for k in range(1, count) if k in (1, 5) or k % 10 == 0 or k == count - 1]
            away = [apart(points[k], truth[k], shapes) for k in marks]
            cells = [f"{_TIMES[k]:.1f}: {each:.2g}" for k, each in zip(marks, away, strict=True)]
            print("|", path.stem, "|", " | ".join(cells), "|")


def tolerance(path: Path) -> float:
    """Of a flow, by the name of its file."""
    return float(path.stem.split("-flow-")[1])


def apart(one: np.ndarray, other: np.ndarray, shapes: list[tuple[int, ...]]) -> float:
    """The distance of two points without their biases, which are arrays of one axis."""
    pairs = zip(in_layers(one, shapes), in_layers(other, shapes), strict=True)
    return float(np.sqrt(sum(np.sum((a - b) ** 2) for a, b in pairs if a.ndim > 1)))


def in_layers(point: np.ndarray, shapes: list[tuple[int, ...]]) -> tuple[np.ndarray, ...]:
    """A row of all weights as the arrays that they are."""
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])[:-1]
    cut = zip(np.split(point, ends), shapes, strict=True)
    return tuple(part.reshape(shape) for part, shape in cut)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    with one_blas_thread():
        if sys.argv[2] == "flow":
            followed(where, *sys.argv[3:5])
        elif sys.argv[2] == "descent":
            descended(where, *sys.argv[3:5])
        else:
            tell(where)
