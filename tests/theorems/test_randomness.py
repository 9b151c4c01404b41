"""Balanced random starts: how likely descent converges, and how soon."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thalweg as tw
from thalweg._checks import InputError
from thalweg.certificates import Case, Question, RandomStart, Verdict
from thalweg.dynamics.exact import one_output
from thalweg.theorems.probability.gaussian_starts import (
    BalancedStartConverges,
    event_probability,
    least_features,
    least_ratio,
    success_bound,
)
from thalweg.theorems.probability.sampling import Proportion

SEEDS = st.integers(0, 2**32 - 1)


def spread(features, ratio):
    """The s of a target of norm 1."""
    return 1 / (sqrt(ratio) * features)


def balanced_row(vector, depth):
    """Balanced layers of width 2 with this product, without compiling anything."""
    size = np.linalg.norm(vector)
    root = size ** (1 / depth)
    if depth == 1:
        return (vector[None],)
    first = np.stack([root * vector / size, np.zeros(len(vector))])
    hidden = [np.diag([root, 0.0])] * (depth - 2)
    return (first, *hidden, np.array([[root, 0.0]]))


def balanced_case(features, ratio, depth=2, seed=0, **known):
    network = tw.LinearNetwork([features, *[2] * (depth - 1), 1])
    objective = tw.Objective(network, tw.TargetMatrix(np.eye(1, features)))
    scale = spread(features, ratio)
    vector = scale * np.random.default_rng(seed).standard_normal(features)
    weights = balanced_row(vector, depth)
    return Case(objective, weights, random_start=RandomStart("balanced", scale), **known)


def answers(theorem, case, question):
    certificate = theorem.check(case)
    assert certificate.applies, certificate
    return [float(answer.value) for answer in certificate.answers if answer.question is question]


def starts_in_a_plane(features, ratio, samples, seed):
    """The start's components along and across a unit target, which is all that the flow knows."""
    vectors = spread(features, ratio) * np.random.default_rng(seed).standard_normal(
        (samples, features)
    )
    return np.stack([vectors[:, 0], np.linalg.norm(vectors[:, 1:], axis=1)], axis=1)


def margins(starts):
    return 1 - np.linalg.norm(starts - [1, 0], axis=1)


def times_to_reach(starts, depth, loss):
    """When the flow of r' = N r^(2-2/N) (c - r), c' = r^(1-2/N) (1 - c^2) first has this loss.

    By the method of Runge and Kutta with steps of 0.01, for a unit target.
    """

    def field(point):
        r, c = point
        pace = r ** (1 - 2 / depth)
        return np.stack([depth * pace * r * (c - r), pace * (1 - c) * (1 + c)])

    norms = np.linalg.norm(starts, axis=1)
    point, step = np.stack([norms, starts[:, 0] / norms]), 0.01
    reached = np.full(len(starts), np.nan)
    for k in range(5000):
        r, c = point
        reached = np.where(
            np.isnan(reached) & ((r**2 + 1 - 2 * r * c) / 2 <= loss), k * step, reached
        )
        one = field(point)
        two = field(point + step / 2 * one)
        three = field(point + step / 2 * two)
        point = point + step / 6 * (one + 2 * two + 2 * three + field(point + step * three))
    return reached


@pytest.mark.statement("arora2019:thm2", "tight")
@pytest.mark.parametrize(
    ("features", "ratio", "bound", "exact", "rate", "iterations"),
    [
        (20, 20.0, 0.011567, 0.413681, 2.0e-14, 1.15e17),
        (20, 100.0, 0.118403, 0.461162, 1.6e-16, 7.1e19),
        (100, 100.0, 0.276227, 0.460370, 1.3e-18, 4.4e22),
        (100, 1000.0, 0.427075, 0.487449, 1.3e-21, 4.4e26),
        (1000, 1e5, 0.492864, 0.498739, 1.3e-30, 4.4e38),
    ],
)
def test_what_theorem_2_promises_for_two_layers(features, ratio, bound, exact, rate, iterations):
    """Probabilities to six digits, the rest to the two that are known."""
    case = balanced_case(features, ratio, target_loss=1e-3)
    theorem = BalancedStartConverges()
    assert answers(theorem, case, Question.PROBABILITY) == pytest.approx([bound, exact], abs=5e-7)
    assert answers(theorem, case, Question.LEARNING_RATE) == pytest.approx([rate], rel=0.03)
    assert answers(theorem, case, Question.ITERATIONS) == pytest.approx([iterations], rel=0.03)
    assert success_bound(features, ratio) == pytest.approx(bound, abs=5e-7)


@pytest.mark.statement("arora2019:thm2", "value")
@pytest.mark.parametrize(
    ("probability", "ratio", "features"),
    [(0.25, 78.7936, 42), (0.4, 506.625, 62), (0.45, 2034.52, 74), (0.49, 50926.9, 101)],
)
def test_the_constants_that_theorem_2_leaves_open(probability, ratio, features):
    assert least_ratio(probability) == pytest.approx(ratio, rel=3e-6)
    enough = 1.5 * least_ratio(probability)
    assert least_features(probability, enough) == features
    assert success_bound(features, enough) >= probability > success_bound(features - 1, enough)


