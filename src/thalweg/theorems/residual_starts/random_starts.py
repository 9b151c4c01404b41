"""The flow from a random residual start converges, with high probability: all constants explicit.

For layers I + s / sqrt(L d) N_k, with the deviation c = 96 s^2 + 8.4 s of `products` and
r as in `flow`, marion2024's constants become

    depth      L >= max(1, (2 c)^2)
    width      d >= 4
    loss       excess <= 2^-36 exp(-10 s^2 - 20 c) scale mu^2 r^2 / M_Sigma
    failure    16 exp(-(c / s)^2 d / 32)
    radius     |theta_k|_F <= exp(-2 s^2 - 4 c) / 64
    rate       2^-6 exp(-8 s^2 / d - 4 c) scale mu r^2 L.

The paper prints the loss with exp(-4 s^2 - 16 s^2 / 4 - 20 c), which does not give the radius: with
|theta_k|_F <= 2^12 exp(s^2 + 8 s^2 / d + 6 c) sqrt(M_Sigma excess) / (mu r) it takes 6 s^2 for 4.
"""

from typing import ClassVar, NamedTuple

from typing_extensions import override

from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Magnitude,
    Narrowed,
    Place,
    Question,
    requirement,
)
from thalweg.curvature import minimiser_sharpness_bounds
from thalweg.network import LinearNetwork
from thalweg.theorems.residual_starts.flow import (
    excess_at,
    residual_view,
    square_regression,
    time_answer,
)
from thalweg.theorems.residual_starts.products import (
    LEAST_WIDTH,
    ResidualStart,
    least_deviation,
    product_bounds,
    random_residual_start,
    well_conditioned,
)
from thalweg.theorems.settings.deep_regression import (
    DeepRegression,
    RegressionTraining,
    in_training,
    minimum_at,
    unique_solution,
)


class ResidualConstants(NamedTuple):
    """The constants of marion2024:thm4 that depend on the scale of the start only."""

    deviation: float
    depth: float
    width: int
    loss: Magnitude
    exponent: float
    radius: Magnitude


def residual_constants(scale: float) -> ResidualConstants:
    """Explicit constants for s = scale; `exponent` is that of the failure, per unit of width."""
    deviation = least_deviation(scale)
    return ResidualConstants(
        deviation=deviation,
        depth=max(1.0, (2 * deviation) ** 2),
        width=LEAST_WIDTH,
        loss=Magnitude.exp(-10 * scale**2 - 20 * deviation) / 2**36,
        exponent=(96 * scale + 8.4) ** 2 / 32,
        radius=Magnitude.exp(-2 * scale**2 - 4 * deviation) / 64,
    )


def residual_rate(setting: DeepRegression, scale: float) -> Magnitude:
    """The rate of the module."""
    width = setting.network.widths[0]
    shape = Magnitude.exp(-8 * scale**2 / width - 4 * least_deviation(scale)) / 2**6
    return shape * (setting.scale * setting.smallest * setting.readout**2 * setting.depth)


class RandomRegression(NamedTuple):
    """A case, its regression, and its random residual start."""

    case: Case
    regression: DeepRegression
    start: ResidualStart


class _AbstractRandomStart(AbstractTrainingTheorem[RandomRegression]):
    """What both statements about convergence share.

    Attributes:
        draws: how many starts to draw, to see how often their products are well conditioned.
        seed: the random seed of the draws.
    """

    draws: int = 0
    seed: int = 0

    @override
    def narrowed(self, case: Case, /) -> Narrowed[RandomRegression]:
        square = square_regression(case.objective)
        drawn = in_training(case, square).further(_drawn)
        return drawn.further(self._shaped).further(_unique)

    @override
    def assumptions(self, subject: RandomRegression, /) -> tuple[Claim, ...]:
        case, setting, start = subject
        constants = residual_constants(start.scale)
        data = setting.smallest**2 * setting.readout**2 / setting.largest
        return (
            Claim("max(1, (2 c)^2) <= L", constants.depth, setting.depth),
            Claim("4 <= d", constants.width, setting.network.widths[0]),
            Claim(
                "excess(0) <= 2^-36 exp(-10 s^2 - 20 c) scale mu^2 r^2 / M_Sigma",
                Magnitude.of(excess_at(setting, case.weights)),
                constants.loss * (setting.scale * data),
            ),
        )

    def shape(self, network: LinearNetwork) -> Claim:
        """What the network must look like besides."""
        return requirement("the network has one output", network.outputs == 1)

    @override
    def conclusions(self, subject: RandomRegression, /) -> tuple[Claim, ...]:
        return (*self._on_flow(subject), *self._on_draws(subject.start))

    @override
    def answers(self, subject: RandomRegression, /) -> tuple[Answer, ...]:
        case, setting, start = subject
        chance, rate = _chance(start), residual_rate(setting, start.scale)
        return (
            Answer(Question.PROBABILITY, chance, "that all partial products are well conditioned"),
            Answer(Question.RATE, rate, f"with probability {chance:.6g}"),
            *time_answer(case, setting, rate, f"with probability {chance:.6g}"),
        )

    def _shaped(self, drawn: RandomRegression) -> Narrowed[RandomRegression]:
        return Narrowed.where((self.shape(drawn.start.network),), drawn)

    def _on_flow(self, subject: RandomRegression) -> tuple[Claim, ...]:
        case, setting, start = subject
        if case.flow is None:
            return ()
        constants = residual_constants(start.scale)
        view = residual_view(case.flow, case.weights)
        slack = setting.depth * case.flow.error_so_far
        return (
            Claim(
                "max_k |theta_k|_F <= exp(-2 s^2 - 4 c) / 64",
                view.move,
                float(constants.radius),
                slack,
            ),
            view.decays(setting, case.flow, float(residual_rate(setting, start.scale))),
        )

    def _on_draws(self, start: ResidualStart) -> tuple[Claim, ...]:
        if self.draws == 0:
            return ()
        bounds = product_bounds(start.width, start.scale, least_deviation(start.scale))
        found = well_conditioned(*start, bounds, self.draws, self.seed, both_ways=True)
        statement = "1 - 16 exp(-(c / s)^2 d / 32) <= P(all partial products are well conditioned)"
        return (found.at_least(statement, _chance(start)),)


