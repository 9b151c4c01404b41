"""Where the flow of a deep linear regression from a small start ends, and how sharp it is there.

All of it under marion2024's assumptions (A1) to (A3), with the names of `flow`. With
v = w / |w|, the sharpness of the balanced minimisers of rank one is

    S_0 = 2 scale |w|^{2 - 2/L} lambda_max(Sigma + (L - 1) Sigma^{1/2} v v^T Sigma^{1/2}).
"""

from typing import ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Narrowed,
    Place,
    Question,
    rounding,
)
from thalweg.curvature import (
    balanced_sharpness,
    minimiser_sharpness_bounds,
    small_start_sharpness_bounds,
)
from thalweg.theorems.settings.deep_regression import (
    DeepRegression,
    Minimum,
    RegressionTraining,
    minimum_at,
)
from thalweg.theorems.settings.small_starts import small_and_below_zero, start_size
from thalweg.theorems.small_starts.flow import (
    Progress,
    late_part,
    late_rate,
    progress_of,
    rate_answer,
)

_FOUND = "that the flow finds"


class _AbstractSmallStart(AbstractTrainingTheorem[RegressionTraining]):
    """What is proven under (A1) to (A3)."""

    @override
    def narrowed(self, case: Case, /) -> Narrowed[RegressionTraining]:
        return small_and_below_zero(case)


class LayersGrowAlike(_AbstractSmallStart):
    """At late times all layers of a network that started small have about the same norm.

        (|w| / 2)^{1/L} <= sigma_k(t) <= (2 |w|)^{1/L}

    as soon as 3/4 |w| <= |w_prod(t)| <= 9/8 |w|, which the proof shows to be enough, and which
    holds for good from some time on.
    """

    reference: ClassVar[str] = "marion2024:cor1"

    @override
    def conclusions(self, subject: RegressionTraining, /) -> tuple[Claim, ...]:
        case, setting = subject
        if case.flow is None:
            return ()
        progress = progress_of(case.flow)
        grown = _grown(setting, progress)
        if not grown.any():
            return ()
        values, error = progress.singular[grown], progress.error[grown]
        slack = error + rounding(np.max(values, axis=1))
        low, high = (size ** (1 / setting.depth) for size in (setting.size / 2, 2 * setting.size))
        return (
            Claim("(|w| / 2)^{1/L} <= min_k sigma_k", low, np.min(values, axis=1), slack),
            Claim("max_k sigma_k <= (2 |w|)^{1/L}", np.max(values, axis=1), high, slack),
        )


class SmallStartConverges(_AbstractSmallStart):
    """The flow from a small start converges to a global minimiser, exponentially fast.

    With the rate of `EventuallyLojasiewicz` from t_0 on, at all later times

        excess(t) <= excess(t_0) exp(-rate (t - t_0)),

    and where |w_prod| is between 3/4 |w| and 9/8 |w|, as it is from some time on,

        |grad_k| <= 2 (2 |w|)^{1 - 1/L} sqrt(scale M excess(t_0)) exp(-rate (t - t_0) / 2),

    which is integrable, so that the weights have a limit.
    """

    reference: ClassVar[str] = "marion2024:cor2"

    after: float = 1.0

    @override
    def conclusions(self, subject: RegressionTraining, /) -> tuple[Claim, ...]:
        setting, late = subject.regression, late_part(subject.case.flow, self.after)
        if late is None:
            return ()
        progress, rate = late.progress(), float(late_rate(subject, late).rate)
        exponents = rate * (progress.times - progress.times[0])
        envelope = progress.excess[0] * np.exp(-exponents)
        slack = progress.loss.error(setting, progress.error) + rounding(progress.excess, envelope)
        claims = [
            Claim("excess(t) <= excess(t_0) exp(-rate (t - t_0))", progress.excess, envelope, slack)
        ]
        grown = _grown(setting, progress)
        if grown.any():
            factor = 2 * (2 * setting.size) ** (1 - 1 / setting.depth)
            bound = factor * np.sqrt(setting.scale * setting.largest * envelope)
            largest = np.max(progress.gradients, axis=1)
            curvature = 2 * setting.scale * setting.largest * progress.sensitivity
            slack = rounding(largest, bound) + 2 * curvature * progress.error
            envelope_text = "sqrt(scale M excess(t_0)) exp(-rate (t - t_0) / 2)"
            statement = f"max_k |grad_k| <= 2 (2 |w|)^(1 - 1/L) {envelope_text}"
            claims.append(Claim(statement, largest[grown], bound[grown], slack[grown]))
        return tuple(claims)

    @override
    def answers(self, subject: RegressionTraining, /) -> tuple[Answer, ...]:
        return rate_answer(subject, self.after)


