"""What a central flow knows at one point: the eigenvalues near the edge, and how they would move.

With unit eigenvectors u_i of the k unstable directions, M = U^T H U, and an oscillation x of
covariance Sigma = U X U^T around w, Taylor's series gives for the averages over x

    < grad f(w + x) >     = grad f + 1/2 sum_ij X_ij t_ij + ...,    t_ij = grad (u_i^T H u_j),
    < x . grad f(w + x) > = <M, X> + 1/6 q[X, X] + ...,             q_ijkl = D^4 f[u_i, .., u_l],

so that the oscillation, whose every step turns x into x - eta grad f, neither grows nor decays
where the *effective* curvature M + q[X] / 6 is 2 / eta along it. Left to itself the drift is

    dM/dt = -(alpha + beta[X]),   alpha_ij = <t_ij, grad f>,   beta_ijkl = 1/2 <t_ij, t_kl>.
"""

from functools import cached_property
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh

from thalweg.dynamics.complementarity import least_nonnegative, symmetric_basis
from thalweg.dynamics.flattened import Flattened, Vector
from thalweg.dynamics.forms import mixtures, symmetric_form
from thalweg.krylov.extremes import extreme_pairs
from thalweg.objective import AbstractObjective
from thalweg.validated.by_hand import hessian_by_hand

Rows = Float[np.ndarray, "k size"]

_TOLERANCE = 1e-10  # of the eigenvalues, as a part of the largest
_SMALL = 50  # weights of which all products together cost no more than those of a search
_DENSE = 600  # weights of a linear network whose Hessian is had in closed form
_STEP = 5e-4  # of differences, as a part of |w|: truncated and rounded alike, see the tests
_FIRST = np.array([1.0, -8.0, 8.0, -1.0]) / 12
_SECOND = np.array([-1.0, 16.0, 16.0, -1.0]) / 12
_THIRD = np.array([-1.0, 2.0, -2.0, 1.0]) / 2
_CHOOSING = 1e-6  # of |beta|, added to it
_RELAXATION = 5.0  # steps of descent in which an effective curvature comes back to the edge
_SHARE = 0.5  # of beta which relaxing may take away at most


class Point:
    """One point of a central flow: what is asked of it is computed, once.

    Attributes:
        weights: where.
        members: how many directions are unstable.
        loss: f there.
        gradient: its gradient.
    """

    def __init__(self, edge: "Surroundings", weights: Vector, members: int):
        """Compute the gradient."""
        self._edge, self.weights, self.members = edge, weights, members
        values, gradients = edge.values_and_gradients(weights[None])
        self.loss, self.gradient = float(values[0]), gradients[0]

    @cached_property
    def _pairs(self) -> tuple[np.ndarray, Rows]:
        return self._edge.largest(self.weights, min(self.members + 1, self.weights.size))

    @property
    def sharpness(self) -> float:
        """The largest eigenvalue."""
        return float(self._pairs[0][0])

    @property
    def next_value(self) -> float:
        """The largest eigenvalue that takes no part."""
        values = self._pairs[0]
        return float(values[self.members]) if values.size > self.members else -np.inf

    @property
    def curvature(self) -> Float[np.ndarray, "k k"]:
        """M, the Hessian on the unstable directions, which are its eigenvectors."""
        return np.diag(self._pairs[0][: self.members])

    @property
    def directions(self) -> Rows:
        """The unstable directions."""
        return self._pairs[1][: self.members]

    @cached_property
    def _derivatives(self) -> tuple[np.ndarray, np.ndarray]:
        bends, quartic = self._edge.bends(self.weights, self.gradient, self.directions)
        return bends, quartic if self._edge.corrected else np.zeros_like(quartic)

    @property
    def effective(self) -> Float[np.ndarray, "k k"]:
        """The curvature that decides whether the oscillation grows."""
        shift = np.einsum("ijkl,kl->ij", self._derivatives[1], self.covariance) / 6
        return self.curvature + shift

    @property
    def excess(self) -> float:
        """The mean of f over the oscillation, less f: <M, X> / 2 + q[X, X] / 24."""
        if not self.members:
            return 0.0
        x, quartic = self.covariance, self._derivatives[1]
        return float(np.sum(self.curvature * x) / 2 + np.einsum("ijkl,ij,kl->", quartic, x, x) / 24)

    @cached_property
    def covariance(self) -> Float[np.ndarray, "k k"]:
        """The least one under which no unstable direction leaves the edge upwards."""
        if not self.members:
            return np.zeros((0, 0))
        bends, quartic = self._derivatives
        alpha = np.einsum("ijp,p->ij", bends, self.gradient)
        beta = np.einsum("ijp,klp->ijkl", bends, bends) / 2
        if self.members > 1:  # the least of several covariances that keep the edge alike
            identity = np.eye(self.members)
            beta = beta + _CHOOSING * np.linalg.norm(beta) * (
                np.einsum("ik,jl->ijkl", identity, identity)
            )
        time = _RELAXATION * self._edge.learning_rate
        lost, kept = max(_spectrum(quartic)[-1], 0.0), _spectrum(beta)[0]
        if kept > 0:  # relaxing more slowly, so that what is left of beta stays positive
            time = max(time, lost / (6 * _SHARE * kept))
        above = self.curvature - self._edge.limit * np.eye(self.members)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return least_nonnegative(alpha - above / time, beta - quartic / (6 * time))
        except (np.linalg.LinAlgError, ZeroDivisionError):  # no beta, as at saddles
            return np.full_like(above, np.nan)

    @property
    def velocity(self) -> Vector:
        """How the centre moves; NaN where the loss is not finite."""
        if not np.isfinite(self.loss):
            return np.full_like(self.weights, np.nan)
        field, edge = -self.gradient, self._edge
        if self.members:
            return field - np.einsum("ij,ijp->p", self.covariance, self._derivatives[0]) / 2
        if not edge.corrected:
            return field
        speed = float(np.linalg.norm(field))
        if speed == 0:
            return field
        bent = edge.along(self.weights, self.gradient, field[None] / speed)[0, 0]
        return field + edge.learning_rate / 2 * speed * bent


