"""Descent on a deep linear network reaches its target at a linear rate (arora2019, section 3).

In the symbols of `settings.matrix_approximation`: N layers, F = |Phi|_F, p = 2 (N - 1) / N, and the
deficiency margin c = sigma_min(Phi) - |W(0) - Phi|_F of the start. Where c > 0 and

    imbalance(0) <= delta = c^2 / (256 N^3 F^p),
    eta <= c^(4 - 2/N) / (6144 N^3 F^(6 - 4/N)),

every step shrinks the loss by the factor 1 - eta c^p or a smaller one.
"""

from dataclasses import dataclass
from math import log, log1p
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Magnitude,
    Narrowed,
    Number,
    Question,
    rounding,
)
from thalweg.certificates.magnitude import whole
from thalweg.dynamics import Descent
from thalweg.theorems.settings.matrix_approximation import (
    Approximation,
    WhiteTraining,
    largest_imbalance,
    spectral,
    white_training,
)


@dataclass(frozen=True, eq=False)
class Guarantee:
    """The numbers that theorem 1 certifies, for the loss |W - Phi|_F^2 / 2.

    With x = c / F in (0, 1 / sqrt(min(outputs, features))] and at the largest learning rate,
    T = 6144 N^3 x^-(6 - 4/N) log(l(0) / eps): only x and the depth matter.

    Args:
        depth: N.
        norm: F.
        margin: c, positive; all three numbers grow with it.
    """

    depth: int
    norm: Number
    margin: Number

    @classmethod
    def of(cls, start: Approximation) -> "Guarantee":
        """From a start that has a margin."""
        return cls(start.depth, start.norm, start.margin)

    @property
    def imbalance(self) -> Magnitude:
        """The largest imbalance delta that is covered."""
        n, c = self.depth, Magnitude.of(self.margin)
        return c**2 / (256 * Magnitude.of(n) ** 3 * Magnitude.of(self.norm) ** (2 - 2 / n))

    @property
    def learning_rate(self) -> Magnitude:
        """The largest learning rate that is covered."""
        n, c = self.depth, Magnitude.of(self.margin)
        scale = 6144 * Magnitude.of(n) ** 3 * Magnitude.of(self.norm) ** (6 - 4 / n)
        return c ** (4 - 2 / n) / scale

    @property
    def rate(self) -> Magnitude:
        """c^p, such that l(t) <= (1 - eta c^p)^t l(0)."""
        return Magnitude.of(self.margin) ** (2 - 2 / self.depth)

    def iterations(self, reduction: float, learning_rate: Number | None = None) -> Number:
        """How many steps divide the loss by this, at the largest learning rate or another."""
        rate = self.learning_rate if learning_rate is None else learning_rate
        return whole(max(log(reduction), 0.0) / (self.rate * rate))


def guarantee_claims(training: WhiteTraining) -> tuple[Claim, ...]:
    """The assumptions of theorem 1."""
    start = training.start
    c, known = start.margin, start.margin_resolution
    claims = (Claim("0 < c, the deficiency margin", 0.0, c, known),)
    if c <= 0:
        return claims
    guarantee, eta = Guarantee.of(start), training.learning_rate
    imbalance = float(largest_imbalance(start.layers))
    # Where every entry cancels exactly, as for the identity, there is nothing to be unsure of.
    noise = float(start.imbalance_resolution) if imbalance > 0 else 0.0
    statement = "imbalance <= c^2 / (256 N^3 F^p)"
    claims = (*claims, Claim(statement, imbalance, float(guarantee.imbalance), noise))
    if eta is None:
        return claims
    relative = 6 * log1p(known / c) + float(rounding(1.0))
    statement = "eta <= c^(4 - 2/N) / (6144 N^3 F^(6 - 4/N)) / steepness"
    steep = training.steepness
    return (*claims, Claim(statement, eta / steep, guarantee.learning_rate / steep, relative))


