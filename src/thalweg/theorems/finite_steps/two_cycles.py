"""Two-cycles of balanced, aligned modes: what descent does just above the edge, in closed form.

Let the layers W_N ... W_1 be balanced and their product share a pair of singular vectors u, v with
the target, with the values w^N and m > 0. Then each layer acts along that mode as the number w, and
descent of |W - Phi|_F^2 / 2 moves it alone: with x = w / m^{1/N} and h = eta m^{2 - 2/N},

    x' = x - h g(x),    g(x) = x^{N-1} (x^N - 1).

x = 1 is stable for h < 2 / N, which is eta below the edge 2 / (N m^{2 - 2/N}). Above it, N >= 2,
there is *exactly one* cycle of two positive points. With e^{2 tau} their ratio,

    h = 2 (sinh t / sinh N t) cosh (2N-1)t (cosh (2N-1)t / cosh (N-1)t)^{1 - 2/N},       t = tau > 0
    points c e^{t}, c e^{-t},    c^N = cosh (N-1)t / cosh (2N-1)t.

Proof. x - y = h g(x) and y - x = h g(y) give g(x) + g(y) = 0. With y = r x and r = e^{-2t} < 1 this
is x^N = (1 + r^{N-1}) / (1 + r^{2N-1}), and h = (x - y) / g(x), which are the formulas above. ln h
has the derivative

    (2N-1) T(2N-1) + (1 - 2/N) [(2N-1) T(2N-1) - (N-1) T(N-1)] - (N coth N t - coth t)

with T(k) = tanh k t. The bracket is not negative. And N coth N t - coth t is at most N - 1 and at
most (N^2 - 1) t / 3, because z coth z has a derivative of at most 1 and at most 2 z / 3; as
tanh z >= 0.76 min(z, 1), the first term is larger. So h rises from 2 / N, at t = 0, to infinity.

*Stability.* Along the mode the cycle has the multiplier (1 - h g'(x)) (1 - h g'(y)), where

    h g' = 2 (sinh t / sinh N t) e^{(N-2)t} [(2N-1) e^{Nt} cosh (N-1)t - (N-1) cosh (2N-1)t]

at the larger point and the same with -t for t (but in sinh t / sinh N t) at the smaller one. An
imbalance of the N numbers decays by (2 - r)(2r - 1) / r per cycle: the difference of two of their
squares is multiplied by 1 - (eta (p - m) p)^2 / (w_i w_j)^2 at each step, p their product, which is
1 - (1 - r)^2 at the larger and 1 - (1 - 1/r)^2 at the smaller point. The cycle is stable while
both are between -1 and 1. For N = 2

    h = 2 cosh 2t - 1,    x y = 1 / h,    multiplier 9 - 2 (1 + h)^2,

so that it is stable for 1 < h < sqrt(5) - 1. At all depths it loses stability at the multiplier -1,
between 1.236 (N = 2) and 1.2517 (N to infinity) times the edge, and then has doubled its period.
"""

from collections.abc import Callable
from functools import lru_cache
from math import cosh, exp, log, sinh
from typing import Any, NamedTuple

import numpy as np

from thalweg._checks import require_count

_FIRST = 1e-6  # N t: below it the multiplier 1 - O(t^2) is 1 in floating point
_LAST = 20.0  # N t: h is beyond e^{50} there


class TwoCycle(NamedTuple):
    """A cycle of two points of one mode, in units of the N-th root of its target.

    Attributes:
        high: the larger one, of a layer.
        low: the smaller one.
        multiplier: of a small change along the mode, per cycle.
        imbalance: of a small imbalance of the layers, per cycle.
    """

    high: float
    low: float
    multiplier: float
    imbalance: float

    @property
    def stable(self) -> bool:
        """Whether small changes die out."""
        return abs(self.multiplier) < 1 and abs(self.imbalance) < 1


def two_cycle(depth: int, step: float) -> TwoCycle | None:
    """The only cycle of two positive points for h = `step`; None up to the edge, 2 / depth.

    Args:
        depth: N, two at least: one layer has no cycle but at h = 2, where all are.
        step: h = eta m^{2 - 2/N}, below e^50.
    """
    require_count("depth", depth, least=2)
    if not step > 2 / depth:
        return None
    goal = log(step)
    return _cycle(depth, _root(lambda t: log_step(depth, t) - goal, depth))


@lru_cache
def stable_up_to(depth: int) -> float:
    """The h up to which the two-cycle is stable: its multiplier is -1 there."""
    require_count("depth", depth, least=2)
    return exp(log_step(depth, _root(lambda t: -1 - _cycle(depth, t).multiplier, depth)))


def log_step(depth: int, t: float) -> float:
    """Ln h of the cycle whose points have the ratio e^{2 t}."""
    outer, inner = _log_cosh((2 * depth - 1) * t), _log_cosh((depth - 1) * t)
    thin = log(2 / depth) + _log_sinhc(t) - _log_sinhc(depth * t)
    return thin + outer + (1 - 2 / depth) * (outer - inner)


def _cycle(depth: int, t: float) -> TwoCycle:
    middle = exp((_log_cosh((depth - 1) * t) - _log_cosh((2 * depth - 1) * t)) / depth)
    ratio = exp(-2 * t)
    return TwoCycle(
        middle * exp(t),
        middle * exp(-t),
        (1 - _bend(depth, t)) * (1 - _bend(depth, -t)),
        (2 - ratio) * (2 * ratio - 1) / ratio,
    )


def _bend(depth: int, t: float) -> float:
    """The product h g' at the larger point or, for -t, at the smaller one."""
    thin = 2 / depth * exp(_log_sinhc(t) - _log_sinhc(depth * t))
    outer, inner = cosh((2 * depth - 1) * t), cosh((depth - 1) * t)
    return thin * exp((depth - 2) * t) * (
        (2 * depth - 1) * exp(depth * t) * inner - (depth - 1) * outer
    )  # fmt: skip


def _log_sinhc(z: float) -> float:
    """ln(sinh z / z)."""
    z = abs(z)
    if z < 1e-2:
        return z**2 / 6 - z**4 / 180
    return log(sinh(z) / z) if z < 30 else z - log(2 * z)


def _log_cosh(z: float) -> float:
    z = abs(z)
    return log(cosh(z)) if z < 30 else z - log(2)


def _root(function: Callable[[float], float], depth: int) -> float:
    """Where a function of t that rises through zero does so; its scale is 1 / depth."""
    from scipy.optimize import brentq

    low, high = _FIRST / depth, _LAST / depth
    if function(low) >= 0:
        return low
    found: Any = brentq(function, low, high, xtol=1e-17, rtol=np.float64(1e-15))
    return float(found)
