"""The second derivative of the objective, exactly and without automatic differentiation.

For a linear network with partial products after_j W_j before_j = W (see `products`), the loss phi
of that matrix, G = grad phi(W) and a direction d = (d_1, ..., d_N) [elkabetz2021, lem. 5],

    <d, H d> = phi''(W)[T, T] + 2 <G, sum over i < j of after_j d_j W_{j-1:i+1} d_i before_i>,
    T = sum over j of after_j d_j before_j.

As a matrix (layers one after the other, each row by row) H has, for the entry (a, b) of layer j and
the entry (c, e) of layer i,

    H[(j, a, b), (i, c, e)] = phi''(W)[after_j e_a e_b^T before_j, after_i e_c e_e^T before_i]
                              + [i < j] (W_{j-1:i+1})_bc (after_j^T G before_i^T)_ae
                              + [j < i] (the same with both entries exchanged),

where the square loss makes (after_j^T after_i)_ac (2 scale before_j Sigma before_i^T)_be of the
first term. So each term is a product of two matrices between units, spread over the weights.

A network with a two-slope activation is, as long as no pre-activation changes sign, linear on each
sample with the layers D_j W_j, D_j the diagonal matrix of slopes [elkabetz2021, lem. 9, lem. 21]:
the same form then holds sample by sample. Both forms take all pairs in one pass, through

    first_j = d_j out_{j-1} + W_j first_{j-1},    second_j = d_j first_{j-1} + W_j second_{j-1}.

Where G = 0 and there is one output, H = J^T phi'' J has the same non-zero eigenvalues as
2 scale F K F^T, F^T F = Sigma, with K = J J^T = sum over k of |after_k|^2 before_k^T before_k, a
matrix of the size of the input.

[elkabetz2021] O. Elkabetz, N. Cohen, "Continuous vs. discrete optimization of deep neural
    networks", arXiv:2107.06608.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thalweg._arguments import checked
from thalweg._checks import InputError, is_traced
from thalweg._host import hosted, settled
from thalweg._typing import Matrix, Scalar, Weights
from thalweg.curvature.products import (
    largest_eigenvalue,
    linear_network,
    partial_products,
    products_without_two,
    readout_norm,
    spectral_norm,
)
from thalweg.objective import Objective
from thalweg.objective.points import at_points
from thalweg.problem import AbstractProblem

Indices = Int[np.ndarray, " size"]
Products = tuple[Float[Array, "_ _"], ...]

_ROWS_AT_ONCE = 256  # of the Hessian, so that the samples' share of memory stays below its own


@checked
def linear_hessian(objective: Objective, weights: Weights) -> Float[Array, "size size"]:
    """The dense Hessian of a linear network, on any problem."""
    network = linear_network(objective, "`linear_hessian`")
    layers = tuple(jnp.asarray(array) for array in weights)
    after, before = partial_products(network, layers)
    product = after[0] @ layers[0]
    outer = jnp.concatenate(after, axis=1).T @ objective.problem.gradient(product)
    rows, columns = _units(network.shapes)
    mixed = _spread(_between(layers), columns, rows) * _spread(
        outer @ jnp.concatenate(before).T, rows, columns
    )
    hessian = _loss_part(objective.problem, product, after, before) + (mixed + mixed.T)
    return hessian + objective.weight_decay * jnp.eye(network.size, dtype=hessian.dtype)


@checked
def linear_form(objective: Objective, weights: Weights, direction: Weights) -> Scalar:
    """<d, H d> of a linear network on any problem [elkabetz2021, lem. 5]."""
    network = linear_network(objective, "`linear_form`")
    network.check(weights)
    network.check(direction)
    layers = tuple(jnp.asarray(array) for array in weights)
    changes = tuple(jnp.asarray(array) for array in direction)
    product = jnp.eye(network.features, dtype=layers[0].dtype)
    first = second = jnp.zeros_like(product)
    for layer, change in zip(layers, changes, strict=True):
        second = change @ first + layer @ second
        first = change @ product + layer @ first
        product = layer @ product
    if network.readout is not None:
        product, first, second = (network.readout.T @ each for each in (product, first, second))
    problem = objective.problem
    loss = jnp.sum(first * problem.hessian_action(product, first))
    return loss + 2 * jnp.sum(problem.gradient(product) * second) + _decay_form(objective, changes)


@checked
def region_form(objective: Objective, weights: Weights, direction: Weights) -> Scalar:
    """<d, H d> of a network with a two-slope activation, on the region of the weights.

    On the boundary of regions, where a pre-activation is zero, the slope below is taken.
    """
    network = objective.network.layered
    if network is None:
        raise InputError(
            "`region_form` needs a HomogeneousNetwork or a SharedNetwork, got "
            f"{type(objective.network).__name__}; a LinearNetwork has `linear_form`."
        )
    network.check(weights)
    network.check(direction)
    changes = tuple(jnp.asarray(array) for array in direction)
    out = objective.problem.inputs
    first = second = jnp.zeros_like(out)
    for index, layer in enumerate(network.layers):
        weight, change = jnp.asarray(weights[index]), changes[index]
        second = layer(change, first) + layer(weight, second)
        first = layer(change, out) + layer(weight, first)
        out = layer(weight, out)
        if index < network.depth - 1:
            slopes = jnp.where(out > 0, *(slope.astype(out.dtype) for slope in network.slopes))
            out, first, second = slopes * out, slopes * first, slopes * second
    problem = objective.problem
    loss = jnp.sum(first * problem.output_hessian_action(out, first))
    mixed = 2 * jnp.sum(problem.output_gradient(out) * second)
    return loss + mixed + _decay_form(objective, changes)


@checked
def reduced_sharpness(objective: Objective, weights: Weights, *, tolerance: float = 1e-6) -> Scalar:
    """The largest eigenvalue of the Hessian at a minimiser, by an eigenproblem of the input's size.

    For a linear network with one output on the square loss. What is left out of the Hessian has the
    spectral norm |G| lambda_max(C) at most (`products`), which is zero at a minimiser; the result
    is off by no more than that.

    Args:
        objective: the network on its regression.
        weights: the minimiser, or any other point where the gradient G of the loss with respect to
            the end-to-end matrix vanishes.
        tolerance: how large that norm may be, as a part of the result. Where it is larger the point
            is refused; inside of `jax.jit`, where nothing can be refused, the result is NaN.
    """
    network = linear_network(objective, "`reduced_sharpness`")
    problem = objective.problem
    if problem.least_squares is None or problem.shape[0] != 1:
        raise InputError(
            "`reduced_sharpness` needs a Regression or a TargetMatrix with one output, got "
            f"{type(problem).__name__} with {problem.shape[0]}."
        )
    network.check(weights)
    if any(is_traced(array) for array in jax.tree.leaves((objective, weights))):
        sharpness, slope, pairs = _sharpness_without_mixed_terms(objective, weights)
    else:
        alone = tuple(np.asarray(array)[None] for array in weights)
        found = at_points(_sharpness_without_mixed_terms, objective, alone)
        sharpness, slope, pairs = (float(each[0]) for each in found)
    stationary = slope * pairs <= tolerance * sharpness
    if not is_traced(stationary) and not stationary:
        raise InputError(
            "`weights` must be a minimiser, where the loss is stationary in the end-to-end matrix: "
            f"its gradient there has norm {float(slope):.3g}, which may change the sharpness "
            f"{float(sharpness):.3g} by {float(slope * pairs):.3g}; use the spectrum of the "
            "Hessian instead, or a larger `tolerance`."
        )
    library, (found, decay) = hosted(sharpness, objective.weight_decay)
    return settled(library.where(stationary, found, library.nan) + decay)


def _sharpness_without_mixed_terms(
    objective: Objective, weights: Weights
) -> tuple[Scalar, Scalar, Scalar]:
    """The largest eigenvalue of J^T phi'' J, |G|, and lambda_max(C) times the readout's norm."""
    network = linear_network(objective, "`reduced_sharpness`")
    problem = objective.problem.least_squares
    assert problem is not None  # as `reduced_sharpness` has checked
    layers = tuple(jnp.asarray(array) for array in weights)
    after, before = partial_products(network, layers)
    parts = [jnp.sum(a**2) * b.T @ b for a, b in zip(after, before, strict=True)]
    factor = problem.input_factor
    kernel = factor @ sum(parts[1:], parts[0]) @ factor.T
    sharpness = 2 * problem.scale * largest_eigenvalue(kernel)
    slope = jnp.linalg.norm(problem.gradient(after[0] @ layers[0]))
    norms = jnp.stack([spectral_norm(layer) for layer in layers])
    pairs = largest_eigenvalue(products_without_two(norms)) * readout_norm(network)
    return sharpness, slope, pairs


