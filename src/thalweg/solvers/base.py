"""What a solver is: how one gradient flow is followed from one start.

A solver takes a `Task` and returns a `Solution`; steps, stages, choices and whatever structure of
the objective it uses are its own affair. The least that a new one must define is `solve`:

    class RungeKutta4(AbstractSolver):
        step: float

        def solve(self, task):
            run = self.walk(task)
            if not task.estimate_error:
                return run
            return run.compared_with(RungeKutta4(self.step / 2).walk(task), task)

where `walk` ends in `Solution.of(task, weights, ...)`, which computes the loss and refuses a run
that did not arrive. Its error is the distance to a companion that is more accurate, as above,
unless the solver knows it otherwise. Solvers that are one loop over one long vector derive from
`thalweg.solvers.adaptive.AbstractAdaptiveSolver` instead, which does all of this.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg._typing import AnyWeights, Scalar
from thalweg.objective import AbstractObjective


class Work(eqx.Module):
    """How often the objective's derivatives were evaluated; NaN where it was not counted."""

    gradients: Any
    products: Any
    hessians: Any

    @classmethod
    def of(cls, gradients: Any = 0, products: Any = 0, hessians: Any = 0) -> "Work":
        """The counts as arrays."""
        return cls(*(jnp.asarray(count, int) for count in (gradients, products, hessians)))

    def __add__(self, other: "Work") -> "Work":
        return jax.tree.map(jnp.add, self, other)


class FlowError(RuntimeError):
    """The flow could not be followed to the end; the message is one sentence with the fix.

    `work` is what was spent on it.
    """

    def __init__(self, message: str, work: Work | None = None):
        super().__init__(message)
        self.work = Work.of() if work is None else work


class Task(eqx.Module):
    """What is to be followed from where, at which times, and how accurately.

    Attributes:
        objective: what is descended.
        start: the weights at time 0.
        times: when the weights are recorded; they increase, and the first may be 0.
        rtol: the relative tolerance of each step.
        atol: the absolute tolerance of each step.
        steady: stop where less than this length is left of the trajectory; None: never. A solver
            that cannot tell goes on to the end.
        max_steps: give up after so many steps.
        estimate_error: whether the error is wanted.
    """

    objective: AbstractObjective
    start: AnyWeights
    times: Float[Array, " times"]
    rtol: Scalar
    atol: Scalar
    steady: Scalar | None
    max_steps: int
    estimate_error: bool


class Solution(eqx.Module):
    """The weights of one flow at the times of its task, and what is known of them.

    Attributes:
        weights: the weights at those times, which are the first axis of every array.
        loss: f at those times.
        error: the estimated distance to the exact flow; NaN where it was not asked for.
        solver: the name of the solver, of the one that was chosen where there was a choice.
        work: the derivatives that it took, in rejected steps too.
        companion_work: what the companion took on top of that.
        steps: the number of accepted steps.
        steady_at: the time from which on the weights are constant; NaN where they never are.
        records: what else the solver knows of the run, by name: numbers, or an array over times.
    """

    weights: AnyWeights
    loss: Float[np.ndarray, " times"]
    error: Float[np.ndarray, " times"]
    solver: str
    work: Work
    companion_work: Work
    steps: int
    steady_at: float
    records: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        task: Task,
        weights: AnyWeights,
        *,
        solver: str,
        work: Work,
        steps: int,
        reached: float | None = None,
        steady_at: float = np.nan,
        records: Mapping[str, Any] | None = None,
    ) -> "Solution":
        """The solution of a task with these weights, if they came to the last time.

        Args:
            task: what was to be followed.
            weights: the weights at the task's times; NaN where it did not arrive.
            solver: the name of the solver.
            work: the derivatives that it took.
            steps: the number of accepted steps.
            reached: the time that it came to, for the message; the last recorded one if None.
            steady_at: the time from which on the weights are constant.
            records: what else the solver knows of the run.

        Raises:
            FlowError: if a loss is not finite.
        """
        along = jax.tree.map(padded, weights)
        loss = np.asarray(_loss_along(task.objective, along))[: task.times.size]
        if not np.all(np.isfinite(loss)):
            if reached is None:
                before = np.asarray(task.times)[: np.argmin(np.isfinite(loss))]
                reached = float(before[-1]) if before.size else 0.0
            raise FlowError(_did_not_arrive(task, solver, reached), work)
        return cls(
            weights=jax.tree.map(np.asarray, weights),
            loss=loss,
            error=np.full(loss.shape, np.nan),
            solver=solver,
            work=work,
            companion_work=Work.of(),
            steps=steps,
            steady_at=float(steady_at),
            records={} if records is None else records,
        )

    def compared_with(self, companion: "Solution", task: Task) -> "Solution":
        """With the distance to a more accurate solution as the error.

        It is not below what rounding makes of so many steps. Where the run stopped as steady, what
        it left out may be as long as `steady`.
        """
        points, others = _as_rows(self.weights), _as_rows(companion.weights)
        rounding = np.finfo(points.dtype).eps * np.sqrt(1 + self.steps)
        error = np.linalg.norm(points - others, axis=1)
        error = np.maximum(error, rounding * np.linalg.norm(points, axis=1))
        if task.steady is not None:
            error = error + float(task.steady) * (np.asarray(task.times) > self.steady_at)
        return eqx.tree_at(
            lambda run: (run.error, run.companion_work), self, (error, companion.work)
        )


class AbstractSolver(eqx.Module):
    """How a gradient flow is followed; `solve` is all that one must define."""

    @property
    def name(self) -> str:
        """What it is called in results and messages."""
        return type(self).__name__.lower()

    @abstractmethod
    def solve(self, task: Task) -> Solution:
        """Follow one flow, with an estimate of its error where `task.estimate_error`.

        Raises:
            FlowError: if the last time could not be reached.
            InputError: if the solver cannot follow this objective.
        """


def padded(rows: Any) -> np.ndarray:
    """With the last one repeated up to a power of two: few numbers of rows are compiled for."""
    array = np.asarray(rows)
    more = (1 << (len(array) - 1).bit_length()) - len(array)
    return np.concatenate([array, np.repeat(array[-1:], more, axis=0)]) if more else array


@eqx.filter_jit
def _loss_along(objective: AbstractObjective, weights: AnyWeights) -> Float[Array, " times"]:
    return jax.lax.map(objective, jax.tree.map(jnp.asarray, weights))


def _as_rows(weights: AnyWeights) -> Float[np.ndarray, "times size"]:
    arrays = [np.asarray(array) for array in jax.tree.leaves(weights)]
    return np.concatenate([array.reshape(array.shape[0], -1) for array in arrays], axis=1)


def _did_not_arrive(task: Task, solver: str, reached: float) -> str:
    message = (
        f"The flow was followed to time {reached:.6g} of {float(task.times[-1]):.6g} only, by "
        f"{solver} steps with rtol={float(task.rtol):g}; raise `max_steps` ({task.max_steps}) or "
        "the tolerances, choose another `solver`, or stop earlier if the weights run off to "
        "infinity."
    )
    if not task.objective.smooth:
        message += (
            " The objective has kinks: where the flow slides along one, the number of steps grows "
            "like 1 / rtol. tw.solvers.Filippov() follows networks that declare them; for others, "
            "rtol=1e-3 or 1e-4 with solver=tw.solvers.Chebyshev() is what can be had."
        )
    return message
