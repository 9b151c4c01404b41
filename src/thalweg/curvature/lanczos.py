"""Both ends of the Hessian's spectrum for many small networks at once.

Networks lie side by side along the last axis (lanes) and take the same number m of Lanczos steps,

    beta_{j+1} v_{j+1} = H v_j - alpha_j v_j - beta_j v_{j-1},

each from a random start. The extreme eigenvalues theta of the tridiagonal matrix T of the alphas
and betas approach those of H from inside, and for each there is an eigenvalue of H within

    residual = beta_{m+1} |s_m|,    s the unit eigenvector of T that belongs to theta.

A residual proves that an eigenvalue is near, not that it is the last one; so an error is several
times the residual, and several times what the last quarter of the steps still changed.

Without re-orthogonalisation the v_j lose their orthogonality once an end has converged. That makes
copies of values that are already there, none outside of the spectrum, and leaves the residual true
to rounding [paige1980]; so nothing has to be stored, and the cost is that of m Hessian products.

[paige1980] C. C. Paige, "Accuracy and effectiveness of the Lanczos algorithm for the symmetric
    eigenproblem", Linear Algebra and its Applications 34, 1980.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thalweg._typing import Weights
from thalweg.objective import Objective

Lanes = Float[Array, " lanes"]
Rows = Float[Array, "rows lanes"]

_BISECTIONS = 56  # halve an interval of the spectrum's width down to rounding
_CAUTION = 4.0  # residuals per error, see above
_EXHAUSTED = 1e-13  # a beta below this part of the spectrum's width is rounding


class Ends(eqx.Module):
    """The smallest and the largest eigenvalue of each lane, and how far off each may be."""

    smallest: Lanes
    smallest_error: Lanes
    largest: Lanes
    largest_error: Lanes


class Tridiagonal(eqx.Module):
    """Projections after `steps` steps, in arrays with room for more.

    Row j holds alpha_j and the beta that follows it; the last beta belongs to the residual.
    """

    alphas: Rows
    betas: Rows
    steps: Int[Array, ""]

    @property
    def next_beta(self) -> Lanes:
        """The beta that the next step would have begun with."""
        return self.betas[self.steps - 1]

    def after(self, steps: Int[Array, ""]) -> "Tridiagonal":
        """The projections as they were after fewer steps."""
        return Tridiagonal(self.alphas, self.betas, steps)


def ends_in_lanes(
    objective: Objective, weights: Weights, start: Weights, steps: Int[Array, ""], room: int
) -> Ends:
    """Both ends of the spectrum at weights in lanes, after `steps` Lanczos steps from `start`.

    The number of steps is traced, up to `room`, so that one compilation serves all.
    """
    _, product = jax.linearize(
        lambda point: objective.value_and_gradient_in_lanes(point)[1], weights
    )
    return ends_of(project(product, start, steps, room))


def project(
    product: Callable[[Weights], Weights], start: Weights, steps: Int[Array, ""], room: int
) -> Tridiagonal:
    """Lanczos's projection of a symmetric operator on arrays with lanes last."""
    norm = jnp.sqrt(_dot(start, start))
    first = tuple(array / norm for array in start)
    nothing = tuple(jnp.zeros_like(array) for array in first)
    rows = jnp.zeros((room, norm.shape[0]), norm.dtype)

    def step(index: Array, carry: tuple) -> tuple:
        before, here, beta, width, alphas, betas = carry
        image = product(here)
        alpha = _dot(image, here)
        image = _combine((1.0, image), (-alpha, here), (-beta, before))
        beta = jnp.sqrt(_dot(image, image))
        width = jnp.maximum(width, jnp.abs(alpha) + beta)
        alive = beta > _EXHAUSTED * width
        beta = jnp.where(alive, beta, 0.0)
        scale = jnp.where(alive, 1 / jnp.where(alive, beta, 1.0), 0.0)
        # An exhausted space has no direction left: its rows repeat a value inside of the spectrum.
        dead = _dot(here, here) == 0
        alphas = alphas.at[index].set(jnp.where(dead, alphas[0], alpha))
        after = tuple(scale * array for array in image)
        return here, after, beta, width, alphas, betas.at[index].set(beta)

    zero = jnp.zeros_like(norm)
    carry = (nothing, first, zero, zero, rows, rows)
    *_, alphas, betas = jax.lax.fori_loop(0, steps, step, carry)
    return Tridiagonal(alphas, betas, steps)


