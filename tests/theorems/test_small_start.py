"""marion2024 on small starts: from the saddle at zero to a flat minimiser, claim by claim."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import thalweg as tw
from thalweg import initialisation
from thalweg._checks import InputError
from thalweg.certificates import Case, Question, Verdict
from thalweg.curvature import balanced_sharpness
from thalweg.dynamics.escape import escape
from thalweg.measurement import imbalance
from thalweg.theorems.settings.deep_regression import deep_regression, in_training
from thalweg.theorems.settings.small_starts import (
    start_size,
    starts_below_zero_network,
    starts_small,
)
from thalweg.theorems.sharpness.minimisers import FlattestMinimiser, SharpnessOfMinimisers
from thalweg.theorems.small_starts.flow import (
    BalanceIsConserved,
    EventuallyLojasiewicz,
    LayersAlign,
    growth_rate,
    late_part,
    late_rate,
    progress_of,
)
from thalweg.theorems.small_starts.limit import (
    LayersGrowAlike,
    SmallStartConverges,
    SmallStartLimitIsFlat,
    SmallStartLimitSharpness,
    sharpness_spread,
)

EVERYTHING = (
    BalanceIsConserved(),
    LayersAlign(),
    EventuallyLojasiewicz(),
    LayersGrowAlike(),
    SmallStartConverges(),
    SmallStartLimitIsFlat(),
    SmallStartLimitSharpness(),
    SharpnessOfMinimisers(),
    FlattestMinimiser(),
)


def scaled_to(weights, eps):
    """The weights at the scale at which their size is eps."""
    factor = (eps / float(start_size(weights))) ** 0.5
    return tuple(factor * layer for layer in weights)


def data_b(depth, eps):
    """Data B at width 4, with the deterministic start whose last layer is zero."""
    x, y = oracles.marion_data_b()
    widths = [3] + [4] * (depth - 1) + [1]
    objective = tw.Objective(tw.LinearNetwork(widths), tw.Regression(x, y, scale=1.0))
    start = initialisation.one_zero_layer(oracles.marion_weights(widths, 1.0, 0.3))
    return objective, scaled_to(start, eps)


@cache
def depth_three():
    """The flow whose numbers are known; by time 600 it has come to rest."""
    objective, start = data_b(3, 1e-4)
    times = np.concatenate([[0.0, 1.0], np.geomspace(1.01, 600.0, 300)])
    flow = tw.flow(
        objective, start, times=times, rtol=1e-11, atol=1e-14, solver=tw.solvers.Explicit()
    )
    return Case(objective, start, flow=flow)


@cache
def depth_ten():
    """The way out of the saddle, and the flow from there: ten layers of a ten-thousandth."""
    objective, start = data_b(10, (0.9 / 320) ** 2)
    way = escape(objective, start)
    rest = tw.flow(
        objective, way.final, time=40.0, rtol=1e-11, atol=1e-14, solver=tw.solvers.Explicit()
    )
    return Case(objective, start, flow=way), Case(objective, start, flow=rest)


def training(objective, weights):
    """The case of these weights, with its regression."""
    return in_training(Case(objective, weights), deep_regression(objective)).known


def claims(certificate, *words):
    """The conclusions whose statement has all of these words."""
    return [
        claim for claim in certificate.conclusions if all(word in claim.statement for word in words)
    ]


# --- ten layers ----------------------------------------------------------------------------------


@pytest.mark.statement("marion2024:eq4", "value")
def test_ten_small_layers_leave_the_saddle_along_the_curve_of_the_flow():
    way = depth_ten()[0].flow
    assert 20 < way.times.size < 200
    assert way.times[1] > 1e26  # in plain time nobody would see it move
    assert np.all(np.diff(way.times) >= 0)
    norms = progress_of(way).slope
    assert norms[0] == pytest.approx(3.98e-33, rel=1e-2)
    assert norms[-2] < 1e-2 <= norms[-1]
    assert np.max(way.error) < 1e-9
    with pytest.raises(InputError, match="followed by its length"):
        way.at([1.0])


@pytest.mark.statement("marion2024:lem1", "holds")
@pytest.mark.statement("marion2024:lem2", "holds")
@pytest.mark.statement("marion2024:thm3", "holds")
@pytest.mark.statement("marion2024:cor1", "holds")
@pytest.mark.statement("marion2024:cor2", "holds")
@pytest.mark.statement("marion2024:cor3", "holds")
@pytest.mark.statement("marion2024:d-S0", "holds")
def test_ten_small_layers_confirm_every_statement():
    """The whole chain, on the way out of the saddle and from there on."""
    way, rest = depth_ten()
    for theorem in EVERYTHING[:3]:
        certificate = theorem.check(way)
        assert certificate.verdict is Verdict.CONFIRMED, certificate
        assert certificate.conclusions
    for theorem in EVERYTHING:
        certificate = theorem.check(rest)
        assert certificate.verdict is Verdict.CONFIRMED, certificate
        assert certificate.conclusions
    (ratio,) = claims(SmallStartLimitIsFlat().check(rest), "4 M / mu")
    assert ratio.worst() == pytest.approx((3.73213, 28.80555), abs=5e-6)
    (upper,) = claims(SmallStartLimitSharpness().check(rest), "S <= upper")
    assert upper.worst()[0] == pytest.approx(19.109348, abs=5e-7)
    singular = late_part(rest.flow, 1.0).progress().singular[-1]
    np.testing.assert_allclose(singular, 1.041340, atol=5e-7)


# --- three layers: the numbers -------------------------------------------------------------------


@pytest.mark.statement("marion2024:def-eps", "value")
def test_the_size_of_a_start():
    _, start = data_b(3, 1e-4)
    ones = tuple(layer / 0.0015807206193336797 for layer in start)
    assert float(start_size(ones)) == pytest.approx(40.0211683743901, rel=1e-13)
    assert float(start_size(start)) == pytest.approx(1e-4, rel=1e-13)


@pytest.mark.statement("marion2024:lem2", "tight")
def test_how_near_the_layers_stay_to_a_chain():
    """The maxima to the four digits that are known, far below eps and below the sharper bounds."""
    certificate = LayersAlign().check(depth_three())
    assert certificate.verdict is Verdict.CONFIRMED
    expected = [9.178e-06, 1.118e-05, 1.269e-05] * 2
    found = [np.max(claim.lesser) for claim in certificate.conclusions]
    np.testing.assert_allclose(found, expected, rtol=4e-4)
    greater = [claim.greater for claim in certificate.conclusions[:5]]
    np.testing.assert_allclose(greater[:3], 1e-4, rtol=1e-12)
    np.testing.assert_allclose(greater[3:], [4.048277537e-05, 2.1448e-05], rtol=3e-5)
    # At time 0, one layer of rank one before a zero layer: the spread is the imbalance.
    objective, _ = small_random_start(0, 1.0, 1.0)
    start = (jnp.outer(jnp.ones(3), jnp.array([0.1, 0.2])), jnp.zeros((1, 3)))
    flow = tw.flow(objective, start, time=1e-6, solver=tw.solvers.Explicit())
    (spread,) = claims(LayersAlign().check(Case(objective, start, flow=flow)), "<= sum_k")
    assert spread.looseness == pytest.approx(1, abs=1e-5)  # what 1e-6 of time changes


@pytest.mark.statement("marion2024:thm3", "tight")
def test_the_rate_after_time_one():
    """To the digits that are known; the rate is five billion times too small."""
    case = depth_three()
    rate = late_rate(training(case.objective, case.weights), late_part(case.flow, 1.0))
    assert float(rate.rest) == pytest.approx(9.507e-11, rel=1e-4)
    assert float(rate.rate) == pytest.approx(4.4645e-21, rel=1e-4)
    assert float(rate.product) == pytest.approx(4.03e-12, rel=2e-3)
    setting = deep_regression(case.objective).known
    again = growth_rate(setting, 1e-4, 2.1517685127615e-11)
    assert float(again.rate) == pytest.approx(float(rate.rate), rel=1e-11)
    certificate = EventuallyLojasiewicz().check(case)
    assert certificate.verdict is Verdict.CONFIRMED
    _, least = certificate.conclusions[0].worst()
    assert float(least) == pytest.approx(2.207e-11, rel=5e-4)
    assert 4e9 < certificate.conclusions[0].looseness < 6e9
    _, product = certificate.conclusions[1].worst()
    assert float(product) == pytest.approx(1.479e-11, rel=5e-4)
    assert float(certificate.answers[0].value) == pytest.approx(4.4645e-21, rel=1e-4)


@pytest.mark.statement("marion2024:cor1", "tight")
def test_the_norms_of_three_grown_layers():
    case = depth_three()
    certificate = LayersGrowAlike().check(case)
    assert certificate.verdict is Verdict.CONFIRMED
    low, high = certificate.conclusions
    assert float(low.lesser) == pytest.approx(0.90844, abs=5e-6)
    assert float(high.greater) == pytest.approx(1.44207, abs=5e-6)
    last = late_part(case.flow, 1.0).progress().singular[-1]
    np.testing.assert_allclose(last, [1.14456918, 1.14457103, 1.14456672], atol=5e-9)
    assert 1.2 < low.looseness < 1.3
    assert 1.2 < high.looseness < 1.3


@pytest.mark.statement("marion2024:cor3", "tight")
@pytest.mark.statement("marion2024:d-S0", "tight")
def test_the_sharpness_of_three_grown_layers():
    """S / S_min and S_0 are known to six digits; S is off S_0 by some 1e-6."""
    case = depth_three()
    (ratio,) = claims(SmallStartLimitIsFlat().check(case), "4 M / mu")
    assert ratio.worst()[0] == pytest.approx(4.35533, abs=5e-6)
    certificate = SmallStartLimitSharpness().check(case)
    (upper,) = claims(certificate, "S <= upper")
    sharpness, bound = upper.worst()
    prediction = float(balanced_sharpness(case.objective))
    assert prediction == pytest.approx(5.537729, abs=5e-7)
    assert 1e-7 < sharpness / prediction - 1 < 1e-5
    assert 1.05 < bound / sharpness < 1.1
    values = {answer.question: float(answer.value) for answer in certificate.answers}
    assert values[Question.PREDICTED_SHARPNESS] == prediction
    assert values[Question.PREDICTED_RATE] == pytest.approx(2 / prediction)
    assert values[Question.LEAST_SHARPNESS] < sharpness < values[Question.GREATEST_SHARPNESS]


# --- random starts -------------------------------------------------------------------------------


def small_random_start(seed, fraction, scale):
    """Two layers on data with eigenvalues between 1/2 and 2, a solution of norm 1 to 2."""
    random = np.random.default_rng(seed)
    turn = np.linalg.qr(random.standard_normal((2, 2)))[0]
    x = np.diag(np.sqrt(2 * random.uniform(0.5, 2.0, 2))) @ turn
    solution = random.standard_normal(2)
    solution *= random.uniform(1.01, 2.0) / np.linalg.norm(solution)
    objective = tw.Objective(tw.LinearNetwork([2, 3, 1]), tw.Regression(x, x @ solution, scale))
    first = jnp.asarray(random.standard_normal((3, 2)))
    return objective, scaled_to((first, jnp.zeros((1, 3))), (fraction / 64) ** 2)


@pytest.mark.statement("marion2024:lem1", "holds")
@pytest.mark.statement("marion2024:lem2", "holds")
@pytest.mark.statement("marion2024:thm3", "holds")
@pytest.mark.statement("marion2024:cor1", "holds")
@pytest.mark.statement("marion2024:cor2", "holds")
@pytest.mark.statement("marion2024:cor3", "holds")
@pytest.mark.statement("marion2024:d-S0", "holds")
@settings(max_examples=4)
@given(st.integers(0, 2**31 - 1), st.floats(0.2, 0.99), st.floats(0.5, 2.0))
def test_small_random_starts_confirm_every_statement(seed, fraction, scale):
    objective, start = small_random_start(seed, fraction, scale)
    flow = tw.flow(
        objective, start, time=60.0, rtol=1e-10, atol=1e-13, solver=tw.solvers.Explicit()
    )
    case = Case(objective, start, flow=flow)
    for theorem in EVERYTHING:
        certificate = theorem.check(case)
        assert certificate.verdict is Verdict.CONFIRMED, certificate
        assert certificate.conclusions


def test_no_flow_is_trusted_below_its_tolerance():
    """The companion of a flow takes the same first steps, and so agrees with it too well."""
    flow = depth_three().flow
    error = np.full(flow.error.shape, 1e-300)
    error[3] = 1e-2
    found = eqx.tree_at(lambda each: each.error, flow, error).error_so_far
    assert flow.times[0] == 0
    assert found[0] == 2e-300  # the start is known
    for number in (1, 2):
        squares = sum(np.sum(array[number] ** 2) for array in flow.weights)
        assert found[number] >= 2 * (flow.atol + flow.rtol * np.sqrt(squares)) * (1 - 1e-12)
    assert np.all(found[3:] == 2e-2)  # and not below what was estimated before


@pytest.mark.statement("marion2024:lem1", "tight")
@pytest.mark.parametrize("learning_rate", [0.1, 0.01])
def test_descent_drifts_by_the_squared_rate(learning_rate):
    """Constant along the flow to its error, and far from it for descent over the same time."""
    objective, _ = data_b(3, 1e-4)
    start = oracles.marion_weights([3, 4, 4, 1], 0.5, 0.1)
    flow = tw.flow(objective, start, time=20 * learning_rate, rtol=1e-10)
    certificate = BalanceIsConserved().check(Case(objective, start, flow=flow))
    assert certificate.verdict is Verdict.CONFIRMED
    (claim,) = certificate.conclusions
    run = tw.descend(objective, start, learning_rate=learning_rate, steps=20)
    last = tuple(layer[-1] for layer in run.weights)
    pairs = zip(imbalance(last), imbalance(start), strict=True)
    drift = max(float(jnp.max(jnp.abs(a - b))) for a, b in pairs)
    assert np.max(claim.lesser) < 1e-8 < 1e-5 * learning_rate < drift


@pytest.mark.statement("marion2024:lem1", "fails")
def test_balance_is_about_linear_networks_without_decay():
    objective, start = data_b(3, 1e-4)
    decayed = tw.Objective(objective.network, objective.problem, weight_decay=0.1)
    certificate = BalanceIsConserved().check(Case(decayed, start))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "there is no weight decay"
    # A flow of something else is caught.
    other = tuple(2 * layer for layer in start)
    wrong = BalanceIsConserved().check(replace(depth_three(), weights=other))
    assert wrong.verdict is Verdict.VIOLATED


@pytest.mark.statement("marion2024:cor2", "value")
def test_gradients_are_bounded_once_the_product_has_grown():
    """At the first time at which it has; before, on the plateau, the bound is not claimed."""
    case = depth_three()
    _, claim = SmallStartConverges().check(case).conclusions
    before = case.flow.times.size - np.size(claim.lesser)
    assert before > np.sum(case.flow.times < 1.0)
    point = tuple(array[before] for array in case.flow.weights)
    sizes = [float(jnp.linalg.norm(slope)) for slope in case.objective.gradient(point)]
    assert max(sizes) > 1.01 * min(sizes)
    assert claim.lesser[0] == pytest.approx(max(sizes), rel=1e-9)


@pytest.mark.statement("marion2024:thm3", "tight")
@pytest.mark.statement("marion2024:cor2", "tight")
@pytest.mark.statement("marion2024:cor3", "tight")
def test_one_layer_on_white_data_attains_the_rate_and_the_sharpness():
    """Then excess(t) = excess(0) exp(-4 scale t) and S = 2 scale; the flow is good to 1e-10."""
    objective = tw.Objective(tw.LinearNetwork([2, 1]), tw.TargetMatrix([1.0, 2.0]))
    start = (jnp.array([[0.001, 0.002]]),)
    times = [0.0, 1.0, 2.0, 4.0, 20.0]
    flow = tw.flow(
        objective, start, times=times, rtol=1e-11, atol=1e-14, solver=tw.solvers.Explicit()
    )
    case = Case(objective, start, flow=flow)
    rate = EventuallyLojasiewicz().check(case).conclusions[0]
    assert rate.looseness == pytest.approx(1, abs=1e-9)
    certificate = SmallStartConverges().check(case)
    assert certificate.verdict is Verdict.CONFIRMED
    decay = certificate.conclusions[0]
    np.testing.assert_allclose(decay.lesser[:3], decay.greater[:3], rtol=1e-7)
    (sharp,) = claims(SmallStartLimitIsFlat().check(case), "(2 |w|)")
    assert sharp.looseness == pytest.approx(1, abs=1e-12)


# --- assumptions ---------------------------------------------------------------------------------


@pytest.mark.statement("marion2024:asm-A2", "value")
def test_the_start_must_not_be_worse_than_nothing():
    objective, start = data_b(3, 1e-4)
    better, moving = starts_below_zero_network(training(objective, start)).claims
    assert better.worst() == (0.0, 0.0)  # one zero layer: exactly as bad as the zero network
    assert moving.holds
    *others, _ = oracles.marion_weights([3, 4, 4, 1], 0.3, 0.2)
    pull = objective.network.end_to_end((*others, jnp.ones((1, 4))))[0]
    side = float(pull @ objective.problem.input_moment @ objective.problem.minimiser[0])
    towards, away = (jnp.full((1, 4), sign * np.sign(side) * 1e-3) for sign in (1, -1))
    assert starts_below_zero_network(training(objective, (*others, towards))).claims[0].holds
    claim, _ = starts_below_zero_network(training(objective, (*others, away))).claims
    assert claim.margin < 0
    risk = float(objective((*others, away))) - float(jnp.mean(objective.problem.targets**2))
    assert claim.margin == pytest.approx(-risk, rel=1e-9)
    zeros = tuple(jnp.zeros_like(layer) for layer in start)
    assert not starts_below_zero_network(training(objective, zeros)).claims[1].holds


@pytest.mark.statement("marion2024:asm-A3", "value")
def test_the_start_must_be_small_and_the_solution_not():
    objective, start = data_b(3, 1e-4)
    large, small = starts_small(training(objective, start)).claims
    assert large.worst() == pytest.approx((1, 1.4994290130365124))
    assert small.worst() == pytest.approx((0.96, 1))
    _, failing = starts_small(training(objective, tuple(1.1 * layer for layer in start))).claims
    assert failing.margin == pytest.approx(-0.056)


@pytest.mark.statement("marion2024:thm3", "fails")
@pytest.mark.statement("marion2024:cor1", "fails")
@pytest.mark.statement("marion2024:cor2", "fails")
@pytest.mark.statement("marion2024:cor3", "fails")
@pytest.mark.statement("marion2024:d-S0", "fails")
@pytest.mark.parametrize("theorem", EVERYTHING[2:7], ids=lambda each: type(each).__name__)
def test_a_broken_assumption_is_named(theorem):
    objective, start = data_b(3, 1e-4)
    stuck = tuple(jnp.zeros_like(layer) for layer in start)
    certificate = theorem.check(Case(objective, stuck))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "the gradient at the start is not zero"
    large = tuple(10 * layer for layer in start)
    certificate = theorem.check(Case(objective, large))
    if isinstance(theorem, EventuallyLojasiewicz):  # it asks for no small start
        assert certificate.verdict is Verdict.CONFIRMED
        return
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "32 L sqrt(eps) <= 1"
    assert certificate.first_failure.margin == pytest.approx(-8.6)
    short = tw.Objective(objective.network, tw.TargetMatrix([0.5, 0.5, 0.5]))
    failure = theorem.check(Case(short, start)).first_failure
    assert failure.statement == "1 <= |w| + rounding"
    assert failure.margin < 0


@pytest.mark.statement("marion2024:lem2", "fails")
def test_layers_need_not_align_towards_two_outputs():
    """Balanced layers grow to rank two, and only the assumption keeps the lemma true."""
    objective = tw.Objective(tw.LinearNetwork([2, 2, 2]), tw.TargetMatrix(np.eye(2)))
    start = (0.01 * jnp.eye(2), 0.01 * jnp.eye(2))
    flow = tw.flow(objective, start, time=20.0, solver=tw.solvers.Explicit())
    case = Case(objective, start, flow=flow)
    certificate = LayersAlign().check(case)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == -1
    rank, *_ = LayersAlign().conclusions(LayersAlign().narrowed(case).known)
    assert rank.fails
    assert rank.worst()[0] == pytest.approx(1, abs=1e-2)


@pytest.mark.statement("marion2024:d-S0", "holds")
@given(st.integers(1, 40), st.floats(1.0, 10.0), st.floats(1e-6, 1.0))
def test_the_spread_of_the_sharpness_closes_with_the_start(depth, size, fraction):
    """Below 13% wherever the assumptions hold, and of the order of L sqrt(eps)."""
    setting = replace(deep_regression(data_b(2, 1e-4)[0]).known, size=size)
    setting = replace(setting, network=tw.LinearNetwork([3] * depth + [1]))
    spread = sharpness_spread(setting, (fraction / (32 * depth)) ** 2)
    assert 1 - 0.13 * fraction <= spread.lower <= 1 <= spread.upper <= 1 + 0.13 * fraction


def test_a_stationary_start_has_no_way_out():
    objective, start = data_b(2, 1e-4)
    with pytest.raises(InputError, match="must not be stationary"):
        escape(objective, tuple(jnp.zeros_like(layer) for layer in start))
    with pytest.raises(RuntimeError, match="without its gradient growing"):
        escape(objective, start, gradient=1e3)
