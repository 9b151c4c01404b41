"""Which library computes: NumPy where JAX traces nothing, so that no small operation is compiled.

XLA takes some twenty milliseconds for an operation on a shape that it has not met, a hundred where
nothing is kept, and a certificate is made of many that are asked for once.

    library, (layers,) = hosted(weights)        # np, or jnp under `jax.jit` and `jax.grad`
    return settled(library.stack([library.linalg.norm(layer) for layer in layers]))
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thalweg._checks import is_array, is_traced, placed

quiet = np.errstate(all="ignore")
"""For functions that are hosted: what is not finite says so itself, as JAX's numbers do."""


def hosted(*values: Any) -> tuple[Any, tuple[Any, ...]]:
    """The library to compute with, and these trees with arrays of that library."""
    if any(is_traced(leaf) for leaf in jax.tree.leaves(values)):
        return jnp, values
    return np, jax.tree.map(lambda leaf: np.asarray(leaf) if is_array(leaf) else leaf, values)


def settled(result: Any) -> Any:
    """A result of either library as JAX's arrays."""
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else placed(leaf), result)


def largest_singular_value(matrix: Any) -> Any:
    """Of a matrix of either library; NaN where it is not finite, which LAPACK refuses."""
    library, (numbers,) = hosted(matrix)
    if library is np and not np.isfinite(numbers).all():
        return np.float64(np.nan)
    if min(numbers.shape) == 1:
        return library.linalg.norm(numbers)
    return library.linalg.svd(numbers, compute_uv=False)[0]