def promises(
    training: WhiteTraining,
    learning_rate: Magnitude,
    rate: Magnitude,
    largest: Magnitude | None = None,
) -> tuple[Answer, ...]:
    """The answers of a theorem that bounds the loss l by exp(-rate eta t) l(0).

    Args:
        training: to which it applies.
        learning_rate: for which the iterations are counted, of the loss l.
        rate: of the loss l.
        largest: the largest learning rate that is covered, where that is another.
    """
    steep, goal, start = training.steepness, training.target_loss, training.start
    answers = [
        Answer(Question.LEARNING_RATE, (largest or learning_rate) / steep),
        Answer(Question.RATE, rate * steep),
    ]
    if goal is not None:
        gained = max(log(float(start.loss) / goal), 0.0) if start.loss > 0 else 0.0
        condition = f"at the learning rate {learning_rate / steep}"
        steps = whole(gained / (learning_rate * rate))
        answers.append(Answer(Question.ITERATIONS, steps, condition))
    return tuple(answers)


def loss_resolution(points: Approximation, losses: Any, learning_rate: float, rate: float) -> Any:
    """How well the loss l of a run in floating point is that of the exact descent.

    Each step rounds the layers, which moves the product by about N F eps; what is contracted by
    eta rate at every step cannot fall below N F eps / (eta rate).
    """
    floor = points.depth * points.norm * np.finfo(float).eps / min(1.0, learning_rate * rate)
    return np.sqrt(2 * np.asarray(losses)) * floor + floor**2 / 2 + rounding(losses)


def decay_claims(training: WhiteTraining, learning_rate: float, rate: float) -> tuple[Claim, ...]:
    """That a recorded run obeys l(t) <= (1 - eta rate)^t l(0), and is below its target in time."""
    run, start = training.case.run, training.start
    if run is None:
        return ()
    steps, losses = np.asarray(run.steps), _losses(training, run)
    noise = loss_resolution(start, losses, learning_rate, rate)
    bound = np.exp(steps * log1p(-learning_rate * rate)) * losses[0]
    claims = [Claim("l(t) <= (1 - eta rate)^t l(0)", losses, bound, noise)]
    goal = training.target_loss
    if goal is None:
        return tuple(claims)
    late = steps >= log(max(float(losses[0]) / goal, 1.0)) / (learning_rate * rate)
    if np.any(late):
        claims.append(Claim("l(t) <= eps for t >= T", losses[late], goal, noise[late]))
    return tuple(claims)


def _losses(training: WhiteTraining, run: Descent) -> np.ndarray:
    """The loss l at the recorded steps, from the weights where they are known."""
    if run.weights:
        return training.records[1].loss
    excess = np.asarray(run.loss, float) - float(training.problem.minimum)
    return np.maximum(excess, 0.0) / training.steepness  # rounding may put one below the least


def _rate_or_largest(training: WhiteTraining) -> float:
    eta = training.learning_rate
    return float(Guarantee.of(training.start).learning_rate) if eta is None else eta


class _AbstractCertified(AbstractTrainingTheorem[WhiteTraining]):
    """What is proven under the assumptions of theorem 1."""

    @override
    def narrowed(self, case: Case, /) -> Narrowed[WhiteTraining]:
        return white_training(case)

    @override
    def assumptions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        return guarantee_claims(subject)


