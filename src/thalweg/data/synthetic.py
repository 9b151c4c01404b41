"""Random linear regressions whose minimiser has unit norm.

With Gaussian X, w and zeta,

    y0 = X w + noise zeta,    w0 = argmin_v |y0 - X v|,    y = y0 / |w0|,    w_star = w0 / |w0|,

so that w_star is the least-squares solution on (X, y) and |w_star| = 1, whatever the noise. This is
the set-up of marion2024's experiments. Their numbers come from an older JAX, whose random stream is
another one (`jax_threefry_partitionable` was off by default), so equal keys give other data here.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from thalweg._arguments import checked
from thalweg._checks import InputError, is_traced, placed, require_count
from thalweg._drawing import normal, split
from thalweg._shown import shown
from thalweg._sizes import require_memory

_COPIES = 4  # of the samples, while they are drawn and their least-squares problem is solved


@shown
class LinearData(NamedTuple):
    """Samples, targets and their least-squares solution of least norm, which has unit norm.

    With one output the targets and the solution are vectors; with more they are matrices, targets
    one row per sample and the solution one row per output.
    """

    x: Float[Array, "samples features"]
    y: Float[Array, " samples"] | Float[Array, "samples outputs"]
    w_star: Float[Array, " features"] | Float[Array, "outputs features"]


@checked
def gaussian_regression(
    key: PRNGKeyArray, samples: int = 50, features: int = 5, noise: ScalarLike = 1.0
) -> LinearData:
    """Gaussian inputs, a Gaussian teacher and Gaussian noise, scaled so that |w_star| = 1.

    Fewer samples than features are allowed: w_star is then the solution of least norm. Map over
    keys with `jax.vmap`.
    """
    samples, features = require_count("samples", samples), require_count("features", features)
    _require_room(samples, features, 1)
    inputs, rest = split(key, 2)
    return _with_unit_solution(
        normal(inputs, (samples, features)), outputs=1, noise=noise, key=rest
    )


@checked
def conditioned_regression(
    key: PRNGKeyArray,
    samples: int,
    features: int,
    condition: ScalarLike,
    outputs: int = 1,
    noise: ScalarLike = 0.0,
) -> LinearData:
    """Inputs whose second moment has a chosen condition number, for flows that must be stiff.

    The eigenvalues of X^T X / samples are equally spaced in their logarithms, from 1 / condition to
    1, in a random orthonormal basis:

        X = sqrt(samples) Q diag(sqrt(eigenvalues)) V^T,    Q^T Q = V^T V = I.
    """
    samples = require_count("samples", samples)
    features = require_count("features", features, least=2)
    outputs = require_count("outputs", outputs)
    if samples < features:
        raise InputError(
            f"`samples` must be at least `features` ({features}), got {samples}; with fewer the "
            "second moment is singular and has no condition number."
        )
    _require("condition", condition, least=1.0)
    _require_room(samples, features, outputs)
    left, right, rest = split(key, 3)
    frame = jnp.linalg.qr(normal(left, (samples, features)))[0]
    basis = jnp.linalg.qr(normal(right, (features, features)))[0]
    spread = jnp.arange(features) / (features - 1)  # the exponents of 1 / condition, 0 to 1
    lengths = jnp.sqrt(samples * jnp.asarray(condition, float) ** -spread)
    return _with_unit_solution((frame * lengths[None]) @ basis.T, outputs, noise, key=rest)


def _with_unit_solution(
    x: Float[Array, "samples features"], outputs: int, noise: ScalarLike, *, key: PRNGKeyArray
) -> LinearData:
    _require("noise", noise, least=0.0)
    samples, features = x.shape
    for_teacher, for_noise = split(key, 2)
    drawn = x, normal(for_teacher, (features, outputs)), normal(for_noise, (samples, outputs))
    # JAX would compile all of it for each shape; it is needed where keys or the noise are traced.
    traced = any(is_traced(value) for value in (*drawn, noise))
    if traced:
        return LinearData(*_solved(jnp, drawn, noise))
    found = _solved(np, tuple(np.asarray(array) for array in drawn), noise)
    return LinearData(*(placed(array) for array in found))


def _solved(numpy: Any, drawn: tuple[Any, ...], noise: Any) -> tuple[Any, Any, Any]:
    """Samples, targets and solution, in NumPy or JAX's form of it."""
    x, teacher, zeta = drawn
    y = x @ teacher + noise * zeta
    solution = numpy.linalg.lstsq(x, y, rcond=None)[0]
    size = numpy.linalg.norm(solution)
    y, solution = y / size, solution / size
    return (x, y[:, 0], solution[:, 0]) if teacher.shape[1] == 1 else (x, y, solution.T)


def _require_room(samples: int, features: int, outputs: int) -> None:
    numbers = samples * (features + outputs) + (features + outputs) * features
    require_memory(
        f"A regression with {samples} samples, {features} features and {outputs} outputs",
        _COPIES * numbers,
        "take fewer `samples` or `features`",
    )


def _require(name: str, value: ScalarLike, least: float) -> None:
    if not is_traced(value) and not (np.isfinite(value) and np.asarray(value) >= least):
        raise InputError(f"`{name}` must be a finite number >= {least:g}, got {value}.")
