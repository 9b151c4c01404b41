"""Solvers that adapt their steps to tolerances, over the weights as one long vector.

One with a tenth of the tolerances is the companion that tells the error.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int
from typing_extensions import override

from thalweg._typing import AnyWeights, Scalar
from thalweg.objective import AbstractObjective
from thalweg.solvers.base import AbstractSolver, Solution, Task, Work, padded

Vector = Float[Array, " size"]
Count = Int[Array, ""]

_COMPANION = 0.1  # the companion's tolerances, as a part of the asked ones


class FlatObjective(eqx.Module):
    """An objective as a function of one long vector: the arrays in turn, each row by row."""

    objective: AbstractObjective
    unravel: Callable[[Vector], AnyWeights] = eqx.field(static=True)

    def gradient(self, point: Vector) -> Vector:
        """The gradient."""
        return ravel_pytree(self.objective.gradient(self.unravel(point)))[0]

    def hvp(self, point: Vector, direction: Vector) -> Vector:
        """The Hessian, applied to a direction."""
        return ravel_pytree(self.objective.hvp(self.unravel(point), self.unravel(direction)))[0]

    def hessian(self, point: Vector) -> Float[Array, "size size"]:
        """The dense Hessian."""
        return self.objective.hessian(self.unravel(point))


class Goal(eqx.Module):
    """When a flow is recorded, how accurately it is followed, and where it may stop."""

    times: Float[Array, " times"]
    rtol: Scalar
    atol: Scalar
    steady: Scalar | None
    max_steps: Any

    @property
    def end(self) -> Scalar:
        """The last time."""
        return self.times[-1]


class Followed(eqx.Module):
    """The points at the output times, NaN where the integration did not arrive.

    From `steady_at` on, the point is constant because the flow has come to rest; NaN if it has not.
    """

    points: Float[Array, "times size"]
    work: Work
    accepted: Count
    reached: Scalar
    steady_at: Scalar


class AbstractAdaptiveSolver(AbstractSolver):
    """A solver that follows a flow of one long vector within tolerances.

    Where the number of steps must be known when the loop is compiled, `compiles_limit` is True.
    """

    compiles_limit: eqx.AbstractClassVar[bool]

    @abstractmethod
    def integrate(self, objective: FlatObjective, start: Vector, goal: Goal) -> Followed:
        """Follow the flow from time 0 to the last of the times; this is traced and compiled."""

    @override
    def solve(self, task: Task) -> Solution:
        run = self._follow(task)
        if not task.estimate_error:
            return run
        tolerances = (_COMPANION * task.rtol, _COMPANION * task.atol)
        tighter = eqx.tree_at(lambda each: (each.rtol, each.atol), task, tolerances)
        return run.compared_with(self._follow(tighter), task)

    def _follow(self, task: Task) -> Solution:
        limit = task.max_steps if self.compiles_limit else jnp.asarray(task.max_steps)
        times = jnp.asarray(padded(task.times))
        goal = Goal(times, task.rtol, task.atol, task.steady, limit)
        followed, weights = _integrate(self, task.objective, task.start, goal)
        return Solution.of(
            task,
            jax.tree.map(lambda array: np.asarray(array)[: task.times.size], weights),
            solver=self.name,
            work=followed.work,
            steps=int(followed.accepted),
            reached=float(followed.reached),
            steady_at=float(followed.steady_at),
        )


@eqx.filter_jit
def _integrate(
    solver: AbstractAdaptiveSolver, objective: AbstractObjective, weights: AnyWeights, goal: Goal
) -> tuple[Followed, AnyWeights]:
    start, unravel = ravel_pytree(weights)
    followed = solver.integrate(FlatObjective(objective, unravel), start, goal)
    return followed, jax.vmap(unravel)(followed.points)
