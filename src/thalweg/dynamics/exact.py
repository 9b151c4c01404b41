"""Gradient flows of linear networks in closed form: answers to hold an integrator against.

All of them are of balanced networks on white inputs with the loss |W - target|^2 / 2, depth N.

Aligned modes. Where the product has the singular vectors of the target, each mode s with target m
moves by itself: s' = N s^(2 - 2/N) (m - s). In x = log(s / |s - m|) this is
x' = N m s^(1 - 2/N), so

    t = integral_{x(0)}^{x} dx / (N m s(x)^(1 - 2/N)),    s(x) = m / (1 - sign(s - m) exp(-x)),

a smooth monotone function of x; for N = 2 it is the logistic curve.

One output (elkabetz2021:exactflow). With a unit target, the cosine c to it, a = artanh c(0), and
the time tau with dt = |w|^-(1 - 2/N) dtau,

    c(tau) = tanh(tau + a),
    1 / |w(tau)| = (cosh a / cosh(tau + a))^N
                   (1 / |w(0)| + N integral_0^tau (cosh(r + a) / cosh a)^N dr),

and the integral of cosh^N is a sum of N + 1 positive terms.

Two layers. With Q = (W_1^T; W_2) and F = (0, target^T; target, 0), P = Q Q^T solves the Riccati
equation P' = F P + P F - P^2 [fukumizu1998], hence

    P(t) = exp(F t) Q(0) (I + Q(0)^T B(t) Q(0))^-1 Q(0)^T exp(F t),
    B(t) = integral_0^t exp(2 F r) dr,

whose lower left block is W_2 W_1. Its growing exponentials cancel in an orthogonal factorisation.

[fukumizu1998] K. Fukumizu, "Effect of batch learning in multilayer neural networks", ICONIP 1998.
"""

from collections.abc import Callable
from itertools import pairwise
from math import comb
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

from thalweg._checks import InputError, as_floating, require_count, require_positive

Vector = Float[np.ndarray, " entries"]
Times = Float[np.ndarray, " times"]

_QUADRATURE = {"epsabs": 0.0, "epsrel": 1e-13, "limit": 200}
_LARGEST_EXPONENT = 100.0
_BALANCED = 1e-9  # how large an imbalance may be, as a part of the squared weights


def aligned_modes(
    start: Any, target: Any, depth: int, times: Any
) -> Float[np.ndarray, "times modes"]:
    """The singular values of the product along the flow, where its modes are the target's.

    Args:
        start: the singular values at time 0, not negative.
        target: the target's along the same singular vectors; any sign.
        depth: how many layers.
        times: when, increasing.
    """
    strengths, goals = np.broadcast_arrays(
        np.atleast_1d(_array("start", start)), np.atleast_1d(_array("target", target))
    )
    if strengths.ndim != 1 or np.any(strengths < 0):
        raise InputError("`start` must be a vector of singular values, none of them negative.")
    count, moments = require_count("depth", depth), _increasing(times)
    columns = [
        _mode(float(s), float(m), count, moments) for s, m in zip(strengths, goals, strict=True)
    ]
    return np.stack(columns, axis=1)


def _mode(start: float, goal: float, depth: int, times: Times) -> Times:
    if start == goal or (start == 0 and depth > 1):
        return np.full(times.shape, start)
    if depth == 1:
        return goal + (start - goal) * np.exp(-times)
    if goal == 0:  # s' = -N s^(3 - 2/N)
        power = 2 - 2 / depth
        return (start**-power + 2 * (depth - 1) * times) ** (-1 / power)
    side = np.sign(start - goal)
    power = 1 - 2 / depth

    def strength(x: float) -> float:
        return goal / -np.expm1(-x) if side > 0 else goal / (1 + np.exp(-x))

    def pace(x: float) -> float:
        return depth * goal * strength(x) ** power

    first = np.log(start / abs(start - goal))
    places = _follow(pace, float(first), times)
    return np.array([strength(x) for x in places])


def _follow(pace: Callable[[float], float], start: float, times: Times) -> Times:
    """The solution of x' = pace(x), a positive or negative monotone function, by quadrature."""
    places, x, t = [], start, 0.0
    for time in times.tolist():
        x = _advance(pace, x, time - t)
        t = time
        places.append(x)
    return np.array(places)