def _units(shapes: Sequence[tuple[int, ...]]) -> tuple[Indices, Indices]:
    """For each weight the unit that it leads to and the unit that it comes from.

    Those that weights lead to are counted from the first layer's outputs on, those that they come
    from from the network's inputs on.
    """
    rows, columns = [], []
    above = below = 0
    for outputs, features in shapes:
        row, column = np.indices((outputs, features))
        rows.append(above + row.ravel())
        columns.append(below + column.ravel())
        above, below = above + outputs, below + features
    return np.concatenate(rows), np.concatenate(columns)


def _spread(matrix: Matrix, rows: Indices, columns: Indices) -> Float[Array, "size size"]:
    """The matrix between units as one between weights."""
    return matrix[rows][:, columns]  # in two steps, which is faster than in one


def _between(layers: tuple[Float[Array, "_ _"], ...]) -> Matrix:
    """W_{j-1} ... W_{i+1} in the rows of layer j's inputs and the columns of layer i's outputs."""
    total = sum(layer.shape[0] for layer in layers)
    products = jnp.zeros((layers[0].shape[1], 0), layers[0].dtype)
    rows = []
    for layer in layers:
        rows.append(jnp.pad(products, ((0, 0), (0, total - products.shape[1]))))
        eye = jnp.eye(layer.shape[0], dtype=layer.dtype)
        products = jnp.concatenate([layer @ products, eye], axis=1)
    return jnp.concatenate(rows)


