"""The pictures of docs/kinks.md: `python benchmarks/kinks_pictures.py FOLDER docs`.

FOLDER has the runs of `benchmarks/kinks.py` for seed 0: a flow at 2.5e-5, and descent at 1e-3.
Draws kinks-sliding.png, what descent does where the flow slides, on a network of eight units; and
kinks-met.png, what the flow of the ReLU network of figure 1 of elkabetz2021 meets.
"""

import sys
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import thalweg as tw
from thalweg.figures.style import PALETTE, STYLE

_CLOSE = 3.0
RATES = (0.1, 0.05, 0.025)


def small() -> tuple[tw.Objective, tuple]:
    """A network of eight units on twenty samples, whose flow slides from about t = 3."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=(20, 1))
    network = tw.HomogeneousNetwork([3, 8, 1])
    start = tw.initialisation.xavier_uniform(network, key=jax.random.key(1))
    return tw.Objective(network, tw.Regression(x, y)), start


def draw_sliding(path: Path) -> None:
    """One z that the flow holds at zero, with its mask, and the same z along descent."""
    objective, start = small()
    x, time = np.asarray(objective.problem.inputs), 12.0
    times = np.linspace(0, time, 601)
    flow = tw.flow(objective, start, times=times, rtol=1e-5, solver=tw.solvers.Filippov(which=True))
    slides = flow.records["slides"]
    sample, unit = np.unravel_index(np.argmax(slides.sum(axis=0)), slides.shape[1:])

    def z(weights: np.ndarray) -> np.ndarray:
        return weights[:, unit] @ x[sample]

    first = times[np.argmax(slides[:, sample, unit])]
    print("slides from", first, "in", np.mean(slides[:, sample, unit]), "of the records")
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
        for colour, rate in zip(PALETTE, RATES, strict=False):
            run = tw.descend(objective, start, learning_rate=rate, steps=round(time / rate),
                             record_every=1)  # fmt: skip
            label = rf"descent, $\eta$ = {rate:g}"
            axes[0].plot(run.times, z(run.weights[0]), color=colour, linewidth=0.9, label=label)
            late = (run.times > time - _CLOSE) & (run.times < time)
            axes[1].plot(run.times[late], z(run.weights[0])[late], ".-", color=colour,
                         linewidth=0.7, markersize=3, label=label)  # fmt: skip
        axes[0].plot(times, z(flow.weights[0]), color="black", label="flow")
        axes[0].axvline(first, color="0.6", linewidth=0.8, linestyle=":")
        axes[0].set_title("A pre-activation along which the flow slides")
        axes[0].set_ylabel("$z$ of one unit on one sample")
        close = times > time - _CLOSE
        axes[1].plot(times[close], z(flow.weights[0])[close], color="black", label="flow")
        axes[1].set_title("The same, at the end")
        for panel in axes:
            panel.set_xlabel("time $t$")
        axes[0].legend(fontsize=8)
        figure.savefig(path, dpi=160)
        plt.close(figure)


def draw_met(folder: Path, path: Path) -> None:
    """Crossings and sliding over time, and on which units, on MNIST."""
    from kinks import beginning

    with np.load(folder / "flow-0-2.5e-05.npz") as kept:
        run = {name: kept[name] for name in kept}
    times = np.linspace(0, 10, len(run["crossings"]))
    kinked = beginning(0)[0].kinked
    signs, z = [], None
    for k in range(len(times)):
        z = kinked.start(tuple(run[f"layer{j}"][k].astype(float) for j in range(3))).z
        signs.append(z > 0)
    # At a record, the z that slide are zero up to the error of a step.
    last = np.sort(np.argsort(np.abs(z), axis=None)[: int(run["sliding"][-1])])
    sliding = np.bincount(last % z.shape[1], minlength=z.shape[1])
    changed = np.mean(np.any(np.diff(np.array(signs), axis=0), axis=0), axis=0)
    print("|z| of those that slide, at most, and of the next:",
          np.abs(z).flat[last].max(), np.sort(np.abs(z), axis=None)[len(last)])  # fmt: skip
    print("pairs that changed sign:", np.any(np.diff(np.array(signs), axis=0), axis=0).sum())
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 2, figsize=(10, 6), layout="constrained")
        axes[0, 0].plot(times, run["crossings"], color="black")
        axes[0, 0].set_title("Kinks that the flow has crossed, of 100,000 pairs")
        axes[0, 1].plot(times, run["sliding"], color="black")
        axes[0, 1].set_title("Kinks along which the flow slides")
        for panel in axes[0]:
            panel.set_xlabel("time $t$")
            panel.set_ylim(bottom=0)
        for layer, colour in enumerate(PALETTE[:2]):
            units = slice(50 * layer, 50 * layer + 50)
            place = np.arange(50) + 52 * layer
            axes[1, 0].bar(place, 100 * np.sort(changed[units])[::-1], 1.0, color=colour,
                           label=f"layer {layer + 1}")  # fmt: skip
            axes[1, 1].bar(place, np.sort(sliding[units])[::-1], 1.0, color=colour)
        axes[1, 0].set_title("Samples on which a unit changes its sign (per cent)")
        axes[1, 1].set_title("Samples on which a unit is held at zero, at the end")
        for panel in axes[1]:
            panel.set_xlabel("units, sorted within their layer")
            panel.set_xticks([])
        axes[1, 0].legend(fontsize=8)
        figure.savefig(path, dpi=160)
        plt.close(figure)


def main() -> None:
    """Draw both."""
    folder, docs = Path(sys.argv[1]), Path(sys.argv[2])
    draw_sliding(docs / "kinks-sliding.png")
    draw_met(folder, docs / "kinks-met.png")


if __name__ == "__main__":
    main()