def _advance(pace: Callable[[float], float], start: float, duration: float) -> float:
    """Where x is after this duration: the zero of integral dx / pace - duration."""
    if duration == 0:
        return start

    def late(x: float) -> float:
        return scipy.integrate.quad(lambda y: 1 / pace(y), start, x, **_QUADRATURE)[0] - duration

    # The pace is monotone, so x lies between what the first pace and the last would give.
    end = start + pace(start) * duration
    while late(end) < 0:
        end = start + 2 * (end - start)
    root = scipy.optimize.root_scalar(
        late, bracket=(start, end), method="brentq", xtol=1e-15, rtol=1e-14
    )
    return float(root.root)


def one_output(
    start: Any, target: Any, depth: int, times: Any
) -> Float[np.ndarray, "times features"]:
    """The vector that a balanced network with one output multiplies white inputs by.

    Args:
        start: that vector at time 0.
        target: the target.
        depth: how many layers.
        times: when, increasing.
    """
    vector, goal = _array("start", start).ravel(), _array("target", target).ravel()
    if vector.shape != goal.shape:
        raise InputError(
            f"`start` and `target` must have as many entries, got {vector.size} and {goal.size}."
        )
    size, norm = np.linalg.norm(goal), np.linalg.norm(vector)
    require_positive("|target|", size)
    require_positive("|start|", norm)
    count, moments = require_count("depth", depth), _increasing(times)
    along = goal / size
    cosine = vector @ along / norm
    across = vector / norm - cosine * along
    sine = np.linalg.norm(across)
    if sine < 1e-14:  # aligned to rounding: one mode
        mode = _mode(float(norm), float(np.sign(cosine) * size), count, moments)
        return mode[:, None] * np.sign(cosine) * along
    # In units of the target the clock runs |target|^(2 - 2/N) times as fast.
    clock = moments * size ** (2 - 2 / count)
    bend = float(np.arcsinh(cosine / sine))
    norms, angles = _norms_and_angles(float(norm / size), bend, count, clock)
    secants = np.array([np.exp(-_log_cosh(float(angle))) for angle in angles])
    directions = np.tanh(angles)[:, None] * along + secants[:, None] * (across / sine)
    return size * norms[:, None] * directions


def one_output_weights(
    weights: Any, target: Any, times: Any
) -> tuple[Float[np.ndarray, "times rows columns"], ...]:
    """All layers of a balanced network with one output along the flow on white inputs."""
    layers = [_array(f"weights[{j}]", array) for j, array in enumerate(weights)]
    _require_balanced(layers)
    depth = len(layers)
    behind = np.eye(1)
    for layer in reversed(layers[1:]):
        behind = behind @ layer
    vectors = one_output((behind @ layers[0]).ravel(), target, depth, times)
    norms = np.linalg.norm(vectors, axis=1)
    sizes = (norms ** (1 / depth))[:, None, None]
    unit = behind.T / np.linalg.norm(behind)
    first = sizes * (unit * (vectors / norms[:, None])[:, None, :])
    return (first, *(sizes * (layer / np.linalg.norm(layer)) for layer in layers[1:]))


def _norms_and_angles(norm: float, bend: float, depth: int, times: Times) -> tuple[Times, Times]:
    """|w| and tau + a at the times, for a unit target."""

    def reciprocal(tau: float) -> float:
        return reciprocal_norm(tau, norm, bend, depth)

    power = 1 - 2 / depth
    taus = times if depth == 2 else _follow(lambda tau: reciprocal(tau) ** -power, 0.0, times)
    return np.array([1 / reciprocal(float(tau)) for tau in taus]), taus + bend


def reciprocal_norm(tau: float, norm: float, bend: float, depth: int) -> float:
    """1 / |w(tau)|; each exponential is of a difference that does not overflow."""
    end = tau + bend
    height = _log_cosh(end)
    total = np.exp(depth * (_log_cosh(bend) - height)) / norm
    for k in range(depth + 1):
        rate = depth - 2 * k
        # integral of exp(rate r) from bend to end, over cosh(end)^N; its larger end is factored out
        peak = rate * (end if rate > 0 else bend) - depth * (height + np.log(2))
        width = tau * scipy.special.exprel(-abs(rate) * tau)
        total += depth * comb(depth, k) * np.exp(peak) * width
    return float(total)


