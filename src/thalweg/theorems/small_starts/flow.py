"""The flow of a deep linear regression from a small start: it aligns, grows and converges.

For weights W_1, ..., W_L with one row in the last and no readout, top singular triples
(sigma_k, u_k, v_k), and imbalances D_k = W_{k+1}^T W_{k+1} - W_k W_k^T, the size eps of the start
and the assumptions (A1) to (A3) are those of `settings.small_starts`. Statements about late times
hold along the curve of the flow, whose clock does not matter: a flow that was recorded from any
later point of the curve on (by `dynamics.escape`, say) is as good. marion2024 has the scale 1; see
`settings.deep_regression`.
"""

from math import log
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from typing_extensions import override

from thalweg._typing import Scalar, Weights
from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Magnitude,
    Narrowed,
    Question,
    identity,
    rounding,
)
from thalweg.curvature.products import linear_network, partial_products, spectral_norm
from thalweg.dynamics import AbstractFlow
from thalweg.measurement import (
    alignment,
    distance_from_rank_one,
    imbalance,
    layer_norms,
)
from thalweg.objective import Objective
from thalweg.theorems.settings.deep_regression import (
    DeepRegression,
    Loss,
    RegressionTraining,
    loss_at,
    seen_along,
)
from thalweg.theorems.settings.linear import LinearTraining, linear_training, without_decay
from thalweg.theorems.settings.small_starts import start_size, unique_below_zero


class BalanceIsConserved(AbstractTrainingTheorem[LinearTraining]):
    """Gradient flow keeps the imbalance of consecutive layers constant.

        D_k(t) = D_k(0)

    for any loss of the network's output. What a step of descent makes of it is `BalanceLaw`.
    """

    reference: ClassVar[str] = "marion2024:lem1"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[LinearTraining]:
        return linear_training(case).further(without_decay)

    @override
    def conclusions(self, subject: LinearTraining, /) -> tuple[Claim, ...]:
        case = subject.case
        return () if case.flow is None else (_constant_imbalance(case.flow, case.weights),)


def _constant_imbalance(flow: AbstractFlow, start: Weights) -> Claim:
    drift = seen_along(flow, _largest_drift, imbalance(start))
    return identity("D_k(t) = D_k(0), along the flow", drift, _inaccuracy(flow))


def _largest_drift(objective: Objective, weights: Weights, first: tuple) -> Scalar:
    pairs = zip(imbalance(weights), first, strict=True)
    drifts = [jnp.max(jnp.abs(now - then)) for now, then in pairs]
    return jnp.max(jnp.stack([jnp.zeros(()), *drifts]))


class LayersAlign(AbstractTrainingTheorem[LinearTraining]):
    """Along the flow the layers stay near an aligned chain of matrices of rank one.

    If the last layer has one row, then at all times

        |W_k|_F^2 - |W_k|_2^2 <= eps
        |sigma_k^2 - sigma_j^2| <= eps
        (1 - <v_{k+1}, u_k>^2) sigma_{k+1}^2 <= eps,

    for any loss. The proof gives less: e = max_k |W_k(0)|_F^2 + sum_k |D_k(0)|_2 in the first, the
    sum alone in the second, and 2 e + max_k |W_k(0)|_2^2 in the third, which are looked at too.
    """

    reference: ClassVar[str] = "marion2024:lem2"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[LinearTraining]:
        return linear_training(case).further(without_decay)

    @override
    def assumptions(self, subject: LinearTraining, /) -> tuple[Claim, ...]:
        return (Claim("rows of the last layer <= 1", subject.network.shapes[-1][0], 1),)

    @override
    def conclusions(self, subject: LinearTraining, /) -> tuple[Claim, ...]:
        case = subject.case
        if case.flow is None:
            return ()
        eps = float(start_size(case.weights))
        imbalances = sum(float(spectral_norm(matrix)) for matrix in imbalance(case.weights))
        inner = float(np.asarray(layer_norms(case.weights)).max()) ** 2 + imbalances
        largest = max(float(np.linalg.norm(layer, 2)) for layer in case.weights)
        rank, spread, angle = seen_along(case.flow, _distances_from_chain)
        # The lemma holds of any point whose imbalances are nearly those of the start.
        slack = 4 * len(case.weights) * _inaccuracy(case.flow)
        return (
            Claim("max_k |W_k|_F^2 - |W_k|_2^2 <= eps", rank, eps, slack),
            Claim("max_{j,k} |sigma_k^2 - sigma_j^2| <= eps", spread, eps, slack),
            Claim("max_k (1 - <v_{k+1}, u_k>^2) sigma_{k+1}^2 <= eps", angle, eps, slack),
            Claim("max_k |W_k|_F^2 - |W_k|_2^2 <= e", rank, inner, slack),
            Claim("max_{j,k} |sigma_k^2 - sigma_j^2| <= sum_k |D_k(0)|", spread, imbalances, slack),
            Claim(
                "max_k (1 - <v_{k+1}, u_k>^2) sigma_{k+1}^2 <= 2 e + max_k |W_k(0)|_2^2",
                angle,
                2 * inner + largest**2,
                slack,
            ),
        )


