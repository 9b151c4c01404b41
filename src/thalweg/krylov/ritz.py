"""Both ends of tridiagonal projections, many side by side, each with an error.

The extreme eigenvalues theta of the projection T of an operator A after m Lanczos steps approach
those of A from inside, and for each there is an eigenvalue of A within

    residual = beta_{m+1} |s_m|,    s the unit eigenvector of T that belongs to theta.

A residual proves that an eigenvalue is near, not that it is the last one; so an error is several
times the residual, and several times what the last quarter of the steps still changed.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from thalweg._bisection import bisected_in_lanes
from thalweg.krylov.lanes import Lanes, Tridiagonal

CaseLanes = Float[Array, "cases lanes"]
_Lanes = Float[Array | np.ndarray, "..."]

_BISECTIONS = 40  # halve the width of the spectrum to 1e-12 of it
_CAUTION = 4.0  # residuals per error, see above


class Ends(eqx.Module):
    """The smallest and the largest eigenvalue of each lane, and how far off each may be."""

    smallest: _Lanes
    smallest_error: _Lanes
    largest: _Lanes
    largest_error: _Lanes


def ends_of(matrix: Tridiagonal) -> Ends:
    """The extreme eigenvalues of the projections, and errors from residuals and last changes.

    Both ends, after all and after three quarters of the steps, are found together: four cases side
    by side take as long as one, because such short loops cost their starts.
    """
    cases = _cases(matrix)
    values = _bisect(matrix, cases)
    residuals = cases.last_beta * _last_components(matrix, cases, values)
    # Bisection, the products and the recurrence each round a few times per step.
    rounding = (2.0**-_BISECTIONS + 8 * matrix.steps * jnp.finfo(values.dtype).eps) * cases.width
    changes = jnp.abs(values[:2] - values[2:])
    # Copies of a converged value blur its residual; the earlier one then knows better.
    residuals = jnp.minimum(residuals[:2], residuals[2:] + changes)
    errors = _CAUTION * jnp.maximum(residuals, changes) + rounding
    return Ends(values[0], errors[0], values[1], errors[1])


class _Cases(eqx.Module):
    """Smallest and largest after all steps, smallest and largest after three quarters of them."""

    steps: Int[Array, "cases 1"]
    outside: Float[Array, "cases 1"]  # -1 for the smallest, 1 for the largest
    last_beta: Float[Array, "cases lanes"]
    low: Lanes
    high: Lanes

    @property
    def width(self) -> Lanes:
        return jnp.maximum(jnp.abs(self.low), jnp.abs(self.high))


def _cases(matrix: Tridiagonal) -> _Cases:
    earlier = jnp.maximum(1, 3 * matrix.steps // 4)
    steps = jnp.stack([matrix.steps, matrix.steps, earlier, earlier])[:, None]
    outside = jnp.asarray([-1.0, 1.0, -1.0, 1.0], matrix.alphas.dtype)[:, None]
    rows = jnp.arange(matrix.alphas.shape[0])[:, None]
    before = jnp.concatenate([jnp.zeros_like(matrix.betas[:1]), matrix.betas[:-1]])
    radius = before + jnp.where(rows == matrix.steps - 1, 0.0, matrix.betas)
    used = rows < matrix.steps
    return _Cases(
        steps,
        outside,
        matrix.betas[steps[:, 0] - 1],
        jnp.min(jnp.where(used, matrix.alphas - radius, jnp.inf), axis=0),
        jnp.max(jnp.where(used, matrix.alphas + radius, -jnp.inf), axis=0),
    )


def _count_below(matrix: Tridiagonal, cases: _Cases, values: CaseLanes) -> CaseLanes:
    """How many eigenvalues lie below each value: the negative pivots of T - value (Sylvester)."""
    tiny = jnp.finfo(values.dtype).tiny

    def pivot(index: Array, carry: tuple[CaseLanes, CaseLanes]) -> tuple[CaseLanes, CaseLanes]:
        last, count = carry
        last = jnp.where(jnp.abs(last) < tiny, -tiny, last)
        this = matrix.alphas[index] - values - matrix.betas[index - 1] ** 2 / last
        return this, count + jnp.where((this < 0) & (index < cases.steps), 1.0, 0.0)

    first = matrix.alphas[0] - values
    start = (first, jnp.where(first < 0, 1.0, 0.0).astype(values.dtype))
    return jax.lax.fori_loop(1, matrix.steps, pivot, start)[1]


def _bisect(matrix: Tridiagonal, cases: _Cases) -> CaseLanes:
    """The extreme eigenvalue of each case, between the ends of Gershgorin's discs."""
    number = jnp.where(cases.outside < 0, 1, cases.steps)

    def is_below(values: CaseLanes) -> Bool[Array, "..."]:
        return _count_below(matrix, cases, values) < number

    shape = cases.last_beta.shape
    ends = (jnp.broadcast_to(cases.low, shape), jnp.broadcast_to(cases.high, shape))
    low, high = bisected_in_lanes(is_below, *ends, halvings=_BISECTIONS)
    return (low + high) / 2


