"""The setting of arora2019: the layers of a linear network approximate a matrix.

With the product W = W_N ... W_1, a target Phi and G = W - Phi,

    l = |G|_F^2 / 2,    dl/dW_j = (W_N ... W_{j+1})^T G (W_{j-1} ... W_1)^T.

A square loss with the scale a on inputs with the second moment v I is f = 2 a v l + minimum with
the least-squares minimiser as Phi. Its `steepness` 2 a v multiplies the learning rate and divides
the excess loss; descent is otherwise the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thalweg.certificates import Case, Claim, Narrowed, requirement, rounding
from thalweg.certificates.trajectories import is_run_of
from thalweg.measurement import deficiency_margin
from thalweg.network import LinearNetwork
from thalweg.problem import AbstractLeastSquares

Matrices = Float[np.ndarray, "*points rows columns"]
Numbers = Any  # one per point: an array, or NumPy's scalar at a single point

WHITE = 1e-10
"""How far the second moment of the inputs may be from a multiple of the identity."""


def largest_imbalance(weights: Sequence[Any]) -> Numbers:
    """The largest |W_{j+1}^T W_{j+1} - W_j W_j^T|_F; at most delta if delta-balanced.

    Leading axes of the layers are kept; it is zero for one layer.
    """
    layers = [np.asarray(array, float) for array in weights]
    norms = [
        _frobenius(_transposed(upper) @ upper - lower @ _transposed(lower))
        for lower, upper in pairwise(layers)
    ]
    return np.max(np.stack(norms), axis=0) if norms else np.zeros(layers[0].shape[:-2])


@dataclass(frozen=True, eq=False)
class Approximation:
    """Layers and a target, at one point or, along leading axes of the layers, at many."""

    layers: tuple[Float[np.ndarray, "..."], ...]
    target: Float[np.ndarray, "outputs features"]

    @classmethod
    def of(cls, weights: Sequence[Any], target: Any) -> "Approximation":
        """From any arrays; a vector as a target means one output."""
        goal = np.atleast_2d(np.asarray(target, float))
        return cls(tuple(np.asarray(array, float) for array in weights), goal)

    @property
    def depth(self) -> int:
        """N."""
        return len(self.layers)

    @property
    def power(self) -> float:
        """2 (N - 1) / N, the power p of singular values in rates."""
        return 2 * (self.depth - 1) / self.depth

    @property
    def norm(self) -> float:
        """|Phi|_F."""
        return float(np.linalg.norm(self.target))

    @property
    def is_square(self) -> bool:
        """Whether there are as many outputs as features."""
        return self.target.shape[0] == self.target.shape[1]

    @cached_property
    def before(self) -> tuple[Float[np.ndarray, "..."], ...]:
        """W_{j-1} ... W_1 for j = 1, ..., N, and the whole product last."""
        products = [np.broadcast_to(np.eye(self.layers[0].shape[-1]), self._square(0))]
        for layer in self.layers:
            products.append(layer @ products[-1])
        return tuple(products)

    @cached_property
    def after(self) -> tuple[Float[np.ndarray, "..."], ...]:
        """W_N ... W_{j+1} for j = 1, ..., N."""
        products = [np.broadcast_to(np.eye(self.layers[-1].shape[-2]), self._square(-1))]
        for layer in reversed(self.layers[1:]):
            products.append(products[-1] @ layer)
        return tuple(reversed(products))

    @property
    def product(self) -> Matrices:
        """W."""
        return self.before[-1]

    @cached_property
    def error(self) -> Matrices:
        """G, which is also the gradient of l with respect to W."""
        return self.product - self.target

    @property
    def distance(self) -> Numbers:
        """|G|_F."""
        return _frobenius(self.error)

    @property
    def loss(self) -> Numbers:
        """The loss l."""
        return self.distance**2 / 2

    @cached_property
    def gradients(self) -> tuple[Float[np.ndarray, "..."], ...]:
        """Those of l with respect to each layer."""
        return tuple(
            _transposed(a) @ self.error @ _transposed(b)
            for a, b in zip(self.after, self.before[:-1], strict=True)
        )

    @cached_property
    def smallest(self) -> Numbers:
        """The smallest singular value of W, of min(outputs, features) many."""
        return np.linalg.svd(self.product, compute_uv=False)[..., -1]

    @cached_property
    def layer_norms(self) -> Float[np.ndarray, "*points depth"]:
        """The largest singular value of each layer."""
        return np.stack([spectral(layer) for layer in self.layers], axis=-1)

    @property
    def margin(self) -> float:
        """The deficiency margin at a single point."""
        return float(deficiency_margin(jnp.asarray(self.product), jnp.asarray(self.target)))

    @property
    def margin_resolution(self) -> float:
        """How well that is known; with one output, or feature, also for small products."""
        size = float(np.prod([np.linalg.norm(layer) for layer in self.layers]))
        reach = self.norm + float(self.distance)
        if min(self.target.shape) > 1:
            return float(rounding(reach + size))
        return float(rounding(size * (2 * self.norm + size) / reach)) if reach > 0 else 0.0

    @property
    def imbalance_resolution(self) -> Numbers:
        """How well the largest imbalance is known."""
        return np.asarray(rounding(np.max(self.layer_norms, axis=-1) ** 2))

    def change(self, learning_rate: float) -> Matrices:
        """W' - W after one step, as a sum of small terms: the difference would lose its digits."""
        moved = [
            layer - learning_rate * slope
            for layer, slope in zip(self.layers, self.gradients, strict=True)
        ]
        behind = Approximation(tuple(moved), self.target).after
        terms = [
            a @ (-learning_rate * slope) @ b
            for a, slope, b in zip(behind, self.gradients, self.before[:-1], strict=True)
        ]
        return sum(terms[1:], terms[0])

    def decrease(self, learning_rate: float) -> Numbers:
        """l(W) - l(W') over one step: -<G, W' - W> - |W' - W|^2 / 2."""
        moved = self.change(learning_rate)
        return -np.sum(self.error * moved, axis=(-2, -1)) - np.sum(moved**2, axis=(-2, -1)) / 2

    def _square(self, place: int) -> tuple[int, ...]:
        *points, rows, columns = self.layers[place].shape
        size = columns if place == 0 else rows
        return (*points, size, size)


