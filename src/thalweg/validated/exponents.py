"""How fast distances may grow on a step, and how much time is spent on knowing it.

On a step m >= -lambda_min(H) is the interpolation of its values at the ends, and at points between,
plus what H bends (`curve`). For small networks the values are computed. Beyond, norms of blocks
cost next to nothing, and what `lowest` does costs a thousand times as much, but may say a tenth of
it or less. A distance grows by exp(integral of m), so that what a step pays for the cheap bound
is counted in units of this exponent:

* a step looks closer if that is expected to save it more than `_WORTH`, as the last look did;
* if all steps since the last look have paid more than `_PATIENCE`, the next one looks anyway.

Near a minimum, or where the cheap bound is good, hardly any step looks; while a saddle is left, all
of them may have to. Bounds from the indefinite part B alone need only the bending of B between
them; where one takes the definite part into account that of all of H is added. Where that is more
than points between could make good, as on MNIST, whose samples' outputs move far, the norms stay.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from thalweg.validated.defect import StepNorms
from thalweg.validated.hessian import bending
from thalweg.validated.lowest import Directions, Lowest

Layers = tuple[Float[np.ndarray, "_ _"], ...]

_INSIDE = 8  # points of a step at which eigenvalues are looked at, at most
_BENT = 2e-3  # what |H''| may add to the exponent of a step
_BENT_SHARP = 2e-2  # the same where looking takes long
_WORTH = 0.1
_PATIENCE = 1.0


class AbstractEigenvalues(ABC):
    """What bounds the smallest eigenvalue from below, cheaply and sharply.

    Attributes:
        dense: whether the cheap bound is already the eigenvalue.
    """

    dense: bool

    @abstractmethod
    def smallest(self, layers: Layers) -> float:
        """A lower bound on the smallest eigenvalue of the Hessian, as cheap as there is one."""

    @abstractmethod
    def sharper(self, layers: Layers, directions: Directions | None) -> Lowest:
        """A higher one that takes longer, beginning with directions that did well nearby."""


@dataclass(frozen=True)
class Known:
    """What is known where a step begins.

    Attributes:
        cheap: a lower bound on lambda_min, from norms.
        sharp: a sharper one; None where none was sought.
        directions: what it was found with, the last time.
        share: the last sharp bound as a part of the cheap one.
        paid: the exponent of all steps since then.
    """

    cheap: float
    sharp: float | None = None
    directions: Directions | None = None
    share: float = 1.0
    paid: float = 0.0


class Exponent(NamedTuple):
    """The mean of m over a step, and its largest value, at most."""

    mean: float
    worst: float


def over_length(
    bounds: AbstractEigenvalues,
    known: Known,
    at: Callable[[float], Layers],
    step: StepNorms,
    length: float,
) -> tuple[Exponent, Known] | None:
    """The exponent of a step, and what is known at its end; None where H bends too much.

    Args:
        bounds: what bounds eigenvalues.
        known: at the beginning.
        at: the curve's layers at a time of the step.
        step: what is known of it.
        length: how long it lasts.
    """
    bend = bending(step, bounds.dense)
    parts = _parts(length, bend, _BENT)
    if parts is None:
        return None
    lowest = [bounds.smallest(at(length * (i / parts))) for i in range(1, parts + 1)]
    found = _interpolated([known.cheap, *lowest], bend)
    cost = length * max(found.mean, 0.0)
    after = Known(lowest[-1], None, known.directions, known.share, known.paid + cost)
    if bounds.dense or (cost * (1 - known.share) <= _WORTH and after.paid <= _PATIENCE):
        return found, after
    return _looking_closer(bounds, known, after, at, step, length) or (found, after)


def _looking_closer(
    bounds: AbstractEigenvalues,
    known: Known,
    after: Known,
    at: Callable[[float], Layers],
    step: StepNorms,
    length: float,
) -> tuple[Exponent, Known] | None:
    """The same by sharper bounds."""
    bend = bending(step, dense=True)
    parts = _parts(length, bend, _BENT_SHARP)
    if parts is None:
        return None
    directions, lowest = known.directions, []
    if known.sharp is None:
        first, directions = bounds.sharper(at(0.0), directions)
        lowest.append(first)
    else:
        lowest.append(known.sharp)
    for i in range(1, parts + 1):
        bound, directions = bounds.sharper(at(length * (i / parts)), directions)
        lowest.append(bound)
    share = min(1.0, lowest[-1] / after.cheap) if after.cheap < 0 else 1.0
    found = replace(after, sharp=lowest[-1], directions=directions, share=share, paid=0.0)
    return _interpolated(lowest, bend), found


def _parts(length: float, bend: float, allowed: float) -> int | None:
    """Into how many parts a step must be cut for H to bend little enough; None if too many."""
    parts = max(1, int(np.ceil(np.sqrt(min(length * bend / 12 / allowed, 1e6)))))
    return parts if parts <= _INSIDE else None


def _interpolated(lowest: list[float], bend: float) -> Exponent:
    """From lower bounds at points that are equally far apart."""
    exponents, parts = -np.array(lowest), len(lowest) - 1
    mean = float(np.mean(exponents[1:] + exponents[:-1])) / 2 + bend / (12 * parts**2)
    return Exponent(mean, float(exponents.max()) + bend / (8 * parts**2))
