"""Flows from near zero: the bounds along them, and the chains that they keep balanced."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
import thalweg as tw
from thalweg.certificates import Case, Verdict
from thalweg.network import Dense, SharedNetwork, Tied
from thalweg.theorems.landscape.along_flows import (
    BalancedChain,
    ChainOfMatrices,
    FlowCurvature,
    FlowRegionCurvature,
)
from thalweg.theorems.landscape.smallest_eigenvalue import LinearCurvature

# Flows are costly.
few = settings(max_examples=max(4, settings.default.max_examples // 3))

RANDOM = np.random.default_rng(0)
PROBLEM = tw.Regression(RANDOM.standard_normal((9, 3)), 3 * RANDOM.standard_normal((9, 2)))
# Samples of one sign each, with targets of that sign: then positive weights only grow on the way
# there, and no pre-activation changes its sign, where a flow may slide along a kink at great cost.
SIGNS = np.array([1.0, -1.0] * 4)[:, None]
ONE_SIGN = tw.Regression(
    SIGNS * RANDOM.uniform(0.2, 1, (8, 3)), SIGNS * RANDOM.uniform(3, 4, (8, 2))
)
POINTS = 12
LINEAR = tw.LinearNetwork([3, 3, 3, 2])
LEAKY = tw.HomogeneousNetwork([3, 3, 3, 2], (1.0, 0.3))
SHARED = SharedNetwork([Tied([[0, 1, -1], [-1, 0, 1]]), Dense(2, 3), Dense(3, 2)], (1.0, 0.3))


def start(network, seed, radius):
    """Gaussian weights of this norm in all."""
    weights = strategies.gaussians(network.shapes, 1.0, np.random.default_rng(seed))
    size = np.sqrt(sum(float(np.sum(np.square(array))) for array in weights))
    return tuple(radius / size * array for array in weights)


def flowing(network, weights, time, problem=PROBLEM):
    """A flow at always as many times, because every other number would compile anew."""
    objective, times = tw.Objective(network, problem), np.linspace(0, time, POINTS)
    flow = tw.flow(
        objective, weights, times=times, rtol=1e-5, atol=1e-8, solver=tw.solvers.Explicit()
    )
    return Case(objective, weights, flow=flow)


@pytest.mark.statement("elkabetz2021:prop8", "holds")
@given(seed=st.integers(0, 2**31 - 1), radius=st.floats(1e-3, 1 / 6), time=st.floats(0.1, 20.0))
def test_the_bound_holds_on_flows_of_linear_networks(seed, radius, time):
    certificate = FlowCurvature().check(flowing(LINEAR, start(LINEAR, seed, 0.999 * radius), time))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert len(certificate.conclusions) == 2  # at the start, and then


@pytest.mark.statement("elkabetz2021:prop8", "tight")
def test_the_bound_along_a_whole_flow_is_a_few_times_too_low():
    """As was seen elsewhere for a network alike: eigenvalue -1.4, this bound -7.1."""
    case = flowing(LINEAR, start(LINEAR, 3, 0.05), 40.0)
    certificate = FlowCurvature().check(case)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    claim = certificate.conclusions[1]
    assert claim.lesser.size == POINTS
    lowest = np.min(claim.greater)
    assert lowest < -0.5  # on the way from the saddle it does curve down
    np.testing.assert_allclose(certificate.answers[0].value, np.min(claim.lesser), rtol=1e-14)
    assert 5 < np.min(claim.lesser) / lowest < 15
    assert LinearCurvature().check(case).verdict is Verdict.CONFIRMED


@pytest.mark.statement("elkabetz2021:prop8", "tight")
def test_with_two_small_scalars_the_bound_is_twice_the_eigenvalue():
    """With two layers it is twice that at a point (lem. 7), which small scalars attain."""
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1]), tw.TargetMatrix([1.0]))
    case = Case(objective, (jnp.full((1, 1), 1e-4),) * 2)
    certificate = FlowCurvature().check(case)
    at_point = LinearCurvature().check(case).answers[1].value
    np.testing.assert_allclose(certificate.answers[0].value, 2 * at_point, rtol=1e-14)
    claim = certificate.conclusions[0]
    # The loss's own curvature is of the size of the squared weights.
    np.testing.assert_allclose(claim.lesser, 2 * claim.greater, rtol=1e-7)


@pytest.mark.statement("elkabetz2021:prop8", "tight")
@pytest.mark.parametrize("w", [0.09, 1e-3])
def test_the_bound_of_three_equal_scalars_by_hand(w):
    """-2 |G| (w + (12 eps)^{1/3}) with eps^2 = 3 w^2: loose by 1 + (12 sqrt(3))^{1/3} w^{-2/3}."""
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1, 1]), tw.TargetMatrix([1.0]))
    claim = FlowCurvature().check(Case(objective, (jnp.full((1, 1), w),) * 3)).conclusions[0]
    expected = -2 * (1 - w**3) * (w + (12 * np.sqrt(3) * w) ** (1 / 3))
    np.testing.assert_allclose(claim.lesser, expected, rtol=1e-13)  # ten operations
    np.testing.assert_allclose(claim.greater, -2 * (1 - w**3) * w + 3 * w**4, rtol=1e-12)


@pytest.mark.statement("elkabetz2021:prop8", "fails")
def test_the_bound_needs_a_start_near_zero_and_no_decay():
    far = FlowCurvature().check(Case(tw.Objective(LINEAR, PROBLEM), start(LINEAR, 0, 0.2)))
    assert far.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(far.first_failure.margin, 1 / 6 - 0.2, rtol=1e-12)
    decayed = tw.Objective(LINEAR, PROBLEM, weight_decay=0.1)
    certificate = FlowCurvature().check(Case(decayed, start(LINEAR, 0, 0.1)))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(certificate.first_failure.margin, -0.1, rtol=1e-12)
    other = FlowCurvature().check(Case(tw.Objective(LEAKY, PROBLEM), start(LEAKY, 0, 0.1)))
    assert other.verdict is Verdict.NOT_APPLICABLE


def test_a_flow_of_unknown_error_is_not_called_confirmed():
    case = flowing(LINEAR, start(LINEAR, 0, 0.1), 1.0)
    unknown = eqx.tree_at(lambda flow: flow.error, case.flow, np.full(POINTS, np.nan))
    certificate = FlowCurvature().check(replace(case, flow=unknown))
    assert certificate.verdict is Verdict.UNDECIDED


@pytest.mark.statement("elkabetz2021:prop12", "holds")
@pytest.mark.statement("elkabetz2021:prop24", "holds")
@pytest.mark.parametrize("network", [LEAKY, SHARED], ids=["full matrices", "shared"])
@few
@given(seed=st.integers(0, 2**31 - 1), radius=st.floats(0.05, 0.7), time=st.floats(0.1, 0.6))
def test_the_bound_holds_on_flows_of_two_slopes(network, seed, radius, time):
    weights = tuple(abs(array) for array in start(network, seed, radius))
    certificate = FlowRegionCurvature().check(flowing(network, weights, time, ONE_SIGN))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert len(certificate.conclusions) == 2
    # Seen elsewhere after a whole flow: 12 times too low for full matrices, 50 for a convolution.
    claim = certificate.conclusions[1]
    assert claim.lesser.size == POINTS
    assert np.all(claim.lesser < 1.5 * claim.greater)


@pytest.mark.statement("elkabetz2021:prop12", "tight")
@pytest.mark.statement("elkabetz2021:prop24", "tight")
@pytest.mark.parametrize(
    "network",
    [
        tw.HomogeneousNetwork([1, 1, 1], (0.7, 0.2)),
        SharedNetwork([Dense(1, 1), Dense(1, 1)], (0.7, 0.2)),
    ],
    ids=["full matrices", "shared"],
)
def test_two_small_scalars_attain_the_bound(network):
    """H is minus 0.7 times the exchange of both weights, but for terms of their size squared."""
    objective = tw.Objective(network, tw.Regression([[1.0]], [1.0]))
    case = Case(objective, (jnp.full((1, 1), 1e-4),) * 2)
    claim = FlowRegionCurvature().check(case).conclusions[0]
    np.testing.assert_allclose(claim.lesser, -0.7, rtol=1e-7)
    np.testing.assert_allclose(claim.greater, claim.lesser, rtol=1e-7)


@pytest.mark.statement("elkabetz2021:prop12", "fails")
@pytest.mark.statement("elkabetz2021:prop24", "fails")
@pytest.mark.parametrize("network", [LEAKY, SHARED], ids=["full matrices", "shared"])
def test_the_bound_of_two_slopes_needs_a_conserved_balance(network):
    weights = start(network, 0, 0.1)
    decayed = Case(tw.Objective(network, PROBLEM, weight_decay=0.2), weights)
    certificate = FlowRegionCurvature().check(decayed)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(certificate.first_failure.margin, -0.2, rtol=1e-12)
    linear = Case(tw.Objective(LINEAR, PROBLEM), start(LINEAR, 0, 0.1))
    assert FlowRegionCurvature().check(linear).verdict is Verdict.NOT_APPLICABLE


# --- chains --------------------------------------------------------------------------------------


def nearly_balanced(seed, depth, width, size, gap):
    """Rotated copies of one spectrum, disturbed until an imbalance is about the gap."""
    random = np.random.default_rng(seed)
    turns = [np.linalg.qr(random.standard_normal((width, width)))[0] for _ in range(depth + 1)]
    values = np.sort(random.uniform(0, 1, width))
    chain = [size * turns[j + 1] @ np.diag(values) @ turns[j].T for j in range(depth)]
    noise = [random.standard_normal((width, width)) for _ in range(depth)]
    scale = gap / (8 * max(size, 0.1) * width)
    return tuple(a + scale * e / np.linalg.norm(e, 2) for a, e in zip(chain, noise, strict=True))


@pytest.mark.statement("elkabetz2021:lem33", "holds")
@given(
    seed=st.integers(0, 2**31 - 1),
    depth=st.integers(1, 5),
    width=st.sampled_from([1, 3]),
    size=st.floats(1e-2, 1e3),
    gap=st.floats(0.0, 1.0),
)
def test_no_matrix_of_a_nearly_balanced_chain_is_large(seed, depth, width, size, gap):
    chain = ChainOfMatrices(nearly_balanced(seed, depth, width, size, gap / (2 * depth)))
    certificate = BalancedChain().check(chain)
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("elkabetz2021:lem33", "tight")
def test_balanced_chains_attain_the_bound():
    """Equal diagonal matrices: no imbalance, and the product's norm is the power of theirs."""
    certificate = BalancedChain().check(ChainOfMatrices((np.diag([2.0, 1.0]),) * 4))
    assert certificate.verdict is Verdict.CONFIRMED
    np.testing.assert_allclose(certificate.conclusions[0].looseness, 1.0, rtol=1e-15)


@pytest.mark.statement("elkabetz2021:lem33", "fails")
def test_of_an_unbalanced_chain_the_bound_says_nothing():
    """(2, 1/2) has an imbalance of 15/4, and a bound of 1 + 4 sqrt(15/4) 2^4 on 2^2."""
    chain = ChainOfMatrices((np.array([[2.0]]), np.array([[0.5]])))
    certificate = BalancedChain().check(chain)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(certificate.first_failure.margin, 1 / 4 - 3.75, rtol=1e-15)
    expected = (1 + 4 * np.sqrt(3.75) * 16) / 4
    np.testing.assert_allclose(
        BalancedChain().conclusions(chain)[0].looseness, expected, rtol=1e-13
    )
