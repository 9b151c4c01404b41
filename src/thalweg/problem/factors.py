"""Triangular factors of samples, which lose no more than rounding the samples would.

With n samples X and targets Y, orthogonal rotations of the rows turn

    [X Y] / sqrt(n)    into    [F G]        F^T F = X^T X / n = Sigma,
                               [0 H]

and so mean_i |M x_i - y_i|^2 into |M F^T - G^T|^2 + |H|^2. The rotations (Householder's) are exact
for samples that differ by a few units in the last place of the norm of each column, whatever the
condition number of X.

Where X has full rank the first term is the excess over the minimum. Where it has not, as the
singular values of F with its columns scaled to norm one tell, T is the projection of G on the range
of F, and the rest of G joins H; else T = G. Then M* F^T = T^T for the minimisers M*.

T, and with it the minimum, is as ill-conditioned as X. Let X be of full column rank, and the
samples off by E = X' - X and e = Y' - Y, of norms at most u times those of each column, so that
columns scaled to norm one are off by v = u sqrt(features) in all. Let sigma be their least singular
value. The solution has at most the norm |Y| / sigma in scaled columns. Its residual on the samples
that are factorised is at least |H|; so the root of the true minimum is at least

    |H| - u |Y| - v |Y| / (sigma - v).

The fitted values X M* move by at most u |Y| + v (|M*| + |residual| / sigma) to first order, which
is less than u |Y| + 2 v |Y| / (sigma - v), the `fit_error`. Where there are no more samples than
features, and these are independent, all of Y is fitted.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg._checks import is_traced
from thalweg.problem.base import units


class Factors(NamedTuple):
    """What is kept of samples, as arrays of NumPy, or of JAX where the samples are traced.

    Attributes:
        inputs: F.
        fitted: T.
        minimiser: the least-squares solution of least norm, outputs x features.
        minimum: of mean_i |M x_i - y_i|^2.
        fit_error: how far T and the root of the minimum may be off; infinite without full rank.
        spectrum: the eigenvalues of Sigma, ascending.
    """

    inputs: Any
    fitted: Any
    minimiser: Any
    minimum: Any
    fit_error: Any
    spectrum: Any


def factorise(x: Float[Array, "samples features"], y: Float[Array, "samples outputs"]) -> Factors:
    """The factors of samples and targets, in double precision where nothing is traced."""
    traced = is_traced(x) or is_traced(y)
    xp: Any = jnp if traced else np
    both = xp.concatenate([x, y], axis=1)
    both = both if traced else both.astype(float)
    count, features = x.shape
    triangle, rank = xp.linalg.qr(both, mode="r") / count**0.5, min(count, features)
    inputs, reached = triangle[:rank, :features], triangle[:rank, features:]
    unit, rest = units(both.dtype), xp.sum(triangle[rank:, features:] ** 2)

    # Scaled, so that the rank does not depend on the units of the features.
    norms = xp.sqrt(xp.sum(inputs**2, axis=0))
    norms = xp.where(norms > 0, norms, 1)
    left, values, right = xp.linalg.svd(inputs / norms, full_matrices=False)
    kept = values > unit
    shares = xp.where(kept[:, None], left.T @ reached, 0)
    fitted = xp.where(xp.all(kept), reached, left @ shares)
    minimum = rest + xp.sum((reached - fitted) ** 2)

    # Where the solution is unique the scaled columns know it best.
    unique = xp.all(kept) & (count >= features)
    solution = right.T @ (shares / xp.where(kept, values, 1)[:, None]) / norms[:, None]
    shortest, spectrum = _of_least_norm(xp, inputs, fitted, xp.sum(kept))
    size = xp.sqrt(xp.sum(reached**2) + rest)
    sigma = values[-1] - unit * features**0.5
    moved = 2 * features**0.5 if count > features else 0  # with few samples all is fitted
    amplified = 1 + moved / xp.where(sigma > 0, sigma, 1)
    fit_error = xp.where(sigma > 0, unit * size * amplified, xp.inf)
    solution = xp.where(unique, solution, shortest)
    return Factors(inputs, fitted, solution.T, minimum, fit_error, spectrum)


def _of_least_norm(xp: Any, inputs: Any, fitted: Any, rank: Any) -> tuple[Any, Any]:
    """The shortest solution of inputs @ solution = fitted, and the eigenvalues of the moment."""
    left, values, right = xp.linalg.svd(inputs, full_matrices=False)
    missing = inputs.shape[1] - values.size
    spectrum = xp.concatenate([xp.zeros(missing, values.dtype), values[::-1] ** 2])
    counted = (xp.arange(values.size) < rank) & (values > 0)
    shares = (left.T @ fitted) / xp.where(counted, values, 1)[:, None]
    return right.T @ xp.where(counted[:, None], shares, 0), spectrum