def _distances_from_chain(objective: Objective, weights: Weights) -> tuple[Scalar, Scalar, Scalar]:
    """The three left sides of `LayersAlign`."""
    squares = _singular_values(weights) ** 2
    angles = (1 - alignment(weights)) * squares[1:]
    return (
        jnp.max(distance_from_rank_one(weights)),
        jnp.max(squares) - jnp.min(squares),
        jnp.max(angles, initial=0.0),
    )


class Progress(NamedTuple):
    """What statements about late times look at, at each recorded time of a flow."""

    times: np.ndarray
    error: np.ndarray
    excess: np.ndarray
    slope: np.ndarray
    sensitivity: np.ndarray
    gradients: np.ndarray
    product: np.ndarray
    singular: np.ndarray
    rest: np.ndarray

    @property
    def loss(self) -> Loss:
        """The parts that the error of the excess follows from."""
        return Loss(self.excess, self.slope, self.sensitivity)


def progress_of(flow: AbstractFlow) -> Progress:
    """Loss, gradient norms per layer, |w_prod|, sigma_k and |W_L ... W_2| at each time."""
    return Progress(flow.times, flow.error_so_far, *seen_along(flow, _progress))


def _progress(objective: Objective, weights: Weights) -> tuple[jax.Array, ...]:
    network = linear_network(objective, "`progress_of`")
    after, _ = partial_products(network, weights)
    return (
        *loss_at(objective, weights),
        layer_norms(objective.gradient(weights)),
        jnp.linalg.norm(network.end_to_end(weights)),
        _singular_values(weights),
        jnp.linalg.norm(after[0]),
    )


def _singular_values(weights: Weights) -> jax.Array:
    """The largest of each layer."""
    return jnp.stack([spectral_norm(jnp.asarray(layer)) for layer in weights])


class GrowthRate(NamedTuple):
    """From a time on: the rate, and the lower bounds on |W_L ... W_2| and on |w_prod|."""

    rate: Magnitude
    rest: Magnitude
    product: Magnitude


def growth_rate(setting: DeepRegression, eps: float, gain: float) -> GrowthRate:
    """The best constant that the proof of marion2024:thm3 has, from R(0) - R at some time.

    Its min((C - c)^{L-1}, B / C), with c = sqrt(2 eps) L, is greatest where both are equal.
    """
    bound = Magnitude.of(max(gain, 0.0)) / (4 * setting.largest * setting.size)
    bound = min(bound, Magnitude.of(setting.size))
    least, deeper = (2 * eps) ** 0.5 * setting.depth, setting.depth - 1
    if deeper == 0 or bound == 0:  # with one layer there is nothing after the first
        rest = Magnitude.of(1.0) if deeper == 0 else bound
        return GrowthRate(_rate(setting, rest), rest, bound)

    def mismatch(logarithm: float) -> float:
        return deeper * logarithm + float(np.logaddexp(logarithm, log(least))) - bound.log

    low = min((bound.log - log(2)) / setting.depth, (bound.log - log(2 * least)) / deeper)
    high = bound.log / setting.depth
    found = scipy.optimize.root_scalar(mismatch, bracket=(low - 1e-9, high + 1e-9), xtol=1e-13).root
    rest = Magnitude.exp(float(found)) ** deeper
    return GrowthRate(_rate(setting, rest), rest, bound)


