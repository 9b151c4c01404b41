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

    def arrays(self, theta):
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
        return self.slopes_of_loss(theta, masks) + self.decay * theta

    def slopes_of_loss(self, theta, masks):
        """Those in the entries of all matrices."""
        _, inputs, outputs = self.values(theta, masks)
        weights = self.arrays(theta)
        back = 2 * self.scale * (outputs - self.y) / len(self.x)
        found = []
        for layer in reversed(range(len(weights))):
            found.append((back.T @ inputs[layer]).ravel())
            if layer:
                back = (back @ weights[layer]) * self.activate(masks[layer - 1])
        return np.concatenate(found[::-1])

    def slope(self, theta, masks, inputs, pair):
        """The gradient of one z."""
        layer, sample, unit = pair
        weights = self.arrays(theta)
        parts = [np.zeros(a * b) for a, b in self.shapes]
        back = np.eye(self.shapes[layer][0])[unit]
        for below in reversed(range(layer + 1)):
            parts[below] = np.outer(back, inputs[below][sample]).ravel()
            if below:
                back = (back @ weights[below]) * self.activate(masks[below - 1][sample])
        return np.concatenate(parts)

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

    def arrays(self, theta):
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
            [np.bincount(p[p >= 0], m.reshape(p.shape)[p >= 0], p.max() + 1) for p, m in pairs]
        )

    def gradient(self, theta, masks):
        return self.tied(self.split(self.slopes_of_loss(theta, masks))) + self.decay * theta

    def slope(self, theta, masks, inputs, pair):
        return self.tied(self.split(super().slope(theta, masks, inputs, pair)))

    def split(self, entries):
        return np.split(entries, np.cumsum([pattern.size for pattern in self.patterns])[:-1])

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
        back = 2 * self.scale * (outputs - self.y) / len(self.x)
        return np.einsum("so,sow->w", back, slope) + self.decay * theta

    def slope(self, theta, masks, inputs, pair):
        layer, sample, unit = pair
        return self.passed(theta, masks, jacobian=True)[1][layer][sample, unit]

    def is_fed(self, inputs, pair, zeros):
        return True  # by its bias


@dataclass
class Mode:
    """The sides of all z, and the groups of z that stay zero with one mask."""

    masks: list
    sliding: list = field(default_factory=list)

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
    mode = Mode([mask.copy() for mask in mode.masks], mode.sliding)
    found = np.array([group_mask(mode, group) for group in mode.sliding])
    # The rates of z are affine in each mask alone: Newton's method, which is exact for one layer.
    for _ in range(30):
        base, columns = sliding_rates(network, theta, mode), []
        for group, mask in zip(mode.sliding, found, strict=True):
            mode.set_group(group, mask + 1e-3)
            columns.append((sliding_rates(network, theta, mode) - base) / 1e-3)
            mode.set_group(group, mask)
        change = np.linalg.lstsq(np.array(columns).T, -base, rcond=1e-12)[0]
        found = found + change
        for group, mask in zip(mode.sliding, found, strict=True):
            mode.set_group(group, mask)
        if np.abs(change).max() < 1e-13 * max(1.0, np.abs(found).max()):
            break
    return -network.gradient(theta, mode.masks), found


def group_mask(mode, group):
    (layer, sample, unit), orientation = group[0]
    mask = mode.masks[layer][sample, unit]
    return mask if orientation > 0 else 1 - mask


def sliding_rates(network, theta, mode, masks=None):
    """How fast one z of each sliding group moves, when it is pulled back to zero."""
    if masks is not None:
        mode = Mode([mask.copy() for mask in mode.masks], mode.sliding)
        for group, mask in zip(mode.sliding, masks, strict=True):
            mode.set_group(group, mask)
    hidden, inputs, _ = network.values(theta, mode.masks)
    motion = -network.gradient(theta, mode.masks)
    found = []
    for (pair, _), *_others in mode.sliding:
        layer, sample, unit = pair
        own = network.slope(theta, mode.masks, inputs, pair) @ motion
        found.append(own + 20.0 * hidden[layer][sample, unit])
    return np.array(found)


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
        trial = tried(network, theta, mode, groups, sides, derived, known)
        if trial is not None:
            found.append((velocity(network, theta, trial)[0], trial))
    if not found or any(np.linalg.norm(other - found[0][0]) > _STILL for other, _ in found):
        raise Undecided(f"{len(found)} modes for {primary}")
    return found[0][1]


def tried(network, theta, mode, groups, sides, derived, known):
    """The mode with these sides, if the flow keeps to them; None if not."""
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
    return trial


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
    signs = [1 if mode.masks[layer][s, u] > 0.5 else -1 for layer, s, u in watched]
    held = Mode([mask.copy() for mask in mode.masks], mode.sliding)

    def velocity_at(_, point):
        motion, found = velocity(network, point, held)
        for group, mask in zip(held.sliding, found, strict=True):
            held.set_group(group, mask)  # the next search for masks starts here
        return motion

    def inside(point):
        """How far each watched z is on its side, and each sliding mask from its bounds."""
        hidden, _, _ = network.values(point)
        masks = velocity(network, point, held)[1]
        values = [sign * hidden[k][s, u] for sign, (k, s, u) in zip(signs, watched, strict=True)]
        return np.array([*values, *masks, *(1 - masks)])

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
