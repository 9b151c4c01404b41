"""How tight validated flows are and what they cost: `python benchmarks/validated_flow.py`.

Linear networks of width 5 on 50 samples, from Gaussian weights of standard deviation `scale`,
to time 16. Around depth 10, scale 0.3, condition 1 (of the input moment) and one output one thing
is varied, then some corners are tried. Prints a table in Markdown.
"""

import time

import jax
import numpy as np

import thalweg as tw

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


def main() -> None:
    """Print the table."""
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


if __name__ == "__main__":
    main()
