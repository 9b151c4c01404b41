"""Symmetric forms in a few variables, from their values: polarisation by least squares.

A symmetric form F of degree r in k variables is known from F(d, ..., d) at enough vectors d. With
the entries F_m of sorted indices m as unknowns, F(d, ..., d) = sum_m c_m d^m F_m, where c_m is the
number of orders of m.
"""

from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product
from math import factorial, prod

import numpy as np
from jaxtyping import Float


@lru_cache
def mixtures(k: int) -> Float[np.ndarray, "m k"]:
    """Unit vectors that tell all symmetric forms of degree 2 and 4 in k <= 4 variables."""
    found = []
    for size in range(1, k + 1):
        for places in combinations(range(k), size):
            for signs in product((1.0, -1.0), repeat=size - 1):
                vector = np.zeros(k)
                vector[list(places)] = (1.0, *signs)
                found.append(vector)
    for i, j in product(range(k), repeat=2):
        if i != j:
            vector = np.zeros(k)
            vector[i], vector[j] = 1.0, 2.0
            found.append(vector)
    vectors = np.stack(found)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def symmetric_form(
    vectors: Float[np.ndarray, "m k"], values: Float[np.ndarray, "m n"], degree: int
) -> np.ndarray:
    """All entries of the form with these values, (k, ..., k, n)."""
    k = vectors.shape[1]
    entries, inverse = _entries(k, degree, vectors.tobytes())
    found = inverse @ values
    form = np.empty((k,) * degree + values.shape[1:])
    for index in np.ndindex((k,) * degree):
        form[index] = found[entries.index(tuple(sorted(index)))]
    return form


@lru_cache
def _entries(k: int, degree: int, vectors: bytes) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """The sorted indices, and what makes their entries of values at these vectors."""
    rows = np.frombuffer(vectors).reshape(-1, k)
    entries = list(combinations_with_replacement(range(k), degree))
    orders = [
        factorial(degree) / prod(factorial(entry.count(i)) for i in range(k)) for entry in entries
    ]
    powers = np.stack([rows[:, list(entry)].prod(axis=1) for entry in entries], axis=1)
    return entries, np.linalg.pinv(powers * np.array(orders))
