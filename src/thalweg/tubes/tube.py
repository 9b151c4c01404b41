"""The tube around a descent run in which the exact gradient flow is proven to stay.

The flow is never integrated. `growth` says how a radius grows over one step; here steps are put
together, from the recorded weights of a run. Where not every step was recorded, the steps between
are taken again; where a recorded point differs from what is computed, by rounding, the difference
is added to the radius, so that the statement is about the recorded numbers themselves.

The level of proof is float64: gradients, eigenvalues, updates and losses are enlarged by a slack
for rounding (`_ROUNDING` units of the last place of what they are made of); norms, and constants
made of them, are taken as computed, and intervals are not carried through. The flow is that of the
objective as it is stored, whose moments are rounded from the samples.
"""

from dataclasses import fields
from functools import partial
from math import inf
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from thalweg._checks import InputError
from thalweg._typing import Scalar, Weights
from thalweg.curvature.balls import BallCentre
from thalweg.curvature.forms import linear_hessian
from thalweg.dynamics import Descent
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.tubes.growth import Defect, grow
from thalweg.tubes.tail import tail_bound

Times = Float[np.ndarray, " times"]
Vector = Float[Array, " size"]

_DENSE = 600  # weights up to which the Hessian and its smallest eigenvalue are computed
_ROUNDING = 64  # units in the last place
_BLOCK = 256  # records per compiled call


class Tube(eqx.Module):
    """Where the exact flow is, seen from a descent run, at the times that the run recorded.

    Attributes:
        times: learning rate x step.
        lower: the distance from the run to the flow is at least this.
        upper: and at most this; infinite from where on nothing is proven.
        correction: the distance that is foretold, to first order in the learning rate.
        between: what the distance from the polygon through all steps stays below, up to each time.
        loss_lower: the loss of the flow is at least this.
        loss_upper: and at most this.
        forever: what the distance stays below at all times, also after the last; None where that is
            not proven. Where it is, descent and flow both converge to global minimisers.
        curvature_bound: what the Hessian's smallest eigenvalue was bounded by from below, on
            average over the segments that matter.
        defect: how far the curve at the tube's centre is from being a flow.
        failed_at: the time from which on nothing is proven; None if there is none.
        level: "float64".
    """

    times: Times
    lower: Times
    upper: Times
    correction: Times
    between: Times
    loss_lower: Times
    loss_upper: Times
    curvature_bound: Times
    defect: Times
    failed_at: float | None
    forever: float | None
    level: str = "float64"

    @property
    def radius(self) -> Times:
        """The same as `upper`."""
        return self.upper


class _State(eqx.Module):
    """Where descent is, the correction, the radius about their sum, and the widest place so far."""

    point: Vector
    correction: Vector
    radius: Scalar
    widest: Scalar


class _Record(eqx.Module):
    """What is kept of a time."""

    correction: Array | np.ndarray
    radius: Array | np.ndarray
    between: Array | np.ndarray
    loss: Array | np.ndarray
    loss_error: Array | np.ndarray
    curvature: Array | np.ndarray
    defect: Array | np.ndarray


def tube(
    run: Descent, start_distance: float = 0.0, *, corrected: bool = True, curvature: str = "auto"
) -> Tube:
    """Prove how far a run of descent is from the exact flow.

    Args:
        run: one run, with recorded weights, of a linear network without divergence.
        start_distance: how far the flow may start from where the run does.
        corrected: carry the first-order correction along; without it the tube is one-sided.
        curvature: "exact" takes the smallest eigenvalue at every step, "norms" bounds it by norms
            of the layers' products, which costs less and proves less; "auto" by size.
    """
    _require_usable(run, start_distance, curvature)
    exact = curvature == "exact" or (curvature == "auto" and run.objective.network.size <= _DENSE)
    points, gaps = _flat_records(run), np.diff(run.steps)
    near = jnp.asarray(start_distance, points.dtype)
    state = _State(jnp.asarray(points[0]), jnp.zeros(points.shape[1], points.dtype), near, near)
    blocks = [_first_record(run.objective, state)]
    for first in range(0, gaps.size, _BLOCK):
        count = gaps[first : first + _BLOCK].size
        state, block = _block(
            run.objective,
            jnp.asarray(run.learning_rate, points.dtype),
            state,
            np.resize(points[first + 1 : first + 1 + count], (_BLOCK, points.shape[1])),
            np.resize(gaps[first : first + count], _BLOCK),
            jnp.asarray(count),
            corrected,
            exact,
        )
        blocks.append(jax.tree.map(lambda leaf, count=count: np.asarray(leaf)[:count], block))
        if not np.isfinite(float(state.radius)):
            break
    return _assemble(run, blocks, state)


