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
CaseLanes = Float[Array, "cases lanes"]

_BISECTIONS = 40  # halve the width of the spectrum to 1e-12 of it
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

    def halve(_: Array, bounds: tuple[CaseLanes, CaseLanes]) -> tuple[CaseLanes, CaseLanes]:
        low, high = bounds
        middle = (low + high) / 2
        above = _count_below(matrix, cases, middle) >= number
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    shape = cases.last_beta.shape
    start = (jnp.broadcast_to(cases.low, shape), jnp.broadcast_to(cases.high, shape))
    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, start)
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
