"""How likely a random start is a good one.

Of a balanced start whose product has independent entries from N(0, s^2), and of a Gaussian start of
every layer: the probability that it has a margin, that it is balanced, and that descent from it
converges. Each bound of arora2019 stands beside the exact probability where there is one.

With one output everything depends on the number d_0 of features and on the ratio

    a = (F / (s d_0))^2,    F the norm of the target:

Theorem 2 succeeds with probability (1 - 2 exp(-d_0 / 16)) (3 - 4 Phi(2 sqrt(2 / a))) / 2 at least.
"""

from math import ceil, log, sqrt
from typing import ClassVar

import numpy as np
import scipy
from typing_extensions import override

from thalweg._checks import InputError, require_count
from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Magnitude,
    Narrowed,
    Question,
    requirement,
    rounding,
)
from thalweg.certificates.magnitude import readable, whole
from thalweg.dynamics import AbstractFlow, Descent
from thalweg.theorems.probability.drawn_starts import DrawnTraining, drawn_chain, drawn_training
from thalweg.theorems.probability.gaussian_products import GaussianChain
from thalweg.theorems.probability.sampling import Proportion
from thalweg.theorems.probability.spheres import (
    LEAST_DIMENSION,
    cap_bound,
    margin_probability,
    margin_share,
    typical_shell_probability,
)
from thalweg.theorems.settings.linear import linear_training
from thalweg.theorems.settings.matrix_approximation import (
    Approximation,
    largest_imbalance,
)

NORM_CONSTANT = 2000.0
"""C_1 of arora2019's Claim 3; see `MarginOfGaussianStart`."""

_BALANCED = 1e-10  # an imbalance that counts as none, as a part of the largest squared layer


def success_bound(features: int, ratio: float) -> float:
    """How likely Theorem 2 succeeds, at least; says something for a > 17.58 only."""
    return typical_shell_probability(features) * float(cap_bound(2 * sqrt(2 / ratio)))


def least_ratio(probability: float) -> float:
    """The a above which enough features give this probability, below one half."""
    if not 0 <= probability < 0.5:
        raise InputError(f"`probability` must lie in [0, 1/2), got {probability}.")
    return 8 / float(scipy.special.ndtri((3 - 2 * probability) / 4)) ** 2


def least_features(probability: float, ratio: float) -> int:
    """The d_0' from which on Theorem 2 succeeds with this probability, for a ratio a."""
    if ratio <= least_ratio(probability):
        raise InputError(
            f"`ratio` must be above {least_ratio(probability):g} for probability {probability}, "
            f"got {ratio}: a smaller start gives a larger one."
        )
    missing = 1 - probability / float(cap_bound(2 * sqrt(2 / ratio)))
    return max(LEAST_DIMENSION, ceil(16 * log(2 / missing)))


def event_probability(features: int, ratio: float) -> float:
    """How likely the margin is at least s^2 d_0 / (2 F), which is all that Theorem 2 needs: exact.

    Near 1 - Phi(1 / sqrt(a)).
    """
    spread = 1 / (sqrt(ratio) * require_count("features", features))
    law = scipy.stats.chi(features, scale=spread)
    return margin_probability(features, 1 / (2 * ratio * features), law)