def _drawn(training: RegressionTraining) -> Narrowed[RandomRegression]:
    start = random_residual_start(training.case)
    return start.further(lambda found: Narrowed((), RandomRegression(*training, found)))


def _unique(drawn: RandomRegression) -> Narrowed[RandomRegression]:
    return unique_solution(drawn.regression).further(lambda _: Narrowed((), drawn))


class RandomResidualStartConverges(_AbstractRandomStart):
    """From a random residual start with a small enough loss the flow converges, very probably.

    Under the module's conditions on depth, width and loss, and but for the module's probability of
    failure, the flow converges to a minimiser at the module's rate and stays within its radius.
    The loss is small only if the data were chosen for the start: |w_prod(0) - w| is not small for
    data fixed before. A flow that breaks the conclusions is a failure of that probability, so for a
    given start `ResidualStartConverges`, which needs no luck, says more.
    """

    reference: ClassVar[str] = "marion2024:thm4"


class RandomResidualStartConvergesForManyOutputs(_AbstractRandomStart):
    """The same for as many outputs as inputs, without a readout.

    The conditions and constants are those of one output with r = 1. (The paper names an assumption
    that it does not state, and writes the risk with a wrong norm: the squared error is meant.)
    """

    reference: ClassVar[str] = "marion2024:thm5"

    @override
    def shape(self, network: LinearNetwork) -> Claim:
        return requirement("there is no readout", network.readout is None)


class RandomResidualLimitIsFlat(_AbstractRandomStart):
    """The minimiser that the flow finds from a random residual start is nearly as flat as any.

    As `RandomResidualStartConverges`, with the same probability:

        S <= 2^9 exp(2 s^2 + 4 c) scale L M_Sigma r^2
        1 <= S / S_min <= 2^8 exp(2 s^2 + 4 c) q^{-(2 - 2/L)} M_Sigma / mu
        q = exp(-2 s^2 / d - c) / 4 - 2^-18 exp(-5 s^2 - 10 c) <= |w| / r,

    where S_min = 2 scale L mu r^{2/L} |w|^{2 - 2/L}. The paper prints one more factor, |w|^{2/L},
    which comes from an S_min without r and makes the ratio depend on the scale of the readout.
    """

    reference: ClassVar[str] = "marion2024:cor4"

    @override
    def conclusions(self, subject: RandomRegression, /) -> tuple[Claim, ...]:
        case, setting, start = subject
        limit = None if case.flow is None else minimum_at(setting, case.flow.final)
        if limit is None:
            return ()
        scale, least = start.scale, float(minimiser_sharpness_bounds(case.objective).paper)
        ratio, part = limit.sharpness / least, limit.resolution / limit.sharpness
        shrink, growth = shrinking(scale, start.width), "exp(2 s^2 + 4 c)"
        bound = ratio_bound(setting, scale) * (setting.largest / setting.smallest)
        return (
            Claim("1 <= S / S_min", 1.0, ratio, limit.resolution / least),
            Claim(f"S / S_min <= 2^8 {growth} q^(-2 + 2/L) M_Sigma / mu", ratio, bound, part),
            Claim("q r <= |w|", shrink * setting.readout, setting.size),
            Claim(
                f"S <= 2^9 {growth} scale L M_Sigma r^2",
                limit.sharpness,
                _sharpness_bound(setting, scale),
                part,
            ),
        )

    @override
    def answers(self, subject: RandomRegression, /) -> tuple[Answer, ...]:
        bound = _sharpness_bound(subject.regression, subject.start.scale)
        condition = f"that the flow finds, with probability {_chance(subject.start):.6g}"
        return (Answer(Question.GREATEST_SHARPNESS, bound, condition, Place.FLOW),)


def shrinking(scale: float, width: int) -> Magnitude:
    """The q of `RandomResidualLimitIsFlat`, by which |w| can be less than r at most."""
    product = Magnitude.exp(-2 * scale**2 / width - least_deviation(scale)) / 4
    part = float(residual_constants(scale).loss ** 0.5 / product)
    return product * (1 - part)


def ratio_bound(setting: DeepRegression, scale: float) -> Magnitude:
    """2^8 exp(2 s^2 + 4 c) q^{-(2 - 2/L)}, the ratio of S to S_min on white data, at most."""
    growth = 2**8 * Magnitude.exp(2 * scale**2 + 4 * least_deviation(scale))
    return growth / shrinking(scale, setting.network.widths[0]) ** (2 - 2 / setting.depth)


def _sharpness_bound(setting: DeepRegression, scale: float) -> Magnitude:
    growth = 2**9 * Magnitude.exp(2 * scale**2 + 4 * least_deviation(scale))
    return growth * (setting.scale * setting.depth * setting.largest * setting.readout**2)


def _chance(start: ResidualStart) -> float:
    exponent = residual_constants(start.scale).exponent
    return 1 - 16 * float(Magnitude.exp(-exponent * start.width))
