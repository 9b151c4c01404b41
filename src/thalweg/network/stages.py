"""What stands between the linear layers of a network, as kinks: activations, and pooling.

    activation    s(z) = (beta + (alpha - beta) a) z
    pooling       max(u, v) = v + a (u - v),    z = u - v

with the mask a = 1 where z > 0. A window of 2^k entries is pooled by a tournament of k rounds, so
that a change of its largest entry is a kink like all others: the gradient jumps by delta grad z,
with delta the slope of f in the round's output.
"""

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Bool, Real
from typing_extensions import override

from thalweg.network.kinks import Index, Rows

AnyMasks = Real[np.ndarray, "rows kinks"] | Bool[np.ndarray, "rows kinks"]

_ROUNDING = 1e-14  # of the two numbers of a difference: below, it is none


class AbstractStage(ABC):
    """Kinks of one kind; `size` is how many there are on a sample, `inputs` what they see."""

    size: int
    inputs: int

    @abstractmethod
    def z(self, inputs: Rows) -> Rows:
        """The functions whose signs select the piece."""

    @abstractmethod
    def factors(self, masks: AnyMasks) -> Rows:
        """What is kept of the masks."""

    @abstractmethod
    def forward(self, factors: Rows, inputs: Rows, z: Rows) -> Rows:
        """What comes out."""

    @abstractmethod
    def deltas(self, back: Rows) -> Rows:
        """The slopes of f in what comes out, as jumps of the gradient in units of grad z."""

    @abstractmethod
    def pulled(self, factors: Rows, back: Rows) -> Rows:
        """Slopes in what comes out, as slopes in what goes in."""

    @abstractmethod
    def added(self, back: Rows, factors: Rows) -> Rows:
        """Slopes in what goes in, with these factors of the slopes of z on top."""

    @abstractmethod
    def slopes_of(self, kinks: Index) -> Rows:
        """The slopes of these z in what goes in, one row each."""


class Activation(AbstractStage):
    """Two slopes."""

    def __init__(self, size: int, slopes: tuple[float, float]):
        """Take how many units there are, and the slopes above and below zero."""
        self.size = self.inputs = size
        self._above, self._below = slopes

    @override
    def z(self, inputs: Rows) -> Rows:
        return inputs

    @override
    def factors(self, masks: AnyMasks) -> Rows:
        return self._below + (self._above - self._below) * masks

    @override
    def forward(self, factors: Rows, inputs: Rows, z: Rows) -> Rows:
        return factors * z

    @override
    def deltas(self, back: Rows) -> Rows:
        return (self._above - self._below) * back

    @override
    def pulled(self, factors: Rows, back: Rows) -> Rows:
        return factors * back

    @override
    def added(self, back: Rows, factors: Rows) -> Rows:
        return back + factors

    @override
    def slopes_of(self, kinks: Index) -> Rows:
        found = np.zeros((kinks.size, self.size))
        found[np.arange(kinks.size), kinks] = 1.0
        return found


class Pairing(AbstractStage):
    """The larger of two: numbers in rows (outer, 2, inner), of which `inner` lie side by side."""

    def __init__(self, size: int, inner: int):
        """Take how many pairs there are, and how far apart the two of a pair lie."""
        self.size, self.inputs, self._inner = size, 2 * size, inner

    def _two(self, inputs: Rows) -> tuple[np.ndarray, np.ndarray]:
        pairs = inputs.reshape(len(inputs), -1, 2, self._inner)
        return pairs[:, :, 0], pairs[:, :, 1]

    def halves(self, places: Rows) -> tuple[Rows, Rows]:
        """What belongs to either of a pair, of one number per place."""
        one, other = self._two(places)
        return one.reshape(len(places), -1), other.reshape(len(places), -1)

    @override
    def z(self, inputs: Rows) -> Rows:
        one, other = self._two(inputs)
        found = one - other
        # Patches with the same numbers differ by rounding alone.
        found[np.abs(found) <= _ROUNDING * (np.abs(one) + np.abs(other))] = 0.0
        return found.reshape(len(inputs), -1)

    @override
    def factors(self, masks: AnyMasks) -> Rows:
        return np.asarray(masks, float)

    @override
    def forward(self, factors: Rows, inputs: Rows, z: Rows) -> Rows:
        return factors * z + self._two(inputs)[1].reshape(len(inputs), -1)

    @override
    def deltas(self, back: Rows) -> Rows:
        return back

    @override
    def pulled(self, factors: Rows, back: Rows) -> Rows:
        first = factors * back
        shape = (len(back), -1, self._inner)
        both = (first.reshape(shape), (back - first).reshape(shape))
        return np.stack(both, axis=2).reshape(len(back), -1)

    @override
    def added(self, back: Rows, factors: Rows) -> Rows:
        own = factors.reshape(len(back), -1, self._inner)
        return back + np.stack((own, -own), axis=2).reshape(len(back), -1)

    @override
    def slopes_of(self, kinks: Index) -> Rows:
        found = np.zeros((kinks.size, self.inputs))
        outer, inner = np.divmod(kinks, self._inner)
        first = 2 * self._inner * outer + inner
        found[np.arange(kinks.size), first] = 1.0
        found[np.arange(kinks.size), first + self._inner] = -1.0
        return found
