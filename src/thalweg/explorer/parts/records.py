"""Some of a trajectory's records, where all of them would take too long."""

import jax
import numpy as np

from thalweg._typing import ManyAnyWeights
from thalweg.dynamics import AbstractTrajectory
from thalweg.experiment.trajectories import some_records


def thinned(trajectory: AbstractTrajectory, most: int) -> np.ndarray:
    """The numbers of at most so many records, evenly spread, the first and the last among them."""
    return some_records(trajectory, most)


def at_records(trajectory: AbstractTrajectory, chosen: np.ndarray) -> ManyAnyWeights:
    """The weights at these records."""
    return jax.tree.map(lambda array: np.take(array, chosen, axis=0), trajectory.weights)


def spread(chosen: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Values at some records among all of them; NaN at the others."""
    found = np.full((count, *values.shape[1:]), np.nan)
    found[chosen] = values
    return found
