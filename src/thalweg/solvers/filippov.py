"""Gradient flows across kinks: networks with (leaky) ReLU, followed as Filippov's solutions."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import numpy as np
from typing_extensions import override

from thalweg._checks import InputError, described
from thalweg.objective.kinked import KinkedObjective
from thalweg.solvers.base import AbstractSolver, Solution, Task, Work
from thalweg.solvers.filippov_step import State, Step, norm, step_from

_COMPANION = 0.25  # of the tolerance: twice the steps, a quarter of the error
_FINE = 0.1  # of the tolerance: how exactly the averages of a step are found
_SAFETY, _SHRINK, _GROW = 0.9, 0.3, 2.0


class Filippov(AbstractSolver):
    """Steps of order 2 with masks averaged over each (`filippov_step`)."""

    @override
    def solve(self, task: Task) -> Solution:
        run = self._walk(task)
        if not task.estimate_error:
            return run
        tighter = eqx.tree_at(lambda each: each.rtol, task, _COMPANION * task.rtol)
        return run.compared_with(self._walk(tighter), task)

    def _walk(self, task: Task) -> Solution:
        objective = task.objective.kinked
        if objective is None:
            raise InputError("no kinks")
        walk = _Walk(objective, task)
        walk.run()
        return walk.solution(task, self.name)


@dataclass
class _Walk:
    objective: KinkedObjective
    task: Task
    records: dict = field(default_factory=dict)

    def run(self):
        task, objective = self.task, self.objective
        times = np.asarray(task.times)
        tol = float(task.rtol)
        weights = tuple(np.asarray(a, float) for a in jax.tree.leaves(task.start))
        forward = objective.start(weights)
        masks = (forward.z > 0).astype(float)
        on = np.flatnonzero(forward.z == 0)
        on = on[objective.kinks.reach(forward, *np.divmod(on, masks.shape[1])) > 0]
        masks.flat[on] = 0.5
        state = State(objective.evaluate(objective.kinks.with_masks(forward, masks), masks), on)
        time, length = 0.0, 0.0
        g = norm(state.point.gradient)
        h = min(times[-1], 0.1 * np.sqrt(tol) * (1 + norm(weights)) / max(g, 1e-300))
        self.steps = self.tried = self.unsettled = 0
        self.points, rec = [], []
        crossed, ridge = 0, np.inf
        for goal in times:
            while time < goal and self.tried < task.max_steps:
                left = goal - time
                step_h = left if left <= h else (left / 2 if left < 2 * h else h)
                step = step_from(objective, state, step_h, _FINE * tol)
                self.tried += 1
                speed = max(step.length / step_h, length / time if time else 0.0)
                size = step.error / (tol * step_h * speed) if step.error > 0 else 0.0
                factor = _SAFETY / np.sqrt(size) if size > 0 else _GROW
                if size > 1 or not np.isfinite(size):
                    h = step_h * np.clip(factor, _SHRINK, 0.9) if np.isfinite(factor) else step_h * _SHRINK
                    continue
                self.unsettled += not step.settled
                h = max(h, step_h * min(factor, _GROW)) if step_h < h and factor > 1 else step_h * np.clip(factor, _SHRINK, _GROW)
                state, time, length = step.state, (goal if step_h == left else time + step_h), length + step.length
                crossed += step.crossed
                ridge = min(ridge, step.ridge)
                self.steps += 1
            self.points.append(state.point.forward.weights)
            rec.append((crossed, state.sliding.size, ridge))
            ridge = np.inf
        self.reached = time
        c, s, r = (np.array(v, float) for v in zip(*rec, strict=True))
        self.records = {"crossings": c, "sliding": s, "ridge_distance": r, "unsettled": self.unsettled}

    def solution(self, task, name):
        arrays = [np.stack(a) for a in zip(*self.points, strict=True)]
        weights = jax.tree.unflatten(jax.tree.structure(task.start), arrays)
        return Solution.of(task, weights, solver=name, work=Work.of(gradients=int(np.ceil(self.objective.gradients))),
            steps=self.steps, reached=self.reached, records=self.records)
