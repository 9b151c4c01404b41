"""The gradient flow of small networks with two slopes, from one crossing to the next.

An oracle of its own: between crossings the flow is smooth and DOP853 follows it with a tolerance of
1e-11. Where a pre-activation z reaches zero the step is cut there by bisection, and all modes of
those that are zero are tried: above (mask 1, z may not fall), below (mask 0, z may not rise), along
(z stays zero, by a mask in [0, 1]). A flow for which there is not exactly one mode is not followed
any further. No averages, no Gram matrices, no convex problem.
"""

from dataclasses import dataclass, field
from itertools import product

import numpy as np
from scipy.integrate import DOP853

ABOVE, BELOW, ALONG = 1, -1, 0
_ZERO = 1e-9  # of z at an event, after bisection to rounding
_STILL = 1e-7  # of a rate: slower is tangential, and which mode follows is not known
_RESTS = 1e-13  # but for rounding, zero: the unit is dead on that side, and stays where it is


class Undecided(Exception):
    """There is no mode, or more than one."""


@dataclass
class Network:
    """Fully connected layers on samples x, under scale |out - y|^2 / samples + decay."""

    x: np.ndarray
    y: np.ndarray
    shapes: list
    slopes: tuple = (1.0, 0.0)
    scale: float = 0.5
    decay: float = 0.0
    last: tuple = (None, None)

    def arrays(self, theta):
        """The matrices; of the same point they are asked for again and again."""
        if self.last[0] is not theta:
            self.last = theta, self.matrices(theta)
        return self.last[1]

    def matrices(self, theta):
        ends = np.cumsum([0, *(a * b for a, b in self.shapes)])
        return [
            theta[i:j].reshape(shape)
            for i, j, shape in zip(ends[:-1], ends[1:], self.shapes, strict=True)
        ]

    def activate(self, mask):
        return self.slopes[1] + (self.slopes[0] - self.slopes[1]) * mask

    def values(self, theta, masks=None):
        """z of each hidden layer, what goes into each layer, and the outputs."""
        inputs, hidden = [self.x], []
        *lower, last = self.arrays(theta)
        for layer, weight in enumerate(lower):
            z = inputs[-1] @ weight.T
            mask = z > 0 if masks is None else masks[layer]
            hidden.append(z)
            inputs.append(self.activate(mask) * z)
        return hidden, inputs, inputs[-1] @ last.T

    def gradient(self, theta, masks):
        _, inputs, outputs = self.values(theta, masks)
        return self.slopes_of_loss(theta, masks, inputs, outputs) + self.decay * theta

    def rates(self, theta, masks, pairs):
        """Of some z, where they are and how fast they move."""
        hidden, inputs, outputs = self.values(theta, masks)
        motion = -self.slopes_of_loss(theta, masks, inputs, outputs) - self.decay * theta
        z = np.array([hidden[layer][sample, unit] for layer, sample, unit in pairs])
        return z, np.array([self.slope(theta, masks, inputs, pair) @ motion for pair in pairs])

    def slopes_of_loss(self, theta, masks, inputs, outputs):
        """Those in the weights, without their decay."""
        return np.concatenate([a.ravel() for a in self.entries(theta, masks, inputs, outputs)])

    def entries(self, theta, masks, inputs, outputs):
        """Slopes of the loss in the entries of all matrices."""
        weights = self.arrays(theta)
        back = 2 * self.scale * (outputs - self.y) / len(self.x)
        found = []
        for layer in reversed(range(len(weights))):
            found.append(back.T @ inputs[layer])
            if layer:
                back = (back @ weights[layer]) * self.activate(masks[layer - 1])
        return found[::-1]

    def slope(self, theta, masks, inputs, pair):
        """The gradient of one z."""
        return np.concatenate([a.ravel() for a in self.entries_of(theta, masks, inputs, pair)])

    def entries_of(self, theta, masks, inputs, pair):
        """Slopes of one z in the entries of all matrices."""
        layer, sample, unit = pair
        weights = self.arrays(theta)
        parts = [np.zeros(shape) for shape in self.shapes]
        parts[layer][unit] = inputs[layer][sample]
        back = weights[layer][unit]
        for below in reversed(range(layer)):
            back = back * self.activate(masks[below][sample])
            parts[below] = np.multiply.outer(back, inputs[below][sample])
            back = back @ weights[below]
        return parts

    def is_fed(self, inputs, pair, zeros):
        """Whether anything goes into this unit but from units that are zero themselves."""
        layer, sample, unit = pair
        below = inputs[layer][sample] * self.seen(layer, unit)
        for other, row, lower in zeros:
            if other == layer - 1 and row == sample:
                below[lower] = 0.0
        return bool(np.any(below != 0.0))

    def seen(self, layer, unit):
        """One for each input of this unit, zero for what it does not see."""
        return np.ones(self.shapes[layer][1])


