"""The flow of a deep linear network that starts near the identity: it converges nearby.

With Pi_{k:1} = W_k ... W_1 and Pi_{L:k} = W_L ... W_k, let at the start

    M = max(1, |Pi_{k:1}|, |Pi_{L:k}|),    m = min(1, sigma_min(Pi_{k:1}), sigma_min(Pi_{L:k}))

over all k. The move theta_k = L (W_k(t) - W_k(0)) of a layer cannot spoil the products before it
has gone m^2 / (4 M^2); until then the gradient is large enough for the excess to decay, and the
path is short if the excess is small to begin with. r is the norm of a readout to one output,
or 1 for as many outputs as inputs without a readout. marion2024 has the scale 1.
"""

from math import log
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from thalweg._typing import Scalar, Weights
from thalweg.certificates import (
    AbstractTheorem,
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Magnitude,
    Narrowed,
    Place,
    Question,
    requirement,
    rounding,
)
from thalweg.curvature import minimiser_sharpness_bounds, posterior_sharpness_bound
from thalweg.curvature.products import partial_products
from thalweg.dynamics import AbstractFlow
from thalweg.measurement import layer_norms
from thalweg.objective import Objective
from thalweg.theorems.residual_starts.products import product_extremes
from thalweg.theorems.settings.deep_regression import (
    DeepRegression,
    Loss,
    Point,
    RegressionTraining,
    deep_regression,
    in_training,
    loss_at,
    minimum_at,
    seen_along,
    unique_solution,
)


class Conditioning(NamedTuple):
    """M and m of the module."""

    largest: float
    smallest: float

    @property
    def radius(self) -> float:
        """How far the theta_k may go."""
        return self.smallest**2 / (4 * self.largest**2)


class ConditionedTraining(NamedTuple):
    """A case with square layers, its regression, and the conditioning of its start."""

    case: Case
    regression: DeepRegression
    start: Conditioning


def square_regression(objective: Objective) -> Narrowed[DeepRegression]:
    """Square layers on the squared error, to one output or to one per input."""
    return deep_regression(objective).further(_square)


def _square(setting: DeepRegression) -> Narrowed[DeepRegression]:
    network = setting.network
    square = all(width == network.widths[0] for width in network.widths)
    plain = network.readout is None or network.outputs == 1
    claims = (
        requirement("all layers are square", square),
        requirement("there is no readout, or one to a single output", plain),
    )
    return Narrowed.where(claims, setting)


def _conditioned(training: RegressionTraining) -> Narrowed[ConditionedTraining]:
    known = conditioning(training.case.weights)
    fit = requirement("all products are invertible at the start", known.smallest > 0)
    return Narrowed.where((fit,), ConditionedTraining(*training, known))


def conditioning(weights: Weights) -> Conditioning:
    """M and m at these weights."""
    layers = [np.asarray(each) for each in weights]
    ways = (layers, [each.T for each in reversed(layers)])
    high, low = zip(*(product_extremes(way) for way in ways), strict=True)
    return Conditioning(max(1.0, *map(float, high)), min(1.0, *map(float, low)))


def _product_spectra(weights: Weights) -> jax.Array:
    """The singular values of all Pi_{k:1} and Pi_{L:k}."""
    up, down = [weights[0]], [weights[-1]]
    for lower, upper in zip(reversed(weights[:-1]), weights[1:], strict=True):
        up.append(upper @ up[-1])
        down.append(down[-1] @ lower)
    return jnp.linalg.svd(jnp.stack([*up, *down]), compute_uv=False)


