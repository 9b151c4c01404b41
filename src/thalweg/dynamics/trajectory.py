"""What descent or flow leaves behind: times, weights and loss, with one clock for descent and flow.

Descent with learning rate eta is at time t = eta * step; the flow's time is t itself. Runs may be
batched: `times` and `loss` then have the axes (*batch, times), and each array of `weights`, which
is the pytree that the objective takes, has (*batch, times, *layer).
"""

from abc import abstractmethod
from math import prod
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, described
from thalweg._pictured import Pictured
from thalweg._shown import shown
from thalweg._typing import AnyWeights
from thalweg.objective import Objective

Recorded = tuple[Float[np.ndarray, "..."], ...]

_Path = TypeVar("_Path", bound="AbstractTrajectory")


@shown
class AbstractTrajectory(Pictured, eqx.Module):
    """The recorded path of the weights of one objective."""

    objective: eqx.AbstractVar[Any]  # an AbstractObjective; what needs a network asks it for one
    times: eqx.AbstractVar[Float[np.ndarray, "*batch times"]]
    weights: eqx.AbstractVar[AnyWeights]
    loss: eqx.AbstractVar[Float[np.ndarray, "*batch times"]]

    @abstractmethod
    def at(self: _Path, times: Any) -> _Path:
        """The same trajectory, recorded at these times."""

    def brought_to(self: _Path, times: Float[np.ndarray, "*other"]) -> _Path:
        """The same as `at`; nothing is computed where it was recorded at these very times."""
        return self if np.array_equal(self.times, times) else self.at(times)

    def proven_radius(self) -> Float[np.ndarray, "*batch times"] | None:
        """How far the exact trajectory is at most, where that is proven."""
        return None

    @property
    def final(self) -> AnyWeights:
        """The last recorded weights, ready to start another one from."""
        axis = self.times.ndim - 1
        return jax.tree.map(lambda array: np.take(array, -1, axis=axis), self.weights)

    @property
    def has_weights(self) -> bool:
        """Whether the weights were recorded, and not what `observe` made of them."""
        return bool(jax.tree.leaves(self.weights))

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Those of the arrays at one point, as they are recorded."""
        return tuple(array.shape[self.times.ndim :] for array in jax.tree.leaves(self.weights))


class AbstractFlow(AbstractTrajectory):
    """A trajectory of the gradient flow, with how far it may be from the exact one.

    Attributes:
        start: the weights at time 0.
        error: the Euclidean distance to the exact flow, estimated or proven.
    """

    start: eqx.AbstractVar[AnyWeights]
    error: eqx.AbstractVar[Float[np.ndarray, "*batch times"]]
    solver: eqx.AbstractVar[str]

    @property
    @abstractmethod
    def error_so_far(self) -> Float[np.ndarray, "*batch times"]:
        """What the error is taken to be up to each time."""


class AbstractCentralFlow(AbstractTrajectory):
    """What descent at one learning rate is predicted to follow on average, at the edge too.

    Attributes:
        weights: the centre of the oscillation; time t is that of step t / learning_rate.
        loss: the objective at the centre.
        mean_loss: its mean over the oscillation.
        error: how far the centre is from that of a companion run of tighter tolerances.
        met_at: the time at which the edge was met; NaN where it was not.
        learning_rate: that of descent.
    """

    mean_loss: eqx.AbstractVar[Float[np.ndarray, " times"]]
    error: eqx.AbstractVar[Float[np.ndarray, " times"]]
    met_at: eqx.AbstractVar[float]
    learning_rate: eqx.AbstractVar[float]

    @property
    def edge(self) -> float:
        """The sharpness 2 / learning_rate above which descent is unstable."""
        return 2 / self.learning_rate

    @property
    @abstractmethod
    def variance(self) -> Float[np.ndarray, " times"]:
        """The mean squared length of the oscillation: the trace of its covariance."""


class Distance(np.ndarray):
    """Distances as an array, with what is proven of the distance to the exact flow.

    Attributes:
        lower: it is at least this; None where the flow is not validated.
        upper: and at most this.
    """

    lower: np.ndarray | None
    upper: np.ndarray | None

    @override
    def __array_finalize__(self, other: Any) -> None:
        # A part of the distances, or anything computed from them, is a plain array of numbers.
        self.lower = self.upper = None


@checked
def distance(run: AbstractTrajectory, other: AbstractTrajectory) -> Distance:
    """The Euclidean distance in weight space between two trajectories, at the times of the first.

    The second is brought to those times first: a flow is integrated again with the same tolerances
    where it was recorded at others, a descent must have recorded them.

    Returns:
        An array over (*batch, times); `.lower` and `.upper` enclose the distance to the exact flow
        where the second is a validated flow, and are None where not.
    """
    if run.has_weights and other.has_weights and run.shapes() != other.shapes():
        raise InputError(
            "`distance` needs two runs of one network: their weights have shapes "
            f"{run.shapes()} and {other.shapes()}."
        )
    other = other.brought_to(run.times)
    if not (run.has_weights and other.has_weights):
        raise InputError(
            "`distance` needs the weights of both runs, but one kept only what `observe` returned; "
            "descend without `observe`."
        )
    squares = np.zeros(run.times.shape)
    arrays = (jax.tree.leaves(each.weights) for each in (run, other))
    for mine, theirs in zip(*arrays, strict=True):
        layer = tuple(range(run.times.ndim, mine.ndim))
        squares = squares + np.sum((mine - theirs) ** 2, axis=layer)
    found = np.sqrt(squares).view(Distance)
    radius = other.proven_radius()
    if radius is not None:
        # Both points are given as they are: only differences, and the sum of squares, are rounded.
        weights = sum(prod(shape) for shape in run.shapes())
        slack = (weights + 8) * np.finfo(float).eps / 2 * np.asarray(found)
        found.lower = np.maximum(np.asarray(found) - radius - slack, 0.0)
        found.upper = np.asarray(found) + radius + slack
    return found


def network_objective(trajectory: AbstractTrajectory, what: str) -> Objective:
    """The network on its problem that a trajectory is on, for that which speaks of networks."""
    if not isinstance(trajectory.objective, Objective):
        raise InputError(
            f"{what} is about networks on problems, tw.Objective(network, problem), got a "
            f"trajectory on {described(trajectory.objective)}."
        )
    return trajectory.objective
