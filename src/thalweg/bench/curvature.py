"""Both ends of the spectrum: for many small networks along runs, and for one large network."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from thalweg import data, initialisation
from thalweg._typing import Weights
from thalweg.bench.comparison import Comparison, best_of
from thalweg.bench.descent import plain_loss
from thalweg.bench.rivals import Ends, available
from thalweg.curvature import SpectrumObserver, extreme_eigenvalues, sharpness, spectrum_along
from thalweg.dynamics import descend
from thalweg.network import AbstractNetwork, HomogeneousNetwork, LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Classification, Regression

_ACCURACY = 1e-4
_RUNS, _STEPS, _EVERY, _POWER = 200, 4000, 5, 20


def sharpness_along_runs() -> Comparison:
    """marion2024's set-up: sharpness every 5 steps along 200 runs of 4000 steps.

    The plain way takes 20 power iterations per point, one point per call of a compiled function
    that differentiates the mean square over the raw samples; it finds the largest modulus only.
    """
    drawn = data.gaussian_regression(jax.random.key(0))
    network = LinearNetwork([5] * 10 + [1])
    objective = Objective(network, Regression(drawn.x, drawn.y, scale=1.0))
    keys = jax.random.split(jax.random.key(1), _RUNS)
    starts = jax.vmap(lambda key: initialisation.gaussian(network, 0.3, key=key))(keys)
    run = descend(objective, starts, learning_rate=0.02, steps=_STEPS, record_every=_EVERY)

    loss = plain_loss(drawn)

    @eqx.filter_jit
    def power(weights: Weights, direction: jax.Array) -> jax.Array:
        point, unravel = ravel_pytree(weights)
        slope = jax.grad(lambda flat: loss(unravel(flat)))

        def again(_: jax.Array, vector: jax.Array) -> jax.Array:
            vector = vector / jnp.linalg.norm(vector)
            return jax.jvp(slope, (point,), (vector,))[1]

        return jnp.linalg.norm(jax.lax.fori_loop(0, _POWER, again, direction))

    direction = jax.random.normal(jax.random.key(2), (network.size,))
    sample = [tuple(jnp.asarray(array[i, 10 * i]) for array in run.weights) for i in range(50)]

    def plain() -> None:
        for point in sample:
            power(point, direction).block_until_ready()

    def ours() -> None:
        spectrum_along(objective, run.weights)

    def in_flight(steps: int = _STEPS) -> None:
        how = {"learning_rate": 0.02, "steps": steps, "record_every": _EVERY}
        descend(objective, starts, observe=SpectrumObserver(objective), **how)

    plain()  # compile
    spectrum_along(objective, tuple(array[:1] for array in run.weights))
    in_flight(2 * _EVERY)
    best_ours, best_plain, best_in_flight = best_of(3, ours, plain, in_flight)
    return Comparison(
        what=f"both ends of the spectrum every {_EVERY} steps of {_RUNS} runs: one point",
        unit="us",
        ours=1e6 * best_in_flight / run.loss.size,
        plain=1e6 * best_plain / len(sample),
        bar=150,
        note=f"plain: {_POWER} power iterations, one point at a time, largest modulus only; ours "
        "includes the descent itself, from recorded weights it takes "
        f"{1e6 * best_ours / run.loss.size:.3g} us",
    )


def ends_on_mnist() -> Comparison:
    """784-50-50-10 with ReLU on 1000 images: both ends to 1e-4, next to other tools."""
    return _ends_on_mnist(HomogeneousNetwork([784, 50, 50, 10]), "ReLU")


def linear_ends_on_mnist() -> Comparison:
    """The same for the linear network."""
    return _ends_on_mnist(LinearNetwork([784, 50, 50, 10]), "linear")


def _ends_on_mnist(network: AbstractNetwork, name: str) -> Comparison:
    """Ours next to every tool that is installed; the fastest that is as accurate is the bar."""
    images = data.mnist(images=range(0, 50_000, 50))
    objective = Objective(network, Classification(images.x, images.labels, classes=10))
    start = initialisation.xavier_uniform(network, key=jax.random.key(0))
    run = descend(objective, start, learning_rate=0.01, steps=600, record_every=300)
    points = [
        tuple(jnp.asarray(array[record]) for array in run.weights)
        for record in range(run.steps.size)
    ]
    found = {"ours": [_ours(objective, point) for point in points]}
    found["ours, largest alone"] = [_largest(objective, point) for point in points]
    for rival, ends in available().items():
        found[rival] = [ends(objective, point, _ACCURACY) for point in points]
    seconds = {tool: sum(ends.seconds for ends in all_ends) for tool, all_ends in found.items()}
    rivals = [tool for tool in found if tool != "ours" and _gap(found[tool], found["ours"]) < 1e-3]
    fastest = min(rivals, key=seconds.__getitem__)
    return Comparison(
        what=f"both ends, {name} 784-50-50-10, 1000 MNIST images, start, middle and end",
        unit="s",
        ours=seconds["ours"],
        plain=seconds[fastest],
        bar=1,
        note="; ".join(_described(tool, found[tool], found["ours"]) for tool in found),
    )


def _ours(objective: Objective, weights: Weights) -> Ends:
    began = time.perf_counter()
    both = extreme_eigenvalues(objective, weights, tolerance=_ACCURACY, method="davidson")
    took = time.perf_counter() - began
    low, high = both.smallest[0], both.largest[0]
    return Ends(low.value, high.value, high.matvecs, took)


def _largest(objective: Objective, weights: Weights) -> Ends:
    began = time.perf_counter()
    top = sharpness(objective, weights, tolerance=_ACCURACY, method="davidson")
    return Ends(np.nan, top.value, top.matvecs, time.perf_counter() - began)


def _gap(these: list[Ends], ours: list[Ends]) -> float:
    """How far they are from ours, in parts of the spectral norm, where they found both ends."""
    gaps = [
        max(abs(a.smallest - b.smallest), abs(a.largest - b.largest)) / abs(b.largest)
        for a, b in zip(these, ours, strict=True)
    ]
    return max(gaps) if np.all(np.isfinite(gaps)) else np.inf


def _described(tool: str, these: list[Ends], ours: list[Ends]) -> str:
    seconds, products = sum(ends.seconds for ends in these), sum(ends.products for ends in these)
    if tool == "ours":
        return f"ours: {products} products"
    if np.isnan(these[0].smallest):
        gap = max(abs(a.largest / b.largest - 1) for a, b in zip(these, ours, strict=True))
        return f"{tool}: {seconds:.2g} s for one end, off by {gap:.0e}"
    return f"{tool}: {seconds:.2g} s, {products} products, off by {_gap(these, ours):.0e}"