class GradientsAreBounded(AbstractTheorem[Point]):
    """Each layer's gradient is bounded from both sides by the excess loss.

        4 scale mu r^2 sigma_min(Pi_{L:k+1})^2 sigma_min(Pi_{k-1:1})^2 excess
        <= |grad_k|_F^2 <= 4 scale M_Sigma r^2 |Pi_{L:k+1}|^2 |Pi_{k-1:1}|^2 excess

    for square layers, with mu and M_Sigma the extreme eigenvalues of the input moment.
    """

    reference: ClassVar[str] = "marion2024:eq-gradbounds"

    @override
    def assumptions(self, point: Point, /) -> tuple[Claim, ...]:
        return square_regression(point.objective).claims

    @override
    def conclusions(self, point: Point, /) -> tuple[Claim, ...]:
        setting, lower, upper = square_regression(point.objective).known, [], []
        weights = tuple(jnp.asarray(array) for array in point.weights)
        excess = float(setting.problem.excess(setting.network.end_to_end(weights)))
        _, before = partial_products(setting.network, weights)
        _, after = partial_products(setting.network, tuple(each.T for each in reversed(weights)))
        for pair in zip(before, reversed(after), strict=True):
            values = [np.linalg.svd(np.asarray(each), compute_uv=False) for each in pair]
            lower.append(np.prod([each[-1] ** 2 for each in values]))
            upper.append(np.prod([each[0] ** 2 for each in values]))
        common = 4 * setting.scale * setting.readout**2 * excess
        squares = np.asarray(layer_norms(point.objective.gradient(weights))) ** 2
        floor = common * setting.smallest * np.asarray(lower)
        ceiling = common * setting.largest * np.asarray(upper)
        slack, high = rounding(ceiling), "|Pi_{L:k+1}|^2 |Pi_{k-1:1}|^2"
        low = "sigma_min(Pi_{L:k+1})^2 sigma_min(Pi_{k-1:1})^2"
        return (
            Claim(f"4 scale mu r^2 {low} excess <= |grad_k|_F^2", floor, squares, slack),
            Claim(f"|grad_k|_F^2 <= 4 scale M_Sigma r^2 {high} excess", squares, ceiling, slack),
        )


class ResidualStartConverges(AbstractTrainingTheorem[ConditionedTraining]):
    """From well-conditioned square layers with a small loss the flow converges nearby.

    If, at the start,

        excess <= 2^-16 m^12 / M^8 scale mu^2 r^2 / M_Sigma

    with the extreme eigenvalues mu, M_Sigma of the input moment, then at all times

        |theta_k|_F <= m^2 / (4 M^2),    |Pi| <= 2 M,    sigma_min(Pi) >= m / 2,
        excess(t) <= excess(0) exp(-rate t),    rate = scale mu r^2 L m^4 / 4,

    and the flow ends at a minimiser of sharpness S <= 32 scale M^4 L M_Sigma r^2 (for one output).
    Ours: the proof of the paper's theorem 4 with M and m as they are, instead of random matrices.
    Up to the radius |grad_k| <= 8 M^2 r sqrt(scale M_Sigma excess), whose integral bounds the
    length of the path.
    """

    reference: ClassVar[str] = "marion2024:thm4-det"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[ConditionedTraining]:
        unique = square_regression(case.objective).further(unique_solution)
        return in_training(case, unique).further(_conditioned)

    @override
    def assumptions(self, subject: ConditionedTraining, /) -> tuple[Claim, ...]:
        case, setting, known = subject
        excess = Magnitude.of(excess_at(setting, case.weights))
        statement = "excess(0) <= 2^-16 m^12 / M^8 scale mu^2 r^2 / M_Sigma"
        return (Claim(statement, excess, _loss_threshold(setting, known)),)

    @override
    def conclusions(self, subject: ConditionedTraining, /) -> tuple[Claim, ...]:
        case, setting, known = subject
        if case.flow is None:
            return ()
        view = residual_view(case.flow, case.weights)
        error = case.flow.error_so_far
        spread = error * (2 * known.largest) ** 2 / known.smallest * setting.depth**0.5
        radius = setting.depth * error + rounding(view.move)
        return (
            Claim("max_k |theta_k|_F <= m^2 / (4 M^2)", view.move, known.radius, radius),
            Claim("max |Pi| <= 2 M", view.largest, 2 * known.largest, spread),
            Claim("m / 2 <= min sigma_min(Pi)", known.smallest / 2, view.smallest, spread),
            view.decays(setting, case.flow, float(_rate(setting, known))),
            *_sharpness_claims(setting, case.flow, known),
        )

    @override
    def answers(self, subject: ConditionedTraining, /) -> tuple[Answer, ...]:
        case, setting, known = subject
        rate = _rate(setting, known)
        answers = [Answer(Question.RATE, rate), *time_answer(case, setting, rate)]
        if setting.network.outputs == 1:
            bound = _sharpness_bound(setting, known)
            answers.append(
                Answer(Question.GREATEST_SHARPNESS, bound, "that the flow finds", Place.FLOW)
            )
        return tuple(answers)


