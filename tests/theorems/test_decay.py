"""Gradients that dominate the loss, and the decay that follows; quadratic risks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import thalweg as tw
from thalweg.certificates import Verdict
from thalweg.theorems.convergence.decay import (
    ExponentialDecay,
    FlowWithRate,
    Predictor,
    QuadraticRisk,
)

few = settings(max_examples=max(5, settings.default.max_examples // 3))


def one_layer(x, y, scale, start, times):
    """The flow of a linear predictor, whose loss is convex, and the problem."""
    problem = tw.Regression(x, y, scale=scale)
    objective = tw.Objective(tw.LinearNetwork([x.shape[1], 1]), problem)
    return tw.flow(objective, (start,), times=times, solver=tw.solvers.Explicit()), problem


TIMES = np.linspace(0, 3, 7)


@pytest.mark.statement("marion2024:lem7", "holds")
@few
@given(seed=st.integers(0, 2**31 - 1), scale=st.floats(0.3, 2.0))
def test_the_loss_falls_at_the_rate_of_the_flattest_direction(seed, scale):
    """By lem8 the gradient of a linear predictor's loss dominates it with 4 scale lambda."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((12, 3)), random.standard_normal(12)
    flow, problem = one_layer(x, y, scale, random.standard_normal((1, 3)), TIMES)
    rate = 4 * scale * float(problem.spectrum[0])
    certificate = ExponentialDecay().check(FlowWithRate(flow, rate, float(problem.minimum)))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert certificate.answers[0].value == rate


@pytest.mark.statement("marion2024:lem7", "tight")
def test_along_the_flattest_direction_the_decay_is_exact():
    x = np.sqrt(3) * np.diag([1.0, 0.5, 2.0])
    start = np.array([[0.0, 1.0, 0.0]])
    flow, problem = one_layer(x, np.zeros(3), 1.0, start, TIMES)
    np.testing.assert_allclose(problem.spectrum, [0.25, 1, 4], rtol=1e-14)
    certificate = ExponentialDecay().check(FlowWithRate(flow, 1.0))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    claim = certificate.conclusions[0]
    # Both sides are the same function, up to what the flow says of its own error.
    np.testing.assert_allclose(claim.greater, 0.25 * np.exp(-TIMES), rtol=1e-14)
    # At single times that may be small by chance.
    assert np.all(np.abs(claim.lesser - claim.greater) <= 3 * claim.resolution)
    assert np.max(claim.resolution) < 1e-6


@pytest.mark.statement("marion2024:lem7", "fails")
def test_a_rate_that_the_gradient_does_not_support():
    """As printed, |grad f| >= mu (f - f_min), the assumption holds here with mu = 2, and lies."""
    x = np.sqrt(3) * np.diag([0.1, 0.1, 0.1]) / np.sqrt(2)
    flow, _ = one_layer(x, np.zeros(3), 1.0, np.array([[0.0, 1.0, 0.0]]), TIMES)
    subject = FlowWithRate(flow, 2.0)
    np.testing.assert_allclose(subject.excess[0], 1 / 200, rtol=1e-14)
    assert np.all(np.sqrt(subject.squared_slope) >= 2 * subject.excess)
    certificate = ExponentialDecay().check(subject)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(certificate.first_failure.margin, 1e-4 - 2 / 200, rtol=1e-9)
    assert ExponentialDecay().conclusions(subject)[0].fails
    true = ExponentialDecay().check(FlowWithRate(flow, 0.0199))
    assert true.verdict is Verdict.CONFIRMED


@pytest.mark.statement("marion2024:lem8", "holds")
@given(
    seed=st.integers(0, 2**31 - 1),
    size=st.floats(1e-3, 1e3),
    scale=st.floats(0.1, 3.0),
)
def test_the_excess_risk_is_a_quadratic_form(seed, size, scale):
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((12, 3)), random.standard_normal((12, 2))
    matrix = size * random.standard_normal((2, 3))
    certificate = QuadraticRisk().check(Predictor(tw.Regression(x, y, scale), matrix))
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("marion2024:lem8", "tight")
@pytest.mark.parametrize("end", [0, -1])
def test_along_eigenvectors_the_gradient_attains_its_bounds(end):
    """Data whose extreme eigenvalues are known from elsewhere."""
    problem = tw.Regression(*oracles.marion_data_b(), scale=1.0)
    values, vectors = np.linalg.eigh(problem.input_moment)
    extremes = [0.12347884339119472, 0.8892190229713042]
    np.testing.assert_allclose(values[[0, -1]], extremes, rtol=1e-12)
    matrix = np.asarray(problem.minimiser) + vectors[:, end]
    certificate = QuadraticRisk().check(Predictor(problem, matrix))
    assert certificate.verdict is Verdict.CONFIRMED
    claim = certificate.conclusions[2 if end == 0 else 3]
    np.testing.assert_allclose(claim.looseness, 1, rtol=1e-13)
    np.testing.assert_allclose(max(claim.worst()), (2 * extremes[end]) ** 2, rtol=1e-12)


@pytest.mark.statement("marion2024:lem8", "fails")
def test_other_losses_and_shapes_are_not_quadratic_risks():
    labelled = tw.Classification(np.eye(2), [0, 1], loss="logistic")
    for problem, matrix in (
        (labelled, np.ones((1, 2))),
        (tw.TargetMatrix(np.eye(2)), np.ones((2, 3))),
    ):
        certificate = QuadraticRisk().check(Predictor(problem, matrix))
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        assert certificate.first_failure.margin == -1
