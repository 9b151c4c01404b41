"""A quantity of one's own: measured along descent and flow, stored, drawn, explained and swept."""

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import experiment, reports
from thalweg.quantities import Quantity, forget, register

STABLE_RANK = Quantity(
    "stable_rank",
    "stable rank of the end-to-end matrix",
    symbol=r"$|W|_F^2 / |W|_2^2$",
    formula="|W_N ... W_1|_F^2 / |W_N ... W_1|_2^2",
    caption="How many directions the network uses: 1 where its product has rank one.",
    measure=lambda objective: stable_rank_of(objective.network.linear),
)


def stable_rank_of(network):
    """A function of the weights; None for networks that multiply no matrices."""
    if network is None:
        return None

    def stable_rank(weights):
        values = jnp.linalg.svd(network.end_to_end(weights), compute_uv=False)
        return jnp.sum(values**2) / values[0] ** 2

    return stable_rank


@pytest.fixture
def registered():
    yield register(STABLE_RANK)
    forget("stable_rank")


SETTINGS = """
[data]
source = "target"
matrix = [[1.0, 0.0, 0.5], [0.0, 0.7, 0.2]]
[network]
depth = 2
[training]
learning_rate = [0.05, 0.1]
steps = 60
"""


def test_it_is_measured_stored_drawn_and_explained(registered, tmp_path):
    settings = experiment.from_toml(SETTINGS)
    results = experiment.perform(settings)
    objective = experiment.objective(settings)
    run = tw.descend(objective, experiment.start(settings, objective), learning_rate=0.1, steps=60)
    products = np.matmul(*reversed([np.asarray(layer) for layer in run.weights]))
    values = np.linalg.svd(products, compute_uv=False)
    expected = np.sum(values**2, axis=-1) / values[:, 0] ** 2
    found = results.stable_rank.sel(learning_rate=0.1).values
    # The same formula in another order: a few roundings.
    np.testing.assert_allclose(found[: expected.size], expected, rtol=1e-12)
    assert results.stable_rank.attrs["long_name"] == STABLE_RANK.long_name
    assert results.flow_stable_rank.notnull().all()
    page = reports.write(results, tmp_path).read_text("utf-8")
    assert "How many directions the network uses" in page
    assert (tmp_path / "stable_rank.png").read_bytes().startswith(b"\x89PNG")


def test_it_is_swept(registered, tmp_path):
    grid = SETTINGS.replace("[0.05, 0.1]", "0.1") + '[[sweep]]\n"start.seed" = [0, 1, 2]\n'
    found = tw.sweep(experiment.from_toml(grid), tmp_path / "grid")
    assert found.final_stable_rank.shape == found.final_loss.shape
    assert bool((found.final_stable_rank >= 1).all())
    assert bool((found.final_stable_rank <= 2).all())  # two outputs


def test_it_is_left_out_where_it_makes_no_sense(registered):
    network = tw.HomogeneousNetwork([2, 3, 1])
    objective = tw.Objective(network, tw.Regression(np.eye(2), np.ones(2)))
    weights = tuple(np.ones(shape) for shape in network.shapes)
    run = tw.descend(objective, weights, learning_rate=0.1, steps=3)
    assert "stable_rank" not in tw.quantities.along(run)


def test_names_are_taken_once(registered):
    with pytest.raises(tw.InputError, match=r"`name` must be new, got 'stable_rank'"):
        register(STABLE_RANK)
    with pytest.raises(tw.InputError, match="`measure` must be given for bare"):
        register(Quantity("bare", "a quantity that nobody can compute"))
    with pytest.raises(tw.InputError, match=r"registered quantity \(stable_rank\), got 'loss'"):
        forget("loss")


def test_one_number_each(tmp_path):
    norms = Quantity(
        "norms", "norm of each layer", measure=lambda objective: tw.measurement.layer_norms
    )
    register(norms)
    try:
        with pytest.raises(tw.InputError, match=r"'norms' must be one number for each network"):
            experiment.perform(experiment.from_toml(SETTINGS))
    finally:
        forget("norms")