def _assemble(run: Descent, blocks: list[_Record], last: _State) -> Tube:
    times = run.times
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
    missing = times.size - joined.radius.size

    def padded(values: Times, filler: float) -> Times:
        return np.concatenate([values, np.full(missing, filler)])

    radius, correction = padded(joined.radius, inf), padded(joined.correction, np.nan)
    proven = np.isfinite(radius)
    failed = np.flatnonzero(~proven)
    loss, doubt = padded(joined.loss, np.nan), padded(joined.loss_error, inf)
    lowest = float(getattr(run.objective.problem, "minimum", 0.0))  # of losses that have none known
    forever = None
    if not failed.size:
        unravel, rate = _unravel(run.objective), float(run.learning_rate)
        parts = (unravel(last.point), unravel(last.correction))
        tail = tail_bound(run.objective, *parts, float(last.radius), rate)
        forever = None if tail is None else max(tail, float(joined.between[-1]))
    correction, loss, doubt = (np.where(proven, each, 0.0) for each in (correction, loss, doubt))
    return Tube(
        times=times,
        lower=np.where(proven, np.maximum(correction - np.where(proven, radius, 0), 0.0), 0.0),
        upper=np.where(proven, correction + radius, inf),
        correction=np.where(proven, correction, np.nan),
        between=np.where(proven, padded(joined.between, inf), inf),
        loss_lower=np.where(proven, np.maximum(loss - doubt, lowest), lowest),
        loss_upper=np.where(proven, loss + doubt, inf),
        curvature_bound=padded(joined.curvature, np.nan),
        defect=padded(joined.defect, np.nan),
        failed_at=float(times[failed[0]]) if failed.size else None,
        forever=forever,
    )


def _first_record(objective: Objective, state: _State) -> _Record:
    loss, doubt = _loss(objective, state)
    values = (0.0, state.radius, state.radius, loss, doubt, np.nan, 0.0)
    return _Record(*(np.full(1, float(value)) for value in values))


@eqx.filter_jit
def _loss(objective: Objective, state: _State) -> tuple[Scalar, Scalar]:
    """The loss at the tube's centre, and how much it can differ within the radius.

    |f(z + d) - f(z)| <= |d| |grad f(z)| + |d|^2 / 2 times what the Hessian is at most.
    """
    weights = _unravel(objective)(state.point + state.correction)
    value, slopes = objective.value_and_gradient(weights)
    slope = jnp.linalg.norm(ravel_pytree(slopes)[0])
    bend = BallCentre.at(objective, weights).bounds(state.radius).hessian
    return value, state.radius * slope + state.radius**2 / 2 * bend + _units(value) * value


@eqx.filter_jit
def _block(
    objective: Objective,
    rate: Scalar,
    state: _State,
    targets: Float[Array | np.ndarray, "records size"],
    inner: Int[Array | np.ndarray, " records"],
    count: Int[Array, ""],
    corrected: bool,
    exact: bool,
) -> tuple[_State, _Record]:
    """From record to record; rows beyond `count` stay empty."""
    targets, inner = jnp.asarray(targets), jnp.asarray(inner)
    advance = partial(_advance, objective, rate, corrected, exact)
    nothing = jnp.zeros(targets.shape[0])
    rows = _Record(*[nothing] * len(fields(_Record)))

    def to_next(index: Array, carry: tuple[_State, _Record]) -> tuple[_State, _Record]:
        state, rows = carry
        unknown = (jnp.asarray(jnp.inf), jnp.asarray(0.0))
        state, (curvature, defect) = jax.lax.fori_loop(
            0, inner[index], lambda _, step: advance(*step), (state, unknown)
        )
        # What was recorded may differ from what is computed here, by rounding.
        jump = jnp.linalg.norm(state.point - targets[index])
        size, radius = jnp.linalg.norm(state.correction), state.radius + jump
        widest = jnp.maximum(state.widest, size + radius)
        state = _State(targets[index], state.correction, radius, widest)
        row = _Record(size, state.radius, state.widest, *_loss(objective, state), curvature, defect)
        return state, jax.tree.map(lambda all_rows, one: all_rows.at[index].set(one), rows, row)

    return jax.lax.fori_loop(0, count, to_next, (state, rows))


