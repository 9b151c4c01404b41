"""The eigenvalues of the Hessian, all of them, for networks small enough to hold it."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from thalweg._typing import Weights
from thalweg.objective import Objective


def dense_spectrum(objective: Objective, weights: Weights) -> Float[Array, " size"]:
    """All eigenvalues of the Hessian, ascending: the last one is the sharpness.

    Each is off by at most a few units of rounding of the largest modulus (Weyl).
    """
    return jnp.linalg.eigvalsh(objective.hessian(weights))
