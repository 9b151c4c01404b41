"""Products of small matrices in lanes, a tile at a time.

Matrices lie row by row, and every number of theirs is a row of lanes (`tiles`). Sums go through
their terms in order, whatever the size of the tiles.
"""

from thalweg.kernels.compiling import part
from thalweg.kernels.tiles import fma, four, load, load_rows, store_rows, times


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
def outer(x, a, b, i, k, rows, inner, columns):
    """Some numbers of row i of A^T B, from column k on; A has `rows` x `inner`, B `columns`."""
    total = times(load(x, a + i), load_rows(x, b + k, 1))
    for row in range(1, rows):
        left = load(x, a + row * inner + i)
        total = fma(left, load_rows(x, b + row * columns + k, 1), total)
    return total
