"""What is guaranteed here: every theorem about training, tried on one case."""

from collections.abc import Sequence

from thalweg._arguments import checked
from thalweg._typing import AnyWeights
from thalweg.certificates import (
    Case,
    Guarantees,
    RandomStart,
    Statement,
    UndeclaredCase,
)
from thalweg.certificates.guarantees import check_all
from thalweg.dynamics import AbstractFlow, Descent
from thalweg.objective import AbstractObjective, Objective
from thalweg.theorems.papers import STATEMENTS


@checked
def certify(
    objective: AbstractObjective,
    weights: AnyWeights,
    learning_rate: float | None = None,
    target_loss: float | None = None,
    *,
    time: float | None = None,
    radius: float | None = None,
    random_start: RandomStart | None = None,
    run: Descent | None = None,
    flow: AbstractFlow | None = None,
) -> Guarantees:
    """Every theorem that speaks about this training: which apply, by what margin, promising what.

    Args:
        objective: the loss. Theorems need a network on a problem, `Objective`: of any other
            function each of them says that it does not apply, and why.
        weights: the start.
        learning_rate: of descent; without it the largest guaranteed ones are given.
        target_loss: a value of the objective, to count iterations to.
        time: over which descent is to stay near the flow (learning rate x steps).
        radius: how near.
        random_start: the distribution of the start, for statements about probabilities.
        run: a descent from the start: what was promised is then compared with it.
        flow: the flow from the start, likewise; Theorem 3 of elkabetz2021 needs it.
    """
    known = (learning_rate, target_loss, time, radius, random_start, run, flow)
    if isinstance(objective, Objective):
        return certify_case(Case(objective, weights, *known))
    return certify_case(UndeclaredCase(objective, weights, *known))


@checked
def certify_case(
    case: Case | UndeclaredCase, statements: Sequence[Statement] = STATEMENTS
) -> Guarantees:
    """The same for a case that has been put together already.

    Args:
        case: the training.
        statements: those to try; the papers' by default, to which one's own may be added.
    """
    return check_all(statements, case)
