"""The last place at which a condition holds that holds up to some place and not beyond it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Lanes = Float[Array, "..."]


def bisected(holds: Callable[[float], bool], low: float, high: float, *, halvings: int) -> float:
    """The largest number found between `low`, where the condition holds, and `high`."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def bisected_in_lanes(
    holds: Callable[[Lanes], Bool[Array, "..."]], low: Lanes, high: Lanes, *, halvings: int
) -> tuple[Lanes, Lanes]:
    """The same for each of many numbers, compiled: between which two the condition ends."""

    def halve(_: Array, bounds: tuple[Lanes, Lanes]) -> tuple[Lanes, Lanes]:
        low, high = bounds
        middle = (low + high) / 2
        held = holds(middle)
        return jnp.where(held, middle, low), jnp.where(held, high, middle)

    return jax.lax.fori_loop(0, halvings, halve, (low, high))
