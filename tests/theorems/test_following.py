"""Descent against flow on networks: promised step sizes and distances, and measured ones."""

from dataclasses import replace
from math import inf

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import thalweg as tw
from thalweg.certificates import Case, Question, Verdict
from thalweg.problem import AbstractMarginLoss
from thalweg.theorems.discretisation.following import (
    FlowExists,
    FollowsFlow,
    FollowsWhereSmooth,
    flowing_case,
)
from thalweg.theorems.settings.linear import linear_training

STEPS = 20_000  # always as many records, so that nothing compiles twice

TARGET = np.array([1.0, 0.0, 0.0, 0.0])
NETWORK = tw.LinearNetwork([4, 4, 4, 1])
# As a regression on four white samples with a weight decay of zero, so that it compiles once for
# all of the cases below: |w - target|^2 / 2.
OBJECTIVE = tw.Objective(NETWORK, tw.Regression(2 * np.eye(4), 2 * TARGET), jnp.zeros(()))
START = tw.initialisation.aligned(NETWORK, 0.1, 0.3, TARGET)
RELU = Case(
    tw.Objective(tw.HomogeneousNetwork([4, 3, 1]), tw.TargetMatrix(TARGET)),
    (np.ones((3, 4)), np.ones((1, 3))),
    learning_rate=0.1,
    time=1.0,
    radius=0.1,
)


def one_layer(seed=0, decay=0.0):
    """Least squares with one layer, whose Hessian is Sigma in each row; scale 1/2."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((20, 3)), random.standard_normal((20, 1))
    objective = tw.Objective(tw.LinearNetwork([3, 1]), tw.Regression(x, y), decay)
    return objective, (jnp.asarray(random.standard_normal((1, 3))),)


@pytest.fixture(scope="module")
def flow():
    """The flow of an example: three layers, 36 weights."""
    return tw.flow(OBJECTIVE, START, time=6.0, solver=tw.solvers.Explicit())


def answer(certificate, question):
    """The value of the one answer to a question."""
    (found,) = (each for each in certificate.answers if each.question is question)
    return float(found.value)


# --------------------------------------------------------------- following a recorded flow


@pytest.mark.statement("elkabetz2021:thm3", "tight")
@pytest.mark.parametrize(
    ("radius", "exact", "reached"), [(0.1, 2.3e-4, 1370), (0.01, 4.2e-4, 92), (0.001, 5.7e-5, 68)]
)
def test_the_rate_is_nearly_that_of_exact_constants(flow, radius, exact, reached):
    """`exact` has constants from norms of products, on balls around every point of the exact flow.

    Records at 201 times, with the balls between them, lose at most a tenth; bounding balls block by
    block gains an eighth in the widest. The largest rate that really stays that near is `reached`
    times larger: 3.58e-1, 3.53e-2, 3.53e-3.
    """
    certificate = FollowsFlow().check(Case(OBJECTIVE, START, time=6.0, radius=radius, flow=flow))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    rate = answer(certificate, Question.FOLLOWING_RATE)
    assert 0.9 * exact < rate < 1.15 * exact
    assert 0.9 * reached < 3.55 * radius / rate < 1.1 * reached


@pytest.mark.statement("elkabetz2021:thm3", "holds")
@settings(max_examples=4)  # a flow and a descent each
@given(st.integers(0, 2**32 - 1), st.floats(0.2, 0.4), st.floats(0.5, 2.0))
def test_descent_stays_as_near_as_promised(seed, size, time):
    """Unbalanced Gaussian starts, general inputs, weight decay: nothing but linearity is needed."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((4, 4)), random.standard_normal(4)
    objective = tw.Objective(NETWORK, tw.Regression(x, y), jnp.asarray(0.1))
    weights = tuple(
        jnp.asarray(size * random.standard_normal(shape)) for shape in objective.network.shapes
    )
    check_promises(FollowsFlow(), objective, weights, time)


