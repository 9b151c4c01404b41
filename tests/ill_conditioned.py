"""Ill-conditioned least squares, and exact sums over the samples to hold the package against.

Sums are rational numbers (`fractions`), which are the doubles' own. `python
tests/ill_conditioned.py 100` tries the bounds of so many tubes on the loss of the flow.
"""

import sys
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp

import thalweg as tw
from thalweg import curvature

SAMPLES, FEATURES = 12, 3
STEPS = 60


# --- data ----------------------------------------------------------------------------------------


def prescribed(random, condition):
    """Singular values from 1 to 1 / condition, with random vectors."""
    left = np.linalg.qr(random.standard_normal((SAMPLES, FEATURES)))[0]
    right = np.linalg.qr(random.standard_normal((FEATURES, FEATURES)))[0]
    return np.sqrt(SAMPLES) * left * np.geomspace(1, 1 / condition, FEATURES) @ right.T


def collinear(random, condition):
    """The last column is the one before, but for a part of 1 / condition."""
    x = random.standard_normal((SAMPLES, FEATURES))
    x[:, -1] = x[:, -2] + random.standard_normal(SAMPLES) / condition
    return x


def scaled(random, condition):
    """Features in very different units."""
    return random.standard_normal((SAMPLES, FEATURES)) * np.geomspace(1, 1 / condition, FEATURES)


def repeated(random, condition):
    """Two columns are the same, and the third is in other units."""
    x = random.standard_normal((SAMPLES, FEATURES))
    x[:, 1] = x[:, 0]
    return x * np.array([1, 1, 1 / condition])


def few(random, condition):
    """Fewer samples than features, one of them small."""
    return random.standard_normal((2, FEATURES)) * np.array([[1], [1 / condition]])


def few_and_collinear(random, condition):
    """Fewer samples than features, and almost the same ones."""
    x = random.standard_normal((2, FEATURES))
    x[1] = x[0] + x[1] / condition
    return x


KINDS = {
    each.__name__: each
    for each in (prescribed, collinear, scaled, repeated, few, few_and_collinear)
}
TALL = ("prescribed", "collinear", "scaled", "repeated")


class Samples(NamedTuple):
    """Samples and targets with an exact loss."""

    x: np.ndarray
    y: np.ndarray
    scale: float

    @classmethod
    def drawn(cls, kind, condition, seed, outputs=1, scale=0.5) -> "Samples":
        random = np.random.default_rng(seed)
        x = KINDS[kind](random, condition)
        return cls(x, random.standard_normal((len(x), outputs)), scale)

    @property
    def problem(self) -> tw.Regression:
        return tw.Regression(self.x, self.y, self.scale)

    @property
    def power(self):
        """|y|^2 in the units of the loss."""
        return self.scale * np.sum(self.y**2) / len(self.y)

    @property
    def gradient_size(self):
        """What gradients at matrices M are made of, as a function of |M|."""
        size = np.linalg.norm(self.x) / np.sqrt(len(self.x))
        other = np.linalg.norm(self.y) / np.sqrt(len(self.y))
        return lambda norm: 2 * self.scale * size * (size * norm + other)

    def loss(self, factors) -> Fraction:
        """At the product of these matrices, the last one first."""
        residual = self._residual(factors)
        return rational(self.scale) * np.sum(residual * residual) / len(self.x)

    def gradient(self, factors) -> np.ndarray:
        """With respect to the product, in rational numbers."""
        return 2 * rational(self.scale) * self._residual(factors).T @ rational(self.x) / len(self.x)

    def _residual(self, factors):
        product = rational(factors[0])
        for factor in factors[1:]:
            product = product @ rational(factor)
        return rational(self.x) @ product.T - rational(self.y)

    def minimum(self) -> Fraction:
        """What is left of the targets beside the columns, by exact orthogonalisation."""
        directions, left = [], [rational(column) for column in self.y.T]
        for column in rational(self.x).T:
            for direction in directions:
                column = column - (column @ direction) / (direction @ direction) * direction
            if np.any(column != 0):
                directions.append(column)
        for direction in directions:
            left = [y - (y @ direction) / (direction @ direction) * direction for y in left]
        return rational(self.scale) * sum((y @ y for y in left), Fraction(0)) / len(self.x)


def rational(values):
    """Doubles as rational numbers, in an array where they are in one."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(values, float))[()]


def off(computed, exact) -> float:
    """How far a double, or an array in the Frobenius norm, is from rational numbers."""
    gap = np.asarray(rational(computed) - exact, object)
    return float(np.sqrt(float(np.sum(gap * gap))))


# --- tubes ---------------------------------------------------------------------------------------


class LossBounds(NamedTuple):
    """By how much the flow's loss was outside of a tube's bounds, and at how many times inside."""

    outside: float
    proven: int
    width: float


def tube_problem(number: int):
    """A problem, its network of two layers and a start; all of the same shapes."""
    random = np.random.default_rng(number)
    kind, condition = TALL[number % 4], 10 ** random.uniform(0, 12)
    samples = Samples.drawn(kind, condition, number)
    start = tuple(0.7 * random.standard_normal(shape) for shape in ((FEATURES, FEATURES), (1, 3)))
    return samples, start


def loss_bounds(number: int) -> LossBounds:
    """Oracle: the flow by sums over the samples, integrated by SciPy to twelve digits."""
    samples, start = tube_problem(number)
    objective = tw.Objective(tw.LinearNetwork([FEATURES, FEATURES, 1]), samples.problem)
    rate = 0.02 / float(curvature.sharpness(objective, start).value)
    run = tw.descend(objective, start, learning_rate=rate, steps=STEPS)
    proven = tw.tube(run)
    losses = flow_losses(samples, start, run.times)
    known = np.isfinite(proven.loss_upper)
    doubt = 1e-10 * losses + 1e-13 * samples.power  # of the integration; none at the start
    doubt[0] = 0.0
    high, low = losses - proven.loss_upper - doubt, proven.loss_lower - losses - doubt
    width = (proven.loss_upper - proven.loss_lower)[known] / losses[known]
    outside = np.maximum(high, low)[known].max() / samples.power
    return LossBounds(float(outside), int(known.sum()), float(width.max()))


def flow_losses(samples: Samples, start, times):
    """The loss along the exact flow of a network of two layers; the first one is exact."""
    lower, upper = start
    count = len(samples.x)

    def unpacked(point):
        return point[: lower.size].reshape(lower.shape), point[lower.size :].reshape(upper.shape)

    def velocity(_, point):
        first, second = unpacked(point)
        slope = (samples.x @ (second @ first).T - samples.y).T @ samples.x
        slope *= -2 * samples.scale / count
        return np.concatenate([(second.T @ slope).ravel(), (slope @ first.T).ravel()])

    begin = np.concatenate([lower.ravel(), upper.ravel()])
    solved = solve_ivp(
        velocity, (0, times[-1]), begin, "DOP853", t_eval=times, rtol=1e-13, atol=1e-15
    )
    points = [unpacked(point) for point in solved.y.T]
    return np.array([float(samples.loss((second, first))) for first, second in points])


if __name__ == "__main__":
    found = [loss_bounds(number) for number in range(int(sys.argv[1]))]
    print("problems:", len(found))
    print("farthest outside (at most 0 if inside):", max(each.outside for each in found))
    print("times proven:", sum(each.proven for each in found), "of", len(found) * (STEPS + 1))
    print("widest bounds, as a part of the loss:", max(each.width for each in found))
