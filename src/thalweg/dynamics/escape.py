"""The gradient flow out of a saddle, followed by its length instead of its time.

Near a saddle of order L the flow takes a time like size^(2 - L): 1e28 for ten layers that start at
a thousandth. Its curve is harmless all the same. By the length s that it has gone,

    d theta / ds = -grad f / |grad f|,    dt / ds = 1 / |grad f|,

some fifty steps lead from gradients of 1e-33 to where the plain flow can take over, and all that
the flow conserves is conserved.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, finite_weights, require_positive
from thalweg._typing import AnyWeights, Scalar
from thalweg.dynamics.flow import Flow
from thalweg.objective import AbstractObjective
from thalweg.solvers import Explicit, FlowError
from thalweg.solvers.adaptive import FlatObjective

_MAX_STEPS = 1024
_EVALUATIONS_PER_STEP = 13
_COMPANION = 0.1  # the companion's tolerance, as a part of the asked one


class Escape(Flow):
    """A flow that was followed by its length; its last times may be equal in floating point."""

    lengths: Float[np.ndarray, " times"]

    @override
    def at(self, times: Any) -> "Flow":
        raise InputError(
            "A flow that was followed by its length cannot be brought to other times; continue it "
            "from its last weights with `flow`, whose time starts anew there."
        )


@checked
def escape(
    objective: AbstractObjective,
    weights: AnyWeights,
    *,
    gradient: float = 1e-2,
    rtol: float = 1e-11,
) -> Escape:
    """Follow the curve of the flow until the gradient has grown to this norm.

    Every step is recorded. The error is the distance to a companion with a tenth of the tolerance,
    at the same length.

    Args:
        objective: what is descended.
        weights: the start, anywhere but at a stationary point.
        gradient: the norm of the gradient at which to stop.
        rtol: the tolerance of each step, relative to the weights.

    Raises:
        FlowError: if the gradient does not grow to that norm.
        InputError: if the start is stationary.
    """
    import diffrax

    for name, value in (("gradient", gradient), ("rtol", rtol)):
        require_positive(name, value)
    start = finite_weights(weights)
    # Arrays of one type, so that both runs share what is compiled.
    tolerance, tighter, grown, never = np.asarray([rtol, _COMPANION * rtol, gradient, np.inf])
    run, unit = _follow(objective, start, *map(jnp.asarray, (tolerance, grown, never)))
    if not float(unit) > 0:
        raise InputError("`weights` must not be stationary: the flow does not leave such a point.")
    if run.result != diffrax.RESULTS.event_occurred:
        raise FlowError(
            f"The flow was followed for {_MAX_STEPS} steps without its gradient growing to "
            f"{gradient:g}; does it start at a saddle at all?"
        )
    if float(unit) >= gradient:
        raise InputError(
            f"`weights` must be where the gradient is below {gradient:g}, so near a saddle, got "
            f"{float(unit):.3g}; follow `flow` from there."
        )
    assert run.ts is not None
    length = run.ts[run.stats["num_accepted_steps"]]
    companion, _ = _follow(objective, start, jnp.asarray(tighter), jnp.asarray(never), length)
    return _recorded(objective, start, run, companion, float(unit), rtol)


@eqx.filter_jit
def _follow(
    objective: AbstractObjective,
    weights: AnyWeights,
    rtol: Scalar,
    gradient: Scalar,
    length: Scalar,
) -> tuple[Any, Scalar]:
    """Weights and time as one vector; time in units of 1 / |grad f(start)|, which is returned."""
    import diffrax  # takes a third of a second to load

    start, unravel = ravel_pytree(weights)
    flattened = FlatObjective(objective, unravel)
    unit = _norm(flattened.gradient(start))

    def move(length: Any, point: Array, args: Any) -> Array:
        slope = flattened.gradient(point[:-1])
        size = _norm(slope)
        return jnp.append(-slope / size, unit / size)

    def has_left(t: Scalar, y: Array, args: Any, **_: Any) -> Scalar:
        return _norm(flattened.gradient(y[:-1])) - gradient

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(move),
        diffrax.Dopri8(),
        t0=0.0,
        t1=length,
        dt0=1e-3 * jnp.linalg.norm(start),
        y0=jnp.append(start, 0.0),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol * jnp.linalg.norm(start)),
        saveat=diffrax.SaveAt(t0=True, steps=True, dense=True),
        event=diffrax.Event(has_left),
        max_steps=_MAX_STEPS,
        throw=False,
    )
    return solution, unit


@eqx.filter_jit
def _compared(
    objective: AbstractObjective, weights: AnyWeights, run: Any, companion: Any
) -> tuple[AnyWeights, Float[Array, " steps"], Float[Array, " steps"]]:
    """The weights at all steps, their loss, and how far the companion is at the same length."""
    _, unravel = ravel_pytree(weights)
    reached = jnp.where(jnp.isfinite(run.ts), run.ts, 0.0)
    others = jax.vmap(companion.evaluate)(reached)
    points = run.ys[:, :-1]
    recorded = jax.vmap(unravel)(points)
    distance = jnp.linalg.norm(points - others[:, :-1], axis=1)
    return recorded, jax.lax.map(objective, recorded), distance


def _recorded(
    objective: AbstractObjective,
    start: AnyWeights,
    run: Any,
    companion: Any,
    unit: float,
    rtol: float,
) -> Escape:
    count = int(run.stats["num_accepted_steps"]) + 1
    compared = _compared(objective, start, run, companion)
    weights, loss, distance = jax.tree.map(lambda array: np.asarray(array)[:count], compared)
    lengths, points = np.asarray(run.ts)[:count], np.asarray(run.ys)[:count]
    sizes = np.linalg.norm(points[:, :-1], axis=1)
    work = [np.asarray(_EVALUATIONS_PER_STEP * int(r.stats["num_steps"])) for r in (run, companion)]
    return Escape(
        objective=objective,
        times=points[:, -1] / unit,
        weights=weights,
        loss=loss,
        error=np.maximum(distance, np.finfo(float).eps * np.sqrt(count) * sizes),
        start=jax.tree.map(np.asarray, start),
        rtol=rtol,
        atol=rtol * float(sizes[0]),
        solver="length",
        steady=None,
        steady_at=np.asarray(np.nan),
        gradient_evaluations=work[0],
        hvp_evaluations=np.asarray(0),
        hessian_evaluations=np.asarray(0),
        companion_evaluations=work[1],
        records={},
        _asked=Explicit(),
        _max_steps=_MAX_STEPS,
        lengths=lengths,
    )


def _norm(vector: Float[Array, " size"]) -> Scalar:
    """The Euclidean norm, also where squares would underflow."""
    largest = jnp.max(jnp.abs(vector))
    safe = jnp.where(largest > 0, largest, 1.0)
    return largest * jnp.linalg.norm(vector / safe)
