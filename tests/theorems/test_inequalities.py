"""Scalar inequalities and laws: over their range, at their closest, and beyond."""

from math import e, exp, log

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from thalweg.certificates import Verdict
from thalweg.curvature.products import products_without_two
from thalweg.theorems.probability.inequalities import (
    ChiSquaredTail,
    GaussianDraws,
    GaussianForms,
    PowerNearOne,
    PowersNearOne,
    SmallProbabilities,
    Tail,
    UnionBound,
)


@pytest.mark.statement("marion2024:lem4", "holds")
@given(x=st.floats(0, 0.5), a=st.floats(1e-6, 1e6))
def test_powers_below_one_are_above_their_line(x, a):
    certificate = PowersNearOne().check(PowerNearOne(x, a))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert len(certificate.conclusions) == (2 if a * x <= 1 else 1)


@pytest.mark.statement("marion2024:lem4", "holds")
@given(a=st.floats(1e-6, 1e6), share=st.floats(1e-9, 1))
def test_powers_above_one_are_below_their_line(a, share):
    certificate = PowersNearOne().check(PowerNearOne(0.999 * share / a, a))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert certificate.conclusions[-1].statement.startswith("(1 + x)^a")


@pytest.mark.statement("marion2024:lem4", "tight")
def test_powers_near_one_are_off_by_the_factor_two_at_first():
    """To first order both powers are 1 -+ a x, so half of the change that is allowed is used."""
    below, above = PowersNearOne().check(PowerNearOne(1e-6, 3.0)).conclusions
    np.testing.assert_allclose(1 - below.greater, (1 - below.lesser) / 2, rtol=1e-5)
    np.testing.assert_allclose(above.lesser - 1, (above.greater - 1) / 2, rtol=1e-5)
    # At the ends of the conditions: 2^-a against 1 - a for small a, and e against 3.
    end = PowersNearOne().check(PowerNearOne(0.5, 1e-6)).conclusions[0]
    np.testing.assert_allclose((1 - end.lesser) / (1 - end.greater), 1 / log(2), rtol=1e-5)
    edge = PowersNearOne().check(PowerNearOne(1e-9, 1e9)).conclusions[1]
    np.testing.assert_allclose(edge.looseness, 3 / e, rtol=1e-6)


@pytest.mark.statement("marion2024:lem4", "fails")
def test_powers_are_curved_further_away():
    """(1 - x)^a is 1 - 2 a x or less beyond 1/2 for small a, and (1 + x)^a is 27 > 13 at x = 2."""
    certificate = PowersNearOne().check(PowerNearOne(2.0, 3.0))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == -3
    assert 3.0**3 > 1 + 2 * 3 * 2
    assert 0.01**0.1 < 1 - 2 * 0.1 * 0.99  # x = .99, a = .1


@pytest.mark.statement("marion2024:lem5", "holds")
@given(count=st.floats(1, 1e12), x=st.floats(1, 1e6))
def test_many_chances_are_small_in_all(count, x):
    certificate = UnionBound().check(SmallProbabilities(count, x))
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("marion2024:lem5", "tight")
def test_four_chances_attain_the_sharper_bound():
    """L = 4 at x = 1: 4 exp(-2) is exp(-1) of what is printed."""
    printed, sharper = UnionBound().check(SmallProbabilities(4.0, 1.0)).conclusions
    np.testing.assert_allclose(sharper.looseness, 1, rtol=1e-14)
    np.testing.assert_allclose(printed.looseness, e, rtol=1e-14)


@pytest.mark.statement("marion2024:lem5", "fails")
def test_chances_must_be_small_to_begin_with():
    certificate = UnionBound().check(SmallProbabilities(100.0, 0.1))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == pytest.approx(-0.9)
    assert 100 * exp(-10 * 0.1) > 4 * exp(-0.1)


@pytest.mark.statement("marion2024:chi2-tail", "holds")
@given(freedom=st.floats(1, 500), excess=st.floats(0, 500))
def test_chi_squared_tails_are_small(freedom, excess):
    certificate = ChiSquaredTail().check(Tail(freedom, excess))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    # Nowhere is more than half of the bound used: the median is below the mean.
    assert certificate.conclusions[0].looseness > 2


@pytest.mark.statement("marion2024:chi2-tail", "tight")
def test_the_tail_of_a_chi_squared_variable_is_half_of_the_bound_at_its_mean():
    """Of 10^6 degrees of freedom the mean is nearly the median: off by (4 / (9 pi p))^{1/2} / 2."""
    claim = ChiSquaredTail().check(Tail(1e6, 0.0)).conclusions[0]
    np.testing.assert_allclose(claim.looseness, 2, rtol=1e-3)


@pytest.mark.statement("marion2024:chi2-tail", "fails")
def test_the_tail_is_not_small_below_the_mean():
    certificate = ChiSquaredTail().check(Tail(100.0, -50.0))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == -50
    assert chi2.sf(50, 100) > exp(-(50**2) / (4 * 50))


def draws(seed, size, count=5000):
    return np.random.default_rng(seed).standard_normal((count, size, size))


@pytest.mark.statement("marion2024:lem6", "holds")
@given(seed=st.integers(0, 2**31 - 1), size=st.sampled_from([1, 2, 6]), scale=st.floats(1e-3, 1e3))
def test_gaussian_matrices_have_the_laws(seed, size, scale):
    vector = scale * np.random.default_rng(seed + 1).standard_normal(size)
    certificate = GaussianForms().check(GaussianDraws(draws(seed, size), vector))
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("marion2024:lem6", "tight")
def test_neighbouring_laws_are_told_apart():
    """Equal rows: each entry is Gaussian, but |N h|^2 / |h|^2 is d times a chi2(1)."""
    matrices = draws(0, 3, 20000)
    rows = np.repeat(matrices[:, :1], 3, axis=1)
    certificate = GaussianForms().check(GaussianDraws(rows, np.array([1.0, 2.0, -1.0])))
    assert certificate.verdict is Verdict.VIOLATED
    independent = GaussianForms().check(GaussianDraws(matrices, np.array([1.0, 2.0, -1.0])))
    assert all(claim.greater > 1e-3 for claim in independent.conclusions)


@pytest.mark.statement("marion2024:lem6", "fails")
def test_the_laws_need_a_vector_and_gaussian_entries():
    zero = GaussianForms().check(GaussianDraws(draws(0, 3), np.zeros(3)))
    assert zero.verdict is Verdict.NOT_APPLICABLE
    assert zero.first_failure.describe_sides() == "0 < 0"
    uniform = np.random.default_rng(0).uniform(-1, 1, (5000, 3, 3))
    other = GaussianForms().check(GaussianDraws(uniform, np.ones(3)))
    assert other.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.statement("marion2024:ex-prod", "value")
def test_the_hessian_of_a_product():
    """At ones all entries but the diagonal are one: L - 1 and, L - 1 times, -1 are eigenvalues."""
    for count in (2, 5, 9):
        hessian = np.asarray(products_without_two(jnp.ones(count)))
        np.testing.assert_array_equal(hessian, np.ones((count, count)) - np.eye(count))
        expected = [-1] * (count - 1) + [count - 1]
        np.testing.assert_allclose(np.linalg.eigvalsh(hessian), expected, atol=1e-14 * count)
    point = jnp.linspace(0.5, 2, 5)
    by_autodiff = jax.jit(jax.hessian(jnp.prod))(point)
    np.testing.assert_allclose(products_without_two(point), by_autodiff, rtol=1e-14)  # 3 factors