def test_a_ratio_that_can_never_be_enough_is_refused():
    assert least_ratio(0.0) == pytest.approx(17.58, abs=5e-3)
    with pytest.raises(InputError, match=r"above 17\.58"):
        least_features(0.0, 17.0)
    with pytest.raises(InputError, match="1/2"):
        least_ratio(0.5)


@pytest.mark.statement("arora2019:thm2", "holds")
@given(st.sampled_from([(20, 20.0), (20, 100.0), (100, 100.0)]), SEEDS)
def test_the_event_of_theorem_2_is_as_likely_as_computed(law, seed):
    """At five standard deviations of 4000 samples: among all seeds one in 10^6 is further."""
    features, ratio = law
    seen = margins(starts_in_a_plane(features, ratio, 4000, seed)) >= 1 / (2 * ratio * features)
    exact = event_probability(features, ratio)
    assert seen.mean() == pytest.approx(exact, abs=5 * sqrt(exact * (1 - exact) / 4000))
    assert exact > success_bound(features, ratio)


@pytest.mark.statement("arora2019:thm2", "holds")
def test_the_event_of_theorem_2_in_two_hundred_thousand_draws():
    """0.41246 of 200,000 was seen by an independent computation."""
    seen = margins(starts_in_a_plane(20, 20.0, 200_000, seed=11)) >= 1 / 800
    low, high = Proportion.of(seen).interval
    assert low <= event_probability(20, 20.0) <= high
    assert low <= 0.41246 <= high


@pytest.mark.statement("arora2019:thm2", "holds")
@settings(max_examples=8)
@given(SEEDS)
def test_the_flow_from_a_start_with_the_margin_obeys_theorem_2(seed):
    """Up to the promised time and beyond; without the margin nothing is concluded."""
    case = balanced_case(20, 100.0, seed=seed, target_loss=1e-3)
    times = np.array([0.0, 1.0, 10.0, 100.0, 1.12e4])
    flow = tw.flow(case.objective, case.weights, times=times)
    certificate = BalancedStartConverges().check(replace(case, flow=flow))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    product = case.weights[1] @ case.weights[0]
    has_margin = 1 - np.linalg.norm(product - np.eye(1, 20)) >= 1 / 4000
    assert len(certificate.conclusions) == has_margin


@pytest.mark.statement("arora2019:thm2", "holds")
@pytest.mark.parametrize(("depth", "time"), [(2, 1.11e4), (3, 1.40e5)])
def test_at_the_promised_time_the_flow_has_the_promised_loss(depth, time):
    """In closed form, from starts with the margin and, though nothing is said of them, without."""
    case = balanced_case(20, 100.0, depth, target_loss=1e-3)
    (promised,) = answers(BalancedStartConverges(), case, Question.TIME)
    assert promised == pytest.approx(time, rel=5e-3)
    starts = starts_in_a_plane(20, 100.0, 60, seed=3)
    assert np.any(margins(starts) >= 1 / 4000)
    assert np.any(margins(starts) < 0)
    for start in starts:
        (end,) = one_output(start, [1.0, 0.0], depth, [promised])
        assert np.sum((end - [1, 0]) ** 2) / 2 <= 1e-3


@pytest.mark.statement("arora2019:thm2", "tight")
@pytest.mark.parametrize(
    ("features", "depth", "median", "promised"),
    [(20, 2, 4.28, 1.11e4), (20, 3, 6.75, 1.40e5), (100, 2, 4.61, 5.55e4)],
)
def test_how_much_sooner_the_flow_arrives(features, depth, median, promised):
    """2600 to 21000 times sooner, from every start. The medians are of 400 starts, hence 3 %."""
    case = balanced_case(features, 100.0, depth, target_loss=1e-3)
    (time,) = answers(BalancedStartConverges(), case, Question.TIME)
    assert time == pytest.approx(promised, rel=5e-3)
    reached = times_to_reach(starts_in_a_plane(features, 100.0, 400, seed=4), depth, 1e-3)
    assert not np.any(np.isnan(reached))
    assert np.median(reached) == pytest.approx(median, rel=0.03)


@pytest.mark.statement("arora2019:thm2", "tight")
@pytest.mark.parametrize(("depth", "median"), [(2, 43), (3, 70)])
def test_practical_descent_from_every_start_in_a_few_steps(depth, median):
    """With eta = 0.1 all of 200 starts converge, where less than one half was promised."""
    case = balanced_case(20, 100.0, depth)
    vectors = case.random_start.scale * np.random.default_rng(5).standard_normal((200, 20))
    starts = tuple(map(np.stack, zip(*(balanced_row(v, depth) for v in vectors), strict=True)))
    run = tw.descend(case.objective, starts, learning_rate=0.1, steps=400)
    assert np.all(run.loss[:, -1] <= 1e-3)
    assert np.median(np.argmax(run.loss <= 1e-3, axis=1)) == pytest.approx(median, abs=3)


