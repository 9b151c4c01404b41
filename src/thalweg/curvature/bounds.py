"""Bounds on the Hessian at a point, as functions of norms [elkabetz2021].

With depth N, layers W_j, the gradient G of the loss with respect to their product, spectral norms
|.|_s, and the matrix C of products of norms that leave out two (`products`):

    lambda_min(H) >= -(N - 1) sqrt(min{d_0, d_N}) |G|_F (the N - 2 largest |W_j|_s)    lem. 7
                  >= -|G|_s lambda_max(C)                                             sharper

The second holds because |<G, A X B Y D>| <= |G|_s |A X B Y D|_nuclear. On a region of a network
with slopes of modulus a at most, gradients g_i of the samples' losses, and p_j the norm of w_j ->
W_j(w_j),

    lambda_min(H) >= -a^{N-1} (N - 1) mean_i |g_i| |x_i| prod_j p_j (the N - 2 largest |w_j|)
                  >= -a^{N-1} mean_i |g_i| |x_i| lambda_max(C'),    C'_jk = p_j p_k C_jk  sharper

(lem. 11 and 23). On the flow from a start of norm eps the products are bounded by the end-to-end
matrix, or by the smallest layer (prop. 8, 12 and 24). Upper bounds (lem. 62, extended to any convex
loss with |phi''| <= h):

    |grad f| <= sqrt(N) |G|_F (the N - 1 largest |W_j|_F)
             <= |G|_F sqrt(sum_j prod_{i != j} |W_i|_s^2)                              sharper
    |H| <= N h (the N - 1 largest |W_j|_F)^2 + 2 N |G|_F (the N - 2 largest |W_j|_F)
        <= h sum_j prod_{i != j} |W_i|_s^2 + |G|_s lambda_max(C)                       sharper

Of the Hessian's bound the paper proves the upper side; the lower one is the first bound above.
For linear networks `balls.ball_bounds` with radius zero is sharper again, and far sharper for deep
ones: it takes norms of products for products of norms. A fixed readout is part of G and h; weight
decay shifts every eigenvalue.

[elkabetz2021] O. Elkabetz, N. Cohen, "Continuous vs. discrete optimization of deep neural
    networks", arXiv:2107.06608.
"""

from math import sqrt
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from thalweg._arguments import checked
from thalweg._checks import InputError, is_traced, require_positive
from thalweg._shown import shown
from thalweg._typing import Scalar, Weights
from thalweg.curvature.balls import loss_bounds
from thalweg.curvature.products import (
    largest_eigenvalue,
    largest_product,
    linear_network,
    products_without_one,
    products_without_two,
    readout_norm,
    spectral_norm,
)
from thalweg.network import LayeredNetwork, LinearNetwork
from thalweg.objective import Objective


@shown
class Bounds(NamedTuple):
    """The bound of the paper, and a sharper one under the same assumptions."""

    paper: Scalar
    sharper: Scalar


@checked
def smallest_eigenvalue_bounds(objective: Objective, weights: Weights) -> Bounds:
    """Lower bounds on the smallest eigenvalue of the Hessian.

    For linear networks elkabetz2021:lem7 (claim27 is its case of two layers), for networks with a
    two-slope activation lem11 and lem23, on the region of the weights.
    """
    network = objective.network.linear
    depth, decay = objective.network.depth, objective.weight_decay
    if network is not None:
        slope, norms = _pulled_back_gradient(network, objective, weights), _spectral(weights)
        dimensions = sqrt(min(network.widths[0], network.widths[-1]))
        largest = (depth - 1) * dimensions * largest_product(norms, depth - 2)
        pairs = largest_eigenvalue(products_without_two(norms))
        return Bounds(
            decay - largest * jnp.linalg.norm(slope), decay - pairs * spectral_norm(slope)
        )
    layered = _layered(objective)
    common = _sample_factor(layered, objective, weights)
    operators = jnp.asarray(layered.operator_norms)
    largest = (depth - 1) * largest_product(_frobenius(weights), depth - 2)
    norms = _spectral(layered.matrices(weights))
    without = operators[:, None] * operators * products_without_two(norms)
    return Bounds(
        decay - common * jnp.prod(operators) * largest, decay - common * largest_eigenvalue(without)
    )


@checked
def flow_eigenvalue_bound(
    objective: Objective, weights: Weights, start_radius: ScalarLike
) -> Scalar:
    """A lower bound on the smallest eigenvalue, at weights on a flow from near zero.

    elkabetz2021:prop8 for linear networks, which needs a start radius of at most 1 / (2 N); prop12
    and prop24 for networks with a two-slope activation.

    Args:
        objective: without weight decay, under which the flow would not conserve what is used.
        weights: a point on the flow.
        start_radius: what the Euclidean norm of the flow's start is below.
    """
    network, depth = objective.network.linear, objective.network.depth
    require_positive("start_radius", start_radius)
    start_radius = jnp.asarray(start_radius)
    _require_conservation(objective)
    if network is None:
        layered = _layered(objective)
        operators = jnp.prod(jnp.asarray(layered.operator_norms))
        common = _sample_factor(layered, objective, weights) * operators
        reached = jnp.min(_frobenius(weights)) + start_radius
        return -common * (depth - 1) * reached ** (depth - 2)
    if not is_traced(start_radius) and not start_radius <= 1 / (2 * depth):
        raise InputError(
            f"`start_radius` must be at most 1 / (2 depth) = {1 / (2 * depth):g} for a linear "
            f"network, got {start_radius}."
        )
    slope = jnp.linalg.norm(_pulled_back_gradient(network, objective, weights))
    common = (depth - 1) * sqrt(min(network.widths[0], network.widths[-1])) * slope
    product = jnp.asarray(weights[0])
    for layer in weights[1:]:
        product = jnp.asarray(layer) @ product
    power = 1 - 2 / depth
    largest = jnp.maximum(1.0, jnp.max(_spectral(weights))) ** (2 * (depth - 2))
    unbalanced = 4 * depth * (4 * depth) ** (-2 / depth) * largest * start_radius**power
    return -common * (spectral_norm(product) ** power + unbalanced)


