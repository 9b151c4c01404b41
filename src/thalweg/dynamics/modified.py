"""What `flow` follows where it is asked for a modified flow: see `objective.modified`."""

import jax
import jax.numpy as jnp

from thalweg._checks import InputError, described, finite_weights, require_positive
from thalweg._typing import AnyWeights
from thalweg.objective.base import AbstractObjective
from thalweg.objective.modified import ModifiedObjective
from thalweg.optimisers import AbstractOptimiser
from thalweg.solvers import AbstractSolver, Auto, Explicit, Validated
from thalweg.solvers.explicit import Diffrax

HIGHEST_ORDER = 2


def modified_motion(
    objective: AbstractObjective,
    weights: AnyWeights,
    *,
    order: int,
    learning_rate: float | None,
    optimiser: AbstractOptimiser,
) -> tuple[ModifiedObjective, AnyWeights]:
    """The objective with a modified gradient, and where its flow begins."""
    if not 0 <= order <= HIGHEST_ORDER:
        raise InputError(
            f"`modified` must be 0 for the gradient flow, or the order 1 or {HIGHEST_ORDER} of a "
            f"modified flow, got {order}."
        )
    if learning_rate is None:
        raise InputError(
            "A modified flow needs the `learning_rate` of the descent that it stands for; give it."
        )
    require_positive("learning_rate", learning_rate)
    if not objective.smooth:
        raise InputError(
            "A modified flow needs second derivatives, and this objective has kinks; choose a "
            "smooth activation, or leave out `modified`."
        )
    beta = _momentum_of(optimiser)
    if beta and order == HIGHEST_ORDER:
        raise InputError(
            "The modified flow of the heavy ball is known to order 1, got `modified` = 2; give 1."
        )
    rate, share = jnp.asarray(learning_rate, float), jnp.asarray(beta)
    found = ModifiedObjective(objective, rate, share, order)
    if not beta:
        return found, weights
    points = finite_weights(weights)
    objective.check(points, many=False)
    return found, jax.tree.map(jnp.asarray, found.first_point(points))


def solver_of_modified(
    solver: AbstractSolver | Validated, order: int
) -> AbstractSolver | Validated:
    """The solver, if it can follow a field of this order; from order two on, none is a gradient."""
    if order < HIGHEST_ORDER or isinstance(solver, Explicit | Diffrax):
        return solver
    if isinstance(solver, Auto):
        return Explicit()
    raise InputError(
        "A modified flow of order 2 is the flow of no function, and needs a solver that takes any "
        f"field, got {described(solver)}; use tw.solvers.Explicit()."
    )


def _momentum_of(optimiser: AbstractOptimiser) -> float:
    rule = optimiser.momentum
    if rule is None or rule.ahead:
        raise InputError(
            "A modified flow is known for tw.optimisers.GradientDescent() and HeavyBall(beta), got "
            f"{described(optimiser)}; give one of these."
        )
    return rule.beta
