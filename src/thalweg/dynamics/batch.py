"""Many descents side by side: the compiled loop, what it records, and how blocks are run.

Runs are laid side by side in *lanes* along the last axis of each array and advance in lockstep; a
full set of lanes is a block, and each core works on one block at a time. How many lanes a block has
depends on the objective and its weights' shapes alone, and a block that is not full is padded: so
one compiled loop serves every batch, and a run's numbers are bitwise independent of the batch.
"""

import os
import threading
import time as clock
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thalweg._checks import InputError
from thalweg._quantity import NEVER
from thalweg._sizes import NUMBER, require_memory
from thalweg._typing import AnyWeights
from thalweg.objective import AbstractObjective
from thalweg.optimisers import PLAIN, AbstractOptimiser

Observe = Callable[[AnyWeights], Any]
"""A function of one network's weights; one with a method `in_lanes` is given a whole block."""
Progress = Callable[[int, int], None]

RECORD_LIMIT = 8 * 2**30
"""Recordings above this many bytes are refused."""

# Blocks of 100 runs of a small linear network stay in a core's second-level cache and are long
# enough for SIMD (measured: 64 to 128 are alike, 200 is four times slower). Other networks gain
# little from company: their products are called one by one. A large one fills the machine alone.
_LINEAR_LANES, _OTHER_LANES = 100, 8
_WIDEST_IN_LANES, _MOST_OPERATIONS_IN_LANES = 32, 1_200_000
_CALL_SECONDS = 0.5  # how long one compiled call may take before interrupts and progress get a turn
_BUFFER_BYTES = 4 * 2**20  # what one compiled call may record before it is copied out


def lanes_of(objective: AbstractObjective, weights: AnyWeights = None) -> int:
    """How many runs share a block; a function of the objective and its weights' shapes alone."""
    linear = objective.linear
    if linear is not None:
        return _LINEAR_LANES if max(linear.widths) <= _WIDEST_IN_LANES else 1
    return _OTHER_LANES if objective.operations(weights) <= _MOST_OPERATIONS_IN_LANES else 1


def block_operations(
    objective: AbstractObjective, weights: AnyWeights = None, *, lanes: int | None = None
) -> int:
    """Roughly how many operations a step takes: of a whole block, or of one with so many lanes."""
    depth, size = counts_of(objective, weights)
    lanes = lanes_of(objective, weights) if lanes is None else lanes
    # Calls cost too, and where a step is a few products of large matrices with vectors, so does
    # reading the matrices.
    overhead = 2_000 * depth + (30 * size if lanes == 1 else 0)
    return lanes * objective.operations(weights) + overhead


def counts_of(objective: AbstractObjective, weights: AnyWeights = None) -> tuple[int, int]:
    """How many arrays and how many numbers are trained; a network knows without its weights."""
    arrays = jax.tree.leaves(weights)
    shapes = [array.shape for array in arrays] if arrays else objective.shapes
    return len(shapes), sum(map(prod, shapes))


# --- the compiled loop ---------------------------------------------------------------------------


class _State(eqx.Module):
    """A block in flight, with the lanes last.

    Attributes:
        weights: the weights.
        memory: what the optimiser keeps from step to step.
        survived: how many steps began at a finite loss.
    """

    weights: AnyWeights
    memory: Any
    survived: Int[Array, " lanes"]


class Iteration(eqx.Module):
    """What is descended, and how."""

    objective: AbstractObjective
    optimiser: AbstractOptimiser = PLAIN


def _value_and_gradient(
    objective: AbstractObjective, weights: AnyWeights
) -> tuple[Array, AnyWeights]:
    if jax.tree.leaves(weights)[0].shape[-1] > 1:
        return objective.value_and_gradient_in_lanes(weights)
    one = jax.tree.map(lambda array: array[..., 0], weights)
    value, gradient = objective.value_and_gradient(one)
    return value[None], jax.tree.map(lambda part: part[..., None], gradient)


def _step(iteration: Iteration, rates: Array, state: _State) -> tuple[Array, _State]:
    value, gradient = _value_and_gradient(iteration.objective, state.weights)
    in_lanes = jax.vmap(iteration.optimiser.direction, in_axes=-1, out_axes=-1)
    direction, memory = in_lanes(gradient, state.memory, state.weights)
    moved = jax.tree.map(lambda w, d: w - rates.astype(w.dtype) * d, state.weights, direction)
    return value, _State(moved, memory, state.survived + jnp.isfinite(value))


