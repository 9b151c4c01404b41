"""`certify`: all theorems about training tried on one case, whatever the case is."""

import json
from itertools import pairwise

import jax
import numpy as np
import pytest

import thalweg as tw
from thalweg.experiment import Experiment
from thalweg.network import Convolution, Dense, SharedNetwork
from thalweg.theorems import Case, Question, RandomStart, Verdict, certify_case, simulate
from thalweg.theorems.guarantees import theorems_about_cases
from thalweg.theorems.measured import measure

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(12, 4)), np.arange(12) % 3


def strange_cases() -> dict[str, Case]:
    """Cases that most theorems have nothing to say about."""
    relu = tw.HomogeneousNetwork([4, 3, 3])
    shared = SharedNetwork([Convolution(1, 2, 2, image=2), Dense(2, 3)])
    linear = tw.LinearNetwork([4, 3, 3])
    single = tw.LinearNetwork([4, 3])
    model = tw.Model(lambda weights, inputs: inputs @ weights[0].T, [(3, 4)])
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
    assert len(found) == len(theorems_about_cases()) > 20
    assert found.violated == ()
    for certificate in found:
        assert certificate.assumptions, certificate.reference
        assert certificate.applies or certificate.first_failure is not None
    assert json.loads(found.to_json())["certificates"]
    assert "What does not apply" in str(found)


@pytest.fixture(scope="module")
def white_case():
    """A balanced start with a deficiency margin, on white data."""
    experiment = Experiment(
        white=True, depth=2, start="balanced", init_scale=0.2, time=12.0, seed=0
    )
    return experiment.case()


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
    from dataclasses import replace

    case = simulate(replace(white_case, learning_rate=1e-3, target_loss=white_case.target_loss))
    found = certify_case(case)
    assert found.violated == ()
    assert sum(bool(each.conclusions) for each in found.applying) >= 5
    measured = measure(case)
    for answer, owner in found.answers(Question.TIME):
        assert float(answer.value) >= measured[Question.TIME], owner.reference
    for answer, owner in found.answers(Question.LEAST_SHARPNESS):
        assert float(answer.value) <= measured[Question.LEAST_SHARPNESS] * (1 + 1e-6), owner
    for answer, owner in found.answers(Question.DISTANCE):
        assert float(answer.value) >= measured[Question.DISTANCE], owner.reference
    assert "Promised against measured" in str(found)


def test_without_a_time_there_is_nothing_to_simulate(white_case):
    case = Case(white_case.objective, white_case.weights)
    with pytest.raises(tw.InputError, match="`time` must say how long to simulate"):
        simulate(case)
