"""A probe in a loop of one's own: exact, warm, and there when the loop fails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 6)), RNG.normal(size=40)
PARAMS = {"w": RNG.normal(size=(6, 12)) / 2, "b": np.zeros(12), "o": RNG.normal(size=12) / 3}


def loss(params, batch):
    x, y = batch
    return jnp.mean((jnp.tanh(x @ params["w"] + params["b"]) @ params["o"] - y) ** 2) / 2


OBJECTIVE = tw.FunctionObjective(loss, (X, Y), 16)
GRADIENT = jax.jit(jax.grad(loss))


def steps(params, count):
    """SGD of one's own, on batches of ten."""
    for _ in range(count):
        yield params
        rows = RNG.choice(40, 10, replace=False)
        slopes = GRADIENT(params, (X[rows], Y[rows]))
        params = jax.tree.map(lambda w, s: w - 0.05 * s, params, slopes)


def test_it_measures_the_full_loss_at_every_so_many_calls():
    """Oracle: the dense Hessian, by JAX and NumPy, at the very weights."""
    probe, seen = tw.Probe(OBJECTIVE, every=4, learning_rate=0.05), []
    for params in steps(PARAMS, 11):
        found = probe(params)
        assert (found is None) == (len(seen) % 4 != 0)
        seen.append(params)
    assert [each.step for each in probe.records] == [0, 4, 8]
    for each in probe.records:
        at = seen[each.step]
        value, slopes = jax.value_and_grad(loss)(at, (X, Y))
        values = np.linalg.eigvalsh(np.asarray(OBJECTIVE.hessian(at)))
        assert each.loss == pytest.approx(float(value), rel=1e-12)
        lengths = [np.sum(np.square(part)) for part in jax.tree.leaves(slopes)]
        assert each.gradient_norm == pytest.approx(np.sqrt(sum(lengths)), rel=1e-12)
        assert abs(each.sharpness - values[-1]) <= each.sharpness_error
        assert abs(each.smallest_eigenvalue - values[0]) <= each.smallest_eigenvalue_error
        assert each.learning_rate == 0.05
    assert list(probe.named()["step"]) == [0, 4, 8]


def test_weights_that_run_off_are_recorded_as_such():
    probe = tw.Probe(OBJECTIVE, every=1)
    probe(PARAMS)
    gone = jax.tree.map(lambda array: np.full_like(array, np.nan), PARAMS)
    assert np.isnan(probe(gone)[1:7]).all()
    assert np.isfinite(probe(PARAMS).sharpness)


def test_what_cannot_be_probed_is_refused_at_once():
    with pytest.raises(tw.InputError, match="`objective` must be an Objective, got the function"):
        tw.Probe(loss)
    with pytest.raises(tw.InputError, match="`every` must be a whole number >= 1, got 0"):
        tw.Probe(OBJECTIVE, every=0)
    with pytest.raises(tw.InputError, match="`learning_rate` must be positive and finite, got -1"):
        tw.Probe(OBJECTIVE, learning_rate=-1.0)
    with pytest.raises(tw.InputError, match="the same number each time"):
        tw.Probe(tw.FunctionObjective(lambda p: p["o"][0] * np.random.normal()))(PARAMS)
