"""Quantities of many networks at once in NumPy are those of each of them in JAX."""

import jax
import numpy as np
import pytest

import thalweg as tw
from thalweg.quantities.registry import measures

POINTS = 7


def regression(features, outputs):
    rng = np.random.default_rng(features)
    return tw.Regression(rng.normal(size=(9, features)), rng.normal(size=(9, outputs)), scale=0.7)


OBJECTIVES = {
    "one output": tw.Objective(tw.LinearNetwork([3, 4, 2, 1]), regression(3, 1)),
    "more outputs than inputs": tw.Objective(tw.LinearNetwork([2, 3, 4]), regression(2, 4)),
    "too narrow for its minimiser": tw.Objective(tw.LinearNetwork([3, 1, 3]), regression(3, 3)),
    "readout": tw.Objective(
        tw.LinearNetwork([3, 3, 3], np.array([0.6, 0.8, 0.3])), regression(3, 1)
    ),
    "target": tw.Objective(tw.LinearNetwork([2, 2, 2]), tw.TargetMatrix(np.diag([1.0, -2.0]))),
    "one layer": tw.Objective(tw.LinearNetwork([3, 2]), regression(3, 2)),
    "weight decay": tw.Objective(tw.LinearNetwork([3, 3, 1]), regression(3, 1), weight_decay=0.1),
}


def points_of(objective):
    rng = np.random.default_rng(1)
    return tuple(rng.normal(size=(POINTS, *shape)) for shape in objective.network.shapes)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_they_are_those_of_each_network(objective):
    points, alone = points_of(objective), measures(objective)
    many = measures(objective, "stacked")
    assert set(many) == set(alone)
    for name, function in many.items():
        one_by_one = [alone[name](tuple(array[i] for array in points)) for i in range(POINTS)]
        # Sums of a dozen products of numbers of order one, in another order.
        np.testing.assert_allclose(function(points), one_by_one, rtol=1e-11, atol=1e-13)


def test_networks_with_kinks_and_functions_have_none():
    kinked = tw.Objective(tw.HomogeneousNetwork([3, 2, 1]), regression(3, 1))
    assert measures(kinked, "stacked") == {}
    assert "norm_imbalance" in measures(kinked)


def test_a_run_that_diverges_has_numbers_until_then():
    objective = OBJECTIVES["one output"]
    start = tuple(array[0] for array in points_of(objective))
    run = tw.descend(objective, start, learning_rate=5.0, steps=30)
    assert run.diverged
    found = tw.quantities.along(run)
    assert set(found) == {"excess", "unbalancedness", "alignment"}
    for values in found.values():
        assert np.isfinite(values[0])
        assert np.isnan(values[-1])


def test_nothing_is_compiled(caplog):
    objective = OBJECTIVES["one output"]
    start = tuple(array[0] for array in points_of(objective))
    run = tw.descend(objective, start, learning_rate=0.01, steps=20)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        tw.quantities.along(run)
    assert not [each for each in caplog.messages if "Compiling" in each]
