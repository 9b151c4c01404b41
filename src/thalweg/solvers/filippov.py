"""Gradient flows across kinks: networks with (leaky) ReLU, followed as Filippov's solutions.

One step is the affair of `filippov_step`; here steps are chosen, and what they met is recorded. A
step's error e is held to the way that it goes,

    e <= rtol h max(|g|, mean speed so far),

so that the errors of all steps add up to about rtol times the length of the trajectory, and the
step may grow where the flow comes to rest. Steps end at the times that are recorded: inside of one
the velocity jumps, and no polynomial is second order there.

What a run says beside its error, at each of its times:

    crossings         kinks passed so far, each time counted
    sliding           kinks along which it slides
    ridge_distance    the least distance to a repelling kink since the time before; where the error
                      is larger, the exact flow may have passed it on the other side

and on request, for every sample and unit,

    slides            whether it slides along this kink
    crossed           how often it crossed this kink since the time before
"""

from concurrent.futures import ThreadPoolExecutor
from math import ceil

import equinox as eqx
import jax
import numpy as np
from typing_extensions import override

from thalweg._checks import InputError, described
from thalweg._typing import AnyWeights
from thalweg.objective.kinked import KinkedObjective
from thalweg.solvers.base import AbstractSolver, FlowError, Solution, Task, Work
from thalweg.solvers.filippov_step import State, Step, norm, start_at, step_from

_COMPANION = 4.0  # of the tolerance: half of the steps, and so far off that it sees 3 errors
_FINE = 0.1  # of the tolerance: how exactly the averages of a step are found
_SAFETY, _SHRINK, _GROW = 0.9, 0.3, 2.0
_FIRST = (
    0.1  # of sqrt(rtol) times the time in which the weights would change by as much as they are
)
_PATIENCE = 3  # how often a step is shortened whose averages are not found

_RECORDS = ("crossings", "sliding", "ridge_distance")
_WHICH = ("slides", "crossed")


class Filippov(AbstractSolver):
    """Steps of order 2 across kinks, each with masks that are averaged over it.

    For networks that declare where their kinks are: layered (leaky-)ReLU networks, whose weights
    may be shared, with biases and max pooling.

    Args:
        which: whether to record which kinks are crossed and slid along, not only how many.
    """

    which: bool = eqx.field(default=False, static=True)

    @override
    def solve(self, task: Task) -> Solution:
        if not task.estimate_error:
            return self._walk(task)
        looser = eqx.tree_at(lambda each: each.rtol, task, _COMPANION * task.rtol)
        plain = Filippov()
        with ThreadPoolExecutor(max_workers=2) as pool:
            found = pool.submit(self._walk, task), pool.submit(plain._walk, looser)
            run, companion = (each.result() for each in found)
        return run.compared_with(companion, task)

    def _walk(self, task: Task) -> Solution:
        objective = task.objective.kinked
        if objective is None:
            raise InputError(
                "`Filippov` follows networks that declare their kinks, layered ones with two "
                "slopes that differ, or max pooling, got "
                f"{described(task.objective)}; use tw.solvers.Auto()."
            )
        walk = _Walk(objective, task)
        points, records, pairs = [], [], []
        for time in np.asarray(task.times):
            records.append(walk.to(float(time)))
            points.append(walk.weights_at(float(time)))
            if self.which:
                pairs.append(walk.pairs())
        leaves, tree = jax.tree.flatten(task.start)
        stacks = (np.stack(each) for each in zip(*points, strict=True))
        arrays = [each.astype(leaf.dtype) for each, leaf in zip(stacks, leaves, strict=True)]
        named = zip(_RECORDS, zip(*records, strict=True), strict=True)
        which = zip(_WHICH, zip(*pairs, strict=True), strict=False)
        return Solution.of(
            task,
            jax.tree.unflatten(tree, arrays),
            solver=self.name,
            work=Work.of(gradients=ceil(objective.gradients)),
            steps=walk.accepted,
            reached=walk.time,
            records={name: np.array(values, float) for name, values in named}
            | {name: np.array(values) for name, values in which},
        )


def meets_kinks(task: Task) -> tuple[bool, Work]:
    """Whether a flow leaves the region of its start, as far as its steps can tell; and their cost.

    It is followed no farther than to the first kink that it meets.

    Raises:
        FlowError: if it met none, and did not come to its last time.
    """
    objective = task.objective.kinked
    assert objective is not None, "only asked where there are kinks"
    walk, goal = _Walk(objective, task), float(task.times[-1])
    while walk.time < goal and not walk.met and walk.may_step:
        walk.step(goal)
    work = Work.of(gradients=ceil(objective.gradients))
    if walk.time < goal and not walk.met:
        raise FlowError("The flow has met no kink so far.", work)
    return walk.met, work