@dataclass
class Convolved(Network):
    """Layers whose matrices share weights, without biases.

    Of each, `patterns` has the matrix of which coordinate stands where, -1 for a zero.
    """

    patterns: tuple = ()

    def matrices(self, theta):
        found, first = [], 0
        for pattern in self.patterns:
            own = theta[first : first + pattern.max() + 1]
            first += own.size
            found.append(np.where(pattern >= 0, own[pattern], 0.0))
        return found

    def tied(self, matrices):
        """Slopes in the entries of all matrices as slopes in the weights."""
        pairs = zip(self.patterns, matrices, strict=True)
        return np.concatenate(
            [np.bincount(p[p >= 0], matrix[p >= 0], p.max() + 1) for p, matrix in pairs]
        )

    def slopes_of_loss(self, theta, masks, inputs, outputs):
        return self.tied(self.entries(theta, masks, inputs, outputs))

    def slope(self, theta, masks, inputs, pair):
        return self.tied(self.entries_of(theta, masks, inputs, pair))

    def seen(self, layer, unit):
        return (self.patterns[layer][unit] >= 0).astype(float)


@dataclass
class Pooled(Network):
    """Layers with biases, whose outputs are pooled in neighbouring pairs where `pooled` says so.

    What is a layer elsewhere is a row of kinks here: those of pooling, max(u, v) = v + a (u - v),
    and those of the activation behind it. All is differentiated by the chain rule in matrices.
    """

    patterns: tuple = ()
    channels: tuple = ()
    pooled: tuple = ()

    def parts(self, theta):
        """The matrix of each layer, its bias, and the matrices of which each is linear."""
        found, first = [], 0
        for pattern, channel in zip(self.patterns, self.channels, strict=True):
            count, biases = pattern.max() + 1, channel.max() + 1
            own, bias = np.split(theta[first : first + count + biases], [count])
            found.append((np.where(pattern >= 0, own[pattern], 0.0), bias[channel], first))
            first += count + biases
        return found

    def rows(self):
        """Of each row of kinks: its layer, and whether it pools."""
        hidden = enumerate(self.pooled[:-1])
        return [
            (layer, pools) for layer, own in hidden for pools in ([True] if own else []) + [False]
        ]

    def passed(self, theta, masks=None, jacobian=False):
        """z of each row of kinks, the outputs, and their slopes in the weights if asked for."""
        here, slope, hidden, slopes = self.x, None, [], []
        for layer, (matrix, bias, first) in enumerate(self.parts(theta)):
            if jacobian:
                slope = self.through(layer, matrix, first, here, slope, theta.size)
            here = here @ matrix.T + bias
            for pools in [pools for own, pools in self.rows() if own == layer]:
                z = here[:, ::2] - here[:, 1::2] if pools else here
                hidden.append(z)
                mask = z > 0 if masks is None else masks[len(hidden) - 1]
                factor = mask if pools else self.activate(mask)
                if jacobian:
                    dz = slope[:, ::2] - slope[:, 1::2] if pools else slope
                    slopes.append(dz)
                    slope = factor[:, :, None] * dz + (slope[:, 1::2] if pools else 0.0)
                here = factor * z + (here[:, 1::2] if pools else 0.0)
        return hidden, slopes, here, slope

    def through(self, layer, matrix, first, here, slope, size):
        """The slopes of a layer's output, of which those below are known."""
        pattern, channel = self.patterns[layer], self.channels[layer]
        found = np.zeros((len(here), pattern.shape[0], size))
        if slope is not None:
            found += np.einsum("oi,siw->sow", matrix, slope)
        for out, seen in np.argwhere(pattern >= 0):
            found[:, out, first + pattern[out, seen]] += here[:, seen]
        found[:, np.arange(channel.size), first + pattern.max() + 1 + channel] += 1.0
        return found

    def values(self, theta, masks=None):
        hidden, _, outputs, _ = self.passed(theta, masks)
        return hidden, [np.ones((len(self.x), 1)) for _ in hidden], outputs

    def gradient(self, theta, masks):
        _, _, outputs, slope = self.passed(theta, masks, jacobian=True)
        return self.pulled(theta, outputs, slope)

    def pulled(self, theta, outputs, slope):
        back = 2 * self.scale * (outputs - self.y) / len(self.x)
        return np.einsum("so,sow->w", back, slope) + self.decay * theta

    def rates(self, theta, masks, pairs):
        hidden, slopes, outputs, slope = self.passed(theta, masks, jacobian=True)
        motion = -self.pulled(theta, outputs, slope)
        z = np.array([hidden[layer][sample, unit] for layer, sample, unit in pairs])
        return z, np.array([slopes[layer][sample, unit] @ motion for layer, sample, unit in pairs])

    def slope(self, theta, masks, inputs, pair):
        layer, sample, unit = pair
        return self.passed(theta, masks, jacobian=True)[1][layer][sample, unit]

    def is_fed(self, inputs, pair, zeros):
        return True  # by its bias