def _rate(setting: DeepRegression, rest: Magnitude) -> Magnitude:
    return rest**2 * (4 * setting.smallest * setting.scale)


class EventuallyLojasiewicz(AbstractTrainingTheorem[RegressionTraining]):
    """From any positive time on, the squared gradient is at least a rate times the excess loss.

    For t >= t_0 > 0, any C > c = sqrt(2 eps) L, and R(0) the risk of the zero network,

        sum_k |grad_k|^2 >= rate * excess,    rate = 4 scale mu min((C - c)^{L-1}, B / C)^2,
        B = min((R(0) - R(W(t_0))) / (4 M |w|), |w|),

    so that the excess falls like exp(-rate t). The paper states that there is a rate, for t_0 = 1;
    the constant is that of its proof, with the best C. On the way: |w_prod| >= B, and
    |W_L ... W_2| >= (sigma_1 - c)^{L-1} where sigma_1 > c. The rate is astronomically small.
    """

    reference: ClassVar[str] = "marion2024:thm3"

    after: float = 1.0

    @override
    def narrowed(self, case: Case, /) -> Narrowed[RegressionTraining]:
        return unique_below_zero(case)

    @override
    def conclusions(self, subject: RegressionTraining, /) -> tuple[Claim, ...]:
        case, setting = subject
        late = late_part(case.flow, self.after)
        if late is None:
            return ()
        progress, constants = late.progress(), late_rate(subject, late)
        eps = float(start_size(case.weights))
        moving = progress.excess > 0
        ratio = np.min(progress.slope[moving] ** 2 / progress.excess[moving], initial=np.inf)
        margin = progress.singular[:, 0] - (2 * eps) ** 0.5 * setting.depth
        large = margin > 0
        lower, rest = margin[large] ** (setting.depth - 1), progress.rest[large]
        claims = (
            Claim("rate <= min |grad|^2 / excess", constants.rate, ratio),
            Claim("B <= min |w_prod|", constants.product, np.min(progress.product)),
        )
        if not large.any():
            return claims
        statement = "(sigma_1 - c)^{L-1} <= |W_L ... W_2|"
        return (*claims, Claim(statement, lower, rest, rounding(rest)))

    @override
    def answers(self, subject: RegressionTraining, /) -> tuple[Answer, ...]:
        return rate_answer(subject, self.after)


class LatePart(NamedTuple):
    """A recorded flow from one of its records on."""

    flow: AbstractFlow
    first: int

    def progress(self) -> Progress:
        """What is looked at from then on."""
        return Progress(*(part[self.first :] for part in progress_of(self.flow)))


def late_part(flow: AbstractFlow | None, after: float) -> LatePart | None:
    """The flow from its first record on that is not before `after`; None if there is none."""
    if flow is None or not np.any(flow.times >= after):
        return None
    return LatePart(flow, int(np.argmax(flow.times >= after)))


def late_rate(training: RegressionTraining, late: LatePart) -> GrowthRate:
    """The rate from that record on."""
    case, setting = training
    weights = tuple(array[late.first] for array in late.flow.weights)
    gain = _gain(setting, np.asarray(setting.network.end_to_end(weights)))
    return growth_rate(setting, float(start_size(case.weights)), gain)


def rate_answer(training: RegressionTraining, after: float) -> tuple[Answer, ...]:
    """The rate as an answer, where a flow is given that goes beyond `after`."""
    late = late_part(training.case.flow, after)
    if late is None:
        return ()
    rate = late_rate(training, late).rate
    return (Answer(Question.RATE, rate, f"on the given flow after time {after:g}"),)


def _gain(setting: DeepRegression, product: np.ndarray) -> float:
    """R(0) - R, without cancellation where the product is small; for the scale 1."""
    image = product @ np.asarray(setting.problem.input_factor).T
    return float(np.sum(image * (2 * np.asarray(setting.problem.fitted).T - image)))


def _inaccuracy(flow: AbstractFlow) -> np.ndarray:
    """How much of an imbalance, or of a squared singular value, may be the error of the flow."""
    squares = np.max([np.sum(array**2, axis=(1, 2)) for array in flow.weights], axis=0)
    error = flow.error_so_far
    return 4 * np.sqrt(squares) * error + 2 * error**2 + rounding(squares)
