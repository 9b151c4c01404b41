"""Gradient descent, of one run or a whole batch of them.

    weights_{k+1} = weights_k - learning_rate * direction_k,    time t = learning_rate * k,

where the direction is the gradient, or what another optimiser makes of it (`optimisers`).

A run that diverges goes on as NaN and does not affect other runs; the numbers of each are bitwise
independent of the batch.
"""

from math import prod
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import (
    InputError,
    as_floating,
    require_count,
    require_positive,
)
from thalweg._quantity import NEVER
from thalweg._sizes import compiling_seconds, computing_seconds, require_time
from thalweg._typing import AnyWeights, ManyAnyWeights
from thalweg.dynamics.batch import (
    AbstractEngine,
    Iteration,
    Observe,
    Progress,
    Recorder,
    block_operations,
    counts_of,
    lanes_of,
    run_blocks,
)
from thalweg.dynamics.compiled import CompiledEngine
from thalweg.dynamics.hosted import HostEngine
from thalweg.dynamics.native import native_engine
from thalweg.dynamics.starts import starts_of
from thalweg.dynamics.trajectory import AbstractTrajectory, network_objective
from thalweg.objective import AbstractObjective, Objective
from thalweg.optimisers import PLAIN, AbstractOptimiser, as_optimiser


class Descent(AbstractTrajectory):
    """A recorded run of descent, or a batch of them.

    Attributes:
        objective: what was descended.
        learning_rate: one per run.
        steps: the recorded steps, the same for all runs.
        times: learning_rate * step, which is the flow's time for plain descent alone: momentum
            beta travels as far in 1 - beta of it.
        weights: the weights at the recorded steps, in the structure that the objective takes;
            empty where `observe` was given.
        loss: f at the recorded steps.
        observed: what `observe` returned at the recorded steps, if it was given.
        diverged_at: the first step at which f is not finite; -1 where it always is.
        optimiser: how the gradient was used.
    """

    objective: AbstractObjective
    learning_rate: Float[np.ndarray, "*batch"]
    steps: Int[np.ndarray, " times"]
    times: Float[np.ndarray, "*batch times"]
    weights: AnyWeights
    loss: Float[np.ndarray, "*batch times"]
    observed: Any
    diverged_at: Int[np.ndarray, "*batch"]
    _final: AnyWeights
    optimiser: AbstractOptimiser = PLAIN

    @property
    @override
    def final(self) -> AnyWeights:
        return self._final

    @property
    def edge(self) -> Float[np.ndarray, "*batch"]:
        """The sharpness above which its optimiser is unstable; NaN where that is not known."""
        return self.optimiser.edge(self.learning_rate)

    @property
    def diverged(self) -> Bool[np.ndarray, "*batch"]:
        """Which runs diverged."""
        return np.asarray(self.diverged_at != NEVER)

    @override
    def at(self, times: Any) -> "Descent":
        index = self._records_at(np.atleast_1d(as_floating("times", times)).astype(float))
        axis = self.learning_rate.ndim
        chosen = (
            self.steps[index],
            np.take(self.times, index, axis=axis),
            np.take(self.loss, index, axis=axis),
            jax.tree.map(lambda array: np.take(array, index, axis=axis), self.weights),
        )
        return eqx.tree_at(lambda run: (run.steps, run.times, run.loss, run.weights), self, chosen)

    def _records_at(self, times: Float[np.ndarray, "..."]) -> Int[np.ndarray, " chosen"]:
        batch = self.learning_rate.shape
        try:
            own = np.broadcast_to(times, (*batch, times.shape[-1]))
        except ValueError as error:
            raise InputError(
                f"`times` must be a list, or have the runs' axes {batch} in front of it, got shape "
                f"{times.shape}."
            ) from error
        steps = (own / self.learning_rate[..., None]).reshape(-1, times.shape[-1])
        wanted = np.round(steps[0]).astype(int)
        # Times are products of a step and a rate, rounded; far less than a thousandth of a step.
        if not np.allclose(steps, wanted, rtol=0, atol=1e-3):
            raise InputError(
                "`times` must be learning_rate * step for the same whole steps in every run; a "
                "descent is not defined in between. Compare a flow at the descent's times instead."
            )
        index = np.searchsorted(self.steps, wanted)
        if not np.array_equal(np.take(self.steps, index, mode="clip"), wanted):
            raise InputError(
                f"`times` must be among the recorded ones: this run recorded {self.steps.size} "
                f"steps from {self.steps[0]} to {self.steps[-1]}; lower `record_every`."
            )
        return index


