"""What theory says about the critical learning rate, to stand beside what was measured.

Descent is linearly stable at a minimiser of sharpness S up to the learning rate 2 / S, descent with
momentum up to a rate that its optimiser declares (`stability`): then the names have that number for
the 2, "3.8 / least sharpness". Of optimisers that declare none, nothing is predicted. The
predictions differ in which sharpness they take: a lower bound for all minimisers (above 2 / S none
is linearly stable), that of the minimiser which small starts lead to, that of the one which slow
descent from this very start finds, or that of the start itself. Certified rates are proven to
train, by plain descent.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from thalweg._checks import InputError
from thalweg._typing import AnyWeights, Weights
from thalweg.certificates import Case, Question
from thalweg.critical.search import Criterion, budget_steps
from thalweg.curvature.minimisers import (
    balanced_sharpness,
    least_sharpness,
    minimiser_sharpness_bounds,
    small_start_sharpness_bounds,
)
from thalweg.curvature.path import spectrum_along
from thalweg.dynamics import descend, nothing
from thalweg.dynamics.batch import Iteration
from thalweg.objective import Objective
from thalweg.optimisers import AbstractOptimiser
from thalweg.theorems.convergence.linear_rate import LinearRate
from thalweg.theorems.convergence.step_sizes import LargerSteps, StabilityLimit
from thalweg.theorems.one_output.convergence import DescentConverges

_LIMITS = ("S_min", "sharper bound", "least sharpness")  # of the sharpness of all minimisers
_SLOWER = 20  # slow descent has the critical rate divided by this
_SETTLED = 1e-3  # part of the start's excess below which slow descent has arrived
_AT_REST = 1e-8  # and below which it need not go on
_PARTS = 16  # of the slow run, after each of which it is looked at


@dataclass(frozen=True, eq=False)
class Prediction:
    """A learning rate that theory singles out.

    Attributes:
        name: how it is computed.
        meaning: what it says about descent.
        rates: one for each start, or a single one for all; NaN where it does not apply.
        reason: why there is none.
        is_limit: whether no minimiser is linearly stable above it.
    """

    name: str
    meaning: str
    rates: Float[np.ndarray, "..."]
    reason: str = ""
    is_limit: bool = False

    @property
    def rate(self) -> float | None:
        """That of the middle start; None where it applies to none."""
        known = np.sort(self.rates[np.isfinite(self.rates)].ravel())
        return float(known[(known.size - 1) // 2]) if known.size else None


def predictions(
    iteration: Iteration,
    starts: AnyWeights,
    lowers: Float[np.ndarray, " starts"],
    criterion: Criterion,
    certified: bool,
) -> tuple[Prediction, ...]:
    """All predictions, for starts along one leading axis; most are about networks on problems."""
    objective, optimiser = iteration.objective, iteration.optimiser
    if optimiser.stability is None:
        return ()
    known = isinstance(objective, Objective)
    found = list(_of_minimisers(objective, optimiser)) if known else []
    found += _of_runs(iteration, starts, lowers, criterion)
    if certified and known and optimiser.plain:
        found += _of_theorems(objective, starts, criterion)
    return tuple(found)


def _of_minimisers(objective: Objective, optimiser: AbstractOptimiser) -> Iterator[Prediction]:
    """Those that know only the data and the network."""
    sources: tuple[tuple[str, str, Callable[[Objective], Any]], ...] = (
        (
            "S_min",
            "no minimiser is linearly stable above it (marion2024:thm2)",
            lambda f: minimiser_sharpness_bounds(f).paper,
        ),
        (
            "sharper bound",
            "no minimiser is linearly stable above it",
            lambda f: minimiser_sharpness_bounds(f).sharper,
        ),
        (
            "least sharpness",
            "the flattest minimiser is linearly stable up to it, none is above it",
            lambda f: least_sharpness(f).sharpness,
        ),
        (
            "S0",
            "the balanced minimisers, where flows from near zero end, are linearly stable up to it",
            balanced_sharpness,
        ),
        (
            "small-start bound",
            "the limits of small starts are linearly stable up to it (marion2024:cor3)",
            lambda f: small_start_sharpness_bounds(f).sharper,
        ),
    )
    for name, meaning, compute in sources:
        try:
            sharpness, reason = float(compute(objective)), ""
        except InputError as error:
            sharpness, reason = np.nan, str(error)
        if sharpness == 0:
            sharpness, reason = np.nan, "The sharpness there is zero: every rate is below it."
        rates = optimiser.stability_limit(sharpness)
        yield Prediction(_over(optimiser, name), meaning, rates, reason, name in _LIMITS)


def _over(optimiser: AbstractOptimiser, sharpness: str) -> str:
    """The name of a rate: what the optimiser's stability is divided by."""
    return f"{float(optimiser.edge(1.0)):g} / {sharpness}"


