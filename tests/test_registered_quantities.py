"""Registered quantities in sweeps, whose blocks differ, and names that are taken."""

from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import experiment
from thalweg.quantities import Quantity, forget, register

SETTINGS = """
[data]
source = "target"
matrix = [[1.0, 0.0, 0.5], [0.0, 0.7, 0.2]]
[training]
learning_rate = 0.1
steps = 60
[curvature]
enabled = false
[[sweep]]
"network.depth" = [1, 2]
"training.learning_rate" = [0.1, 90.0]
"""


@contextmanager
def registered(name, measure):
    register(Quantity(name, "a quantity of one's own", measure=measure))
    try:
        yield
    finally:
        forget(name)


def zeros(objective):
    """A number that stays finite whatever the weights are, for two layers and more."""
    if objective.network.depth == 1:
        return None
    return lambda weights: jnp.sum(weights[0] == 0.0, dtype=float)


def test_there_is_no_number_where_it_makes_no_sense_or_a_run_diverged():
    """The first block has one layer, and so nothing to measure."""
    with registered("zeros", zeros):
        found = tw.sweep(experiment.from_toml(SETTINGS)).transpose("depth", "learning_rate", ...)
    assert (found.diverged_at.values >= 0).tolist() == [[False, False], [False, True]]
    np.testing.assert_array_equal(found.final_zeros, [[np.nan, np.nan], [0.0, np.nan]])


def test_one_number_each_in_sweeps_too():
    said = r"'norms' must be one number for each network, got shape \(1,\)"
    with (
        registered("norms", lambda objective: tw.measurement.layer_norms),
        pytest.raises(tw.InputError, match=said),
    ):
        tw.sweep(experiment.from_toml(SETTINGS.replace("[1, 2]", "[1]")))


@pytest.mark.parametrize("name", ["record", "overview", "loss"])
def test_names_that_results_and_reports_use_are_taken(name):
    with pytest.raises(tw.InputError, match=rf"`name` must be new, got '{name}'"):
        register(Quantity(name, "taken", measure=lambda objective: None))


def test_an_edited_quantity_is_measured_again(tmp_path):
    """The name is the same, the function is not: what was kept under the name is another thing."""
    settings = experiment.from_toml(SETTINGS.partition("[[sweep]]")[0])
    ready, digests = experiment.prepared(settings), []
    for power in (1, 1, 2):
        with registered(
            "powers", lambda objective, p=power: lambda weights: jnp.sum(weights[0]) ** p
        ):
            digests.append(experiment.keeper_of(settings, ready).digest)
    assert digests[0] == digests[1] != digests[2]


def test_a_sweep_is_not_resumed_with_an_edited_function(tmp_path):
    settings = experiment.from_toml(SETTINGS)
    with registered("powers", lambda objective: lambda weights: jnp.sum(weights[0])):
        tw.sweep(settings, tmp_path / "grid")
    with (
        registered("powers", lambda objective: lambda weights: jnp.sum(weights[0]) ** 2),
        pytest.raises(tw.InputError, match="measures other registered quantities"),
    ):
        tw.sweep(settings, tmp_path / "grid")


def test_a_sweep_is_not_resumed_from_an_edited_start(tmp_path):
    start = '[start]\nkind = "registered"\nname = "mine"\n'
    settings = experiment.from_toml(SETTINGS.replace("[training]", start + "[training]"))

    def made(value):
        return lambda network, scale, *, key: tuple(jnp.full(s, value) for s in network.shapes)

    for value, said in ((0.1, None), (0.1, None), (0.2, "from another registered initialisation")):
        tw.initialisation.register("mine", made(value))
        try:
            if said is None:
                tw.sweep(settings, tmp_path / "grid")
            else:
                with pytest.raises(tw.InputError, match=said):
                    tw.sweep(settings, tmp_path / "grid")
        finally:
            tw.initialisation.forget("mine")
