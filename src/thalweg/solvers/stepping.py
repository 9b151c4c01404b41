"""Adaptive integration of theta' = -grad f(theta), for methods made for gradient flows.

A method linearises the flow at a point, attempts a step from there, and can evaluate the motion
anywhere inside of an accepted step. The loop below chooses the steps: with the estimated error e of
a step,

    size(e) = sqrt(mean_i (e_i / (atol + rtol max(|theta_i|, |new theta_i|)))^2) <= 1

accepts it, and the next step is 0.9 size^(-1 / (order + 1)) times as long, at least a fifth and at
most five times. It counts all of the work, that of rejected steps too, and it never steps onto an
output time, so that a thousand of them cost next to nothing.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thalweg._typing import Scalar
from thalweg.solvers.adaptive import Count, Followed, Goal, Vector
from thalweg.solvers.base import Work

Local = Any
"""What a method knows at a point: a pytree of its own."""

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 5.0


class Trial(eqx.Module):
    """An attempted step: where it ends, its estimated error, and what evaluates it in between.

    Where the error is not finite the step failed, and `retry` says by how much to change it;
    `grow` is the most by which the next step may be longer.
    """

    point: Vector
    error: Vector
    path: Any
    retry: Scalar
    grow: Scalar


class AbstractStepper(eqx.Module):
    """A one-step method; `order` is that of its error estimate, which is O(step^(order + 1))."""

    order: eqx.AbstractVar[int]

    @abstractmethod
    def linearise(self, point: Vector) -> tuple[Local, Work]:
        """What the method must know at the start."""

    @abstractmethod
    def relinearise(self, local: Local, trial: Trial) -> tuple[Local, Work]:
        """What the method must know at the end of an accepted step."""

    @abstractmethod
    def reconsider(self, local: Local, point: Vector, trial: Trial) -> tuple[Local, Work]:
        """What the method must know after a rejected step."""

    @abstractmethod
    def attempt(self, local: Local, point: Vector, step: Scalar) -> tuple[Trial, Work]:
        """A step."""

    @abstractmethod
    def between(self, local: Local, point: Vector, trial: Trial, fraction: Scalar) -> Vector:
        """The motion inside of a step from `point`, after this fraction of it."""

    @abstractmethod
    def field(self, local: Local) -> Vector:
        """The velocity -grad f where the method stands."""

    @abstractmethod
    def longest(self, local: Local) -> Scalar:
        """The longest step that the method can take from here."""

    @abstractmethod
    def way(
        self, local: Local, point: Vector, remaining: Scalar, length: Scalar
    ) -> tuple[Scalar, Work]:
        """How far the linearised flow still moves in the remaining time (infinite if it speeds up).

        Only whether it is below `length` matters.
        """


class _State(eqx.Module):
    time: Scalar
    point: Vector
    local: Local
    step: Scalar
    points: Float[Array, "times size"]
    written: Count
    work: Work
    tried: Count
    accepted: Count
    rejected_last: Bool[Array, ""]
    steady_at: Scalar


def integrate(stepper: AbstractStepper, start: Vector, goal: Goal) -> Followed:
    """Follow the flow from time 0 to the last of the times; NaN where it did not arrive."""

    def advance(state: _State) -> _State:
        return _advance(stepper, state, goal)

    def unfinished(state: _State) -> Bool[Array, ""]:
        # A step that no longer changes the time (or is NaN) would be repeated for ever.
        moves = state.step > 4 * jnp.finfo(state.time.dtype).eps * state.time
        more = (state.time < goal.end) & (state.tried < goal.max_steps) & jnp.isnan(state.steady_at)
        return more & moves

    state = jax.lax.while_loop(unfinished, advance, _begin(stepper, start, goal))
    rest = (jnp.arange(goal.times.size) >= state.written) & ~jnp.isnan(state.steady_at)
    return Followed(
        points=jnp.where(rest[:, None], state.point, state.points),
        work=state.work,
        accepted=state.accepted,
        reached=state.time,
        steady_at=state.steady_at,
    )


def _advance(stepper: AbstractStepper, state: _State, goal: Goal) -> _State:
    """One attempt: the state after it, moved or not."""
    remaining = goal.end - state.time
    step = jnp.minimum(jnp.minimum(state.step, stepper.longest(state.local)), remaining)
    trial, work = stepper.attempt(state.local, state.point, step)
    size = error_size(trial.error, state.point, trial.point, goal.rtol, goal.atol)
    accept = size <= 1  # False for NaN
    time = jnp.where(step >= remaining, goal.end, state.time + step)
    points, written = _write(stepper, state, trial, step, goal.times, jnp.where(accept, time, -1.0))
    state = eqx.tree_at(
        lambda s: (s.step, s.points, s.written, s.work, s.tried, s.rejected_last),
        state,
        (
            step * _growth(size, trial, stepper.order, state.rejected_last),
            points,
            written,
            state.work + work,
            state.tried + 1,
            ~accept,
        ),
    )
    return jax.lax.cond(
        accept,
        lambda: _moved(stepper, state, trial, time, goal),
        lambda: _stayed(stepper, state, trial),
    )


def error_size(
    error: Float[Array, "*stages size"], point: Vector, new: Vector, rtol: Scalar, atol: Scalar
) -> Scalar:
    """The error in units of the tolerance, root mean square over the weights."""
    unit = atol + rtol * jnp.maximum(jnp.abs(point), jnp.abs(new))
    return jnp.sqrt(jnp.mean((error / unit) ** 2))


def first_step(field: Vector, point: Vector, rtol: Scalar, atol: Scalar, end: Scalar) -> Scalar:
    """A hundredth of the time in which the weights would change by as much as they are."""
    zero = jnp.zeros_like(point)
    speed = error_size(field, point, zero, rtol, atol)
    length = jnp.maximum(error_size(point, point, zero, rtol, atol), 1.0)
    return jnp.where(speed * end > 0.01 * length, 0.01 * length / speed, end)


def _begin(stepper: AbstractStepper, start: Vector, goal: Goal) -> _State:
    times = goal.times
    local, work = stepper.linearise(start)
    points = (
        jnp.full((times.size, start.size), jnp.nan, start.dtype)
        .at[0]
        .set(jnp.where(times[0] == 0, start, jnp.nan))
    )
    zero = jnp.zeros((), times.dtype)
    state = _State(
        time=zero,
        point=start,
        local=local,
        step=first_step(stepper.field(local), start, goal.rtol, goal.atol, goal.end),
        points=points,
        written=(times[0] == 0).astype(int),
        work=work,
        tried=jnp.asarray(0),
        accepted=jnp.asarray(0),
        rejected_last=jnp.asarray(False),
        steady_at=jnp.full_like(zero, jnp.nan),
    )
    return _stopped_if_steady(stepper, state, goal)


def _moved(
    stepper: AbstractStepper, state: _State, trial: Trial, time: Scalar, goal: Goal
) -> _State:
    local, work = stepper.relinearise(state.local, trial)
    state = eqx.tree_at(
        lambda s: (s.time, s.point, s.local, s.work, s.accepted),
        state,
        (time, trial.point, local, state.work + work, state.accepted + 1),
    )
    return _stopped_if_steady(stepper, state, goal)


def _stayed(stepper: AbstractStepper, state: _State, trial: Trial) -> _State:
    local, work = stepper.reconsider(state.local, state.point, trial)
    return eqx.tree_at(lambda s: (s.local, s.work), state, (local, state.work + work))


def _stopped_if_steady(stepper: AbstractStepper, state: _State, goal: Goal) -> _State:
    if goal.steady is None:
        return state
    way, work = stepper.way(state.local, state.point, goal.end - state.time, goal.steady)
    # At the end nothing is left to go, which says nothing of rest.
    rests = (way < goal.steady) & (state.time < goal.end)
    steady_at = jnp.where(rests, state.time, state.steady_at)
    return eqx.tree_at(lambda s: (s.steady_at, s.work), state, (steady_at, state.work + work))


def _growth(size: Scalar, trial: Trial, order: int, rejected_last: Bool[Array, ""]) -> Scalar:
    factor = jnp.clip(_SAFETY * size ** (-1 / (order + 1)), _SHRINK, trial.grow)
    factor = jnp.where(jnp.isfinite(size), factor, trial.retry)
    # The step after a rejected one does not grow: the error was just seen to rise.
    return jnp.where(rejected_last, jnp.minimum(factor, 1.0), factor)


def _write(
    stepper: AbstractStepper,
    state: _State,
    trial: Trial,
    step: Scalar,
    times: Float[Array, " times"],
    until: Scalar,
) -> tuple[Float[Array, "times size"], Count]:
    """Fill in the outputs up to the end of the step; none if it was rejected."""

    def due(carry: tuple[Array, Count]) -> Bool[Array, ""]:
        index = jnp.minimum(carry[1], times.size - 1)
        return (carry[1] < times.size) & (times[index] <= until)

    def write(carry: tuple[Array, Count]) -> tuple[Array, Count]:
        points, index = carry
        fraction = (times[index] - state.time) / step
        between = stepper.between(state.local, state.point, trial, jnp.minimum(fraction, 1.0))
        point = jnp.where(times[index] == until, trial.point, between)
        return points.at[index].set(point), index + 1

    return jax.lax.while_loop(due, write, (state.points, state.written))