def _loss_part(
    problem: AbstractProblem, product: Matrix, after: Products, before: Products
) -> Float[Array, "size size"]:
    """J^T phi'' J, with the Jacobian J of the end-to-end matrix."""
    shapes = [(above.shape[1], below.shape[0]) for above, below in zip(after, before, strict=True)]
    squared = problem.least_squares
    if squared is not None:
        rows, columns = _units(shapes)
        upper, lower = jnp.concatenate(after, axis=1), jnp.concatenate(before)
        images = squared.image(lower)
        upper, lower = upper.T @ upper, 2 * squared.scale * images @ images.T
        return _spread(_symmetric(upper), rows, rows) * _spread(_symmetric(lower), columns, columns)
    pairs = list(zip(after, before, strict=True))
    images = _images(problem, product, jnp.concatenate([_jacobian(*pair) for pair in pairs]))
    blocks = [
        jnp.einsum("oa,cof,bf->abc", above, images, below, optimize="optimal")
        for above, below in pairs
    ]
    return _symmetric(jnp.concatenate([block.reshape(-1, images.shape[0]) for block in blocks]))


def _jacobian(
    after: Float[Array, "outputs units"], before: Float[Array, "units_below features"]
) -> Float[Array, "layer_size outputs features"]:
    """after_j e_a e_b^T before_j for each entry (a, b) of a layer."""
    changes = jnp.einsum("oa,bf->abof", after, before)
    return changes.reshape(-1, *changes.shape[2:])


def _images(
    problem: AbstractProblem, product: Matrix, directions: Float[Array, "size outputs features"]
) -> Float[Array, "size outputs features"]:
    """What phi'' makes of each direction, through a basis where that has fewer members."""

    def apply(
        each: Float[Array, "count outputs features"],
    ) -> Float[Array, "count outputs features"]:
        return jax.lax.map(
            lambda direction: problem.hessian_action(product, direction),
            each,
            batch_size=_ROWS_AT_ONCE,
        )

    if directions.shape[0] <= product.size:
        return apply(directions)
    basis = jnp.eye(product.size, dtype=product.dtype).reshape(-1, *product.shape)
    matrix = apply(basis).reshape(product.size, product.size)
    return (directions.reshape(-1, product.size) @ matrix).reshape(directions.shape)


def _symmetric(matrix: Float[Array, "size size"]) -> Float[Array, "size size"]:
    return (matrix + matrix.T) / 2


def _decay_form(objective: Objective, changes: Weights) -> Scalar:
    return objective.weight_decay * sum(
        (jnp.sum(jnp.asarray(change) ** 2) for change in changes), start=jnp.zeros(())
    )