# --- sharpness along real runs -------------------------------------------------------------------


def _of_runs(
    iteration: Iteration,
    starts: AnyWeights,
    lowers: Float[np.ndarray, " starts"],
    criterion: Criterion,
) -> Iterator[Prediction]:
    objective, optimiser = iteration.objective, iteration.optimiser
    limits, arrived = _slow_limits(iteration, starts, lowers, criterion)
    together = jax.tree.map(lambda s, e: np.stack([np.asarray(s), e], axis=1), starts, limits)
    sharpness = spectrum_along(objective, together).largest
    sharpness = np.where(sharpness > 0, sharpness, np.nan)
    at_end = np.where(arrived, optimiser.stability_limit(sharpness[:, 1]), np.nan)
    yield Prediction(
        _over(optimiser, "sharpness of the limit"),
        f"the minimiser that descent finds at a rate {_SLOWER} times smaller is stable up to it",
        at_end,
        "" if arrived.any() else "Slow descent did not arrive within the budget.",
    )
    yield Prediction(
        _over(optimiser, "sharpness at the start"),
        "above it the first steps may go up",
        optimiser.stability_limit(sharpness[:, 0]),
        "" if np.isfinite(sharpness[:, 0]).any() else "The loss curves upwards nowhere there.",
    )


def _slow_limits(
    iteration: Iteration,
    starts: AnyWeights,
    lowers: Float[np.ndarray, " starts"],
    criterion: Criterion,
) -> tuple[AnyWeights, Bool[np.ndarray, " starts"]]:
    """Where slow descent ends, and whether that is a minimiser.

    It stands for the gradient flow, whose limit it approaches like the learning rate, and costs one
    more block of runs where a flow would have to be compiled and integrated.
    """
    objective, optimiser = iteration.objective, iteration.optimiser
    trained = lowers > 0
    slow = np.where(trained, lowers, 1.0) / _SLOWER
    steps = max(_SLOWER * budget_steps(criterion, float(rate)) for rate in slow * _SLOWER)
    part = max(1, steps // _PARTS)
    excess = np.asarray([float(objective(one)) for one in _each(starts)]) - criterion.minimum
    left, ends = excess, jax.tree.map(np.asarray, starts)
    for _ in range(_PARTS):
        run = descend(
            objective, ends, learning_rate=slow, steps=part, record_every=part, observe=nothing,
            optimiser=optimiser,
        )  # fmt: skip
        ends, left = run.final, run.loss[:, -1] - criterion.minimum
        if np.all(left[trained] <= _AT_REST * excess[trained]):
            break
    return ends, trained & (left <= _SETTLED * excess)


def _each(starts: AnyWeights) -> Iterator[AnyWeights]:
    """The starts one by one."""
    for index in range(jax.tree.leaves(starts)[0].shape[0]):
        yield jax.tree.map(lambda array, place=index: jnp.asarray(array[place]), starts)


# --- theorems ------------------------------------------------------------------------------------


def _of_theorems(
    objective: Objective, starts: Weights, criterion: Criterion
) -> Iterator[Prediction]:
    for theorem in (StabilityLimit(), LinearRate(), LargerSteps(), DescentConverges()):
        predicts = isinstance(theorem, StabilityLimit)
        question = Question.PREDICTED_RATE if predicts else Question.LEARNING_RATE
        rates, reasons = [], []
        for start in _each(starts):
            certificate = theorem.check(
                Case(objective, start, target_loss=criterion.target(objective(start)))
            )
            given = [float(a.value) for a in certificate.answers if a.question is question]
            rates.append(max(given, default=np.nan))
            failure = certificate.first_failure
            reasons.append("" if given or failure is None else failure.statement)
        values = np.asarray(rates)
        yield Prediction(
            theorem.reference,
            "stability at a balanced minimiser" if predicts else "proven to train up to it",
            values,
            "" if np.isfinite(values).any() else f"It needs: {reasons[0]}.",
        )
