"""Array aliases that every module shares."""

from typing import TypeAlias

from jaxtyping import Array, Float

Scalar: TypeAlias = Float[Array, ""]
Matrix: TypeAlias = Float[Array, "rows columns"]
Weights: TypeAlias = tuple[Float[Array, "..."], ...]
"""A network's trained arrays, first layer first: a plain tuple, hence a pytree."""
