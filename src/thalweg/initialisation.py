"""Where descent begins: random, balanced, residual and degenerate starts.

    gaussian         every entry from N(0, scale^2)
    balanced         W_N ... W_1 = A with entries from N(0, scale^2), and no imbalance
    residual         W_k = I + scale / sqrt(N d) N_k, with N_k standard Gaussian
    xavier_uniform   every entry from U(+-sqrt(6 / (fan_in + fan_out)))
    pytorch_default  every entry from U(+-1 / sqrt(fan_in))

A linear network is balanced if W_{j+1}^T W_{j+1} = W_j W_j^T for all j. With the thin singular
value decomposition A = U S V^T, the weights

    W_1 = S^{1/N} V^T,    W_j = S^{1/N},    W_N = U S^{1/N},    each padded with zeros,

are balanced with product A (arora2019, procedure 1; elkabetz2021, procedure 13).

Any function `draw(network, scale, *, key)` is a distribution of starts like these; `register` gives
it a name by which experiments and sweeps know it.

Scales and keys may be traced: `jax.vmap(lambda s, k: gaussian(network, s, key=k))(scales, keys)`.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from thalweg._arguments import checked
from thalweg._checks import InputError, as_floating, chained, described, is_traced
from thalweg._drawing import Keys, normal, split
from thalweg._sizes import require_memory
from thalweg._typing import Weights
from thalweg.network import AbstractNetwork

__all__ = [
    "Draw",
    "aligned",
    "balanced",
    "balanced_from",
    "forget",
    "gaussian",
    "identity",
    "many",
    "nearest_balanced",
    "one_zero_layer",
    "pytorch_default",
    "register",
    "registered",
    "residual",
    "unbalanced",
    "xavier_uniform",
]


def __dir__() -> list[str]:
    return __all__


_Layer = Float[Array, "_ _"]
"""A matrix among others of other shapes."""

Draw = Callable[..., Weights]
"""Takes a network, a scale and, by name, a random key; gives weights of the network's shapes."""

_registered: dict[str, Draw] = {}


@checked
def register(name: str, draw: Draw) -> None:
    """Let experiments start from a distribution of one's own: `kind = "registered"` in [start].

    In this process: on a cluster, workers must register it, too.
    """
    if not name or name in _registered:
        taken = ", ".join(sorted(_registered)) or "none"
        raise InputError(f"`name` must be new and not empty (registered: {taken}), got {name!r}.")
    _registered[name] = draw


@checked
def forget(name: str) -> None:
    """Take back a distribution that was registered."""
    registered(name)
    del _registered[name]


@checked
def registered(name: str) -> Draw:
    """The distribution of this name."""
    if name not in _registered:
        known = ", ".join(sorted(_registered)) or "none"
        raise InputError(
            f"The initialisation {name!r} must be registered in this process (registered: {known}):"
            " call tw.initialisation.register(name, draw) first."
        )
    return _registered[name]


@checked
def gaussian(network: AbstractNetwork, scale: ScalarLike, *, key: PRNGKeyArray) -> Weights:
    """Independent entries from N(0, scale^2)."""
    _require_room(network)
    _require_no_less("scale", scale, 0.0)
    return _gaussian(network, scale, key)


@checked
def balanced(network: AbstractNetwork, scale: ScalarLike, *, key: PRNGKeyArray) -> Weights:
    """Balanced weights whose product has independent entries from N(0, scale^2)."""
    _require_no_less("scale", scale, 0.0)
    outputs, features = _product_shape("balanced", network)
    return balanced_from(network, scale * normal(key, (outputs, features)))


@checked
def balanced_from(network: AbstractNetwork, matrix: Any) -> Weights:
    """Balanced weights whose product is the given matrix; a vector means one output.

    Singular values that rounding cannot tell from zero are taken as zero, so that a matrix of low
    rank has factors of that rank.
    """
    shape = _product_shape("balanced_from", network)
    product = as_floating("matrix", matrix)
    product = product[None] if product.ndim == 1 else product
    _require_room(network)
    if product.shape != shape:
        raise InputError(
            f"`matrix` must have the shape of the network's product, {shape}, got {product.shape}; "
            "is it transposed?"
        )
    if network.depth == 1:
        return (product,)
    left, values, right = _signed_svd(product)
    _require_width(network, values)
    roots = values ** (1 / network.depth)
    first, *hidden, last = network.shapes
    return (
        _padded(roots[:, None] * right, first),
        *(_padded(jnp.diag(roots), shape) for shape in hidden),
        _padded(left * roots[None], last),
    )