class BalancedStartConverges(AbstractTrainingTheorem[DrawnTraining]):
    """From a small balanced random start, descent converges with a probability of nearly one half.

    For white least squares with one output and a balanced start whose product has independent
    entries from N(0, s^2), s <= F / (sqrt(a) d_0), with probability p at least,

        eta <= (s^2 d_0)^(4 - 2/N) / (10^5 N^3 F^(10 - 6/N))  ==>  l(T) <= eps  for every
        T >= (4 / eta) (log(4) (F / (s^2 d_0))^(2 - 2/N) + F^(2/N - 2) log(F^2 / (8 eps))).

    The print's sqrt(a d_0^2) is sqrt(a) d_0. Its constants are those of the proof:
    p <= (1 - 2 exp(-d_0/16)) (3 - 4 Phi(2 sqrt(2/a))) / 2, d_0 >= 20, a >= 2; here a is the case's
    own (F / (s d_0))^2. All of it holds wherever the margin is at least s^2 d_0 / (2 F), and the
    exact probability of that (ours) is the second answer. In the limit of small learning rates the
    same is true of the flow. Converted from the loss l = |W - target|^2 / 2: learning rate and
    time are divided by the steepness of the case's loss, and eps is the excess over the least loss.
    """

    reference: ClassVar[str] = "arora2019:thm2"

    probability: float = 0.0

    @override
    def narrowed(self, case: Case, /) -> Narrowed[DrawnTraining]:
        return drawn_training(case, "balanced")

    @override
    def assumptions(self, subject: DrawnTraining, /) -> tuple[Claim, ...]:
        training, chain = subject
        start, d, s = training.start, chain.widths[0], chain.scale
        gap = float(largest_imbalance(start.layers))
        p, likely = self.probability, success_bound(d, subject.ratio)
        exact = _BALANCED * max(float(np.sum(layer**2)) for layer in start.layers)
        claims = (
            Claim("|W_{j+1}^T W_{j+1} - W_j W_j^T|_F <= 1e-10 max |W_j|_F^2", gap, exact),
            Claim("20 <= d_0", LEAST_DIMENSION, d),
            Claim("s <= F / (sqrt(2) d_0)", s, start.norm / (sqrt(2) * d), rounding(s)),
            Claim("p < (1 - 2 exp(-d_0/16)) (3 - 4 Phi(2 sqrt(2/a))) / 2", p, likely),
        )
        eta, steep = training.learning_rate, training.steepness
        if eta is None:
            return claims
        bound, slack = _learning_rate(subject) / steep, float(rounding(1.0))
        statement = "eta <= (s^2 d_0)^(4 - 2/N) / (10^5 N^3 F^(10 - 6/N)) / steepness"
        return (*claims, Claim(statement, eta / steep, bound, slack))

    @override
    def conclusions(self, subject: DrawnTraining, /) -> tuple[Claim, ...]:
        case = subject.training.case
        if subject.training.start.margin < float(_margin_needed(subject)):
            return ()  # of such a start nothing is said
        recorded = [each for each in (case.run, case.flow) if each is not None and each.weights]
        return tuple(_excess_claim(subject, each) for each in recorded)

    @override
    def answers(self, subject: DrawnTraining, /) -> tuple[Answer, ...]:
        training, chain = subject
        d, ratio, steep = chain.widths[0], subject.ratio, training.steepness
        needed = readable(_margin_needed(subject))
        event = f"that the margin is at least {needed}, and descent converges"
        exact = event_probability(d, ratio)
        chance = f"with probability at least {exact:.3g} over the start"
        largest, eta = _learning_rate(subject), training.learning_rate
        found = (
            Answer(Question.PROBABILITY, success_bound(d, ratio), event),
            Answer(
                Question.PROBABILITY, exact, f"{event}; by the exact distribution of the margin"
            ),
            Answer(Question.LEARNING_RATE, largest / steep, chance),
        )
        goal = training.target_loss
        if goal is None:
            return found
        time, used = _time(subject, goal), largest if eta is None else Magnitude.of(eta)
        condition = f"at the learning rate {used / steep}, {chance}"
        return (
            *found,
            Answer(Question.ITERATIONS, whole(time / used), condition),
            Answer(Question.TIME, time / steep, f"{chance}; in the limit of small learning rates"),
        )


def _margin_needed(drawn: DrawnTraining) -> Magnitude:
    return drawn.signal / (2 * drawn.training.start.norm)


def _learning_rate(drawn: DrawnTraining) -> Magnitude:
    """The largest of Theorem 2, for the loss l."""
    start = drawn.training.start
    n, size = start.depth, Magnitude.of(start.norm)
    return drawn.signal ** (4 - 2 / n) / (1e5 * n**3 * size ** (10 - 6 / n))


def _time(drawn: DrawnTraining, eps: float) -> Magnitude:
    """The eta T of Theorem 2."""
    start = drawn.training.start
    size, power = Magnitude.of(start.norm), start.power
    escape = log(4) * (size / drawn.signal) ** power
    left = log(start.norm**2 / (8 * eps))
    approach = size**-power * abs(left)
    total = escape + approach if left > 0 else max(float(escape) - float(approach), 0.0)
    return 4 * Magnitude.of(total)


