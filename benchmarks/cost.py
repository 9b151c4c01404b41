"""What a step of descent costs, by depth, width, samples and runs, next to what the machine can do.

    python benchmarks/cost.py docs/cost.png

Linear networks in double precision, plain descent; nothing but the last loss is recorded. Two
limits are measured in the same minutes, of one core: multiplications and additions in registers,
and a stream through memory. A step takes three of each per weight, reads every weight twice and
writes it once; the limit of memory holds where the weights of all runs that are on the way are not
in a cache. It takes about five minutes, most of it for the widths that JAX compiles.
Times are those of processors: what two cores do counts twice, and other work on the machine little.
"""

import json
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import thalweg as tw
from thalweg.dynamics import nothing
from thalweg.kernels.compiling import kernel
from thalweg.kernels.frames import aligned
from thalweg.kernels.tiles import fma, four, lanes_of, load_rows, store_rows

DEPTH, WIDTH, SAMPLES, RUNS = 10, 5, 50, 64
GRIDS = {
    "depth": [1, 2, 3, 5, 10, 20, 50, 100, 200],
    "width": [1, 2, 3, 5, 8, 16, 24, 32, 48, 64, 128, 256],
    "samples": [10, 100, 1000, 10_000, 100_000, 1_000_000],
    "runs": [1, 2, 4, 8, 16, 64, 256, 1000, 10_000, 100_000],
}
SECONDS, ROUNDS, LEAST = 0.1, 3, 32  # steps, so that a block is fetched for many of them


@kernel
def _in_registers(frame, lanes, count):
    x = four(lanes_of(frame, 0, lanes))
    a, b = load_rows(x, 0, 1), load_rows(x, 4, 1)
    s, t, u = load_rows(x, 8, 1), load_rows(x, 12, 1), load_rows(x, 16, 1)
    for _ in range(count):
        s, t, u = fma(s, a, b), fma(t, a, b), fma(u, a, b)
    store_rows(x, 8, 1, fma(s, t, u))


def least(work) -> float:
    """Seconds of a processor, the least of many."""
    return min(processor_seconds(work) for _ in range(100))


def processor_seconds(work) -> float:
    """Of all threads together."""
    started = time.process_time()
    work()
    return time.process_time() - started


def peak() -> float:
    """Additions and multiplications per second, from registers."""
    frame, count = aligned(1, 20, 8), 300_000
    frame[:] = 0.5
    _in_registers(frame, (0,) * 8, 1)
    return count * 3 * 4 * 8 * 2 / least(lambda: _in_registers(frame, (0,) * 8, count))


def stream() -> float:
    """Bytes per second, read and written, of arrays that are far larger than the caches."""
    source, goal = np.ones(16 * 2**20), np.zeros(16 * 2**20)
    # What is written is read before, as caches do it.
    return 3 * source.nbytes / least(lambda: np.copyto(goal, source))


def case(depth: int, width: int, samples: int, runs: int):
    """An objective with one output, and starts near which nothing diverges."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, width))
    network = tw.LinearNetwork([width] * depth + [1])
    objective = tw.Objective(network, tw.Regression(x, rng.normal(size=samples)))
    scale = 0.5 / width**0.5
    return objective, tuple(scale * rng.normal(size=(runs, *s)) for s in network.shapes)


def seconds_per_step(depth: int, width: int, samples: int, runs: int) -> float:
    """Of one processor, for one network."""
    objective, starts = case(depth, width, samples, runs)

    def go(steps: int) -> float:
        how = {"learning_rate": 1e-4, "steps": steps, "record_every": steps, "observe": nothing}
        return processor_seconds(lambda: tw.descend(objective, starts, **how))

    go(1)  # compile
    start, steps = go(1), LEAST
    while (taken := go(steps) - start) < SECONDS and steps < 2**20:
        steps *= 4
    rounds = ROUNDS if taken < 4 * SECONDS else 1
    # What does not depend on the number of steps is taken off.
    long, short = (min(go(count) for _ in range(rounds)) for count in (steps, 1))
    return (long - short) / ((steps - 1) * runs)


def measure() -> dict:
    """All points of the figure, and the limits."""
    found: dict = {"peak": peak(), "stream": stream()}
    usual = {"depth": DEPTH, "width": WIDTH, "samples": SAMPLES, "runs": RUNS}
    for name, grid in GRIDS.items():
        found[name] = [seconds_per_step(**(usual | {name: value})) for value in grid]
        print(name, [f"{1e9 * value:.3g} ns" for value in found[name]], flush=True)
    return found


def draw(found: dict, path: Path) -> None:
    """Four panels; limits are lines."""
    figure, axes = plt.subplots(1, 4, figsize=(15, 4), sharey=True, layout="constrained")
    for axis, (name, grid) in zip(axes, GRIDS.items(), strict=True):
        values = np.array(grid, float)
        depth = values if name == "depth" else DEPTH
        width = values if name == "width" else WIDTH
        weights = (depth - 1) * width**2 + width + 0 * values
        axis.plot(values, 1e9 * np.array(found[name]), "o-", label="measured")
        axis.plot(values, 6e9 * weights / found["peak"], "--", label="arithmetic in registers")
        axis.plot(values, 24e9 * weights / found["stream"], ":", label="weights from memory")
        axis.set(xscale="log", yscale="log", xlabel=name)
    axes[1].axvline(64, color="0.8", zorder=0)
    axes[1].annotate(
        "JAX beyond", (64, 0.03), (3, 0), ("data", "axes fraction"), "offset points", color="0.4"
    )
    axes[0].set_ylabel("processor time per step\nof one network (ns)")
    axes[0].legend(frameon=False)
    figure.suptitle(
        f"One step of plain descent: depth {DEPTH}, width {WIDTH}, one output, {SAMPLES} samples, "
        f"{RUNS} runs, but for what varies"
    )
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "cost.png")
    numbers = target.with_suffix(".json")
    if "--draw" not in sys.argv:
        numbers.write_text(json.dumps(measure(), indent=1))
    draw(json.loads(numbers.read_text()), target)
