"""Descents of objectives that another library computes: one run at a time, in a loop of Python."""

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
from thalweg.optimisers import AbstractOptimiser


@dataclass(frozen=True)
class HostEngine(AbstractEngine):
    """One gradient after the other; what an optimiser makes of it is compiled."""

    iteration: Iteration
    observe: Observe | None

    @property
    @override
    def runs_at_once(self) -> int:
        return 1

    @override
    def record_of(self, start: AnyWeights) -> Any:
        seen = self.observed(start)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), seen)

    @override
    def begin(
        self, starts: AnyWeights, rates: Float[np.ndarray, " runs"], records: int
    ) -> AbstractFlight:
        return _Flight(self, starts, rates, records)

    def observed(self, weights: AnyWeights) -> Any:
        """What is recorded of one network: the weights, if nothing else."""
        if self.observe is None:
            return weights
        if hasattr(self.observe, "at_points"):
            together: Any = self.observe
            seen = together.at_points(jax.tree.map(lambda array: array[None], weights))
            return jax.tree.map(lambda leaf: np.asarray(leaf)[0], seen)
        return jax.tree.map(np.asarray, self.observe(weights))


class _Flight(AbstractFlight):
    """One run in flight."""

    def __init__(self, engine: HostEngine, starts: AnyWeights, rates: np.ndarray, records: int):
        self._engine, self._rate = engine, rates[0]
        self._weights = jax.tree.map(lambda array: np.array(array[0]), starts)
        optimiser = engine.iteration.optimiser
        self._memory = None if optimiser.plain else optimiser.init(self._weights)
        self._survived, self._lost = 0, False
        nbytes = sum(array.nbytes for array in jax.tree.leaves(self._weights))
        self._capacity = buffer_length(nbytes, records - 1)

    @property
    @override
    def capacity(self) -> int:
        return self._capacity

    @override
    def advance(self, inner: int, count: int, keep: bool) -> Any:
        rows = []
        for _ in range(count):
            seen = self._engine.observed(self._weights) if keep else None
            rows.append((self._step(), seen))
            for _ in range(inner - 1):
                self._step()
        return jax.tree.map(lambda *leaves: np.stack(leaves)[None], *rows) if keep else None

    @override
    def look(self) -> Any:
        value = np.asarray(self._engine.iteration.objective(self._weights))
        self._survived += bool(np.isfinite(value))
        record = (value, self._engine.observed(self._weights))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], record)

    @property
    @override
    def survived(self) -> Int[np.ndarray, " runs"]:
        return np.array([self._survived])

    @property
    @override
    def weights(self) -> AnyWeights:
        return jax.tree.map(lambda array: array[None], self._weights)

    def _step(self) -> np.ndarray:
        """A step; the value before it. A run whose loss is NaN is NaN from there on."""
        if self._lost:
            return np.full((), np.nan, self._rate.dtype)
        iteration = self._engine.iteration
        value, gradient = iteration.objective.value_and_gradient(self._weights)
        self._survived += bool(np.isfinite(value))
        self._lost = bool(np.isnan(value))
        with np.errstate(over="ignore", invalid="ignore"):  # which the loss tells of
            self._move(iteration.optimiser, gradient)
        return np.asarray(value)

    def _move(self, optimiser: AbstractOptimiser, gradient: AnyWeights) -> None:
        if self._lost:
            self._weights = jax.tree.map(lambda array: np.full_like(array, np.nan), self._weights)
        elif optimiser.plain:
            self._weights = jax.tree.map(
                lambda w, g: w - w.dtype.type(self._rate) * g, self._weights, gradient
            )
        else:
            rate = jnp.asarray(self._rate)
            moved, self._memory = _moved(optimiser, rate, self._weights, gradient, self._memory)
            self._weights = jax.tree.map(np.asarray, moved)


@eqx.filter_jit
def _moved(
    optimiser: AbstractOptimiser, rate: Any, weights: AnyWeights, gradient: AnyWeights, memory: Any
) -> tuple[AnyWeights, Any]:
    direction, memory = optimiser.direction(gradient, memory, weights)
    return jax.tree.map(lambda w, d: w - rate.astype(w.dtype) * d, weights, direction), memory
