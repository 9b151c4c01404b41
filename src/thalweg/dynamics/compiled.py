"""Descents in lanes as one loop that JAX compiles, for any objective, optimiser and observer.

Runs are laid side by side in *lanes* along the last axis of each array and advance in lockstep. How
many lanes there are depends on the objective and its weights' shapes alone, and lanes that are not
needed are padded: so one compiled loop serves every batch.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from typing_extensions import override

from thalweg._typing import AnyWeights
from thalweg.dynamics.batch import AbstractEngine, AbstractFlight, Iteration, Observe, buffer_length
from thalweg.objective import AbstractObjective


@dataclass(frozen=True)
class CompiledEngine(AbstractEngine):
    """One compiled loop for blocks of as many runs as there are lanes."""

    iteration: Iteration
    observe: Observe | None
    lanes: int

    @property
    @override
    def runs_at_once(self) -> int:
        return self.lanes

    @override
    def record_of(self, start: AnyWeights) -> Any:
        block = jax.tree.map(lambda a: jax.ShapeDtypeStruct((*a.shape, self.lanes), a.dtype), start)
        seen = jax.eval_shape(lambda weights: observation(self.observe, weights), block)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype), seen)

    @override
    def begin(self, starts: AnyWeights, rates: Float[np.ndarray, " runs"], records: int) -> Any:
        return _Flight(self, starts, rates, records)


class _Flight(AbstractFlight):
    """A block in flight."""

    def __init__(self, engine: CompiledEngine, starts: AnyWeights, rates: np.ndarray, records: int):
        lanes, self._runs, self._engine = engine.lanes, rates.size, engine
        places = np.minimum(np.arange(lanes), self._runs - 1)  # padded with the last run
        weights = jax.tree.map(lambda array: jnp.asarray(np.moveaxis(array[places], 0, -1)), starts)
        memory = jax.vmap(engine.iteration.optimiser.init, in_axes=-1, out_axes=-1)(weights)
        self._state = _State(weights, memory, jnp.zeros(lanes, int))
        self._rates = jnp.asarray(rates[places])
        seen = engine.record_of(jax.tree.map(lambda array: array[0], starts))
        one = (jax.ShapeDtypeStruct((), rates.dtype), seen)
        nbytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one))
        # Few sizes, so that few loops are compiled; a large buffer is costly to pass around.
        wanted = next(size for size in (1, 16, 256) if size >= min(records - 1, 256))
        self._capacity = buffer_length(lanes * nbytes, wanted)
        self._buffers = jax.tree.map(
            lambda leaf: np.zeros((self._capacity, *leaf.shape, lanes), leaf.dtype), one
        )

    @property
    @override
    def capacity(self) -> int:
        return self._capacity

    @override
    def advance(self, inner: int, count: int, keep: bool) -> Any:
        engine = self._engine
        self._state, records = _advance(
            engine.iteration, engine.observe, self._rates, self._state, self._buffers,
            jnp.asarray(inner), jnp.asarray(count),
        )  # fmt: skip
        self._state.survived.block_until_ready()
        return (
            jax.tree.map(lambda leaf: self._runs_first(leaf)[:, :count], records) if keep else None
        )

    @override
    def look(self) -> Any:
        records, survived = _look(self._engine.iteration, self._engine.observe, self._state)
        self._state = eqx.tree_at(lambda state: state.survived, self._state, survived)
        return jax.tree.map(lambda leaf: self._runs_first(leaf)[:, None], records)

    @property
    @override
    def survived(self) -> Int[np.ndarray, " runs"]:
        return self._runs_first(self._state.survived)

    @property
    @override
    def weights(self) -> AnyWeights:
        return jax.tree.map(self._runs_first, self._state.weights)

    def _runs_first(self, leaf: Any) -> np.ndarray:
        return np.moveaxis(np.asarray(leaf), -1, 0)[: self._runs]


# --- the loop ------------------------------------------------------------------------------------


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


def observation(observe: Observe | None, weights: AnyWeights) -> Any:
    """What is recorded of networks that lie along the last axis: the weights, if nothing else."""
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
        seen = observation(observe, state.weights)
        observations = jax.tree.map(lambda b, o: b.at[index].set(o), observations, seen)
        value, state = _step(iteration, rates, state)  # the loss comes with the gradient
        losses = losses.at[index].set(value.astype(losses.dtype))  # data may be more precise
        return _steps(iteration, rates, state, inner - 1), (losses, observations)

    return jax.lax.fori_loop(0, count, record_and_go, (state, buffers))


@eqx.filter_jit
def _look(iteration: Iteration, observe: Observe | None, state: _State) -> tuple[Any, Array]:
    """What there is to record at the last step, and how many steps had a finite loss with it."""
    value, _ = _value_and_gradient(iteration.objective, state.weights)
    return (value, observation(observe, state.weights)), state.survived + jnp.isfinite(value)
