"""After the last step: both descent and flow may be proven to come to rest nearby.

For the square loss let e be the loss above its minimum, F the end-to-end matrix, J its derivative,
and mu the smallest positive eigenvalue of the input moment Sigma, the square of a singular value of
the samples. The gradient G of the loss with respect to F has |grad f| = |J^T G| and
|G|^2 >= 4 scale mu e, so that on a ball on which all singular values of J (as a map onto matrices)
are at least sigma,

    |grad f|^2 >= 2 m e,    m = 2 scale mu sigma^2.

J changes by at most d2 R on a ball of radius R. While they stay in such a ball, the flow has at
most the length sqrt(2 e / m) before it, since (sqrt e)' <= -sqrt(m / 2) |theta'|; and descent at
most sqrt(2 e / m) / (1 - eta b / 2), where b bounds the Hessian and eta b < 2. So if both lengths,
counted from where they are now, end inside of the ball, neither ever leaves it, both converge to
minimisers, and their distance never exceeds what it is now plus both lengths.

Where the flow is within r of z, its sqrt(e) is at most that at z plus sqrt(scale lambda_max(Sigma))
times d1 r.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from thalweg._typing import Scalar, Weights
from thalweg.curvature.balls import BallCentre
from thalweg.objective import Objective
from thalweg.problem import AbstractLeastSquares
from thalweg.problem.base import units

_ATTEMPTS = 40
_ROOM = 1.01  # how far above the length the next guess of the ball lies


class _Lengths(eqx.Module):
    """What may lie before the flow and before descent, if they stay in a ball of some radius."""

    flow: Scalar
    descent: Scalar


def tail_bound(
    objective: Objective,
    weights: Weights,
    correction: Weights,
    radius: float,
    rate: float,
) -> float | None:
    """What the distance stays below for ever, or None where that cannot be proven here.

    Args:
        objective: the loss, which must be a square loss of a linear network without weight decay.
        weights: where descent is.
        correction: from there to the centre of the tube.
        radius: of the tube.
        rate: the learning rate.
    """
    known = objective.network.linear is not None and objective.problem.least_squares is not None
    if not known or float(objective.weight_decay) > 0:
        return None
    now = float(jnp.sqrt(sum(jnp.sum(each**2) for each in correction))) + radius
    numbers = (jnp.asarray(radius), jnp.asarray(rate))
    ball = now
    for _ in range(_ATTEMPTS):
        lengths = _lengths(objective, weights, correction, *numbers, jnp.asarray(ball))
        flow, descent = float(lengths.flow), float(lengths.descent)
        if now + flow <= ball and descent <= ball:
            return now + flow + descent
        ball = _ROOM * max(now + flow, descent)
        if not ball < 1e3:
            return None
    return None


@eqx.filter_jit
def _lengths(
    objective: Objective,
    weights: Weights,
    correction: Weights,
    radius: Scalar,
    rate: Scalar,
    ball: Scalar,
) -> _Lengths:
    network, problem = objective.network.linear, objective.problem.least_squares
    assert network is not None  # as `tail_bound` has checked
    assert problem is not None
    jacobian = jax.jacobian(lambda point: network.end_to_end(point))(weights)
    size = problem.shape[0] * problem.shape[1]
    rows = jnp.concatenate([jnp.reshape(block, (size, -1)) for block in jacobian], axis=1)
    singular = jnp.linalg.svd(rows, compute_uv=False)
    least = singular[-1] if rows.shape[1] >= size else jnp.zeros(())
    bounds = BallCentre.at(objective, weights).bounds(ball)
    sigma = jnp.maximum(least - bounds.product_second * ball, 0.0)
    smallest, largest = _moments(problem)
    pace = 2 * problem.scale * smallest * sigma**2
    centre = tuple(a + b for a, b in zip(weights, correction, strict=True))
    here, there = (problem.root_excess_bound(network.end_to_end(w)) for w in (weights, centre))
    lift = jnp.sqrt(problem.scale * largest) * bounds.product_first
    # As far as the product of the layers is rounded.
    blur = lift * units(rows.dtype) * jnp.sqrt(sum(jnp.sum(layer**2) for layer in weights))
    here, farther = here + blur, lift * radius + blur
    unit = jnp.sqrt(2 / pace)
    steady = 1 - rate * bounds.hessian / 2
    descent = jnp.where(steady > 0, unit * here / jnp.where(steady > 0, steady, 1.0), jnp.inf)
    return _Lengths(unit * (there + farther), descent)


def _moments(problem: AbstractLeastSquares) -> tuple[Scalar, Scalar]:
    """What the positive eigenvalues of the input moment are at least, and at most.

    There are as many as the samples have rows or columns; those that rounding could have made are
    not proven to be positive, and count as zero.
    """
    rank = problem.input_factor.shape[0]
    values = jnp.sqrt(problem.spectrum[-rank:])
    slack = units(values.dtype) * jnp.linalg.norm(problem.input_factor)
    return jnp.maximum(values[0] - slack, 0.0) ** 2, (values[-1] + slack) ** 2
