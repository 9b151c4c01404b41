"""A start of one's own: weights from a heavy-tailed distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import experiment


def cauchy(network, scale, *, key):
    """Independent entries from a Cauchy distribution."""
    keys = jax.random.split(key, network.depth)
    return tuple(
        scale * jax.random.cauchy(own, shape)
        for own, shape in zip(keys, network.shapes, strict=True)
    )


def test_it_is_a_function_and_works_like_any_other():
    network = tw.LinearNetwork([3, 3, 1])
    objective = tw.Objective(network, tw.TargetMatrix([1.0, 0.5, 0.0]))
    weights = cauchy(network, 0.1, key=jax.random.key(0))
    run = tw.descend(objective, weights, learning_rate=0.05, steps=200)
    flow = tw.flow(objective, weights, times=run.times)
    assert np.all(np.isfinite(tw.distance(run, flow)))
    assert float(tw.sharpness(objective, weights).value) > 0


def test_half_of_the_entries_are_within_the_scale():
    """The quartiles of a Cauchy distribution are at plus and minus its scale."""
    weights = cauchy(tw.LinearNetwork([100, 100]), 0.2, key=jax.random.key(1))
    share = float(jnp.mean(jnp.abs(weights[0]) <= 0.2))
    assert abs(share - 0.5) < 0.02  # four standard deviations of 10,000 draws


@pytest.fixture
def registered():
    tw.initialisation.register("cauchy", cauchy)
    yield
    tw.initialisation.forget("cauchy")


SETTINGS = """
[data]
source = "target"
matrix = [[1.0, 0.5, 0.0]]
[network]
depth = 2
[start]
kind = "registered"
name = "cauchy"
scale = 0.1
[training]
learning_rate = 0.05
steps = 60
"""


def test_experiments_and_sweeps_know_it_by_its_name(registered, tmp_path):
    settings = experiment.from_toml(SETTINGS)
    objective = experiment.objective(settings)
    weights = experiment.start(settings, objective)
    results = experiment.perform(settings)
    assert float(results.loss[0, 0]) == pytest.approx(float(objective(weights)), rel=1e-14)
    grid = SETTINGS + '[[sweep]]\n"start.seed" = [0, 1]\n"start.scale" = [0.05, 0.1]\n'
    found = tw.sweep(experiment.from_toml(grid), tmp_path / "grid")
    own = (
        found.sel(start_seed=0, scale=0.1)
        if "start_seed" in found.dims
        else found.sel(seed=0, scale=0.1)
    )
    assert float(own.loss[0]) == pytest.approx(float(objective(weights)), rel=1e-12)


def test_a_name_that_nobody_registered_is_refused():
    settings = experiment.from_toml(SETTINGS)
    with pytest.raises(tw.InputError, match=r"'cauchy' must be registered in this process"):
        experiment.start(settings, experiment.objective(settings))


def test_what_does_not_fit_the_network_is_refused():
    tw.initialisation.register("wrong", lambda network, scale, *, key: (jnp.ones((2, 2)),))
    try:
        settings = experiment.from_toml(SETTINGS.replace("cauchy", "wrong"))
        with pytest.raises(tw.InputError, match=r"what 'wrong' draws"):
            experiment.start(settings, experiment.objective(settings))
    finally:
        tw.initialisation.forget("wrong")
