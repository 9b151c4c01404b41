"""The joint probability of balance and margin, which arora2019 leaves open."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from thalweg._checks import InputError
from thalweg.theorems.probability.joint import (
    joint_probability,
    joint_proportion,
    scalar_chain_limit,
    scaling_exponent,
)

SCALES = np.geomspace(0.1, 3, 26)


@pytest.mark.statement("arora2019:open-joint", "value")
@pytest.mark.parametrize(
    ("widths", "scale", "strictness"),
    [
        ((1, 1, 1), 0.88, 1.0),
        ((5, 1, 1), 0.39, 1.0),
        ((2, 2, 1), 0.51, 1.0),
        ((1, 2, 1), 0.5, 2.0),
        ((1, 1, 1, 1), 1.0, 1.5),
        ((2, 2, 2, 1), 0.59, 0.5),
    ],
    ids=str,
)
def test_the_estimate_agrees_with_whole_networks(widths, scale, strictness):
    """Both are intervals of confidence 0.999; they must have a point in common."""
    found = joint_probability(widths, scale, strictness, samples=100_000, seed=1)
    low, high = (float(end[0, 0]) for end in found.interval)
    plain = joint_proportion(widths, scale, strictness, samples=200_000, seed=2)
    assert plain.successes > 50
    assert low <= plain.interval[1]
    assert plain.interval[0] <= high
    assert high - low < 0.35 * found.estimate[0, 0]  # or the comparison would say little


@pytest.mark.statement("arora2019:open-joint", "value")
@pytest.mark.parametrize(
    ("widths", "once", "sixteen", "scale"),
    [
        ((1, 1, 1), 0.0555, 3.6e-3, 0.88),
        ((5, 1, 1), 3.9e-3, 2.4e-4, 0.39),
        ((20, 1, 1), 5.5e-6, 3.4e-7, 0.15),
        ((2, 2, 1), 5.1e-3, 7.0e-6, 0.51),
        ((3, 2, 1), 1.25e-3, 4.7e-7, 0.45),
        ((1, 1, 1, 1), 8.5e-3, 3.6e-5, 1.0),
        ((5, 1, 1, 1), 1.2e-4, 4.3e-7, 0.59),
    ],
    ids=str,
)
def test_the_best_scale_and_its_probability(widths, once, sixteen, scale):
    """Oracle: 10^7 to 4 10^7 samples of whole networks, printed to two digits.

    The largest of 26 estimates is biased upwards by up to an error or two.
    """
    found = joint_probability(widths, SCALES, [1.0, 16.0], samples=100_000, seed=1)
    best, where = found.best
    errors = found.error[np.arange(2), np.argmax(found.estimate, axis=1)]
    assert np.all(np.abs(best - [once, sixteen]) <= 4 * errors + 0.03 * best)
    assert where[0] == pytest.approx(scale, rel=0.2)  # the grid's ratio is 1.15


@pytest.mark.statement("arora2019:open-joint", "value")
def test_theorem_1_covers_a_gaussian_start_of_scalar_layers_once_in_36000():
    """Oracles: the exact limit, 2.818e-5 over 2048, and 2.75e-5 +- 6e-7 by whole networks."""
    found = joint_probability((1, 1, 1), 0.834228, 256 * 2**3, samples=400_000, seed=3)
    expected = scalar_chain_limit(2, 0.834228) / 2048
    assert expected == pytest.approx(2.818e-5, rel=2e-4)
    assert found.estimate[0, 0] == pytest.approx(expected, abs=4 * found.error[0, 0])
    assert found.error[0, 0] < 0.01 * expected


@pytest.mark.statement("arora2019:open-joint", "value")
def test_the_limit_for_two_scalar_layers():
    """Oracle: the two integrals over u = w^2, and their maximum to seven digits."""

    def by_squares(s):
        near = quad(lambda u: u * np.exp(-u / s**2), 0, 1)[0]
        far = quad(lambda u: (2 - u) ** 2 / u * np.exp(-u / s**2), 1, 2)[0]
        return (near + far) / (2 * np.pi * s**2)

    for scale in (0.3, 0.834228, 2.0):
        assert scalar_chain_limit(2, scale) == pytest.approx(by_squares(scale), rel=1e-10)
    best = minimize_scalar(
        lambda s: -scalar_chain_limit(2, float(s)), bounds=(0.3, 2), method="bounded"
    )
    assert -best.fun == pytest.approx(0.05771193, abs=5e-9)
    assert best.x == pytest.approx(0.834228, abs=1e-5)  # flat: the square root of the tolerance


@pytest.mark.statement("arora2019:open-joint", "value")
def test_the_limit_for_three_scalar_layers():
    found = joint_probability((1, 1, 1, 1), 0.943, 40.0, samples=1_000_000, seed=4)
    # of the order 1 / K away from the limit, beside the noise
    slack = 4 * found.error[0, 0] * 40**2 + 0.1 * 0.00946
    assert found.estimate[0, 0] * 40**2 == pytest.approx(scalar_chain_limit(3, 0.943), abs=slack)
    assert scalar_chain_limit(3, 0.943) == pytest.approx(0.00946, rel=1e-3)


@pytest.mark.statement("arora2019:open-joint", "value")
@pytest.mark.parametrize(
    ("widths", "low", "high", "slope"),
    [
        ((1, 1, 1), 64.0, 4096.0, 1.0),
        ((5, 1, 1), 64.0, 4096.0, 1.0),
        ((1, 1, 1, 1), 4.0, 64.0, 2.0),
        ((2, 2, 1), 4.0, 32.0, 2.5),
        ((3, 2, 1), 2.0, 16.0, 3.0),
    ],
    ids=str,
)
def test_the_probability_falls_with_the_strictness_like_a_power(widths, low, high, slope):
    """Measured exponents are within a tenth of the counted ones, where K is not yet large."""
    assert scaling_exponent(widths) == slope
    scale = {1: 0.88, 5: 0.39, 2: 0.51, 3: 0.42}[widths[0]]
    found = joint_probability(widths, scale, [low, high], samples=300_000, seed=6)
    assert np.all(found.hits > 100)
    measured = -np.diff(np.log(found.estimate[:, 0]))[0] / np.log(high / low)
    assert measured == pytest.approx(slope, rel=0.1)


@pytest.mark.statement("arora2019:open-joint", "value")
def test_small_and_large_starts_are_both_unlikely():
    """For small s the probability of the scalar chain falls like s^(2 (N - 1)) = s^2."""
    found = joint_probability((1, 1, 1), [0.01, 0.02, 0.88, 3.0], 16.0, samples=50_000, seed=7)
    tiny, small, best, large = found.estimate[0]
    assert small / tiny == pytest.approx(4, rel=0.2)
    assert small < best / 10
    assert large < best / 3


def test_a_start_that_no_sample_makes_likely_has_no_hits():
    """At s = 1e-12 imbalances of the order of s^2 would have to be below s^4."""
    found = joint_probability((1, 1, 1), [1e-12, 0.88], 16.0, samples=1000, seed=7)
    assert (found.hits[0, 0], found.estimate[0, 0], found.error[0, 0]) == (0, 0.0, 0.0)
    assert 0 < found.hits[0, 1] <= 1000


def test_more_samples_of_one_seed_are_reproducible_and_chunked():
    once = joint_probability((2, 2, 1), 0.5, 1.0, samples=60_000, seed=8)
    again = joint_probability((2, 2, 1), 0.5, 1.0, samples=60_000, seed=8)
    assert once.estimate == again.estimate
    other = joint_probability((2, 2, 1), 0.5, 1.0, samples=60_000, seed=9)
    assert once.estimate != other.estimate


@pytest.mark.parametrize("widths", [(3, 2), (3, 1), (2, 2, 2)], ids=str)
def test_the_direction_can_be_integrated_for_one_output_of_two_layers_only(widths):
    with pytest.raises(InputError, match="at least two layers with one output"):
        joint_probability(widths, 0.5, 1.0, samples=10, seed=0)


def test_exponents_that_are_not_known_are_not_invented():
    assert scaling_exponent((5, 5, 1)) == 13
    with pytest.raises(InputError, match="measure it"):
        scaling_exponent((2, 2, 2, 1))
