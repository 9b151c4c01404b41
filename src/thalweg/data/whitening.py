"""Whitening, which turns least squares into the approximation of one matrix.

With rows x_i, y_i and moments Lxx = X^T X / n, Lyx = Y^T X / n (nothing is centred), whitened rows
z_i = T x_i have second moment I, and for every predictor z -> W z

    sum_i |W z_i - y_i|^2 / 2n = |W - Lyz|_F^2 / 2 + constant.

T is the symmetric root Lxx^{-1/2} where Lxx is invertible. Otherwise the rows are first written in
the coordinates of the range of Lxx, and T has as many rows as its rank. Either way W predicts from
raw rows as W T (arora2019, eq. 1; elkabetz2021, app. F).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg._arguments import checked
from thalweg._checks import InputError, as_floating, is_traced, samples
from thalweg._shown import shown
from thalweg._typing import Matrix, Scalar


@shown
class Whitened(eqx.Module):
    """Whitened rows, and the way there and back.

    `transformation` is T above; `rank` directions were kept and `dropped` ones carried no data.
    """

    x: Float[Array, "samples rank"]
    transformation: Float[Array, "rank features"]

    @property
    def rank(self) -> int:
        """How many directions the samples span."""
        return self.transformation.shape[0]

    @property
    def dropped(self) -> int:
        """How many directions of the features hold no data."""
        return self.transformation.shape[1] - self.rank

    def transform(
        self, x_new: Float[Array | np.ndarray, "count features"]
    ) -> Float[Array, "count rank"]:
        """New rows, transformed as the samples were."""
        return jnp.asarray(x_new) @ self.transformation.T

    def matrix_on_raw(
        self, matrix: Float[Array | np.ndarray, "outputs rank"]
    ) -> Float[Array, "outputs features"]:
        """The predictor on raw rows that equals this one on whitened rows."""
        return jnp.asarray(matrix) @ self.transformation


@shown
class NormalisedLabels(NamedTuple):
    """Targets whose cross moment with the inputs has unit norm; factor * y are the given ones."""

    y: Float[Array, " samples"] | Float[Array, "samples outputs"]
    factor: Scalar


@checked
def whiten(x: Any) -> Whitened:
    """Whiten rows without centring them; directions without data are dropped and counted.

    How many are kept depends on the values, so this cannot be traced by JAX.
    """
    if is_traced(x):
        raise InputError("`whiten` must see the values of `x`; call it outside of jit and vmap.")
    rows = samples(x)
    # From the rows and not from their moment, whose eigenvalues are squares and lose half the
    # digits.
    _, lengths, basis = np.linalg.svd(np.asarray(rows), full_matrices=False)
    precision = np.finfo(np.asarray(rows).dtype).eps * max(rows.shape)
    rank = int(np.sum(lengths > precision * lengths[0]))
    if rank == 0:
        raise InputError("`x` must not be zero: whitening needs at least one direction with data.")
    transformation = basis[:rank] * (np.sqrt(len(rows)) / lengths[:rank, None])
    if rank == rows.shape[1]:
        transformation = basis.T @ transformation
    return Whitened(rows @ transformation.T, jnp.asarray(transformation))


@checked
def normalise_labels(x: Any, y: Any) -> NormalisedLabels:
    """Divide targets by |Y^T X / n|_F, the norm of their cross moment with (whitened) inputs."""
    rows, targets = samples(x), as_floating("y", y)
    if targets.ndim not in (1, 2) or targets.shape[0] != rows.shape[0]:
        raise InputError(
            f"`y` must have one row per sample of `x` ({rows.shape[0]}), got shape "
            f"{targets.shape}; is one of them transposed?"
        )
    factor = jnp.linalg.norm(targets.T @ rows) / rows.shape[0]
    if not is_traced(factor) and not factor > _noise_of_product(rows, targets):
        raise InputError(
            "`y` must be correlated with `x`, but their cross moment is zero, so that no factor "
            "gives it unit norm; is `y` constant zero, or are rows of `x` in another order?"
        )
    return NormalisedLabels(targets / factor, factor)


def _noise_of_product(rows: Matrix, targets: Float[Array, "..."]) -> Scalar:
    """What rounding alone can leave of a cross moment that is zero."""
    scale = jnp.linalg.norm(rows) * jnp.linalg.norm(targets) / rows.shape[0]
    return 4 * jnp.finfo(rows.dtype).eps * scale
