"""How far the curve of a series is from being a flow, over one step.

The curve z has layers of degree p, and z' + grad f(z) is a power series in time. Up to order q its
coefficients are known but for rounding: those below p vanish, those from p on are the gradient's.
Beyond q they are bounded by convolving norms: with omega_j, alpha_j, beta_j the norms of the
coefficients of W_j, a_j, b_j, known to order q,

    alpha_{j-1}[k] <= (omega_j * alpha_j)[k],    beta_j[k] <= (omega_j * beta_{j-1})[k],    k > q,

and the gradient of layer j has at most (alpha_j * beta_{j-1})[k]. Over a step of length h,

    integral of |z' + grad f(z)| <= sum over k of d_k h^(k+1) / (k+1).

Rounding: a convolution of matrices with an inner dimension w is off by at most
gamma = (w + q + 2) u times the convolution of the norms, u the unit roundoff. What goes wrong at
one layer is multiplied by the *partial product* of the layers after it, whose norm may be far below
the product of their norms.
"""

from dataclasses import dataclass
from math import isfinite

import numpy as np
from jaxtyping import Float

from thalweg.validated.losses import Remainder
from thalweg.validated.norms import (
    Jet,
    ascending_errors,
    constant,
    descending_errors,
    disturbed,
    interval_norms,
    jet,
    spectral,
    times,
)
from thalweg.validated.rounding import SLACK, UNIT, roundoff
from thalweg.validated.series import Coefficients, Series

Numbers = Float[np.ndarray, " _"]


@dataclass(frozen=True)
class NodeNorms:
    """Norms that belong to a series, whatever the step; coefficients in units of `series.unit`.

    Attributes:
        layers: the spectral norms of each layer's coefficients.
        sizes: the Frobenius norms of the same.
        upper: the Frobenius norms of those of a_0, ..., a_N.
        lower: those of b_0, ..., b_{N-1}.
        gradient: of the gradient's, all layers together.
        intervals: P_ij, the norms of the partial products at the node.
        images: the norms of W_j ... W_1 K at the node, K the images of the loss.
        columns: the largest norm of a single column of them.
        chain: the spectral norms of a_0, ..., a_N at the node.
    """

    layers: tuple[Numbers, ...]
    sizes: tuple[Numbers, ...]
    upper: tuple[Numbers, ...]
    lower: tuple[Numbers, ...]
    gradient: Numbers
    intervals: Float[np.ndarray, "_ _"]
    images: Float[np.ndarray, " _"]
    columns: Float[np.ndarray, " _"]
    chain: Float[np.ndarray, " _"]

    @classmethod
    def of(cls, series: Series) -> "NodeNorms":
        """The norms of a series."""
        start = [each[0] for each in series.layers]
        squares = sum(np.sum(each**2, axis=(1, 2)) for each in series.gradients)
        intervals, loss = interval_norms(start), series.loss
        images = [loss.images]
        for layer in start:
            images.append(layer @ images[-1])
        off = ascending_errors(intervals, start, images) + intervals[0] * loss.images_error
        chain = [each[0] for each in series.upper]
        return cls(
            tuple(spectral(each) for each in series.layers),
            tuple(map(_frobenius, series.layers)),
            tuple(map(_frobenius, series.upper)),
            tuple(map(_frobenius, series.lower)),
            np.sqrt(squares) * SLACK,
            intervals,
            np.array([loss.stretch, *(float(spectral(each)) for each in images[1:])]) + off,
            np.array([np.sqrt(np.sum(each**2, axis=0).max()) for each in images]) * SLACK + off,
            np.array(list(map(spectral, chain))) + descending_errors(intervals, start, chain),
        )


@dataclass(frozen=True)
class StepNorms:
    """What holds on one step of length h; jets are in units of h.

    Attributes:
        defect: the integral of |z' + grad f(z)|.
        rounding: the part of it that rounding makes.
        moved: per layer, how far it moves, in spectral norm.
        travelled: how far all layers move together, in Frobenius norm.
        upper: |a_j|.
        lower: |b_j|.
        intervals: the norms of partial products.
        images: the norms of W_j ... W_1 K.
        curvature: |phi''|.
        unknown: how far phi' can be from the polynomial that stands for it.
    """

    defect: float
    rounding: float
    moved: Jet
    travelled: float
    upper: Jet
    lower: Jet
    intervals: Jet
    images: Jet
    curvature: Jet
    unknown: float

    @property
    def is_finite(self) -> bool:
        """Whether nothing has overflowed: a step far too long makes no sense of anything."""
        jets = (self.moved, self.upper, self.lower, self.intervals, self.images, self.curvature)
        return isfinite(self.defect) and all(np.isfinite(each).all() for each in jets)


def over_step(series: Series, node: NodeNorms, length: float) -> StepNorms:
    """The defect of the curve over a step, and the norms of all partial products on it."""
    share = length / series.unit
    layers = [_scaled(each, share) for each in node.layers]
    moved = np.stack([jet(np.concatenate([[0.0], each[1:]])) for each in layers])
    intervals = disturbed(node.intervals, moved)
    images = disturbed_images(node.images, node.intervals, moved)
    upper = _upper_majorants(node, layers, share)
    errors = _Rounding.of(series, node, share, intervals[..., 0])
    remainder = series.loss.remainder(upper[0].copy(), series.known, share, errors.upper[0])
    lower = _lower_majorants(node, layers, share, remainder.tail)
    gradient = _scaled(node.gradient, share)
    made = _truncation(series.order, gradient, upper, lower)
    whole = [(float(np.sum(a)), float(np.sum(b))) for a, b in zip(upper[1:], lower, strict=True)]
    rounded = errors.total(remainder, images[:, 0], intervals[..., 0], whole)
    # Layers are multiplied by the unit, and rounded to double precision.
    rounded += 4 * max(UNIT, roundoff(series.kind)) * float(np.sum(gradient[: series.order]))
    return StepNorms(
        length * (made + rounded),
        length * rounded,
        moved,
        float(np.linalg.norm([_total(each, share) - each[0] for each in node.sizes])) * SLACK,
        np.stack([jet(each) for each in upper]),
        np.stack([jet(each) for each in lower]),
        intervals,
        images,
        series.loss.curvature_jet(upper[0], share),
        remainder.unknown,
    )


