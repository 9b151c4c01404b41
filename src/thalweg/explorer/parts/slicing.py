"""A slice of the loss: the plane through the start, the end of the flow and the end of descent.

With e_1 along the way from the start to the end of the flow, and e_2 along what is left of the way
to the end of descent, a point theta of weight space is shown at (<theta - start, e_1>,
<theta - start, e_2>), and its distance from the plane is told. Where descent ends where the flow
does, there is no such plane; it then goes through the point of the flow that is farthest from the
line between its ends.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from thalweg._typing import AnyWeights, ManyAnyWeights, Scalar
from thalweg.explorer.computation import Computation, padded
from thalweg.explorer.parts.following import losses_at
from thalweg.explorer.settings import SettingError
from thalweg.explorer.waiting import beside
from thalweg.kernels import suits
from thalweg.objective import AbstractObjective
from thalweg.objective.points import at_points

Points = Float[np.ndarray, "_ size"]
Pairs = Float[np.ndarray, "_ 2"]

_CELLS = 56  # of the grid, each way
_MARGIN = 0.18  # of the longer side, around what is shown
_APART = 0.02  # of the way of the flow: ends that are nearer to its line are not told apart
_FAR = 3.0  # ways of the flow: descent that goes farther is shown until then
_NUMBERS = 2_000_000  # weights at once
_HALVINGS, _DOUBLINGS = 8, 5  # levels below and above the loss at the start


class Plane(NamedTuple):
    """An origin and two orthonormal directions, with the points that it was made of."""

    origin: Float[np.ndarray, " size"]
    axes: Float[np.ndarray, "2 size"]
    names: list[str]
    points: Points

    def at(self, points: Points) -> tuple[Pairs, Float[np.ndarray, " points"]]:
        """Where points lie on the plane, and how far they are from it."""
        ways = points - self.origin
        with np.errstate(over="ignore", invalid="ignore"):
            pairs = ways @ self.axes.T
            squares = np.sum((ways - pairs @ self.axes) ** 2, axis=1)
        return pairs, np.sqrt(squares)


def plane_slice(known: Computation) -> Iterator[bytes]:
    """The loss on a grid, both paths, and the three points."""
    if known.flow is None:
        raise SettingError("The slice goes through the end of the flow, and there is none here.")
    flow = rows(known.flow.weights)
    runs = [rows(run.weights) for run in known.runs]
    plane = _plane(flow, runs[0])
    paths = [plane.at(run) for run in runs]
    path, _ = plane.at(flow)
    near = [pairs[_near(run, flow)] for run, (pairs, _) in zip(runs, paths, strict=True)]
    x, y = _ranges(np.concatenate([path, *near, plane.at(plane.points)[0]]))
    loss = _on_grid(known, plane, x, y)
    arrays = {
        "x": x,
        "y": y,
        "loss": loss,
        "descent": padded([pairs for pairs, _ in paths]),
        "descent_off": padded([off for _, off in paths]),
        "flow": path,
        "points": plane.at(plane.points)[0],
    }
    yield known.framed("slice", arrays, names=plane.names, levels=_levels(known))


def rows(weights: ManyAnyWeights) -> Points:
    """Weights along a trajectory, each point as one row."""
    leaves = [np.asarray(each, float) for each in jax.tree.leaves(weights)]
    return np.concatenate([each.reshape(len(each), -1) for each in leaves], axis=1)


def _plane(flow: Points, run: Points) -> Plane:
    start, end = flow[0], flow[-1]
    way = end - start
    length = np.linalg.norm(way)
    if not length > 0:
        raise SettingError("The flow stays where it starts, so that there is no plane to show.")
    first = way / length
    near = np.flatnonzero(_near(run, flow))
    last = run[near[-1]]
    whole = near[-1] == len(run) - 1
    names = ["start", "end of the flow", "end of descent" if whole else "descent, on its way out"]
    if np.linalg.norm(_beside(last - start, first)) <= _APART * length:
        bulge = np.linalg.norm(_beside(flow - start, first), axis=1)
        last, names[1:] = flow[int(np.argmax(bulge))], ["end of both", "farthest from the line"]
    left = _beside(last - start, first)
    size = np.linalg.norm(left)
    second = left / size if size > 1e-9 * length else _any_beside(first)
    return Plane(start, np.stack([first, second]), names, np.stack([start, end, last]))


def _near(run: Points, flow: Points) -> np.ndarray:
    """Which points of a run are finite, and not so far that nothing else would be seen."""
    reach = np.max(np.linalg.norm(flow - flow[0], axis=1))
    with np.errstate(over="ignore", invalid="ignore"):
        far = np.linalg.norm(run - flow[0], axis=1)
        within = np.logical_and.accumulate(far <= _FAR * reach)
    within[0] = True
    return within


def _beside(ways: np.ndarray, first: np.ndarray) -> np.ndarray:
    """What is left of ways without what lies along the first axis."""
    return ways - np.multiply.outer(ways @ first, first)


def _any_beside(first: np.ndarray) -> np.ndarray:
    """A direction orthogonal to the first, where all that is seen lies on one line."""
    other = _beside(np.eye(1, first.size, int(np.argmin(np.abs(first))))[0], first)
    size = np.linalg.norm(other)
    return other / size if size > 0 else other  # one weight alone


def _ranges(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Evenly spaced numbers on both axes, around all that is shown."""
    low, high = np.min(pairs, axis=0), np.max(pairs, axis=0)
    longest = float(np.max(high - low))
    middle, half = (low + high) / 2, (high - low) / 2
    half = np.maximum(half * (1 + 2 * _MARGIN), 0.08 * longest)
    found = [np.linspace(m - h, m + h, _CELLS) for m, h in zip(middle, half, strict=True)]
    return found[0], found[1]


def _on_grid(
    known: Computation, plane: Plane, x: np.ndarray, y: np.ndarray
) -> Float[np.ndarray, "rows columns"]:
    pairs = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    at_once = max(1, _NUMBERS // plane.origin.size)
    found = []
    for first in range(0, len(pairs), at_once):
        known.turn()
        points = plane.origin + pairs[first : first + at_once] @ plane.axes
        found.append(_losses(known, points))
    return np.concatenate(found).reshape(y.size, x.size)


def _losses(known: Computation, points: Points) -> Float[np.ndarray, " points"]:
    leaves, structure = jax.tree.flatten(known.weights)
    chain = known.objective.chain
    if chain is not None and suits(chain, leaves):
        return losses_at(chain, points)
    ends = np.cumsum([np.size(each) for each in leaves])[:-1]
    parts = np.split(points, ends, axis=1)
    shaped = [a.reshape(-1, *np.shape(b)) for a, b in zip(parts, leaves, strict=True)]
    weights = structure.unflatten(shaped)
    return np.asarray(beside(known, lambda: at_points(_value, known.objective, weights)), float)


def _value(objective: AbstractObjective, weights: AnyWeights) -> Scalar:
    """In a module, so that it is traced once."""
    return objective(weights)


def _levels(known: Computation) -> list[float]:
    """Halves and doubles of the loss at the start, above the minimum where it is known."""
    least = 0.0 if np.isnan(known.minimum) else known.minimum
    above = float(known.runs[0].loss[0]) - least
    powers = range(-_HALVINGS, _DOUBLINGS + 1)
    return [least + above * 2.0**power for power in powers] if above > 0 else []
