"""Products of small matrices in lanes, a tile at a time.

Matrices lie row by row, and every number of theirs is a row of lanes (`tiles`). Sums go through
their terms in order, whatever the size of the tiles.
"""

from thalweg.kernels.compiling import inlined, part
from thalweg.kernels.tiles import add, fma, four, full, load, load_rows, row_of, store_rows, times


@part
def multiply(x, out, a, w, rows, inner, columns):
    """A W, for A with `rows` x `inner` numbers and W with `inner` x `columns`."""
    for _ in range(rows):
        column = 0
        while column + 4 <= columns:
            _columns(four(x), out + column, a, w + column, inner, columns)
            column += 4
        while column < columns:
            _columns(x, out + column, a, w + column, inner, columns)
            column += 1
        out, a = out + columns, a + inner


@part
def _columns(x, out, a, w, inner, columns):
    """Some columns of one row of the product."""
    total = times(load(x, a), load_rows(x, w, 1))
    for k in range(1, inner):
        total = fma(load(x, a + k), load_rows(x, w + k * columns, 1), total)
    store_rows(x, out, 1, total)


@part
def multiply_both(x, out, a, w, c, v, rows, inner, columns):
    """A W + C V, for matrices as those of `multiply`."""
    for _ in range(rows):
        column = 0
        while column + 4 <= columns:
            _both_columns(four(x), out + column, a, w + column, c, v + column, inner, columns)
            column += 4
        while column < columns:
            _both_columns(x, out + column, a, w + column, c, v + column, inner, columns)
            column += 1
        out, a, c = out + columns, a + inner, c + inner


@part
def _both_columns(x, out, a, w, c, v, inner, columns):
    left = times(load(x, a), load_rows(x, w, 1))
    right = times(load(x, c), load_rows(x, v, 1))
    for k in range(1, inner):
        left = fma(load(x, a + k), load_rows(x, w + k * columns, 1), left)
        right = fma(load(x, c + k), load_rows(x, v + k * columns, 1), right)
    store_rows(x, out, 1, add(left, right))


@part
def multiply_back(x, out, b, w, rows, inner, columns):
    """B W^T, for B with `rows` x `columns` numbers and W with `inner` x `columns`."""
    for _ in range(rows):
        i = 0
        while i + 4 <= inner:
            _back(four(x), out + i, b, w + i * columns, columns)
            i += 4
        while i < inner:
            _back(x, out + i, b, w + i * columns, columns)
            i += 1
        out, b = out + inner, b + columns


@part
def _back(x, out, b, w, columns):
    total = times(load(x, b), load_rows(x, w, columns))
    for k in range(1, columns):
        total = fma(load(x, b + k), load_rows(x, w + k, columns), total)
    store_rows(x, out, 1, total)


@part
def multiply_both_back(x, out, b, w, c, v, rows, inner, columns):
    """B W^T + C V^T, for matrices as those of `multiply_back`."""
    for _ in range(rows):
        i = 0
        while i + 4 <= inner:
            _both_back(four(x), out + i, b, w + i * columns, c, v + i * columns, columns)
            i += 4
        while i < inner:
            _both_back(x, out + i, b, w + i * columns, c, v + i * columns, columns)
            i += 1
        out, b, c = out + inner, b + columns, c + columns


@part
def _both_back(x, out, b, w, c, v, columns):
    left = times(load(x, b), load_rows(x, w, columns))
    right = times(load(x, c), load_rows(x, v, columns))
    for k in range(1, columns):
        left = fma(load(x, b + k), load_rows(x, w + k, columns), left)
        right = fma(load(x, c + k), load_rows(x, v + k, columns), right)
    store_rows(x, out, 1, add(left, right))


@inlined
def outer(x, a, b, rows, inner, columns):
    """Some numbers of a column of A^T B, for A with `rows` x `inner` numbers and B with `columns`.

    They begin where `a` and `b` point to in the first rows of A and B.
    """
    total = times(load_rows(x, a, 1), load(x, b))
    for row in range(1, rows):
        total = fma(load_rows(x, a + row * inner, 1), load(x, b + row * columns), total)
    return total


@part
def dot(x, a, b, count):
    """The sum of the products of so many numbers, in four sums that do not wait for each other."""
    sums, rest, k = full(four(x), 0.0), full(x, 0.0), 0
    while k + 4 <= count:
        sums = fma(load_rows(four(x), a + k, 1), load_rows(four(x), b + k, 1), sums)
        k += 4
    while k < count:
        rest = fma(load(x, a + k), load(x, b + k), rest)
        k += 1
    pairs = add(add(row_of(sums, 0), row_of(sums, 1)), add(row_of(sums, 2), row_of(sums, 3)))
    return add(pairs, rest)
