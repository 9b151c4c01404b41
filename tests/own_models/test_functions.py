"""A function of any weights as an objective: summed over batches, or refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(23, 3)), RNG.normal(size=23)
PARAMS = {"in": {"w": RNG.normal(size=(3, 4)), "b": np.zeros(4)}, "out": RNG.normal(size=4)}


def loss(params, batch):
    x, y = batch
    hidden = jnp.tanh(x @ params["in"]["w"] + params["in"]["b"])
    return jnp.mean((hidden @ params["out"] - y) ** 2) / 2


def whole(params):
    return loss(params, (X, Y))


def all_close(found, expected, rtol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol, 1e-15), found, expected)


@pytest.mark.parametrize("batch_size", [None, 5, 23, 100])
def test_batches_sum_to_the_loss_over_all_samples(batch_size):
    """Oracle: JAX on the whole data; 5 leaves a last batch of 3. Tolerance: roundings of sums."""
    objective = tw.FunctionObjective(loss, (X, Y), batch_size)
    all_close(objective.value_and_gradient(PARAMS), jax.value_and_grad(whole)(PARAMS), 1e-12)
    assert float(objective(PARAMS)) == pytest.approx(float(whole(PARAMS)), rel=1e-13)
    direction = jax.tree.map(np.ones_like, PARAMS)
    expected = jax.jvp(jax.grad(whole), (PARAMS,), (direction,))[1]
    all_close(objective.hvp(PARAMS, direction), expected, 1e-12)
    assert objective.samples == 23


def test_batches_keep_memory_from_growing_with_the_data():
    """Oracle: XLA's own count of temporary bytes. Twenty times the samples, the same memory."""

    def bytes_of(samples, batch_size):
        data = (np.ones((samples, 3)), np.ones(samples))
        objective = tw.FunctionObjective(loss, data, batch_size)
        compiled = jax.jit(lambda given: objective.value_and_gradient(given)[1]).lower(PARAMS)
        return compiled.compile().memory_analysis().temp_size_in_bytes

    assert bytes_of(20_000, 100) < 1.5 * bytes_of(1000, 100)
    assert bytes_of(20_000, None) > 5 * bytes_of(1000, None)  # which this does see


def test_a_loss_without_data_is_taken_as_it_is():
    run = tw.descend(tw.FunctionObjective(whole), PARAMS, learning_rate=0.1, steps=3)
    other = tw.descend(tw.FunctionObjective(loss, (X, Y)), PARAMS, learning_rate=0.1, steps=3)
    np.testing.assert_allclose(run.loss, other.loss, rtol=1e-13)


def test_each_leaf_keeps_its_precision():
    mixed = {"in": PARAMS["in"], "out": PARAMS["out"].astype(np.float32)}
    run = tw.descend(tw.FunctionObjective(loss, (X, Y), 5), mixed, learning_rate=0.1, steps=3)
    kinds = jax.tree.map(lambda array: str(array.dtype), run.final)
    assert kinds == {"in": {"w": "float64", "b": "float64"}, "out": "float32"}


def test_a_loss_may_be_any_callable():
    class Scaled:
        __hash__ = None

        def __call__(self, params):
            return 2 * whole(params)

    value = tw.FunctionObjective(Scaled())(PARAMS)
    assert float(value) == pytest.approx(2 * float(whole(PARAMS)), rel=1e-13)


def started(function, params=PARAMS, data=(X, Y)):
    return tw.descend(tw.FunctionObjective(function, data), params, learning_rate=0.1, steps=1)


COUNTED = []
REFUSED = {
    r"one number, got shape \(23,\); take the mean": lambda p, b: (b[0] @ p["in"]["w"])[:, 0],
    "one number, got a tuple of length 2; return the loss alone": lambda p, b: (loss(p, b), b),
    "a float32 or float64, got float16": lambda p, b: loss(p, b).astype("float16"),
    "a float32 or float64, got int": lambda p, b: jnp.sum(b[1] > 0),
    "the same number each time .*Dropout": lambda p, b: loss(p, b) * np.random.normal(),
    "the same number each time .*keep no state": lambda p, b: (
        COUNTED.append(0) or loss(p, b) * len(COUNTED)
    ),
    "must be finite where it starts, got nan": lambda p, b: loss(p, b) + jnp.nan,
    "must be finite where it starts, got inf": lambda p, b: loss(p, b) - jnp.log(0.0),
    r"a function loss\(weights, batch\) where `data` are given": lambda p: 0.0,
}


@pytest.mark.parametrize("message", REFUSED)
def test_losses_that_cannot_be_descended_are_refused_before_anything_runs(message):
    with pytest.raises(tw.InputError, match=message):
        started(REFUSED[message])


def test_a_random_loss_is_refused_by_what_looks_at_curvature_too():
    objective = tw.FunctionObjective(lambda p: whole(p) * np.random.normal())
    for measure in (tw.sharpness, tw.curvature.spectral_density, tw.extreme_eigenvalues):
        with pytest.raises(tw.InputError, match="the same number each time"):
            measure(objective, PARAMS)


def test_data_that_change_behind_the_loss_are_seen():
    """What JAX traces is the same, but the number is not: a callback to the host."""
    state = np.random.default_rng(0)

    def noisy(params):
        noise = jax.pure_callback(
            lambda: np.float64(state.normal()), jax.ShapeDtypeStruct((), float)
        )
        return whole(params) + jax.lax.stop_gradient(noise)

    with pytest.raises(tw.InputError, match="the same number each time"):
        started(lambda p, b: noisy(p))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"w": np.ones(3, np.float16)}, r"`weights\['w'\]` must be float32 or float64, got float1"),
        ({"w": jnp.ones(3, jnp.bfloat16)}, "float32 or float64, got bfloat16; convert with jax"),
        ({"w": np.arange(3)}, "at least one floating array, got an array .* int64; hold fixed"),
        ({"w": np.ones(3), "n": 3}, r"`weights\['n'\]` must be a floating array, got 3; hold"),
        ({"w": np.ones(3), "f": jnp.tanh}, r"equinox.partition\(model, equinox.is_inexact_array"),
        ({"w": np.ones(3), "m": np.ones(3, bool)}, "must be a floating array, got an array"),
        (None, "a pytree with at least one array, got None"),
        ({"w": np.array([1.0, np.nan, 0.0])}, r"`weights\['w'\]` must be finite, got nan"),
    ],
)
def test_weights_that_cannot_move_are_refused(weights, message):
    with pytest.raises(tw.InputError, match=message):
        started(lambda p: jnp.sum(p["w"] ** 2), weights, None)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:5]), r"equally many rows in every array, got 23 in `data\[0\]` and 5 in `data\[1"),
        ({"x": X, "n": 3}, r"`data\['n'\]` must be an array with one row per sample, got 3"),
        (([1.0, 2.0],), "lists become one with numpy.asarray"),
        ((), "`data` must hold at least one array, got a tuple of length 0"),
        ((np.zeros((0, 3)),), "equally many rows in every array, got 0"),
        ((np.array(["a"], object),), "must be an array with one row per sample"),
    ],
)
def test_data_that_are_no_rows_are_refused(data, message):
    with pytest.raises(tw.InputError, match=message):
        tw.FunctionObjective(loss, data)


def test_batches_need_data():
    with pytest.raises(tw.InputError, match="`batch_size` must be left out where there are no"):
        tw.FunctionObjective(whole, batch_size=5)
    with pytest.raises(tw.InputError, match="`batch_size` must be a whole number >= 1, got 0"):
        tw.FunctionObjective(loss, (X, Y), 0)
