"""Losses of samples whose gradient is made of probabilities: cross-entropy and margin losses.

With n samples x_i, outputs z_i = M x_i and K = X^T / sqrt(n),

    cross-entropy     phi' = (P - Y) / sqrt(n),    P = softmax(z)
    logistic          phi' = -s P / sqrt(n),       P = 1 / (1 + exp(s z))
    exponential       phi' = -s P / sqrt(n),       P = exp(-s z)

Along a curve P obeys a differential equation, which gives its coefficients one after the other:

    softmax  P' = P (z' - <P, z'>),    logistic  P' = -P (1 - P) s z',    exponential  P' = -P s z'.

Let Q be the polynomial of degree q that is made so, rho what it leaves of the equation, and r the
length of the curve z. The distance E of Q to the true P has

    softmax      E' <= (3 + E) |z'| E + |rho|,
    logistic     E' <= (1 + E) |z'| E + |rho|,
    exponential  E' <= |z'| E + |rho|,

so that E <= exp(c r) (E(0) + integral of |rho|) with c = 3.01, 1.01, 1, for as long as E <= 0.01.
For the softmax: the difference of the right sides is E (z' - <P, z'>) - P <E, z'> - E <E, z'>, and
P is a probability vector. Below order q the residual rho is rounding; from q on its coefficients
are bounded by convolving norms. Where the outputs themselves are off by d, P is off by at most
phi'' d more.
"""

from abc import abstractmethod
from copy import copy
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg.validated.losses import AbstractLossSeries, Changes, Matrix, Numbers, Reach, Remainder
from thalweg.validated.norms import spectral
from thalweg.validated.rounding import SLACK, UNIT

Samples = Float[np.ndarray, " _"]
Outputs = Float[np.ndarray, "_ _"]
SampleSeries = Float[np.ndarray, "_ _"]

_SMALL = 0.01  # what E must stay below
_SKEWNESS = 1 / (6 * 3**0.5)  # the largest third central moment of a variable of range 1


class AbstractProbabilitySeries(AbstractLossSeries):
    """A mean over samples whose gradient is made of probabilities that obey an equation."""

    growth: ClassVar[float]  # c above

    def __init__(self, x: Any):
        """Take the samples, one row each."""
        inputs = np.asarray(x, float)
        self.count = inputs.shape[0]
        self.root = self.count**0.5
        self.images = inputs.T / self.root
        self.stretch = float(spectral(self.images))
        self.images_error = 2 * UNIT * float(np.linalg.norm(self.images))
        # phi'' is made of no more than three P, and of no sample P is off by more than phi' is.
        self.bending_rate = 3 * self.root
        self.sizes = np.sqrt(np.sum(inputs**2, axis=1)) * SLACK
        self.outputs: list[Outputs] = []
        self.chances: list[Outputs] = []
        self.means: list[Samples] = []

    @override
    def fresh(self) -> "AbstractProbabilitySeries":
        made = copy(self)  # which shares the samples
        made.outputs, made.chances, made.means = [], [], []
        return made

    @abstractmethod
    def probabilities(self, outputs: Outputs) -> Outputs:
        """P at these outputs."""

    @abstractmethod
    def next_probabilities(self, rates: list[Outputs]) -> Outputs:
        """The coefficient of P' that follows the known ones of P, from those of z'."""

    @abstractmethod
    def slopes(self, chances: Outputs, first: bool) -> Outputs:
        """Phi' sqrt(n) from the coefficient of P; `first` where it is that of order 0."""

    @abstractmethod
    def equation_norms(self, chances: SampleSeries, rates: SampleSeries) -> SampleSeries:
        """What the coefficients of the equation's right side are at most, to their full degree."""

    @abstractmethod
    def sensitivity(self, length: Samples) -> Samples | float:
        """What |dP/dz| is at most along curves z of this length."""

    @override
    def extend(self, product: Matrix) -> Matrix:
        self.outputs.append((product @ self.images) * self.root)
        known = len(self.outputs) - 1
        if known:
            rates = [i * self.outputs[i] for i in range(1, known + 1)]
            self.chances.append(self.next_probabilities(rates) / known)
        else:
            self.chances.append(self.probabilities(self.outputs[0]))
        slopes = self.slopes(self.chances[-1], first=known == 0)
        return (slopes @ self.images.T) / self.root

    @override
    def remainder(self, product: Numbers, known: int, share: float, error: float) -> Remainder:
        outputs, chances = (self._norms(each, share) for each in (self.outputs, self.chances))
        length = np.sum(outputs[1:], axis=0)
        rates = outputs[1:] * np.arange(1, known + 1)[:, None]
        equation = self.equation_norms(chances, rates)
        features, classes = self.images.shape[0], self.outputs[0].shape[0]
        rounded = (2 * known + classes + 8) * UNIT * np.sum(equation[:known], axis=0)
        begun = 8 * (classes + 4) * UNIT * (1 + np.abs(self.outputs[0]).max(axis=0)) * chances[0]
        left = begun + rounded + np.sum(equation[known:], axis=0)
        near, far = float(np.sum(product[: known + 1])), float(np.sum(product[known + 1 :]))
        moved = (error + (features + 4) * UNIT * near + far) * self.sizes
        off = np.exp(self.growth * length) * left + self.sensitivity(length + moved) * moved
        if not np.all(off < _SMALL):
            return Remainder(np.zeros_like(product), np.inf, 0.0, np.inf)
        size = np.sqrt(np.sum(np.sum(chances, axis=0) ** 2) / self.count) + 1
        gathered = (self.count + 4) * UNIT * size * np.linalg.norm(self.images)
        total = float(np.sqrt(np.sum(off**2) / self.count) * SLACK)
        return Remainder(np.zeros_like(product), total, float(gathered), total)

    def _norms(self, coefficients: list[Outputs], share: float) -> SampleSeries:
        """Per sample, the norms of coefficients on a step."""
        powers = share ** np.arange(len(coefficients))
        return np.sqrt(np.sum(np.stack(coefficients) ** 2, axis=1)) * powers[:, None]

    def _speeds(self, product: Numbers, share: float) -> tuple[Samples, Samples]:
        """What |z'| and |z''| are at most on a step, in units of its length."""
        norms, known = self._norms(self.outputs, share), len(self.outputs)
        order = np.arange(max(product.size, known))
        near, far, tail = order[:known, None], order[known : product.size], product[known:]
        speed = np.sum(near * norms, axis=0) + np.sum(far * tail) * self.sizes
        turn = np.sum(near * (near - 1) * norms, axis=0)
        return speed, turn + np.sum(far * (far - 1) * tail) * self.sizes