def check_promises(theorem, objective, weights, time):
    """From the learning rate a distance is promised; as a radius it must allow that rate."""
    rate = time / STEPS
    case = Case(
        objective,
        weights,
        rate,
        time=time,
        flow=tw.flow(objective, weights, time=time, solver=tw.solvers.Explicit()),
    )
    found = theorem.check(case)
    assume(found.applies)  # where the curvature is large no radius allows the rate
    promised = answer(found, Question.DISTANCE)
    run = tw.descend(objective, weights, learning_rate=rate, steps=STEPS, record_every=100)
    certificate = theorem.check(replace(case, radius=(1 + 1e-6) * promised, run=run))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert [claim.lesser.size for claim in certificate.conclusions] == [STEPS // 100 + 1] * 2
    # The rate's radius is known to one per cent.
    assert rate < answer(certificate, Question.FOLLOWING_RATE) < 1.1 * rate


@pytest.mark.statement("elkabetz2021:thm3", "holds")
def test_descent_from_beside_the_start_of_the_flow(flow):
    """The theorem allows descent to start elsewhere, by less than the radius e^-mu."""
    beside = tuple(array + 1e-4 for array in START)
    run = tw.descend(OBJECTIVE, beside, learning_rate=1e-4, steps=60_000, record_every=300)
    case = Case(OBJECTIVE, beside, 1e-4, time=6.0, radius=0.02, flow=flow, run=run)
    certificate = FollowsFlow().check(case)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    far = tuple(array + 0.01 for array in START)
    certificate = FollowsFlow().check(replace(case, weights=far, run=None))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "e^mu |theta_0 - theta(0)| < radius"


@pytest.mark.statement("elkabetz2021:thm3", "tight")
def test_the_distance_of_a_learning_rate_is_the_least_radius_that_allows_it(flow):
    case = Case(OBJECTIVE, START, 1e-4, time=6.0, flow=flow)
    certificate = FollowsFlow().check(case)
    distance = answer(certificate, Question.DISTANCE)
    assert [each.question for each in certificate.answers] == [Question.DISTANCE]
    theorem, flowing = FollowsFlow(), flowing_case(linear_training(case).setting).setting
    # The radius is found to one per cent.
    assert float(theorem.tube(flowing, 1.02 * distance).largest_rate) > 1e-4
    assert float(theorem.tube(flowing, 0.98 * distance).largest_rate) < 1e-4


@pytest.mark.statement("elkabetz2021:thm3", "fails")
def test_where_descent_against_flow_says_nothing(flow):
    case = Case(OBJECTIVE, START, 1e-2, time=6.0, radius=0.01, flow=flow)
    certificate = FollowsFlow().check(case)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == pytest.approx(np.log(3.85e-4 / 1e-2), abs=0.05)
    for broken, reason in (
        (RELU, "the network is linear"),
        (replace(case, flow=None), "a flow of one network with a known error is given"),
        (replace(case, time=7.0), "time <= the last record of the flow"),
        (replace(case, radius=None, learning_rate=None), "a radius or a learning rate is given"),
        (replace(case, radius=None, learning_rate=0.5), "some radius allows the learning rate"),
    ):
        certificate = FollowsFlow().check(broken)
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        assert certificate.first_failure.statement == reason
        assert certificate.first_failure.margin < 0


# ------------------------------------------------------------------------- one layer, or told so


@pytest.mark.statement("elkabetz2021:cor4", "holds")
@settings(max_examples=4)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 3.0))
def test_one_layer_follows_its_flow(seed, time):
    check_promises(FollowsWhereSmooth(), *one_layer(seed, decay=0.05), time)


@pytest.mark.statement("elkabetz2021:cor4", "tight")
def test_constants_of_one_layer():
    """Of a square loss H = R R^T x Sigma + decay; of a logistic loss it is largest at zero."""
    objective, weights = one_layer(decay=0.3)
    x = np.asarray(objective.problem.inputs)
    moment = np.linalg.eigvalsh(x.T @ x / 20)
    tube = FollowsWhereSmooth().tube(Case(objective, weights), 1.0, inf)
    expected = [moment[-1] + 0.3, -moment[0] - 0.3]
    np.testing.assert_allclose([tube.smoothness, tube.growth], expected, rtol=1e-12)
    network = tw.LinearNetwork([3, 2], readout=[1.0, -2.0])
    read = tw.Objective(network, objective.problem)
    tube = FollowsWhereSmooth().tube(Case(read, (np.ones((2, 3)),)), 1.0, inf)
    assert tube.smoothness == pytest.approx(5 * moment[-1], rel=1e-12)
    assert tube.growth == pytest.approx(0.0, abs=1e-12)  # the readout has rank one
    problem = tw.Classification(x, np.arange(20) % 2, loss="logistic")
    logistic = tw.Objective(tw.LinearNetwork([3, 1]), problem)
    tube = FollowsWhereSmooth().tube(Case(logistic, (np.ones((1, 3)),)), 1.0, inf)
    np.testing.assert_allclose([tube.smoothness, tube.growth], [moment[-1] / 4, 0], rtol=1e-12)


