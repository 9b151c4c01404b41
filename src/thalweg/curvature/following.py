"""What was found at the ends of a spectrum, and where the search at the next point begins.

Along a smooth path, such as descent that is looked at often, eigenvectors move smoothly, and the
next ones are combinations of the last three: these are given to the search one by one. Where
mini-batches shake the path, where it oscillates at the edge of stability, or where it is looked at
seldom, eigenvectors turn too far for that. Then the search begins with a single vector, the sum of
the last ones at both ends, because in the Krylov space of one vector each product serves both ends
(`krylov.extremes`). Which of both it is, the last step tells, by how far its eigenvectors were from
the line through the two before.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jax.flatten_util import ravel_pytree

from thalweg._checks import InputError
from thalweg._shown import shown
from thalweg.krylov.space import Rows, Vector

PAST = 3
"""So many points, the last one last, are of use for the next one."""

_ROUGH = 0.3  # how far a unit eigenvector may be from where the last two were heading


@shown
class Eigenvalue(NamedTuple):
    """An eigenvalue of a symmetric operator, such as a Hessian.

    Attributes:
        value: what was found.
        error: an eigenvalue lies within this of `value`. That it is the outermost one is proven
            where the method is "dense"; else further products have looked for another in vain.
        vector: a unit eigenvector; of a Hessian, in the shape of the weights.
        method: how it was found, "dense" or "davidson".
        matvecs: how many products of the operator with a vector that took; 0 if dense.
        converged: whether `error` is what was asked for.
    """

    value: float
    error: float
    vector: Any
    method: str
    matvecs: int
    converged: bool


@shown
class Extremes(NamedTuple):
    """Eigenvalues at both ends of the spectrum, outermost first."""

    smallest: tuple[Eigenvalue, ...]
    largest: tuple[Eigenvalue, ...]


Known: TypeAlias = Extremes | Sequence[Extremes] | None


def search_start(
    known: Known, sides: Sequence[str], size: int
) -> tuple[Rows | None, Vector | None]:
    """What a search at these ends of the spectrum begins with: near eigenvectors, or a hint."""
    points = [known] if isinstance(known, Extremes) else list(known or [])
    rows = [
        [_flat(pair.vector, size) for side in sides for pair in getattr(point, side)]
        for point in points[-PAST:]
    ]
    if not rows:
        return None, None
    one_each = len(rows[-1]) == len(sides)
    if one_each and len(rows) > 1 and max(map(_turned, *rows)) > _ROUGH:
        return None, np.sum(rows[-1], axis=0)
    return np.stack([row for point in reversed(rows) for row in point]), None


def _flat(vector: Any, size: int) -> Vector:
    row = np.asarray(ravel_pytree(vector)[0], float)
    if row.size != size:
        raise InputError(
            f"`start` must hold eigenvectors of the operator's size, {size}, got {row.size}."
        )
    return row


def _turned(*path: Vector) -> float:
    """How far the last of two or three unit vectors is from what those before it predict."""
    alike = [path[-1]]
    for vector in reversed(path[:-1]):
        alike.append(vector if vector @ alike[-1] >= 0 else -vector)
    predicted = alike[1] if len(alike) == 2 else 2 * alike[1] - alike[2]
    return float(np.linalg.norm(predicted - alike[0]))