class CrossEntropySeries(AbstractProbabilitySeries):
    """The mean over samples of log sum_c exp(z_c) - z_label."""

    growth = 3.01

    def __init__(self, x: Any, labels: Any, classes: int):
        """Take samples, one row each, and labels 0, ..., classes - 1."""
        super().__init__(x)
        self.labels = np.asarray(labels)
        self.expected = (np.arange(classes)[:, None] == self.labels).astype(float)

    @override
    def probabilities(self, outputs: Outputs) -> Outputs:
        grown = np.exp(outputs - outputs.max(axis=0))
        return grown / grown.sum(axis=0)

    @override
    def next_probabilities(self, rates: list[Outputs]) -> Outputs:
        turned, chances = np.stack(rates[::-1]), np.stack(self.chances)
        # Over the classes first: the longer a sum, the more it can be off.
        self.means.append(np.sum(np.sum(chances * turned, axis=1), axis=0))
        means = np.stack(self.means[::-1])[:, None]
        return np.sum(chances * (turned - means), axis=0)

    @override
    def slopes(self, chances: Outputs, first: bool) -> Outputs:
        return chances - self.expected if first else chances

    @override
    def equation_norms(self, chances: SampleSeries, rates: SampleSeries) -> SampleSeries:
        direct = convolved(chances, rates)
        total = convolved(chances, direct)
        total[: direct.shape[0]] += direct
        return total

    @override
    def sensitivity(self, length: Samples) -> Samples | float:
        return 0.5

    @override
    def value(self, product: Matrix) -> float:
        scores = (product @ self.images) * self.root
        top = scores.max(axis=0)
        chosen = scores[self.labels, np.arange(self.count)]
        return float(np.mean(np.log(np.sum(np.exp(scores - top), axis=0)) + top - chosen))

    @override
    def rooted(self, product: Matrix, changes: Changes) -> Changes:
        chances = self.probabilities((product @ self.images) * self.root)[..., None]
        return np.sqrt(chances) * (changes - np.sum(chances * changes, axis=0))

    @override
    def rooted_back(self, product: Matrix, changes: Changes) -> Changes:
        chances = self.probabilities((product @ self.images) * self.root)[..., None]
        changes = np.sqrt(chances) * changes
        return changes - chances * np.sum(changes, axis=0)

    @override
    def curvature_jet(self, product: Numbers, share: float) -> Float[np.ndarray, "3"]:
        speed, turn = self._speeds(product, share)
        # |P'| <= sqrt(2) |z'| and |P''| <= 4 |z'|^2 + sqrt(2) |z''|; diag(P) - P P^T has three P.
        first, second = 2**0.5 * speed, 4 * speed**2 + 2**0.5 * turn
        return np.array([0.5, np.max(3 * first), np.max(3 * second + 2 * first**2)])

    @override
    def second(self, reach: Reach) -> float:
        return 0.5

    @override
    def third(self, reach: Reach) -> float:
        return 2**1.5 * _SKEWNESS * self.root

    @override
    def steepest(self, reach: Reach) -> float:
        return 2**0.5


