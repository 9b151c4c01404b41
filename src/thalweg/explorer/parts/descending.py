"""Descent at the setting's learning rates: times and losses, and what was trained."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from thalweg.explorer.computation import Computation, padded
from thalweg.explorer.waiting import beside
from thalweg.kernels import suits


def descent(known: Computation) -> Iterator[bytes]:
    """The curves that everything else is drawn beside."""
    linear = suits(known.objective.chain, jax.tree.leaves(known.weights))
    runs = known.runs if linear else beside(known, lambda: known.runs)
    arrays = {
        "time": padded([run.times for run in runs]),
        "step": padded([run.steps for run in runs]),
        "loss": padded([run.loss for run in runs]),
    }
    diverged = [int(run.diverged_at) for run in runs]
    yield known.framed(
        "descent",
        arrays,
        rates=[float(run.learning_rate) for run in runs],
        edge=[float(run.edge) for run in runs],
        steps=[int(run.steps[-1]) for run in runs],
        diverged_at=[None if step < 0 else step for step in diverged],
        minimum=known.minimum,
        key=known.key,
        shapes=[list(np.shape(array)) for array in jax.tree.leaves(known.weights)],
        weights=known.size,
        **_described(known),
    )


def _described(known: Computation) -> dict[str, Any]:
    found = known.network_objective
    if found is None:
        return {"network": None, "depth": None}
    outputs, features = found.problem.shape
    return {
        "network": "linear" if known.linear else "homogeneous",
        "depth": len(found.network.shapes),
        "problem": type(found.problem).__name__,
        "loss_name": found.problem.loss_name,
        "outputs": int(outputs),
        "features": int(features),
        "samples": int(found.problem.inputs.shape[0]),
    }