def _steps(iteration: Iteration, rates: Array, state: _State, count: Array) -> _State:
    """Many steps. Two in one round of the loop spare XLA a copy of all weights: 1.4 x faster."""

    def one(_: Array, state: _State) -> _State:
        return _step(iteration, rates, state)[1]

    def two(index: Array, state: _State) -> _State:
        return one(index, one(index, state))

    state = jax.lax.fori_loop(0, count // 2, two, state)
    return jax.lax.fori_loop(0, count % 2, one, state)


def _observation(observe: Observe | None, weights: AnyWeights) -> Any:
    if observe is None:
        return weights
    together = getattr(observe, "in_lanes", jax.vmap(observe, in_axes=-1, out_axes=-1))
    return together(weights)


@eqx.filter_jit
def _advance(
    iteration: Iteration,
    observe: Observe | None,
    rates: Float[Array, " lanes"],
    state: _State,
    buffers: Any,
    inner: Int[Array, ""],
    count: Int[Array, ""],
) -> tuple[_State, Any]:
    """`count` times: record, then take `inner` steps. Both counts are traced."""

    def record_and_go(index: Array, carry: tuple[_State, Any]) -> tuple[_State, Any]:
        state, (losses, observations) = carry
        seen = _observation(observe, state.weights)
        observations = jax.tree.map(lambda b, o: b.at[index].set(o), observations, seen)
        value, state = _step(iteration, rates, state)  # the loss comes with the gradient
        losses = losses.at[index].set(value.astype(losses.dtype))  # data may be more precise
        return _steps(iteration, rates, state, inner - 1), (losses, observations)

    return jax.lax.fori_loop(0, count, record_and_go, (state, buffers))


@eqx.filter_jit
def _look(iteration: Iteration, observe: Observe | None, state: _State) -> tuple[Any, Array]:
    """What there is to record at the last step, and how many steps had a finite loss with it."""
    value, _ = _value_and_gradient(iteration.objective, state.weights)
    return (value, _observation(observe, state.weights)), state.survived + jnp.isfinite(value)


# --- recording -----------------------------------------------------------------------------------


class Kept(eqx.Module):
    """All that a batch leaves behind, runs first."""

    loss: Float[np.ndarray, "*runs times"]
    observed: Any
    diverged_at: Int[np.ndarray, "*runs"]
    final: AnyWeights


@dataclass(frozen=True)
class Recorder:
    """Where a batch's records go, and how large the compiled loop's own buffers may be."""

    steps: Int[np.ndarray, " times"]
    record_every: int
    observe: Observe | None
    lanes: int
    kept: Kept
    buffers: Any

    @classmethod
    def for_runs(
        cls,
        lanes: int,
        starts: AnyWeights,
        observe: Observe | None,
        steps: int,
        record_every: int,
    ) -> "Recorder":
        """Make room for the records of these runs, or say that there is none."""
        arrays = jax.tree.leaves(starts)
        runs = arrays[0].shape[0]
        records = -(-steps // record_every) + 1  # multiples below the last step, and that one
        dtype = np.result_type(*arrays)
        block = jax.tree.map(lambda a: jax.ShapeDtypeStruct((*a.shape[1:], lanes), a.dtype), starts)
        seen = jax.eval_shape(lambda weights: _observation(observe, weights), block)
        one = (jax.ShapeDtypeStruct((lanes,), dtype), seen)
        nbytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one))
        numbers = nbytes // lanes * runs * records // NUMBER
        total = NUMBER * numbers
        if total > RECORD_LIMIT:
            raise InputError(
                f"The recording must stay below {RECORD_LIMIT / 2**30:.0f} GiB: {runs} runs x "
                f"{records} records take {total / 2**30:.1f} GiB; raise `record_every` or "
                "give `observe`."
            )
        require_memory(
            f"The recording of {runs} runs x {records} records", numbers,
            "raise `record_every` or give `observe`",
        )  # fmt: skip
        # Few sizes, so that few loops are compiled; a large buffer is costly to pass around.
        wanted = next(size for size in (1, 16, 256) if size >= min(records - 1, 256))
        capacity = int(np.clip(_BUFFER_BYTES // nbytes, 1, wanted))
        buffers = jax.tree.map(lambda leaf: np.zeros((capacity, *leaf.shape), leaf.dtype), one)

        def room(leaf: Any) -> np.ndarray:
            return np.empty((runs, records, *leaf.shape[:-1]), leaf.dtype)

        kept = Kept(
            loss=room(one[0]),
            observed=jax.tree.map(room, one[1]),
            diverged_at=np.empty(runs, int),
            final=jax.tree.map(np.empty_like, starts),
        )
        recorded = np.append(np.arange(0, steps, record_every), steps)
        return cls(recorded, record_every, observe, lanes, kept, buffers)

    def write(self, runs: slice, first: int, count: int, records: Any) -> None:
        """Copy `count` records (records first, lanes last) of a block's real runs."""
        real = runs.stop - runs.start
        goal = (self.kept.loss, self.kept.observed)
        for room, leaf in zip(jax.tree.leaves(goal), jax.tree.leaves(records), strict=True):
            room[runs, first : first + count] = np.moveaxis(np.asarray(leaf)[:count], -1, 0)[:real]


class _Meter:
    """Counts steps over all blocks, and passes on an interrupt to the threads."""

    def __init__(self, total: int, progress: Progress | None):
        self.stopped = threading.Event()
        self._total, self._progress = total, progress
        self._done, self._lock = 0, threading.Lock()

    def add(self, steps: int) -> None:
        """Note steps that were taken."""
        with self._lock:
            self._done += steps
            if self._progress is not None:
                self._progress(self._done, self._total)


def run_blocks(
    iteration: Iteration,
    starts: AnyWeights,
    rates: Float[np.ndarray, " runs"],
    recorder: Recorder,
    progress: Progress | None,
) -> None:
    """Run all blocks, one per core at a time; compiled code runs outside Python's lock."""
    runs, lanes = rates.size, recorder.lanes
    blocks = [slice(i, min(i + lanes, runs)) for i in range(0, runs, lanes)]
    meter = _Meter(runs * int(recorder.steps[-1]), progress)
    with ThreadPoolExecutor(min(len(blocks), os.cpu_count() or 1)) as pool:
        try:
            work = [
                pool.submit(_run_block, iteration, starts, rates, recorder, block, meter)
                for block in blocks
            ]
            for future in work:
                future.result()
        except BaseException:
            meter.stopped.set()
            raise


def _run_block(
    iteration: Iteration,
    starts: AnyWeights,
    rates: Float[np.ndarray, " runs"],
    recorder: Recorder,
    runs: slice,
    meter: _Meter,
) -> None:
    """Run one block from start to end, recording as it goes."""
    real, lanes = runs.stop - runs.start, recorder.lanes
    places = np.minimum(np.arange(runs.start, runs.start + lanes), runs.stop - 1)  # pad: last run
    weights = jax.tree.map(lambda array: jnp.asarray(np.moveaxis(array[places], 0, -1)), starts)
    memory = jax.vmap(iteration.optimiser.init, in_axes=-1, out_axes=-1)(weights)
    state = _State(weights, memory, jnp.zeros(lanes, int))
    lane_rates = jnp.asarray(rates[places])
    capacity = recorder.buffers[0].shape[0]
    pace = _Pace(int(recorder.steps[-1]), recorder.record_every, capacity)
    for first, inner, count in pace:
        if meter.stopped.is_set():
            return
        state, records = _advance(
            iteration, recorder.observe, lane_rates, state, recorder.buffers,
            jnp.asarray(inner), jnp.asarray(count),
        )  # fmt: skip
        if first is not None:
            recorder.write(runs, first, count, records)
        state.survived.block_until_ready()
        meter.add(real * inner * count)
    last, survived = _look(iteration, recorder.observe, state)
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[None], last)
    recorder.write(runs, recorder.steps.size - 1, 1, last)
    survived = np.asarray(survived)[:real]  # all steps and the last look, or up to the divergence
    recorder.kept.diverged_at[runs] = np.where(survived > recorder.steps[-1], NEVER, survived)
    ends = (jax.tree.leaves(tree) for tree in (recorder.kept.final, state.weights))
    for room, array in zip(*ends, strict=True):
        room[runs] = np.moveaxis(np.asarray(array), -1, 0)[:real]


@dataclass
class _Pace:
    """Cuts a run into calls of about `_CALL_SECONDS`: (index of the first record, inner, count).

    A call that starts between two records has no record of its own: its index is None.
    """

    steps: int
    record_every: int
    capacity: int

    def __iter__(self) -> Iterator[tuple[int | None, int, int]]:
        done, budget = 0, 64
        while done < self.steps:
            started = clock.perf_counter()
            index, past = divmod(done, self.record_every)
            whole = min((self.steps - done) // self.record_every, budget // self.record_every)
            if past == 0 and whole > 0:
                inner, count = self.record_every, min(whole, self.capacity)
            else:
                inner, count = min(budget, self.steps - done, self.record_every - past), 1
            yield (index if past == 0 else None), inner, count
            done += inner * count
            ratio = _CALL_SECONDS / max(clock.perf_counter() - started, 1e-9)
            budget = max(1, int(inner * count * min(max(ratio, 0.25), 64.0)), budget // 4)
