"""Lanczos's three-term recursion, for one symmetric operator or for many side by side.

Vectors are pytrees of arrays whose last axis numbers the operators (lanes). All take the same
number m of steps,

    beta_{j+1} v_{j+1} = A v_j - alpha_j v_j - beta_j v_{j-1},

each from its own start. The alphas and betas are the tridiagonal projection T of A onto the Krylov
space of the start.

Without re-orthogonalisation the v_j lose their orthogonality once an end of the spectrum has
converged. That makes copies of values that are already there, none outside of the spectrum, and
leaves residuals true to rounding [paige1980], and f(T) e_1 near f(A) v_1 [druskin1991]; so nothing
has to be stored, and the cost is that of m products.

[paige1980] C. C. Paige, "Accuracy and effectiveness of the Lanczos algorithm for the symmetric
    eigenproblem", Linear Algebra and its Applications 34, 1980.
[druskin1991] V. Druskin, L. Knizhnerman, "Error bounds in the simple Lanczos procedure for
    computing functions of symmetric matrices and eigenvalues", Comput. Math. Math. Phys. 31, 1991.
"""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

Lanes = Float[Array, " lanes"]
Rows = Float[Array, "rows lanes"]
_Vectors = TypeVar("_Vectors", bound=PyTree[Float[Array, "... lanes"]])

_EXHAUSTED = 1e-13  # a beta below this part of the spectrum's width is rounding


class Tridiagonal(eqx.Module):
    """Projections after `steps` steps, in arrays with room for more.

    Row j holds alpha_j and the beta that follows it; the last beta belongs to the residual.
    """

    alphas: Rows
    betas: Rows
    steps: Int[Array, ""]

    def dense(self, lane: int = 0) -> Float[Array, "rows rows"]:
        """The matrix T of one lane; all rows must be in use."""
        off = self.betas[:-1, lane]
        return jnp.diag(self.alphas[:, lane]) + jnp.diag(off, 1) + jnp.diag(off, -1)


def tridiagonal(
    product: Callable[[_Vectors], _Vectors],
    start: _Vectors,
    steps: Int[Array, ""],
    room: int,
) -> Tridiagonal:
    """Lanczos's projection of a symmetric operator on arrays with lanes last.

    The number of steps is traced, up to `room`, so that one compilation serves all.
    """
    norm = jnp.sqrt(_dot(start, start))
    first = jax.tree.map(lambda array: array / norm, start)
    nothing = jax.tree.map(jnp.zeros_like, first)
    rows = jnp.zeros((room, norm.shape[0]), norm.dtype)

    def step(index: Array, carry: tuple) -> tuple:
        before, here, beta, width, alphas, betas = carry
        image = product(here)
        alpha = _dot(image, here)
        image = jax.tree.map(lambda i, h, b: i - alpha * h - beta * b, image, here, before)
        beta = jnp.sqrt(_dot(image, image))
        width = jnp.maximum(width, jnp.abs(alpha) + beta)
        alive = beta > _EXHAUSTED * width
        beta = jnp.where(alive, beta, 0.0)
        scale = jnp.where(alive, 1 / jnp.where(alive, beta, 1.0), 0.0)
        # An exhausted space has no direction left: its rows repeat a value inside of the spectrum.
        dead = _dot(here, here) == 0
        alphas = alphas.at[index].set(jnp.where(dead, alphas[0], alpha))
        after = jax.tree.map(lambda array: scale * array, image)
        return here, after, beta, width, alphas, betas.at[index].set(beta)

    zero = jnp.zeros_like(norm)
    carry = (nothing, first, zero, zero, rows, rows)
    *_, alphas, betas = jax.lax.fori_loop(0, steps, step, carry)
    return Tridiagonal(alphas, betas, steps)


def _dot(
    left: PyTree[Float[Array, "... lanes"]], right: PyTree[Float[Array, "... lanes"]]
) -> Lanes:
    products = jax.tree.map(lambda a, b: jnp.sum(a * b, axis=tuple(range(a.ndim - 1))), left, right)
    return reduce(add, jax.tree.leaves(products))
