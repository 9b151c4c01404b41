"""What the fuzzer has found, one test for each class of finds."""

import os
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import InputError, cli, experiment
from thalweg.experiment.building import _standardised
from thalweg.storage import holds
from thalweg.storage.files import write_text


@pytest.fixture
def refusal(monkeypatch, capsys, tmp_path):
    """Run a command that must be refused; the sentence."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["thalweg", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == 2
        return capsys.readouterr().err

    return call


def test_what_is_repeated_does_not_bury_the_sentence():
    for name in ("a" * 10**5, "ab " * 10**5, "\u00e9" * 3000):
        with pytest.raises(InputError) as refused:
            experiment.from_values({name: 1})
        said = str(refused.value)
        assert len(said) < 1000
        assert "must not be set" in said or said.endswith(".")
    path = "/home/somebody/" + "folder/" * 30
    assert path in str(InputError(f"{path} must be a file."))


@pytest.mark.parametrize("command", ["show", "check", "run", "init", "sweep", "certify"])
def test_names_that_no_disk_can_hold_are_refused(refusal, command):
    for length in (300, 5000):
        said = refusal(command, *(["--out"] if command == "run" else []), "x" * length)
        assert said.startswith("error: "), said


def test_a_name_that_is_too_long_only_with_an_ending_is_looked_for(tmp_path):
    assert holds(tmp_path / ("x" * 250)) is None


def test_folders_are_no_files(refusal, tmp_path):
    for place in (".", "..", "/"):
        assert "must be a file, got" in refusal("init", place, "--force")
    with pytest.raises(OSError, match=r"directory|busy"):
        write_text(tmp_path / ".", "text")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("unit", [1e155, 1e-300, 1.0])
def test_columns_are_standardised_in_any_unit(unit):
    """Oracle: the same numbers in units of one; powers of two apart, to rounding."""
    column = np.random.default_rng(0).normal(size=(7, 1)) + 2.0
    found = _standardised(jnp.asarray(unit * column), ("a",))
    wanted = (column - column.mean()) / column.std()
    np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-15)


def test_flat_minimisers_have_no_critical_rate():
    """Targets of zero: the minimiser is zero, where deep networks have no curvature at all."""
    x = np.eye(2)
    objective = tw.Objective(tw.LinearNetwork([2, 2, 1]), tw.Regression(x, np.zeros(2)))
    weights = (np.ones((2, 2)) / 2, np.ones((1, 2)) / 2)
    found = tw.critical_learning_rate(objective, weights, steps=20)
    least = found.prediction("2 / least sharpness")
    assert np.isnan(least.rates).all()
    assert "zero" in least.reason
