"""`certify`: all theorems about training tried on one case, whatever the case is."""

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise

import jax
import numpy as np
import pytest

import thalweg as tw
from thalweg import experiment
from thalweg.certificates import Answer, Case, Place, Question, RandomStart, Verdict, simulate
from thalweg.certificates.guarantees import theorems_about_cases
from thalweg.certificates.measured import measure
from thalweg.network import Convolution, Dense, SharedNetwork
from thalweg.theorems import STATEMENTS, certify_case

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(12, 4)), np.arange(12) % 3


@cache
def strange_cases() -> dict[str, Case]:
    """Cases that most theorems have nothing to say about."""
    relu = tw.HomogeneousNetwork([4, 3, 3])
    shared = SharedNetwork([Convolution(1, 2, 2, image=2), Dense(2, 3)])
    linear = tw.LinearNetwork([4, 3, 3])
    single = tw.LinearNetwork([4, 3])
    model = tw.Model(lambda weights, inputs: inputs @ weights[0].T, [(3, 4)])
    deep, flat = tw.LinearNetwork([4, 3, 3, 1]), tw.LinearNetwork([4, 1])
    dead = tw.LinearNetwork([4, 3], readout=np.zeros(3))
    one_target = tw.Regression(X, X[:, 0])
    classes = tw.Classification(X, LABELS)
    squares = tw.Regression(X, X[:, :3])
    return {
        "relu classes": Case(tw.Objective(relu, classes), draw(relu)),
        "relu squares": Case(tw.Objective(relu, squares), draw(relu), 0.1, 0.5, 1.0, 0.1),
        "shared": Case(tw.Objective(shared, classes), draw(shared), 0.1),
        "linear classes": Case(tw.Objective(linear, classes), draw(linear), 0.1, 0.5),
        "decay": Case(tw.Objective(linear, squares, weight_decay=0.1), draw(linear), 0.1),
        "one layer": Case(tw.Objective(single, squares), draw(single), 0.1, 0.5, 1.0, 0.1),
        "model": Case(tw.Objective(model, squares), (RNG.normal(size=(3, 4)),), 0.1, 0.5),
        "zero": Case(tw.Objective(linear, squares), zeros(linear), 0.1, 0.5, 1.0, 0.1),
        "zero scalar": Case(tw.Objective(deep, one_target), zeros(deep), 0.1, 0.5, 1.0, 0.1),
        "one scalar layer": Case(tw.Objective(flat, one_target), draw(flat), 0.1, 0.5, 1.0, 0.1),
        "dead readout": Case(tw.Objective(dead, one_target), draw(dead), 0.1, 0.5, 1.0, 0.1),
        "gaussian law": Case(
            tw.Objective(linear, squares), draw(linear), random_start=RandomStart("gaussian", 0.3)
        ),
        "balanced law": Case(
            tw.Objective(linear, squares), draw(linear), random_start=RandomStart("balanced", 0.3)
        ),
    }


def draw(network):
    return tuple(0.3 * RNG.normal(size=shape) for shape in network.shapes)


def zeros(network):
    return tuple(np.zeros(shape) for shape in network.shapes)


@pytest.mark.parametrize("name", list(strange_cases()))
def test_every_theorem_copes_with_any_case(name):
    found = certify_case(strange_cases()[name])
    assert len(found) == len(theorems_about_cases(STATEMENTS)) > 20
    assert found.violated == ()
    for certificate in found:
        assert certificate.assumptions, certificate.reference
        assert certificate.applies or certificate.first_failure is not None
    assert json.loads(found.to_json())["certificates"]
    assert "What does not apply" in str(found)


@pytest.fixture(scope="module")
def white_case():
    """A balanced start with a deficiency margin, on white data."""
    settings = experiment.from_values(
        {
            "data": {"white": True},
            "network": {"depth": 2},
            "start": {"kind": "balanced", "scale": 0.2},
            "training": {"time": 12.0},
        }
    )
    return replace(experiment.case(settings), learning_rate=None)


def test_the_strongest_answer_comes_first(white_case):
    found = certify_case(white_case)
    for question in Question:
        values = [answer.value for answer, _ in found.answers(question)]
        if len(values) > 1 and question.larger_is_stronger:
            assert all(a >= b for a, b in pairwise(values)), question
    rates = found.answers(Question.LEARNING_RATE)
    assert {"arora2019:thm1", "arora2019:cor-cert2"} <= {owner.reference for _, owner in rates}
    assert float(rates[0][0].value) > float(rates[-1][0].value) > 0


def test_too_large_a_learning_rate_is_told_the_one_that_would_do(white_case):
    free = certify_case(white_case)["arora2019:thm1"]
    allowed = next(a.value for a in free.answers if a.question is Question.LEARNING_RATE)
    large = tw.certify(white_case.objective, white_case.weights, learning_rate=0.5)
    certificate = large["arora2019:thm1"]
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin < 0
    told = next(a.value for a in certificate.answers if a.question is Question.LEARNING_RATE)
    assert float(told) == pytest.approx(float(allowed))


