"""The steps of a tube, one compiled block after the other, in memory that does not grow.

Descent, the correction and the radius (`growth`) are carried from step to step; of each record a
few numbers are kept, never the weights. A network with a kinked activation is a polynomial only on
its region. The flow of that polynomial is the network's own flow for as long as it is inside; so a
step counts only if the ball that is proven to hold the flow during all of it, and the curve z, and
the next iterate, does not meet the region's boundary. Then all three are in one region still, and
by induction that of the start.

A lower bound on the distance to the boundary is carried along, less what descent moves; it is
computed again only where it no longer suffices.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from thalweg._typing import Scalar, Weights
from thalweg.curvature.balls import BallCentre, ObjectiveRounding, largest_moment
from thalweg.curvature.forms import linear_hessian
from thalweg.curvature.regions import distance_to_boundary
from thalweg.curvature.sample_balls import JointCentre, SampleCentre
from thalweg.objective import Objective
from thalweg.problem.base import units
from thalweg.tubes.growth import Centre, Defect, grow

Vector = Float[Array, " size"]
Seen = tuple[Scalar, Scalar]

_FEW_FEATURES = 64  # up to which a moment of the inputs is decomposed for every ball


class State(eqx.Module):
    """Where a tube is.

    Attributes:
        point: where descent is.
        correction: from there to the tube's centre.
        radius: about the centre; infinite from where on nothing is proven.
        widest: what the distance from the polygon through all steps has stayed below.
        clear: how far the region's boundary is at least; infinite where there is none.
        left: whether the radius is infinite because the region may have been left.
    """

    point: Vector
    correction: Vector
    radius: Scalar
    widest: Scalar
    clear: Scalar
    left: Bool[Array, ""]


class Rows(eqx.Module):
    """What is kept of each recorded time."""

    correction: Array | np.ndarray
    radius: Array | np.ndarray
    between: Array | np.ndarray
    loss: Array | np.ndarray
    loss_error: Array | np.ndarray
    curvature: Array | np.ndarray
    defect: Array | np.ndarray


@eqx.filter_jit
def begin(objective: Objective, point: Vector, radius: Scalar) -> tuple[State, Rows]:
    """The state at time zero, and its record."""
    clear = _distance_to_boundary(objective, unravel(objective)(point))
    state = State(point, jnp.zeros_like(point), radius, radius, clear, jnp.asarray(False))
    loss, doubt = _loss(objective, _centre_maker(objective), state)
    values = (jnp.zeros(()), radius, radius, loss, doubt, jnp.asarray(jnp.nan), jnp.zeros(()))
    return state, Rows(*(jnp.reshape(value, 1) for value in values))


@eqx.filter_jit
def advance_block(
    objective: Objective,
    rate: Scalar,
    state: State,
    targets: Float[Array | np.ndarray, "records size"] | None,
    inner: Int[Array | np.ndarray, " records"],
    count: Int[Array, ""],
    corrected: bool,
    exact: bool,
) -> tuple[State, Rows]:
    """From record to record; rows beyond `count` stay empty.

    Args:
        objective: what is descended.
        rate: the learning rate.
        state: where the block begins.
        targets: what a run has recorded, or None where the steps taken here are the run.
        inner: the steps up to each record.
        count: how many records to make.
        corrected: whether to carry the correction along.
        exact: whether to compute the smallest eigenvalue at each step.
    """
    inner = jnp.asarray(inner)
    recorded = None if targets is None else jnp.asarray(targets)
    centre_at = _centre_maker(objective)
    advance = partial(_advance, objective, centre_at, rate, corrected, exact)
    rows = Rows(*[jnp.zeros(inner.shape[0])] * len(fields(Rows)))

    def to_next(index: Array, carry: tuple[State, Rows]) -> tuple[State, Rows]:
        state, rows = carry
        going = jnp.isfinite(state.radius)
        state, seen = _take_steps(advance, state, inner[index])
        # What was recorded may differ from what is computed here, by rounding.
        target = state.point if recorded is None else recorded[index]
        jump = jnp.linalg.norm(state.point - target)
        size, radius = jnp.linalg.norm(state.correction), state.radius + jump
        # The last edge of the polygon ends where the record says.
        widest = jnp.maximum(state.widest + jump, size + radius)
        state = State(target, state.correction, radius, widest, state.clear - jump, state.left)
        loss = _loss(objective, centre_at, state)
        seen = (jnp.where(going, value, jnp.nan) for value in seen)
        row = Rows(size, radius, widest, *loss, *seen)
        return state, jax.tree.map(lambda all_rows, one: all_rows.at[index].set(one), rows, row)

    return jax.lax.fori_loop(0, count, to_next, (state, rows))


def unravel(objective: Objective) -> Callable[[Vector], Weights]:
    """The function that gives a long vector the shapes of the weights."""
    shapes = objective.network.shapes
    return ravel_pytree(tuple(jnp.zeros(shape) for shape in shapes))[1]


def _take_steps(
    advance: Callable[[State, Seen], tuple[State, Seen]], state: State, count: Array
) -> tuple[State, Seen]:
    """So many steps, or fewer if the bound diverges; the least curvature, most defect."""

    def unfinished(carry: tuple[Array, State, Seen]) -> Array:
        done, state, _ = carry
        return (done < count) & jnp.isfinite(state.radius)

    def step(carry: tuple[Array, State, Seen]) -> tuple[Array, State, Seen]:
        done, state, seen = carry
        return done + 1, *advance(state, seen)

    unknown = (jnp.asarray(jnp.inf), jnp.asarray(0.0))
    _, state, seen = jax.lax.while_loop(unfinished, step, (jnp.zeros_like(count), state, unknown))
    return state, seen


def _advance(
    objective: Objective,
    centre_at: Callable[[Weights], Centre],
    rate: Scalar,
    corrected: bool,
    exact: bool,
    state: State,
    seen: Seen,
) -> tuple[State, Seen]:
    """One step of descent, of the correction and of the radius."""
    weights = unravel(objective)(state.point)
    slope = ravel_pytree(objective.gradient(weights))[0]
    product, smallest = _hessian(objective, weights, exact)
    bent, turned = product(slope), product(state.correction)
    centre = centre_at(weights)
    off = centre.rounding()
    smallest = smallest - off.hessian
    defect = _defect(centre, off, rate, state.correction, slope, bent, turned, product, corrected)
    grown = grow(centre, smallest, defect, state.radius, rate)
    correction = state.correction - rate * turned + rate**2 / 2 * bent
    correction = correction if corrected else jnp.zeros_like(correction)
    moved = state.point - rate * slope
    far = rate * jnp.linalg.norm(slope)
    slack = units(state.point.dtype) * (jnp.linalg.norm(state.point) + far)
    away = jnp.linalg.norm(state.correction) + rate * jnp.linalg.norm(turned)
    away = away + rate**2 / 2 * jnp.linalg.norm(bent) * corrected
    widest = jnp.maximum(state.widest, away + grown.largest + slack)
    after = State(moved, correction, grown.radius + slack, widest, state.clear, state.left)
    if objective.network.linear is None:
        reach = defect.offset + rate * defect.speed + grown.largest + slack
        clear = _boundary_beyond(objective, weights, reach, state.clear)
        after = _unless_left(after, reach, clear, far + slack)
    return after, (jnp.minimum(seen[0], grown.curvature), jnp.maximum(seen[1], defect.at(rate)))


def _boundary_beyond(
    objective: Objective, weights: Weights, reach: Scalar, known: Scalar
) -> Scalar:
    """How far the boundary is at least: what is known if that is beyond reach, else computed."""
    enough = (reach < known) | ~jnp.isfinite(reach)
    return jax.lax.cond(
        enough, lambda: known, lambda: _distance_to_boundary(objective, weights).astype(known.dtype)
    )


def _unless_left(after: State, reach: Scalar, clear: Scalar, moved: Scalar) -> State:
    """The state after a step whose ball must not meet the boundary."""
    inside = reach < clear
    left = jnp.isfinite(reach) & ~inside
    return State(
        after.point,
        after.correction,
        radius=jnp.where(inside, after.radius, jnp.inf),
        widest=jnp.where(inside, after.widest, jnp.inf),
        clear=clear - moved,
        left=after.left | left,
    )


def _distance_to_boundary(objective: Objective, weights: Weights) -> Scalar:
    """A lower bound; infinite for networks without kinks."""
    network = objective.network.layered
    if network is None:
        return jnp.asarray(jnp.inf)
    lower = distance_to_boundary(network, weights, objective.problem.inputs).lower
    return jnp.where(network.slopes[0] == network.slopes[1], jnp.inf, lower)


def _centre_maker(objective: Objective) -> Callable[[Weights], Centre]:
    """What knows the balls around weights; what all balls share is computed here, once."""
    network, problem = objective.network.linear, objective.problem
    if network is None:
        moment = largest_moment(problem)
        return lambda weights: SampleCentre.at(objective, weights, moment)
    if problem.least_squares is not None or problem.shape[1] <= _FEW_FEATURES:
        return partial(BallCentre.at, objective)
    moment = largest_moment(problem)
    if network.readout is not None or network.depth == 1:
        return lambda weights: BallCentre.at(objective, weights, moment)
    return lambda weights: JointCentre.at(objective, weights, moment)


def _loss(
    objective: Objective, centre_at: Callable[[Weights], Centre], state: State
) -> tuple[Scalar, Scalar]:
    """The loss at the tube's centre, and how much it can differ within the radius.

    |f(z + d) - f(z)| <= |d| |grad f(z)| + |d|^2 / 2 times what the Hessian is at most.
    """
    weights = unravel(objective)(state.point + state.correction)
    value, gradient = objective.value_and_gradient(weights)
    steepness, centre = jnp.linalg.norm(ravel_pytree(gradient)[0]), centre_at(weights)
    bend, off = centre.bounds(state.radius).hessian, centre.rounding()
    doubt = state.radius * (steepness + off.gradient) + state.radius**2 / 2 * bend + off.value
    inside = jnp.linalg.norm(state.correction) + state.radius < state.clear
    return value, jnp.where(inside, doubt, jnp.inf)


def _defect(
    centre: Centre,
    off: ObjectiveRounding,
    rate: Scalar,
    correction: Vector,
    slope: Vector,
    bent: Vector,
    turned: Vector,
    product: Any,
    corrected: bool,
) -> Defect:
    """The numbers q0, q1, q2, C and G of `growth`, with what gradient and Hessian are off by."""
    norm = jnp.linalg.norm
    if not corrected:
        speed = norm(slope)
        change, linear = centre.bounds(rate * speed).hessian_lipschitz, norm(bent)
        linear = linear + off.hessian * speed
        return Defect(off.gradient, linear, change * speed**2, jnp.zeros(()), speed)
    offset, speed = norm(correction), norm(slope) + rate / 2 * norm(bent) + norm(turned)
    change = centre.bounds(offset + rate * speed).hessian_lipschitz
    return Defect(
        change * offset**2 / 2 + off.gradient + off.hessian * offset,
        norm(product(turned)) + change * offset * speed + off.hessian * speed,
        norm(product(bent)) + change * speed**2,
        offset,
        speed,
    )


def _hessian(objective: Objective, weights: Weights, exact: bool) -> tuple[Any, Scalar]:
    """The product with vectors, and the smallest eigenvalue; -inf where it is not computed."""
    if not exact:
        shaped = unravel(objective)

        def product(vector: Vector) -> Vector:
            return ravel_pytree(objective.hvp(weights, shaped(vector)))[0]

        return product, jnp.asarray(-jnp.inf)
    linear = objective.network.linear is not None
    matrix = linear_hessian(objective, weights) if linear else objective.hessian(weights)
    return lambda vector: matrix @ vector, jnp.linalg.eigvalsh(matrix)[0]