def leaves_region(task: Task, weights: AnyWeights) -> tuple[bool, Work]:
    """Whether a kink lies between the start of a flow and some of its points; and the cost.

    Args:
        task: whose flow it is.
        weights: the points, along the first axis of every array.
    """
    objective = task.objective.kinked
    assert objective is not None, "only asked where there are kinks"
    leaves = [np.asarray(array, float) for array in jax.tree.leaves(weights)]
    starts = tuple(np.asarray(array, float) for array in jax.tree.leaves(task.start))
    above = objective.start(starts).z > 0
    points = zip(*leaves, strict=True)
    met = any(np.any((objective.start(point).z > 0) != above) for point in points)
    return met, Work.of(gradients=ceil(objective.gradients))


class _Walk:
    """A flow on its way: where it is, how long its next step is, and what it met."""

    def __init__(self, objective: KinkedObjective, task: Task):
        self._objective, self._rtol = objective, float(task.rtol)
        self._left = task.max_steps
        self.state: State = start_at(
            objective, tuple(np.asarray(array, float) for array in jax.tree.leaves(task.start))
        )
        self.time, self.accepted = 0.0, 0
        self._length, self._crossings, self._unsettled = 0.0, 0, 0
        self._crossed = np.zeros(self.state.point.z.shape, np.uint16)
        point = self.state.point
        speed = max(norm(point.gradient), np.finfo(float).tiny)
        size = 1.0 + norm(point.forward.weights)
        self._h = min(float(task.times[-1]), _FIRST * np.sqrt(self._rtol) * size / speed)

    def to(self, goal: float) -> tuple[int, int, float]:
        """Go on to this time: crossings so far, kinks that slide, and the least ridge distance."""
        ridge = np.inf
        while self.time < goal and self.may_step:
            ridge = min(ridge, self.step(goal))
        return self._crossings, self.state.sliding.size, ridge

    @property
    def may_step(self) -> bool:
        """Whether it has steps left."""
        return self._left > 0

    @property
    def met(self) -> bool:
        """Whether it has crossed a kink, or slides along one."""
        return self._crossings > 0 or self.state.sliding.size > 0

    def step(self, goal: float) -> float:
        """Try a step, no farther than to this time; the least distance to a ridge in it."""
        left = goal - self.time
        # Two like steps rather than a long one and what it leaves.
        h = left if left <= self._h else left / 2 if left < 2 * self._h else self._h
        step = step_from(self._objective, self.state, h, _FINE * self._rtol)
        self._left -= 1
        if not self._accepts(step, h):
            return np.inf
        self.time = goal if h == left else self.time + h
        self.state = step.state
        self._length += step.length
        self._crossings += step.crossed.size
        self._crossed.flat[step.crossed] += 1
        self.accepted += 1
        return step.ridge if step.settled else 0.0

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Which kinks slide, and how often each was crossed since this was last asked."""
        slides = np.zeros(self._crossed.shape, bool)
        slides.flat[self.state.sliding] = True
        crossed, self._crossed = self._crossed, np.zeros_like(self._crossed)
        return slides, crossed

    def weights_at(self, goal: float) -> tuple[np.ndarray, ...]:
        """The weights where it is; NaN where it did not come to this time."""
        weights = self.state.point.forward.weights
        return weights if self.time == goal else tuple(np.full_like(w, np.nan) for w in weights)

    def _accepts(self, step: Step, h: float) -> bool:
        """Whether the step is good enough; and the length of the next one, or of the next try."""
        if not step.settled and self._unsettled < _PATIENCE:
            self._unsettled += 1
            self._h = _SHRINK * h
            return False
        mean = self._length / self.time if self.time else 0.0
        allowed = self._rtol * max(step.length, h * mean)
        if step.error <= allowed:
            factor = _GROW if step.error == 0 else _SAFETY * np.sqrt(allowed / step.error)
            # A step that was cut short at a recorded time says little of what a full one may be.
            grown = h * float(np.clip(factor, _SHRINK, _GROW))
            self._h = max(self._h, grown) if h < self._h else grown
            self._unsettled = 0
            return True
        factor = _SAFETY * np.sqrt(allowed / step.error) if np.isfinite(step.error) else _SHRINK
        self._h = h * float(np.clip(factor, _SHRINK, _SAFETY))
        return False
