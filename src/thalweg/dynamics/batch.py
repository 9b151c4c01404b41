"""Many descents side by side: the compiled loop, what it records, and how blocks are run.

Runs are laid side by side in *lanes* along the last axis of each array and advance in lockstep; a
full set of lanes is a block, and each core works on one block at a time. How many lanes a block has
depends on the objective alone, and a block that is not full is padded: so one compiled loop serves
every batch, and a run's numbers do not depend on its company, not to the last bit.
"""

import os
import threading
import time as clock
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thalweg._checks import InputError
from thalweg._sizes import NUMBER, require_memory
from thalweg._typing import Weights
from thalweg.dynamics.trajectory import Recorded
from thalweg.network import LinearNetwork
from thalweg.objective import Objective

Observe = Callable[[Weights], Any]
"""A function of one network's weights; one with a method `in_lanes` is given a whole block."""
Progress = Callable[[int, int], None]

RECORD_LIMIT = 8 * 2**30
"""Recordings above this many bytes are refused."""

# Blocks of 100 runs of a small linear network stay in a core's second-level cache and are long
# enough for SIMD (measured: 64 to 128 are alike, 200 is four times slower). Other networks gain
# little from company: their products are called one by one. A large one fills the machine alone.
_LINEAR_LANES, _OTHER_LANES = 100, 8
_WIDEST_IN_LANES, _LARGEST_IN_LANES = 32, 200_000
_CALL_SECONDS = 0.5  # how long one compiled call may take before interrupts and progress get a turn
_BUFFER_BYTES = 4 * 2**20  # what one compiled call may record before it is copied out


def lanes_of(objective: Objective) -> int:
    """How many runs share a block; a function of the objective alone, see above."""
    network = objective.network
    if isinstance(network, LinearNetwork):
        return _LINEAR_LANES if max(network.widths) <= _WIDEST_IN_LANES else 1
    work = network.size * objective.problem.inputs.shape[0]
    return _OTHER_LANES if work <= _LARGEST_IN_LANES else 1


def block_operations(objective: Objective, alone: bool = False) -> int:
    """Roughly how many operations a step takes: of a whole block, or of one network alone."""
    network, problem = objective.network, objective.problem
    outputs, features = problem.shape
    linear = isinstance(network, LinearNetwork)
    rows = min(outputs, features) if linear else problem.inputs.shape[0]
    lanes = 1 if alone else lanes_of(objective)
    # A product takes two operations per number, there are three for each layer; calls cost too, and
    # where a step is a few products of large matrices with vectors, so does reading the matrices.
    each = 6 * network.size * rows + 6 * outputs * features**2 * linear
    return lanes * each + 2_000 * network.depth + (30 * network.size if lanes == 1 else 0)


# --- the compiled loop ---------------------------------------------------------------------------


class _State(eqx.Module):
    """A block in flight: weights with the lanes last, and how many steps began at a finite loss."""

    weights: Weights
    survived: Int[Array, " lanes"]


def _value_and_gradient(objective: Objective, weights: Weights) -> tuple[Array, Weights]:
    if weights[0].shape[-1] > 1:
        return objective.value_and_gradient_in_lanes(weights)
    value, slopes = objective.value_and_gradient(tuple(array[..., 0] for array in weights))
    return value[None], tuple(slope[..., None] for slope in slopes)


def _step(objective: Objective, rates: Array, state: _State) -> tuple[Array, _State]:
    value, slopes = _value_and_gradient(objective, state.weights)
    moved = tuple(w - rates * s for w, s in zip(state.weights, slopes, strict=True))
    return value, _State(moved, state.survived + jnp.isfinite(value))


