"""Normal numbers are those of JAX, to the last bit, whatever their shape."""

import jax
import numpy as np
import pytest

from thalweg import _drawing

SHAPES = [(), (3,), (5, 5), (1, 5), (50, 5), (17, 33), (257,), (50, 784), (1000, 1000)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers_are_those_of_jax(shape):
    for seed in (0, 1, 2**31 + 5):
        key = jax.random.fold_in(jax.random.key(seed), 1)
        np.testing.assert_array_equal(_drawing.normal(key, shape), jax.random.normal(key, shape))


def test_keys_are_those_of_jax():
    key = jax.random.key(7)
    for mine, own in zip(_drawing.split(key, 11), jax.random.split(key, 11), strict=True):
        assert (jax.random.key_data(mine) == jax.random.key_data(own)).all()


@pytest.mark.parametrize("seed", [0, 5, 2**31 + 5, 2**40 + 3, -7])
def test_seeds_and_folded_keys_are_those_of_jax(seed):
    key = jax.random.key(seed)
    assert _drawing.seeded(seed) == key
    for number in (0, 1, 2):
        assert _drawing.folded(key, number) == jax.random.fold_in(key, number)


def test_keys_with_axes_are_as_each_alone():
    keys = _drawing.seeded(np.arange(6).reshape(2, 3))
    drawn = _drawing.normal(_drawing.split(_drawing.folded(keys, 1), 3)[2], (4, 2))
    for place in np.ndindex(2, 3):
        alone = jax.random.fold_in(jax.random.key(3 * place[0] + place[1]), 1)
        own = jax.random.normal(jax.random.split(alone, 3)[2], (4, 2))
        np.testing.assert_array_equal(drawn[place], own)


def test_what_is_made_otherwise_is_left_to_jax():
    """Other kinds of keys, keys that are traced, batches of them, and nothing at all."""
    other = jax.random.key(3, impl="rbg")
    np.testing.assert_array_equal(_drawing.normal(other, (4,)), jax.random.normal(other, (4,)))
    keys = jax.random.split(jax.random.key(0), 3)
    many = jax.vmap(lambda key: _drawing.normal(_drawing.split(key, 2)[1], (4, 2)))(keys)
    alone = [jax.random.normal(jax.random.split(key)[1], (4, 2)) for key in keys]
    np.testing.assert_array_equal(many, np.stack(alone))
    assert _drawing.normal(keys[0], (0, 3)).shape == (0, 3)


def test_another_shape_compiles_nothing(caplog):
    key = jax.random.key(0)
    _drawing.normal(key, (5, 5))
    with jax.log_compiles(), caplog.at_level("WARNING"):
        _drawing.normal(key, (3, 7))
        _drawing.split(key, 9)
        _drawing.folded(_drawing.seeded(np.arange(7)), 2)
    assert not [each for each in caplog.messages if "Compiling" in each]
