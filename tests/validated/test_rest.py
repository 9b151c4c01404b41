"""After the last step: what is said for ever, against what happens for long."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import thalweg as tw
from thalweg.validated import curve, setting_of


def _problem(number):
    """A network on data of condition up to 30 or a target, followed until it is near its end."""
    rng = np.random.default_rng(number)
    depth, outputs = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    network = tw.LinearNetwork([3] * depth + [outputs])
    x = rng.normal(size=(8, 3)) * np.geomspace(1, rng.choice([1.0, 0.2]), 3)
    target = rng.normal(size=(outputs, 3))
    noise = rng.normal(size=(8, outputs))
    problems = (tw.TargetMatrix(target), tw.Regression(x, x @ target.T + 0.3 * noise))
    objective = tw.Objective(network, problems[number % 2])
    start = tw.initialisation.gaussian(network, 0.8, key=jax.random.key(number))
    return objective, start


@pytest.mark.parametrize(("number", "time"), [(0, 10.0), (1, 80.0), (2, 5.0)])
def test_nothing_leaves_what_is_said_for_ever(number, time):
    """Oracle: flow and descent, followed ten times as long."""
    objective, start = _problem(number)
    flow = tw.flow(objective, start, times=np.linspace(0, time, 5), validate=True)
    bound = flow.forever()
    assert bound is not None
    later = tw.flow(objective, flow.final, times=np.geomspace(0.01, 9, 20) * time, rtol=1e-10)
    moved = zip(later.weights, flow.final, strict=True)
    away = np.sqrt(sum(np.sum((a - b) ** 2, axis=(1, 2)) for a, b in moved))
    assert np.all(away <= bound + 10 * later.error)
    rate = 0.02  # whose run may need a little longer
    run = tw.descend(objective, start, learning_rate=rate, steps=round(2 * time / rate))
    bound = flow.forever(run)
    assert bound is not None
    longer = tw.descend(objective, start, learning_rate=rate, steps=round(5 * time / rate))
    gap = tw.distance(longer, flow.at(longer.times))
    assert np.all(gap.lower[longer.times >= run.times[-1]] <= bound)


def _scalar(weight):
    """(w - 1)^2 / 2, whose flow and descent have the length |w - 1| before them."""
    objective = tw.Objective(tw.LinearNetwork([1, 1]), tw.TargetMatrix([[1.0]]))
    return setting_of(objective).rest((np.array([[weight]]),))


def test_one_weight_is_bounded_by_its_very_length():
    known = _scalar(0.5)
    assert 0.5 <= known.of_flow(0.0) <= 0.5 * (1 + 1e-10)
    assert 0.5 <= known.of_descent(1e-9) <= 0.5 * (1 + 1e-8)
    assert 0.51 <= known.of_flow(0.01) - 0.01 <= 0.51 * (1 + 1e-10)  # it may begin at 0.49
    assert (
        known.of_descent(1.9) >= 0.5 / 0.05
    )  # from 0.5 to 1.45 to 0.595: 0.5 (1 + 0.9) / (1 - 0.9)


@pytest.mark.parametrize("planted", ["least", "lowest", "root"])
def test_planted_errors_are_seen(planted):
    """Each number that the length is made of, wrong by a tenth: one weight's flow is outside."""
    known = _scalar(0.5)
    wrong = 1.1 if planted != "root" else 1 / 1.1
    assert replace(known, **{planted: getattr(known, planted) * wrong}).of_flow(0.0) < 0.5


@pytest.mark.parametrize("number", range(4))
def test_the_singular_value_is_that_of_the_jacobian(number):
    """Oracle: the dense derivative by JAX."""
    objective, start = _problem(number)
    network = objective.network
    setting = setting_of(objective)
    rows = jax.jacobian(network.end_to_end)(start)
    matrix = np.concatenate([np.asarray(a).reshape(network.outputs * 3, -1) for a in rows], axis=1)
    least = np.linalg.svd(matrix, compute_uv=False)[-1]
    found = setting.rest(tuple(map(np.asarray, start))).least
    # The slack of 8 outputs features + 64 depth units is about 2e-14 of the trace, some hundred.
    assert least**2 - 1e-11 <= found**2 <= least**2 * (1 + 1e-12)


