"""The ends of the Hessian's spectrum at a point, each with an error.

The largest eigenvalue is the sharpness, which decides where descent is stable; the smallest says
how far from convex the way is, which decides how fast descent leaves the flow. Both are algebraic:
a method that finds the largest modulus finds one of the two, and does not say which.

Small networks are solved densely; for larger ones only products with vectors are taken.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from thalweg._arguments import checked
from thalweg._checks import InputError, finite_weights, require_count, require_positive
from thalweg._shown import shown
from thalweg._typing import Weights
from thalweg.curvature.forms import linear_hessian
from thalweg.krylov.extremes import Pairs, extreme_pairs
from thalweg.krylov.space import Product
from thalweg.objective import DENSE_LIMIT, Objective

DENSE_SIZE = 700
"""Up to so many weights "auto" is dense: all eigenvalues then cost less than a second."""

_MATVECS = 5000


@shown
class Eigenvalue(NamedTuple):
    """An eigenvalue of a Hessian.

    Attributes:
        value: what was found.
        error: the eigenvalue lies within this of `value`.
        vector: a unit eigenvector, in the shape of the weights.
        method: how it was found, "dense" or "davidson".
        matvecs: how many products of the Hessian with a vector that took; 0 if dense.
        converged: whether `error` is what was asked for.
    """

    value: float
    error: float
    vector: Weights
    method: str
    matvecs: int
    converged: bool


@shown
class Extremes(NamedTuple):
    """Eigenvalues at both ends of the spectrum, outermost first."""

    smallest: tuple[Eigenvalue, ...]
    largest: tuple[Eigenvalue, ...]


Known: TypeAlias = Extremes | Sequence[Extremes] | None


@checked
def sharpness(
    objective: Objective,
    weights: Weights,
    *,
    tolerance: float = 1e-8,
    method: str = "auto",
    start: Known = None,
) -> Eigenvalue:
    """The largest eigenvalue of the Hessian. Arguments as for `extreme_eigenvalues`."""
    return _ends(objective, weights, 1, "largest", tolerance, method, start, _MATVECS).largest[0]


@checked
def smallest_eigenvalue(
    objective: Objective,
    weights: Weights,
    *,
    tolerance: float = 1e-8,
    method: str = "auto",
    start: Known = None,
) -> Eigenvalue:
    """The smallest eigenvalue of the Hessian. Arguments as for `extreme_eigenvalues`."""
    return _ends(objective, weights, 1, "smallest", tolerance, method, start, _MATVECS).smallest[0]


@checked
def extreme_eigenvalues(
    objective: Objective,
    weights: Weights,
    k: int = 1,
    *,
    tolerance: float = 1e-8,
    method: str = "auto",
    start: Known = None,
    max_matvecs: int = _MATVECS,
) -> Extremes:
    """The k smallest and the k largest eigenvalues of the Hessian; both ends cost one search.

    Args:
        objective: what is differentiated twice.
        weights: where.
        k: how many at each end.
        tolerance: the error that is asked for, as a part of the spectral norm.
        method: "dense", "davidson" (only products with vectors), or "auto" by size.
        start: what was found at a nearby point, or at several of a path: three let the next
            eigenvectors be foretold to second order, and more than halve the search.
        max_matvecs: after so many products it returns what it has, with `converged` false.
    """
    return _ends(objective, weights, k, "both", tolerance, method, start, max_matvecs)


def _ends(
    objective: Objective,
    weights: Weights,
    k: int,
    ends: str,
    tolerance: float,
    method: str,
    start: Known,
    max_matvecs: int,
) -> Extremes:
    """Both ends where they come for nothing; else those that are sought, and no others."""
    point = finite_weights(weights)
    k = require_count("k", k)
    require_positive("tolerance", tolerance)
    size = objective.network.size
    if k > size:
        raise InputError(f"`k` must be at most the number of weights, {size}, got {k}.")
    if method not in ("auto", "dense", "davidson"):
        raise InputError(f"`method` must be auto, dense or davidson, got {method!r}.")
    if method == "dense" and size > DENSE_LIMIT:
        raise InputError(
            f"`method` 'dense' must fit in memory: this network has {size} weights and the limit "
            f"is {DENSE_LIMIT}; use 'davidson'."
        )
    if method == "dense" or (method == "auto" and size <= DENSE_SIZE):
        return _dense(objective, point, k)
    return _by_products(objective, point, k, ends, tolerance, start, max_matvecs)


@checked
def dense_spectrum(objective: Objective, weights: Weights) -> Float[Array, " size"]:
    """All eigenvalues of the Hessian, ascending: the last one is the sharpness.

    Each is off by at most a few units of rounding of the largest modulus (Weyl).
    """
    return jnp.linalg.eigvalsh(_hessian(objective, weights))


def hessian_product(objective: Objective, weights: Weights) -> Product:
    """The function v -> H v for long NumPy vectors, layers one after the other."""
    return lambda vector: _finite(_product(objective, weights, jnp.asarray(vector)))


def _finite(found: Array) -> Float[np.ndarray, "..."]:
    array = np.asarray(found)
    if not np.isfinite(array).all():
        raise InputError(
            "The Hessian must be finite, but it overflows at these `weights`; did the run that "
            "they come from diverge?"
        )
    return array


@eqx.filter_jit
def _hessian(objective: Objective, weights: Weights) -> Float[Array, "size size"]:
    """The dense Hessian, in closed form where there is one."""
    if objective.network.linear is not None:
        return linear_hessian(objective, weights)
    return objective.hessian(weights)


def _dense(objective: Objective, weights: Weights, k: int) -> Extremes:
    _, unravel = ravel_pytree(weights)
    matrix = _finite(_hessian(objective, weights))
    values, vectors = np.linalg.eigh(matrix)
    # Assembling, decomposing and the reader's own check each err by some units of rounding.
    error = 4 * matrix.shape[0] * float(np.finfo(matrix.dtype).eps) * float(np.abs(values).max())

    def pair(place: int) -> Eigenvalue:
        residual = matrix @ vectors[:, place] - values[place] * vectors[:, place]
        proven = error + float(np.linalg.norm(residual))
        vector = unravel(jnp.asarray(vectors[:, place]))
        return Eigenvalue(float(values[place]), proven, vector, "dense", 0, True)

    last = values.size - 1
    return Extremes(
        tuple(pair(place) for place in range(k)), tuple(pair(last - place) for place in range(k))
    )


@eqx.filter_jit
def _product(objective: Objective, weights: Weights, direction: Float[Array, " size"]) -> Array:
    _, unravel = ravel_pytree(weights)
    return ravel_pytree(objective.hvp(weights, unravel(direction)))[0]


def _by_products(
    objective: Objective,
    weights: Weights,
    k: int,
    ends: str,
    tolerance: float,
    start: Known,
    max_matvecs: int,
) -> Extremes:
    _, unravel = ravel_pytree(weights)
    points = [start] if isinstance(start, Extremes) else list(start or [])
    sides = ("smallest", "largest") if ends == "both" else (ends,)
    known = [pair for point in reversed(points) for side in sides for pair in getattr(point, side)]
    rows = [np.asarray(ravel_pytree(pair.vector)[0]) for pair in known]
    pairs = extreme_pairs(
        hessian_product(objective, weights),
        objective.network.size,
        count=k,
        ends=ends,
        tolerance=tolerance,
        start=np.stack(rows) if rows else None,
        max_products=max_matvecs,
    )
    return _extremes(pairs, unravel)


def _extremes(pairs: Pairs, unravel: Callable[[Array], Weights]) -> Extremes:
    make = partial(Eigenvalue, method="davidson", matvecs=pairs.products, converged=pairs.converged)

    def end(values: np.ndarray, errors: np.ndarray, vectors: np.ndarray) -> tuple[Eigenvalue, ...]:
        return tuple(
            make(float(value), float(error), vector=unravel(jnp.asarray(vector)))
            for value, error, vector in zip(values, errors, vectors, strict=True)
        )

    return Extremes(
        end(pairs.smallest, pairs.smallest_errors, pairs.smallest_vectors),
        end(pairs.largest, pairs.largest_errors, pairs.largest_vectors),
    )