@dataclass
class Mode:
    """The sides of all z, and the groups of z that stay zero with one mask.

    `inverse` is that of the slopes of the groups' rates in their masks, at an earlier point.
    """

    masks: list
    sliding: list = field(default_factory=list)
    inverse: np.ndarray | None = None

    def copied(self):
        return Mode([mask.copy() for mask in self.masks], self.sliding, self.inverse)

    def set_group(self, group, mask):
        for (layer, sample, unit), orientation in group:
            self.masks[layer][sample, unit] = mask if orientation > 0 else 1 - mask

    @property
    def along(self):
        return [pair for group in self.sliding for pair, _ in group]


@dataclass
class Flow:
    """Points at the times, and what happened on the way."""

    points: list
    crossings: int
    entered: int
    left: int
    most_sliding: int


def velocity(network, theta, mode):
    """The velocity in a mode, and the masks of the groups that slide in it."""
    if not mode.sliding:
        return -network.gradient(theta, mode.masks), np.zeros(0)
    trial = mode.copied()
    found = np.array([group_mask(trial, group) for group in trial.sliding])
    # The rates of z are affine in each mask alone: Newton's method, which is exact for one layer.
    # Slopes of an earlier point serve for as long as each step is a tenth of the one before.
    last = np.inf
    for _ in range(30):
        base = sliding_rates(network, theta, trial)
        if trial.inverse is None:
            mode.inverse = trial.inverse = inverse_of_slopes(network, theta, trial, found, base)
        change = -trial.inverse @ base
        found = found + change
        for group, mask in zip(trial.sliding, found, strict=True):
            trial.set_group(group, mask)
        size = np.abs(change).max()
        if size < 1e-13 * max(1.0, np.abs(found).max()):
            break
        if size > 0.1 * last:
            trial.inverse = None
        last = size
    return -network.gradient(theta, trial.masks), found


def inverse_of_slopes(network, theta, mode, masks, base):
    """Of the rates of the sliding groups in their masks, by differences."""
    columns = []
    for group, mask in zip(mode.sliding, masks, strict=True):
        mode.set_group(group, mask + 1e-3)
        columns.append((sliding_rates(network, theta, mode) - base) / 1e-3)
        mode.set_group(group, mask)
    return np.linalg.pinv(np.array(columns).T, rcond=1e-12)


def group_mask(mode, group):
    (layer, sample, unit), orientation = group[0]
    mask = mode.masks[layer][sample, unit]
    return mask if orientation > 0 else 1 - mask


