"""Products of random layers near the identity are well conditioned, with high probability.

Let W_k = I + s / sqrt(L d) N_k for k = 1, ..., L, with N_k standard Gaussian of size d, and u > 0.
Except with a probability F(u), all of the products W_k ... W_1 satisfy

    |W_k ... W_1| <= M = 2 exp(s^2 / 2 + u)
    sigma_min(W_k ... W_1) >= m = exp(-2 s^2 / d - u) / 2,

and then, if every W_k is moved by theta_k / L with |theta_k| <= m^2 / (4 M^2), the same holds with
2 M and m / 2 (marion2024:lem9). By symmetry the products W_L ... W_k behave alike.
"""

from abc import abstractmethod
from math import exp, log, sqrt
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
    requirement,
)
from thalweg.network import LinearNetwork
from thalweg.theorems.probability.sampling import Proportion

LEAST_WIDTH = 4
"""From this width on the simplified bounds hold."""


class ProductBounds(NamedTuple):
    """Bounds on the singular values of the products, and how far theta_k may go to double them."""

    largest: Magnitude
    smallest: Magnitude
    radius: Magnitude


def product_bounds(width: int, scale: float, deviation: float) -> ProductBounds:
    """M, m and m^2 / (4 M^2) of the module, for s = scale and u = deviation."""
    largest = 2 * Magnitude.exp(scale**2 / 2 + deviation)
    smallest = Magnitude.exp(-2 * scale**2 / width - deviation) / 2
    return ProductBounds(largest, smallest, smallest**2 / (4 * largest**2))


def failure_bound(width: int, depth: int, scale: float, deviation: float) -> Magnitude:
    """F(u), the probability that the products are not as well conditioned as that, at most.

    Five terms: with d = width, L = depth, s = scale and u = deviation,

        5^d (exp(-d u^2 / (16 s^2)) + exp(-L d u^2 / (4 s^4 + 4 u s^2)))
        + (2 M / m + 1)^d (exp(-d u^2 / (16 s^2)) + exp(-L d^2 u^2 / (16 s^2 (4 s^2 + d u)))
                           + L exp(-L d / (32 s^2))),

    valid for all positive numbers. marion2024 prints 4 s^4 + u s^2 in the second term and no s^2
    before the last bracket of the fourth; both are tails of chi-squared laws, and false as printed.
    """
    d, size, s, u = width, depth, scale, deviation
    bounds = product_bounds(width, scale, deviation)
    gaussian = Magnitude.exp(-d * u**2 / (16 * s**2))
    upper = gaussian + Magnitude.exp(-size * d * u**2 / (4 * s**4 + 4 * u * s**2))
    squares = Magnitude.exp(-size * d**2 * u**2 / (16 * s**2 * (4 * s**2 + d * u)))
    single = size * Magnitude.exp(-size * d / (32 * s**2))
    net = (2 * bounds.largest / bounds.smallest + 1) ** d
    return Magnitude.of(5) ** d * upper + net * (gaussian + squares + single)


def least_deviation(scale: float) -> float:
    """The u from which on F(u) <= 8 exp(-d u^2 / (32 s^2)), for d >= 4 and L >= 4 u^2: ours."""
    return 96 * scale**2 + 8.4 * scale


def best_deviation(width: int, depth: int, scale: float) -> float:
    """The u with the least F(u), which is some way above s."""
    found = scipy.optimize.minimize_scalar(
        lambda logarithm: failure_bound(width, depth, scale, exp(logarithm)).log,
        bounds=(log(scale), log(least_deviation(scale) + sqrt(depth))),
        method="bounded",
    )
    return exp(float(found.x))


class ResidualStart(NamedTuple):
    """Square layers that start at random near the identity, with this scale."""

    network: LinearNetwork
    scale: float

    @property
    def width(self) -> int:
        """D."""
        return self.network.widths[0]


def random_residual_start(case: Case) -> Narrowed[ResidualStart]:
    """A case with such a start."""
    network, start = case.objective.network.linear, case.random_start
    residual = None if start is None or start.kind != "residual" else start
    claims = (
        requirement("the network is linear", network is not None),
        requirement(
            "all layers are square",
            all(shape == 2 * shape[:1] for shape in case.objective.network.shapes),
        ),
        requirement("the start is a random residual one", residual is not None),
    )
    if network is None or residual is None:
        return Narrowed(claims, None)
    return Narrowed.where(claims, ResidualStart(network, residual.scale))


