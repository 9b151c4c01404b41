"""Lower bounds on the smallest eigenvalue of networks whose dense Hessian is out of reach.

With the chains of `hessian` the Hessian is A + B + decay, A = J^T phi'' J >= 0 and

    <D, B D> = 2 sum over i < j of <D_j, a_j b_{i-1}^T D_i^T C_ij^T>.

**The indefinite part.** B sees layer k only through P^T D_k, with P an orthonormal basis of the
range of a_k, and through D_k Q, with Q one of the range of b_{k-1}; both have no more columns than
the network has outputs. In the orthonormal coordinates

    X = P^T D_k,    Y = P'^T D_k Q,    P' the complement of P,

B is a small matrix, whose smallest eigenvalue, or zero, is that of B. With T = (P_j^T a_j) (Q_i^T
b_{i-1})^T its entries for i < j are (T Q_i^T)[p, q'] (C P_i)[q, p'] between X_j[p, q] and
X_i[p', q'], and T[p, t] (C P'_i)[q, y] between X_j[p, q] and Y_i[y, t].

**Nystroem.** For any directions V and any c >= 0, A >= A V (V^T A V + c)^-1 V^T A = U U^T. In
coordinates that are completed by those directions of U that B does not see, B + U U^T is a small
matrix, too. V are the lowest eigenvectors of A + B, found by Lanczos' method; the bound is proven
whatever was found.
"""

from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Float

from thalweg.validated.hessian import Chains, Layers, norm_bound
from thalweg.validated.losses import UNIT, AbstractLossSeries

Square = Float[np.ndarray, "_ _"]
Directions = Float[np.ndarray, "_ _"]

_DIRECTIONS = 36
_SHIFT = 1e-7  # c, relative to the largest eigenvalue of V^T A V: so well can it be inverted
_INVERTED = 1e-8  # what that leaves of U U^T, relative to its size


def indefinite_bound(
    layers: Layers, readout: np.ndarray, loss: AbstractLossSeries, decay: float
) -> float:
    """A lower bound from the smallest eigenvalue of B."""
    small = _Indefinite(Chains(layers, readout, loss))
    return decay + min(_lowest(small.matrix, len(layers)), 0.0)


def nystroem_bound(
    layers: Layers,
    readout: np.ndarray,
    loss: AbstractLossSeries,
    decay: float,
    directions: int = _DIRECTIONS,
) -> float:
    """A lower bound from the smallest eigenvalue of B + U U^T, or from norms if that is higher."""
    small = _Indefinite(Chains(layers, readout, loss))
    curved = _Curved(small, loss)
    found = _lowest_directions(curved, sum(layer.size for layer in layers), directions)
    matrix, slack = _with_nystroem(small, curved, found)
    bound = decay + min(_lowest(matrix, len(layers), slack), 0.0)
    return max(bound, norm_bound(layers, readout, loss, decay))


def _lowest_directions(curved: "_Curved", size: int, count: int) -> Directions:
    """About the lowest eigenvectors of A + B; those that were not found are not needed."""
    if size <= 2 * count:  # of so few weights all directions can be had
        return np.eye(size)
    make: Any = scipy.sparse.linalg.LinearOperator  # whose stub knows a part of its arguments
    operator = make((size, size), matvec=curved.hessian_product, dtype=float)
    start = np.random.default_rng(0).normal(size=size)
    how = {"which": "SA", "tol": 1e-2, "maxiter": 30, "v0": start, "ncv": 2 * count + 1}
    try:
        return scipy.sparse.linalg.eigsh(operator, k=count, **how)[1]
    except scipy.sparse.linalg.ArpackNoConvergence as unfinished:
        return unfinished.eigenvectors


