"""The objective on which steps must shrink like e^{-a t}, in decimals of sixty digits."""

from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg._checks import InputError
from thalweg.adversarial import WorstCase
from thalweg.certificates import Verdict
from thalweg.theorems.discretisation.worst_case import (
    Horizon,
    RaysPart,
    StepsMustShrink,
    ThirdCoordinateGrows,
)

START = (0.75, float(0.8 * np.exp(-12) - 1), 2.5)
OBJECTIVES = [(1.0, 1e6, 0.5), (2.0, 1e8, 0.1), (1.0, 1e10, 0.9)]


def at(a, b, tolerance, fraction, rate=None, start=START):
    """The horizon at this part of the window; at the least failing rate unless told."""
    objective = WorstCase(a, b, tolerance)
    early, late = (float(end) for end in objective.window(jnp.asarray(start)))
    time = early + fraction * (late - early)
    horizon = Horizon(objective, start, time, 1.0)
    failing = float(horizon.least_failing_rate) * (1 + 1e-9)  # not below it by rounding
    return replace(horizon, learning_rate=failing if rate is None else rate)


@pytest.mark.statement("elkabetz2021:prop20", "holds")
@pytest.mark.parametrize("numbers", OBJECTIVES, ids=str)
@pytest.mark.parametrize("fraction", [1e-9, 0.5, 1 - 1e-9], ids=["first", "middle", "last"])
@pytest.mark.parametrize("factor", [1.0, 10.0])
def test_no_iterate_comes_near(numbers, fraction, factor):
    horizon = at(*numbers, fraction)
    horizon = replace(horizon, learning_rate=factor * horizon.learning_rate)
    certificate = StepsMustShrink().check(horizon)
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("elkabetz2021:prop20", "holds")
@pytest.mark.statement("elkabetz2021:lem86", "holds")
@given(
    st.floats(0.51, 0.99), st.floats(0.51, 0.99), st.floats(0.01, 0.99), st.floats(0.01, 0.99),
    st.floats(0.5, 3.0), st.floats(1.0, 1.5),
)  # fmt: skip
def test_random_starts_and_times(first, second, fraction, tolerance, a, factor):
    start = (first, float(second * np.exp(-12) - 1), 2.1)
    horizon = at(a, 1e7, tolerance, fraction, start=start)
    horizon = replace(horizon, learning_rate=factor * horizon.learning_rate)
    certificate = StepsMustShrink().check(horizon)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    slow = replace(horizon, learning_rate=min(horizon.learning_rate, 0.16 / a))
    certificate = RaysPart().check(slow)
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("elkabetz2021:prop20", "tight")
@pytest.mark.statement("elkabetz2021:lem86", "tight")
def test_followable_steps_shrink_exponentially():
    """The largest rate whose ray passes within the tolerance, at six times in the window.

    Over the window e^{a t} grows by 5e5; its product with that rate stays the same to a tenth, so
    that rates of order e^{-a t} are needed and the exponent is right. The constant is 1.35e10,
    where the proposition has 5e13 and its lemma, for this start, 1.7e12.
    """
    products = []
    for fraction in np.linspace(1e-9, 1 - 1e-9, 6):
        low, high = np.log(1e-9), np.log(1 / 6)
        horizon = at(1.0, 1e6, 0.5, fraction)
        for _ in range(20):  # to 2e-5
            middle = (low + high) / 2
            horizon = replace(horizon, learning_rate=float(np.exp(middle)))
            if horizon.ray_distance() <= 0.5:
                low = middle
            else:
                high = middle
        products.append(np.exp(low + horizon.time))
    assert np.exp(horizon.time) > 1e17
    np.testing.assert_allclose(
        products, 1.35e10, rtol=0.1
    )  # 1.23e10 at the first, with large steps
    np.testing.assert_allclose(products[2:], products[-1], rtol=1e-3)


@pytest.mark.statement("elkabetz2021:lem86", "tight")
@pytest.mark.parametrize("numbers", OBJECTIVES, ids=str)
def test_rays_miss_by_129_times_the_bound(numbers):
    horizon = at(*numbers, 1 - 1e-9)
    constant, bound = RaysPart().check(horizon).conclusions
    assert 28 < constant.looseness < 31
    assert 129 < bound.looseness < 130
    # Twice the step, twice the distance.
    twice = replace(horizon, learning_rate=2 * horizon.learning_rate).ray_distance()
    assert float(twice / horizon.ray_distance()) == pytest.approx(2.0, rel=1e-3)


@pytest.mark.statement("elkabetz2021:lem66", "holds")
@given(st.floats(1.01, 100.0), st.floats(0.3, 3.0), st.floats(0.1, 30.0), st.floats(2.01, 5.0))
def test_large_steps_lose_the_third_coordinate(factor, a, time, third):
    horizon = Horizon(WorstCase(a, 10.0, 0.5), (*START[:2], third), time / a, factor / (6 * a))
    certificate = ThirdCoordinateGrows().check(horizon)
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("elkabetz2021:lem66", "tight")
def test_the_third_coordinate_is_just_one_away():
    """From 2 at the time log(2) / (12 a) the flow is at 1, and the first iterate at 2."""
    horizon = Horizon(WorstCase(1.0, 10.0, 0.5), (*START[:2], 2 + 1e-9), np.log(2) / 12, 0.2)
    (claim,) = ThirdCoordinateGrows().check(horizon).conclusions
    assert claim.looseness == pytest.approx(1.0, abs=1e-8)