def _steps(objective: Objective, rates: Array, state: _State, count: Array) -> _State:
    """Many steps. Two in one round of the loop spare XLA a copy of all weights: 1.4 x faster."""

    def one(_: Array, state: _State) -> _State:
        return _step(objective, rates, state)[1]

    def two(index: Array, state: _State) -> _State:
        return one(index, one(index, state))

    state = jax.lax.fori_loop(0, count // 2, two, state)
    return jax.lax.fori_loop(0, count % 2, one, state)


def _observation(observe: Observe | None, weights: Weights) -> Any:
    if observe is None:
        return weights
    together = getattr(observe, "in_lanes", jax.vmap(observe, in_axes=-1, out_axes=-1))
    return together(weights)


@eqx.filter_jit
def _advance(
    objective: Objective,
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
        value, state = _step(objective, rates, state)  # the loss comes with the gradient
        losses = losses.at[index].set(value)
        return _steps(objective, rates, state, inner - 1), (losses, observations)

    return jax.lax.fori_loop(0, count, record_and_go, (state, buffers))


@eqx.filter_jit
def _look(objective: Objective, observe: Observe | None, state: _State) -> tuple[Any, Array]:
    """What there is to record at the last step, and how many steps had a finite loss with it."""
    value, _ = _value_and_gradient(objective, state.weights)
    return (value, _observation(observe, state.weights)), state.survived + jnp.isfinite(value)


# --- recording -----------------------------------------------------------------------------------


class Kept(eqx.Module):
    """All that a batch leaves behind, runs first."""

    loss: Float[np.ndarray, "*runs times"]
    observed: Any
    divergence_step: Int[np.ndarray, "*runs"]
    final: Recorded


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
        objective: Objective,
        starts: Recorded,
        observe: Observe | None,
        steps: int,
        record_every: int,
    ) -> "Recorder":
        """Make room for the records of these runs, or say that there is none."""
        lanes, runs = lanes_of(objective), starts[0].shape[0]
        records = -(-steps // record_every) + 1  # multiples below the last step, and that one
        dtype = starts[0].dtype
        block = tuple(jax.ShapeDtypeStruct((*a.shape[1:], lanes), a.dtype) for a in starts)
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
            divergence_step=np.empty(runs, int),
            final=tuple(np.empty_like(array) for array in starts),
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
    objective: Objective,
    starts: Recorded,
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
                pool.submit(_run_block, objective, starts, rates, recorder, block, meter)
                for block in blocks
            ]
            for future in work:
                future.result()
        except BaseException:
            meter.stopped.set()
            raise


def _run_block(
    objective: Objective,
    starts: Recorded,
    rates: Float[np.ndarray, " runs"],
    recorder: Recorder,
    runs: slice,
    meter: _Meter,
) -> None:
    """Run one block from start to end, recording as it goes."""
    real, lanes = runs.stop - runs.start, recorder.lanes
    places = np.minimum(np.arange(runs.start, runs.start + lanes), runs.stop - 1)  # pad: last run
    weights = tuple(jnp.asarray(np.moveaxis(array[places], 0, -1)) for array in starts)
    state = _State(weights, jnp.zeros(lanes, int))
    lane_rates = jnp.asarray(rates[places])
    capacity = recorder.buffers[0].shape[0]
    pace = _Pace(int(recorder.steps[-1]), recorder.record_every, capacity)
    for first, inner, count in pace:
        if meter.stopped.is_set():
            return
        state, records = _advance(
            objective, recorder.observe, lane_rates, state, recorder.buffers,
            jnp.asarray(inner), jnp.asarray(count),
        )  # fmt: skip
        if first is not None:
            recorder.write(runs, first, count, records)
        state.survived.block_until_ready()
        meter.add(real * inner * count)
    last, survived = _look(objective, recorder.observe, state)
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[None], last)
    recorder.write(runs, recorder.steps.size - 1, 1, last)
    survived = np.asarray(survived)[:real]  # all steps and the last look, or up to the divergence
    recorder.kept.divergence_step[runs] = np.where(survived > recorder.steps[-1], -1, survived)
    for room, array in zip(recorder.kept.final, state.weights, strict=True):
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