def test_the_built_in_experiment_for_ever():
    """The numbers of an independent program, whose own radius was 7e-11 and ours 2e-11."""
    from pathlib import Path

    from thalweg import experiment

    settings = tw.Experiment()
    objective = experiment.objective(settings, Path())
    start = experiment.start(settings, objective)
    flow = tw.flow(objective, start, time=16.0, validate=True)
    assert flow.forever() < 4.0e-10
    known = {0.02: 0.00332214086, 0.05: 0.00846606278}
    for rate, bound in known.items():
        run = tw.descend(objective, start, learning_rate=rate, steps=round(16 / rate))
        assert 0.999 * bound < flow.forever(run) < bound
    # At the edge of stability nothing comes to rest.
    run = tw.descend(objective, start, learning_rate=0.2, steps=80)
    assert flow.forever(run) is None


def test_where_nothing_is_known():
    network, x = tw.LinearNetwork([2, 2, 1]), np.array([[1.0, 0.5], [0.3, 1.0], [1.0, 1.0]])
    start = (np.array([[0.5, 0.2], [0.1, 0.7]]), np.array([[0.6, 0.4]]))
    problems = {
        "labels": (tw.Classification(x, [0, 1, 1], loss="logistic"), 0.0, 20.0),
        "decay": (tw.TargetMatrix([[1.0, 0.5]]), 0.01, 20.0),
        "rank": (tw.Regression(x @ np.array([[1.0, 1.0], [1.0, 1.0]]), [1.0, 2.0, 2.0]), 0.0, 20.0),
        "early": (tw.TargetMatrix([[30.0, 5.0]]), 0.0, 0.01),
    }
    for name, (problem, decay, time) in problems.items():
        objective = tw.Objective(network, problem, decay)
        flow = tw.flow(objective, start, time=time, validate=True)
        assert flow.forever() is None, name
        run = tw.descend(objective, start, learning_rate=time / 100, steps=100)
        assert flow.forever(run) is None, name


def test_a_batch_is_refused():
    objective, start = _problem(0)
    flow = tw.flow(objective, start, time=1.0, validate=True)
    run = tw.descend(objective, start, learning_rate=np.array([0.1, 0.2]), steps=3)
    with pytest.raises(tw.InputError, match="`forever` takes one run, got a batch of shape"):
        flow.forever(run)


def test_the_curve_stays_where_the_flow_rests():
    """A sharp minimum, over a long time: few steps, and the radius holds to the end."""
    objective = tw.Objective(tw.LinearNetwork([2, 2, 2]), tw.TargetMatrix([[9.0, 0.0], [0.0, 1.0]]))
    start = (np.array([[1.0, 0.2], [0.1, 0.7]]), np.array([[0.6, 0.4], [0.3, 1.0]]))
    flow = tw.flow(objective, start, times=[5.0, 500.0], validate=True)
    assert flow.curve.steps[-1].still
    assert len(flow.curve.steps) < 400
    assert flow.radius[-1] < 1e-10
    later = tw.flow(objective, start, times=[500.0], rtol=1e-12, atol=1e-14)
    gap = tw.distance(later, flow.at(later.times))
    assert gap[0] <= flow.radius[-1] + 10 * later.error[0]
    assert flow.forever() == flow.radius[-1]


def test_where_many_steps_are_spared_the_ball_may_be_wider(monkeypatch):
    network = tw.LinearNetwork([5, 5, 5, 1])
    rng = np.random.default_rng(0)
    x = np.linalg.qr(rng.normal(size=(20, 5)))[0] * 20**0.5
    objective = tw.Objective(network, tw.Regression(x, x @ rng.normal(size=(5, 1))))
    start = tw.initialisation.gaussian(network, 1.2, key=jax.random.key(0))
    monkeypatch.setattr(curve, "_STILL", 0.0)
    ends = []
    for long in (10**9, 10):
        monkeypatch.setattr(curve, "_LONG", long)
        flow = tw.flow(objective, start, times=[4.0], validate=True)
        ends.append((flow.curve.steps[-1].still, float(flow.radius[-1])))
    (never, narrow), (sooner, wide) = ends
    assert sooner
    assert not never
    assert narrow < wide <= 64 * narrow
