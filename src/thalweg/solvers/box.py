"""A convex quadratic problem in a box, which tells sliding from crossing.

    minimise  x^T A x / 2 - b^T x    over  lower <= x <= upper,    A positive semidefinite.

Projected Newton steps [bertsekas1982]: the coordinates that are at a bound and pushed against it
stay there, the others take a Newton step, which is shortened, after projection, until the value
falls. The set of coordinates inside settles after finitely many steps, and then one step is exact.
The diagonal is scaled to one; where A is singular the solution next to the start is taken.

[bertsekas1982] D. P. Bertsekas, "Projected Newton methods for optimization problems with simple
    constraints", SIAM J. Control Optim. 20, 1982.
"""

import numpy as np
import scipy.linalg
from jaxtyping import Float

Vector = Float[np.ndarray, " size"]

_REGULAR = 1e-12  # added to the unit diagonal: below what rounding makes of A
_SUFFICIENT = 1e-4  # Armijo's constant
_STEPS, _HALVINGS = 100, 30


def solved_in_box(
    matrix: Float[np.ndarray, "size size"],
    target: Vector,
    lower: Vector,
    upper: Vector,
    start: Vector,
    *,
    tolerance: float = 1e-12,
) -> Vector:
    """The minimiser; `tolerance` is relative to the sizes of b and of A x."""
    diagonal = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    scaled = matrix / diagonal[:, None] / diagonal
    scaled[np.diag_indices_from(scaled)] += _REGULAR
    low, high, x = lower * diagonal, upper * diagonal, np.clip(start, lower, upper) * diagonal
    goal = target / diagonal + _REGULAR * x
    enough = tolerance * max(np.abs(goal).max(initial=0.0), np.abs(scaled @ x).max(initial=0.0))
    for _ in range(_STEPS):
        slope = scaled @ x - goal
        held = ((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)) | (low >= high)
        free = np.flatnonzero(~held)
        if free.size == 0 or np.abs(slope[free]).max() <= enough:
            break
        x = _moved(scaled, slope, x, free, low, high)
    return x / diagonal


def _moved(
    matrix: Float[np.ndarray, "size size"],
    slope: Vector,
    x: Vector,
    free: np.ndarray,
    low: Vector,
    high: Vector,
) -> Vector:
    """One projected Newton step in the free coordinates."""
    step = np.zeros_like(x)
    factor = scipy.linalg.cho_factor(matrix[np.ix_(free, free)], check_finite=False)
    step[free] = -scipy.linalg.cho_solve(factor, slope[free], check_finite=False)
    length, new = 1.0, x
    for _ in range(_HALVINGS):
        new = np.clip(x + length * step, low, high)
        moved = new - x
        change = slope @ moved + moved @ (matrix @ moved) / 2
        if change <= _SUFFICIENT * (slope @ moved):
            break
        length /= 2
    return new
