"""Array aliases that every module shares."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Array, Float

Scalar: TypeAlias = Float[Array, ""]
Matrix: TypeAlias = Float[Array, "rows columns"]
Weights: TypeAlias = tuple[Float[Array | np.ndarray, "..."], ...]
"""A network's trained arrays, first layer first: a plain tuple, hence a pytree. Recorded weights
are NumPy arrays and may be given wherever weights are."""
