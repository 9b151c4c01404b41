"""The gradient flow of a linear network as a power series in time.

Write W_1, ..., W_N for the layers, R for the fixed readout (the identity where there is none), and
Gamma for the gradient of the loss with respect to the product M = R^T W_N ... W_1. With

    a_N = R,            a_{j-1} = W_j^T a_j,      so that  M = a_0^T,
    b_0 = Gamma^T,      b_j = W_j b_{j-1},

the gradient of layer j is a_j b_{j-1}^T + decay W_j. The flow W_j' = -gradient then gives the
coefficients of W_j one after the other: those of order k + 1 follow from those of the gradient of
order k, and every product is a convolution. All of it is in units of a time tau, so that orders of
thirty neither overflow nor vanish.

The layers are cut off after order p: they are polynomials, and the curve that is made of them is
not quite the flow. The partial products go on to order q > p, up to which its defect

    z' + grad f(z)

is known coefficient by coefficient; what lies beyond is bounded (`defect`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Shaped

from thalweg.validated.losses import AbstractLossSeries

Coefficients = Float[np.ndarray, "_ _ _"]
Wide = Shaped[np.ndarray, "_ _ _"]  # of extended precision, too
OfLayers = Shaped[np.ndarray, "_ _ _ _"]


@dataclass(frozen=True)
class Series:
    """The flow around one point, in units of the time `unit`.

    Attributes:
        layers: per layer, the coefficients up to order p; exact, for they define the curve.
        upper: a_0, ..., a_N up to order q.
        lower: b_0, ..., b_{N-1} up to order q.
        gradients: of each layer, up to order q.
        unit: the time tau.
        decay: the weight decay.
        loss: the loss, with its own coefficients.
        kind: the numbers that the products were computed in.
    """

    layers: tuple[Coefficients, ...]
    upper: tuple[Coefficients, ...]
    lower: tuple[Coefficients, ...]
    gradients: tuple[Coefficients, ...]
    unit: float
    decay: float
    loss: AbstractLossSeries
    kind: Any = float

    @property
    def order(self) -> int:
        """p, the degree of the curve."""
        return self.layers[0].shape[0] - 1

    @property
    def known(self) -> int:
        """q, up to which the gradient's coefficients are known."""
        return self.gradients[0].shape[0] - 1

    def at(self, time: float) -> tuple[Float[np.ndarray, "_ _"], ...]:
        """The layers of the curve after this time."""
        return polynomial(self.layers, time / self.unit)


def polynomial(
    layers: Sequence[Coefficients], share: float | Float[np.ndarray, " times"]
) -> tuple[Float[np.ndarray, "*times _ _"], ...]:
    """The layers with these coefficients, by Horner's rule; at one point or at many."""
    found, place = [], np.asarray(share)[..., None, None]
    for coefficients in layers:
        value = np.zeros(place.shape[:-2] + coefficients.shape[1:])
        for each in coefficients[:0:-1]:
            value += each
            value *= place
        value += coefficients[0]
        found.append(value)
    return tuple(found)


def expand(
    layers: Sequence[Float[np.ndarray, "_ _"]],
    readout: Float[np.ndarray, "_ _"],
    loss: AbstractLossSeries,
    decay: float,
    order: int,
    known: int,
    unit: float,
    kind: Any = float,
) -> Series:
    """The series of the flow that starts at these layers.

    Args:
        layers: the start, first layer first.
        readout: R; the identity where there is none.
        loss: an empty series of the loss.
        decay: the weight decay.
        order: p, the degree of the curve.
        known: q >= p, the order up to which the gradient is computed.
        unit: the time that all coefficients are scaled with.
        kind: the numbers to compute in. Layers are double precision in any case: they are the
            curve, and need not be those of the exact flow.
    """
    depth, outputs = len(layers), readout.shape[1]
    alike = _alike(layers, outputs, known, kind)
    curve, above, lower, slopes = (_in_order(alike, name) for name in _Alike.ARRAYS)
    upper = [np.zeros((known + 1, layers[0].shape[1], outputs), kind), *above]
    turned = [each.transpose(0, 2, 1) for each in curve]
    # From the last order to the first, as convolutions take them.
    upper_back, lower_back = ([each[::-1] for each in kind] for kind in (upper, lower))
    upper[depth][0] = readout
    for each, layer in zip(curve, layers, strict=True):
        each[0] = layer
    for k in range(known + 1):
        for j in range(depth, 0, -1):
            upper[j - 1][k] = _convolved(turned[j - 1], upper_back[j], k, order)
        lower[0][k] = loss.extend(upper[0][k].T).T
        for j in range(1, depth):
            lower[j][k] = _convolved(curve[j - 1], lower_back[j - 1], k, order)
        for some in alike:
            some.extend(k, k < order, decay, unit)
    return Series(
        _doubles([each[: order + 1] for each in curve]),
        _doubles(upper),
        _doubles(lower),
        _doubles(slopes),
        unit,
        decay,
        loss,
        kind,
    )


def _doubles(arrays: Sequence[Wide]) -> tuple[Coefficients, ...]:
    return tuple(each.astype(float) for each in arrays)


def _convolved(left: Wide, back: Wide, k: int, last: int) -> np.ndarray:
    """The sum over i of left[i] right[k - i]; left is zero beyond the order `last`.

    What is right is given from its last order to its first.
    """
    end, first = min(k, last) + 1, back.shape[0] - 1 - k
    return np.add.reduce(np.matmul(left[:end], back[first : first + end]), axis=0)


@dataclass(frozen=True)
class _Alike:
    """Layers of one shape, whose gradients are found at once.

    Attributes:
        places: which layers.
        curve: over (layer, order, row, column).
        above: a_j, of the same layers.
        below: b_{j-1}.
        slopes: the gradients.
    """

    ARRAYS: ClassVar = ("curve", "above", "below", "slopes")

    places: list[int]
    curve: OfLayers
    above: OfLayers
    below: OfLayers
    slopes: OfLayers

    def extend(self, k: int, on: bool, decay: float, unit: float) -> None:
        """The gradients of order k and, if the curve goes on, its coefficients of order k + 1."""
        back = self.below.transpose(0, 1, 3, 2)[:, k::-1]
        products = np.add.reduce(np.matmul(self.above[:, : k + 1], back), axis=1)
        self.slopes[:, k] = products + decay * self.curve[:, k]
        if on:
            self.curve[:, k + 1] = (self.slopes[:, k] * (-unit / (k + 1))).astype(float)


def _alike(
    layers: Sequence[Float[np.ndarray, "_ _"]], outputs: int, known: int, kind: Any
) -> list[_Alike]:
    """Room for the series of all layers, those of one shape together."""
    found = []
    for shape in dict.fromkeys(layer.shape for layer in layers):
        places = [j for j, layer in enumerate(layers) if layer.shape == shape]
        rows, columns = shape
        sizes = [shape, (rows, outputs), (columns, outputs), shape]
        room = (np.zeros((len(places), known + 1, *size), kind) for size in sizes)
        found.append(_Alike(places, *room))
    return found


def _in_order(alike: Sequence[_Alike], name: str) -> list[Wide]:
    """One of their arrays layer by layer, the first layer first."""
    parts = {j: part for each in alike
             for j, part in zip(each.places, getattr(each, name), strict=True)}  # fmt: skip
    return [parts[j] for j in sorted(parts)]
