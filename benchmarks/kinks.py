"""Flows across kinks against descent on MNIST: `THALWEG_DATA=... python benchmarks/kinks.py`.

The ReLU network of figure 1 of elkabetz2021, 784-50-50-10 on 1000 images, from Xavier starts:

    python benchmarks/kinks.py FOLDER flow SEED RTOL      one walk of the flow to time 10
    python benchmarks/kinks.py FOLDER descent SEED RATE   descent to time 10, continued if begun
    python benchmarks/kinks.py FOLDER all SEED ...        all flows and descents of these seeds
    python benchmarks/kinks.py FOLDER table               what the runs that are there say
    python benchmarks/kinks.py FOLDER errors              how exact the flows are, seed by seed
    python benchmarks/kinks.py FOLDER sides SEED FROM TO the repelling kink at which descent at 1e-3
                                                          parts from the flow, passed on its side

Each leaves its run in FOLDER, and is not done again if it is there: `all` can be interrupted at any
time. Weights are recorded every 0.1. Descent here is NumPy's, three times
faster than in general: the first layer moves in the span of the images, so that what it puts out
is known from the slopes that go into it, by the images' Gram matrix. Weights are in double
precision, gradients in single: a relative error of 1e-7 in each step, at random, is 3e-7 of 3.
"""

import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import thalweg as tw
from thalweg._threads import one_blas_thread
from thalweg.solvers.filippov_step import start_at
from thalweg.studies.elkabetz2021_common import problem

HORIZON, RECORDS = 10.0, 100
WIDTHS = (784, 50, 50, 10)
RATES = (2e-3, 1e-3, 5e-4, 2.5e-4, 1.25e-4)
TOLERANCES = (2e-4, 1e-4, 5e-5)
AT = (0.1, 1, 2, 3, 5, 7, 10)
PUSH = 1e-4  # past a kink, in weight space


def beginning(seed: int) -> tuple[tw.Objective, tuple]:
    """The objective and the start, in double precision."""
    network = tw.HomogeneousNetwork(WIDTHS)
    start = tw.initialisation.xavier_uniform(network, key=jax.random.key(seed))
    return tw.Objective(network, problem(1000, "random", "float64")), start


def follow(folder: Path, seed: int, rtol: float) -> None:
    """One walk, without companion: tolerances are compared with each other."""
    path = folder / f"flow-{seed}-{rtol:g}.npz"
    if path.exists():
        return
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
        path.with_suffix(".part.npz"),
        **{f"layer{j}": array for j, array in enumerate(flow.weights)},
        **flow.records,
        loss=flow.loss,
        gradients=flow.gradient_evaluations,
        seconds=spent,
        wall=wall,
    )
    path.with_suffix(".part.npz").replace(path)
    print(
        seed,
        rtol,
        flow.gradient_evaluations,
        f"{spent:.1f} s",
        flow.records["crossings"][-1],
        flush=True,
    )


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
    print(seed, rate, f"{seconds:.1f} s", flush=True)


def everything(folder: Path, seeds: list[int]) -> None:
    """All runs that are missing; what takes least time for what it tells is done first."""
    coarse, middle, fine = TOLERANCES
    order = [(follow, each) for each in (fine, coarse)]
    order += [(descend, each) for each in RATES[:2]]
    order += [(follow, middle), *((descend, each) for each in RATES[2:])]
    for run, number in order:
        for seed in seeds:
            run(folder, seed, number)


def run_of(path: Path) -> dict[str, np.ndarray]:
    """All that a run left."""
    with np.load(path) as kept:
        return {name: kept[name] for name in kept}


