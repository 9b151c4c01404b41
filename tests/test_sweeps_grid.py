"""Grids: what is written becomes dimensions, coordinates and cells, or one sentence."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from thalweg._checks import InputError
from thalweg.experiment import from_toml, from_values, to_toml
from thalweg.sweeps.grid import read_grid
from thalweg.sweeps.plan import make_plan

ONE_RATE = {"training": {"learning_rate": 0.1}}


def grid_of(*tables, **values):
    return read_grid(from_values({**ONE_RATE, **values, "sweep": list(tables)}))


def values_of(grid, name):
    return list(grid.coordinates()[name][1])


def runs_of(grid):
    """Every run as the values that it changes."""
    return [grid.changes(run) for run in range(len(grid.points))]


def test_lists_ranges_and_factors():
    grid = grid_of(
        {
            "start.scale": {"from": 0.25, "to": 0.6, "count": 10},
            "training.learning_rate": {"from": 1e-3, "to": 1, "count": 4, "spacing": "log"},
            "network.depth": {"from": 2, "to": 40, "count": 20},
            "start.seed": {"from": 3, "to": 6},
            "network.readout": [False, True],
            "loss.scale": 0.5,
        }
    )
    np.testing.assert_allclose(values_of(grid, "start_scale"), np.linspace(0.25, 0.6, 10))
    np.testing.assert_allclose(values_of(grid, "learning_rate"), [1e-3, 1e-2, 1e-1, 1])
    assert values_of(grid, "depth") == list(range(2, 41, 2))
    assert values_of(grid, "seed") == [3, 4, 5, 6]
    assert values_of(grid, "readout") == [False, True]
    assert values_of(grid, "loss_scale") == [0.5]  # two scales: the tables stand in front
    assert grid.shape == (10, 4, 20, 4, 2, 1)
    assert len(grid.points) == 10 * 4 * 20 * 4 * 2


def test_every_run_is_a_combination_of_the_axes():
    """Oracle: itertools.product over what was written."""
    grid = grid_of(
        {
            "training.learning_rate, training.steps": [[0.1, 10], [0.2, 5]],
            "start.seed": [4, 1],
        }
    )
    expected = [
        {"training.learning_rate": rate, "training.steps": steps, "start.seed": seed}
        for (rate, steps), seed in product([(0.1, 10), (0.2, 5)], [4, 1])
    ]
    assert runs_of(grid) == expected
    assert grid.coordinates()["steps"] == ("learning_rate", (10, 5))
    assert grid.coordinates()["seed"] == ("seed", (4, 1))


def test_grids_are_united_and_meeting_runs_are_made_once():
    grid = grid_of(
        {"start.scale": [0.5, 0.1], "start.seed": [0, 1]},
        {"start.scale": [0.1, 0.3], "start.seed": [1, 2]},
        {"start.seed": [7]},  # the scale is the experiment's own
        start={"scale": 0.2},
    )
    assert values_of(grid, "scale") == [0.1, 0.2, 0.3, 0.5]
    expected = {(0.5, 0), (0.5, 1), (0.1, 0), (0.1, 1), (0.1, 2), (0.3, 1), (0.3, 2), (0.2, 7)}
    found = [(run["start.scale"], run["start.seed"]) for run in runs_of(grid)]
    assert set(found) == expected
    assert len(found) == len(expected)


def test_several_learning_rates_of_the_experiment_are_a_dimension():
    grid = grid_of({"start.seed": [0]}, training={"learning_rate": [0.3, 0.1]})
    assert [each.name for each in grid.dimensions] == ["learning_rate", "seed"]
    assert values_of(grid, "learning_rate") == [0.3, 0.1]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([], r"at least one table \[\[sweep\]\]"),
        ([{}], "must name the fields that vary"),
        ([{"start.scal": [1.0]}], "there is no `start.scal`; did you mean `start.scale`"),
        ([{"learning_rate": [1.0]}], "did you mean `training.learning_rate`"),
        ([{"flow.rtol": [1e-3]}], "must not vary `flow.rtol`, which changes nothing"),
        ([{"start.seed": []}], "must have at least one value"),
        ([{"start.seed": [1, 2, 1]}], "must have different values, but 1 is there twice"),
        ([{"start.seed": {"from": 0, "upto": 3}}], "got `upto`"),
        ([{"start.seed": {"from": 0}}], "got to = None"),
        ([{"start.scale": {"from": 0.1, "to": 1.0}}], "must have a `count`"),
        ([{"start.seed": {"from": 0, "to": 9, "count": 0}}], "whole `count` >= 1, got 0"),
        ([{"start.scale": {"from": 0, "to": 1, "count": 3, "spacing": "log"}}], "positive ends"),
        ([{"start.scale": {"from": 1, "to": 2, "count": 3, "spacing": "cubic"}}], "got 'cubic'"),
        ([{"start.seed, start.scale": [[1, 0.1], [2]]}], "rows of 2 values, one per field"),
        ([{"start.seed": [1], "start.scale, start.seed": [[0.1, 2]]}], "name `start.seed` once"),
        (
            [{"start.seed, training.steps": [[1, 5]]}, {"start.seed, training.steps": [[1, 6]]}],
            "Grids that meet must agree.*(5,).*(6,)",
        ),
        (
            [{"start.scale": [{"from": 0.1, "to": 0.2}]}],
            "must have numbers, words or lists.*a range stands alone, without brackets",
        ),
        ([{"start.seed, start.scale": [[1, {"from": 0.1}]]}], "`start.scale` .* must have numbers"),
        ([{"training.learning_rate": [[0.1, 0.2]]}], r"one number for each run, got \[0.1, 0.2\]"),
        (
            [{"start.seed, training.learning_rate": [[1, [0.1, 0.2]]]}],
            "`training.learning_rate` .* must be one number for each run",
        ),
        ([{"network.depth": [2]}, {"start.seed": [1]}], r"Every \[\[sweep\]\] must give"),
    ],
)
def test_wrong_grids_are_one_sentence(tables, message):
    with pytest.raises(InputError, match=message):
        grid_of(*tables)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"start.scale": [0.1, -1.0]}, "`start.scale` must be greater than or equal to 0"),
        ({"start.scale": ["wide"]}, "`start.scale` must be a valid number"),
        ({"network.depth": [2, 0]}, "`network.depth` must be greater than or equal to 1"),
        ({"start.kind": ["gaussian", "residual"]}, "network.readout = true"),
        ({"start.kind": ["identity"], "start.scale": [0.1]}, "`start.scale` must not be set"),
    ],
)
def test_values_that_no_experiment_may_have_are_refused_before_any_run(table, message):
    values = {**ONE_RATE, "sweep": [table]}
    with pytest.raises(InputError, match=message):
        make_plan(from_values(values), Path())


def test_grids_survive_toml():
    text = """
        [sweeping]
        records = 9
        [[sweep]]
        "training.learning_rate, training.steps" = [[0.1, 10], [0.2, 5]]
        "start.seed" = { from = 0, to = 3 }
        [[sweep]]
        "start.seed" = [9]
    """
    once = from_toml(text)
    assert from_toml(to_toml(once)) == once
    assert once.sweep[0]["start.seed"] == {"from": 0, "to": 3}


def test_blocks_are_parts_of_groups_and_hold_every_run_once():
    sweep = [{"data.seed": [0, 1], "start.seed": {"from": 0, "to": 899}, "training.steps": [5, 7]}]
    small = {"data": {"features": 2, "samples": 4}, "network": {"depth": 2}}
    plan = make_plan(from_values({**ONE_RATE, **small, "sweep": sweep}), Path())
    tasks = [plan.task(number) for number in range(len(plan))]
    cells = np.concatenate([task.cells for task in tasks])
    assert sorted(cells.tolist()) == list(range(3600))
    for task in tasks:
        data_seed, seed, steps = np.unravel_index(task.cells, (2, 900, 2))
        assert set(data_seed) == {task.experiment.data.seed}
        assert {[5, 7][each] for each in steps} == {task.steps}
        assert [start.seed for start in task.starts] == seed.tolist()
        assert len(task.rates) <= 400
    assert plan.works().sum() == 1800 * (5 + 7)
