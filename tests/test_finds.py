"""What the fuzzer has found, one test for each class of finds."""

import os
import re
import sys

import jax
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
        assert len(said) < 1000


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


@pytest.mark.parametrize("size", [1e308, 1e-300])
def test_numbers_whose_powers_leave_floating_point_are_refused(size):
    """Of a loss of scale 1e-300 a lemma was called violated; of inputs of 1e308 no norm is left."""
    x, y = np.eye(2), np.ones(2)
    for make in (
        lambda: tw.Regression(size * x, y), lambda: tw.Regression(x, size * y),
        lambda: tw.Regression(x, y, scale=size), lambda: tw.TargetMatrix(size * x),
        lambda: tw.Classification(size * x, [0, 1]),
        lambda: tw.Objective(tw.LinearNetwork([2, 1]), tw.Regression(x, y), size),
    ):  # fmt: skip
        with pytest.raises(
            InputError, match=f"of a size .* or zero, .*got {re.escape(f'{size:g}')};"
        ):
            make()
    assert tw.Regression(x, 0 * y).minimum == 0  # all zeros are fine


def test_whole_numbers_beyond_all_arrays_are_numbers():
    network = tw.LinearNetwork([2, 2, 1])
    large = tw.initialisation.gaussian(network, 10**30, key=jax.random.key(0))
    same = tw.initialisation.gaussian(network, 1e30, key=jax.random.key(0))
    np.testing.assert_array_equal(large[0], same[0])


def test_overflow_is_told_by_results_alone(monkeypatch, capsys):
    def overflow():
        return np.float64(1e308) * 10

    monkeypatch.setattr(cli, "app", overflow)
    cli.main()
    assert capsys.readouterr().err == ""


def test_no_side_of_a_claim_is_infinite_where_the_imbalance_is_large():
    """What is left of mu is -inf there; the claim before it says why."""
    objective = tw.Objective(tw.LinearNetwork([2, 2, 1]), tw.TargetMatrix([[1.0, 0.5]]))
    found = tw.certify(objective, (np.diag([2.0, 1.0]), np.array([[0.4, 0.3]])))
    failed = found["arora2019:cor-cert2"].first_failure
    assert failed.statement == "N (N - 1) / 2 imbalance(0) M(imbalance(0), C)^(2(N-1)) < c^2"
    assert all(np.isfinite(float(side)) for side in failed.worst())


def test_flat_minimisers_have_no_critical_rate():
    """Targets of zero: the minimiser is zero, where deep networks have no curvature at all."""
    x = np.eye(2)
    objective = tw.Objective(tw.LinearNetwork([2, 2, 1]), tw.Regression(x, np.zeros(2)))
    weights = (np.ones((2, 2)) / 2, np.ones((1, 2)) / 2)
    found = tw.critical_learning_rate(objective, weights, steps=20)
    least = found.prediction("2 / least sharpness")
    assert np.isnan(least.rates).all()
    assert "zero" in least.reason


def small_run(rates=0.1):
    network = tw.LinearNetwork([2, 2, 1])
    objective = tw.Objective(network, tw.TargetMatrix([[1.0, 0.5]]))
    weights = tw.initialisation.gaussian(network, 0.3, key=jax.random.key(0))
    return tw.descend(objective, weights, learning_rate=rates, steps=4)


@pytest.mark.parametrize("times", [[[0.1, 0.2], [0.1, 0.2]], np.full((2, 2, 2), 0.1)])
def test_times_with_axes_that_no_run_has_are_refused(times):
    with pytest.raises(InputError, match=r"`times` must be a list, .* got shape \(2, 2"):
        small_run().at(times)


def test_times_of_a_batch_may_have_its_axes():
    run = small_run(np.array([0.1, 0.2]))
    early = run.at(run.times[:, :2])
    np.testing.assert_array_equal(early.loss, run.loss[:, :2])


def test_infinite_times_are_refused():
    with pytest.raises(InputError, match="`times` must be finite, got inf"):
        small_run().at([np.inf])


@pytest.mark.parametrize("loss", ["cross_entropy", "logistic"])
def test_outputs_that_are_no_numbers_have_no_accuracy(loss):
    problem = tw.Classification(np.eye(2), [0, 1], loss=loss)
    outputs = np.ones((2, problem.shape[0]))
    assert np.isfinite(problem.accuracy(outputs))
    assert np.isnan(problem.accuracy(np.where(np.eye(2)[:, : outputs.shape[1]], np.nan, outputs)))


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "x" * 300, "ab/" * 2000])
def test_texts_that_name_no_file_are_no_paths(name):
    for read in (experiment.read, tw.open, tw.data.mnist):
        with pytest.raises(InputError, match="`path` must be a path"):
            read(name)


def test_what_is_measured_along_a_run_is_an_array():
    with pytest.raises(InputError, match=r"`function` must give an array .*, got None"):
        tw.measurement.along(small_run(), lambda weights: None)


@pytest.mark.parametrize("name", ["learning_rate", "time", "radius", "target_loss"])
def test_numbers_of_a_case_have_powers_within_floating_point(name):
    """A radius of 1.8e308 made infinity times zero, and the side of a claim was no number."""
    run = small_run()
    start = tuple(array[0] for array in run.weights)
    with pytest.raises(InputError, match=f"`{name}` must be of a size between .*got 1.8e\\+308"):
        tw.certificates.Case(run.objective, start, **{name: 1.7976931348623157e308})


def test_starts_that_no_memory_holds_are_refused():
    for make in (
        lambda: tw.adversarial.diverging(2**34, 2, 0.1, 0.1),
        lambda: tw.adversarial.stalling(2**34, [[-1.0]]),
    ):
        with pytest.raises(InputError, match=r"17179869184 layers must fit in memory, .*TB of"):
            make()
