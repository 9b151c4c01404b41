"""A recorded flow, and the constants of tubes on balls around it.

A flow from theta(s) to theta(t) has the length

    integral |theta'| <= sqrt((t - s) (f(theta(s)) - f(theta(t)))),

by the Cauchy-Schwarz inequality, because |theta'|^2 = -(d/dt) f. All of the flow between two
records is hence within half of that length of the point in the middle between them, so that balls
around these middles, by so much larger, cover what happens between records. The error of the
recorded flow, as it was estimated, is added to the balls. On each of them `curvature.ball_bounds`
has the constants.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg._typing import Weights
from thalweg.certificates import rounding
from thalweg.curvature import ball_bounds, linear_hessian
from thalweg.dynamics import AbstractFlow
from thalweg.dynamics.trajectory import network_objective
from thalweg.objective import Objective
from thalweg.objective.points import at_points

Records = Float[np.ndarray, " records"]

_DENSE = 200  # up to this many weights the Hessian itself, at the balls' centres, sharpens bounds
_EIGENVALUE_ERROR = 1e-14  # of computed eigenvalues, as a part of the largest


@dataclass(frozen=True, eq=False)
class RecordedPath:
    """A flow from time 0 up to a horizon: where it is at some times, and how far off."""

    times: Records
    weights: Weights
    loss: Records
    error: Records
    slopes: Records

    @classmethod
    def of(cls, flow: AbstractFlow, horizon: float) -> "RecordedPath":
        """The records up to the first at or after the horizon; the start is one of them."""
        late = int(np.searchsorted(flow.times, horizon * (1 - 1e-12)))  # times are rounded
        kept = slice(0, late + 1)
        times, weights, error = flow.times[kept], flow.weights, flow.error[kept]
        weights = tuple(array[kept] for array in weights)
        if times[0] > 0:
            times, error = np.append(0.0, times), np.append(0.0, error)
            weights = tuple(
                np.concatenate([start[None], array])
                for start, array in zip(flow.start, weights, strict=True)
            )
        objective = network_objective(flow, "This bound")
        loss, slopes = at_points(_value_and_slope, objective, weights)
        return cls(times, weights, loss, error, slopes)

    def constants(self, objective: Objective, radius: float) -> tuple[float, float, Records]:
        """Beta, gamma, and m on each interval, for balls of this radius around the flow."""
        # Each loss is off by what the error of the flow makes of it.
        off = self.slopes * self.error + rounding(self.loss)
        fallen = np.maximum(self.loss[:-1] - self.loss[1:], 0) + off[:-1] + off[1:]
        lengths = np.sqrt(np.diff(self.times) * fallen)
        radii = radius + lengths / 2 + np.maximum(self.error[:-1], self.error[1:])
        middles = tuple((array[1:] + array[:-1]) / 2 for array in self.weights)
        bounds = at_points(_bounds_on_ball, objective, (middles, radii)).T
        return float(np.max(bounds[0])), float(np.max(bounds[1])), bounds[2]


def _value_and_slope(objective: Objective, point: Weights) -> tuple[Array, Array]:
    """The loss and the norm of its gradient."""
    value, slopes = objective.value_and_gradient(point)
    return value, jnp.sqrt(sum(jnp.sum(slope**2) for slope in slopes))


def _bounds_on_ball(objective: Objective, ball: tuple[Weights, Array]) -> Float[Array, " 3"]:
    """On a ball: above the Hessian's norm, the gradient's, and minus the least eigenvalue.

    Where the Hessian at the centre is affordable it is sharper on small balls to let it change by
    its Lipschitz constant.
    """
    centre, radius = ball
    bounds = ball_bounds(objective, centre, radius)
    far = jnp.stack([bounds.hessian, bounds.gradient, -bounds.smallest_eigenvalue])
    if objective.network.size > _DENSE:
        return far
    values = jnp.linalg.eigvalsh(linear_hessian(objective, centre))
    largest = jnp.max(jnp.abs(values)) * (1 + _EIGENVALUE_ERROR)
    change = radius * bounds.hessian_lipschitz
    slope = jnp.sqrt(sum(jnp.sum(part**2) for part in objective.gradient(centre)))
    reached = slope + radius * (largest + change / 2)
    least = -values[0] + _EIGENVALUE_ERROR * largest + change
    return jnp.minimum(far, jnp.stack([largest + change, reached, least]))


def norms_of(weights: Weights) -> Records:
    """The Euclidean norm of each of some points."""
    return np.sqrt(sum(np.sum(np.asarray(a) ** 2, axis=tuple(range(1, a.ndim))) for a in weights))