class LinearRate(_AbstractCertified):
    """Descent from a nearly balanced start with a deficiency margin converges at a linear rate.

    With c, delta and the largest learning rate of the module's docstring,

        l(t) <= (1 - eta c^p)^t l(0),    l(T) <= eps for T >= log(l(0) / eps) / (eta c^p),

    and where every step was recorded l(t) <= l(0) prod_{s < t} (1 - eta sigma_min(W(s))^p).
    The printed "delta =" reads "imbalance <= delta". Converted from the loss l: eta to
    eta / steepness, rates to rate * steepness, and eps is the excess over the least loss.
    """

    reference: ClassVar[str] = "arora2019:thm1"

    @override
    def conclusions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        run = subject.case.run
        if run is None:
            return ()
        eta, rate = _rate_or_largest(subject), float(Guarantee.of(subject.start).rate)
        claims = decay_claims(subject, eta, rate)
        steps, points = subject.records
        if not run.weights or np.any(np.diff(steps) != 1):
            return claims
        factors = np.log1p(-eta * points.smallest**points.power)
        bound = points.loss[0] * np.exp(np.concatenate([[0.0], np.cumsum(factors)[:-1]]))
        noise = loss_resolution(points, points.loss, eta, rate)
        statement = "l(t) <= l(0) prod_{s < t} (1 - eta sigma_min(W(s))^p)"
        return (*claims, Claim(statement, points.loss, bound, noise))

    @override
    def answers(self, subject: WhiteTraining, /) -> tuple[Answer, ...]:
        guarantee, eta = Guarantee.of(subject.start), subject.learning_rate
        largest = guarantee.learning_rate
        used = largest if eta is None else Magnitude.of(eta)
        return promises(subject, used, guarantee.rate, largest)


class StepDescent(_AbstractCertified):
    """Every step of a certified run lowers the loss by a share of its squared gradient.

        l(t) - l(t+1) >= (eta / 2) sigma_min(W(t))^p |W(t) - Phi|_F^2,

    at every recorded point, by the step that leaves it, or at the start alone. The decrease is
    computed from the change of W, because subtracting losses would leave nothing but rounding.
    """

    reference: ClassVar[str] = "arora2019:lemma1"

    @override
    def conclusions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        return (descent_claim(subject.records[1], _rate_or_largest(subject)),)


def descent_claim(points: Approximation, learning_rate: float) -> Claim:
    """The inequality of lemma 1 at some points."""
    decrease = points.decrease(learning_rate)
    share = learning_rate / 2 * points.smallest**points.power * points.distance**2
    statement = "(eta / 2) sigma_min(W)^p |G|_F^2 <= l(t) - l(t+1)"
    return Claim(statement, share, decrease, rounding(decrease))


class Invariants(_AbstractCertified):
    """A certified run stays nearly balanced, and its layers stay bounded.

    At every recorded point, or at the start alone, with D_j the change of the imbalance
    W_{j+1}^T W_{j+1} - W_j W_j^T over the next step,

        imbalance <= 2 delta,    l(0) <= F^2 / 2,    |W_j|_2 <= (4 F)^(1/N),
        |D_j|_F <= 4 eta^2 |G|_F |G|_2 (2 F)^p,

    where D_j = eta^2 (g_{j+1}^T g_{j+1} - g_j g_j^T) with the gradients g_j of the layers, because
    the terms of first order cancel. The powers of |G| printed in the proof, eq. (35), are wrong.
    """

    reference: ClassVar[str] = "arora2019:lemma2"

    @override
    def conclusions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        points, eta = subject.records[1], _rate_or_largest(subject)
        n, f = points.depth, points.norm
        imbalance, delta = largest_imbalance(points.layers), Guarantee.of(subject.start).imbalance
        noise = points.imbalance_resolution
        bounded = np.max(points.layer_norms, axis=-1)
        drift = eta**2 * largest_imbalance(points.gradients)
        allowed = 4 * eta**2 * points.distance * spectral(points.error) * (2 * f) ** points.power
        return (
            Claim("imbalance <= 2 delta", imbalance, 2 * float(delta), noise),
            Claim(
                "max_j |D_j|_F <= 4 eta^2 |G|_F |G|_2 (2 F)^p", drift, allowed, rounding(allowed)
            ),
            Claim("l(0) <= F^2 / 2", points.loss[0], f**2 / 2, rounding(f**2)),
            Claim("max_j |W_j|_2 <= (4 F)^(1/N)", bounded, (4 * f) ** (1 / n), rounding(bounded)),
        )