def _log_cosh(x: float) -> float:
    return abs(x) + np.log1p(np.exp(-2 * abs(x))) - np.log(2)


def two_layers(
    weights: Any, target: Any, times: Any
) -> Float[np.ndarray, "times outputs features"]:
    """The product W_2 W_1 of a balanced network of two layers of any widths."""
    first, second = (_array(f"weights[{j}]", array) for j, array in enumerate(weights))
    _require_balanced([first, second])
    goal = np.atleast_2d(_array("target", target))
    outputs, features = goal.shape
    if (second.shape[0], first.shape[1]) != goal.shape:
        raise InputError(
            f"`target` must be outputs x features, {(second.shape[0], first.shape[1])}, got "
            f"{goal.shape}."
        )
    force = np.block(
        [[np.zeros((features, features)), goal.T], [goal, np.zeros((outputs, outputs))]]
    )
    rates, basis = np.linalg.eigh(force)
    stacked, before, found = basis.T @ np.vstack([first.T, second]), 0.0, []
    for time in _increasing(times).tolist():
        stacked, before = _riccati(rates, stacked, time - before), time
        gram = basis @ (stacked @ stacked.T) @ basis.T
        found.append(gram[features:, :features])
    return np.stack(found)


def _riccati(
    rates: Vector, stacked: Float[np.ndarray, "size hidden"], duration: float
) -> Float[np.ndarray, "size hidden"]:
    """Q after this duration up to a rotation from the right, in the basis of F.

    Over parts of the duration in which no exponential leaves the range of floating point.
    """
    parts = int(np.ceil(duration * np.abs(rates).max() / _LARGEST_EXPONENT))
    for _ in range(parts):
        stacked = _riccati_step(rates, stacked, duration / parts)
    return stacked


def _riccati_step(
    rates: Vector, stacked: Float[np.ndarray, "size hidden"], duration: float
) -> Float[np.ndarray, "size hidden"]:
    """The closed form, without overflow or cancellation.

    With S = B^(1/2) Q(0) the upper block G of the orthogonal factor of (S; I) has
    G G^T = S (I + S^T S)^-1 S^T, and exp(F t) B^(-1/2) stays bounded. The rows of S differ by
    powers of e; sorted by size, and with pivoting, the factorisation is accurate row by row.
    """
    growth = np.abs(2 * rates)
    # B = (exp(2 rate t) - 1) / (2 rate), as the larger exponential times a width.
    width = duration * scipy.special.exprel(-growth * duration)
    root = np.exp(np.maximum(rates * duration, 0)) * np.sqrt(width)
    rows = np.vstack([root[:, None] * stacked, np.eye(stacked.shape[1])])
    order = np.argsort(-np.abs(rows).max(axis=1), kind="stable")
    orthogonal = np.empty(rows.shape)
    orthogonal[order] = scipy.linalg.qr(rows[order], mode="economic", pivoting=True)[0]
    return (np.exp(rates * duration) / root)[:, None] * orthogonal[: rates.size]


def _require_balanced(layers: list[np.ndarray]) -> None:
    for j, (lower, upper) in enumerate(pairwise(layers), start=1):
        gap = np.linalg.norm(upper.T @ upper - lower @ lower.T)
        if gap > _BALANCED * max(np.linalg.norm(lower) ** 2, np.linalg.norm(upper) ** 2):
            raise InputError(
                f"`weights` must be balanced: W_{j + 1}^T W_{j + 1} - W_{j} W_{j}^T has norm "
                f"{gap:.2g}; start from `initialisation.balanced`."
            )


def _array(name: str, values: Any) -> Float[np.ndarray, "..."]:
    return np.asarray(as_floating(name, values))


def _increasing(times: Any) -> Times:
    array = np.atleast_1d(_array("times", times))
    if array.ndim != 1 or np.any(array < 0) or np.any(np.diff(array) <= 0):
        raise InputError("`times` must be a vector of increasing times, none of them negative.")
    return array
