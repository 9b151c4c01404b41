"""The functions by which a linear equation with a force moves on: w' = A w + sum_j t^j f_j / j!.

phi_j(x) = integral over 0 <= u <= 1 of exp((1 - u) x) u^(j-1) / (j-1)! du,
phi_1(x) = (exp(x) - 1) / x,    phi_{j+1}(x) = (phi_j(x) - 1 / j!) / x.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from thalweg._typing import Scalar


def phi_one(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """phi_1(x) = (exp(x) - 1) / x, without cancellation."""
    away = jnp.where(x == 0, 1.0, x)
    return jnp.where(x == 0, 1.0, jnp.expm1(away) / away)


def first_phis(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """phi_1, phi_2 and phi_3 of a number that is not negative, without cancellation."""
    small = x < 0.5
    series = jnp.where(small, x, 0.0)
    large = jnp.where(small, 1.0, x)
    growth = jnp.expm1(large)
    closed = (
        growth / large,
        (growth - large) / large**2,
        (growth - large - large**2 / 2) / large**3,
    )
    return tuple(
        jnp.where(small, _series(series, order), exact) for order, exact in enumerate(closed, 1)
    )  # pyright: ignore[reportReturnType]


def _series(x: Float[Array, ""], order: int) -> Scalar:
    """phi_order(x) = sum over i of x^i / (i + order)!; sixteen terms are exact below 1 / 2."""
    total, factor = jnp.zeros_like(x), 1.0
    for number in range(2, order + 1):
        factor /= number
    term = jnp.full_like(x, factor)
    for i in range(16):
        total += term
        term = term * x / (i + order + 1)
    return total
