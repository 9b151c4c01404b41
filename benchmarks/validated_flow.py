"""How tight validated flows are and what they cost: `python benchmarks/validated_flow.py`.

Linear networks of width 5 on 50 samples, from Gaussian weights of standard deviation `scale`,
to time 16. Around depth 10, scale 0.3, condition 1 (of the input moment) and one output one thing
is varied, then some corners are tried. Prints a table in Markdown.

`python benchmarks/validated_flow.py mnist` follows the linear network 784-50-50-10 on 1000 images
from a Xavier start to time 10, `... mnist zero` from that start shrunk to norm 1/6 to time 80,
step by step, with the peak of the memory.
"""

import resource
import sys
import time

import jax
import numpy as np

import thalweg as tw
from eigenvalue_bounds import mnist_problem
from thalweg.validated import setting_of, validated_curve

BASE = {"depth": 10, "scale": 0.3, "condition": 1.0, "outputs": 1, "readout": False, "decay": 0.0}
VARIED = (
    [{"depth": each} for each in (2, 3, 5, 10, 20, 40)]
    + [{"scale": each} for each in (0.1, 0.2, 0.4, 0.5, 0.6)]
    + [{"condition": each} for each in (10.0, 100.0, 1000.0)]
    + [{"outputs": each} for each in (2, 3, 5)]
    + [{"readout": True}]
    + [{"decay": each} for each in (0.001, 0.01, 0.1)]
    + [{"depth": 2, "scale": 0.6}]
    + [{"depth": depth, "scale": 0.4} for depth in (20, 40)]
    + [{"depth": 3, "scale": 0.6, "condition": 1000.0, "outputs": 5}]
    + [{"depth": 20, "scale": 0.4, "condition": 30.0, "outputs": 3, "decay": 0.01}]
)
TIME = 16.0


def problem(
    depth: int, scale: float, condition: float, outputs: int, readout: bool, decay: float
) -> tuple[tw.Objective, tuple]:
    """The objective and the start."""
    rng = np.random.default_rng(0)
    turned = np.linalg.qr(rng.normal(size=(50, 5)))[0] * 50**0.5
    x = turned * np.geomspace(1, condition**-0.5, 5)
    y = x @ rng.normal(size=(5, outputs)) + 0.5 * rng.normal(size=(50, outputs))
    last = [5] * (depth + 1) if readout else [5] * depth + [outputs]
    network = tw.LinearNetwork(last, readout=np.ones(5) if readout else None)
    start = tw.initialisation.gaussian(network, scale, key=jax.random.key(0))
    return tw.Objective(network, tw.Regression(x, y), decay), start


def mnist(size: float | None, horizon: float) -> None:
    """One line for every tenth step, and the last."""
    objective, start = mnist_problem(size)
    begun = time.process_time()
    curve = validated_curve(setting_of(objective), start, horizon)
    spent = time.process_time() - begun
    for step in (*curve.steps[::10], curve.steps[-1]):
        print(f"time {step.end:.4g}, step {step.length:.3g}, exponent {step.exponent:.3g}, "
              f"radius {step.after:.3g}")  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts KiB
    print(
        f"{len(curve.steps)} steps, failed at {curve.failed_at}, {spent:.1f} CPU s, {peak:.2f} GB"
    )


def main() -> None:
    """Print the table, or follow MNIST."""
    if "mnist" in sys.argv:
        return mnist(*((1 / 6, 80.0) if "zero" in sys.argv else (None, 10.0)))
    print("| depth | scale | condition | outputs | readout | decay | steps | at rest from "
          "| CPU s | radius at 16 | largest |")  # fmt: skip
    print("|" + "---|" * 11)
    for changed in VARIED:
        setting = BASE | changed
        objective, start = problem(**setting)
        begun = time.process_time()
        flow = tw.flow(objective, start, times=[TIME], validate=True)
        spent = time.process_time() - begun
        last = flow.curve.steps[-1]
        rest = f"{last.begin:.1f}" if last.still else ""
        ended = "" if flow.failed_at is None else f" failed at {flow.failed_at:.2g}"
        cells = [f"{value:g}" if not isinstance(value, bool) else "yes" * value
                 for value in setting.values()]  # fmt: skip
        cells += [str(len(flow.curve.steps)), rest, f"{spent:.1f}", f"{flow.radius[0]:.1e}{ended}",
                  f"{flow.largest:.1e}"]  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)
    return None


if __name__ == "__main__":
    main()
