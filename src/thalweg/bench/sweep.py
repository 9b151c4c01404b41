"""A whole sweep: marion2024's figure 1 in one call, against a loop over its runs."""

import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from thalweg import data
from thalweg._typing import Weights
from thalweg.bench.comparison import Comparison, best_of
from thalweg.bench.descent import plain_loss
from thalweg.experiment import from_values, objective, start
from thalweg.sweeps import sweep

_SAMPLE_STEPS, _SAMPLE_POINTS, _POWER = 1000, 20, 20
_STEPS = {0.005: 40_000, 0.02: 10_000, 0.07: 4000, 0.1: 4000, 0.2: 2000}
_SCALES = {"from": 0.25, "to": 0.6, "count": 10}


def figure_of_marion() -> Comparison:
    """1600 runs, 13.2 million steps, sharpness at both ends, from the grid to the store.

    The plain way is measured on a sample and multiplied: one jitted update per Python step that
    differentiates the mean square over the raw samples, and 20 power iterations at either end of
    each run. Ours is the whole call, with planning, measuring and writing, after one that compiled.
    """
    settings = _figure()
    with tempfile.TemporaryDirectory() as folder:
        first = _seconds(lambda: sweep(settings, Path(folder) / "first"))
        numbers = iter(range(9))
        plain = _Plain(settings)
        plain.descend(2)  # compile
        plain.measure(1)
        ours, steps, points = best_of(
            3,
            lambda: sweep(settings, Path(folder) / str(next(numbers))),
            lambda: plain.descend(_SAMPLE_STEPS),
            lambda: plain.measure(_SAMPLE_POINTS),
        )
    runs = 4 * 200 + 800
    all_steps = 200 * sum(list(_STEPS.values())[:4]) + 800 * _STEPS[0.2]
    whole = steps / _SAMPLE_STEPS * all_steps + points / _SAMPLE_POINTS * 2 * runs
    return Comparison(
        what=f"figure 1 of marion2024: {runs} runs, {all_steps / 1e6:.1f} million steps",
        unit="s",
        ours=ours,
        plain=whole,
        bar=1000,
        note=f"plain: {_SAMPLE_STEPS} steps and {_SAMPLE_POINTS} sharpnesses measured, then "
        f"multiplied; ours is all of it; {first:.3g} s with compiling",
    )


def _figure() -> Any:
    rates = [[rate, steps] for rate, steps in _STEPS.items()]
    together = "training.learning_rate, training.steps"
    grids = [
        {together: rates[:4], "start.scale": _SCALES, "start.seed": {"from": 0, "to": 19}},
        {together: rates[4:], "start.scale": _SCALES, "start.seed": {"from": 0, "to": 79}},
    ]
    return from_values({"sweep": grids})


class _Plain:
    """One network at a time, one step at a time."""

    def __init__(self, settings: Any):
        built = objective(settings)
        key = jax.random.fold_in(jax.random.key(settings.data.seed), 0)
        loss = plain_loss(data.gaussian_regression(key))
        self._start = start(settings, built)
        self._direction = jax.random.normal(jax.random.key(2), (built.network.size,))

        @jax.jit
        def update(weights: Weights, rate: float) -> Weights:
            return jax.tree.map(lambda w, g: w - rate * g, weights, jax.grad(loss)(weights))

        @jax.jit
        def power(weights: Weights, direction: jax.Array) -> jax.Array:
            point, unravel = ravel_pytree(weights)
            slope = jax.grad(lambda flat: loss(unravel(flat)))

            def again(_: jax.Array, vector: jax.Array) -> jax.Array:
                vector = vector / jnp.linalg.norm(vector)
                return jax.jvp(slope, (point,), (vector,))[1]

            return jnp.linalg.norm(jax.lax.fori_loop(0, _POWER, again, direction))

        self._update, self._power = update, power

    def descend(self, steps: int) -> None:
        weights = self._start
        for _ in range(steps):
            weights = self._update(weights, 0.02)
        jax.block_until_ready(weights)

    def measure(self, points: int) -> None:
        for _ in range(points):
            self._power(self._start, self._direction).block_until_ready()


def _seconds(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
