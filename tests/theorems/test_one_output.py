"""Convergence of networks with one output on white inputs: times, step sizes, random starts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thalweg as tw
from thalweg.certificates import Case, Question, RandomStart, Verdict
from thalweg.dynamics.exact import one_output, one_output_weights
from thalweg.initialisation import balanced_from
from thalweg.theorems.one_output.convergence import (
    DescentConverges,
    FlowConverges,
    RandomStartConverges,
    UnbalancedDescentConverges,
    balanced_rate,
    largest_unbalancedness,
    unbalanced_rate,
    unbalanced_time,
)
from thalweg.theorems.one_output.stages import convergence_time
from thalweg.theorems.settings.one_output import balance_claim, one_output_training, small_start
from thalweg.theorems.settings.ray import Ray

NETWORK = tw.LinearNetwork([4, 4, 4, 1])
TARGET = np.array([1.0, 0.0, 0.0, 0.0])


def case_of(norm, cosine, size=1.0, target_loss=0.1, network=NETWORK):
    """A balanced start whose product has this norm and cosine, in units of the target's size."""
    target = size * TARGET
    weights = tw.initialisation.aligned(network, norm * size, cosine, target)
    return Case(
        tw.Objective(network, tw.TargetMatrix(target)), weights, target_loss=target_loss * size**2
    )


def _starts_small(case):
    """Whether the start is one that the theorems about descent cover."""
    return one_output_training(case).further(small_start).setting is not None


def answers(certificate):
    """The values by question."""
    return {answer.question: answer.value for answer in certificate.answers}


NOT_COVERED = [
    (
        Case(
            tw.Objective(tw.HomogeneousNetwork([4, 3, 1]), tw.TargetMatrix(TARGET)),
            (np.ones((3, 4)), np.ones((1, 3))),
        ),
        "the network is linear, without a readout",
    ),
    (
        Case(
            tw.Objective(tw.LinearNetwork([4, 3, 2]), tw.TargetMatrix(np.ones((2, 4)))),
            (np.ones((3, 4)), np.ones((2, 3))),
        ),
        "the network has one output",
    ),
    (
        Case(
            tw.Objective(NETWORK, tw.TargetMatrix(TARGET), 0.1),
            tw.initialisation.aligned(NETWORK, 0.1, 0.3, TARGET),
        ),
        "there is no weight decay",
    ),
    (
        Case(
            tw.Objective(
                tw.LinearNetwork([2, 2, 1]),
                tw.Classification([[1.0, 0.0], [0.0, 1.0]], [0, 1], loss="logistic"),
            ),
            (np.ones((2, 2)), np.ones((1, 2))),
        ),
        "the loss is the squared error",
    ),
    (
        Case(
            tw.Objective(
                tw.LinearNetwork([2, 2, 1]), tw.Regression([[1.0, 0.5], [0.0, 1.0]], [1.0, 1.0])
            ),
            (np.ones((2, 2)), np.ones((1, 2))),
        ),
        "|Sigma / c - I|_F <= 1e-10",
    ),
    (
        Case(
            tw.Objective(tw.LinearNetwork([4, 1]), tw.TargetMatrix(TARGET)),
            (0.1 * np.ones((1, 4)),),
        ),
        "2 <= depth",
    ),
    (case_of(0.5, 0.3), "|w(0)| / |target| <= 0.2"),
    (case_of(0.1, -1.0), "w(0) is not antiparallel to the target: -1 + 1e-12 <= nu"),
    (
        Case(
            tw.Objective(NETWORK, tw.TargetMatrix(TARGET)),
            tuple(np.zeros(shape) for shape in NETWORK.shapes),
        ),
        "the product is not zero",
    ),
    (
        Case(
            tw.Objective(NETWORK, tw.TargetMatrix(TARGET)),
            tuple(0.3 * np.ones(shape) for shape in NETWORK.shapes),
        ),
        "unbalancedness / max_j |W_j|_F^2 <= 1e-10",
    ),
]


@pytest.mark.statement("elkabetz2021:prop14", "fails")
@pytest.mark.statement("elkabetz2021:thm15", "fails")
@pytest.mark.parametrize(("case", "reason"), NOT_COVERED, ids=[r for _, r in NOT_COVERED])
def test_cases_that_are_not_covered(case, reason):
    for theorem in (FlowConverges(), DescentConverges()):
        certificate = theorem.check(case)
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        failed = [claim for claim in certificate.assumptions if claim.fails]
        assert failed[0].statement == reason
        assert failed[0].margin < 0


