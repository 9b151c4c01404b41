"""After the last step: flow and descent may be proven to come to rest nearby.

For the square loss scale |M F^T - G|^2, whose targets G can be reached, let x be the excess over
the minimum, J the derivative of the product M with respect to all weights, and mu the smallest
singular value of F. The gradient Gamma = phi'(M) has |grad f| = |J^T Gamma| and
|Gamma| >= 2 sqrt(scale x) mu, so that where the singular values of J, as a map onto matrices, are
at least sigma,

    |grad f|^2 >= 2 m x,    m = 2 scale mu^2 sigma^2.

J changes by at most d2 R on a ball of radius R around some point. While it stays in such a ball,
the flow has at most the length sqrt(2 x / m) before it, since (sqrt x)' <= -sqrt(m / 2) |theta'|;
and descent at most sqrt(2 x / m) / (1 - eta b / 2), where b bounds the Hessian and eta b < 2: a
step from theta to theta', or any part of it, lowers f by at least
(1 - eta b / 2) |grad f| |theta' - theta|, and sqrt is concave. So if that length, counted from
where they are now, ends inside of the ball, they never leave it, and converge to a minimiser in it.

A flow that is only known to be within r of the point has a root of its excess that is larger by at
most sqrt(scale) |F| d1 r, d1 bounding J on the ball.

Losses of labels have no such bound (they may have no minimiser), nor has weight decay here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from jaxtyping import Float

from thalweg.validated.eigenvalues import proven_lowest
from thalweg.validated.hessian import Chains, dense_error, dense_hessian, product_derivatives
from thalweg.validated.losses import AbstractLossSeries, SquareSeries
from thalweg.validated.norms import (
    ascending_errors,
    constant,
    descending_errors,
    disturbed,
    frobenius,
    interval_norms,
    spectral,
)
from thalweg.validated.rounding import SLACK, UNIT

Layers = tuple[Float[np.ndarray, "_ _"], ...]

_ATTEMPTS = 60
_ROOM = 1.01  # how far above the length the next guess of the ball lies
_WIDEST = 1e3  # a ball above this says nothing
_LARGEST = 1000  # entries of M up to which the singular values of J are computed


@dataclass(frozen=True)
class Rest:
    """A point near a minimiser of the square loss, and the balls around it.

    Attributes:
        loss: the loss.
        dense: whether the Hessian's largest eigenvalue is computed.
        chains: the products at the point.
        intervals: P_ij, the norms of the partial products there.
        chain: the norms of a_0, ..., a_N.
        least: the smallest singular value of J there, at least.
        lowest: mu, at least.
        root: the root of the excess, at most.
    """

    loss: SquareSeries
    dense: bool
    chains: Chains
    intervals: Float[np.ndarray, "_ _"]
    chain: Float[np.ndarray, " _"]
    least: float
    lowest: float
    root: float

    @classmethod
    def at(
        cls,
        layers: Layers,
        readout: Float[np.ndarray, "_ _"],
        loss: AbstractLossSeries,
        decay: float,
        dense: bool,
    ) -> "Rest | None":
        """What is known at these layers; None where nothing can be proven."""
        if not isinstance(loss, SquareSeries) or decay > 0 or not loss.unreached < inf:
            return None
        rows, features = loss.factor.shape
        if readout.shape[1] * features > _LARGEST:
            return None
        values = np.linalg.svd(loss.factor, compute_uv=False)
        lowest = float(values[-1]) - (64 + 8 * features) * UNIT * float(values[0])
        lowest -= loss.images_error
        chains = Chains(layers, readout, loss)
        intervals = interval_norms(layers)
        off = descending_errors(intervals, layers, chains.upper)
        least = _least_singular_value(chains, intervals, off)
        if rows > features or not lowest > 0 or not least > 0:
            return None
        chain = np.array([float(spectral(each)) for each in chains.upper]) + off
        root = _root(chains, intervals, loss)
        return cls(loss, dense, chains, intervals, chain, least, lowest, root)

    def of_flow(self, radius: float) -> float | None:
        """How far from the point a flow gets, ever, that is within this radius of it now."""

        def reach(ball: float) -> float:
            d1, pace = self._derivatives(ball)[0], self._pace(ball)
            root = self.root + sqrt(self.loss.scale) * self.loss.stretch * d1 * radius
            return radius + root * pace

        return _fixed(reach, radius)

    def of_descent(self, rate: float) -> float | None:
        """How far from the point descent gets, ever, that is there now; steps are exact."""
        sharp = self._sharpness()

        def reach(ball: float) -> float:
            steady = 1 - rate * min(sharp + self._lipschitz(ball) * ball, self._crude(ball)) / 2
            return self.root * self._pace(ball) / steady if steady > 0 else inf

        return _fixed(reach, 0.0)

    def _derivatives(self, ball: float) -> tuple[float, float, float]:
        """Bounds on the first three derivatives of M on the ball."""
        away = constant(np.full(len(self.chains.layers), ball))
        partial = disturbed(self.intervals, away)[..., 0]
        depth, above = partial.shape[0] - 1, self.chain.copy()
        for j in range(depth - 1, -1, -1):
            above[j] += ball * np.sum(self.intervals[j, j:depth] * above[j + 1 :])
        return product_derivatives(above, partial, partial[0])

    def _pace(self, ball: float) -> float:
        """sqrt(2 / m), the length before a flow of excess one."""
        sigma = self.least - self._derivatives(ball)[1] * ball
        return 1 / (sqrt(self.loss.scale) * self.lowest * sigma) if sigma > 0 else inf

    def _gradient(self, ball: float, d1: float) -> float:
        """What |Gamma| is at most on the ball."""
        scale, stretch = self.loss.scale, self.loss.stretch
        return 2 * sqrt(scale) * stretch * (self.root + sqrt(scale) * stretch * d1 * ball)

    def _crude(self, ball: float) -> float:
        """What the Hessian is at most on the ball, by norms."""
        d1, d2, _ = self._derivatives(ball)
        return 2 * self.loss.scale * (self.loss.stretch * d1) ** 2 + self._gradient(ball, d1) * d2

    def _lipschitz(self, ball: float) -> float:
        """How fast it changes there."""
        d1, d2, d3 = self._derivatives(ball)
        return 6 * self.loss.scale * self.loss.stretch**2 * d1 * d2 + self._gradient(ball, d1) * d3

    def _sharpness(self) -> float:
        """The largest eigenvalue at the point, at most; infinite where it is not computed."""
        if not self.dense:
            return inf
        matrix = dense_hessian(self.chains, self.loss, 0.0)
        return -proven_lowest(-matrix, dense_error(self.chains, 0.0))


def _fixed(reach: Callable[[float], float], first: float) -> float | None:
    """A ball that holds what is reached from it, found from below; None if there is none."""
    ball = first
    for _ in range(_ATTEMPTS):
        reached = reach(ball)
        if reached <= ball:
            return reached
        ball = _ROOM * reached
        if not ball < _WIDEST:
            return None
    return None


def _least_singular_value(
    chains: Chains, intervals: Float[np.ndarray, "_ _"], off: Float[np.ndarray, " _"]
) -> float:
    """That of J, from J J^T = sum over j of (a_j^T a_j) x (V_{j-1}^T V_{j-1}), V = W_j ... W_1.

    The a_j are off by these numbers, and J by no more than its parts together.
    """
    features, outputs = chains.layers[0].shape[1], chains.upper[0].shape[1]
    gram, below = np.zeros((outputs * features, outputs * features)), [np.eye(features)]
    for above, layer in zip(chains.upper[1:], chains.layers, strict=True):
        gram += np.kron(above.T @ above, below[-1].T @ below[-1])
        below.append(layer @ below[-1])
    above = np.array([frobenius(each) for each in chains.upper[1:]])
    images = np.array([frobenius(each) for each in below[:-1]])
    images_off = ascending_errors(intervals, chains.layers, below)[:-1]
    wrong = np.linalg.norm(off[1:] * (images + images_off) + above * images_off) * SLACK
    widest = max(max(layer.shape) for layer in chains.layers)
    # Two products, their Kronecker product, and the sum over layers.
    rounding = (2 * widest + len(chains.layers) + 8) * UNIT * float(np.sum((above * images) ** 2))
    least = max(proven_lowest(gram, rounding), 0.0)
    return max(sqrt(least) * (1 - 4 * UNIT) - float(wrong), 0.0)


def _root(chains: Chains, intervals: Float[np.ndarray, "_ _"], loss: SquareSeries) -> float:
    """The root of the excess at the point, with what rounding and unreached targets may add."""
    product, whole = chains.upper[0].T, float(np.linalg.norm(loss.factor))
    residual = product @ loss.images - loss.target
    widest = max(max(layer.shape) for layer in chains.layers)
    # What is rounded at one layer is carried on by those below it.
    off = sum(
        (widest + 2) * UNIT * np.linalg.norm(layer) * np.linalg.norm(above) * intervals[0, j]
        for j, (layer, above) in enumerate(zip(chains.layers, chains.upper[1:], strict=True))
    )
    made_of = float(np.linalg.norm(product)) * whole + float(np.linalg.norm(loss.target))
    rounds = ((loss.factor.shape[1] + 2) * UNIT + loss.blur) * made_of
    total = float(np.linalg.norm(residual)) + float(off) * whole + rounds + loss.unreached
    return sqrt(loss.scale) * total * (1 + 1e-12)
