"""Both ends of the Hessian's spectrum for many small networks at once.

Networks lie side by side along the last axis (lanes) and take the same number m of Lanczos steps,

    beta_{j+1} v_{j+1} = H v_j - alpha_j v_j - beta_j v_{j-1},

each from a random start. The extreme eigenvalues theta of the tridiagonal matrix T of the alphas and
betas approach those of H from inside, and for each there is an eigenvalue of H within

    residual = beta_{m+1} |s_m|,    s the unit eigenvector of T that belongs to theta.

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
from jaxtyping import Array, Float

from thalweg._typing import Weights
from thalweg.objective import Objective

Lanes = Float[Array, " lanes"]
Rows = Float[Array, "rows lanes"]

_BISECTIONS = 56  # halve an interval of the spectrum's width down to rounding
_EXHAUSTED = 1e-13  # a beta below this part of the spectrum's width is rounding


class Ends(eqx.Module):
    """The smallest and the largest eigenvalue of each lane, and how far off each may be."""

    smallest: Lanes
    smallest_error: Lanes
    largest: Lanes
    largest_error: Lanes


class Tridiagonal(eqx.Module):
    """The projections of many matrices, and the next off-diagonal entry of each."""

    diagonal: Rows
    off_diagonal: Float[Array, "rows_less_one lanes"]
    next_off_diagonal: Lanes


def ends_in_lanes(objective: Objective, weights: Weights, start: Weights, steps: int) -> Ends:
    """Both ends of the spectrum at weights in lanes, after `steps` Lanczos steps from `start`."""
    _, product = jax.linearize(
        lambda point: objective.value_and_gradient_in_lanes(point)[1], weights
    )
    return ends_of(project(product, start, steps))


def project(product: Callable[[Weights], Weights], start: Weights, steps: int) -> Tridiagonal:
    """Lanczos's projection of a symmetric operator on arrays with lanes last."""
    norm = jnp.sqrt(_dot(start, start))
    first = tuple(array / norm for array in start)
    nothing = tuple(jnp.zeros_like(array) for array in first)
    lanes = norm.shape[0]
    rows = jnp.zeros((steps, lanes), norm.dtype)

    def step(index: Array, carry: tuple) -> tuple:
        before, here, beta, width, diagonal, off_diagonal = carry
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
        diagonal = diagonal.at[index].set(jnp.where(dead, diagonal[0], alpha))
        after = tuple(scale * array for array in image)
        return here, after, beta, width, diagonal, off_diagonal.at[index].set(beta)

    zero = jnp.zeros_like(norm)
    carry = (nothing, first, zero, zero, rows, rows)
    _, _, beta, _, diagonal, off_diagonal = jax.lax.fori_loop(0, steps, step, carry)
    return Tridiagonal(diagonal, off_diagonal[:-1], beta)


def ends_of(matrix: Tridiagonal) -> Ends:
    """The extreme eigenvalues of the projections, and the errors that their residuals prove."""
    low, high = _gershgorin(matrix)
    width = jnp.maximum(jnp.abs(low), jnp.abs(high))
    smallest = _bisect(matrix, low, high, 1)
    largest = _bisect(matrix, low, high, matrix.diagonal.shape[0])
    # Bisection, the products and the recurrence each round a few times per step.
    rounding = 8 * matrix.diagonal.shape[0] * jnp.finfo(width.dtype).eps * width
    errors = [
        matrix.next_off_diagonal * _last_component(matrix, value, width, outside) + rounding
        for value, outside in ((smallest, -1.0), (largest, 1.0))
    ]
    return Ends(smallest, errors[0], largest, errors[1])


def _gershgorin(matrix: Tridiagonal) -> tuple[Lanes, Lanes]:
    pad = jnp.zeros_like(matrix.diagonal[:1])
    radius = jnp.concatenate([pad, matrix.off_diagonal]) + jnp.concatenate(
        [matrix.off_diagonal, pad]
    )
    return (
        jnp.min(matrix.diagonal - radius, axis=0),
        jnp.max(matrix.diagonal + radius, axis=0),
    )


def _count_below(matrix: Tridiagonal, value: Lanes) -> Lanes:
    """How many eigenvalues lie below the value: the negative pivots of T - value (Sylvester)."""
    squares = jnp.concatenate([jnp.zeros_like(matrix.diagonal[:1]), matrix.off_diagonal**2])
    tiny = jnp.finfo(value.dtype).tiny

    def pivot(index: Array, carry: tuple[Lanes, Lanes]) -> tuple[Lanes, Lanes]:
        last, count = carry
        last = jnp.where(jnp.abs(last) < tiny, -tiny, last)
        this = matrix.diagonal[index] - value - squares[index] / last
        return this, count + (this < 0)

    start = (jnp.ones_like(value), jnp.zeros_like(value))
    return jax.lax.fori_loop(0, matrix.diagonal.shape[0], pivot, start)[1]


def _bisect(matrix: Tridiagonal, low: Lanes, high: Lanes, number: int) -> Lanes:
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
    size = matrix.diagonal.shape[0]
    shift = value + outside * 16 * size * jnp.finfo(width.dtype).eps * width
    vector = jnp.ones_like(matrix.diagonal)
    for _ in range(2):
        vector = _solve(matrix, shift, vector)
        vector = vector / jnp.max(jnp.abs(vector), axis=0)
    return jnp.abs(vector[-1]) / jnp.sqrt(jnp.sum(vector**2, axis=0))


def _solve(matrix: Tridiagonal, shift: Lanes, right: Rows) -> Rows:
    """(T - shift)^-1 right by elimination."""
    size = right.shape[0]
    off = jnp.concatenate([matrix.off_diagonal, jnp.zeros_like(right[:1])])
    tiny = jnp.finfo(right.dtype).tiny

    def forward(index: Array, carry: tuple[Rows, Rows]) -> tuple[Rows, Rows]:
        pivots, values = carry
        factor = off[index - 1] / pivots[index - 1]
        pivot = matrix.diagonal[index] - shift - factor * off[index - 1]
        pivot = jnp.where(jnp.abs(pivot) < tiny, tiny, pivot)
        value = right[index] - factor * values[index - 1]
        return pivots.at[index].set(pivot), values.at[index].set(value)

    first = matrix.diagonal[0] - shift
    first = jnp.where(jnp.abs(first) < tiny, tiny, first)
    pivots, values = jax.lax.fori_loop(1, size, forward, (right.at[0].set(first), right))

    def backward(count: Array, solution: Rows) -> Rows:
        index = size - 2 - count
        value = (values[index] - off[index] * solution[index + 1]) / pivots[index]
        return solution.at[index].set(value)

    last = values.at[-1].set(values[-1] / pivots[-1])
    return jax.lax.fori_loop(0, size - 1, backward, last)


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
