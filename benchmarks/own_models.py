"""A model of one's own: what a flow of it costs, and what warm starts save a probe.

    python benchmarks/own_models.py flow       the flow of a tanh network, against Runge and Kutta
    python benchmarks/own_models.py probe      products per probed step, warm against cold

The network is that of papers on the edge of stability, fully connected with tanh, on the square
loss, here on handwritten digits: 64-140-80-10, 21,190 weights, 500 images. Its flow is compared
with the classical method of order 4 with the step 1 / sharpness, which those papers' programs use;
the truth is a run of order 8 with a tolerance far below. A product of the Hessian with a vector
counts as two gradients, and the sharpness that the classical method needs is given to it.
"""

import sys
import time
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import thalweg as tw

WIDTHS = (64, 140, 80, 10)
IMAGES = 500
HORIZON, TICKS = 400.0, 40
TOLERANCES = (1e-3, 3e-4, 1e-4, 1e-5, 3e-6)


def loss(params, batch):
    """Half the mean over samples of the squared distance to the label's unit vector."""
    images, targets = batch
    for matrix, bias in params[:-1]:
        images = jnp.tanh(images @ matrix + bias)
    matrix, bias = params[-1]
    return jnp.mean(jnp.sum((images @ matrix + bias - targets) ** 2, axis=1)) / 2


def setting():
    """The objective and its start."""
    digits = tw.data.digits()
    images = np.asarray(digits.x)[:IMAGES]
    targets = np.eye(10)[np.asarray(digits.labels)[:IMAGES]]
    random = np.random.default_rng(0)
    params = [
        (random.uniform(-1, 1, (rows, columns)) / np.sqrt(rows), np.zeros(columns))
        for rows, columns in pairwise(WIDTHS)
    ]
    return tw.FunctionObjective(loss, (images, targets)), params


# --- the flow ------------------------------------------------------------------------------------


def runge_kutta(objective, start, times):
    """Order 4 with the step 1 / sharpness, measured at each of the times; points and gradients."""
    point, unravel = ravel_pytree(start)

    @jax.jit
    def advance(point, step, count):
        def slope(at):
            return -ravel_pytree(objective.gradient(unravel(at)))[0]

        def one(_, at):
            a = slope(at)
            b = slope(at + step / 2 * a)
            c = slope(at + step / 2 * b)
            d = slope(at + step * c)
            return at + step / 6 * (a + 2 * b + 2 * c + d)

        return jax.lax.fori_loop(0, count, one, point)

    points, gradients, known = [point], 0, None
    for before, after in pairwise(times):
        found = tw.extreme_eigenvalues(objective, unravel(point), tolerance=1e-3, start=known)
        known = found
        count = int(np.ceil((after - before) * found.largest[0].value))
        point = advance(point, (after - before) / count, count)
        gradients += 4 * count
        points.append(point)
    return np.stack(points), gradients


def rows(flow):
    """The points of a flow, one per time."""
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(flow.weights)]
    return np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)


def cost(flow):
    """In gradients, of the flow alone."""
    return int(flow.gradient_evaluations) + 2 * int(flow.hvp_evaluations)


def measure_flow():
    """Errors and gradients of both, printed as a table."""
    objective, start = setting()
    times = np.linspace(0, HORIZON, TICKS + 1)
    first = tw.sharpness(objective, start, tolerance=1e-3).value
    began = time.process_time()
    truth = tw.flow(
        objective, start, times=times, rtol=1e-9, atol=1e-11, solver=tw.solvers.Explicit(),
        estimate_error=False, max_steps=1_000_000,
    )  # fmt: skip
    exact = rows(truth)
    last = jax.tree.map(lambda array: array[-1], truth.weights)
    final = tw.sharpness(objective, last, tolerance=1e-3).value
    print(
        f"sharpness {first:.3g} at the start, {final:.3g} at time {HORIZON:g}; loss "
        f"{truth.loss[0]:.3g} to {truth.loss[-1]:.3g}; the truth took {cost(truth)} gradients, "
        f"{time.process_time() - began:.0f} s of processor",
        flush=True,
    )
    print("| method | gradients | with the estimate | true error | estimate | s |")
    print("|---|---|---|---|---|---|")
    began = time.process_time()
    points, gradients = runge_kutta(objective, start, times)
    error = np.linalg.norm(points - exact, axis=1).max()
    seconds = time.process_time() - began
    print(f"| RK4, 1 / sharpness | {gradients} | - | {error:.1e} | - | {seconds:.0f} |", flush=True)
    for rtol in TOLERANCES:
        began = time.process_time()
        found = tw.flow(objective, start, times=times, rtol=rtol, atol=rtol / 100)
        error = np.linalg.norm(rows(found) - exact, axis=1)
        seconds = time.process_time() - began
        worst = int(np.argmax(error))
        both = cost(found) + int(found.companion_evaluations)
        print(
            f"| {found.solver} {rtol:g} | {cost(found)} | {both} | {error[worst]:.1e} | "
            f"{found.error[worst]:.1e} | {seconds:.0f} |",
            flush=True,
        )


# --- the probe -----------------------------------------------------------------------------------


LOOPS = (
    ("gradient descent", optax.sgd(0.1), None, 50),
    ("SGD, batches of 64", optax.sgd(0.1), 64, 50),
    ("Adam, batches of 64", optax.adam(1e-3), 64, 50),
    ("gradient descent", optax.sgd(0.1), None, 5),
)


def measure_probe(measured=20):
    """Products with warm and with cold starts, over the same loops of the example's network."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    example = import_module("tanh_mlp_jax")
    images, targets = example.data()
    objective, start = tw.FunctionObjective(example.loss, (images, targets)), example.start()
    print("| loop | probed every | warm | cold | share | overlap, low end | high end |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name, optimiser, size, every in LOOPS:
        random, cold, ends = np.random.default_rng(0), 0, []

        @jax.jit
        def update(params, state, batch, optimiser=optimiser):
            changes, state = optimiser.update(jax.grad(example.loss)(params, batch), state, params)
            return optax.apply_updates(params, changes), state

        params, state = start, optimiser.init(start)
        probe = tw.Probe(objective, every=every)
        for step in range(measured * every + 1):
            if probe(params):
                found = tw.extreme_eigenvalues(objective, params, tolerance=1e-3)
                cold += found.largest[0].matvecs if step else 0
                ends.append([found.smallest[0].vector, found.largest[0].vector])
            chosen = slice(None) if size is None else random.integers(0, len(images), size)
            params, state = update(params, state, (images[chosen], targets[chosen]))
        warm = sum(each.matvecs for each in probe.records[1:])
        vectors = np.array([[ravel_pytree(each)[0] for each in pair] for pair in ends])
        overlap = np.median(np.abs(np.sum(vectors[1:] * vectors[:-1], axis=2)), axis=0)
        print(
            f"| {name} | {every} | {warm} | {cold} | {warm / cold:.2f} | {overlap[0]:.2f} | "
            f"{overlap[1]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    {"flow": measure_flow, "probe": measure_probe}[sys.argv[1]]()
