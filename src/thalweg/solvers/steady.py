"""How far a gradient flow still has to go, predicted by its linearisation.

Where the flow is at u, with gradient g and Hessian H, the linearised flow moves in time r by

    -r phi_1(-r H) g,    phi_1(z) = (exp(z) - 1) / z.

A flow is called steady where this way is short and the flow slows down (g^T H g > 0). So a plateau
near a saddle is no steady state: there the linearised flow moves away exponentially. Nor is a point
where a fast direction has come to rest and a slow one has not, if the slow one will still move.

Without a dense Hessian the formula is projected onto the Krylov space of g, which a few products
with H span [hochbruck2010]; the first product alone mostly shows that the flow is not yet steady.

[hochbruck2010] M. Hochbruck, A. Ostermann, "Exponential integrators", Acta Numerica 19, 2010.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thalweg._phi import phi_one
from thalweg._typing import Scalar
from thalweg.krylov.lanes import tridiagonal

Vector = Float[Array, " size"]

KRYLOV = 8
"""The dimension of the space, if one product does not settle the matter."""


def way_in_basis(
    gradient: Vector, eigenvalues: Vector, basis: Float[Array, "size size"], remaining: Scalar
) -> Scalar:
    """The way of the linearised flow from the eigendecomposition of H; infinite if it speeds up."""
    slopes = basis.T @ gradient
    shift = remaining * phi_one(-remaining * eigenvalues) * slopes
    slows = jnp.sum(eigenvalues * slopes**2) > 0
    return jnp.where(slows, jnp.linalg.norm(shift), jnp.inf)


def way_from_products(
    gradient: Vector, product: Callable[[Vector], Vector], remaining: Scalar, length: Scalar
) -> tuple[Scalar, Int[Array, ""]]:
    """The way (infinite where it is surely above `length`), and the products taken."""
    norm = jnp.linalg.norm(gradient)
    first = gradient / jnp.where(norm > 0, norm, 1.0)
    image = product(first)
    curvature = first @ image
    along = norm * remaining * phi_one(-remaining * curvature)

    def full() -> tuple[Scalar, Int[Array, ""]]:
        return norm * _krylov_way(first, product, remaining), jnp.asarray(1 + KRYLOV)

    def short() -> tuple[Scalar, Int[Array, ""]]:
        return jnp.full_like(norm, jnp.inf), jnp.asarray(1)

    return jax.lax.cond((curvature > 0) & (along < length), full, short)


def _krylov_way(first: Vector, product: Callable[[Vector], Vector], remaining: Scalar) -> Scalar:
    """|r phi_1(-r T) e_1| with the projection T of H onto the Krylov space of a unit vector."""
    size = min(KRYLOV, first.size)
    projection = tridiagonal(
        lambda lane: product(lane[:, 0])[:, None], first[:, None], jnp.asarray(size), size
    )
    values, vectors = jnp.linalg.eigh(projection.dense())
    return jnp.linalg.norm(remaining * phi_one(-remaining * values) * vectors[0])
