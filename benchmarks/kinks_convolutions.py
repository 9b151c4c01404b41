"""The flow of a convolutional network of elkabetz2021, figure 3, to the paper's time.

    python benchmarks/kinks_convolutions.py NETWORK RTOL FILE

with NETWORK "adapted" or "pooling": 1000 MNIST images and the start of the study, in double
precision. One line for each quarter of a unit of time; FILE keeps weights and records, so that two
tolerances can be compared. Run it twice, with 4e-4 and 1e-4: their distance is the error bar.
"""

import sys
import time

import jax.numpy as jnp
import numpy as np

import thalweg as tw
from thalweg._threads import one_blas_thread
from thalweg.network import max_pooling_network, strided_network
from thalweg.solvers.base import Task
from thalweg.solvers.filippov import _Walk
from thalweg.studies.elkabetz2021_common import problem, start

_NETWORKS = {"adapted": strided_network, "pooling": max_pooling_network}
_TIMES = np.arange(1, 41) * 0.25


def followed(name: str, rtol: float, file: str) -> None:
    """Follow it, and write what is there at every time."""
    network = _NETWORKS[name]()
    objective = tw.Objective(network, problem(1000, "random", "float64"))
    weights = tuple(np.asarray(array, float) for array in start(network, 1, "xavier", "float32"))
    numbers = (jnp.asarray(rtol), jnp.asarray(1e-9), None)
    kinked = objective.kinked
    walk = _Walk(kinked, Task(objective, weights, jnp.asarray(_TIMES), *numbers, 10**6, False))
    points, records = [], []
    print("time, gradients, steps, sliding, ridge distance, loss, processor seconds")
    for moment in _TIMES:
        ridge = walk.to(float(moment))[-1]
        outputs = jnp.asarray(walk.state.point.forward.outputs)
        found = (moment, kinked.gradients, walk.accepted, walk.state.sliding.size, ridge)
        records.append(
            (*found, float(objective.problem.output_value(outputs)), time.process_time())
        )
        points.append(np.concatenate([array.ravel() for array in walk.weights_at(float(moment))]))
        print(*records[-1], flush=True)
        np.savez(file, points=np.array(points), records=np.array(records, float))


if __name__ == "__main__":
    with one_blas_thread():
        followed(sys.argv[1], float(sys.argv[2]), sys.argv[3])
