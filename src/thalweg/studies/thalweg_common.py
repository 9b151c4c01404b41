"""What our own studies share: balanced layers on white data, and random starts on random data."""

from collections.abc import Callable
from functools import partial
from math import ceil, inf, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thalweg import initialisation
from thalweg._typing import Weights
from thalweg.dynamics import Flow, descend, distance
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Regression, TargetMatrix
from thalweg.studies.marion2024_common import FEATURES, authors_data

KINDS = {
    "residual": (0.25, r"residual starts, $W_k = I + 0.25\,N_k / \sqrt{5 L}$"),
    "gaussian": (FEATURES**-0.5, r"Gaussian starts, deviation $1/\sqrt{5}$"),
}
"""Random starts, each with its scale and its title."""

_SMALLEST = 1e-12  # of a guess: below it there is no rate to be found


def aligned_example(
    depth: int, width: int = 4, norm: float = 0.1, cosine: float = 0.3, weight_decay: Any = 0.0
) -> tuple[Objective, Weights]:
    """The objective |w - e_1|^2 / 2, and the start of elkabetz2021's Procedure 13."""
    target = np.eye(width)[:1]
    network = LinearNetwork([width] * depth + [1])
    objective = Objective(network, TargetMatrix(target), weight_decay)
    return objective, initialisation.aligned(network, norm, cosine, target)


def random_case(kind: str, depth: int, starts: int) -> tuple[Objective, Weights]:
    """A linear network on the data of marion2024's later code, and starts of one of `KINDS`."""
    data = authors_data(later=True)
    scale, _ = KINDS[kind]
    if kind == "residual":
        direction = jax.random.normal(jax.random.key(100 + depth), (FEATURES,))
        readout = direction / jnp.linalg.norm(direction)
        network = LinearNetwork([FEATURES] * (depth + 1), readout)
        draw = partial(initialisation.residual, network, scale)
    else:
        network = LinearNetwork([FEATURES] * depth + [1])
        draw = partial(initialisation.gaussian, network, scale)
    keys = jax.random.split(jax.random.key(0), starts)
    return Objective(network, Regression(data.x, data.y, 1.0)), jax.vmap(lambda key: draw(key=key))(
        keys
    )


def farthest(objective: Objective, weights: Weights, exact: Flow, rate: float) -> float:
    """The largest distance from descent at this rate to a flow, over the flow's time."""
    steps = ceil(float(exact.times[-1]) / rate - 1e-9)
    run = descend(objective, weights, learning_rate=rate, steps=max(1, steps - 1))
    if run.diverged:
        return inf
    return float(np.max(distance(run, exact)))


def largest_rate(
    fits: Callable[[float], bool], guess: float, precision: float = 0.01, factor: float = 2.0
) -> float:
    """The largest rate found that fits: bracketed from a guess, then bisected in ratio."""
    good = guess
    while not fits(good):
        good /= factor
        if good < _SMALLEST * guess:
            return np.nan
    bad = factor * good
    while fits(bad):
        good, bad = bad, factor * bad
    while bad > (1 + precision) * good:
        middle = sqrt(good * bad)
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good
