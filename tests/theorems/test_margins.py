"""arora2019: which starts have a deficiency margin."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from thalweg.certificates import Verdict
from thalweg.theorems.convergence.linear_rate import Guarantee
from thalweg.theorems.convergence.margins import IdentityStart, SmallStart, Start

TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])


@pytest.mark.statement("arora2019:cor-residual", "holds")
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.floats(0.0, 0.49))
def test_identity_starts_have_a_margin(seed, size, rho):
    change = np.random.default_rng(seed).standard_normal((size, size))
    target = np.eye(size) + rho * change / np.linalg.norm(change)
    certificate = IdentityStart().check(Start(np.eye(size), target))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:cor-residual", "tight")
@pytest.mark.parametrize(
    ("rho", "count"), [(0.1, 3.9e5), (0.25, 1.9e6), (0.4, 5.7e7), (0.49, 4.9e11), (0.499, 4.8e15)]
)
def test_the_worst_target_for_an_identity_start(rho, count):
    """Phi = I - rho e_1 e_1^T, and T / log of two layers of width two, to two digits."""
    target = np.diag([1 - rho, 1.0])
    (claim,) = IdentityStart().check(Start(np.eye(2), target)).conclusions
    np.testing.assert_allclose(claim.margin, 0, atol=1e-15)
    found = Guarantee(2, np.linalg.norm(target), 1 - 2 * rho)
    np.testing.assert_allclose(float(found.iterations(np.e)), count, rtol=0.02)


@pytest.mark.statement("arora2019:cor-residual", "tight")
def test_rotations_of_the_identity_keep_a_large_margin():
    """I + rho R with rho = .499 stays at T / log = 2.5e6."""
    target = np.eye(2) + 0.499 * TURN / 2**0.5
    point = Start(np.eye(2), target).point
    found = Guarantee(2, point.norm, point.margin)
    np.testing.assert_allclose(float(found.iterations(np.e)), 2.5e6, rtol=0.02)


@pytest.mark.statement("arora2019:cor-residual", "tight")
def test_noise_on_identity_layers_breaks_the_balance_first():
    """W_j = I + s Z_j: theorem 1's conditions hold half of the time at s = 6.5e-5, rho = .1."""
    random = np.random.default_rng(1)
    target, held, margins, s = np.eye(2) + 0.1 * TURN / 2**0.5, [], [], 6.5e-5
    for _ in range(300):
        layers = [np.eye(2) + s * random.standard_normal((2, 2)) for _ in range(2)]
        gap = layers[1].T @ layers[1] - layers[0] @ layers[0].T
        distance = np.linalg.norm(layers[1] @ layers[0] - target)
        c = np.linalg.svd(target, compute_uv=False)[-1] - distance
        delta = float(Guarantee(2, np.linalg.norm(target), c).imbalance)
        held.append(np.linalg.norm(gap) <= delta)
        margins.append(c)
    assert 0.35 <= np.mean(held) <= 0.65  # five standard deviations of 300 trials
    assert min(margins) > 0.8


@pytest.mark.statement("arora2019:cor-residual", "fails")
def test_far_targets_have_no_promise():
    far = IdentityStart().check(Start(np.eye(2), np.diag([0.25, 1.0])))
    assert far.verdict is Verdict.NOT_APPLICABLE
    assert far.first_failure.margin == -0.25
    other = IdentityStart().check(Start(2 * np.eye(2), np.eye(2)))
    assert other.first_failure.statement == "the product is the identity"


@pytest.mark.statement("arora2019:cor-smallinit", "holds")
@given(st.integers(0, 2**32 - 1), st.sampled_from([(2, 2), (3, 2), (1, 4)]), st.floats(0.01, 0.99))
def test_starts_with_a_margin_are_not_small(seed, shape, away):
    random = np.random.default_rng(seed)
    target, change = random.standard_normal(shape), random.standard_normal(shape)
    least = np.linalg.svd(target, compute_uv=False)[-1]
    assume(least > 1e-3)
    start = Start(target + away * least * change / np.linalg.norm(change), target)
    certificate = SmallStart().check(start)
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:cor-smallinit", "tight")
@pytest.mark.parametrize("size", [1, 2, 4])
def test_multiples_of_the_identity_are_as_small_as_can_be(size):
    (claim,) = SmallStart().check(Start(0.8 * np.eye(size), np.eye(size))).conclusions
    np.testing.assert_allclose(claim.margin, 0, atol=1e-14)


@pytest.mark.statement("arora2019:cor-smallinit", "fails")
def test_small_starts_have_no_margin_with_two_outputs():
    certificate = SmallStart().check(Start(0.1 * np.eye(2), np.eye(2)))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(certificate.first_failure.margin, 1 - 0.9 * 2**0.5, rtol=1e-12)
    assert SmallStart().check(Start([[1e-9, 0]], [[1.0, 0]])).verdict is Verdict.CONFIRMED


@pytest.mark.statement("arora2019:cor-smallinit", "tight")
@pytest.mark.parametrize(("depth", "most"), [(1, 0.070), (2, 0.034)])
def test_how_often_gaussian_starts_have_a_margin(depth, most):
    """Phi = I / sqrt(2), all widths two: the largest probability over the scale, as published."""
    random = np.random.default_rng(4)
    products = random.standard_normal((40000, 2, 2))
    for _ in range(depth - 1):
        products = random.standard_normal((40000, 2, 2)) @ products
    target = np.eye(2) / 2**0.5
    shares = [
        np.mean(np.linalg.norm(s * products - target, axis=(1, 2)) < 1 / 2**0.5)
        for s in np.linspace(0.2, 1.0, 33)
    ]
    # 40000 samples have a standard deviation of .0013; the largest of 33 is a little above.
    np.testing.assert_allclose(max(shares), most, atol=0.005)
