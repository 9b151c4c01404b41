"""What flows across kinks cost: `python benchmarks/kinks_cost.py docs/kinks-cost.png`.

Error at the end against gradients on three ReLU networks, for the Filippov solver, our explicit and
Chebyshev solvers, and SciPy's RK45, over their tolerances. The truth is a Filippov flow at 1e-7,
which the tests hold against event-driven integration. Prints the numbers, too.
"""

import sys

import jax
import matplotlib.pyplot as plt
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.integrate import RK45
from sklearn.datasets import load_digits

import thalweg as tw
from thalweg.figures.style import PALETTE, STYLE

TOLERANCES = {
    "Filippov": (1e-2, 1e-3, 1e-4, 1e-5),
    "explicit": (1e-3, 1e-5, 1e-7),
    "Chebyshev": (1e-3, 1e-5, 1e-7),
    "RK45": (1e-2, 1e-4, 1e-6),
}
SOLVERS = {
    "Filippov": tw.solvers.Filippov(),
    "explicit": tw.solvers.Explicit(),
    "Chebyshev": tw.solvers.Chebyshev(),
}
MOST = 60_000  # gradients; what takes more is left out


def problems() -> dict[str, tuple[tw.Objective, tuple, float]]:
    """Objective, start and horizon by name."""
    rng = np.random.default_rng(3)
    found = {}
    for name, widths, samples, slopes in (
        ("2-5-5-1, 10 samples", (2, 5, 5, 1), 10, (1.0, 0.0)),
        ("3-10-1, 40 samples, leaky", (3, 10, 1), 40, (1.0, 0.1)),
    ):
        x, y = rng.normal(size=(samples, widths[0])), rng.normal(size=(samples, 1))
        network = tw.HomogeneousNetwork(widths, slopes=slopes)
        start = tw.initialisation.xavier_uniform(network, key=jax.random.key(1))
        found[name] = (tw.Objective(network, tw.Regression(x, y)), start, 10.0)
    pixels, labels = load_digits(return_X_y=True)
    network = tw.HomogeneousNetwork((64, 20, 20, 10))
    start = tw.initialisation.xavier_uniform(network, key=jax.random.key(1))
    problem = tw.Classification(pixels[:100] / 16, labels[:100], classes=10)
    found["64-20-20-10, 100 digits"] = (tw.Objective(network, problem), start, 20.0)
    return found


def flat(weights: tuple) -> np.ndarray:
    """The weights at the last time, in one row."""
    return np.concatenate([np.asarray(each)[-1].ravel() for each in weights])


def by_rk45(objective: tw.Objective, start: tuple, time: float, rtol: float) -> tuple:
    """Where SciPy's RK45 comes to, and its gradients."""
    point, unravel = ravel_pytree(start)
    slope = jax.jit(lambda flat: -ravel_pytree(objective.gradient(unravel(flat)))[0])
    run = RK45(lambda _, y: np.asarray(slope(y)), 0.0, np.asarray(point), time, rtol=rtol,
               atol=rtol * 1e-2)  # fmt: skip
    while run.status == "running" and run.nfev < MOST:
        run.step()
    return (run.y, run.nfev) if run.status == "finished" else (None, run.nfev)


def measured(objective: tw.Objective, start: tuple, time: float) -> dict[str, list]:
    """Gradients and errors of each method; a method ends where it takes too many."""
    truth = flat(tw.flow(objective, start, times=[time], rtol=1e-7, estimate_error=False,
                         solver=SOLVERS["Filippov"]).weights)  # fmt: skip
    found: dict[str, list] = {}
    for name, tolerances in TOLERANCES.items():
        for rtol in tolerances:
            if name == "RK45":
                end, gradients = by_rk45(objective, start, time, rtol)
            else:
                end, gradients = followed(name, objective, start, time, rtol)
            if end is None:
                break
            found.setdefault(name, []).append((gradients, float(np.linalg.norm(end - truth))))
            print(name, rtol, gradients, f"{found[name][-1][1]:.2e}", flush=True)
    return found


def followed(name: str, objective: tw.Objective, start: tuple, time: float, rtol: float) -> tuple:
    """Where one of our solvers comes to, and its gradients; a product counts as two."""
    try:
        run = tw.flow(objective, start, times=[time], rtol=rtol, atol=rtol * 1e-2,
                      solver=SOLVERS[name], estimate_error=False, max_steps=MOST // 12)  # fmt: skip
    except tw.solvers.FlowError:
        return None, MOST
    return flat(run.weights), int(run.gradient_evaluations + 2 * run.hvp_evaluations)


def main() -> None:
    """Measure, print and draw."""
    chosen = problems()
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
        for panel, (name, problem) in zip(axes, chosen.items(), strict=True):
            print(name)
            for colour, (method, points) in zip(PALETTE, measured(*problem).items(), strict=False):
                panel.loglog(*zip(*points, strict=True), "o-", color=colour, label=method)
            panel.set_title(name)
            panel.set_xlabel("gradients")
        axes[0].set_ylabel("error at the end")
        axes[0].legend(fontsize=8)
        figure.savefig(sys.argv[1], dpi=160)


if __name__ == "__main__":
    main()
