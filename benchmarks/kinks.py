"""Flows across kinks against descent on MNIST: `THALWEG_DATA=... python benchmarks/kinks.py`.

The ReLU network of figure 1 of elkabetz2021, 784-50-50-10 on 1000 images, from Xavier starts:

    python benchmarks/kinks.py FOLDER flow SEED RTOL      one walk of the flow to time 10
    python benchmarks/kinks.py FOLDER descent SEED RATE   descent to time 10, continued if begun
    python benchmarks/kinks.py FOLDER table               what the runs that are there say
    python benchmarks/kinks.py FOLDER sides SEED          a kink that decides, passed on either side

Each leaves its run in FOLDER. Weights are recorded every 0.1. Descent here is NumPy's, ten times
faster than in general: the first layer moves in the span of the images, so that what it puts out
is known from the slopes that go into it, by the images' Gram matrix. Weights are in double
precision, gradients in single: a relative error of 1e-7 in each step, at random, is 3e-7 of 3.
"""

import sys
import time
from pathlib import Path

import jax
import numpy as np

import thalweg as tw
from thalweg.studies.elkabetz2021_common import problem

HORIZON, RECORDS = 10.0, 100
WIDTHS = (784, 50, 50, 10)
RATES = (1e-3, 5e-4, 2e-4, 1e-4, 5e-5)
TOLERANCES = (4e-4, 1e-4, 2.5e-5)
EVERY_50TH = "every 50th"


def beginning(seed: int) -> tuple[tw.Objective, tuple]:
    """The objective and the start, in double precision."""
    network = tw.HomogeneousNetwork(WIDTHS)
    start = tw.initialisation.xavier_uniform(network, key=jax.random.key(seed))
    return tw.Objective(network, problem(1000, "random", "float64")), start


def follow(folder: Path, seed: int, rtol: float) -> None:
    """One walk, without companion: tolerances are compared with each other."""
    objective, start = beginning(seed)
    begun, wall = time.process_time(), time.perf_counter()
    flow = tw.flow(
        objective,
        start,
        times=np.linspace(0, HORIZON, RECORDS + 1),
        rtol=rtol,
        solver=tw.solvers.Filippov(),
        estimate_error=False,
    )
    spent, wall = time.process_time() - begun, time.perf_counter() - wall
    np.savez(
        folder / f"flow-{seed}-{rtol:g}.npz",
        **{f"layer{j}": array for j, array in enumerate(flow.weights)},
        **flow.records,
        loss=flow.loss,
        gradients=flow.gradient_evaluations,
        seconds=spent,
        wall=wall,
    )
    print(seed, rtol, flow.gradient_evaluations, f"{spent:.1f} s", flow.records["crossings"][-1])


class Descent:
    """Gradient descent on this network under cross-entropy, step by step."""

    def __init__(self, objective: tw.Objective, weights: list[np.ndarray], rate: float):
        """Take the objective, where it starts, and the learning rate."""
        self.x = np.asarray(objective.problem.inputs, float)
        self.gram = (self.x @ self.x.T).astype("f4")
        labels = np.asarray(objective.problem.labels)
        self.targets = np.eye(WIDTHS[-1], dtype="f4")[labels]
        self.rate, self.weights = rate, [np.array(each, float) for each in weights]

    def advance(self, steps: int) -> None:
        """Take so many steps."""
        rate, (first, second, third) = self.rate, self.weights
        z = self.x @ first.T
        total = np.zeros_like(z)
        for _ in range(steps):
            one = np.maximum(z, 0).astype("f4")
            w2, w3 = second.astype("f4"), third.astype("f4")
            two = np.maximum(one @ w2.T, 0)
            outputs = two @ w3.T
            outputs -= outputs.max(axis=1, keepdims=True)
            slopes = np.exp(outputs)
            slopes /= slopes.sum(axis=1, keepdims=True)
            slopes = (slopes - self.targets) / np.float32(len(z))
            upper = (slopes @ w3) * (two > 0)
            lower = (upper @ w2) * (one > 0)
            third -= rate * (slopes.T @ two)
            second -= rate * (upper.T @ one)
            total += lower
            z -= rate * (self.gram @ lower)
        first -= rate * (total.T @ self.x)


def descend(folder: Path, seed: int, rate: float) -> None:
    """Descent, whose records so far are kept."""
    path = folder / f"descent-{seed}-{rate:g}.npz"
    objective, start = beginning(seed)
    records = [[np.asarray(each, float)] for each in start]
    seconds = 0.0
    if path.exists():
        with np.load(path) as kept:
            records = [list(kept[f"layer{j}"]) for j in range(len(start))]
            seconds = float(kept["seconds"])
    run = Descent(objective, [each[-1] for each in records], rate)
    steps = round(HORIZON / RECORDS / rate)
    while len(records[0]) <= RECORDS:
        begun = time.process_time()
        run.advance(steps)
        seconds += time.process_time() - begun
        for each, array in zip(records, run.weights, strict=True):
            each.append(array.copy())
        done = len(records[0]) - 1
        if done % max(1, RECORDS * 20_000 * rate // HORIZON) == 0 or done == RECORDS:
            layers = {f"layer{j}": np.array(each) for j, each in enumerate(records)}
            np.savez(path.with_suffix(".part.npz"), **layers, seconds=seconds)
            path.with_suffix(".part.npz").replace(path)
    print(seed, rate, f"{seconds:.1f} s")


def main() -> None:
    """Do what the command line says."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if sys.argv[2] == "flow":
        follow(folder, int(sys.argv[3]), float(sys.argv[4]))
    elif sys.argv[2] == "descent":
        descend(folder, int(sys.argv[3]), float(sys.argv[4]))


if __name__ == "__main__":
    main()
