"""What a theorem about training speaks about: an objective, a start, and what is known besides."""

from dataclasses import dataclass, replace

import numpy as np

from thalweg._checks import require_positive
from thalweg._typing import Weights
from thalweg.dynamics import Descent, Flow
from thalweg.objective import Objective


@dataclass(frozen=True)
class RandomStart:
    """The law of the start, "gaussian", "balanced" or "residual", and its scale."""

    kind: str
    scale: float


@dataclass(frozen=True, eq=False)
class Case:
    """The user's case; theorems ask only for what they need, and say what is missing.

    Args:
        objective: the loss.
        weights: where descent and flow start.
        learning_rate: of the descent.
        target_loss: a value of the objective that is to be reached.
        time: the horizon over which descent is to stay near the flow.
        radius: how near.
        random_start: the law of the start, for statements about probabilities.
        run: a descent from the start, to compare promises with.
        flow: the flow from the start, likewise.
    """

    objective: Objective
    weights: Weights
    learning_rate: float | None = None
    target_loss: float | None = None
    time: float | None = None
    radius: float | None = None
    random_start: RandomStart | None = None
    run: Descent | None = None
    flow: Flow | None = None

    def __post_init__(self):
        self.objective.network.check(self.weights)
        for name in ("learning_rate", "time", "radius"):
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name))

    @classmethod
    def of(cls, motion: Descent | Flow, target_loss: float | None = None) -> "Case":
        """The case of a motion that has recorded its weights, one network at a time."""
        start = tuple(np.asarray(array)[0] for array in motion.weights)
        case = cls(motion.objective, start, target_loss=target_loss)
        if isinstance(motion, Flow):
            return replace(case, flow=motion)
        return replace(case, run=motion, learning_rate=float(motion.learning_rate))
