"""What follows from arora2019 for learning rates and iterations; derived here, not in the paper.

Theorem 1 asks for learning rates some million times smaller than needed. Nearly all of that is in
its constants: `LargerSteps` repeats its induction with measured ones. `FewerIterations` counts the
steps at the same learning rate, and `StabilityLimit` says where descent really stops converging.
The symbols are those of `linear_rate`; conversions from the loss l are as there.
"""

from dataclasses import dataclass
from math import comb, exp, inf, log, log1p, nan
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy
from typing_extensions import override

from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Magnitude,
    Narrowed,
    Question,
    identity,
    met,
    requirement,
    rounding,
)
from thalweg.certificates.magnitude import whole
from thalweg.curvature import sharpness
from thalweg.initialisation import balanced_from
from thalweg.theorems.balance.products import layer_norm_bound
from thalweg.theorems.convergence.linear_rate import (
    Guarantee,
    decay_claims,
    guarantee_claims,
    promises,
)
from thalweg.theorems.settings.matrix_approximation import (
    Approximation,
    WhiteTraining,
    largest_imbalance,
    spectral,
    white_training,
)

_SMALL = 300  # weights up to which a Hessian is looked at
_RANGE, _HALVINGS = 60.0, 46  # of the logarithm of a learning rate, which ends 1e-12 wide


class Targeted(NamedTuple):
    """A training with a target for the loss l."""

    training: WhiteTraining
    target_loss: float


class FewerIterations(AbstractTrainingTheorem[Targeted]):
    """A certified run needs fewer steps than by its first rate, because the rate improves.

    With S = sigma_min(Phi) and y = |W - Phi|_F = sqrt(2 l), sigma_min(W) >= S - y, so that

        T = (1 / eta) (1 + eta S^p)^p integral_{sqrt(2 eps)}^{y(0)} 2 dy / (y (S - y)^p)

    steps are enough. Proof: lemma 1 gives l(t+1) <= l(t) (1 - eta (S - y)^p), a map that increases
    with l; along it S - y grows by the factor 1 + eta S^p at most per step, so each step takes up
    1 / (1 + eta S^p)^p of the integral divided by eta, at least. It blows up like log(1 / c) for
    N = 2 and c^-(1 - 2/N) for more, instead of c^-p.
    """

    reference: ClassVar[str] = "arora2019:cor-Tint"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[Targeted]:
        return white_training(case).further(_certified).further(_targeted)

    @override
    def conclusions(self, subject: Targeted, /) -> tuple[Claim, ...]:
        training, goal = subject
        eta, start = _rate_of(training), training.start
        count, guarantee = _integrated(start, goal, eta), Guarantee.of(start)
        plain = Magnitude.of(guarantee.iterations(max(float(start.loss) / goal, 1.0), eta))
        # Where the target is close to the start the factor for discreteness may not pay off.
        discrete = (1 + eta * Magnitude.of(start.norm) ** start.power) ** start.power
        statement = "T <= (1 + eta F^p)^p ceil(log(l(0) / eps) / (eta c^p))"
        claims = [Claim(statement, count, discrete * plain)]
        steps, points = training.records
        late = steps >= float(count)
        if np.any(late):
            losses = points.loss[late]
            claims.append(Claim("l(t) <= eps for t >= T", losses, goal, rounding(losses)))
        return tuple(claims)

    @override
    def answers(self, subject: Targeted, /) -> tuple[Answer, ...]:
        training, goal = subject
        eta, start = _rate_of(training), training.start
        plain = Guarantee.of(start).iterations(max(float(start.loss) / goal, 1.0), eta)
        fewer = min(Magnitude.of(plain), _integrated(start, goal, eta))
        condition = f"at the learning rate {eta / training.steepness}"
        return (Answer(Question.ITERATIONS, whole(fewer), condition),)


def _certified(training: WhiteTraining) -> Narrowed[WhiteTraining]:
    return Narrowed.where(guarantee_claims(training), training)


def _targeted(training: WhiteTraining) -> Narrowed[Targeted]:
    goal, statement = training.target_loss, "a target loss above the least loss is given"
    setting = None if goal is None else Targeted(training, goal)
    return Narrowed((requirement(statement, goal is not None),), setting)


