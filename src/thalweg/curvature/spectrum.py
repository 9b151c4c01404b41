"""The ends of a symmetric operator's spectrum, each with an error: of a Hessian before all.

The largest eigenvalue of a Hessian is the sharpness, which decides where descent is stable; the
smallest says how far from convex the way is, which decides how fast descent leaves the flow. Both
are algebraic: a method that finds the largest modulus finds one of the two, and does not say which.

Small Hessians and matrices are solved densely; of all others only products with vectors are taken.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg._arguments import checked
from thalweg._checks import InputError, require_count, require_positive
from thalweg._typing import AnyWeights
from thalweg.curvature.following import Eigenvalue, Extremes, Known, search_start
from thalweg.curvature.operators import (
    AbstractSymmetricOperator,
    Operator,
    as_operator,
    finite,
    products_of,
    require_symmetric,
)
from thalweg.krylov.extremes import Pairs, extreme_pairs
from thalweg.krylov.space import norm
from thalweg.objective import DENSE_LIMIT

DENSE_SIZE = 700
"""Up to so many rows "auto" is dense: all eigenvalues then cost less than a second."""

_MATVECS = 5000


@checked
def sharpness(
    objective: Operator,
    weights: AnyWeights = None,
    *,
    tolerance: float = 1e-8,
    method: str = "auto",
    start: Known = None,
) -> Eigenvalue:
    """The largest eigenvalue of the Hessian. Arguments as for `extreme_eigenvalues`."""
    return _ends(objective, weights, 1, "largest", tolerance, method, start, _MATVECS).largest[0]


@checked
def smallest_eigenvalue(
    objective: Operator,
    weights: AnyWeights = None,
    *,
    tolerance: float = 1e-8,
    method: str = "auto",
    start: Known = None,
) -> Eigenvalue:
    """The smallest eigenvalue of the Hessian. Arguments as for `extreme_eigenvalues`."""
    return _ends(objective, weights, 1, "smallest", tolerance, method, start, _MATVECS).smallest[0]


@checked
def extreme_eigenvalues(
    objective: Operator,
    weights: AnyWeights = None,
    k: int = 1,
    *,
    tolerance: float = 1e-8,
    method: str = "auto",
    start: Known = None,
    max_matvecs: int = _MATVECS,
) -> Extremes:
    """The k smallest and the k largest eigenvalues of the Hessian; both ends cost one search.

    Args:
        objective: what is differentiated twice; or a symmetric operator by itself: a
            `SymmetricOperator`, SciPy's `LinearOperator`, a matrix.
        weights: where the objective is differentiated; an operator by itself has none.
        k: how many at each end.
        tolerance: the error that is asked for, as a part of the spectral norm.
        method: "dense", "davidson" (only products with vectors), or "auto" by size.
        start: what was found at a nearby point, or at several of a path, the last one last: of
            a smooth path three more than halve the search.
        max_matvecs: after so many products it returns what it has, with `converged` false.
    """
    return _ends(objective, weights, k, "both", tolerance, method, start, max_matvecs)


@checked
def dense_spectrum(objective: Operator, weights: AnyWeights = None) -> Float[Array, " size"]:
    """All eigenvalues of the Hessian, or of an operator, ascending: the last is the sharpness.

    Each is off by at most a few units of rounding of the largest modulus (Weyl).
    """
    operator = as_operator(objective, weights)
    require_symmetric(operator)
    return jnp.linalg.eigvalsh(operator.dense())


def _ends(
    objective: Operator,
    weights: AnyWeights,
    k: int,
    ends: str,
    tolerance: float,
    method: str,
    start: Known,
    max_matvecs: int,
) -> Extremes:
    """Both ends where they come for nothing; else those that are sought, and no others."""
    operator = as_operator(objective, weights)
    k, size = require_count("k", k), operator.size
    require_positive("tolerance", tolerance)
    if k > size:
        raise InputError(f"`k` must be at most the number of eigenvalues, {size}, got {k}.")
    if method not in ("auto", "dense", "davidson"):
        raise InputError(f"`method` must be auto, dense or davidson, got {method!r}.")
    if method == "dense" and size > DENSE_LIMIT:
        raise InputError(
            f"`method` 'dense' must fit in memory: there are {size} rows and the limit is "
            f"{DENSE_LIMIT}; use 'davidson'."
        )
    spent = require_symmetric(operator)
    cheap = operator.cheaply_dense and size <= DENSE_SIZE
    if method == "dense" or (method == "auto" and cheap):
        return _dense(operator, k)
    sides = ("smallest", "largest") if ends == "both" else (ends,)
    rows, hint = search_start(start, sides, size)
    if rows is None and hint is None:
        hint = operator.hint()
    pairs = extreme_pairs(
        products_of(operator),
        size,
        count=k,
        ends=ends,
        tolerance=tolerance,
        start=rows,
        hint=hint,
        max_products=max_matvecs - spent,
    )
    return _extremes(operator, pairs, spent)


def _dense(operator: AbstractSymmetricOperator, k: int) -> Extremes:
    matrix = finite(operator, operator.dense())
    values, vectors = np.linalg.eigh(matrix)
    # Assembling, decomposing and the reader's own check each err by some units of rounding.
    error = 4 * matrix.shape[0] * float(np.finfo(matrix.dtype).eps) * float(np.abs(values).max())

    def pair(place: int) -> Eigenvalue:
        residual = matrix @ vectors[:, place] - values[place] * vectors[:, place]
        proven = error + norm(residual)
        vector = operator.shaped(vectors[:, place])
        return Eigenvalue(float(values[place]), proven, vector, "dense", 0, True)

    last = values.size - 1
    return Extremes(
        tuple(pair(place) for place in range(k)), tuple(pair(last - place) for place in range(k))
    )


def _extremes(operator: AbstractSymmetricOperator, pairs: Pairs, spent: int) -> Extremes:
    matvecs = pairs.products + spent
    make = partial(Eigenvalue, method="davidson", matvecs=matvecs, converged=pairs.converged)

    def end(values: np.ndarray, errors: np.ndarray, vectors: np.ndarray) -> tuple[Eigenvalue, ...]:
        return tuple(
            make(float(value), float(error), vector=operator.shaped(vector))
            for value, error, vector in zip(values, errors, vectors, strict=True)
        )

    return Extremes(
        end(pairs.smallest, pairs.smallest_errors, pairs.smallest_vectors),
        end(pairs.largest, pairs.largest_errors, pairs.largest_vectors),
    )
