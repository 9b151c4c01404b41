"""Starts and objectives on which descent fails, or follows its flow only with tiny steps.

Each is a constructive part of a proof: `diverging` and `stalling` from arora2019 (claims 4 and 5),
`sharp_saddle` and `rescaled_saddle` from elkabetz2021 (propositions 6, 10 and 22), and `WorstCase`
from its appendix B.

`WorstCase` is a function of q in R^d, d >= 3, that is smooth but treacherous:

    f(q) = hill(q_1) + ridge(q_2) + 6 a q_3^2.

Between its top and its edge e, the hill falls as -a z^2 / 2; beyond e + 1 it is zero; in between a
quartic joins both, all twice continuously differentiable. The ridge does the same, but near its top
falls half as steeply curved, as -a (z - z_0)^2 / 4 up to z = 1 - r, and changes within a length r.
Before that change the flow's coordinates grow at the rates a and a / 2; after it both grow at the
rate a, so whatever descent got wrong on the way is carried along and grows as e^{a t}. The
curvature is nowhere below -a.

Written down as in the paper, values near an edge are differences of numbers of the size of e^2,
and nothing is left of them where e > 1e8 (in use e is above 1e13). Here they are sums of terms of
one sign, and the derivatives are given, not derived: those of such sums would cancel again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, ScalarLike

from thalweg._arguments import checked
from thalweg._checks import InputError, as_floating, is_traced, require_count, require_positive
from thalweg._shown import shown
from thalweg._sizes import require_memory
from thalweg._typing import Matrix, Scalar, Weights
from thalweg.network import AbstractNetwork, LinearNetwork
from thalweg.problem import AbstractProblem

__all__ = [
    "Saddle",
    "Trap",
    "WorstCase",
    "divergence_factor",
    "diverging",
    "rescaled_saddle",
    "sharp_saddle",
    "stalling",
]


def __dir__() -> list[str]:
    return __all__


@shown
class Trap(NamedTuple):
    """A target for `TargetMatrix`, and weights from which descent does not reach it."""

    target: Matrix
    weights: Weights


@shown
class Saddle(NamedTuple):
    """Weights, and a direction along which the objective curves downwards."""

    weights: Weights
    direction: Weights


@checked
def diverging(
    depth: int,
    width: int,
    learning_rate: ScalarLike,
    margin: ScalarLike,
    *,
    factor: ScalarLike | None = None,
) -> Trap:
    """An unbalanced start with a deficiency margin from which descent diverges (arora2019:claim4).

    The target is I and the product diag(c, 1, ..., 1) with c = max(margin, 3/4), whose deficiency
    margin is c; the first entries of the lower half of the layers are A c^{1/N}, those of the upper
    half c^{1/N} / A, with the A of `divergence_factor` unless another `factor` is given. From the
    first step on the loss is at least (2^N - 1)^2 / 2, and it grows doubly exponentially.
    """
    depth, width = _even(depth), require_count("width", width)
    _require_memory(depth, width)
    proven = divergence_factor(depth, learning_rate, margin)
    factor = proven if factor is None else factor
    base = jnp.maximum(jnp.asarray(margin, float), 0.75) ** (1 / depth)
    half = depth // 2
    entries = [base * factor] * half + [base / factor] * half
    eye = jnp.eye(width)
    return Trap(eye, tuple(eye.at[0, 0].set(entry) for entry in entries))


@checked
def divergence_factor(depth: int, learning_rate: ScalarLike, margin: ScalarLike) -> Scalar:
    """How far `diverging` must be from balanced.

    With c = max(margin, 3/4), k = (1 - c) c^{(N-1)/N}, eta the learning rate, b = min(3/4, eta k),

        A = max{ sqrt(eta N), (eta (1 - k))^{-1/2}, 2 / b,
                 (20 max(1, eta) / (eta b^{2N-1}))^{1/(2N-2)} }.

    This is not the paper's A: its proof needs c <= .89 or so, and this one does not.
    """
    depth = _even(depth)
    require_positive("learning_rate", learning_rate)
    if not is_traced(margin) and not 0 < np.asarray(margin) < 1:
        raise InputError(f"`margin` must lie strictly between 0 and 1, got {margin}.")
    eta, c = jnp.asarray(learning_rate, float), jnp.maximum(jnp.asarray(margin, float), 0.75)
    k = (1 - c) * c ** ((depth - 1) / depth)
    b = jnp.minimum(0.75, eta * k)
    # Through logarithms, because b^{2N-1} leaves the range of floating point for deep networks.
    power = jnp.log(20 * jnp.maximum(1, eta) / eta) - (2 * depth - 1) * jnp.log(b)
    candidates = [
        jnp.sqrt(eta * depth),
        (eta * (1 - k)) ** -0.5,
        2 / b,
        jnp.exp(power / (2 * depth - 2)),
    ]
    # The last condition is an equality that rounding must not break.
    return jnp.max(jnp.stack(candidates)) * (1 + 1e-9)


@checked
def stalling(depth: int, target: Any) -> Trap:
    """A balanced start without deficiency margin where descent stalls (arora2019:claim5).

    All layers are I and the target is symmetric with a negative eigenvalue. In exact arithmetic the
    loss stays above half the sum of the squares of the negative eigenvalues, for every learning
    rate. Rounding of a target that is not diagonal breaks the symmetry that this rests on, and with
    two layers descent escapes after some hundred steps.
    """
    depth = _even(depth)
    phi = as_floating("target", target)
    if phi.ndim != 2 or phi.shape[0] != phi.shape[1]:
        raise InputError(f"`target` must be a square matrix, got shape {phi.shape}.")
    symmetric = (phi + phi.T) / 2
    if not is_traced(phi):
        if not np.allclose(phi, phi.T, rtol=0, atol=1e-12 * float(jnp.max(jnp.abs(phi)))):
            raise InputError("`target` must be symmetric; (phi + phi.T) / 2 is.")
        smallest = float(jnp.linalg.eigvalsh(symmetric)[0])
        if smallest >= 0:
            raise InputError(
                f"`target` must have a negative eigenvalue, but the smallest is {smallest:g}; "
                "descent from the identity may well reach it."
            )
    _require_memory(depth, phi.shape[0])
    return Trap(symmetric, (jnp.eye(phi.shape[0]),) * depth)


@checked
def sharp_saddle(network: LinearNetwork, problem: AbstractProblem, curvature: ScalarLike) -> Saddle:
    """Weights where a linear network's loss curves down as sharply as asked (elkabetz2021:prop6).

    With H the Hessian of the loss at the weights, the direction d has d^T H d = -curvature |d|^2.
    The product is zero and only the first three and the last layer differ from one unit entry each;
    needs three layers, and a problem whose gradient at the zero predictor is not zero.
    """
    _require_three_layers(network)
    slope = problem.gradient(jnp.zeros(problem.shape, problem.inputs.dtype))
    slope = slope if network.readout is None else network.readout @ slope
    if not is_traced(slope) and not np.any(np.asarray(slope)):
        raise InputError(
            "`problem` must have a gradient at the zero predictor that is not zero; are its "
            "targets uncorrelated with its inputs?"
        )
    row, column = jnp.unravel_index(jnp.argmax(jnp.abs(slope)), slope.shape)
    steepest = slope[row, column]
    zeros = tuple(jnp.zeros(shape, slope.dtype) for shape in network.shapes)
    first, second, *rest = zeros
    through = [zero.at[0, 0].set(1) for zero in rest[:-1]]
    through.append(rest[-1].at[row, 0].set(jnp.sign(steepest)))
    through[0] = -jnp.asarray(curvature, slope.dtype) / jnp.abs(steepest) * through[0]
    direction = (first.at[0, column].set(1), second.at[0, 0].set(1), *rest)
    return Saddle((first, second, *through), direction)


@checked
def rescaled_saddle(
    network: AbstractNetwork, problem: AbstractProblem, weights: Weights, factor: ScalarLike
) -> Saddle:
    """Rescaled weights where the loss curves down, the more the larger the factor a.

    The weights become (W_1 / a^2, W_2 / a^2, a W_3, W_4, ...) and the direction is (W_1, W_2, 0,
    ...). With h_i the outputs and l_i the losses per sample, both derivatives taken at h_i / a^3,

        d^T H d = (4 / a^2) mean_i l_i''[h_i, h_i] + 2 a mean_i <l_i', h_i>,

    where the last layer's sign is first chosen such that the last mean is negative for large a.
    The network must be homogeneous in each layer, hence without biases (elkabetz2021:prop10, and
    prop22 for shared weights).
    """
    _require_three_layers(network)
    require_positive("factor", factor)
    factor = jnp.asarray(factor, float)
    arrays = tuple(jnp.asarray(array) for array in weights)
    outputs = network(arrays, problem.inputs)
    agreement = jnp.sum(problem.output_gradient(jnp.zeros_like(outputs)) * outputs)
    if not is_traced(agreement) and agreement == 0:
        raise InputError(
            "`weights` must move the loss at zero output, but its gradient there is orthogonal to "
            "the outputs of the network; are a layer, the inputs or the targets zero?"
        )
    flipped = (*arrays[:-1], -jnp.sign(agreement) * arrays[-1])
    first, second, third, *rest = flipped
    scaled = (first / factor**2, second / factor**2, factor * third, *rest)
    still = (jnp.zeros_like(array) for array in (third, *rest))
    return Saddle(scaled, (first, second, *still))


def _even(depth: int) -> int:
    depth = require_count("depth", depth, least=2)
    if depth % 2:
        raise InputError(f"`depth` must be even for this construction, got {depth}.")
    return depth


def _require_memory(depth: int, width: int) -> None:
    # An array takes as much as some hundred numbers, however small it is.
    require_memory(f"A start with {depth} layers", depth * (width**2 + 100), "lower `depth`")


def _require_three_layers(network: AbstractNetwork) -> None:
    if network.depth < 3:
        raise InputError(
            f"`network` must have at least three layers, got {network.depth}; with two the "
            "curvature is bounded below."
        )


@shown
class WorstCase(eqx.Module):
    """The objective that descent can follow only with steps of order e^{-a t} (elkabetz2021:eq27).

    `a` bounds the curvature from below (it is nowhere below -a); `b` sets how far the slopes reach;
    `tolerance` is the distance to the flow that descent is to keep.
    """

    a: Scalar
    b: Scalar
    tolerance: Scalar

    def __init__(self, a: Any, b: Any, tolerance: Any):
        """Take three positive numbers."""
        for name, value in (("a", a), ("b", b), ("tolerance", tolerance)):
            require_positive(name, value)
        self.a, self.b = jnp.asarray(a, float), jnp.asarray(b, float)
        self.tolerance = jnp.asarray(tolerance, float)

    @property
    def transition(self) -> Scalar:
        """The length r within which the ridge changes its curvature."""
        return jnp.minimum(jnp.exp(-12.0) / 2, self.tolerance / (2 * self.b))

    @property
    def edges(self) -> tuple[Scalar, Scalar]:
        """Where the hill and the ridge begin to level off."""
        return self.b * jnp.exp(30.0) + 1, self.b + 1

    def __call__(self, q: Float[Array, " d"]) -> Scalar:
        """The value f(q); its gradient and Hessian are those of `jax.grad` and `jax.hessian`."""
        if q.shape[0] < 3:
            raise InputError(f"`q` must have at least three coordinates, got {q.shape[0]}.")
        far, near = self.edges
        hill = _hill(q[0], self.a, far)
        return hill + _ridge(q[1], self.a, near, self.transition) + 6 * self.a * q[2] ** 2

    def start_is_covered(self, start: Float[Array, " d"]) -> Bool[Array, ""]:
        """Whether proposition 20 speaks about the flow from here."""
        first, second, third = start[0], start[1], start[2]
        low = jnp.exp(-12.0)
        # start[1] + 1 is exact, since start[1] is within a factor of two of -1.
        inside = (second + 1 > low / 2) & (second + 1 < low)
        return (first > 0.5) & (first < 1) & inside & (third > 2)

    def window(self, start: Float[Array, " d"]) -> tuple[Scalar, Scalar]:
        """The times, first and last, for which proposition 20 bounds the step size."""
        r = self.transition
        entry = 2 * jnp.log((2 - 1.5 * r) / (start[1] + 1 - r / 2))
        least = jnp.log(2 / (1 - r))
        most = jnp.log((1 + r / 4) / (1 - 3 * r / 4)) + jnp.log(self.b)
        return (entry + least) / self.a, (entry + most) / self.a

    def least_failing_step(self, time: ScalarLike) -> Scalar:
        """The step size from which on no iterate is within `tolerance` of the flow at that time."""
        return 1e14 * jnp.exp(-self.a * time) * self.tolerance / self.a

    def flow(self, start: Float[Array, " d"], time: ScalarLike) -> Float[Array, " d"]:
        """The exact flow from a covered start; NaN once a coordinate has reached its edge.

        The second coordinate z obeys z' = a (z - z_0) / 2 up to 1 - r, then
        z' = a z + a (z - 1)^2 / (4 r) up to 1, whose solution is a tangent, then z' = a z.
        """
        a, r = self.a, self.transition
        entry = 2 / a * jnp.log((2 - 1.5 * r) / (start[1] + 1 - r / 2))
        k = jnp.sqrt(4 * r * (1 - r))
        crossing = 4 * r / (a * k) * jnp.arctan((r / k) / (1 + 2 * (r / k) ** 2))
        slow = (start[1] + 1 - r / 2) * jnp.exp(a * time / 2) + (r / 2 - 1)
        since = jnp.where(time < entry, 0, jnp.minimum(time - entry, crossing))
        angle = jnp.arctan(r / k) + a * k / (4 * r) * since
        turning = 1 - 2 * r + k * jnp.tan(angle)
        fast = jnp.exp(a * (time - entry - crossing))
        second = jnp.where(time < entry, slow, jnp.where(time < entry + crossing, turning, fast))
        first = start[0] * jnp.exp(a * time)
        far, near = self.edges
        moved = jnp.stack([first, second, start[2] * jnp.exp(-12 * a * time)])
        valid = (first <= far) & (second <= near)
        return jnp.where(valid, start.at[:3].set(moved), jnp.nan)


def _level_off(height: Array, a: Array, edge: Array) -> Array:
    """The quartic over [edge, edge + 1], as a function of the height u = edge + 1 - z."""
    return a * height**3 * (1 / 3 + edge - (1 / 4 + edge / 2) * height)


def _level_off_slope(height: Array, a: Array, edge: Array) -> Array:
    return -a * height**2 * (1 + 3 * edge - (1 + 2 * edge) * height)


def _hill_value(z: Array, a: Array, edge: Array) -> Array:
    distance = jnp.abs(z)
    height = jnp.clip(edge - distance + 1, 0, 1)
    above = jnp.maximum(edge - distance, 0) * (edge + distance)
    return a / 2 * above + _level_off(height, a, edge)


def _hill_slope(z: Array, a: Array, edge: Array) -> Array:
    height = jnp.where(jnp.abs(z) < edge + 1, edge - jnp.abs(z) + 1, 0)
    outside = jnp.sign(z) * _level_off_slope(height, a, edge)
    return jnp.where(jnp.abs(z) < edge, -a * z, outside)


def _ridge_value(z: Array, a: Array, edge: Array, r: Array) -> Array:
    top = r / 2 - 1
    beside = jnp.abs(z - top)
    mirrored = top + beside
    bend = a * jnp.clip(1 - mirrored, 0, r) ** 3 / (12 * r)
    rim = 2 - 1.5 * r  # the distance from the top at which the curvature begins to change
    slow = a / 4 * jnp.maximum(rim - beside, 0) * (rim + beside)
    return _hill_value(jnp.maximum(mirrored, 1 - r), a, edge) + bend + slow


def _ridge_slope(z: Array, a: Array, edge: Array, r: Array) -> Array:
    top = r / 2 - 1
    beside = z - top
    mirrored = top + jnp.abs(beside)
    bend = a * jnp.where(mirrored < 1, 1 - mirrored, 0) ** 2 / (4 * r)
    outside = jnp.sign(beside) * (_hill_slope(mirrored, a, edge) - bend)
    return jnp.where(jnp.abs(beside) < 2 - 1.5 * r, -a * beside / 2, outside)


def _with_slope(value: Callable[..., Array], slope: Callable[..., Array]) -> Callable[..., Array]:
    """The function with a given derivative in its first argument, and the derived one in others."""
    function = jax.custom_jvp(value)

    @function.defjvp
    def derivative(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
        z, *others = primals
        result, change = jax.jvp(
            lambda *parameters: value(z, *parameters), tuple(others), tangents[1:]
        )
        return result, slope(z, *others) * tangents[0] + change

    return function


_hill = _with_slope(_hill_value, _hill_slope)
_ridge = _with_slope(_ridge_value, _ridge_slope)