class SmallStartLimitIsFlat(_AbstractSmallStart):
    """The minimiser that the flow finds from a small start is nearly as flat as any.

        1 <= S / (2 scale L mu |w|^{2 - 2/L}) <= 4^{1 - 1/L} M / mu <= 4 M / mu

    The paper states the last bound; that with 4^{1 - 1/L} is what its proof gives.
    """

    reference: ClassVar[str] = "marion2024:cor3"

    @override
    def conclusions(self, subject: RegressionTraining, /) -> tuple[Claim, ...]:
        limit, setting = limit_of(subject), subject.regression
        if limit is None:
            return ()
        upper = small_start_sharpness_bounds(setting.objective)
        least = float(minimiser_sharpness_bounds(setting.objective).paper)
        ratio, slack = limit.sharpness / least, limit.resolution / least
        condition = setting.largest / setting.smallest
        return (
            Claim("1 <= S / S_min", 1.0, ratio, slack),
            Claim("S / S_min <= 4 M / mu", ratio, 4 * condition, slack),
            Claim("S <= 8 scale L M |w|^{2 - 2/L}", limit.sharpness, upper.paper, limit.resolution),
            Claim(
                "S <= 2 scale L M (2 |w|)^{2 - 2/L}",
                limit.sharpness,
                upper.sharper,
                limit.resolution,
            ),
        )

    @override
    def answers(self, subject: RegressionTraining, /) -> tuple[Answer, ...]:
        upper = small_start_sharpness_bounds(subject.case.objective)
        return (
            Answer(Question.GREATEST_SHARPNESS, float(upper.paper), _FOUND, Place.FLOW),
            Answer(
                Question.GREATEST_SHARPNESS,
                float(upper.sharper),
                f"{_FOUND}, by the proof",
                Place.FLOW,
            ),
        )


class Spread(NamedTuple):
    """Factors on S_0 between which the sharpness of the limit lies."""

    lower: float
    upper: float


def sharpness_spread(setting: DeepRegression, eps: float) -> Spread:
    """How far the sharpness of a minimiser as aligned as `LayersAlign` says can be from S_0.

    Let a = |w| and p the product of the sigma_k. As p >= a and all sigma_k^2 are within eps, each
    is at least s^2 = a^{2/L} - eps. Replacing one layer after the other by its part of rank one,
    p (1 - delta) <= a with 1 - delta = (1 - eps / s^2)^{(L-1)/2} - L sqrt(eps) / s. Hence

        sigma_k^2 <= (a / (1 - delta))^{2/L} + eps,    sin(v_1, w) <= sqrt(eps) / ((1 - delta) s).

    The sharpness is 2 scale lambda_max(Sigma^{1/2} K Sigma^{1/2}) with K as in
    `curvature.minimisers`. Below, K >= a^2 (I / sigma_1^2 + sum_{k>=2} v v^T / sigma_k^2). Above,
    the k-th term of K is at most p^2 / sigma_k^2 times I for k = 1, and times
    v_1 v_1^T + eps / sigma_1^2 I <= v v^T + (sin(v_1, w) + eps / s^2) I for k >= 2.
    """
    depth = setting.depth
    square = setting.size ** (2 / depth)
    least = square - eps
    kept = (1 - eps / least) ** ((depth - 1) / 2) - depth * (eps / least) ** 0.5
    sine = (eps / least) ** 0.5 / kept
    tilt = 1 + (depth - 1) * (sine + eps / least)
    return Spread(
        lower=1 / (kept ** (-2 / depth) + eps / square), upper=square / least / kept**2 * tilt
    )