@pytest.mark.statement("arora2019:thm2", "holds")
def test_descent_at_the_certified_rate_obeys_theorem_2():
    case = balanced_case(20, 100.0, seed=3)
    (rate,) = answers(BalancedStartConverges(), case, Question.LEARNING_RATE)
    run = tw.descend(case.objective, case.weights, learning_rate=rate * (1 - 1e-9), steps=5)
    certificate = BalancedStartConverges().check(
        replace(case, run=run, learning_rate=float(run.learning_rate))
    )
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert len(certificate.conclusions) == 1


@pytest.mark.statement("arora2019:thm2", "fails")
def test_what_theorem_2_does_not_cover_is_said_with_the_margin():
    theorem, case = BalancedStartConverges(), balanced_case(20, 100.0)
    few = theorem.check(balanced_case(19, 100.0))
    assert few.verdict is Verdict.NOT_APPLICABLE
    assert few.first_failure.margin == -1
    fast = theorem.check(replace(case, learning_rate=0.1)).first_failure
    assert fast.statement.startswith("eta <=")
    assert fast.margin == pytest.approx(np.log(1.5625e-16 / 0.1), rel=1e-3)
    large = theorem.check(balanced_case(20, 10.0)).first_failure  # (38) is negative below 17.58
    assert large.margin < 0
    asked = BalancedStartConverges(probability=0.2).check(case).first_failure
    assert asked.margin == pytest.approx(0.118403 - 0.2, abs=1e-6)
    other = theorem.check(replace(case, random_start=RandomStart("gaussian", 0.005)))
    assert other.first_failure.statement.startswith("the start is balanced")
    unknown = theorem.check(replace(case, random_start=None))
    assert unknown.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.statement("arora2019:thm2", "fails")
def test_theorem_2_needs_a_start_that_is_balanced():
    case = balanced_case(20, 100.0)
    first, second = case.weights
    certificate = BalancedStartConverges().check(replace(case, weights=(2 * first, second / 2)))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    size = float(np.sum(second**2))  # of the rank-one Gram matrices of both layers
    assert certificate.first_failure.margin == pytest.approx(-(4 - 1 / 4) * size, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-90, 1e-200, 5e-324])
def test_theorem_2_speaks_of_the_tiniest_starts(scale):
    """The probability becomes 1/2; the learning rate needs an exponent that floats do not have."""
    case = balanced_case(100, 100.0, target_loss=1e-3)
    certificate = BalancedStartConverges().check(
        replace(case, random_start=RandomStart("balanced", scale))
    )
    assert certificate.verdict is Verdict.CONFIRMED
    bound, exact, rate, iterations, _ = (answer.value for answer in certificate.answers)
    assert bound == pytest.approx((1 - 2 * np.exp(-100 / 16)) / 2)
    assert exact == pytest.approx(0.5)
    assert rate.log10 == pytest.approx(6 * np.log10(10 * scale) - np.log10(8e5))
    assert rate < 1e-308 < iterations


def test_theorem_2_in_another_scale_of_the_loss():
    """Twice the loss: half the learning rate, the same number of iterations to twice the loss."""
    case = balanced_case(20, 100.0, target_loss=1e-3)
    inputs = sqrt(20) * np.eye(20)
    problem = tw.Regression(inputs, inputs[:, :1], scale=1.0)
    twice = replace(case, objective=tw.Objective(case.objective.network, problem), target_loss=2e-3)
    theorem = BalancedStartConverges()
    for question, factor in [
        (Question.LEARNING_RATE, 0.5),
        (Question.ITERATIONS, 1.0),
        (Question.TIME, 0.5),
        (Question.PROBABILITY, 1.0),
    ]:
        expected = factor * np.array(answers(theorem, case, question))
        np.testing.assert_allclose(answers(theorem, twice, question), expected, rtol=1e-9)


def test_the_iterations_of_theorem_2_by_its_formula():
    """Also for a loss above F^2 / 8, where the second logarithm is negative."""
    s, d, n, size, eta = 0.01, 20, 3, 3.0, 1e-25
    network = tw.LinearNetwork([d, 2, 2, 1])
    objective = tw.Objective(network, tw.TargetMatrix(size * np.eye(1, d)))
    weights = balanced_row(np.full(d, s), n)
    for eps in (1e-3, 2.0):
        case = Case(objective, weights, eta, eps, random_start=RandomStart("balanced", s))
        inside = np.log(4) * (size / (s**2 * d)) ** (2 - 2 / n) + size ** (2 / n - 2) * np.log(
            size**2 / (8 * eps)
        )
        found = answers(BalancedStartConverges(), case, Question.ITERATIONS)
        assert found == pytest.approx([4 / eta * inside], rel=1e-12)