@checked
def aligned(network: AbstractNetwork, norm: ScalarLike, cosine: ScalarLike, target: Any) -> Weights:
    """Balanced weights of one output whose product has a given norm and cosine to the target.

    The part across the target lies along the first coordinate axis that the target uses least.
    """
    outputs, features = _product_shape("aligned", network)
    vector = as_floating("target", target).reshape(-1)
    if outputs != 1 or vector.shape != (features,):
        raise InputError(
            "`aligned` needs one output and a target with one entry per feature, got "
            f"{outputs} outputs, {features} features and {vector.size} entries."
        )
    _require_no_less("norm", norm, 0.0)
    _require_cosine(cosine, vector)
    along = vector / jnp.linalg.norm(vector)
    axis = jax.nn.one_hot(jnp.argmin(jnp.abs(along)), features, dtype=along.dtype)
    across = axis - jnp.vdot(axis, along) * along
    across = across / jnp.maximum(jnp.linalg.norm(across), jnp.finfo(across.dtype).tiny)
    sine = jnp.sqrt((1 - cosine) * (1 + jnp.asarray(cosine)))
    return balanced_from(network, norm * (cosine * along + sine * across))


@checked
def residual(network: AbstractNetwork, scale: ScalarLike, *, key: PRNGKeyArray) -> Weights:
    """W_k = I + scale / sqrt(N d) N_k for N square layers of width d, with Gaussian N_k."""
    _require_room(network)
    _require_no_less("scale", scale, 0.0)
    return _residual(network, scale, key)


@checked
def identity(network: AbstractNetwork) -> Weights:
    """Ones on the diagonal of every layer, square or not, and zeros elsewhere."""
    _require_room(network)
    if any(len(shape) != 2 for shape in network.shapes):
        raise InputError(f"`identity` needs layers that are matrices, got shapes {network.shapes}.")
    return tuple(jnp.eye(shape[0], shape[1]) for shape in network.shapes)


@checked
def unbalanced(network: AbstractNetwork, product: ScalarLike, factor: ScalarLike) -> Weights:
    """Identity layers but for their first entries, whose product is given and out of balance.

    With N layers, N even, these are factor * product^(1/N) in the first half of the layers and
    product^(1/N) / factor in the second. `factor` 1 is balanced; a large one is the start of
    arora2019's claim 4.
    """
    _require_room(network)
    if len(network.shapes) % 2 or any(len(shape) != 2 for shape in network.shapes):
        raise InputError(
            "`unbalanced` needs an even number of layers, all matrices, got shapes "
            f"{network.shapes}; take one layer more."
        )
    base = jnp.asarray(product, float) ** (1 / len(network.shapes))
    half = len(network.shapes) // 2
    entries = [base * factor] * half + [base / factor] * half
    layers = zip(identity(network), entries, strict=True)
    return tuple(jnp.asarray(layer).at[0, 0].set(entry) for layer, entry in layers)


@checked
def xavier_uniform(network: AbstractNetwork, *, key: PRNGKeyArray) -> Weights:
    """Entries from U(+-sqrt(6 / (fan_in + fan_out))); biases, which are vectors, are zero.

    A kernel of shape (out, in, height, width) has fans in * height * width and
    out * height * width. The vector of a tied layer is no bias: its fans are the most entries in a
    row and in a column of the layer's matrix.
    """
    bounds = [(6 / sum(fans)) ** 0.5 if fans else 0.0 for fans in _fans(network)]
    return _uniform(network, bounds, key)


@checked
def pytorch_default(network: AbstractNetwork, *, key: PRNGKeyArray) -> Weights:
    """Entries from U(+-1 / sqrt(fan_in)), as PyTorch's layers start.

    A bias takes the bound of the array before it. elkabetz2021 starts dense layers by
    `xavier_uniform` and all else by this.
    """
    bounds, bound = [], 1.0
    for fans in _fans(network):
        bound = fans[0] ** -0.5 if fans else bound
        bounds.append(bound)
    return _uniform(network, bounds, key)


@checked
def many(draw: Draw, network: AbstractNetwork, scales: Any, keys: Any) -> Weights:
    """A start for each key, keys first, as it is drawn alone; `scales` are None or one for each."""
    if not isinstance(keys, jax.Array) or jnp.issubdtype(keys.dtype, jnp.inexact):
        raise InputError(f"`keys` must be random keys of JAX's, got {described(keys)}.")
    if draw in _IN_BATCHES:
        return _IN_BATCHES[draw](network, scales, keys)
    # Not compiled as a whole, which would round otherwise than a single draw does.
    if scales is None:
        return jax.vmap(lambda key: draw(network, key=key))(keys)
    return jax.vmap(lambda scale, key: draw(network, scale, key=key))(scales, keys)


