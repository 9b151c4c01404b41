"""The flow of a convolutional network of elkabetz2021, figure 3, to the paper's time.

    python benchmarks/kinks_convolutions.py NETWORK RTOL FILE

with NETWORK "adapted" or "pooling": 1000 MNIST images and the start of the study, in double
precision. One line for each tenth of a unit of time. FILE keeps weights and records: a run that was
interrupted goes on where it was, and two tolerances can be compared. Run it twice, with 4e-4 and
1e-4: their distance is the error bar.
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
from thalweg.studies.elkabetz2021_common import problem, start

_NETWORKS = {"adapted": strided_network, "pooling": max_pooling_network}
_TIMES = np.arange(101) * 0.1
_COUNTED = ("_length", "_crossings", "_h", "accepted", "time")
COLUMNS = "time, gradients, steps, crossings, sliding, ridge distance, loss, processor seconds"


def beginning(name: str) -> tuple[tw.Objective, tuple[np.ndarray, ...]]:
    """The objective and the start, which is rounded to single precision as the study's."""
    network = _NETWORKS[name]()
    weights = tuple(np.asarray(array, float) for array in start(network, 1, "xavier", "float32"))
    return tw.Objective(network, problem(1000, "random", "float64")), weights


def followed(name: str, rtol: float, file: Path) -> None:
    """Follow it, and write what is there at every time."""
    objective, weights = beginning(name)
    numbers = (jnp.asarray(rtol), jnp.asarray(1e-9), None)
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
    ends = np.cumsum([np.prod(shape) for shape in shapes])[:-1].astype(int)
    cut = zip(np.split(point, ends), shapes, strict=True)
    forward = kinked.start(tuple(part.reshape(shape) for part, shape in cut))
    masks = (forward.z > 0).astype(float)
    masks.flat[kept["sliding"]] = kept["masks"]
    at = kinked.evaluate(kinked.kinks.with_masks(forward, masks), masks)
    walk.state = State(at, kept["sliding"], kept["sides"])
    for name, value in zip(_COUNTED, kept["counted"], strict=True):
        setattr(walk, name, type(getattr(walk, name))(value))
    kinked.gradients = float(kept["records"][-1][1])


if __name__ == "__main__":
    with one_blas_thread():
        followed(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