@pytest.mark.parametrize(("off", "fails"), [(0.9e-10, False), (1.5e-10, True)])
def test_white_and_balanced_mean_to_one_part_in_ten_billion(off, fails):
    """As the statements say: |w_2^2 - w_1^2| of the larger square, and |Sigma / c - I|."""
    assert balance_claim((np.array([[np.sqrt(1 - off)]]), np.ones((1, 1)))).fails == fails
    # The mean of the two moments is c, from which each is off by half of what they differ.
    x = np.sqrt(2) * np.diag([1.0, np.sqrt(1 + np.sqrt(2) * off)])
    objective = tw.Objective(tw.LinearNetwork([2, 1, 1]), tw.Regression(x, [1.0, 1.0]))
    found = one_output_training(
        Case(objective, (np.full((1, 2), 0.1), np.full((1, 1), 0.1)))
    ).claims
    (white,) = [claim for claim in found if claim.statement.startswith("|Sigma / c - I|")]
    assert white.fails == fails


# ------------------------------------------------------------------------------- of the flow


@pytest.mark.statement("elkabetz2021:prop14", "holds")
@settings(max_examples=8)
@given(st.floats(1e-3, 0.19), st.floats(-0.95, 1.0), st.floats(0.2, 5.0), st.floats(1e-8, 2.0))
def test_the_flow_is_there_in_time(norm, cosine, size, gap):
    """All three parts, with the bounds on balls around the exact flow."""
    certificate = FlowConverges().check(case_of(norm, cosine, size, gap))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert len(certificate.conclusions) == 5


@pytest.mark.statement("elkabetz2021:prop14", "tight")
def test_how_loose_the_time_is():
    """The exact flow needs 5.0964; the stages of the proof 10.1842; the bound is 2495.58."""
    case = case_of(0.1, 0.0, target_loss=1e-3)
    certificate = FlowConverges().check(case)
    assert float(answers(certificate)[Question.TIME]) == pytest.approx(2495.58, abs=5e-3)
    times = np.array([5.0963, 5.0965])
    path = one_output(0.1 * np.eye(4)[1], TARGET, 3, times)
    before, after = np.sum((path - TARGET) ** 2, axis=1) / 2
    assert before > 1e-3 > after
    by_statement = {claim.statement: claim for claim in certificate.conclusions}
    assert by_statement[
        "time of the exact flow to the target loss <= t"
    ].looseness == pytest.approx(245, abs=0.1)


@pytest.mark.statement("elkabetz2021:prop14", "tight")
def test_how_loose_the_constants_on_balls_are():
    """With the largest radius, 1 / (2 N): the bounds on the balls are 3 to 10 times smaller."""
    certificate = FlowConverges().check(case_of(0.1, 0.0))
    loose = {claim.statement: claim.looseness for claim in certificate.conclusions}
    assert 5 < loose["|H| on the balls <= 16 N"] < 9
    assert 6 < loose["|grad f| on the balls <= 6 sqrt(N)"] < 10
    assert 1 < loose["-lambda_min(H) on the balls <= m"] < 4
    assert loose["integral of m <= the bound of (22)"] > 100


@pytest.mark.statement("elkabetz2021:prop14", "value")
def test_the_constants_on_balls_are_in_units_of_the_target():
    """A target 27 times as long is the same case with layers, and balls, three times as large."""
    small, large = (
        replace(case_of(0.1, 0.2), radius=0.1),
        replace(case_of(0.1, 0.2, 27.0), radius=0.3),
    )
    claims = [FlowConverges().check(case).conclusions for case in (small, large)]
    for claim, other in zip(*claims, strict=True):
        if "on the balls" in claim.statement:  # along a flow that is known to ten digits
            np.testing.assert_allclose(claim.lesser, other.lesser, rtol=1e-6)
            np.testing.assert_allclose(claim.greater, other.greater, rtol=1e-6)