def _rate_of(training: WhiteTraining) -> Magnitude:
    eta = training.learning_rate
    return Guarantee.of(training.start).learning_rate if eta is None else Magnitude.of(eta)


def _integrated(start: Approximation, goal: float, eta: Magnitude) -> Magnitude:
    least = float(np.linalg.svd(start.target, compute_uv=False)[-1])
    total = error_integral(least, start.margin, (2 * goal) ** 0.5, start.power)
    return total * (1 + eta * least**start.power) ** start.power / eta


def error_integral(largest: float, margin: float, least: float, power: float) -> float:
    """The integral of 2 dy / (y (S - y)^p) from `least` to S - margin, where S is `largest`.

    In the logarithm of y up to S / 2, of S - y from there on: both integrands are smooth.
    """
    top = largest - margin
    if least >= top:
        return 0.0
    low, middle = log(least), log(min(max(least, largest / 2), top))

    def far(x: float) -> float:
        return 2 / (largest - exp(x)) ** power

    def near(z: float) -> float:
        return 2 * exp(z * (1 - power)) / (largest - exp(z))

    first = scipy.integrate.quad(far, low, middle, limit=200)[0] if middle > low else 0.0
    end = log(largest - exp(middle))
    return first + (
        scipy.integrate.quad(near, log(margin), end, limit=200)[0] if end > log(margin) else 0.0
    )


@dataclass(frozen=True)
class Measured:
    """The numbers of a start from which a learning rate is certified.

    Args:
        depth: N.
        margin: c.
        distance: B = |W(0) - Phi|_F.
        target_norm: |Phi|_2.
        imbalance: at the start.
        kappa: the wanted rate is kappa c^p.
        multiplicity: N if there are as many outputs as features, else 1; at least kappa.
    """

    depth: int
    margin: float
    distance: float
    target_norm: float
    imbalance: float
    kappa: float
    multiplicity: int

    @classmethod
    def of(cls, point: Approximation, kappa: float | None = None) -> "Measured":
        """The numbers of one point, with the largest kappa unless one is given."""
        multiplicity = point.depth if point.is_square else 1
        return cls(
            depth=point.depth,
            margin=point.margin,
            distance=float(point.distance),
            target_norm=float(spectral(point.target)),
            imbalance=float(largest_imbalance(point.layers)),
            kappa=float(multiplicity if kappa is None else kappa),
            multiplicity=multiplicity,
        )

    @property
    def rate(self) -> Magnitude:
        """The certified kappa c^p."""
        return self.kappa * Magnitude.of(self.margin) ** (2 - 2 / self.depth)

    def base_claim(self) -> Claim:
        """That the base is positive at the least nu there is, that of the start."""
        statement = "N (N - 1) / 2 imbalance(0) M(imbalance(0), C)^(2(N-1)) < c^2"
        share = self.depth * (self.depth - 1) / 2 * self.imbalance
        if share == 0:
            return Claim(statement, 0.0, self.margin**2)
        m = layer_norm_bound(self.imbalance, self.target_norm + self.distance, self.depth)
        taken = share * Magnitude.of(m) ** (2 * (self.depth - 1))
        return Claim(statement, taken, Magnitude.of(self.margin) ** 2)

    def bounds(self, eta: Magnitude) -> tuple[float, float] | None:
        """A nu and M that hold for ever at this learning rate; None if there are none."""
        n, reach = self.depth, self.target_norm + self.distance
        drift = float(2 * eta * Magnitude.of(self.distance) ** 2 / self.rate)
        most = 2 * self.margin**2 / (n * max(n - 1, 1))
        nu = self.imbalance
        while True:
            m = layer_norm_bound(nu, reach, n)
            growth = float(Magnitude.of(m) ** (2 * (n - 1)))
            needed = self.imbalance + drift * growth
            if n > 1 and not max(nu, needed) * growth < most:  # nor where they overflow
                return None
            if needed <= nu:
                return nu, m
            nu = needed * (1 + 1e-9)  # so that it ends

    def balance(self, eta: Magnitude) -> float:
        """What is left of the multiplicity, in units of c^p; certified if at least kappa / 2."""
        found = self.bounds(eta)
        if found is None:
            return -inf
        n, (nu, m) = self.depth, found
        base = 1 - nu * m ** (2 * (n - 1)) / self.margin**2 * n * (n - 1) / 2
        # In units of the first order M^(2(N-1)), by x = eta B M^(N-2): sum of binom(N, k) x^(k-1).
        x = float(eta * self.distance * Magnitude.of(m) ** (n - 2))
        orders = sum(comb(n, k) * x ** (k - 1) for k in range(2, n + 1))
        size = float(Magnitude.of(m) ** (2 * (n - 1)) / (self.rate / self.kappa))
        square = float(eta * Magnitude.of(m) ** (2 * (n - 1))) / 2 * (n + orders) ** 2
        replaced = nu / m**2 * (n - 2) * (n - 1) * n / 3 if nu else 0.0
        return self.multiplicity * base ** ((n - 1) / n) - size * (orders + square + replaced)

    def largest_rate(self) -> Magnitude:
        """The largest certified learning rate, by bisection; zero if there is none."""
        n = self.depth
        reach = Magnitude.of(self.target_norm + self.distance) ** (2 - 2 / n)
        # Above it the term of second order alone exceeds what there is.
        high = (2 * self.multiplicity * (self.rate / self.kappa) / (n * reach) ** 2).log
        low = high - _RANGE
        if self.balance(Magnitude(low)) < self.kappa / 2:
            return Magnitude(-inf)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            certified = self.balance(Magnitude(middle)) >= self.kappa / 2
            low, high = (middle, high) if certified else (low, middle)
        return Magnitude(low)