@pytest.mark.statement("elkabetz2021:prop20", "fails")
@pytest.mark.statement("elkabetz2021:lem66", "fails")
@pytest.mark.statement("elkabetz2021:lem86", "fails")
def test_what_the_worst_case_does_not_say():
    good = at(1.0, 1e6, 0.5, 0.9)
    slow = replace(good, learning_rate=good.learning_rate / 2)
    certificate = StepsMustShrink().check(slow)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == pytest.approx(-np.log(2), rel=1e-6)
    assert StepsMustShrink().check(replace(good, time=60.0)).verdict is Verdict.NOT_APPLICABLE
    elsewhere = replace(good, start=(0.3, 0.0, 2.5))
    for theorem in (StepsMustShrink(), RaysPart(), ThirdCoordinateGrows()):
        certificate = theorem.check(elsewhere)
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        assert certificate.first_failure.statement == "the start is covered"
    narrow = replace(good, objective=WorstCase(1.0, 2.0, 0.5))
    assert StepsMustShrink().check(narrow).first_failure.margin == -1
    assert RaysPart().check(replace(good, learning_rate=0.2)).verdict is Verdict.NOT_APPLICABLE
    assert ThirdCoordinateGrows().check(good).first_failure.statement == "1 / (6 a) < eta"
    # Tiny steps do follow: the ray passes within the tolerance.
    assert replace(good, learning_rate=1e-7).ray_distance() < 0.5
    with pytest.raises(InputError, match="`learning_rate` must be at least 2e-13"):
        replace(good, learning_rate=1e-14).ray_distance()


def test_powers_are_the_steps_of_descent():
    """Against the objective's own gradient, step by step in floating point.

    The coordinates are then of size 1e6 at most, and known to 1e-13 of that after 700 steps.
    """
    objective, rate = WorstCase(1.0, 1e6, 0.5), 0.02
    horizon = Horizon(objective, START, 30.0, rate)
    slope = jax.jit(jax.grad(objective))
    q, step = np.asarray(START), 0
    while q[1] < 1:
        q, step = q - rate * np.asarray(slope(q)), step + 1
    with localcontext(prec=60):
        after, first, second = horizon._descent_after_transition()
    assert int(after) == step
    np.testing.assert_allclose([float(first), float(second)], np.asarray(q[:2]), rtol=1e-8)
    flow = np.array([float(part) for part in horizon._flow()])
    np.testing.assert_allclose(
        flow, np.asarray(objective.flow(jnp.asarray(START), 30.0)), rtol=1e-8
    )


def test_small_steps_go_through_the_transition_one_by_one():
    """Some thirty of them, of 1e-7, within r = 3e-6 of the second coordinate 1; as above."""
    objective, rate = WorstCase(1.0, 10.0, 0.5), 1e-7
    start = (0.75, 1 - 2e-5, 2.5)
    slope = jax.jit(jax.grad(objective))
    q, step = np.asarray(start), 0
    while q[1] < 1:
        q, step = q - rate * np.asarray(slope(q)), step + 1
    with localcontext(prec=60):
        after, first, second = Horizon(objective, start, 1.0, rate)._descent_after_transition()
    assert int(after) == step
    # Two hundred steps, each rounded to 1e-16.
    np.testing.assert_allclose([float(first), float(second)], q[:2], rtol=0, atol=1e-13)


def test_iterates_off_the_ray_differ_in_the_second_coordinate():
    """They are below 1, or above the edge b + 1: how far from the flow that is, by the flow."""
    horizon = at(1.0, 1e6, 0.5, 0.9)
    flow = float(horizon.objective.flow(jnp.asarray(START), horizon.time)[1])
    assert 1 < flow < 1e6 + 1
    with localcontext(prec=60):
        gaps = [float(gap) for gap in horizon._second_coordinate_gaps()]
    # The exponential of 39 is known to 1e-14.
    np.testing.assert_allclose(gaps, [flow - 1, 1e6 + 1 - flow], rtol=1e-9)


@pytest.mark.statement("elkabetz2021:eq25-27", "value")
def test_the_worst_case_is_what_is_printed():
    """Values at the tops and edges, in fractions; the largest curvature, in sixty digits."""
    a, b, tolerance = 1.5, 1e-10, 0.3
    objective = WorstCase(a, b, tolerance)
    edge, near = (float(each) for each in objective.edges)
    r = Fraction(float(objective.transition))
    far, top = Fraction(edge), float(r / 2 - 1)
    hill = Fraction(a) * ((far + 1) ** 2 / 2 - Fraction(5, 12) - far / 2)
    zero = jnp.array([edge + 1, near + 1, 0.0])  # where all three terms vanish
    assert float(objective(zero)) == 0
    np.testing.assert_allclose(objective(zero.at[0].set(0.0)), float(hill), rtol=1e-14)
    close = Fraction(near)
    ridge = (close + 1) ** 2 / 2 + Fraction(1, 12) - close / 2 - (r / 2 - 7 * r**2 / 48)
    value = objective(zero.at[1].set(top))
    np.testing.assert_allclose(value, a * float(ridge), rtol=1e-14)
    np.testing.assert_allclose(objective(zero.at[2].set(2.0)), 24 * a, rtol=1e-15)
    with localcontext(prec=60):
        z = Decimal(edge)
        largest = float(Decimal(a) * ((2 + 3 * z) ** 2 / (3 * (1 + 2 * z)) - 1))
    # Curvature on the way down: -a + 6 a (2/3 + z) s - 12 a (1/4 + z/2) s^2.
    peak = edge + (2 / 3 + edge) / (4 * (1 / 4 + edge / 2))
    curvature = jax.jit(jax.grad(jax.grad(lambda q1: objective(zero.at[0].set(q1)))))
    np.testing.assert_allclose(curvature(peak), largest, rtol=1e-10)  # flat at its peak
    np.testing.assert_allclose(curvature(1.0), -a, rtol=1e-15)