class AbstractMarginSeries(AbstractProbabilitySeries):
    """The mean over samples of a decreasing function of s z, for labels s = 1 and -1."""

    def __init__(self, x: Any, signs: Any):
        """Take samples, one row each, and their signs."""
        super().__init__(x)
        self.signs = np.asarray(signs, float)[None]

    @override
    def slopes(self, chances: Outputs, first: bool) -> Outputs:
        return -self.signs * chances

    @override
    def rooted_back(self, product: Matrix, changes: Changes) -> Changes:
        return self.rooted(product, changes)

    def _margins(self, product: Matrix) -> Outputs:
        return self.signs * ((product @ self.images) * self.root)


class LogisticSeries(AbstractMarginSeries):
    """log(1 + exp(-s z))."""

    growth = 1.01

    @override
    def probabilities(self, outputs: Outputs) -> Outputs:
        margins = self.signs * outputs
        small = np.exp(-np.abs(margins))
        return np.where(margins > 0, small, 1.0) / (1 + small)

    @override
    def next_probabilities(self, rates: list[Outputs]) -> Outputs:
        turned, chances = np.stack(rates[::-1]), np.stack(self.chances)
        squares = np.stack(
            [np.sum(chances[: k + 1] * chances[k::-1], axis=0) for k in range(len(chances))]
        )
        return -self.signs * np.sum((chances - squares) * turned, axis=0)

    @override
    def equation_norms(self, chances: SampleSeries, rates: SampleSeries) -> SampleSeries:
        both = convolved(chances, chances)
        both[: chances.shape[0]] += chances
        return convolved(both, rates)

    @override
    def sensitivity(self, length: Samples) -> Samples | float:
        return 0.25

    @override
    def value(self, product: Matrix) -> float:
        return float(np.mean(np.logaddexp(0.0, -self._margins(product))))

    @override
    def rooted(self, product: Matrix, changes: Changes) -> Changes:
        chances = self.probabilities((product @ self.images) * self.root)[..., None]
        return np.sqrt(chances * (1 - chances)) * changes

    @override
    def curvature_jet(self, product: Numbers, share: float) -> Float[np.ndarray, "3"]:
        speed, turn = self._speeds(product, share)
        return np.array([0.25, np.max(speed) / 4, np.max(0.375 * speed**2 + turn / 4)])

    @override
    def second(self, reach: Reach) -> float:
        return 0.25

    @override
    def third(self, reach: Reach) -> float:
        return _SKEWNESS * self.root

    @override
    def steepest(self, reach: Reach) -> float:
        return 1.0


class ExponentialSeries(AbstractMarginSeries):
    """exp(-s z), whose derivatives are bounded near the samples' present margins only."""

    growth = 1.0

    @override
    def probabilities(self, outputs: Outputs) -> Outputs:
        return np.exp(-self.signs * outputs)

    @override
    def next_probabilities(self, rates: list[Outputs]) -> Outputs:
        return -self.signs * np.sum(np.stack(self.chances) * np.stack(rates[::-1]), axis=0)

    @override
    def equation_norms(self, chances: SampleSeries, rates: SampleSeries) -> SampleSeries:
        return convolved(chances, rates)

    @override
    def sensitivity(self, length: Samples) -> Samples | float:
        return self.chances[0][0] * np.exp(length)

    @override
    def value(self, product: Matrix) -> float:
        return float(np.mean(np.exp(-self._margins(product))))

    @override
    def rooted(self, product: Matrix, changes: Changes) -> Changes:
        return np.exp(-self._margins(product) / 2)[..., None] * changes

    @override
    def curvature_jet(self, product: Numbers, share: float) -> Float[np.ndarray, "3"]:
        speed, turn = self._speeds(product, share)
        top = self.sensitivity(speed)  # a curve is no longer than its greatest speed
        return np.array([np.max(top), np.max(top * speed), np.max(top * (speed**2 + turn))])

    @override
    def second(self, reach: Reach) -> float:
        return float(self.chances[0].max() * np.exp(self.root * reach.column)) * SLACK

    @override
    def third(self, reach: Reach) -> float:
        return self.second(reach) * self.root

    @override
    def steepest(self, reach: Reach) -> float:
        size = np.sqrt(np.mean(self.chances[0] ** 2))
        return float(size * np.exp(self.root * reach.column)) * SLACK


def convolved(left: SampleSeries, right: SampleSeries) -> SampleSeries:
    """Convolutions along the first axis, one for each sample."""
    found = np.zeros((left.shape[0] + right.shape[0] - 1, left.shape[1]))
    for i, each in enumerate(left):
        found[i : i + right.shape[0]] += each * right
    return found