class View(NamedTuple):
    """What statements about residual starts look at, at each recorded time."""

    move: np.ndarray
    largest: np.ndarray
    smallest: np.ndarray
    excess: np.ndarray
    slope: np.ndarray
    sensitivity: np.ndarray

    def decays(self, setting: DeepRegression, flow: AbstractFlow, rate: float) -> Claim:
        """That the excess falls like exp(-rate t)."""
        loss = Loss(self.excess, self.slope, self.sensitivity)
        envelope = self.excess[0] * np.exp(-rate * flow.times)
        slack = loss.error(setting, flow.error_so_far)
        slack = slack + rounding(self.excess, envelope)
        return Claim("excess(t) <= excess(0) exp(-rate t)", self.excess, envelope, slack)


def residual_view(flow: AbstractFlow, start: Weights) -> View:
    """Along a flow: max_k |theta_k|_F, the extremes of all products, and the loss."""
    return View(*seen_along(flow, _residual_view, tuple(jnp.asarray(each) for each in start)))


def _residual_view(objective: Objective, weights: Weights, start: Weights) -> tuple[Scalar, ...]:
    moved = tuple(now - then for now, then in zip(weights, start, strict=True))
    spectra = _product_spectra(weights)
    return (
        len(weights) * jnp.max(layer_norms(moved)),
        jnp.max(spectra[:, 0]),
        jnp.min(spectra[:, -1]),
        *loss_at(objective, weights),
    )


def time_answer(
    case: Case, setting: DeepRegression, rate: Magnitude, condition: str = ""
) -> tuple[Answer, ...]:
    """When the target is reached at this rate."""
    if case.target_loss is None:
        return ()
    wanted = case.target_loss - float(setting.problem.minimum)
    excess = excess_at(setting, case.weights)
    if not wanted > 0:
        return ()
    factor = max(log(excess / wanted), 0.0) if excess > 0 else 0.0
    return (Answer(Question.TIME, Magnitude.of(factor) / rate, condition),)


def excess_at(setting: DeepRegression, weights: Weights) -> float:
    """The loss above its minimum, without cancellation."""
    return float(setting.problem.excess(setting.network.end_to_end(weights)))


def _loss_threshold(setting: DeepRegression, known: Conditioning) -> Magnitude:
    shape = Magnitude.of(known.smallest) ** 12 / Magnitude.of(known.largest) ** 8
    data = setting.scale * setting.smallest**2 * setting.readout**2 / setting.largest
    return shape * data / 2**16


def _rate(setting: DeepRegression, known: Conditioning) -> Magnitude:
    data = setting.scale * setting.smallest * setting.readout**2 * setting.depth
    return Magnitude.of(known.smallest) ** 4 * data / 4


def _sharpness_bound(setting: DeepRegression, known: Conditioning) -> float:
    data = setting.scale * setting.largest * setting.readout**2 * setting.depth
    return 32 * known.largest**4 * data


def _sharpness_claims(
    setting: DeepRegression, flow: AbstractFlow, known: Conditioning
) -> tuple[Claim, ...]:
    """At the limit of the flow: S <= 2 M_Sigma sum_k ... <= 32 M^4 L M_Sigma r^2, and the ratio."""
    limit = minimum_at(setting, flow.final) if setting.network.outputs == 1 else None
    if limit is None:
        return ()
    posterior = float(posterior_sharpness_bound(setting.objective, limit.weights))
    bound = _sharpness_bound(setting, known)
    least = float(minimiser_sharpness_bounds(setting.objective).paper)
    kappa, shrink = setting.largest / setting.smallest, setting.readout / setting.size
    ratio = 16 * known.largest**4 * kappa * shrink ** (2 - 2 / setting.depth)
    middle = "2 scale M_Sigma sum_k |P_k|^2 |q_k|^2"
    return (
        Claim(f"S <= {middle}", limit.sharpness, posterior, limit.resolution),
        Claim(f"{middle} <= 32 scale M^4 L M_Sigma r^2", posterior, bound),
        Claim(
            "S / S_min <= 16 M^4 kappa (r / |w|)^{2 - 2/L}",
            limit.sharpness / least,
            ratio,
            limit.resolution / least,
        ),
    )
