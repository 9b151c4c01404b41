"""The end-to-end flow: what the product of a balanced linear network's layers does by itself.

If W_{j+1}^T W_{j+1} = W_j W_j^T holds at the start of the flow of a linear network of depth N, it
holds for ever, and the product W = W_N ... W_1 follows an equation of its own (arora2019:eq11),

    W' = -P_W(G) = -sum_{j=1}^N (W W^T)^((N-j)/N) G (W^T W)^((j-1)/N),

G the gradient of the problem at W.

With the full singular value decomposition W = U diag(s) V^T, s padded by zeros, P_W multiplies the
entry (r, q) of U^T G V by

    sum_{j=1}^N s_r^(2 (N-j)/N) s_q^(2 (j-1)/N),    0^0 = 1,

so that it is applied without ever being formed. For one output and white inputs, with target L,
two numbers follow an equation of their own, the norm r and the cosine c of the angle to the target
(elkabetz2021:lem40, lem44 in the flow's own time):

    r' = N r^(2 - 2/N) (|L| c - r),    c' = r^(1 - 2/N) |L| (1 - c^2).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thalweg._checks import InputError, as_floating, require_count, require_positive
from thalweg._typing import Matrix, Scalar
from thalweg.problem import AbstractProblem

Factors = Float[Array, "rows columns"]

_MAX_STEPS = 100_000


def preconditioned(matrix: Matrix, direction: Matrix, depth: int) -> Matrix:
    """P_W applied to a direction, with W the matrix and N the depth."""
    left, values, right = jnp.linalg.svd(matrix, full_matrices=True)
    factors = _factors(values, matrix.shape, depth)
    return left @ (factors * (left.T @ direction @ right.T)) @ right


def preconditioner_spectrum(matrix: Matrix, depth: int) -> Float[Array, " entries"]:
    """The eigenvalues of P_W, ascending; the least is N s^(2 - 2/N) or s^(2 - 2/N), s = s_min."""
    values = jnp.linalg.svd(matrix, compute_uv=False)
    return jnp.sort(_factors(values, matrix.shape, depth).ravel())


def _factors(values: Float[Array, " values"], shape: tuple[int, ...], depth: int) -> Factors:
    rows, columns = (jnp.pad(values, (0, size - values.size))[:size] for size in shape)
    powers = [
        rows[:, None] ** (2 * (depth - j) / depth) * columns[None, :] ** (2 * (j - 1) / depth)
        for j in range(1, depth + 1)
    ]
    return sum(powers[1:], powers[0])


def end_to_end_flow(
    problem: AbstractProblem,
    matrix: Any,
    depth: int,
    times: Any,
    *,
    rtol: float = 1e-8,
    atol: float = 1e-10,
) -> Float[np.ndarray, "times outputs features"]:
    """The product of a balanced network's layers at these times, from the product at time 0."""
    start = as_floating("matrix", matrix)
    if start.shape != problem.shape:
        raise InputError(
            f"`matrix` must be outputs x features of the problem, {problem.shape}, got shape "
            f"{start.shape}."
        )
    count = require_count("depth", depth)
    moments, rtol_, atol_ = _settings(times, rtol, atol)
    points = _end_to_end_path(problem, start, count, moments, rtol_, atol_)
    return _arrived(points)


def norm_and_cosine_flow(
    norm: float,
    cosine: float,
    depth: int,
    times: Any,
    *,
    target_norm: float = 1.0,
    rtol: float = 1e-8,
    atol: float = 1e-10,
) -> Float[np.ndarray, "times 2"]:
    """Norm and cosine of a balanced network's vector: one output, white inputs."""
    require_positive("norm", norm)
    require_positive("target_norm", target_norm)
    if not -1 <= cosine <= 1:
        raise InputError(f"`cosine` must lie between -1 and 1, got {cosine}.")
    count = require_count("depth", depth)
    start = jnp.array([norm, cosine], dtype=float)
    moments, rtol_, atol_ = _settings(times, rtol, atol)
    points = _two_numbers_path(start, jnp.asarray(target_norm, float), count, moments, rtol_, atol_)
    return _arrived(points)


def norm_and_cosine_field(
    norm_and_cosine: Float[Array, "2"], target_norm: Scalar, depth: int
) -> Float[Array, "2"]:
    """The right-hand side of the two equations of the module's docstring."""
    norm, cosine = norm_and_cosine
    pace = jnp.abs(norm) ** (1 - 2 / depth)
    return pace * jnp.stack(
        [depth * norm * (target_norm * cosine - norm), target_norm * (1 - cosine) * (1 + cosine)]
    )


def _settings(
    times: Any, rtol: float, atol: float
) -> tuple[Float[Array, " times"], Scalar, Scalar]:
    moments = as_floating("times", times)
    if moments.ndim != 1 or moments.size == 0 or jnp.any(jnp.diff(moments) <= 0):
        raise InputError("`times` must be a vector of increasing times, none of them negative.")
    if moments[0] < 0:
        raise InputError(f"`times` must not be negative, got {float(moments[0])}.")
    require_positive("rtol", rtol)
    require_positive("atol", atol)
    return moments, jnp.asarray(rtol, float), jnp.asarray(atol, float)


@eqx.filter_jit
def _end_to_end_path(
    problem: AbstractProblem,
    start: Matrix,
    depth: int,
    times: Float[Array, " times"],
    rtol: Scalar,
    atol: Scalar,
) -> Float[Array, "times rows columns"]:
    def field(matrix: Matrix) -> Matrix:
        return -preconditioned(matrix, problem.gradient(matrix), depth)

    return _explicit_path(field, start, times, rtol, atol)


@eqx.filter_jit
def _two_numbers_path(
    start: Float[Array, "2"],
    target_norm: Scalar,
    depth: int,
    times: Float[Array, " times"],
    rtol: Scalar,
    atol: Scalar,
) -> Float[Array, "times 2"]:
    def field(numbers: Float[Array, "2"]) -> Float[Array, "2"]:
        return norm_and_cosine_field(numbers, target_norm, depth)

    return _explicit_path(field, start, times, rtol, atol)


def _explicit_path(
    field: Callable[[Array], Array],
    start: Float[Array, "..."],
    times: Float[Array, " times"],
    rtol: Scalar,
    atol: Scalar,
) -> Float[Array, "times ..."]:
    import diffrax  # takes a third of a second to load

    # Explicit, because an implicit method would differentiate the singular value decomposition.
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: field(y)),
        diffrax.Dopri8(),
        t0=0.0,
        t1=times[-1],
        dt0=None,
        y0=start,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        max_steps=_MAX_STEPS,
        throw=False,
    )
    assert solution.ys is not None
    return solution.ys


def _arrived(points: Float[Array, "times ..."]) -> Float[np.ndarray, "times ..."]:
    found = np.asarray(jax.device_get(points))
    if not np.all(np.isfinite(found)):
        raise InputError(
            f"`times` reach further than {_MAX_STEPS} explicit steps; give a shorter horizon or "
            "looser tolerances, or follow the layers with `flow`."
        )
    return found
