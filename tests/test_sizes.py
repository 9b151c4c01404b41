"""What is too large is refused with its size, before anything is allocated."""

import time

import jax
import numpy as np
import pytest

import thalweg as tw
from thalweg import InputError, _sizes, experiment

HUGE = {
    "data.samples": (100_000_000_000, "would take .* TB of the .* GB that are free"),
    "network.width": (10_000_000, "weights must fit in memory, but would take .* PB"),
    "network.depth": (100_000, "would take about .* days here; lower .*`network.depth`"),
    "training.steps": (10**12, "would take about .* days here; lower `training.steps`"),
    "training.records": (10**12, "weights at .* records .* must fit in memory"),
}


@pytest.mark.parametrize("field", HUGE)
def test_a_huge_experiment_is_refused_at_once(field):
    value, sentence = HUGE[field]
    changes = {"training.steps": 10**9} if field == "training.records" else {}
    settings = experiment.changed(experiment.Experiment(), changes | {field: value})
    began = time.process_time()
    with pytest.raises(InputError, match=sentence):
        experiment.perform(settings)
    assert time.process_time() - began < 10  # of this process alone; some compiles are in it


@pytest.mark.parametrize("field", ["data.samples", "network.depth", "training.steps"])
@pytest.mark.parametrize("value", [2**63, 10**400])
def test_numbers_beyond_all_machines_are_refused_by_name(field, value):
    with pytest.raises(InputError, match=f"`{field}` must be less than 9223372036854775808"):
        experiment.changed(experiment.Experiment(), {field: value})


@pytest.mark.parametrize("changes", [{"training.time": 1e308, "training.learning_rate": 1e-10}])
def test_a_time_of_endless_steps_is_refused(changes):
    with pytest.raises(InputError, match="fewer than 2\\^63 steps"):
        experiment.changed(experiment.Experiment(), changes)


def test_python_functions_that_allocate_refuse_too():
    key = jax.random.key(0)
    with pytest.raises(InputError, match="samples, 5 features and 1 outputs must fit in memory"):
        tw.data.gaussian_regression(key, samples=10**12)
    with pytest.raises(InputError, match="must fit in memory"):
        tw.data.conditioned_regression(key, 10**7, 10**6, 10.0)
    wide = tw.LinearNetwork([10**7, 10**7, 1])
    for draw in (tw.initialisation.xavier_uniform, tw.initialisation.pytorch_default):
        with pytest.raises(InputError, match="A start of 100000010000000 weights must fit"):
            draw(wide, key=key)
    with pytest.raises(InputError, match="must fit in memory"):
        tw.initialisation.gaussian(wide, 0.1, key=key)
    with pytest.raises(InputError, match="must fit in memory"):
        tw.initialisation.identity(wide)


def test_descents_and_flows_that_cannot_be_afforded_are_refused(monkeypatch):
    objective = tw.Objective(tw.LinearNetwork([2, 1]), tw.TargetMatrix(np.ones((1, 2))))
    weights = (np.ones((1, 2)),)
    with pytest.raises(InputError, match="1 runs of 1000000000000000 steps must be done within"):
        tw.descend(objective, weights, learning_rate=0.1, steps=10**15, record_every=10**12)
    with pytest.raises(InputError, match="must be done within 30 days"):
        tw.descend(objective, weights, learning_rate=0.1, steps=10**400)
    case = tw.certificates.Case(objective, weights, learning_rate=1e-45, time=1.0)
    with pytest.raises(InputError, match="must be done within 30 days"):
        tw.certificates.simulate(case)
    monkeypatch.setattr(_sizes, "available_memory", lambda: 4000)
    with pytest.raises(InputError, match="recording of 1 runs x 1001 records must fit"):
        tw.descend(objective, weights, learning_rate=0.1, steps=1000)
    with pytest.raises(InputError, match="flow of 2 weights at 1000 times must fit in memory, but "
                       "would take 32 kB of the 4 kB that are free"):  # fmt: skip
        tw.flow(objective, weights, times=np.linspace(0, 1, 1000))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"start.seed": {"from": 0, "to": 10**12}}, "must have at most 1000000 values"),
        ({"start.scale": {"from": 0, "to": 1, "count": 10**12}}, "at most 1000000 values"),
        (
            {"start.scale": {"from": 0, "to": 1, "count": 50_000},
             "training.learning_rate": {"from": 0.1, "to": 1, "count": 50_000}},
            "span at most|must fit in memory",
        ),
        ({"start.scale": [0.1, 0.2], "training.steps": [10**14]}, "The sweep must be done within"),
    ],
)  # fmt: skip
def test_a_huge_sweep_is_refused(values, sentence):
    settings = experiment.changed(experiment.Experiment(), {"sweep": [values]})
    with pytest.raises(InputError, match=sentence):
        tw.sweep(settings)


def test_memory_is_that_of_the_machine():
    """Oracle: what the system says of all its memory; some of it is taken."""
    import os

    everything = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < _sizes.available_memory() < everything


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.5, "0.5 seconds"), (1.0, "1 second"), (90, "90 seconds"), (600, "10 minutes"),
     (7200, "2 hours"), (30 * 86400, "30 days"), (1e30, "1e25 days")],
)  # fmt: skip
def test_times_in_words(seconds, words):
    assert _sizes.time_in_words(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(12, "12 B"), (4000, "4 kB"), (25 * 10**9, "25 GB"), (4 * 10**12, "4 TB"),
     (10**400, "1e385 PB"), (123 * 10**9, "123 GB")],
)  # fmt: skip
def test_memory_in_words(count, words):
    assert _sizes.memory_in_words(count) == words


def test_a_proof_over_endless_steps_is_refused(monkeypatch, capsys, tmp_path):
    import sys

    from thalweg import cli

    command = ["prove", "--set", "training.steps=1000000000", "--out", str(tmp_path / "proof.json")]
    monkeypatch.setattr(sys, "argv", ["thalweg", *command])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "A proof over 4000000000 steps of 230 weights must fit in mem" in capsys.readouterr().err