@pytest.mark.statement("elkabetz2021:prop14", "holds")
def test_a_flow_that_was_followed_is_there_in_time():
    """Also with another scale of the loss and a target of another size, on white samples."""
    problem = tw.Regression(2 * np.eye(4), [3.0, 0.5, 0.0, 0.0], scale=2)  # X^T X / 4 = I
    objective = tw.Objective(NETWORK, problem, jnp.zeros(()))
    target = np.asarray(problem.minimiser).ravel()
    weights = tw.initialisation.aligned(NETWORK, 0.2, 0.1, target)
    promised = answers(FlowConverges().check(Case(objective, weights, target_loss=0.01)))
    late = 1.01 * float(promised[Question.TIME])
    flow = tw.flow(
        objective, weights, times=[0.0, 0.5, 1.0, 2.0, late], solver=tw.solvers.Explicit()
    )
    case = Case(objective, weights, target_loss=0.01, flow=flow)
    certificate = FlowConverges().check(case)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    seen = certificate.conclusions[0]
    assert seen.statement == "loss of the flow <= the target loss, from t on"
    # Three layers: the loss is 4 |target|^2 times the paper's, its time 4 |target|^{4/3} times.
    size = float(np.linalg.norm(target))
    ray = Ray(3, 0.2 / size, 0.1)
    expected = convergence_time(ray, 0.01 / (4 * size**2)) / (4 * size ** (4 / 3))
    assert answers(certificate)[Question.TIME].log == pytest.approx(expected.log, rel=1e-10)
    exact = one_output_weights(weights, target, 4 * flow.times)  # a = 4 is a clock
    np.testing.assert_allclose(flow.weights[0], exact[0], atol=1e-6)  # tolerance 1e-8 per step


@pytest.mark.statement("elkabetz2021:prop14", "holds")
def test_a_loss_that_is_zero_up_to_rounding_meets_any_target():
    """What is left of the loss is rounding of what it was at the start, even if most is."""
    case = case_of(0.15, 0.5, target_loss=1e-60)
    late = 1.01 * float(answers(FlowConverges().check(case))[Question.TIME])
    flow = tw.flow(case.objective, case.weights, times=[0.0, 0.9 * late, late], rtol=1e-10)
    assert flow.loss[-1] < 1e-18 < flow.loss[0]
    certificate = FlowConverges().check(replace(case, flow=flow))
    assert certificate.conclusions[0].statement.startswith("loss of the flow <= the target")
    assert not certificate.conclusions[0].fails


@pytest.mark.statement("elkabetz2021:prop14", "fails")
def test_no_target_no_time():
    certificate = FlowConverges().check(replace(case_of(0.1, 0.3), target_loss=None))
    assert certificate.verdict is Verdict.CONFIRMED
    assert certificate.answers == ()
    assert len(certificate.conclusions) == 4  # the constants on balls need no target
    certificate = FlowConverges().check(replace(case_of(0.1, 0.3), target_loss=0.0))
    assert certificate.verdict is Verdict.NOT_APPLICABLE


def test_an_extreme_start_is_not_computed():
    """With 60 layers and nu = -1 + 1e-11 the norm falls below 1e-300 on its way."""
    network = tw.LinearNetwork([2] * 60 + [1])
    target = np.array([1.0, 0.0])
    weights = tw.initialisation.aligned(network, 0.1, -1 + 1e-11, target)
    case = Case(tw.Objective(network, tw.TargetMatrix(target)), weights, target_loss=0.1)
    certificate = FlowConverges().check(case)
    assert certificate.verdict is Verdict.CONFIRMED
    assert answers(certificate)[Question.TIME].log10 > 600


# ---------------------------------------------------------------------------------- of descent


