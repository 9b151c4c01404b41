"""Normal numbers, the same to the last bit as `jax.random.normal`, without compiling every shape.

JAX compiles a draw once for each shape. Here its random bits, which are integers, are made in
NumPy: Threefry-2x32 with 20 rounds (Salmon et al. 2011), of which JAX takes

    bits of entry i = hash(key, i),    key i of a split = hash(key, i),

counting entries row by row. Only what is rounded, from bits to normal numbers, is compiled, for a
few lengths. Keys that are traced or of another kind, and draws in 32 bits, are left to JAX.
"""

from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt

from thalweg._checks import is_traced

Words = UInt[np.ndarray, "..."]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_LEAST, _MOST = 256, 2**20  # entries that are made together; above, compiling does not count


def split(key: PRNGKeyArray, count: int) -> tuple[PRNGKeyArray, ...]:
    """`jax.random.split`."""
    words = _words(key)
    if words is None:
        return tuple(jax.random.split(key, count))
    found = np.stack(_hashed(words, count), axis=1)
    return tuple(jax.random.wrap_key_data(each, impl="threefry2x32") for each in found)


def normal(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """`jax.random.normal`."""
    words, size = _words(key), prod(shape)
    if words is None or not 0 < size <= _MOST or jnp.zeros(()).dtype != np.float64:
        return jax.random.normal(key, shape)
    length = max(_LEAST, 1 << (size - 1).bit_length())
    high, low = _hashed(words, length)
    bits = high.astype(np.uint64) << np.uint64(32) | low
    return jax.device_put(np.asarray(_from_bits(bits))[:size].reshape(shape))


def _words(key: PRNGKeyArray) -> Words | None:
    """The two words of a key; None where its numbers are not made as they are here."""
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    if is_traced(key) or not partitionable:
        return None
    if key.shape or str(jax.random.key_impl(key)) != "threefry2x32":
        return None
    return np.asarray(jax.random.key_data(key))


def _hashed(key: Words, count: int) -> tuple[Words, Words]:
    """Threefry-2x32 of the numbers 0, ..., count - 1."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    first = np.full(count, keys[0], np.uint32)
    second = np.arange(count, dtype=np.uint32) + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            first = first + second
            second = first ^ (second << np.uint32(rotation) | second >> np.uint32(32 - rotation))
        first = first + keys[(block + 1) % 3]
        second = second + keys[(block + 2) % 3] + np.uint32(block + 1)
    return first, second


@jax.jit
def _from_bits(bits: UInt[Array, " length"]) -> Float[Array, " length"]:
    """The mantissa of a number in [1, 2), from there to (-1, 1), and by the inverse of erf."""
    one = jnp.asarray(np.array(1.0).view(np.uint64))
    between = jax.lax.bitcast_convert_type(bits >> np.uint64(12) | one, jnp.float64) - 1.0
    low = np.nextafter(-1.0, 0.0)
    uniform = jnp.maximum(low, between * (np.array(1.0) - low) + low)
    return np.sqrt(2) * jax.lax.erf_inv(uniform)