def test_what_is_promised_is_kept(white_case):
    case = simulate(replace(white_case, learning_rate=1e-3, target_loss=white_case.target_loss))
    found = certify_case(case)
    assert found.violated == ()
    assert sum(bool(each.conclusions) for each in found.applying) >= 5
    measured = measure(case)
    for answer, owner in found.answers(Question.TIME):
        assert float(answer.value) >= measured.beside(answer), owner.reference
    for answer, owner in found.answers(Question.LEAST_SHARPNESS):
        assert float(answer.value) <= measured.beside(answer) * (1 + 1e-6), owner
    for answer, owner in found.answers(Question.DISTANCE):
        assert float(answer.value) >= measured.beside(answer), owner.reference
    for answer, owner in found.answers(Question.CURVATURE):
        assert float(answer.value) <= measured.beside(answer) + 1e-12, owner.reference
    assert "Conclusions against measurements" in str(found)


def test_without_a_time_there_is_nothing_to_simulate(white_case):
    case = Case(white_case.objective, white_case.weights)
    with pytest.raises(tw.InputError, match="`time` must say how long to simulate"):
        simulate(case)


NETWORK = tw.LinearNetwork([2, 2, 1])
ONE, OTHER = (tw.Objective(NETWORK, tw.TargetMatrix(goal)) for goal in ([1.0, 0.0], [0.0, -1.0]))
START = (0.3 * np.eye(2), 0.3 * np.ones((1, 2)))


def batch():
    return tuple(np.stack([array, array]) for array in START)


def single_precision():
    start = tuple(np.asarray(array, np.float32) for array in START)
    objective = tw.Objective(NETWORK, tw.TargetMatrix(np.asarray([1, 0], np.float32)))
    return objective, start, tw.descend(objective, start, learning_rate=0.1, steps=3)


def foreign(objective, weights=START):
    return tw.descend(objective, weights, learning_rate=0.1, steps=3)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: tw.certify(ONE, batch()), "`weights` must be those of one network: layer 1"),
        (lambda: tw.certify(ONE, (np.nan * START[0], START[1])), r"`weights\[0\]` must be finite"),
        (lambda: tw.certify(ONE, START, float("nan")), "`learning_rate` must be one finite number"),
        (lambda: tw.certify(ONE, START, target_loss=float("inf")), "`target_loss` must be one"),
        (lambda: tw.certify(ONE, START, run=foreign(OTHER)), "on the objective of the case"),
        (lambda: tw.certify(ONE, START, run=foreign(ONE, batch())), "of one network, got a batch"),
        (lambda: RandomStart("uniform", 1.0), "`kind` must be one of gaussian, balanced, residual"),
        (lambda: RandomStart("balanced", 0.0), "`scale` must be positive"),
        (lambda: tw.certify(ONE, START)["arora2019:thm9"], "must be the id of a statement about"),
        (lambda: Case(*single_precision()[:2], run=single_precision()[2]), "must be in 64 bits"),
    ],
    ids=["batch", "nan", "rate", "target", "objective", "runs", "kind", "scale", "id", "float32"],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(tw.InputError, match=sentence):
        make()


def test_a_diverged_run_is_no_reason_to_stop():
    run = tw.descend(ONE, START, learning_rate=50.0, steps=30)
    found = tw.certify(ONE, START, 50.0, run=run)
    assert found.violated == ()
    assert found["marion2024:thm1"] is found["marion2024:thm2"]  # one theorem, two ids


def test_a_saddle_is_not_measured_as_a_minimiser():
    deep = tw.LinearNetwork([2, 2, 2, 1])
    objective = tw.Objective(deep, tw.TargetMatrix([1.0, 0.0]))
    weights = tuple(1e-4 * np.ones(shape) for shape in deep.shapes)
    case = simulate(Case(objective, weights, time=1.0))
    for place in Place:
        assert measure(case).beside(Answer(Question.LEAST_SHARPNESS, 0.0, place=place)) is None


def test_what_is_measured_is_measured_where_the_bound_speaks_of():
    """Oracle: dense Hessians at the very points; the flow moves to where the loss curves more."""
    network = tw.LinearNetwork([2, 2, 2, 1])
    objective = tw.Objective(network, tw.TargetMatrix([3.0, 1.0]))
    start = tuple(0.25 * np.ones(shape) for shape in network.shapes)
    run = tw.descend(objective, start, learning_rate=0.01, steps=300)
    exact = tw.flow(objective, start, times=run.times)
    measured = measure(Case(objective, start, 0.01, run=run, flow=exact))

    def smallest(point):
        return float(tw.smallest_eigenvalue(objective, point).value)

    along = [smallest(tuple(array[k] for array in exact.weights)) for k in range(len(run.times))]
    beside = {
        place: measured.beside(Answer(Question.CURVATURE, 0.0, place=place)) for place in Place
    }
    # The eigenvalues of matrices of order one are known to rounding.
    assert beside[Place.START] == pytest.approx(smallest(start), abs=1e-9)
    assert beside[Place.FLOW] == pytest.approx(min(along), abs=1e-9)
    assert beside[Place.FLOW] < beside[Place.START] - 0.1
    gaps = tw.distance(run, exact)
    short, whole = (
        measured.beside(Answer(Question.DISTANCE, 0.0, until=time)) for time in (run.times[9], 1e9)
    )
    assert short == pytest.approx(gaps[:10].max(), rel=1e-12)
    assert whole == pytest.approx(gaps.max(), rel=1e-12)
    assert short < whole


def test_a_run_of_another_rate_measures_nothing():
    run = tw.descend(ONE, START, learning_rate=0.1, steps=30)
    case = Case(ONE, START, 0.2, target_loss=10.0, run=run)
    assert measure(case).beside(Answer(Question.ITERATIONS, 0.0)) is None
