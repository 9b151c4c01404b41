"""What follows from arora2019 for step sizes and starts: tables reproduced, promises kept."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from balanced_chains import INSTANCES, balanced, nearly_balanced
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq

import thalweg as tw
from thalweg.certificates import Case, Magnitude, Question, Verdict
from thalweg.theorems.convergence import step_sizes as module
from thalweg.theorems.convergence.linear_rate import Guarantee, LinearRate
from thalweg.theorems.convergence.step_sizes import (
    FewerIterations,
    LargerSteps,
    Measured,
    StabilityLimit,
    error_integral,
    stability_limit,
)
from thalweg.theorems.settings.matrix_approximation import white_training

TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])
SKEW = np.array([[0.1, 0.2, 0.0], [-0.1, 0.0, 0.1], [0.0, 0.1, -0.1]])
PROBLEMS = {  # hidden width, target, product at the start
    "Q1": (1, np.eye(1), 0.5 * np.eye(1)),
    "Q2": (2, np.eye(2) + 0.25 * TURN / 2**0.5, np.eye(2)),
    "Q3": (2, np.array([[0.6, 0.0, 0.8]]), np.array([[0.3, 0.2, 0.4]])),
    "Q4": (3, np.eye(3) + 0.25 * SKEW / np.linalg.norm(SKEW), np.eye(3)),
}
# c, eta of theorem 1 and its count to a millionth, the learning rate found by running, and eta with
# measured constants and its count, in the digits of the table.
TABLE = {
    (2, "Q1"): (0.5, 2.54e-6, 1.09e7, 0.984, 0.0586, 236),
    (2, "Q2"): (0.7655, 2.15e-6, 8.41e6, 0.969, 0.190, 47),
    (2, "Q3"): (0.4615, 2.00e-6, 1.50e7, 0.984, 0.0230, 1300),
    (2, "Q4"): (0.6152, 5.05e-7, 4.45e7, 0.883, 0.131, 85),
    (3, "Q1"): (0.5, 5.98e-7, 5.82e7, 0.656, 0.0172, 674),
    (3, "Q2"): (0.7655, 4.57e-7, 4.32e7, 0.643, 0.0890, 74),
    (3, "Q3"): (0.4615, 4.58e-7, 8.46e7, 0.656, 0.00373, 1.04e4),
    (3, "Q4"): (0.6152, 8.77e-8, 3.01e8, 0.568, 0.0537, 164),
    (4, "Q1"): (0.5, 2.25e-7, 1.74e8, 0.492, 0.00849, 1151),
    (4, "Q2"): (0.7655, 1.63e-7, 1.26e8, 0.481, 0.0555, 93),
    (4, "Q3"): (0.4615, 1.70e-7, 2.60e8, 0.492, 0.00114, 3.87e4),
    (4, "Q4"): (0.6152, 2.83e-8, 1.01e9, 0.418, 0.0312, 229),
}


def start_of(case):
    """The start of a case, as an approximation of its target."""
    return white_training(case).known.start


def guarantee(case):
    """What theorem 1 certifies from there."""
    return Guarantee.of(start_of(case))


def case_of(widths, target, layers, **known):
    objective = tw.Objective(tw.LinearNetwork(widths), tw.TargetMatrix(target))
    return Case(objective, tuple(layers), **known)


def problem(depth, name, share=1e-6):
    """Its target loss is this share of the loss at the start."""
    hidden, target, product = PROBLEMS[name]
    widths = (target.shape[1], *[hidden] * (depth - 1), target.shape[0])
    loss = np.sum((product - target) ** 2) / 2
    return case_of(widths, target, balanced(product, widths), target_loss=float(share * loss))


def answer(certificate, question):
    return float(next(a.value for a in certificate.answers if a.question is question))


def wider_layer_bound(nu, c, depth):
    """M(nu, C) with all N - 1 pairs between a layer and the end, as the table was made."""
    reach = (depth - 1) * nu

    def excess(m):
        return (m - reach) ** depth - c**2 - nu * depth * (depth - 1) / 2 * m ** (depth - 1)

    return brentq(excess, reach, 100.0, xtol=1e-15) ** 0.5


@pytest.mark.statement("arora2019:cor-cert2", "tight")
@pytest.mark.statement("arora2019:cor-cert", "value")
@pytest.mark.statement("arora2019:cor-lr-gap", "tight")
@pytest.mark.parametrize(("depth", "name"), TABLE, ids=str)
def test_the_table_of_learning_rates(depth, name, monkeypatch):
    """Certified, with measured constants, and where descent was found to stop converging."""
    c, eta, count, found, larger, fewer = TABLE[depth, name]
    case = problem(depth, name)
    certificate, measured = LinearRate().check(case), LargerSteps().check(case)
    assert measured.verdict is Verdict.CONFIRMED, str(measured)
    np.testing.assert_allclose(guarantee(case).margin, c, atol=5e-5)
    np.testing.assert_allclose(answer(certificate, Question.LEARNING_RATE), eta, rtol=3e-3)
    np.testing.assert_allclose(answer(certificate, Question.ITERATIONS), count, rtol=5e-3)
    # The empirical rate is from a grid of 2 per cent, the limit itself is not on it.
    limit = float(stability_limit(case.objective.problem.minimiser, depth))
    assert found <= limit * 1.001
    assert limit <= found * 1.021
    # Ours is above the table's by 2 to 6 per cent, since it bounds the layers from the nearer end;
    # with the table's bound it is the table's.
    rate = answer(measured, Question.LEARNING_RATE)
    assert larger * 1.01 <= rate <= larger * 1.07
    assert fewer / 1.07 <= answer(measured, Question.ITERATIONS) <= fewer + 1
    monkeypatch.setattr(module, "layer_norm_bound", wider_layer_bound)
    again = LargerSteps().check(case)
    np.testing.assert_allclose(answer(again, Question.LEARNING_RATE), larger, rtol=5e-3)
    np.testing.assert_allclose(answer(again, Question.ITERATIONS), fewer, rtol=5e-3, atol=1)
    assert 4.9 <= found / rate <= 430


# --- larger steps ------------------------------------------------------------------------------


@pytest.mark.statement("arora2019:cor-cert2", "holds")
@pytest.mark.parametrize(("depth", "name"), [(2, "Q2"), (3, "Q1"), (3, "Q3"), (4, "Q4")], ids=str)
def test_larger_steps_keep_their_promises(depth, name):
    """To a thousandth of the loss with every step recorded, and every invariant looked at."""
    case = problem(depth, name, share=1e-3)
    measured = LargerSteps().check(case)
    rate = (1 - 1e-9) * answer(measured, Question.LEARNING_RATE)
    steps = min(int(answer(measured, Question.ITERATIONS)) + 2, 1500)
    run = tw.descend(case.objective, case.weights, learning_rate=rate, steps=steps)
    certificate = LargerSteps().check(replace(case, run=run, learning_rate=rate))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)
    assert len(certificate.conclusions) == (4 if steps == 1500 else 5)
    descent, balance, norms = certificate.conclusions[-3:]
    # As published over all rows: the rate 2 to 6.4 times better, imbalance and norms below.
    assert 1.9 <= descent.looseness <= 6.5
    assert np.max(balance.lesser / balance.greater) <= 0.105
    assert np.max(norms.lesser / norms.greater) <= 0.97


@pytest.mark.statement("arora2019:cor-cert2", "holds")
@settings(max_examples=10)  # each one bisects for the largest rate three times
@given(
    widths=st.sampled_from([(2, 2, 2), (3, 2, 2, 1)]),
    seed=st.integers(0, 2**32 - 1),
    away=st.floats(0.05, 0.8),
    share=st.floats(0.0, 0.3),
    fraction=st.floats(0.05, 0.99),
)
def test_larger_steps_from_random_starts(widths, seed, away, share, fraction):
    """Off balance by up to .3 of a bound that any certificate must keep."""
    random = np.random.default_rng(seed)
    left, _, right = np.linalg.svd(
        random.standard_normal((widths[-1], widths[0])), full_matrices=False
    )
    values = random.uniform(0.6, 1.5, min(widths[-1], widths[0]))
    change = random.standard_normal((widths[-1], widths[0]))
    product = left * values @ right + away * values.min() * change / np.linalg.norm(change)
    layers, depth = balanced(product, widths, random), len(widths) - 1
    c = values.min() * (1 - away)
    norms = np.linalg.norm(product, 2) ** (2 - 2 / depth)
    wanted = share * c**2 / (norms * depth * (depth - 1))
    directions = [random.standard_normal(layer.shape) for layer in layers]
    layers = nearly_balanced(layers, directions, wanted) if share > 1e-3 else layers
    case = case_of(widths, left * values @ right, layers)
    found = LargerSteps().check(case)
    assume(found.applies)
    rate = fraction * answer(found, Question.LEARNING_RATE)
    run = tw.descend(case.objective, case.weights, learning_rate=rate, steps=100)
    certificate = LargerSteps().check(replace(case, run=run, learning_rate=rate))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:cor-cert2", "fails")
def test_larger_steps_have_their_limits():
    case = problem(2, "Q2")
    rate = answer(LargerSteps().check(case), Question.LEARNING_RATE)
    fast = LargerSteps().check(replace(case, learning_rate=1.1 * rate))
    assert fast.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(fast.first_failure.margin, -np.log(1.1), rtol=1e-6)
    uneven, worse = (
        LargerSteps().check(replace(case, weights=(share * np.eye(2), np.eye(2) / share)))
        for share in (1.07, 1.08)
    )
    assert uneven.first_failure.statement.startswith("kappa / 2 <= what the imbalance leaves")
    assert worse.first_failure.statement.startswith("N (N - 1) / 2 imbalance(0)")
    taken, square = map(float, worse.first_failure.worst())
    assert square == pytest.approx(0.7655**2, rel=1e-3)  # c of the table
    assert square < taken < 1.2 * square
    assert LargerSteps(kappa=3.0).check(case).first_failure.margin == -1  # only two layers
    assert LargerSteps(kappa=-1.0).check(case).verdict is Verdict.NOT_APPLICABLE
    away = LargerSteps().check(replace(case, weights=(-np.eye(2), np.eye(2))))
    assert away.first_failure.statement.startswith("0 < c")


def test_less_rate_may_buy_a_larger_step():
    """Kappa = 1 on a square product: T counts with the lower rate."""
    case = problem(3, "Q2")
    full, less = LargerSteps().check(case), LargerSteps(kappa=1.0).check(case)
    c = guarantee(case).margin
    np.testing.assert_allclose(answer(full, Question.RATE), 3 * c ** (4 / 3), rtol=1e-12)
    np.testing.assert_allclose(answer(less, Question.RATE), c ** (4 / 3), rtol=1e-12)
    assert answer(less, Question.LEARNING_RATE) != answer(full, Question.LEARNING_RATE)


def test_the_certified_rate_is_the_last_one():
    """The conditions hold just below it and fail just above."""
    measured = Measured.of(start_of(problem(3, "Q3")))
    rate = measured.largest_rate()
    assert measured.balance(rate * 0.999) >= measured.kappa / 2 > measured.balance(rate * 1.001)
    assert measured.bounds(Magnitude.of(10.0)) is None


def test_very_unbalanced_layers_overflow_to_no_certificate():
    """Forty layers that differ by a factor of 1e10: powers up to 1e800."""
    layers = [np.full((1, 1), 1e10), *[np.eye(1)] * 38, np.full((1, 1), 1e-10)]
    certificate = LargerSteps().check(case_of([1] * 41, 1.5 * np.eye(1), layers))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    # M is at least the largest layer, the imbalance 1e20, c is one.
    assert -np.inf < certificate.first_failure.margin < -800 * np.log(10)


# --- fewer iterations --------------------------------------------------------------------------


@pytest.mark.statement("arora2019:cor-Tint", "holds")
@pytest.mark.statement("arora2019:cor-Tint", "tight")
def test_fewer_iterations_of_the_first_instance():
    """80837 <= 323356 <= 344998, to a hundredth of the loss."""
    case = case_of(*INSTANCES["I1"], target_loss=0.005 / 100)
    rate = float(guarantee(case).learning_rate)
    certificate = FewerIterations().check(case)
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)
    count = answer(certificate, Question.ITERATIONS)
    assert abs(count - 323356) <= 1
    run = tw.descend(
        case.objective,
        case.weights,
        learning_rate=rate * (1 - 1e-9),
        steps=int(count) + 1,
        record_every=int(count),
    )
    certificate = FewerIterations().check(Case.of(run, case.target_loss))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)
    assert len(certificate.conclusions) == 2
    discrete = 1 + rate * guarantee(case).norm  # (1 + eta F^p)^p, p = 1 for two layers
    np.testing.assert_allclose(
        certificate.conclusions[0].looseness, discrete * 344999 / 323356, rtol=1e-5
    )


@pytest.mark.statement("arora2019:cor-Tint", "tight")
@pytest.mark.parametrize(("depth", "ours", "plain"), [(2, 14.04, 329.9), (3, 23.96, 1242)])
def test_the_count_of_a_small_margin(depth, ours, plain):
    """W(0) = (.02, .05, 0) and Phi = e_1: eta T to 1e-3 of the loss, with the factor left out."""
    product, target = np.array([0.02, 0.05, 0.0]), np.array([1.0, 0.0, 0.0])
    distance = np.linalg.norm(product - target)
    margin, power = 1 - distance, 2 - 2 / depth
    eps = 1e-3  # of the loss itself
    found = error_integral(1.0, margin, (2 * eps) ** 0.5, power)
    np.testing.assert_allclose(found, ours, rtol=1e-3)
    np.testing.assert_allclose(np.log(distance**2 / 2 / eps) / margin**power, plain, rtol=1e-3)


@pytest.mark.statement("arora2019:cor-Tint", "holds")
@given(st.integers(1, 5), st.floats(0.05, 0.95), st.floats(-6, -0.1))
def test_the_recursion_is_as_fast_as_counted(depth, ratio, exponent):
    """Oracle: l <- l (1 - eta (S - y)^p) itself, at steps far above the certified ones."""
    power, s, eta = 2 - 2 / depth, 1.0, 0.02
    y = 1 - ratio
    goal = y * 10**exponent
    bound = error_integral(s, ratio, goal, power) * (1 + eta * s**power) ** power / eta
    assume(bound < 1e5)
    count = 0
    while y > goal:
        y *= (1 - eta * (s - y) ** power) ** 0.5
        count += 1
    assert count <= bound + 1  # the first whole number above
    assert count >= 0.9 * bound / (1 + eta) ** 3 - 1


@given(st.floats(-9, -0.1), st.floats(-5, -0.05), st.sampled_from([0.0, 1.0, 1.5]))
def test_the_integral_against_quadrature(least, margin, power):
    """Oracle: the plain integral, in pieces where it is not smooth."""
    low, top = 10**least, 1 - 10**margin
    assume(low < top)
    marks = [
        low,
        *[x for x in (1e-6, 1e-3, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999) if low < x < top],
        top,
    ]
    pieces = [
        quad(lambda y: 2 / (y * (1 - y) ** power), a, b, epsrel=1e-12)[0]
        for a, b in pairwise(marks)
    ]
    found = error_integral(1.0, 1 - top, low, power)
    np.testing.assert_allclose(found, sum(pieces), rtol=1e-8)  # of the quadratures


@pytest.mark.statement("arora2019:cor-Tint", "fails")
def test_fewer_iterations_need_a_target():
    case = case_of(*INSTANCES["I2"])
    certificate = FewerIterations().check(case)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement.startswith("a target loss")
    fast = replace(case, target_loss=1e-4, learning_rate=1e-3)
    assert FewerIterations().check(fast).first_failure.statement.startswith("eta <=")
    done = FewerIterations().check(replace(case, target_loss=10.0))
    assert answer(done, Question.ITERATIONS) == 0


# --- the limit of stability --------------------------------------------------------------------


@pytest.mark.statement("arora2019:cor-lr-gap", "holds")
@pytest.mark.parametrize(("scale", "level"), [(0.5, 1.0), (2.0, 0.25)])
def test_descent_converges_up_to_the_limit(scale, level):
    """On either side of it by 2 per cent, from a start near balance, with f = 2 scale level l."""
    widths, target = (3, 2, 2), np.array([[1.2, 0.0, 0.3], [0.1, 0.9, 0.0]])
    rows = np.linalg.qr(np.random.default_rng(2).standard_normal((8, 3)))[0]
    x = np.sqrt(8 * level) * rows
    objective = tw.Objective(tw.LinearNetwork(widths), tw.Regression(x, x @ target.T, scale=scale))
    case = Case(objective, tuple(balanced(0.8 * target + 0.01, widths)))
    certificate = StabilityLimit().check(case)
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)
    assert len(certificate.conclusions) == 2
    limit = answer(certificate, Question.PREDICTED_RATE)
    np.testing.assert_allclose(
        limit, 2 / (2 * np.linalg.norm(target, 2) * 2 * scale * level), rtol=1e-12
    )
    run = tw.descend(
        objective,
        case.weights,
        learning_rate=limit * np.array([0.98, 1.02]),
        steps=3000,
        record_every=1000,
    )
    assert run.loss[0, -1] < 1e-20
    assert run.loss[1, -1] > 1e-4


@pytest.mark.statement("arora2019:cor-lr-gap", "fails")
def test_narrow_layers_have_no_balanced_minimiser():
    case = case_of((2, 1, 2), np.eye(2), [np.ones((1, 2)), np.ones((2, 1))])
    certificate = StabilityLimit().check(case)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "rank of the target <= width"
    assert certificate.first_failure.margin == -1
    assert float(stability_limit(np.eye(2), 1)) == 2
