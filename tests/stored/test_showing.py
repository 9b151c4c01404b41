"""What `thalweg show` says of any folder, and what stored variables say of themselves."""

import shutil

import numpy as np
import pytest
import xarray as xr
from stored_kinds import refused

import thalweg as tw
from thalweg import reports, storage
from thalweg.quantities import QUANTITIES, described
from thalweg.storage.files import only_writer

# --- what is shown of any folder -----------------------------------------------------------------


def test_nothing_to_show_is_said_in_one_sentence(folders, show, tmp_path):
    for name in ("empty", "foreign", "begun", "several", "worked"):
        (tmp_path / name).mkdir()
    (tmp_path / "file.txt").write_text("text")
    (tmp_path / "foreign" / "notes.txt").write_text("text")
    (tmp_path / "begun" / ".lock").write_text("")
    for kind in ("run", "sweep"):
        shutil.copytree(folders[kind], tmp_path / "several" / kind)
    xr.Dataset({"x": 1.0}).to_zarr(tmp_path / "other.zarr", zarr_format=2)
    storage.write_results(xr.Dataset({"x": 1.0}), tmp_path / "nameless")
    answers = {
        "none": "which does not exist",
        "file.txt": "which is a file",
        "empty": "which is empty",
        "foreign": "which holds no results.zarr, but notes.txt",
        "begun": "where a command began and has finished nothing yet; give it again",
        "several": "which holds folders of results: run, sweep; name one",
        "other.zarr": "SHA256SUMS is missing",
        "nameless": "must hold a run, a sweep or a study, but does not say which",
    }
    for name, sentence in answers.items():
        answer = show(tmp_path / name)
        assert refused(answer, tmp_path / name), answer
        assert sentence in answer[2], answer
    with only_writer(tmp_path / "worked"):
        assert "another command is at work there" in show(tmp_path / "worked")[2]


@pytest.mark.parametrize("kind", ["run", "sweep", "study"])
def test_results_of_another_format_are_named(folders, show, tmp_path, kind):
    results = tw.open(folders[kind]).load()
    storage.write_results(results.assign_attrs(format=1), tmp_path)
    answer = show(tmp_path)
    assert refused(answer, tmp_path)
    assert "got 1: another version of thalweg wrote this" in answer[2]
    assert kind in answer[2]


def test_studies_of_other_settings_are_named(folders, show, tmp_path):
    results = tw.open(folders["study"]).load()
    storage.write_results(results.assign_attrs(settings="others"), tmp_path)
    answer = show(tmp_path)
    assert refused(answer, tmp_path)
    assert "must be of this version of thalweg" in answer[2]


def test_what_is_shown_of_each_kind(folders, show, tmp_path):
    assert "Two runs" in show(folders["run"])[1]
    assert "diverged" in show(folders["run"])[1]
    assert "6 runs over 3 data_seed x 2 start_seed\n" in show(folders["sweep"])[1]
    assert "the last cube" in show(folders["study"])[1]
    assert '"verdict": "confirmed"' in show(folders["study"], "--json")[1]
    assert "`thalweg reproduce cubes --quick` continues" in show(folders["unfinished study"])[1]
    assert '"done": 3' in show(folders["unfinished study"], "--json")[1]
    assert "`thalweg run` continues" in show(folders["unfinished run"])[1]
    assert '"runs_wanted": 6' in show(folders["unfinished sweep"], "--json")[1]
    shutil.copytree(folders["unfinished sweep"], tmp_path / "sweep")
    for block in (tmp_path / "sweep" / "blocks").rglob("*.npz"):
        block.unlink()
    code, printed, _ = show(tmp_path / "sweep")
    assert code == 0
    assert "0 of 6 runs over 3 data_seed x 2 start_seed, unfinished; the same" in printed
    with only_writer(tmp_path / "sweep"):
        assert "another command is at work on it" in show(tmp_path / "sweep")[1]


# --- what variables say of themselves ------------------------------------------------------------


def test_every_variable_says_what_it_is(folders):
    """The CF conventions: long_name, units of numbers, and the meanings of flags."""
    for kind in ("run", "sweep", "unfinished sweep"):
        results = tw.open(folders[kind])
        for name, variable in results.variables.items():
            assert variable.attrs.get("long_name"), (kind, name)
            assert variable.dtype.kind not in "iuf" or variable.attrs["units"] == "1", (kind, name)
        for name in results.data_vars:
            assert name in QUANTITIES, (kind, name)
        for name in ("diverged_at", "phase"):
            flags = results[name].attrs
            assert results[name].dtype.kind == "i"
            assert len(flags["flag_meanings"].split()) == len(flags["flag_values"])


def test_divergence_is_an_integer_that_missing_numbers_do_not_change(folders):
    run = tw.open(folders["run"]).load()
    assert run.diverged_at.values[0] == -1
    assert run.diverged_at.values[1] > 0
    rows = reports.summary(run.assign(loss=run.loss * np.nan, excess=run.excess * np.nan))
    assert [row["diverged_at"] for row in rows] == [None, int(run.diverged_at[1])]
    assert rows[0]["phase"] == reports.summary(run)[0]["phase"]


def test_a_description_keeps_what_a_variable_says_already():
    given = xr.Dataset({"loss": ("x", [1.0], {"units": "nats"})}, {"learning_rate": 0.1})
    found = described(given)
    assert found.loss.attrs["units"] == "nats"
    assert found.learning_rate.attrs["long_name"] == "learning rate"
    assert "long_name" not in given.loss.attrs