@dataclass(frozen=True, eq=False)
class WhiteTraining:
    """A linear network without readout, white inputs and the squared error alone."""

    case: Case
    network: LinearNetwork
    problem: AbstractLeastSquares

    @cached_property
    def start(self) -> Approximation:
        """The start and the target."""
        return Approximation.of(self.case.weights, self.problem.minimiser)

    @property
    def steepness(self) -> float:
        """2 a v of the module's docstring."""
        moment = np.asarray(self.problem.input_moment, float)
        return float(2 * self.problem.scale * np.trace(moment) / len(moment))

    @property
    def learning_rate(self) -> float | None:
        """That of the case, or of its run, for the loss l."""
        rate = self.case.learning_rate
        if rate is None and self.case.run is not None:
            rate = float(self.case.run.learning_rate)
        return None if rate is None else rate * self.steepness

    @property
    def target_loss(self) -> float | None:
        """The target for the loss l; None where there is none, or none that can be reached."""
        if self.case.target_loss is None:
            return None
        excess = (self.case.target_loss - float(self.problem.minimum)) / self.steepness
        return excess if excess > 0 else None

    @cached_property
    def records(self) -> tuple[np.ndarray, Approximation]:
        """The recorded steps and what was there; the start where nothing was recorded."""
        run = self.case.run
        if run is None or not run.weights:
            stacked = tuple(layer[None] for layer in self.start.layers)
            return np.zeros(1, int), Approximation(stacked, self.start.target)
        return np.asarray(run.steps), Approximation.of(run.weights, self.start.target)


def white_training(case: Case) -> Narrowed[WhiteTraining]:
    """A case in these terms."""
    network, problem = case.objective.network.linear, case.objective.problem.least_squares
    if network is None or network.readout is not None:
        return Narrowed((requirement("the network is linear, without a readout", False),), None)
    claims = (
        requirement("the network is linear, without a readout", True),
        requirement("the loss is the squared error", problem is not None),
        requirement("there is no weight decay", float(case.objective.weight_decay) == 0),
    )
    if problem is None:
        return Narrowed(claims, None)
    moment = np.asarray(problem.input_moment, float)
    level = np.trace(moment) / len(moment)
    gap = np.linalg.norm(moment / level - np.eye(len(moment))) if level > 0 else np.inf
    white = Claim(f"inputs are white: |Sigma / v - I|_F <= {WHITE:g}", float(gap), WHITE)
    return Narrowed.where((*claims, white, *_own_run(case)), WhiteTraining(case, network, problem))


def _own_run(case: Case) -> tuple[Claim, ...]:
    if case.run is None:
        return ()
    return (requirement("the run is of this start and learning rate", is_run_of(case.run, case)),)


def spectral(matrices: Float[np.ndarray, "..."]) -> Numbers:
    """The largest singular value of each matrix."""
    return np.linalg.svd(matrices, compute_uv=False)[..., 0]


def _transposed(matrices: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return np.swapaxes(matrices, -1, -2)


def _frobenius(matrices: Float[np.ndarray, "..."]) -> Numbers:
    return np.sqrt(np.sum(matrices**2, axis=(-2, -1)))
