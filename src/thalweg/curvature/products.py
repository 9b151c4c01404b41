"""Partial products of a linear network's layers, and the sums over pairs that their norms make.

For x -> R W_N ... W_1 x (the readout R is the identity unless given), layer j sees

    before_j = W_{j-1} ... W_1,    after_j = R W_N ... W_{j+1},

so that the end-to-end matrix is after_j W_j before_j for every j. With norms a_1, ..., a_N of the
layers the zero-diagonal matrix of products that leave out two of them,

    C_ij = prod of a_k over k other than i and j,

bounds the second derivative of the product: along layers of norms u_1, ..., u_N with |u| = 1 it is
at most u^T C u <= lambda_max(C) <= (N - 1) (the N - 2 largest norms' product).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg._checks import InputError, placed
from thalweg._host import largest_singular_value, settled
from thalweg._typing import Matrix, Scalar, Weights
from thalweg.network import LinearNetwork
from thalweg.objective import Objective

Norms = Float[Array, " depth"]


def linear_network(objective: Objective, what: str) -> LinearNetwork:
    """The objective's network, which must be linear for what is asked."""
    linear = objective.network.linear
    if linear is None:
        raise InputError(
            f"{what} needs a LinearNetwork, whose second derivative is one of matrix products, got "
            f"{type(objective.network).__name__}."
        )
    return linear


def partial_products(
    network: LinearNetwork, weights: Weights
) -> tuple[tuple[Float[Array, "_ _"], ...], tuple[Float[Array, "_ _"], ...]]:
    """after_1, ..., after_N and before_1, ..., before_N."""
    network.check(weights)
    layers = tuple(jnp.asarray(array) for array in weights)
    eye = jnp.eye(network.widths[-1], dtype=layers[0].dtype)
    after = [eye if network.readout is None else network.readout.T]
    for layer in reversed(layers[1:]):
        after.append(after[-1] @ layer)
    before = [jnp.eye(network.features, dtype=layers[0].dtype)]
    for layer in layers[:-1]:
        before.append(layer @ before[-1])
    return tuple(reversed(after)), tuple(before)


def spectral_norm(matrix: Matrix) -> Scalar:
    """The largest singular value."""
    return settled(largest_singular_value(matrix))


def readout_norm(network: LinearNetwork) -> Scalar:
    """The largest singular value of the readout; one where there is none."""
    return placed(np.ones(())) if network.readout is None else spectral_norm(network.readout)


def largest_product(norms: Norms, count: int) -> Scalar:
    """The product of the `count` largest norms; one if there are none to take."""
    return jnp.prod(jnp.sort(norms)[norms.shape[0] - max(count, 0) :])


def products_without_one(norms: Norms) -> Norms:
    """For each layer the product of the other layers' norms, also where some are zero."""
    depth = norms.shape[0]
    kept = jnp.where(jnp.eye(depth, dtype=bool), 1.0, norms)
    return jnp.prod(kept, axis=1)


def products_without_two(norms: Norms) -> Float[Array, "depth depth"]:
    """The matrix C above."""
    depth = norms.shape[0]
    one = jnp.eye(depth, dtype=bool)
    kept = jnp.where(one[:, None] | one[None], 1.0, norms)
    return jnp.where(one, 0.0, jnp.prod(kept, axis=2))


def largest_eigenvalue(matrix: Float[Array, "size size"]) -> Scalar:
    """Of a symmetric matrix."""
    return jnp.linalg.eigvalsh(matrix)[-1]
