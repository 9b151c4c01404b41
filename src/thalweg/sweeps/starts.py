"""The starts of a block, drawn together where they are drawn alike.

Each is the same to the last bit as what `experiment.start` draws alone, residual ones to rounding.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from thalweg import initialisation
from thalweg.experiment import start
from thalweg.experiment.settings import CommonStart, DrawnStart
from thalweg.objective import Objective
from thalweg.sweeps.plan import Task

Stacked = tuple[Float[np.ndarray, "..."], ...]
"""One array per layer, runs first."""


def starts_of(task: Task, built: Objective) -> Stacked:
    """The weights that each run of a block starts from, runs first."""
    shapes = built.network.shapes
    weights = tuple(np.empty((len(task.starts), *shape)) for shape in shapes)
    for runs, drawn in _drawn(task, built):
        for room, array in zip(weights, drawn, strict=True):
            room[runs] = array
    return weights


def _drawn(task: Task, built: Objective) -> Iterator[tuple[list[int], Stacked]]:
    alike: dict[Any, list[int]] = {}
    for run, settings in enumerate(task.starts):
        alike.setdefault(_apart(settings), []).append(run)
    for runs in alike.values():
        first = task.starts[runs[0]]
        if isinstance(first, DrawnStart | CommonStart):
            yield runs, _draw_together([task.starts[run] for run in runs], built)
        else:
            one = start(task.experiment.model_copy(update={"start": first}), built)
            yield runs, tuple(np.asarray(array) for array in one)


def _apart(settings: Any) -> Any:
    """Starts for which this is the same are drawn together."""
    if isinstance(settings, DrawnStart):
        return settings.kind, settings.zero_last_layer
    return settings.kind if isinstance(settings, CommonStart) else settings


def _draw_together(settings: list[DrawnStart] | list[CommonStart], built: Objective) -> Stacked:
    draw, count = getattr(initialisation, settings[0].kind), len(settings)
    room = 8 if count <= 8 else -(-count // 100) * 100  # few sizes, few compilations
    padded = [settings[number % count] for number in range(room)]
    seeds = np.array([each.seed for each in padded])
    scales = [np.array([each.scale for each in padded if isinstance(each, DrawnStart)])]
    if isinstance(settings[0], CommonStart):
        scales = []
    # Not compiled as a whole, which would round otherwise than a single draw does.
    weights = jax.vmap(lambda seed, *scale: draw(built.network, *scale, key=_key(seed)))(
        seeds, *scales
    )
    arrays = [np.asarray(array)[:count] for array in weights]
    if isinstance(settings[0], DrawnStart) and settings[0].zero_last_layer:
        arrays[-1] = np.zeros_like(arrays[-1])
    return tuple(arrays)


def _key(seed: jax.Array) -> jax.Array:
    """The key that `experiment.start` draws with."""
    return jax.random.fold_in(jax.random.key(seed), 1)