@pytest.mark.statement("elkabetz2021:thm15", "tight")
@pytest.mark.parametrize(
    ("ray", "gap", "expected"),
    [
        (Ray(3, 0.1, 0.0), 0.1, (-23.631263, 3.231316, 26.862579)),
        (Ray(3, 0.1, 0.3), 0.1, (-23.631263, 2.703042, 26.334305)),
        (Ray(2, 0.2, 0.0), 0.1, (-17.467712, 2.517321, 19.985033)),
        (Ray(3, 0.1, -0.5), 0.01, (-31.605902, 4.810150, 36.416052)),
        (Ray(10, 0.1, 0.0), 0.1, (-49.472352, 5.044928, 54.517280)),
    ],
    ids=str,
)
def test_rates_and_steps_of_balanced_descent(ray, gap, expected):
    """Decimal logarithms of eta, of the time and of k; a descent of 1e20 steps cannot be run.

    Rates of 0.1 are seen to converge within 100 steps: the bound is loose by twenty orders.
    """
    rate, time = balanced_rate(ray, gap), convergence_time(ray, gap / 2)
    found = rate.log10, time.log10, (time / rate + 1).log10
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.statement("elkabetz2021:thm15", "holds")
@settings(max_examples=8)
@given(st.floats(0.02, 0.19), st.floats(-0.9, 1.0), st.floats(0.2, 5.0), st.floats(1e-6, 2.0))
def test_answers_of_balanced_descent(norm, cosine, size, gap):
    """Nothing can be run, but a run at far larger steps meets the target far earlier."""
    case = case_of(norm, cosine, size, gap)
    found = answers(DescentConverges().check(case))
    ray = Ray(3, norm, cosine)
    clock = size ** (2 - 2 / 3)
    expected = balanced_rate(ray, gap) / clock
    assert found[Question.LEARNING_RATE].log == pytest.approx(expected.log, rel=1e-9)
    assert found[Question.ITERATIONS].log == pytest.approx(
        (convergence_time(ray, gap / 2) / clock / expected + 1).log, rel=1e-9
    )
    run = tw.descend(case.objective, case.weights, learning_rate=1e-30, steps=3)
    tiny = replace(case, learning_rate=1e-30, run=run)
    certificate = DescentConverges().check(tiny)
    assert certificate.applies == (found[Question.LEARNING_RATE] >= 1e-30)


@pytest.mark.statement("elkabetz2021:thm15", "holds")
@pytest.mark.statement("elkabetz2021:thm15", "fails")
def test_a_run_is_compared_where_the_rate_is_covered():
    case = case_of(0.1, 0.3, target_loss=1.0)
    run = tw.descend(case.objective, case.weights, learning_rate=1e-30, steps=3)
    certificate = DescentConverges().check(replace(case, learning_rate=1e-30, run=run))
    assert certificate.verdict is Verdict.CONFIRMED
    (claim,) = certificate.conclusions  # the target is above the loss of the start
    assert claim.statement.startswith("steps to the target loss <= k")
    # A target is met where it is equalled, as the start's own loss is by the start.
    equal = replace(case, learning_rate=1e-30, run=run, target_loss=float(run.loss[0]))
    reached = DescentConverges().conclusions(DescentConverges().narrowed(equal).setting)
    assert [each.statement for each in reached] == [claim.statement]
    fast = tw.descend(case.objective, case.weights, learning_rate=0.1, steps=200)
    assert fast.loss[-1] < 1e-6  # it converges, but nothing is promised of it
    stranger = replace(case, learning_rate=2e-30, run=run)  # a run with other steps says nothing
    assert DescentConverges().check(stranger).conclusions == ()
    certificate = DescentConverges().check(replace(case, learning_rate=0.1, run=fast))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin < -40  # short by a factor of 1e20


EXACT_WEIGHTS = (np.diag([0.5, 0.0]), np.diag([0.5, 0.0]), np.array([[0.5, 0.0]]))
EXACT_TARGET = np.array([1.2, 1.6])  # w = (1/8, 0): |w| = |target| / 16, nu = 0.6


def exact_case(**fields):
    """Powers of two, which are balanced without rounding."""
    objective = tw.Objective(tw.LinearNetwork([2, 2, 2, 1]), tw.TargetMatrix(EXACT_TARGET))
    return Case(objective, EXACT_WEIGHTS, target_loss=0.4, **fields)


@pytest.mark.statement("elkabetz2021:thm32", "tight")
def test_numbers_of_unbalanced_descent():
    ray = Ray(3, 0.1, 0.0)
    rate = unbalanced_rate(ray, 0.1)
    found = (
        largest_unbalancedness(ray, 0.1).log10,
        rate.log10,
        (unbalanced_time(ray, 0.1) / rate + 1).log10,
    )
    assert found == pytest.approx((-47.888443, -32.192945, 37.104120), abs=1e-6)
    ray = Ray(2, 0.2, 0.0)  # outside of what is covered: values of the formulas only
    rate = unbalanced_rate(ray, 0.1)
    assert largest_unbalancedness(ray, 0.1).log10 == pytest.approx(-33.231454, abs=1e-6)
    assert rate.log10 == pytest.approx(-23.425037, abs=1e-6)
    assert (unbalanced_time(ray, 0.1) / rate + 1).log10 == pytest.approx(27.155000, abs=1e-6)