@checked
def shallow_eigenvalue_bound(objective: Objective) -> Scalar:
    """A lower bound on the smallest eigenvalue at all weights of a network with two layers.

    elkabetz2021:claim27, claim28 and claim29: -c a p_1 p_2 mean_i |x_i| where the gradient of the
    loss is bounded by c, its `largest_gradient`.
    """
    network, problem = objective.network, objective.problem
    if network.depth != 2:
        raise InputError(
            f"The bound at all weights needs two layers, got {network.depth}; with more the "
            "curvature is unbounded below."
        )
    steepest = problem.largest_gradient
    if steepest is None:
        raise InputError(
            "The bound at all weights needs a loss with a bounded gradient, as cross-entropy and "
            f"the logistic loss have one; the loss {problem.loss_name!r} declares none "
            "(`largest_gradient`)."
        )
    mean = jnp.mean(jnp.linalg.norm(problem.inputs, axis=1))
    linear = network.linear
    if linear is not None:
        return objective.weight_decay - steepest * readout_norm(linear) * mean
    layered = _layered(objective)
    factor = layered.largest_slope * jnp.prod(jnp.asarray(layered.operator_norms))
    return objective.weight_decay - steepest * factor * mean


@checked
def gradient_norm_bounds(objective: Objective, weights: Weights) -> Bounds:
    """Upper bounds on the norm of the gradient of a linear network (elkabetz2021:lem62)."""
    network = linear_network(objective, "`gradient_norm_bounds`")
    slope = jnp.linalg.norm(_pulled_back_gradient(network, objective, weights))
    sizes = _frobenius(weights)
    decay = objective.weight_decay * jnp.linalg.norm(sizes)
    largest = sqrt(network.depth) * largest_product(sizes, network.depth - 1)
    each = jnp.linalg.norm(products_without_one(_spectral(weights)))
    return Bounds(slope * largest + decay, slope * each + decay)


@checked
def hessian_norm_bounds(objective: Objective, weights: Weights) -> Bounds:
    """Upper bounds on the spectral norm of the Hessian of a linear network (elkabetz2021:lem62)."""
    network = linear_network(objective, "`hessian_norm_bounds`")
    depth, sizes, norms = network.depth, _frobenius(weights), _spectral(weights)
    slope = _pulled_back_gradient(network, objective, weights)
    loss = loss_bounds(objective.problem, network.end_to_end(weights), 0.0).second
    curved = loss * readout_norm(network) ** 2
    printed = depth * curved * largest_product(sizes, depth - 1) ** 2
    printed += 2 * depth * jnp.linalg.norm(slope) * largest_product(sizes, depth - 2)
    sharper = curved * jnp.sum(products_without_one(norms) ** 2)
    sharper += spectral_norm(slope) * largest_eigenvalue(products_without_two(norms))
    return Bounds(printed + objective.weight_decay, sharper + objective.weight_decay)


def _require_conservation(objective: Objective) -> None:
    """Refuse what conserves no balance between layers along its flow."""
    if not is_traced(objective.weight_decay) and objective.weight_decay > 0:
        raise InputError(
            "`objective` must have no weight decay, under which the flow does not conserve the "
            f"balance of the layers, got {float(objective.weight_decay):g}."
        )
    if objective.network.depth < 2:
        raise InputError("The bound along a flow needs at least two layers, got one.")


def _pulled_back_gradient(
    network: LinearNetwork, objective: Objective, weights: Weights
) -> Float[Array, "last features"]:
    """The gradient of the loss with respect to the product of the layers, before the readout."""
    network.check(weights)
    slope = objective.problem.gradient(network.end_to_end(weights))
    return slope if network.readout is None else network.readout @ slope


def _spectral(matrices: Weights) -> Float[Array, " depth"]:
    return jnp.stack([spectral_norm(jnp.asarray(matrix)) for matrix in matrices])


def _frobenius(weights: Weights) -> Float[Array, " depth"]:
    return jnp.stack([jnp.linalg.norm(jnp.ravel(jnp.asarray(array))) for array in weights])


def _layered(objective: Objective) -> LayeredNetwork:
    layered = objective.network.layered
    if layered is None:
        raise InputError(
            "The bound on the smallest eigenvalue needs a LinearNetwork, a HomogeneousNetwork or a "
            f"SharedNetwork, got {type(objective.network).__name__}."
        )
    return layered


def _sample_factor(network: LayeredNetwork, objective: Objective, weights: Weights) -> Scalar:
    """a^{N-1} mean_i |g_i| |x_i|."""
    network.check(weights)
    problem = objective.problem
    slopes = problem.output_gradient(network(weights, problem.inputs))  # with the mean's 1 / n
    sizes = jnp.linalg.norm(slopes, axis=1) * jnp.linalg.norm(problem.inputs, axis=1)
    return network.largest_slope ** (network.depth - 1) * jnp.sum(sizes)