def _last_components(matrix: Tridiagonal, cases: _Cases, values: CaseLanes) -> CaseLanes:
    """|s_m| of the unit eigenvectors that belong to the extreme eigenvalues, by inverse iteration.

    The shift lies just outside of the spectrum, so that T - shift is definite and elimination is
    stable without pivoting; two iterations are exact to rounding.
    """
    margin = 2 * 2.0**-_BISECTIONS + 16 * matrix.steps * jnp.finfo(values.dtype).eps
    shift = values + cases.outside * margin * cases.width
    rows = jnp.arange(matrix.alphas.shape[0])[:, None, None]
    alive = rows < cases.steps
    ones = jnp.ones((*matrix.alphas.shape[:1], *values.shape), values.dtype)
    vector = jnp.where(alive, ones, 0.0)
    for _ in range(2):
        vector = jnp.where(alive, _solve(matrix, cases, shift, vector), 0.0)
        vector = vector / jnp.max(jnp.abs(vector), axis=0)
    last = jnp.sum(jnp.where(rows == cases.steps - 1, vector, 0.0), axis=0)
    return jnp.abs(last) / jnp.sqrt(jnp.sum(vector**2, axis=0))


def _solve(
    matrix: Tridiagonal, cases: _Cases, shift: CaseLanes, right: Float[Array, "rows cases lanes"]
) -> Float[Array, "rows cases lanes"]:
    """(T - shift)^-1 right by elimination, with T cut off after each case's steps."""
    tiny = jnp.finfo(right.dtype).tiny

    def away_from_zero(pivot: CaseLanes) -> CaseLanes:
        return jnp.where(jnp.abs(pivot) < tiny, tiny, pivot)

    def beta(index: Array) -> CaseLanes:  # between row index and the next
        return jnp.where(index + 1 < cases.steps, matrix.betas[index], 0.0)

    def forward(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        pivots, values = carry
        factor = beta(index - 1) / pivots[index - 1]
        pivot = away_from_zero(matrix.alphas[index] - shift - factor * beta(index - 1))
        value = values[index] - factor * values[index - 1]
        return pivots.at[index].set(pivot), values.at[index].set(value)

    first = right.at[0].set(away_from_zero(matrix.alphas[0] - shift))
    pivots, values = jax.lax.fori_loop(1, matrix.steps, forward, (first, right))
    last = matrix.steps - 1

    def backward(count: Array, solution: Array) -> Array:
        index = last - 1 - count
        value = (values[index] - beta(index) * solution[index + 1]) / pivots[index]
        return solution.at[index].set(value)

    return jax.lax.fori_loop(0, last, backward, values.at[last].divide(pivots[last]))
