"""One flow from one start: which method follows it, and how large its error is.

Which method is cheapest depends on T rho (the horizon times the largest curvature), on the number
of weights p, and on the tolerance, and rho is only known along the way: a start near a saddle is
flat. So "auto" first tries the explicit method with a limit on its steps, unless the start is
already too sharp for it, and falls back on a stiff one. Where the activation has a kink that is
the Chebyshev method, whose steps are the cheapest: sliding along a kink takes many short ones.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from thalweg._typing import Scalar, Weights
from thalweg.dynamics.adaptive import FlatObjective, Solution, integrate
from thalweg.dynamics.chebyshev import Chebyshev, largest_curvature
from thalweg.dynamics.collocation import Collocation
from thalweg.dynamics.trajectory import Recorded
from thalweg.objective import Objective

Method = Literal["auto", "explicit", "implicit", "chebyshev"]

_COMPANION = 0.1  # the companion's tolerances, as a part of the asked ones

# Estimated from measured costs, not swept. The explicit method is bound by stability: about 2 T rho
# gradients. The implicit one takes 1,000 to 4,000 gradients and tens of Hessians whatever T rho is,
# so it is ahead from T rho of some thousands on; an eigendecomposition takes 5, 20 and 150 ms for
# 200, 400 and 800 weights. The Chebyshev method takes about sqrt(2 T rho steps) gradients, in as
# many steps as its order 2 demands, some rtol^(-1/3): it is ahead from T rho of about rtol^(-1/3)
# on, but it is less accurate at the same tolerance, hence the factor.
_IMPLICIT_SIZE = 600
_IMPLICIT_REACH = 3000.0
_CHEBYSHEV_REACH = 10.0
_EXPLICIT_STEPS = 1000  # some 5,000 in T rho; more shows that the curvature grew on the way


class FlowError(RuntimeError):
    """The flow could not be followed to the end; the message is one sentence with the fix."""


class Task(eqx.Module):
    """What is to be followed from where, at which times, and how accurately."""

    objective: Objective
    start: Weights
    times: Float[Array, " times"]
    rtol: Scalar
    atol: Scalar
    steady: Scalar | None


class Integrated(eqx.Module):
    """The solution of a task, and what it took."""

    weights: Recorded
    loss: Float[np.ndarray, " times"]
    error: Float[np.ndarray, " times"]
    steady_at: float
    method: str
    gradients: int
    products: int
    hessians: int
    companion_gradients: int


class _Run(eqx.Module):
    solution: Solution
    weights: Weights
    loss: Float[Array, " times"]


def solve(task: Task, method: Method, max_steps: int, estimate_error: bool) -> Integrated:
    """Follow the flow by the asked method, with a companion where its error is wanted."""
    spent, products = 0, 0
    if method == "auto":
        network = task.objective.network
        small = network.size <= _IMPLICIT_SIZE and network.smooth
        stiff = _IMPLICIT_REACH if small else _CHEBYSHEV_REACH * float(task.rtol) ** (-1 / 3)
        reach, products = _reach(task)
        if reach <= stiff:
            try:
                found = _solve(task, "explicit", min(max_steps, _EXPLICIT_STEPS), estimate_error)
                return eqx.tree_at(lambda f: f.products, found, found.products + products)
            except _Unfinished as unfinished:
                spent = unfinished.gradients
        method = "implicit" if small else "chebyshev"
    try:
        found = _solve(task, method, max_steps, estimate_error)
    except _Unfinished as unfinished:
        raise FlowError(str(unfinished)) from None
    counts = (found.gradients + spent, found.products + products)
    return eqx.tree_at(lambda f: (f.gradients, f.products), found, counts)


class _Unfinished(Exception):
    def __init__(self, message: str, gradients: int):
        super().__init__(message)
        self.gradients = gradients


def _solve(task: Task, method: str, max_steps: int, estimate_error: bool) -> Integrated:
    run = _arrived(task, method, max_steps)
    weights = tuple(np.asarray(array) for array in run.weights)
    error = np.full(task.times.shape, np.nan)
    companion_gradients = 0
    if estimate_error:
        tighter = eqx.tree_at(
            lambda t: (t.rtol, t.atol), task, (_COMPANION * task.rtol, _COMPANION * task.atol)
        )
        companion = _arrived(tighter, method, max_steps)
        error = _error(run, companion, np.asarray(task.times), task.steady)
        companion_gradients = int(companion.solution.work.gradients)
    work = run.solution.work
    return Integrated(
        weights=weights,
        loss=np.asarray(run.loss),
        error=error,
        steady_at=float(run.solution.steady_at),
        method=method,
        gradients=int(work.gradients),
        products=int(work.products),
        hessians=int(work.hessians),
        companion_gradients=companion_gradients,
    )


def _error(
    run: _Run, companion: _Run, times: Float[np.ndarray, " times"], steady: Scalar | None
) -> Float[np.ndarray, " times"]:
    """The distance to the companion, not below what rounding makes of so many steps.

    Where the run stopped as steady, the way that it left out may be as long as `steady`.
    """
    points, others = np.asarray(run.solution.points), np.asarray(companion.solution.points)
    rounding = np.finfo(points.dtype).eps * np.sqrt(1 + int(run.solution.accepted))
    error = np.linalg.norm(points - others, axis=1)
    error = np.maximum(error, rounding * np.linalg.norm(points, axis=1))
    if steady is None:
        return error
    return error + float(steady) * (times > float(run.solution.steady_at))


def _arrived(task: Task, method: str, max_steps: int) -> _Run:
    """The run, if it came to the last time with finite weights."""
    # The explicit method's limit is a part of the compiled loop, the others' an argument.
    limit = max_steps if method == "explicit" else jnp.asarray(max_steps)
    run = _integrate(task, method, limit)
    if np.all(np.isfinite(run.loss)):
        return run
    reached, end = float(run.solution.reached), float(task.times[-1])
    message = (
        f"The flow was followed to time {reached:.6g} of {end:.6g} only, by {method} steps with "
        f"rtol={float(task.rtol):g}; raise `max_steps` ({max_steps}) or the tolerances, choose "
        "another `method`, or stop earlier if the weights run off to infinity."
    )
    if not task.objective.network.smooth:
        message += (
            " The activation has a kink: where the flow slides along it, the number of steps grows "
            "like 1 / rtol, and rtol=1e-3 or 1e-4 with method='chebyshev' is what can be had."
        )
    raise _Unfinished(message, int(run.solution.work.gradients))


@eqx.filter_jit
def _integrate(task: Task, method: str, max_steps: Any) -> _Run:
    start, unravel = ravel_pytree(task.start)
    objective = FlatObjective(task.objective, unravel)
    settings = (task.times, task.rtol, task.atol, task.steady, max_steps)
    if method == "explicit":
        # diffrax takes a third of a second to load, and only explicit methods need it.
        from thalweg.dynamics.explicit import integrate_explicitly

        solution = integrate_explicitly(objective, start, *settings)
    else:
        stepper = (
            Collocation(objective=objective, rtol=task.rtol, atol=task.atol)
            if method == "implicit"
            else Chebyshev(objective=objective, rtol=task.rtol)
        )
        solution = integrate(stepper, start, *settings)
    weights = jax.vmap(unravel)(solution.points)
    return _Run(solution, weights, jax.lax.map(task.objective, weights))


def _reach(task: Task) -> tuple[float, int]:
    """T rho at the start, and the products with the Hessian that it took."""
    curvature, products = _curvature(task.objective, task.start)
    return float(task.times[-1] * curvature), int(products)


@eqx.filter_jit
def _curvature(objective: Objective, weights: Weights) -> tuple[Scalar, Int[Array, ""]]:
    point, unravel = ravel_pytree(weights)
    flattened = FlatObjective(objective, unravel)
    direction = flattened.gradient(point) + 1e-3 * jnp.ones_like(point)
    curvature, _, products = largest_curvature(flattened, point, direction, 20)
    return curvature, products