def _advance(
    objective: Objective,
    rate: Scalar,
    corrected: bool,
    exact: bool,
    state: _State,
    seen: tuple[Scalar, Scalar],
) -> tuple[_State, tuple[Scalar, Scalar]]:
    """One step of descent, of the correction and of the radius."""
    unravel = _unravel(objective)
    weights = unravel(state.point)
    slope = ravel_pytree(objective.gradient(weights))[0]
    product, smallest = _hessian(objective, weights, exact)
    bent, turned = product(slope), product(state.correction)
    centre = BallCentre.at(objective, weights)
    defect = _defect(centre, rate, state.correction, slope, bent, turned, product, corrected)
    grown = grow(centre, smallest, defect, state.radius, rate)
    correction = state.correction - rate * turned + rate**2 / 2 * bent
    correction = correction if corrected else jnp.zeros_like(correction)
    moved = state.point - rate * slope
    slack = _units(state.point) * (jnp.linalg.norm(state.point) + rate * jnp.linalg.norm(slope))
    away = jnp.linalg.norm(state.correction) + rate * jnp.linalg.norm(turned)
    away = away + rate**2 / 2 * jnp.linalg.norm(bent) * corrected
    widest = jnp.maximum(state.widest, away + grown.largest + slack)
    after = _State(moved, correction, grown.radius + slack, widest)
    return after, (jnp.minimum(seen[0], grown.curvature), jnp.maximum(seen[1], defect.at(rate)))


def _defect(
    centre: BallCentre,
    rate: Scalar,
    correction: Vector,
    slope: Vector,
    bent: Vector,
    turned: Vector,
    product: Any,
    corrected: bool,
) -> Defect:
    """The numbers q0, q1, q2, C and G of `growth`."""
    norm = jnp.linalg.norm
    # The gradient is rounded as if it had been taken at weights that differ in their last places.
    still = centre.bounds(jnp.zeros(()))
    size = centre.size + still.product_first * _target_size(centre.objective)
    rounded = _units(slope) * still.hessian * size
    if not corrected:
        speed = norm(slope)
        change = centre.bounds(rate * speed).hessian_lipschitz
        return Defect(rounded, norm(bent), change * speed**2, jnp.zeros(()), speed)
    offset, speed = norm(correction), norm(slope) + rate / 2 * norm(bent) + norm(turned)
    change = centre.bounds(offset + rate * speed).hessian_lipschitz
    return Defect(
        change * offset**2 / 2 + rounded,
        norm(product(turned)) + change * offset * speed,
        norm(product(bent)) + change * speed**2,
        offset,
        speed,
    )


def _target_size(objective: Objective) -> Scalar:
    """The norm of the minimiser that a square loss subtracts from the product."""
    minimiser = getattr(objective.problem, "minimiser", None)
    return jnp.zeros(()) if minimiser is None else jnp.linalg.norm(minimiser)


def _hessian(objective: Objective, weights: Weights, exact: bool) -> tuple[Any, Scalar]:
    """The product with vectors, and a lower bound on the smallest eigenvalue."""
    if not exact:
        unravel = _unravel(objective)

        def product(vector: Vector) -> Vector:
            return ravel_pytree(objective.hvp(weights, unravel(vector)))[0]

        return product, jnp.asarray(-jnp.inf)
    matrix = linear_hessian(objective, weights)
    values = jnp.linalg.eigvalsh(matrix)
    largest = jnp.maximum(jnp.abs(values[0]), jnp.abs(values[-1]))
    return lambda vector: matrix @ vector, values[0] - _units(values) * largest


def _unravel(objective: Objective) -> Any:
    shapes = objective.network.shapes
    return ravel_pytree(tuple(jnp.zeros(shape) for shape in shapes))[1]


def _units(like: Array) -> float:
    return _ROUNDING * float(jnp.finfo(like.dtype).eps)


def _flat_records(run: Descent) -> Float[np.ndarray, "times size"]:
    rows = [np.asarray(array, float).reshape(run.times.size, -1) for array in run.weights]
    return np.concatenate(rows, axis=1)


def _require_usable(run: Descent, start_distance: float, curvature: str) -> None:
    if run.learning_rate.ndim:
        raise InputError(
            f"`tube` takes one run, got a batch of shape {run.learning_rate.shape}; one at a time."
        )
    if not run.weights:
        raise InputError(
            "`tube` needs the recorded weights, but this run kept only what `observe` returned; "
            "descend without `observe`."
        )
    if not isinstance(run.objective.network, LinearNetwork):
        raise InputError(
            "`tube` is proven for linear networks, whose loss is smooth, got "
            f"{type(run.objective.network).__name__}."
        )
    if jnp.zeros(()).dtype != np.float64:
        raise InputError("`tube` needs 64 bits, but JAX's are off; unset JAX_ENABLE_X64.")
    if not start_distance >= 0:
        raise InputError(f"`start_distance` must be a number >= 0, got {start_distance}.")
    if curvature not in ("auto", "exact", "norms"):
        raise InputError(f"`curvature` must be auto, exact or norms, got {curvature!r}.")
