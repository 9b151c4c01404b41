"""The Hessian of a linear network's loss: its smallest eigenvalue, and how fast it changes.

With the chains a_j and b_j of `series`, V_j = W_j ... W_1 K and C_ij = W_{j-1} ... W_{i+1}, the
Hessian has two parts. The curvature phi'' of the loss gives J^T phi'' J >= 0, where the derivative
J of the outputs M K with respect to layer j is the tensor product of a_j and V_{j-1}. The gradient
gives, for layers i < j, the tensor product of a_j b_{i-1}^T and C_ij. Up to some hundred weights
its eigenvalues are computed; beyond, the first part is left out and the second has

    lambda_min >= -lambda_max of the symmetric matrix of |a_j b_{i-1}^T| |C_ij|,    i < j,

one row for each layer. Rounding is part of every bound (`chains`, `eigenvalues`).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from thalweg.validated.chains import TINY, Chains, Layers, Square, length
from thalweg.validated.defect import NodeNorms, StepNorms, disturbed_images
from thalweg.validated.eigenvalues import householder, proven_lowest
from thalweg.validated.losses import AbstractLossSeries, Reach
from thalweg.validated.norms import constant, disturbed, spectral, times
from thalweg.validated.rounding import SLACK, UNIT


def dense_hessian(chains: Chains, loss: AbstractLossSeries, decay: float) -> Square:
    """The Hessian over all weights, layers in order and each of them by rows."""
    sizes = [layer.size for layer in chains.layers]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    outputs, columns = chains.upper[0].shape[1], loss.images.shape[1]
    derivative = np.concatenate(
        [
            np.einsum("ao,br->orab", above, below).reshape(outputs, columns, -1)
            for above, below in zip(chains.upper[1:], chains.images, strict=True)
        ],
        axis=2,
    )
    rows = loss.rooted(chains.upper[0].T, derivative).reshape(-1, ends[-1])
    matrix = rows.T @ rows
    for (i, j), between in chains.middle.items():
        cross = chains.upper[j + 1] @ chains.lower[i].T
        block = np.einsum("ad,bc->abcd", cross, between).reshape(sizes[j], sizes[i])
        matrix[ends[j] : ends[j + 1], ends[i] : ends[i + 1]] += block
        matrix[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] += block.T
    matrix[np.diag_indices_from(matrix)] += decay
    return matrix


def dense_bound(
    layers: Layers, readout: np.ndarray, loss: AbstractLossSeries, decay: float
) -> float:
    """A lower bound on the smallest eigenvalue, from the whole matrix."""
    chains = Chains(layers, readout, loss)
    return proven_lowest(dense_hessian(chains, loss, decay), dense_error(chains, decay))


def dense_error(chains: Chains, decay: float) -> float:
    """How far `dense_hessian` may be off: as its factors are, and by putting them together."""
    errors, outputs = chains.errors, chains.upper[0].shape[1]
    size, unit = errors.derivative[0], (outputs + 8) * UNIT
    root = errors.curvature**0.5 * size * 1.01
    rows = outputs * chains.images[0].shape[1]
    definite = 2 * root * 3 * unit * root + (rows + 2) * UNIT * 1.01 * 3 * root**2
    indefinite = 2 * unit * length(errors.pairs[0] * errors.middle[0])
    total = errors.definite + errors.indefinite + definite + indefinite
    return (total + 2 * UNIT * abs(decay)) * SLACK


def norm_bound(
    layers: Layers, readout: np.ndarray, loss: AbstractLossSeries, decay: float
) -> float:
    """A lower bound on the smallest eigenvalue, from the norms of the blocks."""
    chains = Chains(layers, readout, loss)
    errors, depth = chains.errors, len(layers)
    sizes, off = errors.pairs
    triangles = [
        [np.asarray(np.linalg.qr(each, mode="r")) for each in kind]
        for kind in (chains.upper[1:], chains.lower)
    ]
    blocks = np.zeros((depth, depth))
    for (i, j), between in chains.middle.items():
        above, below = chains.upper[j + 1], chains.lower[i]
        # |a b^T| from the thin factors' triangles, each within so much of an exact one.
        thin = triangles[0][j] @ triangles[1][i].T
        made = householder(*above.shape) + householder(*below.shape) + 64 * UNIT
        size = float(spectral(thin)) + (made * sizes[i, j] + off[i, j])
        apart = 1.0 if j == i + 1 else float(spectral(between)) + errors.middle[1][i, j] + TINY
        blocks[i, j] = blocks[j, i] = size * apart * SLACK
    return (decay + proven_lowest(-blocks)) - 2 * UNIT * abs(decay)


def bending(step: StepNorms, dense: bool) -> float:
    """What |d^2 H / dx^2| is at most on the step, x = time / length.

    Where eigenvalues are bounded by the second part alone, so is the bending. It is that of the
    Hessian with the polynomial in the place of the gradient; the true one differs from it by no
    more than `StepNorms.unknown` times the second derivative of the outputs (`Change.unknown`).
    """
    depth = step.upper.shape[0] - 1
    blocks = np.zeros((depth, depth))
    if dense:
        first = times(step.upper[1:], step.images[:-1])
        both = times(first[:, None], first[None])
        blocks += times(step.curvature[None, None], both)[..., 2]
    for i in range(depth):
        for j in range(i + 1, depth):
            cross = times(times(step.upper[j + 1], step.lower[i]), step.intervals[i + 1, j])[2]
            blocks[i, j] += cross
            blocks[j, i] += cross
    return float(np.linalg.eigvalsh(blocks)[-1]) * (1 + 1e-9)


class Change(NamedTuple):
    """How the Hessian changes near a step.

    Attributes:
        lipschitz: what |D^3 f| is at most.
        unknown: how far the Hessian is from the one whose bending is known, at most.
    """

    lipschitz: float
    unknown: float


def change(node: NodeNorms, step: StepNorms, loss: AbstractLossSeries, ball: float) -> Change:
    """What |D^3 f| is at most within this distance of the curve.

        |D^3 f| <= t c1 d1^2 + 3 |phi''| d1 d2 + |phi'| d3,

    with d1, d2 and d3 bounding the derivatives of the outputs M K, c1 the first derivative of those
    of any one sample, and t the third derivative of the loss (`third`).
    """
    away = constant(step.moved[:, 0] + ball)
    partial = disturbed(node.intervals, away)[..., 0]
    below = disturbed_images(node.images, node.intervals, away)[:, 0]
    columns = disturbed_images(node.columns, node.intervals, away)[:, 0]
    depth = below.size - 1
    above = node.chain.copy()
    for j in range(depth - 1, -1, -1):
        above[j] += sum(
            node.intervals[j, k - 1] * away[k - 1, 0] * above[k] for k in range(j + 1, depth + 1)
        )
    d1, d2, d3 = product_derivatives(above, partial, below)
    c1 = float(np.linalg.norm(above[1:] * columns[:-1]))
    far = step.travelled + ball
    reach = Reach(d1 * far, c1 * far)
    curved = loss.third(reach) * c1 * d1**2 + 3 * loss.second(reach) * d1 * d2
    return Change((curved + loss.steepest(reach) * d3) * (1 + 1e-9), step.unknown * d2)


def product_derivatives(
    above: Float[np.ndarray, " _"],
    partial: Float[np.ndarray, "_ _"],
    below: Float[np.ndarray, " _"],
) -> tuple[float, float, float]:
    """Bounds on the first three derivatives of M K, from the norms of partial products."""
    depth = below.size - 1
    d1 = float(np.linalg.norm(above[1:] * below[:-1]))
    pairs, triples = np.zeros((depth, depth)), 0.0
    for i in range(depth):
        for j in range(i + 1, depth):
            pairs[i, j] = pairs[j, i] = above[j + 1] * partial[i + 1, j] * below[i]
            beyond = above[j + 2 :] * partial[j + 1, j + 1 : depth]
            triples += 6 * float(np.sum((beyond * partial[i + 1, j] * below[i]) ** 2))
    return d1, float(np.linalg.eigvalsh(pairs)[-1]), triples**0.5