def _excess_claim(drawn: DrawnTraining, recorded: Descent | AbstractFlow) -> Claim:
    """The iteration count, solved for the loss l that it promises at each recorded time."""
    start, steep = drawn.training.start, drawn.training.steepness
    escape = float(_time(drawn, start.norm**2 / 8))  # where the second term is zero
    late = start.norm**start.power * (steep * recorded.times - escape) / 4
    bound = start.norm**2 / 8 * np.exp(np.minimum(-late, 600.0))
    points = Approximation.of(recorded.weights, start.target)
    error = recorded.error if isinstance(recorded, AbstractFlow) else np.zeros(())
    largest = np.max(points.layer_norms, axis=-1) + error
    moved = start.depth * largest ** (start.depth - 1) * error
    noise = points.distance * moved + np.square(moved) / 2 + rounding(points.loss)
    where = "flow" if isinstance(recorded, AbstractFlow) else "run"
    statement = f"l(t) <= F^2/8 exp(-F^p (eta t - 4 log(4) (F/(s^2 d_0))^p) / 4), along the {where}"
    return Claim(statement, points.loss, bound, noise)


class BalanceOfGaussianStart(AbstractTrainingTheorem[GaussianChain]):
    """Small Gaussian layers are nearly balanced with high probability.

        P[max_j |W_{j+1}^T W_{j+1} - W_j W_j^T|_F <= delta]
            >= 1 - s^4 / delta^2 sum_j d_j ((d_{j+1} - d_{j-1})^2 + (d_j + 1)(d_{j+1} + d_{j-1}))
            >= 1 - 10 N s^4 d_max^3 / delta^2

    for independent entries from N(0, s^2). The last bound is the paper's; the one between, ours,
    sums the exact mean squares over j = 1, ..., N - 1, which the paper bounds. If no delta is given
    it is the one at which the paper's bound is one half. With `samples` the probability is also
    measured.
    """

    reference: ClassVar[str] = "arora2019:claim2"

    delta: float | None = None
    samples: int = 0
    seed: int = 0

    @override
    def narrowed(self, case: Case, /) -> Narrowed[GaussianChain]:
        return linear_training(case).further(
            lambda found: drawn_chain(case, found.network, "gaussian")
        )

    @override
    def assumptions(self, subject: GaussianChain, /) -> tuple[Claim, ...]:
        return (Claim("0 < delta", 0.0, self._delta(subject)),)

    @override
    def conclusions(self, subject: GaussianChain, /) -> tuple[Claim, ...]:
        printed, exact = self._bounds(subject)
        first = "max{0, 1 - 10 N s^4 d_max^3 / delta^2}"
        second = "max{0, 1 - sum_j E |.|_F^2 / delta^2}"
        order = Claim(f"{first} <= {second}", printed, exact, rounding(1.0))
        if not self.samples:
            return (order,)
        layers = subject.draw(self.samples, np.random.default_rng(self.seed))
        seen = Proportion.of(largest_imbalance(layers) <= self._delta(subject))
        return (
            order,
            seen.at_least(f"{first} <= P(delta-balanced)", printed),
            seen.at_least(f"{second} <= P(delta-balanced)", exact),
        )

    @override
    def answers(self, subject: GaussianChain, /) -> tuple[Answer, ...]:
        printed, exact = self._bounds(subject)
        event = f"that all imbalances are at most {readable(self._delta(subject))}"
        return (
            Answer(Question.PROBABILITY, printed, event),
            Answer(Question.PROBABILITY, exact, f"{event}; by the exact second moments"),
        )

    def _delta(self, chain: GaussianChain) -> float:
        if self.delta is not None:
            return self.delta
        return chain.scale**2 * sqrt(20 * chain.depth * max(chain.widths) ** 3)

    def _bounds(self, chain: GaussianChain) -> tuple[float, float]:
        square = self._delta(chain) ** 2
        printed = 10 * chain.depth * chain.scale**4 * max(chain.widths) ** 3 / square
        exact = sum(chain.expected_squared_imbalances) / square
        return max(0.0, 1 - printed), max(0.0, 1 - exact)


def margin_frequency(
    chain: GaussianChain, margin: float, samples: int, seed: int
) -> tuple[float, float]:
    """P[margin >= c] with one output and a target of norm 1, by random norms; its error."""
    norms = np.sqrt(chain.draw_squared_norms(samples, np.random.default_rng(seed)))
    shares = margin_share(chain.widths[0], margin, norms)
    return float(shares.mean()), float(shares.std() / sqrt(samples))


