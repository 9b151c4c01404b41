"""Many descents side by side: in blocks, of which each core works on one at a time.

How a block takes its steps is an *engine*'s: a native kernel for small linear networks (`native`),
a loop that JAX compiles for all others (`compiled`). Runs share lanes in both, and in both a run's
numbers are bitwise independent of the batch.
"""

import os
import threading
import time as clock
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from thalweg._checks import InputError
from thalweg._quantity import NEVER
from thalweg._sizes import NUMBER, require_memory
from thalweg._typing import AnyWeights
from thalweg.objective import AbstractObjective
from thalweg.optimisers import PLAIN, AbstractOptimiser

Observe = Callable[[AnyWeights], Any]
"""A function of one network's weights.

One with a method `in_lanes` is given many networks along the last axis, in JAX's arrays; one with
a method `at_points` many along the first axis, in NumPy's, where they are not inside of JAX.
"""
Progress = Callable[[int, int], None]

RECORD_LIMIT = 8 * 2**30
"""Recordings above this many bytes are refused."""

# Blocks of 100 runs of a small linear network stay in a core's second-level cache and are long
# enough for SIMD (measured: 64 to 128 are alike, 200 is four times slower). Other networks gain
# little from a batch: their products are called one by one. A large one fills the machine alone.
_LINEAR_LANES, _OTHER_LANES = 100, 8
_WIDEST_IN_LANES, _MOST_OPERATIONS_IN_LANES = 32, 1_200_000
_CALL_SECONDS = 0.5  # how long one compiled call may take before interrupts and progress get a turn
_BUFFER_BYTES = 4 * 2**20  # what one compiled call may record before it is copied out


def lanes_of(objective: AbstractObjective, weights: AnyWeights = None) -> int:
    """How many runs share a block; a function of the objective and its weights' shapes alone."""
    if objective.on_host:
        return 1
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


class Iteration(eqx.Module):
    """What is descended, and how."""

    objective: AbstractObjective
    optimiser: AbstractOptimiser = PLAIN


# --- engines -------------------------------------------------------------------------------------


class AbstractFlight(ABC):
    """A block of runs on its way. Records are (losses, observations), runs first, then records."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """How many records one call of `advance` may make."""

    @abstractmethod
    def advance(self, inner: int, count: int, keep: bool) -> Any:
        """`count` times: record, then take `inner` steps; the records, if they are to be kept."""

    @abstractmethod
    def look(self) -> Any:
        """One more record, where the runs are; no step."""

    @property
    @abstractmethod
    def survived(self) -> Int[np.ndarray, " runs"]:
        """How many steps, and looks, began at a finite loss."""

    @property
    @abstractmethod
    def weights(self) -> AnyWeights:
        """Where the runs are, runs first."""


class AbstractEngine(ABC):
    """How blocks take their steps."""

    @property
    @abstractmethod
    def runs_at_once(self) -> int:
        """How many runs a block has."""

    @abstractmethod
    def record_of(self, start: AnyWeights) -> Any:
        """The shapes of what is observed of one run at one record, which starts here."""

    @abstractmethod
    def begin(
        self, starts: AnyWeights, rates: Float[np.ndarray, " runs"], records: int
    ) -> AbstractFlight:
        """Let a block start, which is to make so many records."""


def buffer_length(nbytes: int, wanted: int) -> int:
    """How many records of so many bytes each one call may make."""
    return int(np.clip(_BUFFER_BYTES // max(nbytes, 1), 1, max(wanted, 1)))


# --- recording -----------------------------------------------------------------------------------


class Kept(eqx.Module):
    """All that a batch leaves behind, runs first."""

    loss: Float[np.ndarray, "*runs times"]
    observed: Any
    diverged_at: Int[np.ndarray, "*runs"]
    final: AnyWeights


@dataclass(frozen=True)
class Recorder:
    """Where a batch's records go."""

    steps: Int[np.ndarray, " times"]
    record_every: int
    kept: Kept

    @classmethod
    def for_runs(
        cls, engine: AbstractEngine, starts: AnyWeights, steps: int, record_every: int
    ) -> "Recorder":
        """Make room for the records of these runs, or say that there is none."""
        arrays = jax.tree.leaves(starts)
        runs = arrays[0].shape[0]
        records = -(-steps // record_every) + 1  # multiples below the last step, and that one
        seen = engine.record_of(jax.tree.map(lambda array: array[0], starts))
        one = (jax.ShapeDtypeStruct((), np.result_type(*arrays)), seen)
        nbytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one))
        numbers = nbytes * runs * records // NUMBER
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

        def room(leaf: Any) -> np.ndarray:
            return np.empty((runs, records, *leaf.shape), leaf.dtype)

        kept = Kept(
            loss=room(one[0]),
            observed=jax.tree.map(room, one[1]),
            diverged_at=np.empty(runs, int),
            final=jax.tree.map(np.empty_like, starts),
        )
        return cls(np.append(np.arange(0, steps, record_every), steps), record_every, kept)

    def write(self, runs: slice, first: int, records: Any) -> None:
        """Copy records of a block (runs first, then records), from the first of them on."""
        goal = (self.kept.loss, self.kept.observed)
        for room, leaf in zip(jax.tree.leaves(goal), jax.tree.leaves(records), strict=True):
            room[runs, first : first + leaf.shape[1]] = leaf

    def finish(self, runs: slice, flight: AbstractFlight) -> None:
        """Keep what a block leaves at its end."""
        self.write(runs, self.steps.size - 1, flight.look())
        survived = flight.survived  # all steps and the last look, or up to the divergence
        self.kept.diverged_at[runs] = np.where(survived > self.steps[-1], NEVER, survived)
        ends = (jax.tree.leaves(tree) for tree in (self.kept.final, flight.weights))
        for room, array in zip(*ends, strict=True):
            room[runs] = array


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
    engine: AbstractEngine,
    starts: AnyWeights,
    rates: Float[np.ndarray, " runs"],
    recorder: Recorder,
    progress: Progress | None,
) -> None:
    """Run all blocks, one per core at a time; engines work outside Python's lock."""
    runs, together = rates.size, engine.runs_at_once
    blocks = [slice(i, min(i + together, runs)) for i in range(0, runs, together)]
    meter = _Meter(runs * int(recorder.steps[-1]), progress)
    with ThreadPoolExecutor(min(len(blocks), os.cpu_count() or 1)) as pool:
        try:
            work = [
                pool.submit(_run_block, engine, starts, rates, recorder, block, meter)
                for block in blocks
            ]
            for future in work:
                future.result()
        except BaseException:
            meter.stopped.set()
            raise


def _run_block(
    engine: AbstractEngine,
    starts: AnyWeights,
    rates: Float[np.ndarray, " runs"],
    recorder: Recorder,
    runs: slice,
    meter: _Meter,
) -> None:
    """Run one block from start to end, recording as it goes."""
    if meter.stopped.is_set():
        return
    mine = jax.tree.map(lambda array: array[runs], starts)
    flight = engine.begin(mine, rates[runs], recorder.steps.size)
    for first, inner, count in _Pace(
        int(recorder.steps[-1]), recorder.record_every, flight.capacity
    ):
        if meter.stopped.is_set():
            return
        records = flight.advance(inner, count, keep=first is not None)
        if first is not None:
            recorder.write(runs, first, records)
        meter.add((runs.stop - runs.start) * inner * count)
    recorder.finish(runs, flight)


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
