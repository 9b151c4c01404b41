"""One step of descent on a deep linear network (arora2019, lemma 7 with the steps of its proof)."""

from dataclasses import dataclass
from math import comb
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from thalweg._typing import Weights
from thalweg.certificates import AbstractTheorem, Claim, Magnitude, requirement, rounding
from thalweg.theorems.convergence.linear_rate import Guarantee, descent_claim
from thalweg.theorems.settings.matrix_approximation import (
    Approximation,
    largest_imbalance,
    spectral,
)


@dataclass(frozen=True, eq=False)
class Step:
    """One step of descent on l, and the margin c for which its rate and balance are judged."""

    weights: Weights
    target: Any
    margin: float
    learning_rate: float

    @property
    def point(self) -> Approximation:
        """Where the step begins."""
        return Approximation.of(self.weights, self.target)

    @property
    def guarantee(self) -> Guarantee:
        """The numbers of theorem 1 for this margin."""
        return Guarantee(len(self.weights), self.point.norm, self.margin)


class SingleStep(AbstractTheorem[Step]):
    """One step from a nearly balanced point with bounded layers lowers the loss.

    With M = (4 F)^(1/N), s = sigma_min(W), and the delta and the largest eta of theorem 1 for some
    c <= min(F, s), points with |W_j|_2 <= M, |G|_2 <= F and imbalance <= 2 delta obey lemma 1. The
    steps of the proof are claimed as well. R is what the step does beyond first order,

        |R|_F <= sum_{k=2}^N binom(N, k) eta^k M^(k(N-2) + N) |G|_F |G|_2^(k-1)
              <= 2 eta^2 M^(3N-4) N^2 F |G|_F,

    the first order differs by at most 2 delta N^3 M^(2(N-2)) |G|_F from
    eta sum_j (W_N W_N^T)^(N-j) G (W_1^T W_1)^(j-1), and that operator is at least (3/4) s^p. In the
    print the bound before (32) has a bracket in the wrong place and the sum for the difference one
    power of M^2 too many.
    """

    reference: ClassVar[str] = "arora2019:lemma7"

    @override
    def assumptions(self, subject: Step, /) -> tuple[Claim, ...]:
        point, c, eta = subject.point, subject.margin, subject.learning_rate
        claims = (
            requirement("0 < c and 0 < eta", c > 0 and eta > 0),
            Claim("c <= F", c, point.norm, rounding(point.norm)),
        )
        if c <= 0 or eta <= 0:
            return claims
        bound, guarantee = (4 * point.norm) ** (1 / point.depth), subject.guarantee
        norm, g = float(np.max(point.layer_norms)), float(spectral(point.error))
        imbalance, delta = float(largest_imbalance(point.layers)), float(guarantee.imbalance)
        noise = float(point.imbalance_resolution) if imbalance > 0 else 0.0
        return (
            *claims,
            Claim("max_j |W_j|_2 <= (4 F)^(1/N)", norm, bound, rounding(bound)),
            Claim("|G|_2 <= F", g, point.norm, rounding(point.norm)),
            Claim("imbalance <= 2 delta", imbalance, 2 * delta, noise),
            Claim("c <= sigma_min(W)", c, float(point.smallest), rounding(norm**point.depth)),
            Claim(
                "eta <= c^(4 - 2/N) / (6144 N^3 F^(6 - 4/N))",
                eta,
                guarantee.learning_rate,
                rounding(1.0),
            ),
        )

    @override
    def conclusions(self, subject: Step, /) -> tuple[Claim, ...]:
        point, eta = subject.point, subject.learning_rate
        delta = subject.guarantee.imbalance
        statement = "2 delta <= min{s^p / (8 N^3 M^(2(N-2))), s^2 / (6 N^2 M^(2(N-1)))}  (28)"
        balance = Claim(statement, 2 * delta, _largest_imbalance(point), rounding(1.0))
        rate = Claim(
            "eta <= the least of the bounds of (27)", eta, _largest_rate(point), rounding(1.0)
        )
        return (descent_claim(point, eta), rate, balance, *_pieces(point, eta, float(delta)))


def _largest_rate(point: Approximation) -> Magnitude:
    """The right-hand side of (27)."""
    n, b = Magnitude.of(point.depth), Magnitude.of(point.norm)
    m = (4 * b) ** (1 / point.depth)
    gain, depth = Magnitude.of(float(point.smallest)) ** point.power, point.depth
    return min(
        1 / (2 * m ** (depth - 2) * b * n),
        gain / (48 * m ** (3 * depth - 4) * n**2 * b),
        gain / (24 * n**2 * m ** (4 * (depth - 1))),
        (gain / (96 * m ** (6 * depth - 8) * n**4 * b**2)) ** (1 / 3),
    )


def _largest_imbalance(point: Approximation) -> Magnitude:
    """The right-hand side of (28)."""
    depth, s = point.depth, Magnitude.of(float(point.smallest))
    n, m = Magnitude.of(depth), Magnitude.of(4 * point.norm) ** (1 / depth)
    first = s**point.power / (8 * n**3 * m ** (2 * (depth - 2)))
    return min(first, s**2 / (6 * n**2 * m ** (2 * (depth - 1))))


def _pieces(point: Approximation, eta: float, delta: float) -> tuple[Claim, ...]:
    """The remainder of a step, the replacement of its first order, and the least eigenvalue."""
    n, b, m = point.depth, point.norm, (4 * point.norm) ** (1 / point.depth)
    g, top = float(point.distance), float(spectral(point.error))
    first, powers, least = _first_order(point)
    change = point.change(eta)
    remainder = float(np.linalg.norm(change + eta * first))
    terms = [comb(n, k) * eta**k * m ** (k * (n - 2) + n) * top ** (k - 1) for k in range(2, n + 1)]
    series, closed = g * sum(terms), 2 * eta**2 * m ** (3 * n - 4) * n**2 * b * g
    noise = rounding(np.linalg.norm(change))
    replaced, allowed = np.linalg.norm(first - powers), 2 * delta * n**3 * m ** (2 * (n - 2)) * g
    gain = 0.75 * float(point.smallest) ** point.power
    return (
        Claim("|R|_F <= the sum over orders", remainder, series, noise),
        Claim("the sum over orders <= 2 eta^2 M^(3N-4) N^2 F |G|_F", series, closed, noise),
        Claim(
            "|first order - its replacement|_F <= 2 delta N^3 M^(2(N-2)) |G|_F",
            replaced,
            allowed,
            rounding(b * g),
        ),
        Claim(
            "(3/4) s^p <= least eigenvalue of the replacement", gain, least, rounding(m ** (2 * n))
        ),
    )


def _first_order(point: Approximation) -> tuple[np.ndarray, np.ndarray, float]:
    """sum_j A_j G B_j, with squares of products and with powers of end layers; its least value."""
    n, g = point.depth, point.error
    pairs = list(zip(point.after, point.before[:-1], strict=True))
    exact = sum((a @ a.T @ g @ b.T @ b for a, b in pairs), np.zeros_like(g))
    left, right = point.layers[-1] @ point.layers[-1].T, point.layers[0].T @ point.layers[0]
    power = np.linalg.matrix_power
    orders = range(n)
    replaced = sum((power(left, n - 1 - j) @ g @ power(right, j) for j in orders), 0 * g)
    rows, columns = np.linalg.eigvalsh(left).clip(0), np.linalg.eigvalsh(right).clip(0)
    values = sum(np.multiply.outer(rows ** (n - 1 - j), columns**j) for j in orders)
    return exact, replaced, float(np.min(values))