def plain_objective(run: Descent, what: str) -> Objective:
    """What a run descended, for that which only speaks of plain descent of a network's loss."""
    if not run.optimiser.plain:
        raise InputError(
            f"{what} is about plain gradient descent, got a run of "
            f"{type(run.optimiser).__name__}; descend without `optimiser`."
        )
    return network_objective(run, what)


def nothing(weights: AnyWeights) -> tuple[()]:
    """To be observed where only the loss counts: no weights are kept along the way."""
    return ()


@checked
def descend(
    objective: AbstractObjective,
    weights: ManyAnyWeights,
    *,
    learning_rate: Any,
    steps: Any,
    record_every: Any = 1,
    optimiser: Any = PLAIN,
    observe: Observe | None = None,
    progress: Progress | None = None,
) -> Descent:
    """Run gradient descent from one start, or from a batch of starts and learning rates.

    Args:
        objective: what to descend.
        weights: the start, a pytree that the objective takes; leading axes that all its arrays
            share are batch axes, where the objective declares its `shapes`.
        learning_rate: a number or an array; its axes broadcast against the batch axes, so a grid
            is `learning_rate[:, None]` against starts with one batch axis.
        steps: how many steps to take.
        record_every: record at step 0, at every multiple of this, and at the last step.
        optimiser: what makes a direction of the gradient, one of `tw.optimisers` or an optax
            transformation without a learning rate, such as optax.scale_by_rms().
        observe: record this function of the weights instead of the weights. A function that is
            defined anew at each call is compiled anew. One with a method `in_lanes` (such as
            `curvature.SpectrumObserver`) is given many networks at once, along the last axis.
        progress: called with the steps done and to do, over all runs.
    """
    steps = require_count("steps", steps)
    record_every = require_count("record_every", record_every)
    require_positive("learning_rate", learning_rate)
    batch, starts, rates = _side_by_side(objective, weights, learning_rate)
    first = jax.tree.map(lambda array: array[0], starts)
    optimiser = as_optimiser(optimiser, first)
    lanes = lanes_of(objective, first)
    _require_time(objective, first, lanes, rates.size, steps)
    iteration = Iteration(objective, optimiser)
    engine = _engine(iteration, observe, starts, steps)
    recorder = Recorder.for_runs(engine, starts, steps, record_every)
    run_blocks(engine, starts, rates, recorder, progress)
    unflat = jax.tree.map(lambda array: array.reshape((*batch, *array.shape[1:])), recorder.kept)
    rates = rates.reshape(batch)
    return Descent(
        objective=objective,
        learning_rate=rates,
        steps=recorder.steps,
        times=rates[..., None] * recorder.steps,
        weights=unflat.observed if observe is None else (),
        loss=unflat.loss,
        observed=None if observe is None else unflat.observed,
        diverged_at=unflat.diverged_at,
        _final=unflat.final,
        optimiser=optimiser,
    )


def _engine(
    iteration: Iteration, observe: Observe | None, starts: AnyWeights, steps: int
) -> AbstractEngine:
    if iteration.objective.on_host:
        return HostEngine(iteration, observe)
    first = jax.tree.map(lambda array: array[0], starts)
    native = native_engine(iteration, observe, starts, steps)
    return native or CompiledEngine(iteration, observe, lanes_of(iteration.objective, first))


def _require_time(
    objective: AbstractObjective, start: AnyWeights, lanes: int, runs: int, steps: int
) -> None:
    depth, _ = counts_of(objective, start)
    blocks = -(-runs // lanes)
    each = block_operations(objective, start, lanes=lanes)
    require_time(
        f"{runs} runs of {steps} steps",
        compiling_seconds(depth) + computing_seconds(steps * blocks * each),
        "lower `steps`, or take a smaller network",
    )


def _side_by_side(
    objective: AbstractObjective, weights: AnyWeights, learning_rate: Any
) -> tuple[tuple[int, ...], AnyWeights, Float[np.ndarray, " runs"]]:
    """The batch's shape, and its starts and learning rates along one axis of runs."""
    starts = starts_of(objective, weights)
    rates = np.asarray(learning_rate, dtype=np.result_type(*jax.tree.leaves(starts.points)))
    try:
        batch = np.broadcast_shapes(rates.shape, starts.batch)
    except ValueError as error:
        raise InputError(
            f"`learning_rate` with shape {rates.shape} must broadcast against the batch axes "
            f"{starts.batch} of the weights; for a grid give learning_rate[:, None]."
        ) from error
    runs = prod(batch)
    if not runs:
        raise InputError(f"There must be at least one run, got the batch axes {batch}.")
    points = jax.tree.map(
        lambda array: array.reshape(runs, *array.shape[len(batch) :]), starts.broadcast(batch)
    )
    return batch, points, np.broadcast_to(rates, batch).reshape(runs)
