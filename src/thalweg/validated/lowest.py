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

**A part of A.** With phi'' = R^T R the definite part is G^T G, G = R J, and for any orthonormal W

    A >= U U^T,    U = G^T W.

In coordinates that are completed by those directions of U that B does not see, B + U U^T is a small
matrix, too. W spans G V for some directions V: then U U^T is A V (V^T A V)^-1 V^T A, Nystroem's
approximation, but nothing is inverted. V begins with what makes B negative. Where B + U U^T is
lowest, A was missed: along a direction x there the Hessian has no more than |G x|^2 - |U^T x|^2
beyond, and as long as that is much, x joins V. The bound is proven whatever was found.

Rounding: factors and bases differ from exact ones by what `chains` and `eigenvalues` say, and every
entry is off by at most a few times the inner dimensions of its products in units of its factors'
norms.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Float, Int

from thalweg.validated.chains import Chains, Layers, Square, length
from thalweg.validated.eigenvalues import backward, householder, proven_lowest
from thalweg.validated.hessian import norm_bound
from thalweg.validated.losses import AbstractLossSeries
from thalweg.validated.rounding import UNIT

Directions = Float[np.ndarray, "_ _"]

_FEW = 8  # directions that are added at a time
_MANY = 72  # that are kept for the next point
_ROUNDS = 10
_MISSED = 0.02  # what the bound may be too low by, as a part of itself
_SOLVED = 300  # rows up to which all eigenvalues are computed


class Lowest(NamedTuple):
    """A lower bound, and the directions that made it."""

    bound: float
    directions: Directions


def indefinite_bound(
    layers: Layers, readout: np.ndarray, loss: AbstractLossSeries, decay: float
) -> float:
    """A lower bound from the smallest eigenvalue of B."""
    small = _Indefinite(Chains(layers, readout, loss))
    return _with_decay(proven_lowest(small.matrix, small.error), decay)


def nystroem_bound(
    layers: Layers, readout: np.ndarray, loss: AbstractLossSeries, decay: float
) -> float:
    """A lower bound from the smallest eigenvalue of B + U U^T, or from norms if that is higher."""
    return nystroem(layers, readout, loss, decay).bound


def nystroem(
    layers: Layers,
    readout: np.ndarray,
    loss: AbstractLossSeries,
    decay: float,
    directions: Directions | None = None,
) -> Lowest:
    """The same, beginning with directions that did well nearby, and with what did well here."""
    small, size = _Indefinite(Chains(layers, readout, loss)), sum(each.size for each in layers)
    if not small.matrix.size:
        return Lowest(_with_decay(0.0, decay), np.zeros((size, 0)))
    if size <= _MANY:
        directions = np.eye(size)
    elif directions is None:
        directions = small.lifted(_lowest_pairs(small.matrix)[1])
    completed, values, low = _tried(small, directions)
    for _ in range(_ROUNDS):
        if values[0] >= 0 or completed.missed(low[:, :1]) <= _MISSED * abs(values[0]):
            break
        directions = np.concatenate([directions, low], axis=1)
        completed, values, low = _tried(small, directions)
    found = proven_lowest(completed.matrix, completed.error, guess=float(values[0]))
    bound = max(_with_decay(found, decay), norm_bound(layers, readout, loss, decay))
    return Lowest(bound, small.most_negative(directions))


def _tried(
    small: "_Indefinite", directions: Directions
) -> tuple["_Completed", Float[np.ndarray, " _"], Directions]:
    """B + U U^T by these directions, where it is lowest, and how low."""
    completed = _Completed(small, directions)
    values, vectors = _lowest_pairs(completed.matrix)
    return completed, values, completed.lifted(vectors[:, values <= values[0] / 2])


class _Indefinite:
    """B in its small space; `matrix` is B there, `coordinates` leads to it, `lifted` back."""

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
    def ends(self) -> Int[np.ndarray, " _"]:
        """Where X and Y of each layer end among all coordinates."""
        return np.cumsum([0, *(a * b for pair in self.sizes for a, b in pair)])

    @cached_property
    def matrix(self) -> Square:
        """B in these coordinates."""
        ends = self.ends
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

    @cached_property
    def off(self) -> float:
        """How far bases are from exact ones, and what a product with them is off by, relatively."""
        rows = max(max(layer.shape) for layer in self.chains.layers)
        outputs = self.chains.upper[0].shape[1]
        return 2 * householder(rows, outputs) + 4 * (rows + outputs + 16) * rows**0.5 * UNIT

    @property
    def error(self) -> float:
        """How far `matrix` may be off."""
        errors = self.chains.errors
        return errors.indefinite + 3 * self.off * length(errors.pairs[0] * errors.middle[0])

    def coordinates(self, directions: Directions) -> Directions:
        """The columns X and Y of directions over all weights, one column each."""
        found = []
        for k, each in enumerate(split(self.chains, directions)):
            found.append(np.einsum("mp,mnk->pnk", self.above[k], each, optimize=True))
            right = np.einsum("mnk,nq->mqk", each, self.below[k], optimize=True)
            found.append(np.einsum("my,mqk->yqk", self.beyond[k], right, optimize=True))
        return np.concatenate([each.reshape(-1, directions.shape[1]) for each in found])

    def lifted(self, coordinates: Directions) -> Directions:
        """Directions over all weights that have these coordinates and nothing else."""
        found, pieces = [], np.split(coordinates, self.ends[1:-1])
        for k, (first, second) in enumerate(self.sizes):
            x, y = (
                piece.reshape(*shape, coordinates.shape[1])
                for piece, shape in zip(pieces[2 * k : 2 * k + 2], (first, second), strict=True)
            )
            each = np.einsum("mp,pnk->mnk", self.above[k], x, optimize=True)
            right = np.einsum("yqk,nq->ynk", y, self.below[k], optimize=True)
            each = each + np.einsum("my,ynk->mnk", self.beyond[k], right, optimize=True)
            found.append(each.reshape(-1, coordinates.shape[1]))
        return np.concatenate(found)

    def most_negative(self, directions: Directions) -> Directions:
        """Those combinations of directions along which B is lowest, if they are many."""
        if directions.shape[1] <= _MANY:
            return directions
        basis = np.linalg.qr(directions)[0]
        seen = self.coordinates(basis)
        return basis @ np.linalg.eigh(seen.T @ (self.matrix @ seen))[1][:, :_MANY]