class MarginOfGaussianStart(AbstractTrainingTheorem[DrawnTraining]):
    """A small Gaussian start of every layer has a margin with a probability of nearly one half.

        s <= (F^2 / (10^5 d_0^3 D C_1))^(1/(2N)),    s >= C_1 N (c F / D)^(1/(2N)),
        c <= F / (10^5 d_0^3 C_1 (C_1 N)^(2N))  ==>  P[margin >= c] >= 0.49

    for one output, d_0 >= 20 and D = d_1 ... d_{N-1}. The constant C_1 exists in the paper, and is
    2000 here (ours): by the exact distribution of |W|^2, of mean d_0 D s^(2N), Markov's inequality
    bounds the upper tail by 1/2000, and the moment of order -0.4, at most 4.0678 for chi2_d / d,
    the lower one by (4.0678 (2000 N)^-0.8)^N < 1/2000 (for N = 1, sqrt(2/pi) / 2000). If no margin
    c is given it is the largest for this s. With `samples` the probability is also measured.
    """

    reference: ClassVar[str] = "arora2019:claim3"

    margin: float | None = None
    samples: int = 0
    seed: int = 0

    @override
    def narrowed(self, case: Case, /) -> Narrowed[DrawnTraining]:
        return drawn_training(case, "gaussian")

    @override
    def assumptions(self, subject: DrawnTraining, /) -> tuple[Claim, ...]:
        chain, size = subject.chain, Magnitude.of(subject.training.start.norm)
        c, n, d = self._margin(subject), chain.depth, chain.widths[0]
        share = 1e5 * NORM_CONSTANT * Magnitude.of(d) ** 3
        reach = (NORM_CONSTANT * Magnitude.of(n)) ** (2 * n)
        most = (size**2 / (share * chain.hidden)) ** (1 / (2 * n))
        least = (reach * c * size / chain.hidden) ** (1 / (2 * n))
        near, more = 1 + 1e-12, "(1 + 1e-12)"  # the bounds on s meet at the largest margin
        return (
            Claim("20 <= d_0", LEAST_DIMENSION, d),
            Claim("s <= (F^2 / (10^5 d_0^3 D C_1))^(1/(2N))", chain.scale, most),
            requirement("0 < c", c > 0),
            Claim(f"c <= F / (10^5 d_0^3 C_1 (C_1 N)^(2N)) {more}", c, near * size / share / reach),
            Claim(f"C_1 N (c F / D)^(1/(2N)) <= s {more}", least, near * chain.scale),
        )

    @override
    def conclusions(self, subject: DrawnTraining, /) -> tuple[Claim, ...]:
        if not self.samples:
            return ()
        size, chain = subject.training.start.norm, subject.chain
        scaled = GaussianChain(chain.widths, chain.scale / size ** (1 / chain.depth))
        margin = float(self._margin(subject) / size)
        seen, error = margin_frequency(scaled, margin, self.samples, self.seed)
        return (Claim(f"0.49 <= P(margin >= c), in {self.samples} draws", 0.49, seen, 4 * error),)

    @override
    def answers(self, subject: DrawnTraining, /) -> tuple[Answer, ...]:
        event = f"that the margin is at least {readable(self._margin(subject))}"
        chain, size = subject.chain, subject.training.start.norm
        signal = Magnitude.of(chain.scale) ** (2 * chain.depth) * chain.hidden
        ratio = size**2 / (signal * NORM_CONSTANT * chain.widths[0] ** 3)
        proven = 0.999 * float(cap_bound(2 / sqrt(float(ratio))))
        return (
            Answer(Question.PROBABILITY, 0.49, event),
            Answer(Question.PROBABILITY, proven, f"{event}; by its proof at this scale"),
        )

    def _margin(self, subject: DrawnTraining) -> Magnitude:
        if self.margin is not None:
            return Magnitude.of(max(self.margin, 0.0))
        chain, size = subject.chain, subject.training.start.norm
        signal = Magnitude.of(chain.scale) ** (2 * chain.depth) * chain.hidden
        return signal / (size * (NORM_CONSTANT * Magnitude.of(chain.depth)) ** (2 * chain.depth))
