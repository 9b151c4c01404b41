"""Where descent is at the edge of stability: two valleys, and the built-in experiment."""

import jax
import jax.numpy as jnp
import numpy as np

from thalweg.experiment import Experiment, building, starts
from thalweg.objective.base import AbstractObjective

RATE = 0.1
EDGE = 2 / RATE
TURN = np.linalg.qr(np.random.default_rng(4).standard_normal((5, 5)))[0]


class Valleys(AbstractObjective):
    """Two valleys of curvatures EDGE (1 + a) and EDGE (1 + b), which c mixes; all axes turned.

    The floor falls towards where the valleys are narrow: descent comes to the edge in both of them
    and stays there, with an oscillation in each that the other one sees.
    """

    falling: tuple[float, float] = (0.03, 0.015)

    def __call__(self, weights):
        x, y, a, b, c = jnp.asarray(TURN) @ weights["w"]
        walls = EDGE * ((1 + a) * x**2 + (1 + b) * y**2) / 2 + EDGE * x * y * c / 2
        quartic = 3 * (x**4 + y**4) + 2 * x**2 * y**2
        floor = -self.falling[0] * a - self.falling[1] * b + 0.5 * (a**2 + b**2 + c**2 + a * b / 2)
        return walls + quartic + floor


def valleys_start(x=1e-3, y=1.5e-3, a=-0.03, b=-0.02):
    return {"w": TURN.T @ np.array([x, y, a, b, 0.01])}


def built_in_experiment():
    """Its objective and its start."""
    experiment = Experiment()
    objective = building.objective(experiment)
    return objective, starts.start(experiment, objective)


def rows(weights):
    """Recorded weights as one vector per time."""
    return np.concatenate([np.asarray(a).reshape(len(a), -1) for a in jax.tree.leaves(weights)], 1)


def split(run):
    """Midpoints and oscillation of descent, at its steps but the first and the last."""
    points = rows(run.weights)
    before, at, after = points[:-2], points[1:-1], points[2:]
    return (before + 2 * at + after) / 4, (before - 2 * at + after) / 4


def over_50_steps(values):
    """Averages over fifty steps, from the first on; of an even number, as there are two sides."""
    return np.convolve(values, np.full(50, 1 / 50), "valid")
