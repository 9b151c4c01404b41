"""Regions on which a network with a two-slope activation is a polynomial of its weights.

A region is the set of weights with the same signs of all pre-activations z on all samples; there
each z is linear in every layer [elkabetz2021, prop. 25 and 26], and the region is closed under
positive rescaling of layers. A unit is *infeasible* on a sample if all that it is tied to is zero:
its z is then zero throughout the region and draws no boundary. Weights are *regular* if no other z
is zero.

How far is the boundary? Up to the first sign change along a segment of length r, a pre-activation z
of layer j changes by at most

    |grad z| r + B_j(r) |x| r^2 / 2,    B_j(r) = a^{j-1} lambda_max(C_j),

where a bounds the moduli of the slopes and C_j is the matrix, for the layers up to j, of products
of the layers' norms |W_k|_s + p_k r that leave out two, times the norms p_k of w_k -> W_k(w_k) of
those two. So no sign changes at a distance r at which this is less than |z| for all units and
samples. The largest such r is found by bisection; to first order in the margins it is the distance
itself. A step along the gradient of the nearest z bounds the distance from above.

[elkabetz2021] O. Elkabetz, N. Cohen, "Continuous vs. discrete optimization of deep neural
    networks", arXiv:2107.06608.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thalweg._arguments import checked
from thalweg._bisection import bisected_in_lanes
from thalweg._checks import InputError
from thalweg._typing import Scalar, Weights
from thalweg.curvature.products import largest_eigenvalue, products_without_two, spectral_norm
from thalweg.network import AbstractLayer, AbstractNetwork, Dense, LayeredNetwork
from thalweg.network.layered import two_slope_activation

Inputs = Float[Array, "samples features"]
Arrays = tuple[Float[Array, "..."], ...]

_BISECTIONS = 60  # halve an interval that starts at zero down to rounding
_NUMBERS_AT_ONCE = 2**22  # of the gradients of pre-activations: 32 MB
# How far to go along the nearest gradient, as multiples of the first-order distance.
_STRETCHES = (1.0 + 1e-9, 1.001, 1.01, 1.03, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


class BoundaryDistance(NamedTuple):
    """Between which numbers the distance to the nearest sign change lies.

    `upper` is infinite where a step along the nearest gradient did not meet one.
    """

    lower: Scalar
    upper: Scalar


@checked
def activation_pattern(
    network: AbstractNetwork, weights: Weights, x: Inputs
) -> tuple[Bool[Array, "samples _"], ...]:
    """Which pre-activations are positive, for each hidden layer, sample and unit."""
    layers, network = _layers(network, x)
    return tuple(z > 0 for z, _ in _pre_activations(layers, network, weights, x))


@checked
def is_regular(network: AbstractNetwork, weights: Weights, x: Inputs) -> Bool[Array, ""]:
    """Whether no feasible pre-activation is zero, so that the loss is smooth around the weights."""
    layers, network = _layers(network, x)
    hidden = _pre_activations(layers, network, weights, x)
    return jnp.all(jnp.stack([jnp.all((z != 0) | ~feasible) for z, feasible in hidden] or [True]))


@checked
def distance_to_boundary(network: AbstractNetwork, weights: Weights, x: Inputs) -> BoundaryDistance:
    """Bounds on the Euclidean distance in weight space to the nearest sign change on the samples.

    Both are exact but for rounding: between the weights and any others within `lower` no
    pre-activation changes its sign, and there are weights at the distance `upper` where one does.
    """
    layers, network = _layers(network, x)
    weights = tuple(jnp.asarray(array) for array in weights)
    x = jnp.asarray(x)
    if network.depth == 1:  # no activation, no boundary
        return BoundaryDistance(jnp.asarray(jnp.inf), jnp.asarray(jnp.inf))
    hidden = _pre_activations(layers, network, weights, x)
    margins = [jnp.where(feasible, jnp.abs(z), jnp.inf) for z, feasible in hidden]
    slopes = _slopes(layers, network, weights, x)
    first_order = jnp.concatenate(
        [
            margin / jnp.where(slope > 0, slope, 1.0)
            for margin, slope in zip(margins, slopes, strict=True)
        ],
        axis=1,
    )
    nearest = jnp.min(first_order)
    sizes = jnp.linalg.norm(x, axis=1)[:, None]

    def is_clear(radius: Scalar) -> Bool[Array, ""]:
        curvatures = _curvatures(layers, network, weights, radius)
        changes = [
            slope * radius + curved * sizes * radius**2 / 2
            for slope, curved in zip(slopes, curvatures, strict=True)
        ]
        return jnp.all(jnp.concatenate(changes, axis=1) < jnp.concatenate(margins, axis=1))

    limit = jnp.where(jnp.isinf(nearest), 0.0, nearest)
    lower, _ = bisected_in_lanes(is_clear, jnp.zeros_like(limit), limit, halvings=_BISECTIONS)
    return BoundaryDistance(
        lower=jnp.where(jnp.isinf(nearest), jnp.inf, lower),
        upper=_step_across(layers, network, weights, x, first_order),
    )


def _layers(
    network: AbstractNetwork, x: Inputs
) -> tuple[tuple[AbstractLayer, ...], LayeredNetwork]:
    """The linear maps of a network that takes x, and the network itself with its activation."""
    if x.shape[1] != network.features:
        raise InputError(
            f"`x` must have one column for each of the network's {network.features} inputs, got "
            f"shape {x.shape}."
        )
    layered = network.layered
    if layered is None:
        raise InputError(
            "Regions need a network of layers with a two-slope activation, a HomogeneousNetwork or "
            f"a SharedNetwork, got {type(network).__name__}."
        )
    return layered.layers, layered


def _pre_activations(
    layers: tuple[AbstractLayer, ...], network: LayeredNetwork, weights: Weights, x: Inputs
) -> list[tuple[Float[Array, "samples _"], Bool[Array, "samples _"]]]:
    """The pre-activations of each hidden layer, and which of them are feasible."""
    hidden, x = [], jnp.asarray(x)
    for layer, weight in zip(layers[:-1], weights, strict=False):
        weight = jnp.asarray(weight)
        z = layer(weight, x)
        tied = layer(jnp.ones_like(weight), (x != 0).astype(x.dtype))
        hidden.append((z, tied > 0.5))  # a count, but for the rounding of convolutions
        x = two_slope_activation(z, network.slopes)
    return hidden


def _slopes(
    layers: tuple[AbstractLayer, ...], network: LayeredNetwork, weights: Arrays, x: Inputs
) -> tuple[Float[Array, "samples _"], ...]:
    """|grad z| of each pre-activation on each sample, within the region."""

    def on_sample(sample: Float[Array, " features"]) -> tuple[Float[Array, " _"], ...]:
        inputs, masks = [sample], []
        for layer, weight in zip(layers[:-1], weights, strict=False):
            z = layer(weight, inputs[-1][None])[0]
            masks.append(jnp.where(z > 0, *(slope.astype(z.dtype) for slope in network.slopes)))
            inputs.append(masks[-1] * z)
        norms = []
        for j, mask in enumerate(masks):
            back, squares = jnp.eye(mask.shape[0], dtype=mask.dtype), jnp.zeros_like(mask)
            for k in range(j, -1, -1):
                square, back = _pull_back(layers[k], weights[k], inputs[k], back)
                squares += square
                back = back * masks[k - 1] if k else back
            norms.append(jnp.sqrt(squares))
        return tuple(norms)

    widest = max(layer.outputs for layer in layers[:-1])
    chunk = max(1, _NUMBERS_AT_ONCE // (widest * max(network.size, widest)))
    return jax.lax.map(on_sample, x, batch_size=min(chunk, x.shape[0]))


def _pull_back(
    layer: AbstractLayer,
    weight: Float[Array, "..."],
    below: Float[Array, " features"],
    back: Float[Array, "units outputs"],
) -> tuple[Float[Array, " units"], Float[Array, "units features"]]:
    """The squared slopes of <back, W(w) below> in w, and its slopes in what is below."""
    if isinstance(layer, Dense):  # the slope in w is an outer product
        return jnp.sum(back**2, axis=1) * jnp.sum(below**2), back @ weight
    _, transposed = jax.vjp(lambda w, h: layer(w, h[None])[0], weight, below)
    in_weight, in_below = jax.vmap(transposed)(back)
    return jnp.sum(in_weight.reshape(back.shape[0], -1) ** 2, axis=1), in_below


def _curvatures(
    layers: tuple[AbstractLayer, ...], network: LayeredNetwork, weights: Arrays, radius: Scalar
) -> list[Scalar]:
    """B_j(radius) for each hidden layer j."""
    operators = jnp.asarray([layer.operator_norm for layer in layers[:-1]])
    pairs = zip(layers[:-1], weights, strict=False)
    norms = jnp.stack([spectral_norm(layer.matrix(weight)) for layer, weight in pairs])
    bounds = []
    for j in range(1, len(layers)):
        products = products_without_two(norms[:j] + operators[:j] * radius)
        matrix = operators[:j, None] * operators[:j] * products
        bounds.append(network.largest_slope ** (j - 1) * largest_eigenvalue(matrix))
    return bounds


def _step_across(
    layers: tuple[AbstractLayer, ...],
    network: LayeredNetwork,
    weights: Arrays,
    x: Inputs,
    first_order: Float[Array, "samples units"],
) -> Scalar:
    """The length of a step along the nearest gradient after which a sign has changed."""

    def all_of(point: Arrays) -> Float[Array, "samples units"]:
        hidden = _pre_activations(layers, network, point, x)
        return jnp.concatenate([z for z, _ in hidden], axis=1)

    index = jnp.argmin(first_order)
    nearest = first_order.ravel()[index]
    value, slope = jax.value_and_grad(lambda point: all_of(point).ravel()[index])(weights)
    size = jnp.sqrt(sum(jnp.sum(array**2) for array in slope))
    pattern = all_of(weights) > 0

    def length(stretch: Scalar) -> Scalar:
        step = jnp.where(jnp.isinf(nearest), 0.0, stretch * nearest)
        factor = -jnp.where(value > 0, 1.0, -1.0) * step / jnp.where(size > 0, size, 1.0)
        moved = jax.tree.map(lambda array, change: array + factor * change, weights, slope)
        changed = jnp.any((all_of(moved) > 0) != pattern)
        return jnp.where(changed, step, jnp.inf)

    lengths = jax.lax.map(length, jnp.asarray(_STRETCHES))
    return jnp.where(nearest == 0, 0.0, jnp.min(lengths))