@final
class Surroundings:
    """An objective around one point after the other, as functions of one long vector.

    Derivatives along a few directions are taken by differences of gradients, of which all that are
    needed at a point are evaluated at once: nothing but gradients and products with the Hessian is
    asked of the objective, and nothing is compiled for small linear networks.

    Attributes:
        start: the weights at time 0, as a vector.
        shaped: vectors as weights.
        values_and_gradients: the loss and its gradient at some points.
        learning_rate: eta.
        limit: the edge 2 / eta.
        corrected: whether terms of the next order are kept.
    """

    def __init__(
        self, objective: AbstractObjective, start: Any, learning_rate: float, corrected: bool
    ):
        """Take the objective and one start."""
        self._flat = Flattened(objective, start)
        self.start, self.shaped = self._flat.start, self._flat.shaped
        self.values_and_gradients = self._flat.values_and_gradients
        self.learning_rate, self.limit = learning_rate, 2 / learning_rate
        self.corrected, self._objective = corrected, objective
        self._vectors: Rows | None = None

    def along(
        self, weights: Vector, gradient: Vector, directions: Rows
    ) -> Float[np.ndarray, "3 m size"]:
        """The first three derivatives of the gradient along unit vectors."""
        step = _STEP * (float(np.linalg.norm(weights)) or 1.0)
        offsets = step * np.array([-2.0, -1.0, 1.0, 2.0])
        points = weights + offsets[:, None, None] * directions
        found = self.values_and_gradients(points.reshape(-1, weights.size))[1]
        around = found.reshape(points.shape)
        return np.stack([
            np.tensordot(_FIRST, around, 1) / step,
            (np.tensordot(_SECOND, around, 1) - 2.5 * gradient) / step**2,
            np.tensordot(_THIRD, around, 1) / step**3,
        ])  # fmt: skip

    def bends(
        self, weights: Vector, gradient: Vector, vectors: Rows
    ) -> tuple[np.ndarray, np.ndarray]:
        """The gradients t_ij of the curvatures, and the fourth derivatives q_ijkl."""
        mixed = mixtures(len(vectors))
        directions = mixed @ vectors
        _, second, third = self.along(weights, gradient, directions)
        return (
            symmetric_form(mixed, second, 2),
            symmetric_form(mixed, np.sum(directions * third, axis=1)[:, None], 4)[..., 0],
        )

    def largest(self, weights: Vector, count: int) -> tuple[np.ndarray, Rows]:
        """The largest eigenvalues of the Hessian, with eigenvectors near those of the last call."""
        if weights.size <= _DENSE:
            matrix = hessian_by_hand(self._objective, self.shaped(weights))
            if matrix is not None:
                return _of_matrix(matrix, count)
        point = jax.tree.map(jnp.asarray, self.shaped(weights))
        if weights.size <= _SMALL:
            return _of_matrix(np.asarray(_compiled_hessian(self._objective, point)), count)
        pairs = extreme_pairs(
            lambda vector: self._product(point, vector), weights.size,
            count=count, ends="largest", tolerance=_TOLERANCE, start=self._vectors,
        )  # fmt: skip
        self._vectors = pairs.largest_vectors
        return pairs.largest, _oriented(pairs.largest_vectors)

    def _product(self, point: Any, vector: Vector) -> Vector:
        product = _compiled_product(self._objective, point, self.shaped(vector))
        return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(product)])


@eqx.filter_jit
def _compiled_hessian(objective: AbstractObjective, weights: Any) -> Any:
    return objective.hessian(weights)


@eqx.filter_jit
def _compiled_product(objective: AbstractObjective, weights: Any, direction: Any) -> Any:
    return objective.hvp(weights, direction)


def _of_matrix(matrix: np.ndarray, count: int) -> tuple[np.ndarray, Rows]:
    size = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=[size - count, size - 1])
    return values[::-1], _oriented(vectors.T[::-1])


def _oriented(vectors: Rows) -> Rows:
    """With the sign by which the largest entry is positive: eigenvectors have none of their own."""
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)
    return vectors * np.where(largest < 0, -1.0, 1.0)


def _spectrum(operator: Float[np.ndarray, "k k k k"]) -> np.ndarray:
    """The eigenvalues of an operator on symmetric matrices."""
    basis = symmetric_basis(operator.shape[0])
    flat = np.einsum("aij,ijkl,bkl->ab", basis, operator, basis)
    return np.linalg.eigvalsh((flat + flat.T) / 2)
