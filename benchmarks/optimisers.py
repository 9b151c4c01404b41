"""What momentum costs: a step of a network in lanes, against one of plain descent.

Ten layers of width 5 with one output, 1,000 networks at once. The optimisers take turns and the
least time of each counts, in seconds of processors, so that other work on the machine hardly enters
the ratios.

Run as `python benchmarks/optimisers.py`.
"""

import time
from typing import Any

import jax
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

import thalweg as tw
from thalweg.dynamics import nothing

NETWORKS, STEPS, ROUNDS = 1000, 1000, 15


def seconds(objective: tw.Objective, starts: Any, optimiser: Any) -> float:
    began = time.process_time()
    tw.descend(
        objective, starts, learning_rate=0.001, steps=STEPS, record_every=STEPS,
        optimiser=optimiser, observe=nothing,
    )  # fmt: skip
    return time.process_time() - began


def main() -> None:
    x, y, _ = tw.data.gaussian_regression(jax.random.key(0), samples=50, features=5)
    network = tw.LinearNetwork([5] * 10 + [1])
    objective = tw.Objective(network, tw.Regression(x, y))
    keys = jax.random.split(jax.random.key(1), NETWORKS)
    starts = jax.vmap(lambda key: tw.initialisation.gaussian(network, 0.4, key=key))(keys)
    optimisers = {
        "plain": tw.optimisers.GradientDescent(),
        "heavy ball": tw.optimisers.HeavyBall(0.9),
        "Nesterov": tw.optimisers.Nesterov(0.9),
        "optax.scale_by_rms": optax.scale_by_rms(),
    }
    for optimiser in optimisers.values():
        seconds(objective, starts, optimiser)  # compiled
    taken = [
        [seconds(objective, starts, each) for each in optimisers.values()] for _ in range(ROUNDS)
    ]
    least = np.min(taken, axis=0)
    table = Table("optimiser", "microseconds per network and step", "against plain descent")
    for name, each in zip(optimisers, least, strict=True):
        table.add_row(name, f"{1e6 * each / NETWORKS / STEPS:.3f}", f"{each / least[0]:.2f} x")
    Console().print(table)


if __name__ == "__main__":
    main()
