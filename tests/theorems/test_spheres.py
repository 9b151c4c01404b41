"""Caps, and the margin of vectors that point anywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln
from scipy.stats import chi, uniform

from thalweg.certificates import Verdict
from thalweg.theorems.probability.sampling import Proportion
from thalweg.theorems.probability.spheres import (
    Cap,
    CapArea,
    GaussianNorm,
    GaussianNormTails,
    MarginOnSphere,
    RadialLaw,
    RadialMargin,
    Shell,
    cap_bound,
    cap_share,
    margin_probability,
    margin_share,
)

HEIGHTS = np.linspace(0, 1, 401)


def directions(dimension, samples, seed):
    vectors = np.random.default_rng(seed).standard_normal((samples, dimension))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_caps_of_the_line_the_circle_and_the_sphere():
    """Oracle: two points, arcs, and Archimedes' zones."""
    cosines = np.array([-1.0, -0.6, 0.0, 0.3, 1.0])
    np.testing.assert_allclose(cap_share(1, cosines), [1, 0.5, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(cap_share(2, cosines), np.arccos(cosines) / np.pi, atol=1e-15)
    np.testing.assert_allclose(cap_share(3, cosines), (1 - cosines) / 2, atol=1e-15)
    np.testing.assert_array_equal(cap_share(7, [-1.5, 1.5]), [1, 0])


def test_caps_keep_their_digits_at_the_equator_and_at_the_pole():
    """Oracle: the density at 0, and Archimedes; 1 - t^2 alone would be wrong by 2e-8."""
    tiny = 1e-12
    density = np.exp(gammaln(10) - gammaln(9.5)) / np.sqrt(np.pi)
    assert 0.5 - cap_share(20, tiny) == pytest.approx(density * tiny, rel=1e-3)  # eps / 1e-12
    assert cap_share(3, 1 - 2.0**-50) == pytest.approx(2.0**-51, rel=1e-12)


@pytest.mark.parametrize("norm", [0.3, 1.6])
def test_the_share_with_a_margin_is_how_often_it_is_seen(norm):
    vectors = norm * directions(4, 50_000, seed=1)
    margins = 1 - np.linalg.norm(vectors - np.eye(4)[0], axis=1)
    low, high = Proportion.of(margins >= 0.15).interval
    assert low <= margin_share(4, 0.15, norm) <= high


def test_no_vector_has_a_margin_above_the_norm_of_the_target():
    assert margin_share(3, 1.01, 1.0) == 0
    assert margin_share(3, 0.5, 1.6) == 0  # too long for it in any direction


@pytest.mark.statement("arora2019:lemma14", "holds")
@given(st.integers(20, 2000), st.floats(0, 1))
def test_the_area_of_a_cap_is_at_least_the_bound(dimension, height):
    certificate = CapArea().check(Cap(dimension, height))
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("arora2019:lemma14", "tight")
@pytest.mark.parametrize(
    ("height", "share", "bound"),
    [
        (0.9, 0.333132068849329, 0.162916617516107),
        (0.95, 0.414793002998106, 0.327472006019104),
    ],
)
def test_caps_in_twenty_dimensions(height, share, bound):
    """The numbers of an independent computation, to their last digits."""
    stated = CapArea().check(Cap(20, height)).conclusions[0]
    assert stated.greater == pytest.approx(share, rel=1e-13)
    assert stated.lesser == pytest.approx(bound, rel=1e-12)


@pytest.mark.statement("arora2019:lemma14", "tight")
def test_the_bound_meets_the_half_sphere_with_twice_the_slope():
    half = CapArea().check(Cap(1000, 1.0)).conclusions[0]
    assert half.lesser == half.greater == 0.5
    near = CapArea().check(Cap(1000, 1 - 1e-6)).conclusions[0]
    # density of a cosine at 0 is sqrt(d / 2 pi) (1 - O(1/d)): 2 to 0.2 % at d = 1000
    assert (0.5 - near.lesser) / (0.5 - near.greater) == pytest.approx(2, rel=2e-3)


@pytest.mark.statement("arora2019:lemma14", "fails")
def test_the_area_of_caps_is_stated_from_twenty_dimensions_on():
    certificate = CapArea().check(Cap(19, 0.9))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == -1
    assert CapArea().check(Cap(20, 1.25)).first_failure.margin == -0.25


@pytest.mark.statement("arora2019:lemma14", "holds")
@pytest.mark.parametrize("dimension", [2, 3, 5, 10, 19])
def test_the_bound_on_caps_holds_in_few_dimensions_too(dimension):
    level = 1 - HEIGHTS
    exact = cap_share(dimension, level)
    assert np.all(cap_bound(level * np.sqrt(dimension - 1)) <= exact + 1e-15)
    if dimension > 3:  # what is proven for 20 has no meaning below 3, and needs 4
        assert np.all(cap_bound(level * np.sqrt(dimension - 3)) <= exact + 1e-15)
    else:
        assert not np.all(cap_bound(level * np.sqrt(max(dimension - 3, 0))) <= exact + 1e-15)


@pytest.mark.statement("arora2019:lemma15", "holds")
@given(st.integers(20, 2000), st.floats(1, 1e6))
def test_margins_on_a_small_sphere_are_as_likely_as_stated(dimension, ratio):
    certificate = MarginOnSphere().check(Shell(dimension, ratio))
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("arora2019:lemma15", "tight")
@pytest.mark.parametrize(
    ("ratio", "share", "bound"),
    [
        (10.0, 0.323900, 0.027089),
        (20.0, 0.373411, 0.154721),
        (100.0, 0.442628, 0.341481),
        (1e4, 0.494244, 0.484043),
    ],
)
def test_how_loose_the_margin_on_a_sphere_is(ratio, share, bound):
    """From twelve times too small at a = 10 to 2 % at a = 10^4."""
    (claim,) = MarginOnSphere().check(Shell(20, ratio)).conclusions
    assert claim.greater == pytest.approx(share, abs=5e-7)
    assert claim.lesser == pytest.approx(bound, abs=5e-7)


@pytest.mark.statement("arora2019:lemma15", "fails")
def test_a_sphere_that_is_too_large_is_not_spoken_of():
    certificate = MarginOnSphere().check(Shell(20, 0.5))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == -0.5


@pytest.mark.statement("arora2019:lemma8", "holds")
@pytest.mark.statement("arora2019:lemma16", "holds")
@given(
    st.sampled_from([20, 35, 100, 400]),
    st.sampled_from(["gaussian", "uniform"]),
    st.floats(0.2, 3),
    st.floats(1, 300),
    st.floats(1.5, 100),
)
def test_margins_of_rotation_invariant_vectors_are_as_likely_as_stated(
    dimension, kind, spread, outer, factor
):
    """Norms around that of the outer radius, some of them beyond it."""
    size = spread / np.sqrt(outer * dimension)
    norm = (
        chi(dimension, scale=size / np.sqrt(dimension)) if kind == "gaussian" else uniform(0, size)
    )
    certificate = RadialMargin().check(RadialLaw(dimension, norm, outer, outer * factor))
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("arora2019:lemma8", "tight")
@pytest.mark.statement("arora2019:lemma16", "tight")
@pytest.mark.parametrize(
    ("ratio", "low", "high"), [(20.0, 15.1, 15.3), (100.0, 1.65, 1.67), (1e6, 1.0, 1.01)]
)
def test_how_loose_the_margin_of_a_gaussian_vector_is(ratio, low, high):
    """In 100 dimensions, with the shell of theorem 2: the bound becomes exact for small s."""
    norm = chi(100, scale=1 / (np.sqrt(ratio) * 100))
    (claim,) = RadialMargin().check(RadialLaw(100, norm, ratio / 2, 2 * ratio)).conclusions
    assert low < claim.looseness < high


@pytest.mark.statement("arora2019:lemma8", "fails")
@pytest.mark.statement("arora2019:lemma16", "fails")
def test_the_shell_of_a_radial_law_must_have_a_thickness():
    certificate = RadialMargin().check(RadialLaw(20, chi(20), 4.0, 3.0))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == pytest.approx(-1)
    assert RadialMargin().check(RadialLaw(20, chi(20), 4.0, 4.0)).verdict is Verdict.NOT_APPLICABLE
    near = RadialMargin().check(RadialLaw(20, chi(20), 0.75, 3.0)).first_failure
    assert (near.statement, near.margin) == ("1 <= b_1", -0.25)


def test_the_probability_of_a_margin_is_how_often_it_is_seen():
    vectors = 0.3 * np.random.default_rng(3).standard_normal((50_000, 5))
    margins = 1 - np.linalg.norm(vectors - np.eye(5)[0], axis=1)
    low, high = Proportion.of(margins >= 0.1).interval
    assert low <= margin_probability(5, 0.1, chi(5, scale=0.3)) <= high


@pytest.mark.statement("arora2019:lemma9", "holds")
@given(st.integers(1, 5000), st.floats(1e-3, 300))
def test_the_tails_of_a_gaussian_norm_are_as_light_as_stated(dimension, exponent):
    certificate = GaussianNormTails().check(GaussianNorm(dimension, exponent))
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("arora2019:lemma9", "tight")
@pytest.mark.parametrize(
    ("dimension", "above", "below", "limit"),
    [(20, 0.03825, 0.03183, 0.2865), (100, 7.8e-5, 7.0e-6, 1.9e-3)],
)
def test_how_loose_the_tails_are_where_theorem_2_uses_them(dimension, above, below, limit):
    """7 and 9 times in 20 dimensions, 25 and 280 times in 100; the digits are those printed."""
    claims = GaussianNormTails().check(GaussianNorm(dimension, dimension / 16)).conclusions
    assert claims[0].lesser == pytest.approx(above, rel=2e-2)
    assert claims[1].lesser == pytest.approx(below, rel=2e-2)
    assert float(claims[0].greater) == pytest.approx(limit, rel=2e-2)


@pytest.mark.statement("arora2019:lemma9", "fails")
def test_the_tails_need_a_positive_exponent():
    certificate = GaussianNormTails().check(GaussianNorm(20, -0.5))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == -0.5
