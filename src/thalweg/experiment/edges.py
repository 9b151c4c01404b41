"""What the central flow says of a run at the edge of stability, at the records of that run."""

import jax
import numpy as np
from jaxtyping import Float

from thalweg.dynamics import CentralFlow, Descent, FlowError, central_flow
from thalweg.phases import Phase
from thalweg.quantities.of_runs import AT_THE_EDGE
from thalweg.storage.keeper import Arrays

_LARGE = 4000  # weights; above, the flow takes minutes
_STEPS = 2000  # of the flow, after which nothing is said of a run
_AT_THE_EDGE = (Phase.EDGE, Phase.OSCILLATING)


def is_at_the_edge(run: Descent, phase: int) -> bool:
    """Whether a central flow has something to say of a run, and can be had in seconds."""
    size = sum(np.size(array) for array in jax.tree.leaves(run.final))
    plain = run.optimiser.plain and run.objective.smooth and run.has_weights
    return plain and size <= _LARGE and phase in _AT_THE_EDGE


def edge_arrays(run: Descent) -> Arrays:
    """The variables of `AT_THE_EDGE`; NaN before the central flow predicts, and where it fails."""
    start = jax.tree.map(lambda array: array[0], run.weights)
    unknown = {each.name: np.full(run.times.shape, np.nan) for each in AT_THE_EDGE}
    try:
        central = central_flow(
            run.objective, start, learning_rate=float(run.learning_rate), times=run.times,
            estimate_error=False, max_steps=_STEPS,
        )  # fmt: skip
    except FlowError:
        return unknown
    told = run.times > central.met_at  # never, where that is NaN
    found = _of_the_flow(run, central)
    return {name: np.where(told, found[name], np.nan) for name in unknown}


def _of_the_flow(run: Descent, central: CentralFlow) -> Arrays:
    centre, swing = _rows(central.weights), _rows(central.oscillation)
    away = _rows(run.weights) - centre
    signs = np.where(run.steps % 2 == 0, 1.0, -1.0)[:, None]
    return {
        "central_loss": central.mean_loss,
        "central_spread": np.sqrt(central.variance),
        "central_swing": np.sum(away * central.directions[:, 0], axis=1),
        "central_distance": np.linalg.norm(away - signs * swing, axis=1),
    }


def _rows(weights: object) -> Float[np.ndarray, "records size"]:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(weights)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