def sliding_rates(network, theta, mode, masks=None):
    """How fast one z of each sliding group moves, when it is pulled back to zero."""
    if masks is not None:
        mode = mode.copied()
        for group, mask in zip(mode.sliding, masks, strict=True):
            mode.set_group(group, mask)
    z, rates = network.rates(theta, mode.masks, [group[0][0] for group in mode.sliding])
    return rates + 20.0 * z


def grouped(network, theta, mode, pairs):
    """Pairs whose z are multiples of each other around the point: they have one sign in common."""
    _, inputs, _ = network.values(theta, mode.masks)
    groups, directions = [], []
    for pair in pairs:
        slope = network.slope(theta, mode.masks, inputs, pair)
        slope = slope / np.linalg.norm(slope)
        for group, direction in zip(groups, directions, strict=True):
            if abs(slope @ direction) > 1 - 1e-9:
                group.append((pair, 1 if slope @ direction > 0 else -1))
                break
        else:
            groups.append([(pair, 1)])
            directions.append(slope)
    return groups


def decided(network, theta, mode, zeros, leaving=()):
    """The mode that follows at a point where these z are zero; some leave to a known side."""
    _, inputs, _ = network.values(theta)
    primary = [pair for pair in zeros if network.is_fed(inputs, pair, zeros)]
    derived = [pair for pair in zeros if pair not in primary]
    groups = grouped(network, theta, mode, primary)
    known = dict(leaving)
    options = [
        (known[group[0][0]],) if group[0][0] in known else (ABOVE, BELOW, ALONG) for group in groups
    ]
    if len(groups) > 6:
        raise Undecided(f"{3 ** len(groups)} modes to be tried")
    found = []
    for sides in product(*options):
        following = tried(network, theta, mode, groups, sides, derived, known)
        if following is not None:
            found.append(following)
    if not found or any(np.linalg.norm(other - found[0][0]) > _STILL for other, _ in found):
        raise Undecided(f"{len(found)} modes for {primary}")
    return found[0][1]


def tried(network, theta, mode, groups, sides, derived, known):
    """The velocity and the mode with these sides, if the flow keeps to them; None if not."""
    trial = Mode([mask.copy() for mask in mode.masks])
    direction = {}
    for group, side in zip(groups, sides, strict=True):
        trial.set_group(group, {ABOVE: 1.0, BELOW: 0.0, ALONG: 0.5}[side])
        direction |= {pair: side * orientation for pair, orientation in group}
        if side == ALONG:
            trial.sliding.append(group)
    # Units above that only see units at zero have the sign of what these send, once they wake.
    for layer, sample, unit in sorted(derived):
        weight = network.arrays(theta)[layer][unit]
        sent = sum(
            weight[lower] * network.activate(float(side != BELOW)) * (1 if side != BELOW else -1)
            for (other, row, lower), side in direction.items()
            if other == layer - 1 and row == sample
        )
        trial.masks[layer][sample, unit] = float(sent > 0)
        direction[(layer, sample, unit)] = ABOVE if sent > 0 else BELOW
    motion, found = velocity(network, theta, trial)
    if np.any(found < 0) or np.any(found > 1):
        return None
    if trial.sliding and np.abs(sliding_rates(network, theta, trial, found)).max() > _STILL:
        return None  # no mask moves it, because nothing jumps there
    for group, mask in zip(trial.sliding, found, strict=True):
        trial.set_group(group, mask)
    _, inputs, _ = network.values(theta, trial.masks)
    for group, side in zip(groups, sides, strict=True):
        pair = group[0][0]
        if side == ALONG or pair in known:
            continue
        rate = network.slope(theta, trial.masks, inputs, pair) @ motion
        if _RESTS < abs(rate) < _STILL:
            raise Undecided(f"{pair} moves by {rate}")
        if abs(rate) >= _STILL and np.sign(rate) != side:
            return None
    return motion, trial


def at_zero(network, theta):
    hidden, inputs, _ = network.values(theta)
    return [
        (layer, int(sample), int(unit))
        for layer, z in enumerate(hidden)
        for sample, unit in np.argwhere(np.abs(z) < _ZERO)
        if np.any(inputs[layer][sample] != 0.0)
    ]