@pytest.mark.statement("elkabetz2021:cor4", "fails")
def test_deep_networks_have_no_global_constants_unless_told():
    case = Case(OBJECTIVE, START, time=6.0, radius=0.01)
    certificate = FollowsWhereSmooth().check(case)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "the curvature is bounded on all of space"
    told = FollowsWhereSmooth(smoothness=3.0, curvature=-1.0).check(case)
    assert told.verdict is Verdict.CONFIRMED
    excess = float(OBJECTIVE(START))
    expected = 0.01 / np.expm1(6.0) / (np.sqrt(2 * 27 * excess) + 9 * 0.01)
    assert answer(told, Question.FOLLOWING_RATE) == pytest.approx(expected, rel=1e-12)
    exponential = tw.Objective(
        tw.LinearNetwork([1, 1]), tw.Classification([[1.0], [-1.0]], [0, 1], loss="exponential")
    )
    certificate = FollowsWhereSmooth().check(Case(exponential, (np.ones((1, 1)),), time=1.0))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    objective, weights = one_layer()
    for broken, reason in (
        (Case(objective, weights, radius=0.1), "a horizon is given"),
        (Case(objective, weights, time=1.0), "a radius or a learning rate is given"),
        (Case(objective, weights, 50.0, time=1.0), "some radius allows the learning rate"),
        (RELU, "the curvature is bounded on all of space"),
    ):
        assert FollowsWhereSmooth().check(broken).first_failure.statement == reason


def test_a_network_may_come_below_every_linear_predictor():
    """On y = 1 + x^2 a linear predictor has a loss of 1.04 or more, and w_0 + w_1 x^2 of zero."""
    x = np.linspace(-1, 1, 11)[:, None]
    network = tw.Model(lambda w, x: w[0][0] + w[0][1] * x**2, [(2,)], 1, 1)
    objective, weights = tw.Objective(network, tw.Regression(x, 1 + x**2)), (np.full(2, 0.5),)
    assert float(objective(weights)) < float(objective.problem.least_value)
    rows = np.concatenate([x**0, x**2], axis=1)
    curvature, smoothness = np.linalg.eigvalsh(rows.T @ rows / 11)  # everywhere: it is quadratic
    run = tw.descend(objective, weights, learning_rate=0.05, steps=60)
    flow = tw.flow(objective, weights, times=run.times)
    case = Case(objective, weights, learning_rate=0.05, time=3.0, run=run, flow=flow)
    certificate = FollowsWhereSmooth(smoothness, curvature).check(case)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert answer(certificate, Question.DISTANCE) > np.max(tw.distance(run, flow)) > 1e-3


# --------------------------------------------------------------------------- existence of flows


@pytest.mark.statement("elkabetz2021:thm1", "holds")
def test_flows_move_no_farther_than_the_loss_allows(flow):
    certificate = FlowExists().check(Case(OBJECTIVE, START, flow=flow))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert len(certificate.conclusions) == 1


@pytest.mark.statement("elkabetz2021:thm1", "tight")
def test_for_short_times_flows_move_as_far_as_the_loss_allows(flow):
    """An equality at constant speed; at time 0.03 the speed has hardly changed."""
    (claim,) = FlowExists().check(Case(OBJECTIVE, START, flow=flow)).conclusions
    ratios = claim.greater[1:] / claim.lesser[1:]
    assert 1 < ratios[0] < 1.001
    assert 1.2 < ratios[-1] < 10  # by then the speed has been small, then large, then small


@pytest.mark.statement("elkabetz2021:thm1", "fails")
def test_existence_needs_a_gradient_without_jumps():
    certificate = FlowExists().check(RELU)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.assumptions[0].margin == -1


class Endless(AbstractMarginLoss):
    """-m, which is convex, smooth and bounded by nothing."""

    def value(self, margins):
        return -margins


def test_existence_needs_a_loss_that_is_bounded_below():
    """Three layers w = 1 of one number have w' = w^2, so that w = 1 / (1 - t) ends at time 1."""
    problem = tw.Classification(np.ones((2, 1)), [1, 1], loss=Endless())
    case = Case(tw.Objective(tw.LinearNetwork([1, 1, 1, 1]), problem), (np.ones((1, 1)),) * 3)
    certificate = FlowExists().check(case)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "the loss is known to be bounded below"


def test_a_batch_is_not_one_network():
    batch = tuple(np.stack([array, array]) for array in START)
    with pytest.raises(tw.InputError, match="`weights` must be those of one network"):
        Case(OBJECTIVE, batch, radius=0.1, time=1.0)


def test_where_no_radius_allows_the_rate_none_is_answered():
    """One layer of curvature 1, at a rate at which the error grows faster than any radius."""
    objective = tw.Objective(tw.LinearNetwork([2, 1]), tw.TargetMatrix([1.0, 0.0]))
    start = (np.array([[0.3, 0.2]]),)
    flow = tw.flow(objective, start, time=5.0)
    found = FollowsFlow().check(Case(objective, start, learning_rate=1.02, flow=flow))
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert found.first_failure.statement == "some radius allows the learning rate"