class LargerSteps(AbstractTrainingTheorem[WhiteTraining]):
    """With measured constants, theorem 1's induction certifies far larger learning rates.

    Let B = |W(0) - Phi|_F, C = |Phi|_2 + B, mu = N if there are as many outputs as features, else
    1, and kappa <= mu. Then l(t) <= (1 - eta kappa c^p)^t l(0) if there are nu and M with

        M >= M(nu, C) of `layer_norm_bound`,
        nu >= imbalance(0) + 2 eta M^(2(N-1)) B^2 / (kappa c^p),
        base = c^2 - (1/2) nu M^(2(N-1)) N (N - 1) > 0,
        mu base^((N-1)/N) - S - nu M^(2(N-2)) (N-2) (N-1) N / 3 - (eta/2) (N M^(2(N-1)) + S)^2
            >= (1/2) kappa c^p,    S = sum_{k=2}^N binom(N, k) eta^(k-1) M^(k(N-2)+N) B^(k-1),

    and then imbalance <= nu and |W_j|_2 <= M for ever. Proof: as lemma 7, with the sharper forms of
    lemmas 5 and 6; the imbalance drifts by 2 eta^2 M^(2(N-1)) |G|_F^2 per step, and the sum of
    eta |G|_F^2 is at most B^2 / (kappa c^p).

    Args:
        kappa: the wanted rate, in units of c^p; mu if it is not given.
    """

    reference: ClassVar[str] = "arora2019:cor-cert2"
    kappa: float | None = None

    @override
    def narrowed(self, case: Case, /) -> Narrowed[WhiteTraining]:
        return white_training(case)

    @override
    def assumptions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        start, eta = subject.start, subject.learning_rate
        c, known = start.margin, start.margin_resolution
        claims: tuple[Claim, ...] = (Claim("0 < c, the deficiency margin", 0.0, c, known),)
        if not met(claims):
            return claims
        measured = Measured.of(start, self.kappa)
        most = Claim("kappa <= mu", measured.kappa, float(measured.multiplicity))
        if measured.kappa <= 0 or most.fails:
            return (*claims, most, requirement("0 < kappa", measured.kappa > 0))
        claims = (*claims, most, measured.base_claim())
        if not met(claims):
            return claims
        statement = "kappa / 2 <= what the imbalance leaves of mu, for small eta"
        left = measured.balance(Magnitude(-inf))
        claims = (*claims, Claim(statement, measured.kappa / 2, left, rounding(1.0)))
        if eta is None or not met(claims):
            return claims
        # The width of the bisection; and the margin enters to the fourth power at most.
        relative, steep = 4 * log1p(known / c) + 1e-12, subject.steepness
        largest = measured.largest_rate() / steep
        return (
            *claims,
            Claim("eta <= the largest certified learning rate", eta / steep, largest, relative),
        )

    @override
    def conclusions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        measured, eta = Measured.of(subject.start, self.kappa), subject.learning_rate
        if eta is None:
            return ()
        rate, found = float(measured.rate), measured.bounds(Magnitude.of(eta))
        nu, m = found or (nan, nan)  # there are some, at less than a certified learning rate
        points = subject.records[1]
        decrease, norms = points.decrease(eta), np.max(points.layer_norms, axis=-1)
        imbalance, noise = largest_imbalance(points.layers), rounding(decrease)
        return (
            *decay_claims(subject, eta, rate),
            Claim("eta rate l(t) <= l(t) - l(t+1)", eta * rate * points.loss, decrease, noise),
            Claim("imbalance <= nu", imbalance, nu, points.imbalance_resolution),
            Claim("max_j |W_j|_2 <= M", norms, m, rounding(norms)),
        )

    @override
    def answers(self, subject: WhiteTraining, /) -> tuple[Answer, ...]:
        measured, eta = Measured.of(subject.start, self.kappa), subject.learning_rate
        largest = measured.largest_rate()
        used = largest if eta is None else Magnitude.of(eta)
        return promises(subject, used, measured.rate, largest)


