"""Random numbers, the same to the last bit as those of `jax.random`, without compiling every shape.

JAX compiles a draw once for each shape. Here its random bits, which are integers, are made in
NumPy: Threefry-2x32 with 20 rounds (Salmon et al. 2011), of which JAX takes

    bits of entry i = hash(key, i),    key i of a split = key folded with i = hash(key, i),

counting entries row by row. Only what is rounded, from bits to normal numbers, is compiled, for a
few lengths. Keys may have axes, which come first in what is drawn. Keys that are traced or of
another kind, and draws in 32 bits, are left to JAX.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, UInt

from thalweg._checks import is_traced

Words = UInt[np.ndarray, "..."]
Keys = Key[Array, "..."] | UInt[Array, "..."]
"""One key or an array of them; a single one may be of JAX's old kind, a pair of words."""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_LEAST, _MOST = 256, 2**20  # entries that are made together
_ALL = 2**23  # above, compiling does not count


def seeded(seed: Any) -> Keys:
    """`jax.random.key`, or a key for each of an array of seeds."""
    if is_traced(seed) or not _usual():
        return jax.random.key(seed)
    numbers = np.asarray(seed)
    if numbers.dtype.kind not in "iu":  # JAX says what is wrong
        return jax.random.key(seed)
    words = numbers.astype(np.int64).view(np.uint64)
    halves = (words >> np.uint64(32), words & np.uint64(0xFFFFFFFF))
    return _wrapped(np.stack(halves, axis=-1).astype(np.uint32))


def folded(key: Keys, number: int) -> Keys:
    """`jax.random.fold_in`, for small numbers."""
    words = _words(key)
    if words is None:
        return _each(partial(jax.random.fold_in, data=number), key)
    first, second = _hashed(words, number + 1)
    return _wrapped(np.stack((first[..., number], second[..., number]), axis=-1))


def split(key: Keys, count: int) -> tuple[Keys, ...]:
    """`jax.random.split`."""
    words = _words(key)
    if words is None:
        found = _each(partial(jax.random.split, num=count), key)
        return tuple(found[..., i] for i in range(count))
    found = np.stack(_hashed(words, count), axis=-1)
    return tuple(_wrapped(np.ascontiguousarray(found[..., i, :])) for i in range(count))


def normal(key: Keys, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """`jax.random.normal`."""
    words, size = _words(key), prod(shape)
    axes = _axes(key)
    total = size * prod(axes)
    if words is None or not 0 < total <= _ALL or jnp.result_type(float) != np.float64:
        return _each(partial(jax.random.normal, shape=shape), key)
    high, low = _hashed(words, size)
    bits = (high.astype(np.uint64) << np.uint64(32) | low).ravel()
    pieces = [_normals(bits[begin : begin + _MOST]) for begin in range(0, total, _MOST)]
    return jax.device_put(np.concatenate(pieces).reshape((*axes, *shape)))


def _normals(bits: Words) -> Float[np.ndarray, " size"]:
    """Padded to one of few lengths, for each of which something is compiled."""
    padded = np.zeros(max(_LEAST, 1 << (bits.size - 1).bit_length()), np.uint64)
    padded[: bits.size] = bits
    return np.asarray(_from_bits(padded))[: bits.size]


def compile_lengths() -> None:
    """Compile what normal numbers are made by, for every length that they are padded to."""
    length = _LEAST
    while length <= _MOST:
        _from_bits(np.zeros(length, np.uint64))
        length *= 2


def _axes(key: Keys) -> tuple[int, ...]:
    """Of an array of keys; a key of JAX's old kind is always a single one."""
    return key.shape if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else ()


def _each(function: Callable[[Any], Any], keys: Any) -> Any:
    """A function of one key, for each of an array of them."""
    for _ in _axes(keys):
        function = jax.vmap(function)
    return function(keys)


def _usual() -> bool:
    """Whether JAX makes random bits as it does by default."""
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    default = jax.config.jax_default_prng_impl  # pyright: ignore[reportAttributeAccessIssue]
    return bool(partitionable) and default == "threefry2x32"


def _words(key: Keys) -> Words | None:
    """The two words of each key; None where its numbers are not made as they are here."""
    if is_traced(key) or not _usual() or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return None
    if str(jax.random.key_impl(key)) != "threefry2x32":
        return None
    return np.asarray(jax.random.key_data(key))


def _wrapped(words: Words) -> Keys:
    return jax.random.wrap_key_data(jax.device_put(words), impl="threefry2x32")


def _hashed(keys: Words, count: int) -> tuple[Words, Words]:
    """Threefry-2x32 of the numbers 0, ..., count - 1, for each key."""
    left, right = keys[..., 0, None], keys[..., 1, None]
    words = (left, right, left ^ right ^ _PARITY)
    numbers = np.arange(count, dtype=np.uint32)
    first = np.broadcast_to(left, (*keys.shape[:-1], count))
    second = numbers + right
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            first = first + second
            second = first ^ (second << np.uint32(rotation) | second >> np.uint32(32 - rotation))
        first = first + words[(block + 1) % 3]
        second = second + words[(block + 2) % 3] + np.uint32(block + 1)
    return first, second


@jax.jit
def _from_bits(bits: UInt[Array, " length"]) -> Float[Array, " length"]:
    """The mantissa of a number in [1, 2), from there to (-1, 1), and by the inverse of erf."""
    one = jnp.asarray(np.array(1.0).view(np.uint64))
    between = jax.lax.bitcast_convert_type(bits >> np.uint64(12) | one, jnp.float64) - 1.0
    low = np.nextafter(-1.0, 0.0)
    uniform = jnp.maximum(low, between * (np.array(1.0) - low) + low)
    return np.sqrt(2) * jax.lax.erf_inv(uniform)