def _upper_majorants(node: NodeNorms, layers: list[Numbers], share: float) -> list[Numbers]:
    """alpha_0, ..., alpha_N, to their full degree."""
    known = [_scaled(each, share) for each in node.upper]
    found = [known[-1][:1]]
    for j in range(len(layers), 0, -1):
        found.append(_written_over(np.convolve(layers[j - 1], found[-1]), known[j - 1]))
    return found[::-1]


def _lower_majorants(
    node: NodeNorms, layers: list[Numbers], share: float, tail: Numbers
) -> list[Numbers]:
    """beta_0, ..., beta_{N-1}, to their full degree."""
    known = [_scaled(each, share) for each in node.lower]
    found = [_written_over(tail, known[0])]
    for j in range(1, len(layers)):
        found.append(_written_over(np.convolve(layers[j - 1], found[-1]), known[j]))
    return found


def _written_over(bound: Numbers, known: Numbers) -> Numbers:
    """The known norms in the place of their bounds, of which there may be fewer."""
    found = np.zeros(max(bound.size, known.size))
    found[: bound.size] = bound
    found[: known.size] = known
    return found


def _truncation(order: int, gradient: Numbers, upper: list[Numbers], lower: list[Numbers]) -> float:
    """The sum over k >= p of d_k / (k + 1)."""
    known = np.arange(order, gradient.size)
    near = np.sum(gradient[order:] / (known + 1))
    beyond = np.zeros(max(a.size + b.size - 1 for a, b in zip(upper[1:], lower, strict=True)))
    for a, b in zip(upper[1:], lower, strict=True):
        both = np.convolve(a, b)
        beyond[: both.size] += both**2
    far = np.arange(gradient.size, beyond.size)
    return float(near + np.sum(np.sqrt(beyond[gradient.size :]) / (far + 1)))


@dataclass(frozen=True)
class _Rounding:
    """What rounding does to the known coefficients, added up over the orders of a step.

    Attributes:
        unit: gamma.
        sizes: of the layers.
        upper: the errors of a_0, ..., a_N.
        upper_sizes: the norms of the same, of the known coefficients.
        lower_sizes: those of b_0, ..., b_{N-1}.
        decay: the weight decay.
    """

    unit: float
    sizes: list[float]
    upper: list[float]
    upper_sizes: list[float]
    lower_sizes: list[float]
    decay: float

    @classmethod
    def of(
        cls, series: Series, node: NodeNorms, share: float, partial: Float[np.ndarray, "_ _"]
    ) -> "_Rounding":
        """The errors of a_j: what is made at one layer is carried on by true partial products."""
        depth = len(series.layers)
        widest = max(max(each.shape[1:]) for each in (*series.layers, *series.upper))
        unit = (widest + series.known + 3) * roundoff(series.kind) * 1.01
        sizes = [_total(each, share) for each in node.sizes]
        upper = [_total(each, share) for each in node.upper]
        lower = [_total(each, share) for each in node.lower]
        made = [unit * sizes[j] * upper[j + 1] for j in range(depth)]
        off = [sum(partial[j, i] * made[i] for i in range(j, depth)) for j in range(depth)]
        return cls(unit, sizes, [*off, 0.0], upper, lower, series.decay)

    def total(
        self,
        remainder: Remainder,
        images: Numbers,
        partial: Float[np.ndarray, "_ _"],
        whole: list[tuple[float, float]],
    ) -> float:
        """What the gradient is off by, the loss's own remainder included.

        An error is multiplied by the whole of the other factor, which is given for each layer with
        what was bounded beyond the known orders.
        """
        depth, lower = len(self.sizes), self.lower_sizes
        made = [0.0, *(self.unit * self.sizes[j - 1] * lower[j - 1] for j in range(1, depth))]
        off = []
        for j in range(depth):
            below = images[j] * remainder.outputs + partial[0, j] * remainder.gradient
            below += sum(partial[i, j] * made[i] for i in range(1, j + 1))
            above, (size, other) = self.upper[j + 1], whole[j]
            products = self.unit * (
                self.upper_sizes[j + 1] * lower[j] + 2 * self.decay * self.sizes[j]
            )
            off.append((size + above) * below + above * other + products)
        return float(np.linalg.norm(off))


def disturbed_images(
    norms: Float[np.ndarray, " _"], intervals: Float[np.ndarray, "_ _"], moved: Jet
) -> Jet:
    """The norms of W_j ... W_1 times something fixed, where the layers move by these jets."""
    found = constant(norms)
    for j in range(1, norms.size):
        for k in range(1, j + 1):
            found[j] += intervals[k, j] * times(moved[k - 1], found[k - 1])
    return found


def _frobenius(coefficients: Coefficients) -> Numbers:
    return np.sqrt(np.add.reduce(coefficients**2, axis=(1, 2))) * SLACK


def _scaled(coefficients: Numbers, share: float) -> Numbers:
    return coefficients * share ** np.arange(coefficients.size)


def _total(coefficients: Numbers, share: float) -> float:
    return float(np.add.reduce(_scaled(coefficients, share)))