class _AbstractProducts(AbstractTrainingTheorem[ResidualStart]):
    """What statements about the products of a random residual start share.

    Attributes:
        deviation: u; None means the one that suits the statement.
        draws: how many starts to draw for a comparison; none by default.
        seed: the random seed of the draws.
    """

    deviation: float | None = None
    draws: int = 0
    seed: int = 0

    @abstractmethod
    def chosen(self, start: ResidualStart) -> float:
        """The u that is used."""

    @abstractmethod
    def failure(self, start: ResidualStart) -> Magnitude:
        """The probability of failure, at most."""

    @override
    def narrowed(self, case: Case, /) -> Narrowed[ResidualStart]:
        return random_residual_start(case)

    @override
    def conclusions(self, subject: ResidualStart, /) -> tuple[Claim, ...]:
        if self.draws == 0:
            return ()
        bounds = product_bounds(subject.width, subject.scale, self.chosen(subject))
        found = well_conditioned(*subject, bounds, self.draws, self.seed)
        statement = "1 - F(u) <= P(all partial products are within their bounds)"
        return (found.at_least(statement, 1 - float(self.failure(subject))),)

    @override
    def answers(self, subject: ResidualStart, /) -> tuple[Answer, ...]:
        bounds = product_bounds(subject.width, subject.scale, self.chosen(subject))
        condition = (
            f"that all products W_k ... W_1 have their singular values between {bounds.smallest} "
            f"and {bounds.largest}"
        )
        return (Answer(Question.PROBABILITY, 1 - float(self.failure(subject)), condition),)


class ResidualProducts(_AbstractProducts):
    """The products of random layers near the identity have bounded singular values.

    If d >= 4 and 96 s^2 + 8.4 s <= u <= sqrt(L) / 2 then, but for a probability

        8 exp(-d u^2 / (32 s^2)),

    the products are as the module says, for all moves |theta_k| <= exp(-2 s^2 - 4 u) / 64 at once.
    The paper leaves the constants open; these are ours, from the five terms of `failure_bound`.
    With its printed tails corrected there is no need for its condition u >= C s^{-2/3}.
    """

    reference: ClassVar[str] = "marion2024:lem3"

    @override
    def chosen(self, start: ResidualStart) -> float:
        return least_deviation(start.scale) if self.deviation is None else self.deviation

    @override
    def failure(self, start: ResidualStart) -> Magnitude:
        exponent = start.width * self.chosen(start) ** 2 / (32 * start.scale**2)
        return 8 * Magnitude.exp(-exponent)

    @override
    def assumptions(self, subject: ResidualStart, /) -> tuple[Claim, ...]:
        u = self.chosen(subject)
        return (
            Claim("4 <= d", LEAST_WIDTH, subject.width),
            Claim("96 s^2 + 8.4 s <= u", least_deviation(subject.scale), u),
            Claim("u <= sqrt(L) / 2", u, sqrt(subject.network.depth) / 2),
        )


class ResidualProductsByTerms(_AbstractProducts):
    """The products of random layers near the identity, with the whole bound on their failure.

    The failure has at most the probability F(u) of `failure_bound`, for any u, here the best.
    """

    reference: ClassVar[str] = "marion2024:lem3-failure"

    @override
    def chosen(self, start: ResidualStart) -> float:
        if self.deviation is not None:
            return self.deviation
        return best_deviation(start.width, start.network.depth, start.scale)

    @override
    def failure(self, start: ResidualStart) -> Magnitude:
        depth, u = start.network.depth, self.chosen(start)
        return failure_bound(start.width, depth, start.scale, u)

    @override
    def assumptions(self, subject: ResidualStart, /) -> tuple[Claim, ...]:
        return (Claim("F(u) <= 1", self.failure(subject), 1.0),)


def well_conditioned(
    network: LinearNetwork,
    scale: float,
    bounds: ProductBounds,
    draws: int,
    seed: int,
    both_ways: bool = False,
) -> Proportion:
    """How often all products W_k ... W_1 (and W_L ... W_k) are within the bounds.

    Each start is looked at as it is, and with every layer moved by as much as the radius allows,
    along the identity and against it: there singular values move the most.
    """
    width, depth = network.widths[0], network.depth
    # As `initialisation.residual`, but all draws at once and without compiling.
    noise = np.random.default_rng(seed).standard_normal((depth, draws, width, width))
    layers = np.eye(width) + scale / sqrt(depth * width) * noise
    largest, smallest = float(bounds.largest), float(bounds.smallest)
    shift = float(bounds.radius) / depth * np.eye(width)
    fine = np.ones(draws, bool)
    for chain in (layers, layers[::-1].swapaxes(-1, -2)) if both_ways else (layers,):
        for move, slack in ((0.0, 1.0), (shift, 2.0), (-shift, 2.0)):
            high, low = product_extremes(chain + move)
            fine &= (high <= slack * largest) & (low >= smallest / slack)
    return Proportion.of(fine)


def product_extremes(layers: Any) -> tuple[np.ndarray, np.ndarray]:
    """The largest and the smallest singular value of W_k ... W_1 over all k.

    Args:
        layers: square matrices (depth, ..., width, width); the axes in between remain.
    """
    product = np.asarray(layers[0])
    products = [product]
    for layer in layers[1:]:
        product = np.asarray(layer) @ product
        products.append(product)
    values = np.linalg.svd(np.stack(products), compute_uv=False)
    ends = np.max(values[..., 0], axis=0), np.min(values[..., -1], axis=0)
    return np.asarray(ends[0]), np.asarray(ends[1])
