"""A run at the edge of stability in a report: the central flow's numbers, picture and sentences."""

import jax
import numpy as np
import pytest

import thalweg as tw
from edge_problems import RATE, rows
from thalweg import experiment, reports
from thalweg.experiment import performance
from thalweg.figures.overview import picture_names, picture_of
from thalweg.optimisers import HeavyBall
from thalweg.phases import Phase
from thalweg.reports.captions import captions

NAMES = ("central_loss", "central_spread", "central_swing", "central_distance")


def settings(rates):
    built_in = experiment.Experiment()
    training = built_in.training.model_copy(update={"learning_rate": rates})
    quick = {
        "certificates": built_in.certificates.model_copy(update={"enabled": False}),
        "flow": built_in.flow.model_copy(update={"tube": "off", "validated": False}),
    }
    return built_in.model_copy(update={"training": training, **quick})


@pytest.fixture(scope="module")
def results():
    return experiment.perform(settings((0.05, RATE)))


def test_it_is_told_of_the_run_at_the_edge_alone(results):
    below, above = (results.isel(learning_rate=number) for number in (0, 1))
    assert below.phase == Phase.MONOTONE
    assert above.phase == Phase.EDGE
    known = above.central_spread.notnull()
    for name in NAMES:
        assert not below[name].notnull().any()
        assert np.array_equal(above[name].notnull(), known)
    begin = float(above.time[known][0])
    assert 4.5 < begin < 6  # the sharpness meets the edge at 4.2
    assert known[np.asarray(above.time > begin)].all()


def test_the_numbers_are_those_of_the_run_and_its_central_flow(results):
    ready = experiment.prepared(settings((RATE,)))
    run = tw.descend(ready.objective, ready.weights, learning_rate=RATE, steps=160)
    central = tw.central_flow(ready.objective, ready.weights, learning_rate=RATE, times=run.times)
    row = results.isel(learning_rate=1)
    row = row.isel(record=row.central_spread.notnull().values)
    steps = row.step.values.astype(int)
    away = rows(run.weights)[steps] - rows(central.weights)[steps]
    signed = (-1.0) ** steps * row.central_swing
    np.testing.assert_allclose(row.central_loss, central.mean_loss[steps], rtol=1e-6)
    np.testing.assert_allclose(row.central_spread**2, central.variance[steps], rtol=1e-5)
    # Nearly all of the way from the centre is along the oscillation, on its own side.
    np.testing.assert_allclose(signed, np.linalg.norm(away, axis=1), rtol=1e-4)
    assert np.all(row.central_distance < 1e-3)
    assert np.all(row.central_distance > 0)


def test_the_report_draws_it_and_says_what_it_means(results):
    assert "central_swing" in picture_names(results)
    axes = picture_of(results, "central_swing").axes[0]
    dots = [line for line in axes.lines if line.get_marker() == "."]
    known = int(results.central_swing.notnull().sum())
    assert [np.size(line.get_xdata()) for line in dots] == [known]
    band = axes.collections[0].get_paths()[0].get_extents()
    assert band.ymax == pytest.approx(float(results.central_spread.max()))
    loss = picture_of(results, "loss").axes[0]
    assert "mean loss by the central flow" in [line.get_label() for line in loss.lines]
    sentence = next(each for each in reports.findings(results) if "central flow" in each)
    assert "At learning rate 0.1, from t = " in sentence
    assert "0.05" not in sentence
    assert "standard deviation" in captions(results)["central_swing"]


def test_a_central_flow_that_is_far_away_is_not_said_to_predict(results):
    near, far = (
        next(
            each
            for each in reports.findings(
                results.assign(central_distance=factor * results.central_distance)
            )
            if "central flow" in each
        )
        for factor in (1.0, 1e4)
    )
    assert "predicts both" in near
    assert "predicts both" not in far
    assert "but here it is up to" in far


def test_variables_come_in_the_same_order_in_every_process(results):
    """Sets of words do not: their order is drawn when Python starts."""
    assert tuple(name for name in results.data_vars if name in NAMES) == NAMES


def test_below_the_edge_nothing_is_computed_and_nothing_said(monkeypatch):
    def refuse(run):
        raise AssertionError("no central flow is wanted here")

    monkeypatch.setattr(performance, "edge_arrays", refuse)
    found = experiment.perform(settings((0.05,)))
    assert not any(name in found for name in NAMES)
    assert "central_swing" not in picture_names(found)
    assert not any("central flow" in each for each in reports.findings(found))
    with pytest.raises(AssertionError, match="no central flow"):
        experiment.perform(settings((RATE,)))


def test_of_momentum_nothing_is_said():
    ready = experiment.prepared(settings((RATE,)))
    run = tw.descend(
        ready.objective, ready.weights, learning_rate=RATE, steps=20, optimiser=HeavyBall(0.5)
    )
    plain = tw.descend(ready.objective, ready.weights, learning_rate=RATE, steps=20)
    assert not performance.is_at_the_edge(run, Phase.EDGE)
    assert performance.is_at_the_edge(plain, Phase.EDGE)
    assert not performance.is_at_the_edge(plain, Phase.MONOTONE)
    assert jax.tree.leaves(run.weights)
