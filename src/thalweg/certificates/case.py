"""What a theorem about training speaks about: an objective, a start, and what is known besides."""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np

from thalweg._arguments import checked_class
from thalweg._checks import InputError, finite_weights, require_ordinary, require_positive
from thalweg._typing import AnyWeights, Weights
from thalweg.dynamics import AbstractFlow, Descent
from thalweg.dynamics.descent import plain_objective
from thalweg.dynamics.trajectory import network_objective
from thalweg.objective import AbstractObjective, Objective

KINDS = ("gaussian", "balanced", "residual")


@checked_class
@dataclass(frozen=True)
class RandomStart:
    """The initialisation's distribution: "gaussian", "balanced" or "residual", and its scale."""

    kind: str
    scale: float

    def __post_init__(self):
        if self.kind not in KINDS:
            raise InputError(f"`kind` must be one of {', '.join(KINDS)}, got {self.kind!r}.")
        require_positive("scale", self.scale)


@checked_class
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
        random_start: the initialisation's distribution, for statements about probabilities.
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
    flow: AbstractFlow | None = None

    def __post_init__(self):
        self._check_weights()
        for name in ("run", "flow"):
            if getattr(self, name) is not None:
                self._check_trajectory(name, getattr(self, name))
        for name in ("learning_rate", "target_loss", "time", "radius"):
            _check_number(name, getattr(self, name), positive=name != "target_loss")
        if not isinstance(self.random_start, RandomStart | None):
            raise InputError(
                f"`random_start` must be a RandomStart(kind, scale), got {self.random_start!r}."
            )

    def _check_weights(self) -> None:
        self.objective.network.check(self.weights, many=False)
        finite_weights(self.weights)

    def _check_trajectory(self, name: str, path: Descent | AbstractFlow) -> None:
        if isinstance(path, Descent):
            plain_objective(path, "Every theorem")
        if path.times.ndim != 1:
            raise InputError(
                f"`{name}` must be of one network, got a batch of shape {path.times.shape[:-1]}."
            )
        if not _same(path.objective, self.objective):
            raise InputError(f"`{name}` must be on the objective of the case, got one on another.")
        if any(np.asarray(array).dtype != np.float64 for array in path.weights):
            raise InputError(
                f"`{name}` must be in 64 bits, because margins are often below single precision; "
                "make it again with float64 weights and data."
            )

    @classmethod
    def of(cls, path: Descent | AbstractFlow, target_loss: float | None = None) -> "Case":
        """The case of a run or a flow that has recorded its weights, one network at a time."""
        if isinstance(path, AbstractFlow):
            objective = network_objective(path, "Every theorem")
            return cls(objective, path.start, target_loss=target_loss, flow=path)
        start = tuple(np.asarray(array)[0] for array in path.weights)
        case = cls(plain_objective(path, "Every theorem"), start, target_loss=target_loss)
        return replace(case, run=path, learning_rate=float(path.learning_rate))


@checked_class
@dataclass(frozen=True, eq=False)
class UndeclaredCase:
    """A training whose objective says no more than its value and derivatives: see `Case`.

    Theorems speak of a network and a problem. Of any other function none can be said to apply.
    """

    objective: AbstractObjective
    weights: AnyWeights
    learning_rate: float | None = None
    target_loss: float | None = None
    time: float | None = None
    radius: float | None = None
    random_start: RandomStart | None = None
    run: Descent | None = None
    flow: AbstractFlow | None = None

    def __post_init__(self):
        finite_weights(self.objective.as_weights(self.weights, many=False))
        for name in ("run", "flow"):
            path = getattr(self, name)
            if path is not None and not _same(path.objective, self.objective):
                raise InputError(
                    f"`{name}` must be on the objective of the case, got one on another."
                )
        for name in ("learning_rate", "target_loss", "time", "radius"):
            _check_number(name, getattr(self, name), positive=name != "target_loss")


def _same(one: AbstractObjective, other: AbstractObjective) -> bool:
    """By their numbers, compared on the host: nothing needs to be compiled for it."""
    if one is other:
        return True
    mine, theirs = (jax.tree.flatten(each) for each in (one, other))
    return mine[1] == theirs[1] and all(map(_equal, mine[0], theirs[0]))


def _equal(one: Any, other: Any) -> bool:
    if eqx.is_array(one) and eqx.is_array(other):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return one is other or bool(one == other)


def _check_number(name: str, value: Any, positive: bool) -> None:
    if value is None:
        return
    if isinstance(value, str) or np.ndim(value) or not np.isfinite(float(value)):
        raise InputError(f"`{name}` must be one finite number, got {value!r}.")
    if positive:
        require_positive(name, value)
    if positive or abs(float(value)) > 1:  # a target loss may be as good as zero
        require_ordinary(name, value)