def layers(run: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The recorded weights."""
    return [run[f"layer{j}"] for j in range(3)]


def apart(one: list[np.ndarray], other: list[np.ndarray]) -> np.ndarray:
    """The distance in weight space at the records that both have."""
    count = min(len(one[0]), len(other[0]))
    squares = [
        np.sum((a[:count] - b[:count]).reshape(count, -1) ** 2, axis=1)
        for a, b in zip(one, other, strict=True)
    ]
    return np.sqrt(np.sum(squares, axis=0))


def tell(folder: Path) -> None:
    """Distances to the finest flow of each seed, in Markdown."""
    print("| seed | run | gradients | CPU s | " + " | ".join(f"t = {t:g}" for t in AT) + " |")
    print("|" + "---|" * (4 + len(AT)))
    for path in sorted(folder.glob("*-*-*.npz")):
        kind, seed, number = path.stem.split("-", 2)
        flows = [each.stem.split("-", 2)[2] for each in folder.glob(f"flow-{seed}-*.npz")]
        if kind not in ("flow", "descent") or path.stem.endswith(".part") or not flows:
            continue
        run, finest = run_of(path), min(flows, key=float)
        away = apart(layers(run), layers(run_of(folder / f"flow-{seed}-{finest}.npz")))
        cost = int(run["gradients"]) if kind == "flow" else round(HORIZON / float(number))
        marks = [round(RECORDS * t / HORIZON) for t in AT]
        cells = [f"{away[k]:.2g}" if k < len(away) else "" for k in marks]
        named = [seed, f"{kind} {number}", f"{cost:,}", f"{float(run['seconds']):.0f}"]
        print("| " + " | ".join(named + cells) + " |")


def tell_errors(folder: Path) -> None:
    """At the end, how far flows and descents of each seed are apart, in Markdown."""
    print("| seed | gradients | CPU s | crossings | sliding | " + " | ".join(
        [f"flow at {rtol:g}" for rtol in TOLERANCES[:-1]] + [f"descent at {e:g}" for e in RATES]
    ) + " |")  # fmt: skip
    print("|" + "---|" * (4 + len(TOLERANCES) + len(RATES)))
    finest = TOLERANCES[-1]
    for path in sorted(folder.glob(f"flow-*-{finest:g}.npz")):
        seed, run = path.stem.split("-")[1], run_of(path)
        names = [f"flow-{seed}-{rtol:g}" for rtol in TOLERANCES[:-1]]
        names += [f"descent-{seed}-{rate:g}" for rate in RATES]
        away = [ends_apart(run, folder / f"{name}.npz") for name in names]
        counts = [f"{int(run[name][-1]):,}" for name in ("crossings", "sliding")]
        cells = [seed, f"{int(run['gradients']):,}", f"{float(run['seconds']):.0f}", *counts]
        print("| " + " | ".join(cells + [f"{each:.2g}" for each in away]) + " |")


def ends_apart(run: dict[str, np.ndarray], path: Path) -> float:
    """How far another run is from this one at the end; NaN if it has not come so far."""
    if not path.exists():
        return np.nan
    away = apart(layers(run), layers(run_of(path)))
    return float(away[-1]) if len(away) > RECORDS else np.nan


def sides(folder: Path, seed: int, begin: float, end: float) -> None:
    """Name the repelling kink that is on different sides for longest and weighs most, and cross it.

    The flow goes on from `begin`, once as it is and once pushed past the kink by the shortest way.
    """
    objective, _ = beginning(seed)
    kinked = objective.kinked
    finest = min(folder.glob(f"flow-{seed}-*.npz"), key=lambda each: float(each.stem[7:]))
    flow, run = layers(run_of(finest)), layers(run_of(folder / f"descent-{seed}-0.001.npz"))
    first, last = (round(RECORDS * t / HORIZON) for t in (begin, end))

    def point(weights: list[np.ndarray], k: int) -> Any:
        return start_at(kinked, tuple(each[k].astype(float) for each in weights)).point

    pairs = [(point(flow, k), point(run, k)) for k in range(first, last + 1)]
    side = np.mean([(q.z > 0).astype(float) - (p.z > 0) for p, q in pairs], axis=0)
    middle = pairs[len(pairs) // 2][0]
    places = np.flatnonzero((np.abs(side) > 0.5) & (middle.deltas < 0))
    rows, kinks = np.divmod(places, side.shape[1])
    lengths = np.sqrt(kinked.kinks.squares(middle.forward, rows, kinks))
    weight = np.abs(middle.deltas.flat[places] * side.flat[places]) * lengths
    best = int(np.argmax(weight))
    sample, kink = int(rows[best]), int(kinks[best])
    layer, unit = divmod(kink, WIDTHS[1])
    print(f"layer {layer + 1}, unit {unit}, sample {sample} (from 0): jump {weight[best]:.2g}")
    for k, (p, q) in enumerate(pairs):
        near = [each.z[sample, kink] / lengths[best] for each in (p, q)]
        print(f"t = {begin + k * HORIZON / RECORDS:.1f}: z / |grad z| of flow and descent", *near)
    towards = np.sign(side[sample, kink]) * PUSH
    gradient = gradient_of(pairs[0][0].forward, layer, unit, sample)
    for push in (0.0, towards):
        pushed = [each[first] + push * g for each, g in zip(flow, gradient, strict=True)]
        times = np.arange(0, end - begin + 1e-9, HORIZON / RECORDS)
        found = tw.flow(objective, tuple(pushed), times=times, rtol=1e-4, estimate_error=False,
                        solver=tw.solvers.Filippov())  # fmt: skip
        print(f"pushed by {push:g}, distance to descent:",
              apart(list(found.weights), [each[first:] for each in run]))  # fmt: skip


def gradient_of(forward: Any, layer: int, unit: int, sample: int) -> list[np.ndarray]:
    """The gradient of z, of a pair, of length one."""
    found = [np.zeros_like(each) for each in forward.weights]
    back = np.eye(WIDTHS[layer + 1])[unit]
    for below in range(layer, -1, -1):
        found[below] = np.outer(back, forward.inputs[below][sample])
        if below:
            back = (back @ forward.weights[below]) * forward.slopes[below - 1][sample]
    size = np.sqrt(sum(np.sum(each**2) for each in found))
    return [each / size for each in found]


def main() -> None:
    """Do what the command line says."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if sys.argv[2] == "flow":
        follow(folder, int(sys.argv[3]), float(sys.argv[4]))
    elif sys.argv[2] == "descent":
        descend(folder, int(sys.argv[3]), float(sys.argv[4]))
    elif sys.argv[2] == "all":
        with one_blas_thread():
            everything(folder, [int(each) for each in sys.argv[3:]])
    elif sys.argv[2] == "errors":
        tell_errors(folder)
    elif sys.argv[2] == "sides":
        sides(folder, int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
    else:
        tell(folder)


if __name__ == "__main__":
    main()