@checked
def one_zero_layer(weights: Weights, layer: int = -1) -> Weights:
    """The weights with one layer, the last unless its index is given, set to zero.

    The product is then zero, but the gradient of that layer is not, which is what marion2024's
    analysis of small starts assumes.
    """
    if not -len(weights) <= layer < len(weights):
        raise InputError(
            f"`layer` must be an index into {len(weights)} layers, counted from 0, got {layer}."
        )
    place = layer % len(weights)
    return tuple(
        jnp.zeros_like(array) if index == place else jnp.asarray(array)
        for index, array in enumerate(weights)
    )


@checked
def nearest_balanced(weights: Weights) -> Weights:
    """Balanced weights of a linear network near the given ones.

    If e is the largest nuclear norm of an imbalance (elkabetz2021, def. 30), they are within

        sqrt((N - 1) N (2N - 1) / 6) sqrt(e)  <=  N^{3/2} sqrt(e)

    of the given weights. Two constructions exist: by polar factors, if all widths before the last
    are equal (elkabetz2021, lemma 31), and by vectors, if there is one output. Where both apply the
    nearer result is returned.
    """
    layers = chained(weights)
    one_output = layers[-1].shape[0] == 1
    equal = all(layer.shape[0] == layer.shape[1] for layer in layers[:-1])
    if one_output and equal:
        by_vectors, by_polar = _balanced_by_vectors(layers), _balanced_by_polar(layers)
        nearer = _distance(by_vectors, layers) <= _distance(by_polar, layers)
        return tuple(
            jnp.where(nearer, one, other) for one, other in zip(by_vectors, by_polar, strict=True)
        )
    if one_output:
        return _balanced_by_vectors(layers)
    if equal:
        return _balanced_by_polar(layers)
    raise InputError(
        "`nearest_balanced` needs one output, or equal widths before the last layer, got shapes "
        f"{[layer.shape for layer in layers]}."
    )


def _balanced_by_polar(layers: tuple[_Layer, ...]) -> tuple[_Layer, ...]:
    """B_N = W_N and B_j = (B_{j+1}^T B_{j+1})^{1/2} Q_j, with the polar factor Q_j of W_j."""
    _, values, right = jnp.linalg.svd(layers[-1], full_matrices=False)
    root = right.T @ (values[:, None] * right)
    found = [layers[-1]]
    for layer in reversed(layers[:-1]):
        left, _, right = jnp.linalg.svd(layer)
        polar = left @ right
        found.append(root @ polar)
        root = polar.T @ root @ polar
    return tuple(reversed(found))


def _balanced_by_vectors(layers: tuple[_Layer, ...]) -> tuple[_Layer, ...]:
    """B_j = s v_{j+1} v_j^T with s = |W_N|, v_{N+1} = 1 and v_j along W_j^T v_{j+1}."""
    size = jnp.linalg.norm(layers[-1])
    vector = jnp.ones(1, layers[-1].dtype)
    found = []
    for layer in reversed(layers):
        image = layer.T @ vector
        length = jnp.linalg.norm(image)
        anywhere = jnp.eye(1, image.size, dtype=image.dtype)[0]  # where W_j^T v_{j+1} = 0
        nearest = jnp.where(length > 0, image / jnp.where(length > 0, length, 1), anywhere)
        found.append(size * jnp.outer(vector, nearest))
        vector = nearest
    return tuple(reversed(found))


def _distance(weights: Weights, others: Weights) -> Float[Array, ""]:
    squares = [jnp.sum((one - other) ** 2) for one, other in zip(weights, others, strict=True)]
    return jnp.sqrt(sum(squares, jnp.zeros(())))


def _signed_svd(matrix: _Layer) -> tuple[_Layer, Float[Array, " values"], _Layer]:
    """A thin decomposition, without rounding's singular values and with settled signs."""
    left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
    precision = jnp.finfo(values.dtype).eps * max(matrix.shape)
    values = jnp.where(values > precision * values[0], values, 0)
    largest = jnp.take_along_axis(left, jnp.argmax(jnp.abs(left), axis=0)[None], axis=0)
    signs = jnp.where(largest < 0, -1, 1).astype(left.dtype)  # of the largest entry of each column
    return left * signs, values, signs.T * right


def _padded(block: _Layer, shape: tuple[int, ...]) -> _Layer:
    """The block in the upper left corner of zeros, cut where it does not fit."""
    block = block[: shape[0], : shape[1]]
    return jnp.zeros(shape, block.dtype).at[: block.shape[0], : block.shape[1]].set(block)


