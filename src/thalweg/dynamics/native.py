"""Descents of small linear networks on squared errors, by kernels that know all depths and widths.

What a kernel does is in `kernels`; here it is given runs, and its records are handed on. Observers
are shown the recorded weights afterwards, many points at a time: they take no part in the descent.
"""

import os
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from thalweg._typing import AnyWeights
from thalweg.dynamics.batch import AbstractEngine, AbstractFlight, Iteration, Observe, buffer_length
from thalweg.dynamics.compiled import observation
from thalweg.kernels import LANES, MANY_LANES, suits
from thalweg.kernels.chain import Chain
from thalweg.optimisers import Momentum

# Twice as many lanes make steps a quarter faster, which is worth compiling the kernel again only
# where there is much to do. Which lanes a run shares does not change a bit of it.
_MUCH = 1e10  # operations
_MOST_RUNS = 64  # of a block
_OBSERVED_AT_ONCE = 100  # points, in a function that is compiled for as many


@dataclass(frozen=True)
class NativeEngine(AbstractEngine):
    """A kernel's descents."""

    chain: Chain
    momentum: Momentum
    observe: Observe | None
    lanes: int
    runs: int

    @property
    @override
    def runs_at_once(self) -> int:
        # Several blocks for each core, so that all cores end at about the same time.
        share = -(-self.runs // (4 * (os.cpu_count() or 1)))
        return min(-(-share // self.lanes) * self.lanes, _MOST_RUNS)

    @override
    def record_of(self, start: AnyWeights) -> Any:
        if self.observe is None:
            return jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), start)
        if hasattr(self.observe, "at_points"):
            seen = observed_at(self.observe, jax.tree.map(lambda array: array[None], start))
            return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), seen)
        return jax.eval_shape(self.observe, start)

    @override
    def begin(
        self, starts: AnyWeights, rates: Float[np.ndarray, " runs"], records: int
    ) -> AbstractFlight:
        return _Flight(self, starts, rates, records)


def native_engine(
    iteration: Iteration, observe: Observe | None, starts: AnyWeights, steps: int
) -> NativeEngine | None:
    """The engine for these runs; None where there is no kernel for them."""
    momentum, arrays = iteration.optimiser.momentum, jax.tree.leaves(starts)
    chain, runs = iteration.objective.chain, arrays[0].shape[0]
    if chain is None or momentum is None or not suits(chain, arrays):
        return None
    first = jax.tree.map(lambda array: array[0], starts)
    much = float(runs) * steps * iteration.objective.operations(first) > _MUCH
    lanes = MANY_LANES if much and runs > LANES else LANES
    return NativeEngine(chain, momentum, observe, lanes, runs)


class _Flight(AbstractFlight):
    """A block in flight."""

    def __init__(self, engine: NativeEngine, starts: AnyWeights, rates: np.ndarray, records: int):
        from thalweg.kernels.descent import Descents

        arrays, self._structure = jax.tree.flatten(starts)
        self._shapes, self._engine = [array.shape[1:] for array in arrays], engine
        flat = np.concatenate([array.reshape(rates.size, -1) for array in arrays], axis=1)
        self._descents = Descents(engine.chain, flat, rates, *engine.momentum, engine.lanes)
        first = jax.tree.map(lambda array: array[0], starts)
        kept = bool(jax.tree.leaves(engine.record_of(first)))
        nbytes = 8 * rates.size * (1 + (flat.shape[1] if kept else 0))
        self._capacity = buffer_length(nbytes, records - 1)
        self._losses = np.empty((rates.size, self._capacity))
        self._points = np.empty((rates.size, self._capacity, flat.shape[1] if kept else 0))

    @property
    @override
    def capacity(self) -> int:
        return self._capacity

    @override
    def advance(self, inner: int, count: int, keep: bool) -> Any:
        points = self._points if keep and self._points.size else None
        self._descents.advance(inner, count, self._losses, points)
        if not keep:
            return None
        return self._losses[:, :count], self._observed(self._points[:, :count])

    @override
    def look(self) -> Any:
        return self.advance(0, 1, keep=True)

    @property
    @override
    def survived(self) -> Int[np.ndarray, " runs"]:
        return self._descents.survived

    @property
    @override
    def weights(self) -> AnyWeights:
        return self._unflat(self._descents.weights)

    def _observed(self, points: Float[np.ndarray, "runs records size"]) -> Any:
        if not points.size:
            return ()
        if self._engine.observe is None:
            return self._unflat(points)
        seen = observed_at(self._engine.observe, self._unflat(points.reshape(-1, points.shape[2])))
        return jax.tree.map(lambda leaf: leaf.reshape(*points.shape[:2], *leaf.shape[1:]), seen)

    def _unflat(self, flat: Float[np.ndarray, "*axes size"]) -> AnyWeights:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        parts = np.split(flat, ends, axis=-1)
        return self._structure.unflatten(
            part.reshape(*flat.shape[:-1], *shape)
            for part, shape in zip(parts, self._shapes, strict=True)
        )


def observed_at(observe: Any, points: AnyWeights) -> Any:
    """What an observer sees at many points, which lie along the first axis."""
    if hasattr(observe, "at_points"):
        return observe.at_points(points)
    count = jax.tree.leaves(points)[0].shape[0]
    parts = []
    for first in range(0, count, _OBSERVED_AT_ONCE):
        # Padded with the last point, so that one compiled function serves all.
        places = np.minimum(np.arange(first, first + _OBSERVED_AT_ONCE), count - 1)
        lanes = jax.tree.map(lambda array, at=places: np.moveaxis(array[at], 0, -1), points)
        real = min(_OBSERVED_AT_ONCE, count - first)
        seen = _seen(observe, lanes)
        parts.append(jax.tree.map(lambda leaf, n=real: np.moveaxis(leaf, -1, 0)[:n], seen))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


@eqx.filter_jit
def _seen(observe: Any, lanes: AnyWeights) -> Any:
    return observation(observe, jax.tree.map(jnp.asarray, lanes))
