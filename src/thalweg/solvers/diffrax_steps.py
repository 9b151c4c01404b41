"""Runge-Kutta methods of diffrax, followed adaptively.

Which of its solvers can be used: those that estimate the error of a step, for the flow is followed
within tolerances, and that take one vector field, for there is no noise and no splitting here.
"""

from typing import Any

import diffrax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from thalweg._checks import InputError
from thalweg._typing import Scalar
from thalweg.solvers.adaptive import Count, FlatObjective, Followed, Goal, Vector
from thalweg.solvers.base import Work
from thalweg.solvers.steady import KRYLOV, way_from_products


def require_usable(solver: diffrax.AbstractSolver) -> None:
    """Refuse a solver for stochastic or split equations, or one without an error estimate."""
    name = type(solver).__name__
    if solver.term_structure not in (diffrax.AbstractTerm, diffrax.ODETerm):
        raise InputError(
            f"`solver` must integrate theta' = -grad f(theta), but diffrax's {name} is made for "
            "stochastic or split equations; use diffrax.Tsit5() or diffrax.Kvaerno5()."
        )
    if not isinstance(solver, diffrax.AbstractAdaptiveSolver):
        raise InputError(
            f"`solver` must estimate the error of its steps, but diffrax's {name} takes fixed "
            "steps only; use diffrax.Tsit5() or diffrax.Kvaerno5()."
        )


def integrate_by(
    solver: diffrax.AbstractSolver, objective: FlatObjective, start: Vector, goal: Goal
) -> Followed:
    """Follow the flow from time 0 to the last of the times; NaN where it did not arrive."""
    field = diffrax.ODETerm(lambda t, point, args: -objective.gradient(point))
    solution = diffrax.diffeqsolve(
        field,
        solver,
        t0=0.0,
        t1=goal.end,
        dt0=_first_step(objective, start, goal, solver.order(field)),
        y0=start,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=goal.times), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=diffrax.PIDController(rtol=goal.rtol, atol=goal.atol),
        event=None if goal.steady is None else _steady_event(objective, goal.end, goal.steady),
        max_steps=goal.max_steps,
        throw=False,
    )
    assert solution.ts is not None
    assert solution.ys is not None
    (saved, (last_time,)), (points, (last,)) = solution.ts, solution.ys
    stopped = solution.result == diffrax.RESULTS.event_occurred
    arrived = solution.result == diffrax.RESULTS.successful
    missing = ~jnp.isfinite(saved)[:, None]
    points = jnp.where(missing, jnp.where(stopped, last, jnp.nan), points)
    accepted = jnp.asarray(solution.stats["num_accepted_steps"], int)
    work = Work(_gradients(solver, solution.stats["num_steps"]), jnp.asarray(0), jnp.asarray(0))
    if goal.steady is not None:
        # Once per accepted step, at length when it stopped; an event cannot count for itself.
        work = work + Work.of(gradients=accepted, products=accepted + KRYLOV * stopped)
    return Followed(
        points=points,
        work=work,
        accepted=accepted,
        reached=jnp.where(arrived, goal.end, last_time),
        # At the end nothing is left to go, which says nothing of rest.
        steady_at=jnp.where(stopped & (last_time < goal.end), last_time, jnp.nan),
    )


def _gradients(solver: diffrax.AbstractSolver, tried: Any) -> Array:
    """How many gradients so many steps took, and the choice of the first; NaN if it is not known.

    Explicit methods take one per stage. Where the last stage of an accepted step is the first of
    the next one, only the very first step has to compute it. How often implicit methods correct
    their stages, diffrax does not say.
    """
    tableau = solver.tableau if isinstance(solver, diffrax.AbstractERK) else None
    if not isinstance(tableau, diffrax.ButcherTableau):
        return jnp.asarray(jnp.nan)
    shared = bool(tableau.fsal)
    return jnp.asarray(1 + shared + (tableau.num_stages - shared) * tried, int)


def _first_step(objective: FlatObjective, start: Vector, goal: Goal, order: Any) -> Scalar:
    """A tenth of the time in which the start would double, less for small tolerances.

    A companion with other tolerances must not take the same first step: over it the two would agree
    to rounding, and their distance would say nothing of the error.
    """
    speed, size = jnp.linalg.norm(objective.gradient(start)), jnp.linalg.norm(start)
    doubling = jnp.where(speed > 0, size / jnp.where(speed > 0, speed, 1.0), jnp.inf)
    within = jnp.where(doubling > 0, jnp.minimum(doubling, goal.end), goal.end)
    return 0.1 * within * goal.rtol ** (1 / order)


def _steady_event(objective: FlatObjective, end: Scalar, steady: Scalar) -> diffrax.Event:
    def is_steady(t: Scalar, y: Vector, args: Any, **_: Any) -> Bool[Array, ""]:
        found: tuple[Scalar, Count] = way_from_products(
            objective.gradient(y), lambda v: objective.hvp(y, v), end - t, steady
        )
        return found[0] < steady

    return diffrax.Event(is_steady)