class _Indefinite:
    """B in its small space; `matrix` is B there, `coordinates` leads to it."""

    def __init__(self, chains: Chains):
        self.chains = chains
        depth = len(chains.layers)
        self.above, self.beyond, self.below, self.turned = [], [], [], []
        for k, layer in enumerate(chains.layers):
            if k:
                basis, triangle = np.linalg.qr(chains.upper[k + 1], mode="complete")
                rank = min(chains.upper[k + 1].shape)
            else:  # nothing is below it: it is seen through Q alone
                basis, triangle, rank = np.eye(layer.shape[0]), np.zeros((0, 0)), 0
            self.above.append(basis[:, :rank])
            self.beyond.append(basis[:, rank:])
            right = np.linalg.qr(chains.lower[k]) if k < depth - 1 else None
            empty = (np.zeros((layer.shape[1], 0)), np.zeros((0, chains.upper[0].shape[1])))
            self.below.append(empty[0] if right is None else right[0])
            self.turned.append((triangle[:rank], empty[1] if right is None else right[1]))

    @cached_property
    def sizes(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """The shapes of X and Y, layer by layer."""
        return [
            (
                (above.shape[1], layer.shape[1]),
                (beyond.shape[1], below.shape[1]),
            )
            for above, beyond, below, layer in zip(
                self.above, self.beyond, self.below, self.chains.layers, strict=True
            )
        ]

    @cached_property
    def matrix(self) -> Square:
        """B in these coordinates."""
        ends = np.cumsum([0, *(a * b for pair in self.sizes for a, b in pair)])
        found = np.zeros((ends[-1], ends[-1]))
        for (i, j), between in self.chains.middle.items():
            turned = self.turned[j][0] @ self.turned[i][1].T
            rows = slice(ends[2 * j], ends[2 * j + 1])
            pieces = (
                (turned @ self.below[i].T, between @ self.above[i], "pb,qa->pqab"),
                (turned, between @ self.beyond[i], "pb,qa->pqab"),
            )
            for place, (left, right, how) in enumerate(pieces):
                columns = slice(ends[2 * i + place], ends[2 * i + place + 1])
                block = np.einsum(how, left, right).reshape(rows.stop - rows.start, -1)
                found[rows, columns] += block
                found[columns, rows] += block.T
        return found

    def coordinates(self, directions: Directions) -> Directions:
        """The columns X and Y of directions over all weights, one column each."""
        found = []
        for k, each in enumerate(split(self.chains, directions)):
            found.append(np.einsum("mp,mnk->pnk", self.above[k], each))
            right = np.einsum("mnk,nq->mqk", each, self.below[k])
            found.append(np.einsum("my,mqk->yqk", self.beyond[k], right))
        return np.concatenate([each.reshape(-1, directions.shape[1]) for each in found])


class _Curved:
    """A, and A + B, as products with directions."""

    def __init__(self, small: _Indefinite, loss: AbstractLossSeries):
        self.chains, self.loss = small.chains, loss

    def product(self, directions: Directions) -> Directions:
        """A times each of these columns."""
        chains = self.chains
        moved = sum(
            np.einsum("mo,mnk,nc->ock", above, each, below, optimize=True)
            for above, each, below in zip(
                chains.upper[1:], split(chains, directions), chains.images, strict=True
            )
        )
        bent = self.loss.bent(chains.upper[0].T, np.asarray(moved))
        found = [
            np.einsum("mo,ock,nc->mnk", above, bent, below, optimize=True)
            for above, below in zip(chains.upper[1:], chains.images, strict=True)
        ]
        return np.concatenate([each.reshape(-1, directions.shape[1]) for each in found])

    def hessian_product(self, vector: Float[np.ndarray, " _"]) -> Float[np.ndarray, " _"]:
        """A + B times one."""
        chains = self.chains
        pieces = [each[..., 0] for each in split(chains, vector[:, None])]
        found = [np.zeros_like(each) for each in pieces]
        for (i, j), between in chains.middle.items():
            above, below = chains.upper[j + 1], chains.lower[i]
            found[j] += above @ ((between @ (pieces[i] @ below)).T)
            found[i] += (between.T @ (pieces[j].T @ above)) @ below.T
        whole = np.concatenate([each.ravel() for each in found])
        return whole + self.product(vector[:, None])[:, 0]


def split(chains: Chains, directions: Directions) -> list[Float[np.ndarray, "_ _ _"]]:
    """Columns over all weights as layers, with the columns last."""
    ends = np.cumsum([layer.size for layer in chains.layers])[:-1]
    return [
        each.reshape(*layer.shape, -1)
        for each, layer in zip(np.split(directions, ends), chains.layers, strict=True)
    ]


def _with_nystroem(
    small: _Indefinite, curved: _Curved, directions: Directions
) -> tuple[Square, float]:
    """B + U U^T in completed coordinates, and how far inverting may have put it off."""
    if not directions.shape[1]:
        return small.matrix, 0.0
    images = curved.product(directions)
    inner = directions.T @ images
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    shifted = np.maximum(values, 0.0) + _SHIFT * max(values[-1], 0.0) + 1e-300
    factor = images @ (vectors / np.sqrt(shifted))
    seen = small.coordinates(factor)
    unseen = factor.T @ factor - seen.T @ seen
    lengths, turns = np.linalg.eigh((unseen + unseen.T) / 2)
    rest = (turns * np.sqrt(np.maximum(lengths, 0.0))).T
    tall = np.concatenate([seen, rest])
    matrix = tall @ tall.T
    matrix[: seen.shape[0], : seen.shape[0]] += small.matrix
    return matrix, _INVERTED * float(np.linalg.norm(factor)) ** 2


def _lowest(matrix: Square, depth: int, slack: float = 0.0) -> float:
    """The smallest eigenvalue, less what rounding, and a slack, may hide."""
    if not matrix.size:
        return 0.0
    value = scipy.linalg.eigh(matrix, eigvals_only=True, subset_by_index=[0, 0])[0]
    rounding = (8 * matrix.shape[0] + 64 * depth) * UNIT * float(np.linalg.norm(matrix))
    return float(value) - rounding - slack