def ends_of(matrix: Tridiagonal) -> Ends:
    """The extreme eigenvalues of the projections, and errors from residuals and last changes."""
    low, high = _gershgorin(matrix)
    width = jnp.maximum(jnp.abs(low), jnp.abs(high))
    earlier = matrix.after(jnp.maximum(1, 3 * matrix.steps // 4))
    # Bisection, the products and the recurrence each round a few times per step.
    rounding = 8 * matrix.steps * jnp.finfo(width.dtype).eps * width
    found = []
    for outside in (-1.0, 1.0):
        value, residual = _end(matrix, low, high, width, outside)
        before, residual_before = _end(earlier, low, high, width, outside)
        change = jnp.abs(value - before)
        # Copies of a converged value blur its residual; the earlier one then knows better.
        residual = jnp.minimum(residual, residual_before + change)
        found += [value, _CAUTION * jnp.maximum(residual, change) + rounding]
    return Ends(*found)


def _end(
    matrix: Tridiagonal, low: Lanes, high: Lanes, width: Lanes, outside: float
) -> tuple[Lanes, Lanes]:
    """The smallest (outside = -1) or largest (1) eigenvalue, and its residual."""
    value = _bisect(matrix, low, high, 1 if outside < 0 else matrix.steps)
    return value, matrix.next_beta * _last_component(matrix, value, width, outside)


def _gershgorin(matrix: Tridiagonal) -> tuple[Lanes, Lanes]:
    rows = jnp.arange(matrix.alphas.shape[0])[:, None]
    used, last = rows < matrix.steps, rows == matrix.steps - 1
    after = jnp.where(last, 0.0, matrix.betas)
    before = jnp.concatenate([jnp.zeros_like(after[:1]), matrix.betas[:-1]])
    radius = before + after
    return (
        jnp.min(jnp.where(used, matrix.alphas - radius, jnp.inf), axis=0),
        jnp.max(jnp.where(used, matrix.alphas + radius, -jnp.inf), axis=0),
    )


def _count_below(matrix: Tridiagonal, value: Lanes) -> Lanes:
    """How many eigenvalues lie below the value: the negative pivots of T - value (Sylvester)."""
    tiny = jnp.finfo(value.dtype).tiny

    def pivot(index: Array, carry: tuple[Lanes, Lanes]) -> tuple[Lanes, Lanes]:
        last, count = carry
        last = jnp.where(jnp.abs(last) < tiny, -tiny, last)
        this = matrix.alphas[index] - value - matrix.betas[index - 1] ** 2 / last
        return this, count + (this < 0)

    first = matrix.alphas[0] - value
    start = (first, jnp.where(first < 0, 1.0, 0.0).astype(value.dtype))
    return jax.lax.fori_loop(1, matrix.steps, pivot, start)[1]


def _bisect(matrix: Tridiagonal, low: Lanes, high: Lanes, number: int | Array) -> Lanes:
    """The eigenvalue of the given number, counted from 1 in ascending order."""

    def halve(_: Array, bounds: tuple[Lanes, Lanes]) -> tuple[Lanes, Lanes]:
        low, high = bounds
        middle = (low + high) / 2
        above = _count_below(matrix, middle) >= number
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))
    return (low + high) / 2


def _last_component(matrix: Tridiagonal, value: Lanes, width: Lanes, outside: float) -> Lanes:
    """|s_m| of the unit eigenvector that belongs to an extreme eigenvalue, by inverse iteration.

    The shift lies just outside of the spectrum, so that T - shift is definite and elimination is
    stable without pivoting; two iterations are exact to rounding.
    """
    shift = value + outside * 16 * matrix.steps * jnp.finfo(width.dtype).eps * width
    rows = jnp.arange(matrix.alphas.shape[0])[:, None]
    vector = jnp.where(rows < matrix.steps, jnp.ones_like(matrix.alphas), 0.0)
    for _ in range(2):
        vector = _solve(matrix, shift, vector)
        vector = vector / jnp.max(jnp.abs(vector), axis=0)
    return jnp.abs(vector[matrix.steps - 1]) / jnp.sqrt(jnp.sum(vector**2, axis=0))


def _solve(matrix: Tridiagonal, shift: Lanes, right: Rows) -> Rows:
    """(T - shift)^-1 right by elimination; rows beyond the steps stay as they are."""
    tiny = jnp.finfo(right.dtype).tiny

    def away_from_zero(pivot: Lanes) -> Lanes:
        return jnp.where(jnp.abs(pivot) < tiny, tiny, pivot)

    def forward(index: Array, carry: tuple[Rows, Rows]) -> tuple[Rows, Rows]:
        pivots, values = carry
        beta = matrix.betas[index - 1]
        factor = beta / pivots[index - 1]
        pivot = away_from_zero(matrix.alphas[index] - shift - factor * beta)
        value = values[index] - factor * values[index - 1]
        return pivots.at[index].set(pivot), values.at[index].set(value)

    first = right.at[0].set(away_from_zero(matrix.alphas[0] - shift))
    pivots, values = jax.lax.fori_loop(1, matrix.steps, forward, (first, right))
    last = matrix.steps - 1

    def backward(count: Array, solution: Rows) -> Rows:
        index = last - 1 - count
        value = (values[index] - matrix.betas[index] * solution[index + 1]) / pivots[index]
        return solution.at[index].set(value)

    return jax.lax.fori_loop(0, last, backward, values.at[last].divide(pivots[last]))


def _dot(left: Weights, right: Weights) -> Lanes:
    products = (
        jnp.sum(a * b, axis=tuple(range(a.ndim - 1))) for a, b in zip(left, right, strict=True)
    )
    return sum(products, start=jnp.zeros(left[0].shape[-1], left[0].dtype))


def _combine(*terms: tuple[Array | float, Weights]) -> Weights:
    return tuple(
        sum(
            (scale * arrays[layer] for scale, arrays in terms[1:]), terms[0][0] * terms[0][1][layer]
        )
        for layer in range(len(terms[0][1]))
    )