class SmallStartLimitSharpness(_AbstractSmallStart):
    """The flow from a small start ends near the sharpness of the balanced minimisers of rank one.

        lower * S_0 <= S <= upper * S_0,    both factors 1 + O(L sqrt(eps)), see `sharpness_spread`,

    so that no condition number comes in. Ours. With b = v^T Sigma v,

        2 scale |w|^{2 - 2/L} ((L - 1) b + |Sigma v|^2 / b) <= S_0
        S_0 <= 2 scale |w|^{2 - 2/L} ((L - 1) b + M),

    whose ratio to the least sharpness of all minimisers tends to 1 with growing depth.
    """

    reference: ClassVar[str] = "marion2024:d-S0"

    @override
    def conclusions(self, subject: RegressionTraining, /) -> tuple[Claim, ...]:
        case, setting = subject
        balanced = float(balanced_sharpness(case.objective))
        fitted = setting.problem.fitted.T / setting.size  # F v, with F^T F = Sigma
        image = np.asarray(setting.problem.pull_back(fitted)).ravel()
        moment, common = (
            float(np.sum(np.asarray(fitted) ** 2)),
            setting.size ** (2 - 2 / setting.depth),
        )
        low, high = (
            2 * setting.scale * common * ((setting.depth - 1) * moment + term)
            for term in (image @ image / moment, setting.largest)
        )
        common_factor = "2 scale |w|^{2 - 2/L}"
        claims = (
            Claim(
                f"{common_factor} ((L - 1) b + |Sigma v|^2 / b) <= S_0",
                low,
                balanced,
                rounding(high),
            ),
            Claim(f"S_0 <= {common_factor} ((L - 1) b + M)", balanced, high, rounding(high)),
        )
        limit = limit_of(subject)
        if limit is None:
            return claims
        spread = sharpness_spread(setting, float(start_size(case.weights)))
        sharpness, slack = limit.sharpness, limit.resolution
        return (
            *claims,
            Claim("lower * S_0 <= S", spread.lower * balanced, sharpness, slack),
            Claim("S <= upper * S_0", sharpness, spread.upper * balanced, slack),
        )

    @override
    def answers(self, subject: RegressionTraining, /) -> tuple[Answer, ...]:
        case, setting = subject
        balanced = float(balanced_sharpness(case.objective))
        spread = sharpness_spread(setting, float(start_size(case.weights)))
        where, limit = f"{_FOUND}, by its alignment", "in the limit of small starts"
        return (
            Answer(Question.PREDICTED_SHARPNESS, balanced, limit, Place.FLOW),
            Answer(Question.PREDICTED_RATE, 2 / balanced, limit),
            Answer(Question.GREATEST_SHARPNESS, spread.upper * balanced, where, Place.FLOW),
            Answer(Question.LEAST_SHARPNESS, spread.lower * balanced, where, Place.FLOW),
        )


def limit_of(training: RegressionTraining) -> Minimum | None:
    """The minimiser that the flow has come to, if it has."""
    case, setting = training
    return None if case.flow is None else minimum_at(setting, case.flow.final)


def _grown(setting: DeepRegression, progress: Progress) -> np.ndarray:
    """Where |w_prod| has come near |w|, surely."""
    low, high = 0.75 * setting.size, 1.125 * setting.size
    error = progress.error
    return (low + error <= progress.product) & (progress.product <= high - error)
