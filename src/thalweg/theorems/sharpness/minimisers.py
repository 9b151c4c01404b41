"""How flat the minimisers of a deep linear regression can be [marion2024].

The bounds themselves are in `thalweg.curvature.minimisers`; here they become statements with
assumptions, and critical learning rates: descent with learning rate eta cannot converge, but for a
null set of starts, to a minimiser whose sharpness S is above 2 / eta, and so at no minimiser if

    eta > 2 / (the least sharpness of all minimisers).

[marion2024] P. Marion, L. Chizat, "Deep linear networks for regression are implicitly regularized
    towards flat minima", arXiv:2405.13456.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from thalweg._checks import InputError, require_positive
from thalweg._typing import Weights
from thalweg.certificates import (
    AbstractTheorem,
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Narrowed,
    Question,
    requirement,
)
from thalweg.curvature import (
    layerwise_sharpness_bounds,
    least_sharpness,
    minimiser_sharpness_bounds,
)
from thalweg.objective import Objective
from thalweg.theorems.settings.deep_regression import (
    DeepRegression,
    Minimum,
    Point,
    RegressionTraining,
    in_training,
    minima_of,
    minimum_at,
    scalar_regression,
    unique_solution,
)


class SharpnessOfMinimisers(AbstractTrainingTheorem[RegressionTraining]):
    """No minimiser of a deep linear regression is flat: its sharpness grows with the depth.

    With r the norm of the readout (1 where there is none) and A = w^T Sigma w, every minimiser has

        S >= 2 scale r^{1/L} mu |w|^{2 - 1/L} sum_k 1 / |W_k|_F             (a)
        S >= 2 scale L r^{2/L} mu |w|^{2 - 2/L}                             (b)

    and the same with A for mu |w|^2, and also (ours)

        S >= 2 scale A sum_k 1 / |W_k|_F^2                                  (c)
        S >= 2 scale L r^{2/L} A^{1 - 2/L} |Sigma w|^{2/L}.                 (d)

    The paper (scale = 1) prints (a) and (b) without r, which is false for r < 1: in the proof a
    product of rank-one matrices loses its left factor. Without a readout, (b) is its theorem 1.
    (c) is the Rayleigh quotient along W_k / |W_k|_F^2; (d) is one at Sigma^{1/2} w, with the
    inequality of means over the layers.
    """

    reference: ClassVar[str] = "marion2024:thm2"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[RegressionTraining]:
        return in_training(case, _with_unique_solution(case.objective))

    @override
    def conclusions(self, subject: RegressionTraining, /) -> tuple[Claim, ...]:
        objective = subject.case.objective
        return tuple(
            claim
            for minimum in minima_of(subject)
            for claim in (*_uniform(objective, minimum), *_layerwise(objective, minimum))
        )

    @override
    def answers(self, subject: RegressionTraining, /) -> tuple[Answer, ...]:
        bounds = minimiser_sharpness_bounds(subject.case.objective)
        conditions = {
            "by the paper's bound, with the smallest eigenvalue of the input moment": bounds.paper,
            "by the input moment at the solution": bounds.moment,
            "by the input moment at the solution and its image": bounds.sharper,
        }
        return tuple(
            answer
            for condition, sharpness in conditions.items()
            for answer in _floor(float(sharpness), condition)
        )


class FlattestMinimiser(AbstractTrainingTheorem[RegressionTraining]):
    """The flattest minimiser of a deep linear regression is known exactly.

        S >= 2 scale min over a > 0 of lambda_max(a Sigma + (L - 1) (r^2 / a)^{1/(L-1)} Sigma^{1/2}
        w w^T Sigma^{1/2}),

    which a chain of aligned matrices of rank one attains, whether or not Sigma is invertible.
    Ours; `thalweg.curvature.minimisers` has the proof.
    """

    reference: ClassVar[str] = "marion2024:d-min-sharpness"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[RegressionTraining]:
        return in_training(case, _with_solution(case.objective))

    @override
    def conclusions(self, subject: RegressionTraining, /) -> tuple[Claim, ...]:
        statement = "least sharpness <= S"
        least = float(least_sharpness(subject.case.objective).sharpness)
        return tuple(_at_least(statement, least, minimum) for minimum in minima_of(subject))

    @override
    def answers(self, subject: RegressionTraining, /) -> tuple[Answer, ...]:
        least = float(least_sharpness(subject.case.objective).sharpness)
        return _floor(least, "by the flattest minimiser, which exists")


class SharpnessIsUnbounded(AbstractTheorem[Point]):
    """A minimiser becomes as sharp as one likes if one layer is multiplied and the next divided.

    With W_1 multiplied by C and W_2 divided by C, as `rescaled` does, the point stays a minimiser:

        S >= 2 scale r^{1/L} mu |w|^{2 - 1/L} C / |W_2|_F                   the paper's, of (a)
        S >= 2 scale A C^2 / |W_2|_F^2                                      ours, of (c)

    and C^2 is how S really grows. (a) and (c) are those of `SharpnessOfMinimisers`.
    """

    reference: ClassVar[str] = "marion2024:ex-rescale"

    factor: float = 10.0

    @override
    def assumptions(self, point: Point, /) -> tuple[Claim, ...]:
        found = _with_unique_solution(point.objective)
        if found.setting is None:
            return found.claims
        minimum = minimum_at(found.setting, point.weights)
        return (
            *found.claims,
            Claim("2 <= depth", 2, found.setting.depth),
            requirement("the weights are a minimiser", minimum is not None),
        )

    @override
    def conclusions(self, point: Point, /) -> tuple[Claim, ...]:
        setting = _with_unique_solution(point.objective).known
        moved = minimum_at(setting, rescaled(point.weights, self.factor))
        still = requirement("the rescaled weights are a minimiser", moved is not None)
        if moved is None:
            return (still,)
        moment = float(jnp.sum(setting.problem.fitted**2))
        ratio = self.factor / float(np.linalg.norm(np.asarray(point.weights[1])))
        power = setting.readout ** (1 / setting.depth) * setting.size ** (2 - 1 / setting.depth)
        linear = 2 * setting.scale * setting.smallest * power * ratio
        quadratic = 2 * setting.scale * moment * ratio**2
        return (
            still,
            _at_least("2 scale r^{1/L} mu |w|^{2 - 1/L} C / |W_2|_F <= S", linear, moved),
            _at_least("2 scale A C^2 / |W_2|_F^2 <= S", quadratic, moved),
        )


def rescaled(weights: Weights, factor: float) -> Weights:
    """The first layer multiplied by a factor and the second divided by it: the same product."""
    require_positive("factor", factor)
    if len(weights) < 2:
        raise InputError(f"`weights` must have two layers at least to trade, got {len(weights)}.")
    first, second, *others = (jnp.asarray(array) for array in weights)
    return (factor * first, second / factor, *others)


def largest_settling_rate(objective: Objective) -> float:
    """2 / S for the flattest minimiser: descent with a larger learning rate settles at none."""
    return 2 / float(least_sharpness(objective).sharpness)


def _with_solution(objective: Objective) -> Narrowed[DeepRegression]:
    return scalar_regression(objective).further(_not_zero)


def _not_zero(setting: DeepRegression) -> Narrowed[DeepRegression]:
    claim = requirement("the least-squares solution is not zero", setting.size > 0)
    return Narrowed.where((claim,), setting)


def _with_unique_solution(objective: Objective) -> Narrowed[DeepRegression]:
    return _with_solution(objective).further(unique_solution)


def _uniform(objective: Objective, minimum: Minimum) -> tuple[Claim, ...]:
    bounds = minimiser_sharpness_bounds(objective)
    return (
        _at_least("2 scale L r^{2/L} mu |w|^{2 - 2/L} <= S", bounds.paper, minimum),
        _at_least("2 scale L r^{2/L} A |w|^{-2/L} <= S", bounds.moment, minimum),
        _at_least("2 scale L r^{2/L} A^{1 - 2/L} |Sigma w|^{2/L} <= S", bounds.sharper, minimum),
    )


def _layerwise(objective: Objective, minimum: Minimum) -> tuple[Claim, ...]:
    bounds = layerwise_sharpness_bounds(objective, minimum.weights)
    return (
        _at_least("2 scale r^{1/L} mu |w|^{2 - 1/L} sum_k 1 / |W_k|_F <= S", bounds.paper, minimum),
        _at_least("2 scale r^{1/L} A |w|^{-1/L} sum_k 1 / |W_k|_F <= S", bounds.moment, minimum),
        _at_least("2 scale A sum_k 1 / |W_k|_F^2 <= S", bounds.inverse_squares, minimum),
    )


def _at_least(statement: str, bound: object, minimum: Minimum) -> Claim:
    return Claim(statement + minimum.where, bound, minimum.sharpness, minimum.resolution)


def _floor(sharpness: float, condition: str) -> tuple[Answer, ...]:
    if sharpness == 0:
        return ()
    return (
        Answer(Question.LEAST_SHARPNESS, sharpness, condition),
        Answer(Question.CRITICAL_RATE, 2 / sharpness, condition),
    )