class StabilityLimit(AbstractTrainingTheorem[WhiteTraining]):
    """At a balanced minimiser descent is stable up to 2 / (N sigma_max^p).

    The Hessian there has the nonzero eigenvalues of P_Phi of the end-to-end flow, the largest of
    which is N sigma_max(Phi)^p, times the loss's steepness. Descent from a nearly balanced start
    was found to converge up to this learning rate, and not beyond; from an unbalanced one it may
    stop earlier, at a sharper minimiser. Theorem 1's learning rate is
    below it by a factor of about 12288 N^2 F^(6 - 4/N) / (c^(4 - 2/N) sigma_max^p).
    """

    reference: ClassVar[str] = "arora2019:cor-lr-gap"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[WhiteTraining]:
        return white_training(case)

    @override
    def assumptions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        rank = int(np.linalg.matrix_rank(subject.start.target))
        narrowest = min((array.shape[0] for array in subject.case.weights[:-1]), default=rank)
        return (
            Claim("1 <= rank of the target", 1.0, float(rank)),
            Claim("rank of the target <= width", float(rank), float(narrowest)),
        )

    @override
    def conclusions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        start, network = subject.start, subject.network
        limit = stability_limit(start.target, start.depth)
        claims = []
        if network.size <= _SMALL:
            minimiser = balanced_from(network, start.target)
            found = float(sharpness(subject.case.objective, minimiser).value) / subject.steepness
            gap, slack = abs(found - float(2 / limit)), 1e-9 * found
            claims.append(identity("sharpness / steepness = N sigma_max^p", gap, slack))
        if start.margin > 0:
            certified = Guarantee(start.depth, start.norm, start.margin).learning_rate
            statement = "learning rate of theorem 1 <= 2 / (N sigma_max^p)"
            claims.append(Claim(statement, certified, limit))
        return tuple(claims)

    @override
    def answers(self, subject: WhiteTraining, /) -> tuple[Answer, ...]:
        start = subject.start
        limit = stability_limit(start.target, start.depth) / subject.steepness
        return (
            Answer(
                Question.PREDICTED_RATE,
                limit,
                "at a balanced minimiser, for a nearly balanced start",
            ),
        )


def stability_limit(target: Any, depth: int) -> Magnitude:
    """2 / (N sigma_max(Phi)^p), for the loss |W - Phi|_F^2 / 2."""
    top = Magnitude.of(float(spectral(np.atleast_2d(np.asarray(target, float)))))
    return 2 / (depth * top ** (2 - 2 / depth))
