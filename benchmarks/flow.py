"""The gradient flow: how many gradients each solver takes for which error.

Two settings. The stiff regression of `thalweg bench flow`, and networks 784-50-50-10 on 1,000
images of MNIST to time 10, the flow that 10,000 steps of descent with learning rate 0.001
approximate; errors there are the flow's own estimates.

Run as `python benchmarks/flow.py`; MNIST is left out where its files are not found.
"""

import time

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import thalweg as tw
from thalweg import data, initialisation
from thalweg.bench.flow import CONDITION, HORIZON, TIMES, Scipy, stiff_case
from thalweg.dynamics import flow
from thalweg.solvers import Auto, Chebyshev


def stiff_table() -> Table:
    objective, weights = stiff_case()
    scipy = Scipy(objective, weights)
    truth, _ = scipy.follow("Radau", 1e-11)
    table = Table(
        "solver", "rtol", "gradients", "products", "Hessians", "true error", "own estimate",
        "fewer than DOP853", "seconds", title=f"condition {CONDITION:g}, time {HORIZON:g}",
    )  # fmt: skip
    began = time.perf_counter()
    points, bar = scipy.follow("DOP853", 1e-9)
    error = np.linalg.norm(points - truth, axis=1).max()
    seconds = time.perf_counter() - began
    table.add_row(
        "scipy DOP853", "1e-09", str(bar), "", "", f"{error:.1e}", "", "", f"{seconds:.1f}"
    )
    cases = [
        (Auto(), 1e-8),
        (Auto(), 1e-10),
        (Auto(), 1e-12),
        (Chebyshev(), 1e-4),
        (Chebyshev(), 1e-6),
    ]
    for solver, rtol in cases:
        settings = {"times": TIMES, "rtol": rtol, "atol": rtol / 100, "solver": solver}
        flow(objective, weights, **settings)  # compiled
        began = time.perf_counter()
        run = flow(objective, weights, **settings)
        seconds = time.perf_counter() - began
        found = np.concatenate([array.reshape(TIMES.size, -1) for array in run.weights], axis=1)
        error = np.linalg.norm(found - truth, axis=1).max()
        table.add_row(
            f"{solver.name} ({run.solver})", f"{rtol:.0e}", str(run.gradient_evaluations),
            str(run.hvp_evaluations), str(run.hessian_evaluations), f"{error:.1e}",
            f"{run.error.max():.1e}", f"{bar / run.gradient_evaluations:.0f} x", f"{seconds:.1f}",
        )  # fmt: skip
    return table


def mnist_table() -> Table:
    digits = data.mnist(images=range(0, 50_000, 50))
    problem = tw.Classification(digits.x, digits.labels)
    table = Table(
        "network", "solver", "rtol", "gradients", "products", "error at the end", "largest error",
        "seconds", title="MNIST, 1,000 images, 784-50-50-10, time 10",
    )  # fmt: skip
    widths = [784, 50, 50, 10]
    networks = {"linear": tw.LinearNetwork(widths), "ReLU": tw.HomogeneousNetwork(widths)}
    cases = [
        ("linear", Chebyshev(), 1e-5), ("linear", Chebyshev(), 1e-6), ("linear", Auto(), 1e-5),
        ("linear", Auto(), 1e-8), ("ReLU", Auto(), 1e-3),
    ]  # fmt: skip
    for name, solver, rtol in cases:
        objective = tw.Objective(networks[name], problem)
        weights = initialisation.xavier_uniform(networks[name], key=jax.random.key(1))
        began = time.perf_counter()
        run = flow(
            objective, weights, times=np.linspace(0.0, 10.0, 101), rtol=rtol, atol=rtol / 100,
            solver=solver,
        )  # fmt: skip
        table.add_row(
            name, f"{solver.name} ({run.solver})", f"{rtol:.0e}", str(run.gradient_evaluations),
            str(run.hvp_evaluations), f"{run.error[-1]:.1e}", f"{run.error.max():.1e}",
            f"{time.perf_counter() - began:.1f}",
        )  # fmt: skip
    return table


def main() -> None:
    console = Console(width=140)
    console.print(stiff_table())
    try:
        console.print(mnist_table())
    except (OSError, tw.InputError) as error:
        console.print(f"MNIST left out: {error}")


if __name__ == "__main__":
    main()
