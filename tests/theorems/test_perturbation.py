"""Products of many matrices under small changes of each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.certificates import Verdict
from thalweg.theorems.residual_starts.perturbed_products import DisturbedChain, DisturbedProducts


def random_chain(seed, depth, size, spread, share, adverse):
    """Matrices near the identity, changed by a share of what is allowed; perhaps all downwards."""
    random = np.random.default_rng(seed)
    matrices = tuple(
        np.eye(size) + spread * random.standard_normal((size, size)) for _ in range(depth)
    )
    still = DisturbedChain(matrices, tuple(np.zeros((size, size)) for _ in matrices))
    allowed = share * still.smallest**2 / (4 * still.largest**2)
    if adverse:
        changes = tuple(-allowed * np.eye(size) for _ in matrices)
    else:
        drawn = [random.standard_normal((size, size)) for _ in matrices]
        changes = tuple(allowed * each / np.linalg.norm(each, 2) for each in drawn)
    return DisturbedChain(matrices, changes)


@pytest.mark.statement("marion2024:lem9", "holds")
@given(
    seed=st.integers(0, 2**31 - 1),
    depth=st.sampled_from([1, 2, 7, 20]),
    size=st.sampled_from([1, 4]),
    spread=st.floats(0, 0.2),
    share=st.floats(0, 0.999),
    adverse=st.booleans(),
)
def test_products_stay_well_conditioned(seed, depth, size, spread, share, adverse):
    chain = random_chain(seed, depth, size, spread, share, adverse)
    certificate = DisturbedProducts().check(chain)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert len(certificate.conclusions) == (3 if depth > 1 else 2)


@pytest.mark.statement("marion2024:lem9", "tight")
@pytest.mark.parametrize("sign", [1, -1])
def test_changes_of_the_identity_use_a_part_of_what_is_allowed(sign):
    """M = m = 1: the product of 1 +- 1 / (4 L) is near e^{1/4} of 2, or e^{-1/4} above 1/2."""
    depth, size = 200, 2
    eye = tuple(np.eye(size) for _ in range(depth))
    chain = DisturbedChain(eye, tuple(sign * 0.25 * matrix for matrix in eye))
    certificate = DisturbedProducts().check(chain)
    assert certificate.verdict is Verdict.UNDECIDED  # at the very end of the assumption
    upper, lower, _ = DisturbedProducts().conclusions(chain)
    claim = upper if sign > 0 else lower
    # (1 +- 1 / (4 L))^L is e^{+-1/4} but for 1 / (32 L).
    np.testing.assert_allclose(claim.looseness, 2 * np.exp(-0.25), rtol=2 / (32 * depth))


@pytest.mark.statement("marion2024:lem9", "tight")
def test_products_in_between_attain_their_bound():
    """A factor of 1/2 and then one of 6: from the lowest partial product to the highest."""
    matrices = (0.5 * np.eye(2), 6 * np.eye(2))
    chain = DisturbedChain(matrices, tuple(np.zeros((2, 2)) for _ in matrices))
    certificate = DisturbedProducts().check(chain)
    assert certificate.verdict is Verdict.CONFIRMED
    assert (chain.smallest, chain.largest) == (0.5, 3.0)
    assert certificate.conclusions[2].looseness == 1


@pytest.mark.statement("marion2024:lem9", "fails")
def test_larger_changes_may_take_away_the_smallest_singular_value():
    eye = tuple(np.eye(2) for _ in range(3))
    chain = DisturbedChain(eye, tuple(-3.0 * matrix for matrix in eye))
    certificate = DisturbedProducts().check(chain)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(certificate.first_failure.margin, 0.25 - 3, rtol=1e-14)
    assert DisturbedProducts().conclusions(chain)[1].fails  # the product is zero


@pytest.mark.statement("marion2024:lem9", "fails")
def test_products_must_be_square_and_invertible():
    wide = DisturbedChain((np.ones((2, 3)),), (np.zeros((2, 3)),))
    assert DisturbedProducts().check(wide).verdict is Verdict.NOT_APPLICABLE
    singular = DisturbedChain((np.ones((2, 2)),), (np.zeros((2, 2)),))
    certificate = DisturbedProducts().check(singular)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "rounding <= m"
