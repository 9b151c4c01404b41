"""The points that a case knows of, and the smallest Hessian eigenvalue at each of them."""

from math import prod
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from thalweg._typing import Weights
from thalweg.certificates.case import Case
from thalweg.certificates.claim import Claim, requirement
from thalweg.curvature import is_regular, smallest_eigenvalue, spectrum_along
from thalweg.curvature.spectrum import DENSE_SIZE
from thalweg.dynamics.trajectory import AbstractTrajectory
from thalweg.objective import Objective

Values = Float[np.ndarray, " points"]

_MOST_WEIGHTS = 400_000  # at how many in all the spectrum is computed along a run: some seconds
_LEAST_POINTS = 16  # but at so many points in any case
_DIVERGED = 1e50  # weights above this have products that no floating point number holds
_FEW_POINTS = 32  # up to so many are solved one by one, which takes less than to compile for many


class Points(NamedTuple):
    """Weights on a leading axis of points, and how far they are from where the exact one is."""

    where: str
    weights: tuple[Float[np.ndarray, "points ..."], ...]
    error: Values

    @property
    def largest_layer(self) -> Values:
        """The largest Frobenius norm of a layer at each point."""
        return np.max([np.linalg.norm(_flat(each), axis=1) for each in self.weights], axis=0)


class Smallest(NamedTuple):
    """Points, and the smallest eigenvalue at each of them with its error."""

    points: Points
    value: Values
    error: Values


def start_of(case: Case) -> Points:
    """The start alone."""
    weights = tuple(np.asarray(array, float)[None] for array in case.weights)
    return Points("at the start", weights, np.zeros(1))


def recorded(where: str, path: AbstractTrajectory | None) -> Points | None:
    """What a run or a flow has recorded, thinned out for large networks, without what diverged."""
    if path is None or not path.weights:
        return None
    shapes, count = path.objective.network.shapes, path.times.size
    pairs = zip(path.weights, shapes, strict=True)
    layers = [np.asarray(array, float).reshape(count, *shape) for array, shape in pairs]
    error = np.reshape(getattr(path, "error", np.zeros(count)), count)
    most = max(_LEAST_POINTS, _MOST_WEIGHTS // sum(prod(shape) for shape in shapes))
    kept = np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))
    finite = np.all([(np.abs(_flat(layer)) < _DIVERGED).all(axis=1) for layer in layers], axis=0)
    kept = kept[finite[kept]]
    if kept.size == 0:
        return None
    return Points(where, tuple(layer[kept] for layer in layers), error[kept])


def smallest_along(case: Case) -> tuple[Smallest, ...]:
    """The smallest eigenvalue at the start, along the run and along the flow, if smooth."""
    places = (
        start_of(case),
        recorded("along the run", case.run),
        recorded("along the flow", case.flow),
    )
    found = (smallest_at(case.objective, points) for points in places)
    return tuple(smallest for smallest in found if smallest is not None)


def smallest_at(objective: Objective, points: Points | None) -> Smallest | None:
    """The smallest eigenvalue at those points where the loss has a second derivative."""
    smooth = None if points is None else _smooth(objective, points)
    if smooth is None or smooth.error.size == 0:
        return None
    if smooth.error.size > _FEW_POINTS or objective.network.size > DENSE_SIZE:
        path = spectrum_along(objective, smooth.weights)
        return Smallest(smooth, path.smallest, path.smallest_error)
    rows = (tuple(row) for row in zip(*smooth.weights, strict=True))
    found = [smallest_eigenvalue(objective, row) for row in rows]
    values, errors = ([getattr(each, name) for each in found] for name in ("value", "error"))
    return Smallest(smooth, np.array(values), np.array(errors))


@eqx.filter_jit
def regular_points(objective: Objective, points: Weights) -> Bool[Array, " points"]:
    """Whether the loss has a second derivative there, at points along a leading axis."""
    inputs = objective.problem.inputs
    return jax.lax.map(lambda point: is_regular(objective.network, point, inputs), points)


def regular_at_start(case: Case) -> Claim:
    """The assumption that the loss has a second derivative at the start."""
    regular = bool(regular_points(case.objective, start_of(case).weights)[0])
    return requirement("no pre-activation that can change is zero at the start", regular)


def _smooth(objective: Objective, points: Points) -> Points:
    if objective.network.smooth:
        return points
    smooth = np.asarray(regular_points(objective, points.weights))
    kept = tuple(layer[smooth] for layer in points.weights)
    return Points(points.where, kept, points.error[smooth])


def _flat(layer: Float[np.ndarray, "points ..."]) -> Float[np.ndarray, "points size"]:
    return layer.reshape(len(layer), -1)
