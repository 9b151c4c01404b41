"""Descent as a smooth centre c and a smooth oscillation x around it.

    w_k = c_k + (-1)^k x_k.

Any two points make such a pair: both c + x and c - x take a step of descent, and change places,

    c_{k+1} = c_k - eta (g(c_k + x_k) + g(c_k - x_k)) / 2,
    x_{k+1} = -x_k + eta (g(c_k + x_k) - g(c_k - x_k)) / 2,

a map z -> z + Delta z of the pair z = (c, x) without any approximation: c_k + (-1)^k x_k is
descent from c_0 + x_0. Where descent is stable in a direction x decays, at the edge it stays, and
in both cases z changes little in a step although w jumps. The smooth curve with
z(t + eta) = z(t) + Delta z(t) has the velocity

    z' = log(1 + Delta) z / eta = (Delta z - Delta^2 z / 2 + ...) / eta,

where Delta^2 z = Delta (z + Delta z) - Delta z takes one more step of the map. One term is
c' = -(g(c + x) + g(c - x)) / 2, x' = (g(c + x) - g(c - x)) / 2 - 2 x / eta; two are used here, and
leave an error of the third difference, which a companion with three tells. Where x = 0 it is the
modified flow of order one. In a direction of curvature s the rates are, with m = eta s for c and
m = 2 - eta s for x, between 0 and -(m + m^2 / 2) / eta: what is left of an oscillation in c, or of
a drift in x, decays within a step or so.

*Where it starts.* Even steps lie on the one curve, c + x, odd ones on the other, c - x. So around
step k the curve of w_k has w_k itself, and the other is interpolated at k from its neighbours
w_{k-1}, w_{k+1}, w_{k-3}, ...; of one pair of them this is

    c_k = (w_{k-1} + 2 w_k + w_{k+1}) / 4.

How large an oscillation is when it comes to the edge is left over from all that was not smooth
before, which no flow knows. So descent's own steps are followed, and split, until the oscillation
does not fade and leaving out a neighbour does not change it; from there on the flow predicts.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from jaxtyping import Float

from thalweg.dynamics.flattened import Flattened, Vector
from thalweg.dynamics.stabilised import hermite, steps
from thalweg.solvers import FlowError

Pair = Float[np.ndarray, "2 size"]
Pairs = Float[np.ndarray, "times 2 size"]

TERMS = 2
"""How many terms of the logarithm are kept; a companion keeps one more."""

NEIGHBOURS = 3
"""How many neighbours to each side are interpolated; a companion takes one less."""

_DOUBT = 0.005  # of the oscillation, where the flow begins: what a neighbour may change
_KEPT = 0.9  # of the oscillation, from a step to the next, where the flow begins
_ROUNDING = 1e-13  # of the centre: at rest the last digits may jump to and fro for ever
_LARGEST = 2.3  # of m: a sharpness 15 % above the edge


@dataclass(frozen=True)
class Split:
    """Descent around one step.

    Attributes:
        step: which.
        pair: centre and oscillation there.
        doubt: by how much leaving out one neighbour changes it, as a part of the oscillation.
    """

    step: int
    pair: Pair
    doubt: float


@dataclass(frozen=True)
class Followed:
    """A centre and its oscillation over time.

    Attributes:
        pairs: at the times that were asked for.
        begin: the step from which on they are predicted; None where they are descent's own.
        evaluations: how many gradients it took.
    """

    pairs: Pairs
    begin: int | None
    evaluations: int


def mapped(flat: Flattened, pair: Pair, learning_rate: float) -> Pair:
    """The pair after one step of descent, from both of its points."""
    centre, oscillation = pair
    first, second = flat.gradients(np.stack([centre + oscillation, centre - oscillation]))
    half = learning_rate / 2
    return np.stack([centre - half * (first + second), half * (first - second) - oscillation])


def velocity(flat: Flattened, pair: Pair, learning_rate: float, terms: int = TERMS) -> Pair:
    """(Delta z - Delta^2 z / 2 + Delta^3 z / 3 - ...) / eta, so many terms of it."""
    points = [pair]
    for _ in range(terms):
        points.append(mapped(flat, points[-1], learning_rate))
    differences, total = np.stack(points), np.zeros_like(pair)
    for term in range(1, terms + 1):
        differences = np.diff(differences, axis=0)
        total -= (-1) ** term / term * differences[0]
    return total / learning_rate


def splits(flat: Flattened, learning_rate: float, neighbours: int) -> Iterator[Split]:
    """Descent at step 0, 1, 2, ..., split; by fewer neighbours where there are none before."""
    points: deque[Vector] = deque([flat.start], maxlen=4 * neighbours - 1)
    newest = 0
    for step in count():
        sides = min((step + 1) // 2, neighbours)
        reach = max(2 * sides - 1, 0)
        while newest < step + reach:
            points.append(_stepped(flat, points[-1], learning_rate, newest))
            newest += 1
        last = len(points) - (newest - step - reach)
        yield split_around(np.stack(list(points)[last - 2 * reach - 1 : last]), step, sides)


def follow(
    flat: Flattened,
    times: Float[np.ndarray, " times"],
    learning_rate: float,
    *,
    rtol: float,
    most: int,
    terms: int = TERMS,
    neighbours: int = NEIGHBOURS,
    begin: int | None = None,
) -> Followed:
    """Descent's own steps to where the flow begins, then the flow.

    Args:
        flat: the objective, with the start.
        times: when.
        learning_rate: eta.
        rtol: the error of a step of the flow, as a part of the length of centre and oscillation.
        most: how many steps are tried at most.
        terms: how many of the logarithm are kept.
        neighbours: how many to each side are interpolated.
        begin: the step from which on the flow is followed; found where it is not given.
    """
    pairs, start = _split_until(flat, times, learning_rate, neighbours, begin)
    if start is None or len(pairs) == times.size:
        taken = int(np.ceil(times[-1] / learning_rate)) + 1
        return Followed(np.stack(pairs), None, taken + 2 * neighbours)
    evaluations = start.step + 2 * neighbours - 1

    def field(pair: Pair) -> Pair:
        nonlocal evaluations
        evaluations += 2 * terms
        return velocity(flat, pair, learning_rate, terms)

    stiffness = sum(_LARGEST**term / term for term in range(1, terms + 1)) / learning_rate
    tolerance = rtol * float(np.linalg.norm(start.pair))
    for step in steps(
        field, start.pair, learning_rate * start.step, float(times[-1]), most=most,
        stiffness=stiffness, tolerance=tolerance,
    ):  # fmt: skip
        while len(pairs) < times.size and times[len(pairs)] <= step.end:
            pairs.append(step.at(float(times[len(pairs)])))
    return Followed(np.stack(pairs), start.step, evaluations)


def _split_until(
    flat: Flattened,
    times: Float[np.ndarray, " times"],
    learning_rate: float,
    neighbours: int,
    begin: int | None,
) -> tuple[list[Pair], Split | None]:
    """The pairs of descent at the times before the flow begins, and where that is."""
    found: list[Pair] = []
    last: deque[Split] = deque(maxlen=4)
    for split in splits(flat, learning_rate, neighbours):
        last.append(split)
        here = split.step == begin if begin is not None else _stays(last, neighbours)
        known = split.step if here else split.step - 1  # the velocity needs one step more
        while len(found) < times.size and times[len(found)] <= learning_rate * known:
            found.append(_between(last, float(times[len(found)]) / learning_rate))
        if here:
            return found, split
        if len(found) == times.size:
            break
    return found, None


def _stays(last: deque[Split], neighbours: int) -> bool:
    """Whether the oscillation is known well, and does not fade."""
    if last[-1].step < 2 * neighbours or last[-1].doubt > _DOUBT:
        return False
    before, (centre, now) = last[-2].pair[1], last[-1].pair
    if np.linalg.norm(now) <= _ROUNDING * np.linalg.norm(centre):
        return False
    return bool(before @ now >= _KEPT * (before @ before))


def _between(last: deque[Split], step: float) -> Pair:
    """The pair at a step that may be broken, from the splits around it."""
    first, pairs = last[0].step, np.stack([split.pair for split in last])
    rises = np.gradient(pairs, axis=0)
    lower = min(int(step) - first, len(pairs) - 2)
    ends, speeds = (pairs[lower], pairs[lower + 1]), (rises[lower], rises[lower + 1])
    return hermite(step - first - lower, 1.0, ends, speeds)


def _stepped(flat: Flattened, point: Vector, learning_rate: float, step: int) -> Vector:
    with np.errstate(over="ignore", invalid="ignore"):
        point = point - learning_rate * flat.gradients(point[None])[0]
    if not np.all(np.isfinite(point)):
        raise FlowError(
            f"Descent itself diverges: its weights are not finite after step {step}, at time "
            f"{step * learning_rate:.6g}; take a smaller `learning_rate`, or stop earlier."
        )
    return point


def split_around(points: Float[np.ndarray, "points size"], step: int, sides: int) -> Split:
    """Descent around the middle of some points; of a single one there is no oscillation."""
    if not sides:
        return Split(step, np.stack([points[0], np.zeros_like(points[0])]), np.inf)
    middle = points[len(points) // 2]
    nodes = np.arange(1 - 2 * sides, 2 * sides, 2)
    other = _interpolated(points[::2], nodes)
    pair = np.stack([(middle + other) / 2, (-1) ** step * (middle - other) / 2])
    size = float(np.linalg.norm(pair[1]))
    # Leaving out one of a pair shows a cycle of four steps, too, which is symmetric around each.
    gap = float(np.linalg.norm(other - _interpolated(points[:-2:2], nodes[:-1]))) / 2
    return Split(step, pair, gap / size if size else np.inf)


def _interpolated(points: Float[np.ndarray, "nodes size"], nodes: np.ndarray) -> Vector:
    """The polynomial with these values at the nodes, at 0."""
    others = [np.delete(nodes, number) for number in range(nodes.size)]
    shares = [np.prod(rest / (rest - node)) for rest, node in zip(others, nodes, strict=True)]
    return np.array(shares) @ points