def _product_shape(name: str, network: AbstractNetwork) -> tuple[int, int]:
    linear = network.linear
    if linear is None or linear.readout is not None:
        raise InputError(
            f"`{name}` needs a LinearNetwork without a readout, since balance is a property of the "
            f"factors of a product; got {type(network).__name__}"
            f"{'' if linear is None else ' with one'}."
        )
    return linear.widths[-1], linear.widths[0]


def _require_width(network: AbstractNetwork, values: Float[Array, " values"]) -> None:
    narrowest = min(shape[0] for shape in network.shapes[:-1])
    if values.size <= narrowest:
        return
    if is_traced(values) or bool(values[narrowest] > 0):
        raise InputError(
            f"Hidden layers must be at least as wide as the rank of the product, which may be up "
            f"to {values.size}, got width {narrowest}."
        )


def _require_room(network: AbstractNetwork) -> None:
    require_memory(
        f"A start of {network.size} weights", 2 * network.size, "take a narrower network"
    )


def _require_no_less(name: str, value: ScalarLike, least: float) -> None:
    if not is_traced(value) and not (np.isfinite(value) and np.asarray(value) >= least):
        raise InputError(f"`{name}` must be a finite number >= {least:g}, got {value}.")


def _require_cosine(cosine: ScalarLike, target: Float[Array, " features"]) -> None:
    if not is_traced(cosine) and not abs(cosine) <= 1:
        raise InputError(f"`cosine` must lie in [-1, 1], got {cosine}.")
    if target.size == 1 and (is_traced(cosine) or abs(cosine) != 1):
        raise InputError("`cosine` must be -1 or 1 with one feature: nothing lies across a number.")
    if not is_traced(target) and not np.any(np.asarray(target)):
        raise InputError("`target` must not be zero: a cosine to it has no meaning.")


def _fans(network: AbstractNetwork) -> list[tuple[int, int] | None]:
    """The fans in and out of each array; None for a bias."""
    layered = network.layered
    if layered is not None:  # which has no biases
        return [
            _fans_of(layer.shape) or _fans_of_pattern(layer.pattern) for layer in layered.layers
        ]
    return [_fans_of(shape) for shape in network.shapes]


def _fans_of(shape: tuple[int, ...]) -> tuple[int, int] | None:
    return (prod(shape[1:]), shape[0] * prod(shape[2:])) if len(shape) > 1 else None


def _fans_of_pattern(pattern: Array) -> tuple[int, int]:
    used = np.asarray(pattern) >= 0
    return int(used.sum(axis=1).max()), int(used.sum(axis=0).max())


def _gaussian(network: AbstractNetwork, scale: Any, key: Keys) -> Weights:
    """Keys may have axes, and the scale the same ones."""
    keys = split(key, network.depth)
    drawn = (normal(own, shape) for own, shape in zip(keys, network.shapes, strict=True))
    return tuple(_scaled(scale, array) for array in drawn)


def _residual(network: AbstractNetwork, scale: Any, key: Keys) -> Weights:
    width = network.shapes[0][0]
    if any(shape != (width, width) for shape in network.shapes):
        raise InputError(
            "`residual` needs square layers of one width, since each adds to the identity; got "
            f"shapes {network.shapes}. A readout brings the last layer to one output."
        )
    noise = _gaussian(network, scale / np.sqrt(network.depth * width), key)
    return tuple(_on_host(np.add, np.eye(width, dtype=array.dtype), array) for array in noise)


_IN_BATCHES: dict[Draw, Callable[..., Weights]] = {gaussian: _gaussian, residual: _residual}


def _scaled(scale: Any, array: Any) -> Array:
    axes = (...,) + (None,) * (array.ndim - np.ndim(scale)) if np.ndim(scale) else ...
    return _on_host(np.multiply, scale if is_traced(scale) else np.asarray(scale)[axes], array)


def _on_host(function: np.ufunc, left: Any, right: Any) -> Array:
    """Sums and products are rounded alike everywhere; NumPy compiles nothing for them."""
    if is_traced(left) or is_traced(right):
        return getattr(jnp, function.__name__)(left, right)
    return jax.device_put(function(np.asarray(left, right.dtype), np.asarray(right)))


def _uniform(network: AbstractNetwork, bounds: list[float], key: PRNGKeyArray) -> Weights:
    _require_room(network)
    keys = split(key, network.depth)
    return tuple(
        jax.random.uniform(own, shape, minval=-bound, maxval=bound)
        for own, shape, bound in zip(keys, network.shapes, bounds, strict=True)
    )
