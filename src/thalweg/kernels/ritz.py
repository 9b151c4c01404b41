"""Both ends of tridiagonal projections in lanes; the formulas are those of `krylov.ritz`.

Four cases lie in the rows of a tile: the smallest and the largest eigenvalue after all Lanczos
steps, and both after three quarters of them.
"""

import numpy as np

from thalweg.kernels.compiling import inlined, part
from thalweg.kernels.tiles import (
    add,
    fma,
    four,
    full,
    larger,
    load,
    load_rows,
    over,
    root,
    row_of,
    size,
    store,
    store_rows,
    subtract,
    times,
    where_less,
)  # fmt: skip

BISECTIONS = 40  # halve the width of the spectrum to 1e-12 of it
_HALVED = 0.5**BISECTIONS
CAUTION = 4.0  # residuals per error
_TINY, _EPSILON = float(np.finfo(float).tiny), float(np.finfo(float).eps)


@part
def ends(x, alphas, betas, steps, scratch, out):
    """Smallest, its error, largest, its error: four rows to `out`.

    `scratch` has twelve rows, and eight more for each step.
    """
    y, earlier = four(x), max(1, 3 * steps // 4)
    low, high = _discs(x, alphas, betas, steps)
    spread = larger(size(low), size(high))
    limits = _cases(x, scratch, float(steps), float(steps), float(earlier), float(earlier))
    numbers = _cases(x, scratch, 1.0, float(steps), 1.0, float(earlier))
    values = _bisected(y, alphas, betas, steps, limits, numbers, low, high)
    shift = (2 * _HALVED + 16 * steps * _EPSILON) * 1.0
    outside = _cases(x, scratch, -shift, shift, -shift, shift)
    moved = fma(outside, spread, values)
    last = _last_components(y, alphas, betas, steps, earlier, limits, moved, scratch)
    here, there = load(x, betas + steps - 1), load(x, betas + earlier - 1)
    rounding = times(full(x, _HALVED + 8 * steps * _EPSILON), spread)
    # Copies of a converged value blur its residual; the earlier one then knows better.
    low_error = _error(
        x, row_of(values, 0), row_of(values, 2),
        times(here, row_of(last, 0)), times(there, row_of(last, 2)), rounding,
    )  # fmt: skip
    high_error = _error(
        x, row_of(values, 1), row_of(values, 3),
        times(here, row_of(last, 1)), times(there, row_of(last, 3)), rounding,
    )  # fmt: skip
    store(x, out, row_of(values, 0))
    store(x, out + 1, low_error)
    store(x, out + 2, row_of(values, 1))
    store(x, out + 3, high_error)


@inlined
def _error(x, value, earlier_value, residual, earlier_residual, rounding):
    change = size(subtract(value, earlier_value))
    other = add(earlier_residual, change)
    least = where_less(other, residual, other, residual)
    return fma(full(x, CAUTION), larger(least, change), rounding)


@inlined
def _cases(x, scratch, first, second, third, fourth):
    """A tile of four rows with a number each."""
    store(x, scratch, full(x, first))
    store(x, scratch + 1, full(x, second))
    store(x, scratch + 2, full(x, third))
    store(x, scratch + 3, full(x, fourth))
    return load_rows(four(x), scratch, 1)


@inlined
def _discs(x, alphas, betas, steps):
    """Between which numbers Gershgorin's discs lie."""
    low, high, radius = full(x, np.inf), full(x, -np.inf), full(x, 0.0)
    for index in range(steps):
        alpha = load(x, alphas + index)
        if index < steps - 1:
            radius = add(radius, load(x, betas + index))
        down, up = subtract(alpha, radius), add(alpha, radius)
        low = where_less(low, down, low, down)
        high = where_less(up, high, high, up)
        radius = load(x, betas + index)
    return low, high


@inlined
def _bisected(y, alphas, betas, steps, limits, numbers, low, high):
    """The eigenvalue of each case: below it fewer than `numbers` pivots are negative."""
    half, zero, one = full(y, 0.5), full(y, 0.0), full(y, 1.0)
    tiny, minus = full(y, _TINY), full(y, -_TINY)
    lower, upper = add(low, zero), add(high, zero)
    for _ in range(BISECTIONS):
        middle = times(half, add(lower, upper))
        pivot = subtract(load(y, alphas), middle)
        count = where_less(pivot, zero, one, zero)
        for index in range(1, steps):
            beta = load(y, betas + index - 1)
            pivot = where_less(size(pivot), tiny, minus, pivot)
            rest = subtract(load(y, alphas + index), middle)
            pivot = subtract(rest, over(times(beta, beta), pivot))
            counted = where_less(full(y, float(index)), limits, one, zero)
            count = add(count, where_less(pivot, zero, counted, zero))
        lower, upper = (
            where_less(count, numbers, middle, lower),
            where_less(count, numbers, upper, middle),
        )
    return times(half, add(lower, upper))


@part
def _last_components(y, alphas, betas, steps, earlier, limits, shift, scratch):
    """|s_m| of the unit eigenvectors, by two inverse iterations just outside of the spectrum."""
    pivots, vector = scratch + 4, scratch + 4 + 4 * steps
    zero, one, tiny = full(y, 0.0), full(y, 1.0), full(y, _TINY)
    pivot = _away_from_zero(subtract(load(y, alphas), shift), tiny)
    store_rows(y, pivots, 1, pivot)
    store_rows(y, vector, 1, one)
    for index in range(1, steps):
        beta = where_less(full(y, float(index)), limits, load(y, betas + index - 1), zero)
        rest = subtract(load(y, alphas + index), shift)
        pivot = _away_from_zero(subtract(rest, over(times(beta, beta), pivot)), tiny)
        store_rows(y, pivots + 4 * index, 1, pivot)
        inside = where_less(full(y, float(index)), limits, one, zero)
        store_rows(y, vector + 4 * index, 1, inside)
    _solve(y, betas, steps, limits, pivots, vector)
    _solve(y, betas, steps, limits, pivots, vector)
    squares = zero
    for index in range(steps):
        number = load_rows(y, vector + 4 * index, 1)
        squares = fma(number, number, squares)
    # The rows of the last step differ from case to case.
    all_last = load_rows(y, vector + 4 * (steps - 1), 1)
    early_last = load_rows(y, vector + 4 * (earlier - 1), 1)
    last = where_less(full(y, steps - 0.5), limits, all_last, early_last)
    return over(size(last), root(squares))


@inlined
def _away_from_zero(pivot, tiny):
    return where_less(size(pivot), tiny, tiny, pivot)


@part
def _solve(y, betas, steps, limits, pivots, vector):
    """(T - shift)^-1 vector, in its place and scaled to a largest entry of one."""
    zero = full(y, 0.0)
    value = load_rows(y, vector, 1)
    for index in range(1, steps):
        beta = where_less(full(y, float(index)), limits, load(y, betas + index - 1), zero)
        factor = over(beta, load_rows(y, pivots + 4 * (index - 1), 1))
        value = subtract(load_rows(y, vector + 4 * index, 1), times(factor, value))
        store_rows(y, vector + 4 * index, 1, value)
    value = over(value, load_rows(y, pivots + 4 * (steps - 1), 1))
    store_rows(y, vector + 4 * (steps - 1), 1, value)
    largest = size(value)
    for index in range(steps - 2, -1, -1):
        beta = where_less(full(y, float(index + 1)), limits, load(y, betas + index), zero)
        rest = subtract(load_rows(y, vector + 4 * index, 1), times(beta, value))
        value = over(rest, load_rows(y, pivots + 4 * index, 1))
        store_rows(y, vector + 4 * index, 1, value)
        largest = larger(largest, size(value))
    scale = over(full(y, 1.0), largest)
    for index in range(steps):
        value = times(scale, load_rows(y, vector + 4 * index, 1))
        store_rows(y, vector + 4 * index, 1, value)
