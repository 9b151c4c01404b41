"""Norms of partial products along a step, with their first two derivatives.

A polynomial with coefficients that are not negative majorises a curve of matrices if its
coefficients are at least their norms. On 0 <= x <= 1 such a curve, and its derivatives, are then
bounded by the polynomial and its derivatives at x = 1. These three numbers are a *jet*; sums and
products of jets majorise sums and products of curves.

Let P_ij be the spectral norm of W_j ... W_{i+1} at the beginning of the step (one if i = j), and
rho_k the jet of W_k less its constant. Sorted by the first layer from above that is not at the
beginning, the partial products have the jets

    T_ij = P_ij + sum over i < k <= j of P_kj rho_k T_i,k-1.

A partial product that is computed layer by layer, from the i-th on, is off: what is rounded at the
k-th layer, at most (w + 2) u |W_k| |W_{k-1} ... W_{i+1}| in Frobenius norms with w columns, is
carried on by the layers after it. With E_ij the sum over i + 1 < k <= j of that times P_kj,

    P_ij <= |the computed product| + E_ij.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from thalweg.validated.rounding import SLACK, UNIT, computed_norm, product_error

Jet = Float[np.ndarray, "... 3"]
Layers = Sequence[Float[np.ndarray, "_ _"]]

_SMALL = 16  # rows and columns up to which singular values are found from the matrix itself


def jet(coefficients: Float[np.ndarray, "... _"]) -> Jet:
    """The value and the first two derivatives, at one, of polynomials."""
    order = np.arange(coefficients.shape[-1])
    return np.stack(
        [
            np.add.reduce(coefficients * weight, axis=-1)
            for weight in (1.0, order, order * (order - 1))
        ],
        axis=-1,
    )


def times(left: Jet, right: Jet) -> Jet:
    """The jet of a product."""
    a, da, dda = left[..., 0], left[..., 1], left[..., 2]
    b, db, ddb = right[..., 0], right[..., 1], right[..., 2]
    product = np.empty(np.broadcast(left, right).shape)
    product[..., 0] = a * b
    product[..., 1] = da * b + a * db
    product[..., 2] = dda * b + 2 * da * db + a * ddb
    return product


def constant(value: Float[np.ndarray, "..."]) -> Jet:
    """The jet of something that does not move."""
    value = np.asarray(value, float)
    return np.stack([value, np.zeros_like(value), np.zeros_like(value)], axis=-1)


def spectral(matrices: Float[np.ndarray, "... _ _"]) -> Float[np.ndarray, "..."]:
    """Upper bounds on the largest singular values."""
    matrices = np.asarray(matrices)
    if min(matrices.shape[-2:]) == 1:
        return np.asarray(np.sqrt(np.add.reduce(matrices**2, axis=(-2, -1))) * SLACK)
    if max(matrices.shape[-2:]) > _SMALL:
        turned = np.swapaxes(matrices, -1, -2)
        small = matrices @ turned if matrices.shape[-2] < matrices.shape[-1] else turned @ matrices
        top = np.linalg.eigvalsh(small)[..., -1]
        # The products in the entries, and LAPACK's backward error.
        n, terms = small.shape[-1], max(matrices.shape[-2:])
        rounding = n * (16 * n + 2 * terms) * UNIT * np.abs(small).max(axis=(-2, -1))
        return np.asarray(np.sqrt(np.maximum(top, 0) + rounding) * SLACK)
    return np.asarray(np.linalg.svd(matrices, compute_uv=False)[..., 0] * SLACK)


def frobenius(matrix: Float[np.ndarray, "_ _"]) -> float:
    """An upper bound on the Frobenius norm, which is cheaper than the largest singular value."""
    return computed_norm(matrix) * SLACK


def interval_norms(layers: Layers) -> Float[np.ndarray, "_ _"]:
    """P_ij at (i, j), at most: the norms of all partial products; zero where j < i."""
    depth = len(layers)
    norms = np.eye(depth + 1)
    sizes = [product_error(layer.shape[1]) * frobenius(layer) for layer in layers]
    for i in range(depth - 1, -1, -1):
        products = [layers[i]]
        for layer in layers[i + 1 :]:
            products.append(layer @ products[-1])
        made = [a * frobenius(x) for a, x in zip(sizes[i + 1 :], products, strict=False)]
        for j, size in enumerate(_spectral_each(products), i + 1):
            # E_ij: what goes wrong is carried on by partial products that are known by now.
            error = norms[i + 2 : j + 1, j] @ made[: j - i - 1] * SLACK if j > i + 1 else 0.0
            norms[i, j] = size + error
    return norms


def _spectral_each(matrices: Layers) -> Float[np.ndarray, " _"]:
    """`spectral` of matrices of any shapes, the small ones of a shape at once."""
    found = np.empty(len(matrices))
    for shape in {matrix.shape for matrix in matrices}:
        places = [j for j, matrix in enumerate(matrices) if matrix.shape == shape]
        if max(shape) > _SMALL:
            found[places] = [spectral(matrices[j]) for j in places]
        else:
            found[places] = spectral(np.stack([matrices[j] for j in places]))
    return found


def ascending_errors(
    partial: Float[np.ndarray, "_ _"], layers: Layers, chain: Sequence[np.ndarray]
) -> Float[np.ndarray, " _"]:
    """What x_0, x_1 = W_1 x_0, ... are off by, as computed, where x_0 is exact: Frobenius norms."""
    used = layers[: len(chain) - 1]
    sizes = [product_error(w.shape[1]) * frobenius(w) for w in used]
    made = np.array([a * frobenius(x) for a, x in zip(sizes, chain, strict=False)])
    return partial[1 : len(chain), : len(chain)].T @ made * SLACK


def descending_errors(
    partial: Float[np.ndarray, "_ _"], layers: Layers, chain: Sequence[np.ndarray]
) -> Float[np.ndarray, " _"]:
    """The same of x_0, ..., x_{N-1} = W_N^T x_N, x_N, where x_N is exact."""
    sizes = [product_error(w.shape[0]) * frobenius(w) for w in layers]
    made = np.array([a * frobenius(x) for a, x in zip(sizes, chain[1:], strict=True)])
    return partial[:, :-1] @ made * SLACK


def disturbed(norms: Float[np.ndarray, "_ _"], moved: Jet) -> Jet:
    """T_ij for layers that move by these jets, one per layer."""
    depth = norms.shape[0] - 1
    found = constant(norms)
    for j in range(1, depth + 1):
        for k in range(1, j + 1):
            # All i < k at once: W_k moves, what is above it stands, what is below moves, too.
            below = times(moved[k - 1], found[:k, k - 1])
            found[:k, j] += norms[k, j] * below
    return found