@pytest.mark.statement("elkabetz2021:thm32", "holds")
def test_unbalanced_descent_where_balance_is_exact():
    case = exact_case()
    certificate = UnbalancedDescentConverges().check(case)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    ray, clock = Ray(3, 1 / 16, 0.6), 2 ** (4 / 3)
    found = answers(certificate)
    expected = unbalanced_rate(ray, 0.1) / clock
    assert found[Question.LEARNING_RATE].log == pytest.approx(expected.log, rel=1e-12)
    # Theorem 15 allows larger steps where both speak.
    balanced = answers(DescentConverges().check(case))
    assert balanced[Question.LEARNING_RATE] > found[Question.LEARNING_RATE]
    assert balanced[Question.ITERATIONS] < found[Question.ITERATIONS]
    slow = exact_case(learning_rate=1e-40)
    certificate = UnbalancedDescentConverges().check(slow)
    assert certificate.verdict is Verdict.CONFIRMED
    steps = unbalanced_time(ray, 0.1) / clock / 1e-40
    assert answers(certificate)[Question.ITERATIONS].log == pytest.approx(steps.log, rel=1e-12)


@pytest.mark.statement("elkabetz2021:thm32", "fails")
def test_rounding_is_more_than_the_unbalancedness_allowed():
    first, second, third = EXACT_WEIGHTS
    rounded = replace(exact_case(), weights=(first * (1 + 1e-15), second, third))
    certificate = UnbalancedDescentConverges().check(rounded)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    failure = certificate.first_failure
    assert failure.statement.startswith("unbalancedness <= ")
    assert -90 < failure.margin < -60  # 1e-15 against 1e-49
    certificate = UnbalancedDescentConverges().check(case_of(0.15, 0.3))
    assert certificate.first_failure.statement == "|w(0)| / |target| <= 0.1"
    certificate = UnbalancedDescentConverges().check(exact_case(learning_rate=0.1))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    certificate = UnbalancedDescentConverges().check(replace(exact_case(), target_loss=None))
    assert certificate.first_failure.statement == "a target loss above the minimum is given"


# ------------------------------------------------------------------------------- random starts


@pytest.mark.statement("elkabetz2021:cor18", "holds")
@settings(max_examples=5)
@given(st.floats(0.03, 0.3), st.integers(0, 1000))
def test_random_starts_are_covered_as_often_as_promised(scale, seed):
    """At confidence 0.999 each, fifteen intervals."""
    case = replace(case_of(0.1, 0.3), random_start=RandomStart("balanced", scale))
    certificate = RandomStartConverges(samples=500, seed=seed).check(case)
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("elkabetz2021:cor18", "tight")
def test_the_probability_is_the_law_of_the_start():
    """Two inputs: |w|^2 / scale^2 is exponential; and starts of `initialisation.balanced` agree."""
    network = tw.LinearNetwork([2, 3, 1])
    objective = tw.Objective(network, tw.TargetMatrix([1.0, 0.0]))
    weights = balanced_from(network, [[0.1, 0.0]])
    case = Case(objective, weights, target_loss=0.1, random_start=RandomStart("balanced", 0.1))
    found = answers(RandomStartConverges().check(case))
    assert found[Question.PROBABILITY] == pytest.approx(1 - np.exp(-2), rel=1e-12)
    keys = jax.random.split(jax.random.key(1), 60)
    starts = jax.vmap(lambda key: tw.initialisation.balanced(network, 0.1, key=key))(keys)
    starts = [np.asarray(array) for array in starts]
    covered = [
        _starts_small(replace(case, weights=tuple(weights)))
        for weights in zip(*starts, strict=True)
    ]
    # 52 of 60 expected, with a standard deviation of 2.6.
    assert 44 <= sum(covered) <= 59


@pytest.mark.statement("elkabetz2021:cor18", "fails")
def test_random_starts_that_are_not_covered():
    case = case_of(0.1, 0.3)
    for law in (None, RandomStart("gaussian", 0.1)):
        certificate = RandomStartConverges().check(replace(case, random_start=law))
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        assert certificate.first_failure.statement == "the start is random and balanced"
    network = tw.LinearNetwork([1, 1, 1])
    narrow = Case(
        tw.Objective(network, tw.TargetMatrix([1.0])),
        (np.full((1, 1), 0.3), np.full((1, 1), 0.3)),
        random_start=RandomStart("balanced", 0.1),
    )
    certificate = RandomStartConverges().check(narrow)
    assert certificate.first_failure.margin == -1  # on a line half of the starts are antiparallel
