"""Stabilised explicit steps for a field that is no gradient, in NumPy.

The Runge-Kutta-Chebyshev method of order 2 [sommeijer1998], whose formulas `solvers.chebyshev` has;
that solver takes the gradient of an objective and measures its curvature, this one any function and
a bound of its stiffness. The error of a step, (12 (y - y_new) + 6 h (F + F_new)) / 15, is kept
below a tolerance in the Euclidean norm; between two points is the cubic through both with their
velocities.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import ceil, sqrt

import numpy as np
from jaxtyping import Float

from thalweg.solvers import FlowError

State = Float[np.ndarray, "*shape"]
Field = Callable[[State], State]

_DAMPING = 2 / 13
_STABILITY = 1.54  # h rho <= (s - 1)^2 / 1.54 keeps inside of the stability interval
_MOST_STAGES = 200
_SAFETY, _SHRINK, _GROW = 0.8, 0.1, 5.0
_SMALLEST = 1e-12  # of a step, as a part of the time to go


@dataclass(frozen=True)
class Step:
    """A step that was accepted, from `begin` to `end`, with points and velocities at both."""

    begin: float
    end: float
    points: tuple[State, State]
    velocities: tuple[State, State]

    def at(self, time: float) -> State:
        """The cubic through both points, with both velocities."""
        length = self.end - self.begin
        return hermite((time - self.begin) / length, length, self.points, self.velocities)


def hermite(
    share: float, length: float, points: tuple[State, State], velocities: tuple[State, State]
) -> State:
    """The cubic with these points and velocities at both ends, at a share of the way."""
    rise = share**2 * (3 - 2 * share)
    first, last = share * (1 - share) ** 2, -(share**2) * (1 - share)
    move = rise * (points[1] - points[0])
    return points[0] + move + length * (first * velocities[0] + last * velocities[1])


def steps(
    field: Field,
    point: State,
    begin: float,
    end: float,
    *,
    stiffness: float,
    tolerance: float,
    most: int,
) -> Iterator[Step]:
    """The steps from one time to another.

    Args:
        field: the velocity at a point.
        point: where it begins.
        begin: when.
        end: the last time.
        stiffness: the largest rate of decay, about which an explicit step must know.
        tolerance: of the error of a step.
        most: how many steps are tried at most.

    Raises:
        FlowError: if `end` could not be reached.
    """
    time, velocity, length = begin, field(point), 1 / stiffness
    longest = (_MOST_STAGES - 1) ** 2 / (_STABILITY * stiffness)
    for _ in range(most):
        if time >= end:
            return
        length = min(length, longest, end - time)
        with np.errstate(over="ignore", invalid="ignore"):  # a step too long may overflow
            new = point + _shift(field, point, velocity, length, stiffness)
            after = field(new)
            error = (12 * (point - new) + 6 * length * (velocity + after)) / 15
            size = float(np.linalg.norm(error)) / tolerance
        if size <= 1:
            last = length >= (end - time) * (1 - _SMALLEST)
            then = end if last else time + length
            yield Step(time, then, (point, new), (velocity, after))
            time, point, velocity = then, new, after
        elif length < _SMALLEST * (end - begin):
            break
        share = _SAFETY * max(size, 1e-9) ** (-1 / 3) if np.isfinite(size) else _SHRINK
        length *= min(_GROW, max(_SHRINK, share))
    if time < end:
        raise FlowError(
            f"The central flow was followed to time {time:.6g} of {end:.6g} only; raise "
            "`max_steps` or `rtol`, or stop earlier."
        )


def _shift(field: Field, point: State, velocity: State, length: float, stiffness: float) -> State:
    """From a point to the next one."""
    stages = max(2, ceil(1 + sqrt(_STABILITY * length * stiffness)))
    first, rows = _coefficients(stages)
    shift, before = first * length * velocity, np.zeros_like(point)
    for here, earlier, moved, started in rows:
        new = here * shift + earlier * before
        new = new + length * (moved * field(point + shift) + started * velocity)
        shift, before = new, shift
    return shift


@cache
def _coefficients(stages: int) -> tuple[float, list[tuple[float, float, float, float]]]:
    """b_1 w_1, then mu_j, nu_j, mu~_j and gamma~_j for j = 2, ..., s, for shifts from the point."""
    start = 1 + _DAMPING / stages**2
    value, slope, bend = [1.0, start], [0.0, 1.0], [0.0, 0.0]
    for _ in range(2, stages + 1):
        bend.append(4 * slope[-1] + 2 * start * bend[-1] - bend[-2])
        slope.append(2 * value[-1] + 2 * start * slope[-1] - slope[-2])
        value.append(2 * start * value[-1] - value[-2])
    scale = slope[stages] / bend[stages]
    b = [bend[j] / slope[j] ** 2 for j in range(2, stages + 1)]
    b = [b[0], b[0], *b]
    rows = []
    for j in range(2, stages + 1):
        moved = 2 * scale * b[j] / b[j - 1]
        rows.append((
            2 * start * b[j] / b[j - 1], -b[j] / b[j - 2], moved,
            -(1 - b[j - 1] * value[j - 1]) * moved,
        ))  # fmt: skip
    return b[1] * scale, rows