def follow(network, theta, times, longest=0.02):
    """The flow at these times."""
    hidden, _, _ = network.values(theta)
    mode = Mode([(z > 0).astype(float) for z in hidden])
    zeros = at_zero(network, theta)
    if zeros:
        mode = decided(network, theta, mode, zeros)
    record = Flow([], 0, len(mode.sliding), 0, len(mode.sliding))
    time, events = 0.0, 0
    for goal in times:
        while time < goal:
            events += 1
            if events > 300:
                raise Undecided("too many events")
            time, theta, mode = segment(network, theta, mode, time, goal, longest, record)
        record.points.append(theta)
    return record


def segment(network, theta, mode, time, goal, longest, record):
    """From one event to the next, or to the goal."""
    watched = watched_pairs(network, theta, mode)
    signs = np.array([1 if mode.masks[layer][s, u] > 0.5 else -1 for layer, s, u in watched])
    starts = np.cumsum([0, *(mask.size for mask in mode.masks)])
    widths = [mask.shape[1] for mask in mode.masks]
    places = np.array([starts[k] + s * widths[k] + u for k, s, u in watched], int)
    held = mode.copied()

    def velocity_at(_, point):
        motion, found = velocity(network, point, held)
        for group, mask in zip(held.sliding, found, strict=True):
            held.set_group(group, mask)  # the next search for masks starts here
        return motion

    def inside(point):
        """How far each watched z is on its side, and each sliding mask from its bounds."""
        hidden, _, _ = network.values(point)
        masks = velocity(network, point, held)[1] if held.sliding else np.zeros(0)
        z = np.concatenate([each.ravel() for each in hidden])[places]
        return np.concatenate([signs * z, masks, 1 - masks])

    solver = DOP853(velocity_at, time, theta, goal, rtol=1e-11, atol=1e-12, max_step=longest)
    while solver.status == "running":
        solver.step()
        beyond = np.flatnonzero(inside(solver.y) < 0)
        if beyond.size:
            curve, low, high = solver.dense_output(), solver.t_old, solver.t
            while low < (middle := (low + high) / 2) < high:
                if np.any(inside(curve(middle))[beyond] < 0):
                    high = middle
                else:
                    low = middle
            beyond = beyond[inside(curve(high))[beyond] < 0]
            return high, curve(high), event(network, curve(high), held, watched, beyond, record)
    return goal, solver.y, held


def watched_pairs(network, theta, mode):
    """The z that can change their sign: not those that slide or that nothing goes into."""
    hidden, inputs, _ = network.values(theta)
    return [
        pair
        for layer, z in enumerate(hidden)
        for pair in product([layer], range(z.shape[0]), range(z.shape[1]))
        if pair not in mode.along and network.is_fed(inputs, pair, mode.along)
    ]


def event(network, theta, mode, watched, beyond, record):
    """The mode after these of the watched z, or of the sliding masks, went beyond their bounds."""
    hidden, inputs, _ = network.values(theta)
    count, groups = len(watched), len(mode.sliding)
    leaving = []
    for i in beyond[beyond >= count] - count:
        side = BELOW if i < groups else ABOVE
        leaving += [(pair, side * turn) for pair, turn in mode.sliding[i % groups]]
    crossed = [watched[i] for i in beyond[beyond < count]]
    if crossed:  # multiples of each other cross together, but for rounding
        crossed = [(k, s, u) for k, s, u in watched if abs(hidden[k][s, u]) < _ZERO]
    zeros = [*crossed, *mode.along]
    # What nothing goes into, or will not, wakes or falls asleep with the units that cross.
    for layer, mask in enumerate(mode.masks):
        for pair in product([layer], range(mask.shape[0]), range(mask.shape[1])):
            if pair not in zeros and not network.is_fed(inputs, pair, zeros):
                zeros.append(pair)
    new = decided(network, theta, mode, zeros, leaving)
    entered = set(new.along) - set(mode.along)
    record.entered += len(entered)
    record.left += len(set(mode.along) - set(new.along))
    record.crossings += len(set(crossed) - entered)
    record.most_sliding = max(record.most_sliding, len(new.along))
    return new
