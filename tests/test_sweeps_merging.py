"""Two sweeps as one: the same as the sweep over both grids, or one sentence."""

import json

import pytest
import xarray as xr

from test_sweeps import NO_SPECTRUM, four_blocks, of_table, small, table
from thalweg._checks import InputError
from thalweg.sweeps import local, merge, sweep


def test_two_sweeps_become_one(tmp_path):
    """Oracle: the sweep over both grids at once."""
    grids = [
        {"training.learning_rate, training.steps": [[0.2, 9], [0.1, 18]], "start.seed": [0, 1]},
        {"training.learning_rate, training.steps": [[0.1, 18], [0.3, 6]], "start.seed": [1, 4]},
    ]
    for number, grid in enumerate(grids):
        sweep(small(grid, **NO_SPECTRUM), tmp_path / str(number))
    merged = merge(tmp_path / "0", tmp_path / "1", tmp_path / "both")
    together = sweep(small(*grids, **NO_SPECTRUM))
    xr.testing.assert_equal(merged.load(), together)
    assert merged.attrs["runs"] == together.attrs["runs"] == 7
    assert merged.attrs["runs_merged"] == [4, 4]
    with pytest.raises(InputError, match="must be a new folder"):
        merge(tmp_path / "0", tmp_path / "1", tmp_path / "both")
    sweep(small(grids[0], network={"depth": 2}, **NO_SPECTRUM), tmp_path / "other")
    with pytest.raises(InputError, match="differ in their experiment"):
        merge(tmp_path / "0", tmp_path / "other", tmp_path / "new")


def test_sweeps_without_a_finished_run_cannot_be_merged(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "compute", lambda task, note: 1 / 0)
    for name in "ab":
        with pytest.raises(ZeroDivisionError):
            sweep(four_blocks(), tmp_path / name)
    with pytest.raises(InputError, match=r"at least one finished run, but .*a has none"):
        merge(tmp_path / "a", tmp_path / "b", tmp_path / "both")


def test_sweeps_over_files_are_merged_unless_one_was_edited(tmp_path):
    for number, names in enumerate((["a.csv", "b.csv"], ["b.csv", "c.csv"])):
        for name in names:
            table(tmp_path / name, float(ord(name[0])))
        sweep(of_table("a.csv", {"data.path": names}), tmp_path / str(number), folder=tmp_path)
    merged = merge(tmp_path / "0", tmp_path / "1", tmp_path / "both")
    assert merged.path.values.tolist() == ["a.csv", "b.csv", "c.csv"]
    assert merged.attrs["runs"] == 3
    assert set(json.loads(merged.attrs["data_files"])) == {"a.csv", "b.csv", "c.csv"}
    table(tmp_path / "b.csv", 2.0)
    sweep(of_table("a.csv", {"data.path": ["b.csv"]}), tmp_path / "2", folder=tmp_path)
    with pytest.raises(InputError, match=r"over the same data .* b\.csv was changed"):
        merge(tmp_path / "0", tmp_path / "2", tmp_path / "new")