class _Completed:
    """B + U U^T in completed coordinates, for U = G^T W and W a basis of G V."""

    def __init__(self, small: _Indefinite, directions: Directions):
        self.small, self.chains = small, small.chains
        self.rows = np.linalg.qr(self._moved(directions))[0]
        self.parts = self._pulled_back(self.rows)
        self.seen = small.coordinates(self.parts)
        self.rest, self.triangle = np.linalg.qr(self.parts - small.lifted(self.seen))

    def _moved(self, directions: Directions) -> Directions:
        """G times each of these columns."""
        chains = self.chains
        moved = sum(
            np.einsum("mo,mnk,nc->ock", above, each, below, optimize=True)
            for above, each, below in zip(
                chains.upper[1:], split(chains, directions), chains.images, strict=True
            )
        )
        bent = chains.loss.rooted(chains.upper[0].T, np.asarray(moved))
        return bent.reshape(-1, directions.shape[1])

    def _pulled_back(self, rows: Directions) -> Directions:
        """G^T times each of these columns."""
        chains = self.chains
        shape = (chains.upper[0].shape[1], chains.images[0].shape[1], rows.shape[1])
        bent = chains.loss.rooted_back(chains.upper[0].T, rows.reshape(shape))
        found = [
            np.einsum("mo,ock,nc->mnk", above, bent, below, optimize=True)
            for above, below in zip(chains.upper[1:], chains.images, strict=True)
        ]
        return np.concatenate([each.reshape(-1, rows.shape[1]) for each in found])

    def missed(self, direction: Directions) -> float:
        """What A has along this direction beyond U U^T: no bound is higher by more."""
        whole = float(np.sum(self._moved(direction) ** 2))
        return (whole - float(np.sum((self.parts.T @ direction) ** 2))) / np.sum(direction**2)

    @cached_property
    def matrix(self) -> Square:
        """It; W is divided by what it may be longer than an orthonormal one."""
        tall = np.concatenate([self.seen, self.triangle]) / self._stretch**0.5
        matrix, size = tall @ tall.T, self.seen.shape[0]
        matrix[:size, :size] += self.small.matrix
        return matrix

    def lifted(self, coordinates: Directions) -> Directions:
        """Directions over all weights that have these completed coordinates."""
        size = self.seen.shape[0]
        return self.small.lifted(coordinates[:size]) + self.rest @ coordinates[size:]

    @property
    def _stretch(self) -> float:
        """What |W|^2 is at most."""
        rows, count = self.rows.shape
        off = float(np.linalg.norm(self.rows.T @ self.rows - np.eye(count)))
        return 1 + 1.01 * off + 2 * (rows + 2) * count * UNIT

    @property
    def error(self) -> float:
        """How far `matrix` may be off."""
        errors, size = self.chains.errors, length(self.parts)
        outputs, columns = self.chains.upper[0].shape[1], self.chains.images[0].shape[1]
        weights, count = self.parts.shape
        made = 3 * (outputs + 8) + 3 * (outputs + columns + 8)
        root = errors.curvature**0.5 * errors.derivative[0] * count**0.5
        moved = made * UNIT * root + (self.small.off + backward(weights, count)) * size
        summed = (count + 64) * UNIT * size**2
        return self.small.error + errors.definite + 2.02 * size * moved + moved**2 + summed


def split(chains: Chains, directions: Directions) -> list[Float[np.ndarray, "_ _ _"]]:
    """Columns over all weights as layers, with the columns last."""
    ends = np.cumsum([layer.size for layer in chains.layers])[:-1]
    return [
        each.reshape(*layer.shape, -1)
        for each, layer in zip(np.split(directions, ends), chains.layers, strict=True)
    ]


def _lowest_pairs(matrix: Square) -> tuple[Float[np.ndarray, " _"], Square]:
    """About the lowest eigenvalues and their vectors; nothing that is proven rests on them."""
    if matrix.shape[0] <= _SOLVED:
        values, vectors = np.linalg.eigh(matrix)
        return values[:_FEW], vectors[:, :_FEW]
    how: Any = {"which": "SA", "tol": 1e-2, "ncv": 5 * _FEW, "maxiter": 100}
    start = np.random.default_rng(0).normal(size=matrix.shape[0])
    try:
        values, vectors = scipy.sparse.linalg.eigsh(matrix, k=_FEW, v0=start, **how)
    except scipy.sparse.linalg.ArpackNoConvergence:
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[0, _FEW - 1])
    order = np.argsort(values)
    return values[order], vectors[:, order]


def _with_decay(bound: float, decay: float) -> float:
    """Of all weights; where B sees nothing the eigenvalue is at least zero."""
    return decay + min(bound, 0.0) - 2 * UNIT * abs(decay)
