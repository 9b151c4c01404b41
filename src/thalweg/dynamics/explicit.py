"""An explicit method of order 8 for short horizons, from diffrax.

Dormand and Prince's method [dormand1981] with its dense output; cheap per step and very accurate,
but only stable as long as a step times the largest curvature stays below about 6.

[dormand1981] P. J. Prince, J. R. Dormand, "High order embedded Runge-Kutta formulae",
    J. Comput. Appl. Math. 7, 1981.
"""

from typing import Any

import diffrax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thalweg._typing import Scalar
from thalweg.dynamics.adaptive import FlatObjective, Solution, Work
from thalweg.dynamics.steady import KRYLOV, way_from_products

Vector = Float[Array, " size"]

_EVALUATIONS_PER_STEP = 13  # of 14 stages; the last one of an accepted step is the next one's first
_EVALUATIONS_AT_START = 2  # one to choose the first step


def integrate_explicitly(
    objective: FlatObjective,
    start: Vector,
    times: Float[Array, " times"],
    rtol: Scalar,
    atol: Scalar,
    steady: Scalar | None,
    max_steps: int,
) -> Solution:
    """Follow the flow from time 0 to the last of the times; NaN where it did not arrive."""
    steady_event = None if steady is None else _steady_event(objective, times[-1], steady)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, point, args: -objective.gradient(point)),
        diffrax.Dopri8(),
        t0=0.0,
        t1=times[-1],
        dt0=_first_step(objective, start, times[-1], rtol),
        y0=start,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        event=steady_event,
        max_steps=max_steps,
        throw=False,
    )
    assert solution.ts is not None
    assert solution.ys is not None
    (saved, (last_time,)), (points, (last,)) = solution.ts, solution.ys
    stopped = solution.result == diffrax.RESULTS.event_occurred
    arrived = solution.result == diffrax.RESULTS.successful
    missing = ~jnp.isfinite(saved)[:, None]
    points = jnp.where(missing, jnp.where(stopped, last, jnp.nan), points)
    accepted, tried = solution.stats["num_accepted_steps"], solution.stats["num_steps"]
    work = Work.of(gradients=_EVALUATIONS_AT_START + _EVALUATIONS_PER_STEP * tried)
    if steady is not None:
        # Once per accepted step, at length when it stopped; an event cannot count for itself.
        work = work + Work.of(gradients=accepted, products=accepted + KRYLOV * stopped)
    return Solution(
        points=points,
        work=work,
        accepted=jnp.asarray(accepted, int),
        reached=jnp.where(arrived, times[-1], last_time),
        # At the end nothing is left to go, which says nothing of rest.
        steady_at=jnp.where(stopped & (last_time < times[-1]), last_time, jnp.nan),
    )


def _first_step(objective: FlatObjective, start: Vector, end: Scalar, rtol: Scalar) -> Scalar:
    """A tenth of the time in which the start would double, less for small tolerances.

    A companion with other tolerances must not take the same first step: over it the two would agree
    to rounding, and their distance would say nothing of the error.
    """
    speed, size = jnp.linalg.norm(objective.gradient(start)), jnp.linalg.norm(start)
    doubling = jnp.where(speed > 0, size / jnp.where(speed > 0, speed, 1.0), jnp.inf)
    within = jnp.where(doubling > 0, jnp.minimum(doubling, end), end)
    return 0.1 * within * rtol ** (1 / 8)


def _steady_event(objective: FlatObjective, end: Scalar, steady: Scalar) -> diffrax.Event:
    def is_steady(t: Scalar, y: Vector, args: Any, **_: Any) -> Bool[Array, ""]:
        found = way_from_products(
            objective.gradient(y), lambda v: objective.hvp(y, v), end - t, steady
        )
        return found[0] < steady

    return diffrax.Event(is_steady)
