"""One step of a gradient flow across kinks.

With the masks a_i of `thalweg.network.kinks`, the flow is theta' = -g(theta, a), where a_i is 1 or
0 on either side of kink i, and anything in between on it: Filippov's solutions [filippov1988]. At a
kink that *attracts* (delta_i > 0) both sides may push towards it, and then the flow slides along
it, z_i = 0; at one that *repels* (delta_i < 0) it goes on, or comes away on either side. A step is
that of the midpoint rule with masks averaged over the step,

    theta_m = theta_0 - (h / 2) g(theta_0, a_0),    theta_1 = theta_0 - h g(theta_m, abar).

Kinks whose z changes sign over the step, and those along which it slides, are its *candidates*.
Averages are found from a linear model of z at the end, with the Gram matrix M of grad z,

    z_1 = z~_1 - h M diag(delta) (abar - a~),

around the last end z~_1 with the last averages a~, and again until nothing moves. The time tau_i at
which z_i reaches zero, in units of h, is the root of the parabola through z_i, its rate, and z_i at
the end had its own mask stayed what it was. Then

    repelling     abar = tau (from above) or 1 - tau (from below): it goes through;
    attracting    abar in [tau, 1] or [0, 1 - tau]: inside only if z_1 = 0, at the upper bound only
                  if z_1 >= 0, at the lower one only if z_1 <= 0.

The second is a convex problem in a box (`solvers.box`), exact for entering, sliding and crossing at
constant rates. The error of the step is estimated by the trapezoidal rule with the same averages.

Kinks that are one function, as those of patches with the same pixels, have one average and the sum
of their deltas.

A z_i that is zero because nothing goes into its unit is no kink: should its sample wake within the
step, its mask is that of the sign with which it does.

[filippov1988] A. F. Filippov, "Differential Equations with Discontinuous Righthand Sides", 1988.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from thalweg.network.kinks import Arrays, Forward, Index, Masks
from thalweg.objective.kinked import Evaluation, KinkedObjective
from thalweg.solvers.box import solved_in_box

Values = Float[np.ndarray, " chosen"]

_ROUNDS = 8  # of the averages; two are the rule
_INSIDE = 1e-9  # of the box: nearer to a bound is on it
_STRONG = 8.0  # times its jump, estimated roughly: as large as its way in a step
_WEAK = 10.0  # of what averages may be off by: the same of all weak kinks together
_LOOKED_AT = 4096  # kinks of which it is asked which are near
_TINY = np.finfo(float).tiny
_NEAREST = 64  # kinks whose distance is measured at each step


@dataclass(frozen=True)
class State:
    """A point of the flow, with its masks, and the kinks along which it slides (flat indices).

    `sides` says where it came from to each of these: 1 above, -1 below, 0 if it began there.
    """

    point: Evaluation
    sliding: Index
    sides: Int[np.ndarray, " sliding"]

    def signs(self) -> Int[np.ndarray, "rows kinks"]:
        """On which side of each kink it is; of those along which it slides, where it came from."""
        found = np.where(self.point.z > 0, 1, -1)
        found.flat[self.sliding] = self.sides
        return found


def start_at(objective: KinkedObjective, weights: Arrays) -> State:
    """The state at the start; where it is on an attracting kink, it may slide from there."""
    forward = objective.start(weights)
    masks = (forward.z > 0).astype(float)
    point = objective.evaluate(forward, masks)
    zero = np.flatnonzero((forward.z == 0) & (point.deltas != 0))
    if zero.size:
        pairs = np.divmod(zero, masks.shape[1])
        alive = objective.kinks.reach(forward, *pairs) > 0
        group = objective.kinks.labels(forward, *pairs)
        attracts = np.bincount(group, point.deltas.flat[zero] * alive)[group] > 0
        zero = zero[alive & attracts]
    if zero.size == 0:
        return State(point, zero, zero)
    masks = masks.copy()
    masks.flat[zero] = 0.5  # anything inside: the first step finds their averages
    point = objective.evaluate(objective.kinks.with_masks(forward, masks), masks)
    return State(point, zero, np.zeros_like(zero))


@dataclass(frozen=True)
class Step:
    """A step that was tried.

    Attributes:
        state: where it ends.
        error: the estimated error of the step, in weight space.
        length: how far it went.
        crossed: the kinks that were passed from one side to the other (flat indices).
        ridge: the least distance to a repelling kink that could be passed on either side.
        settled: whether the averages were found.
    """

    state: State
    error: float
    length: float
    crossed: Index
    ridge: float
    settled: bool


@dataclass(frozen=True)
class _Candidates:
    """The kinks of a step, with the averages that were found and the boxes they lie in.

    Those of `index` that are one function are one kink, `group` says which; all else is of these.
    The Gram matrix is that of the `strong` ones, which alone can change where others cross.
    """

    index: Index
    group: Index
    strong: Index
    gram: Float[np.ndarray, "strong strong"]
    deltas: Values
    averages: Values
    lower: Values
    upper: Values
    grazing: float = np.inf
    force: Values = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def none(cls) -> "_Candidates":
        """Where nothing changes."""
        nothing, empty = np.zeros(0, int), np.zeros(0)
        return cls(nothing, nothing, nothing, np.zeros((0, 0)), empty, empty, empty, empty)

    @property
    def inside(self) -> Bool[np.ndarray, " c"]:
        """Along which of them the step slides."""
        room = _INSIDE * (self.upper - self.lower)
        between = (self.averages > self.lower + room) & (self.averages < self.upper - room)
        return between & (self.deltas > 0)


def step_from(objective: KinkedObjective, state: State, h: float, fine: float) -> Step:
    """A step of length h; averages are found up to `fine` times the length of the way."""
    start, index, shifts = state.point, state.sliding, [np.inf]
    trial = objective.onwards(start, start, h / 2, start.masks)
    middle = objective.evaluate(trial, start.masks)
    rate = 2 * (middle.z - start.z)
    end = objective.onwards(start, middle, h, None)
    candidates = _Candidates.none()
    while len(shifts) <= _ROUNDS:
        flips, woken = _changed(objective, start.forward, end)
        index = np.union1d(index, flips)
        candidates = _averaged(objective, state, middle, rate, end, index, h)
        masks = start.masks.copy()
        masks.flat[woken] = 1.0
        masks.flat[index] = candidates.averages[candidates.group]
        shifts.append(_shift(candidates, middle))
        if np.array_equal(masks, middle.masks):
            break
        middle = objective.remasked(middle, masks)
        end = objective.onwards(start, middle, h, None)
        # Rounds converge at a rate: what the next one would change is told by the last two.
        enough = fine * norm(middle.gradient)
        told = shifts[-1] ** 2 / max(shifts[-2], shifts[-1], _TINY)
        if told <= enough and _returning(candidates, start, end) <= _WEAK * enough:
            break
    settled = len(shifts) <= _ROUNDS
    return _finished(objective, state, middle, end, candidates, rate, h, settled)


def _changed(objective: KinkedObjective, start: Forward, end: Forward) -> tuple[Index, Index]:
    """Where z changed its sign, and where it woke with a positive one."""
    flipped = np.flatnonzero((end.z > 0) != (start.z > 0))
    if flipped.size == 0:
        return flipped, flipped
    asleep, falls_asleep = (_dead(objective, forward, flipped) for forward in (start, end))
    return flipped[~asleep & ~falls_asleep], flipped[asleep]


def _dead(objective: KinkedObjective, forward: Forward, index: Index) -> Bool[np.ndarray, " c"]:
    """Where nothing goes into the unit."""
    found = forward.z.flat[index] == 0
    zero = index[found]
    if zero.size:
        found[found] = objective.kinks.reach(forward, *np.divmod(zero, forward.z.shape[1])) == 0
    return found


def _averaged(
    objective: KinkedObjective,
    state: State,
    middle: Evaluation,
    rate: Masks,
    end: Forward,
    index: Index,
    h: float,
) -> _Candidates:
    """The masks of the candidates, averaged over the step, by the linear model of z at the end."""
    if index.size == 0:
        return _Candidates.none()
    pairs = np.divmod(index, end.z.shape[1])
    group = objective.kinks.labels(middle.forward, *pairs)
    first = np.unique(group, return_index=True)[1]
    deltas = np.bincount(group, middle.deltas.flat[index])
    everything, index, pairs = index, index[first], (pairs[0][first], pairs[1][first])
    last, old = middle.masks.flat[index], state.point.masks.flat[index]
    before, own = state.point.z.flat[index], end.z.flat[index]
    slides = np.isin(index, state.sliding, assume_unique=True)
    # One that was let through, and came back, is not weak.
    returned = (last != old) & (before * own > 0) & (deltas > 0)
    squares = objective.kinks.roughly_squares(middle.forward, *pairs)
    unknown = np.isinf(squares)
    squares[unknown] = 0.0
    strong = h * np.abs(deltas) * _STRONG * squares > np.abs(own - before)
    strong = np.flatnonzero(slides | returned | unknown | strong)
    gram = objective.kinks.gram(middle.forward, pairs[0][strong], pairs[1][strong])
    squares[strong] = np.diag(gram)
    own[strong] += h * np.diag(gram) * (deltas * (last - old))[strong]
    time = _crossing_time(before, rate.flat[index], own)
    # What slides is at zero from the beginning; what no longer attracts keeps the side it is on.
    time = np.where(slides, np.where(deltas > 0, 0.0, 1.0), time)
    above = before > 0
    lower, upper = np.where(above, time, 0.0), np.where(above, 1.0, 1.0 - time)
    averages = np.where(above, time, 1.0 - time)
    boxed = (deltas > 0) & (upper > lower)
    averages[strong] = _in_boxes(
        h * gram,
        end.z.flat[index[strong]],
        *(each[strong] for each in (deltas, last, averages, lower, upper, boxed)),
    )
    crosses = (deltas < 0) & (time < 1)
    deep = _depth(before, rate.flat[index], own)[crosses] / np.sqrt(squares[crosses])
    force = deltas * np.abs(averages - old) * np.sqrt(squares) * (boxed & (time < 1))
    force[strong] = 0.0
    return _Candidates(
        everything, group, strong, gram, deltas, averages, lower, upper,
        deep.min(initial=np.inf), force,
    )  # fmt: skip


def _in_boxes(
    matrix: Float[np.ndarray, "c c"],
    end: Values,
    deltas: Values,
    last: Values,
    averages: Values,
    lower: Values,
    upper: Values,
    boxed: Bool[np.ndarray, " c"],
) -> Values:
    """The averages, with those of the boxed ones as the problem in a box wants them."""
    inside = np.flatnonzero(boxed)
    if inside.size == 0:
        return averages
    change = np.where(deltas > 0, 0.0, deltas * (averages - last))
    inner, pull = matrix[np.ix_(inside, inside)], deltas[inside]
    found = solved_in_box(
        inner,
        end[inside] - matrix[inside] @ change + inner @ (pull * last[inside]),
        pull * lower[inside],
        pull * upper[inside],
        pull * last[inside],
    )
    averages = averages.copy()
    averages[inside] = found / pull
    return averages


def _crossing_time(before: Values, rate: Values, after: Values) -> Values:
    """When the parabola from `before` with this rate to `after` reaches zero; 1 if it does not."""
    up = np.where(before > 0, 1.0, -1.0)
    start, slope, end = up * before, up * rate, up * after
    bend = end - start - slope
    # The smaller positive root of start + slope s + bend s^2, in the form that does not cancel.
    root = np.sqrt(np.maximum(slope**2 - 4 * bend * start, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        time = np.where(slope <= 0, 2 * start / (root - slope), -(slope + root) / (2 * bend))
    crosses = (end < 0) | ((end == 0) & (start > 0))
    return np.where(crosses, np.clip(np.nan_to_num(time, nan=0.0), 0.0, 1.0), 1.0)


def _depth(before: Values, rate: Values, after: Values) -> Values:
    """How far beyond zero the parabola from `before` with this rate to `after` turns, if it does.

    Had it been farther away by this, it would have turned before zero, and not crossed.
    """
    up = np.where(before > 0, 1.0, -1.0)
    start, slope = up * before, up * rate
    bend = up * after - start - slope
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((bend > 0) & (slope < 0), slope**2 / (4 * bend) - start, np.inf)


def _returning(candidates: _Candidates, start: Evaluation, end: Forward) -> float:
    """What the masks of weak kinks add to the gradient that were let through, and came back."""
    first = candidates.index[np.unique(candidates.group, return_index=True)[1]]
    if candidates.force.size == 0:
        return 0.0
    back = start.z.flat[first] * end.z.flat[first] > 0
    return float(np.linalg.norm(candidates.force[back]))


def _shift(candidates: _Candidates, middle: Evaluation) -> float:
    """How far the proposed averages would move the gradient."""
    first = np.unique(candidates.group, return_index=True)[1][candidates.strong]
    change = candidates.averages[candidates.strong] - middle.masks.flat[candidates.index[first]]
    change = candidates.deltas[candidates.strong] * change
    return float(np.sqrt(max(change @ candidates.gram @ change, 0.0)))


def _finished(
    objective: KinkedObjective,
    state: State,
    middle: Evaluation,
    end: Forward,
    candidates: _Candidates,
    rate: Masks,
    h: float,
    settled: bool,
) -> Step:
    """Where the step ends, with the masks there, and what is known of it."""
    inside = candidates.inside[candidates.group]
    sliding = candidates.index[inside]
    masks = (end.z > 0).astype(float)
    of = candidates.group[inside]
    width = candidates.upper[of] - candidates.lower[of]
    masks.flat[sliding] = (candidates.averages[of] - candidates.lower[of]) / width
    last = objective.evaluate(objective.kinks.with_masks(end, masks), masks)
    before = state.signs()
    crossed = np.flatnonzero(np.where(end.z > 0, -1, 1) == before)
    return Step(
        state=State(last, sliding, before.flat[sliding]),
        error=h * _defect(objective, state.point, middle, last),
        length=h * norm(middle.gradient),
        crossed=np.setdiff1d(crossed, sliding),
        ridge=min(candidates.grazing, _ridge(objective, state.point, last, rate, sliding, h)),
        settled=settled,
    )


def _defect(
    objective: KinkedObjective, start: Evaluation, middle: Evaluation, end: Evaluation
) -> float:
    """How far midpoint and trapezoidal rule are apart, all with the averaged masks."""
    if objective.kinks.crowded:
        before, after = (each.deltas * (middle.masks - each.masks) for each in (start, end))
        jumps = objective.spread(middle, before + after)
        pairs = zip(end.gradient, jumps, strict=True)
        ends = [start.gradient, tuple(part + jump for part, jump in pairs)]
    else:
        ends = [objective.remasked(point, middle.masks).gradient for point in (start, end)]
    return norm(tuple(m - (a + b) / 2 for m, a, b in zip(middle.gradient, *ends, strict=True)))


def _ridge(
    objective: KinkedObjective,
    start: Evaluation,
    end: Evaluation,
    rate: Masks,
    sliding: Index,
    h: float,
) -> float:
    """The least distance to a repelling kink that the flow leaves on both sides; inf if none.

    In a step, z is taken to be the parabola that starts with its rate. Where it turned, or comes
    away, before zero, its least modulus counts if beyond the kink it would have gone the other way.
    """
    up = np.where(start.z > 0, 1.0, -1.0)
    z, slope = up * start.z, up * rate
    bend = up * end.z - z - slope
    leaves = (end.deltas < 0) & (slope + 2 * bend > 0) & (up * end.z > 0)
    leaves.flat[sliding] = False
    near = np.flatnonzero(leaves)
    if near.size == 0:
        return np.inf
    z, slope, bend = z.flat[near], slope.flat[near], bend.flat[near]
    turns = (slope < 0) & (bend > 0)
    least = np.where(turns, z - slope**2 / (4 * np.where(turns, bend, 1.0)), z)
    least = np.maximum(least, 0.0)
    if near.size > _LOOKED_AT:
        few = np.argpartition(least, _LOOKED_AT)[:_LOOKED_AT]
        near, least, slope, bend = near[few], least[few], slope[few], bend[few]
    rows, kinks = np.divmod(near, end.z.shape[1])
    reach = np.maximum(objective.kinks.reach(end.forward, rows, kinks), np.finfo(float).tiny)
    order = np.argpartition(least / reach, min(_NEAREST, near.size) - 1)[:_NEAREST]
    rows, kinks = rows[order], kinks[order]
    squares = objective.kinks.squares(end.forward, rows, kinks)
    beyond = slope[order] + 2 * bend[order] + h * end.deltas[rows, kinks] * squares
    ridge = (beyond < 0) & (squares > 0)
    distances = least[order][ridge] / np.sqrt(squares[ridge])
    return float(distances.min(initial=np.inf))


def norm(arrays: Arrays) -> float:
    """The Euclidean norm of all of them together."""
    return float(np.sqrt(sum(np.vdot(array, array) for array in arrays)))
