"""arora2019: claims 4 and 5 with lemmas 17 and 18, where theorem 1 does not apply and must not."""

from dataclasses import replace
from math import log

import equinox as eqx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thalweg as tw
from thalweg import adversarial
from thalweg.certificates import Case, Verdict
from thalweg.theorems.convergence.failure import (
    Divergence,
    DoublyExponentialGrowth,
    EqualLayers,
    Stalling,
    Unbalanced,
    equal_path,
    printed_factor,
    printed_growth_claims,
)
from thalweg.theorems.convergence.linear_rate import LinearRate

TARGET = np.diag([1.5, -0.5])


def trapped(trap, **known):
    widths = [len(trap.target)] * (len(trap.weights) + 1)
    objective = tw.Objective(tw.LinearNetwork(widths), tw.TargetMatrix(trap.target))
    return Case(objective, trap.weights, **known)


# --- claim 4 and lemma 17 ----------------------------------------------------------------------


@pytest.mark.statement("arora2019:claim4", "holds")
@pytest.mark.statement("arora2019:lemma17", "holds")
@given(st.sampled_from([2, 4, 6]), st.floats(-4, 2), st.floats(0.05, 0.999))
def test_the_corrected_factor_always_diverges(depth, exponent, margin):
    start = Unbalanced(depth, 10.0**exponent, margin)
    for theorem in (Divergence(), DoublyExponentialGrowth()):
        certificate = theorem.check(start)
        assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:claim4", "tight")
def test_losses_of_the_oracle():
    """N = 2, eta = 1, c = .75 with the printed A = 2000, and beyond floating point."""
    assert printed_factor(2, 1.0, 0.75) == 2000
    start = Unbalanced(2, 1.0, 0.75, factor=2000.0)
    expected = np.log([0.03125, 2.8124985e11, 8.89883e34, 2.81877e105])
    np.testing.assert_allclose(start.log_losses()[:4], expected, atol=5e-6)
    assert start.log_losses()[4] > log(1e308)
    first = [float(entry) for entry in start.entries()[1]]
    np.testing.assert_allclose(first, [1732.0509, 433.01313], rtol=5e-8)
    # The floor over all steps is attained at the start; that for t >= 1 is far below the losses.
    whole, later = Divergence().check(start).conclusions
    np.testing.assert_allclose(whole.margin, 0, atol=1e-14)
    assert later.margin > log(1e10)


@pytest.mark.statement("arora2019:lemma17", "tight")
@pytest.mark.parametrize(("depth", "binding"), [(2, True), (4, True)])
def test_the_corrected_factor_is_the_least_for_its_proof(depth, binding):
    """At small eta the last condition, eta B^(2N-1) >= 20 C, decides A: an equality at t = 1."""
    claims = DoublyExponentialGrowth().check(Unbalanced(depth, 0.1, 0.9)).conclusions
    growth = claims[3]
    assert growth.statement == "log (20 C(t)) <= log (eta B(t)^(2N-1))"
    # A is enlarged by 1e-9, which its power 2N - 2 multiplies.
    assert (0 <= growth.margin <= 1e-8) is binding


@pytest.mark.statement("arora2019:lemma17", "fails")
@pytest.mark.parametrize("depth", [2, 4, 6])
@pytest.mark.parametrize("eta", [0.01, 1.0])
def test_the_printed_lemma_is_false_for_large_margins(depth, eta):
    """With the printed A and B(1) it breaks where (1 - c) c^((N-1)/N) drops below 1/10."""
    limit = {2: 0.89425, 4: 0.89095, 6: 0.88978}[depth]  # as published, to five digits
    for c, breaks in ((0.8, False), (limit - 1e-5, False), (limit + 1e-5, True), (0.95, True)):
        start = Unbalanced(depth, eta, c, factor=printed_factor(depth, eta, c))
        assert any(claim.fails for claim in printed_growth_claims(start)) is breaks


@pytest.mark.statement("arora2019:lemma17", "fails")
def test_signs_differ_with_the_printed_factor():
    """The published counterexample: A = 2000100 and w(2) = (1.92e6, -8.0e10)."""
    start = Unbalanced(2, 0.01, 0.9999, factor=printed_factor(2, 0.01, 0.9999))
    np.testing.assert_allclose(start.a, 2000100, rtol=1e-8)
    low, high = sorted(float(entry) for entry in start.entries()[2])
    np.testing.assert_allclose([low, high], [-8.0e10, 1.92e6], rtol=5e-3)  # three digits printed
    assert printed_growth_claims(start)[0].fails
    assert DoublyExponentialGrowth().check(start).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.statement("arora2019:claim4", "fails")
def test_the_conclusion_survives_with_the_printed_factor():
    """No counterexample to the claim itself on a grid; nor a proof."""
    for depth in (2, 4):
        for eta in np.logspace(-4, 2, 7):
            for c in (0.75, 0.9, 0.99, 0.9999):
                start = Unbalanced(depth, eta, c, factor=printed_factor(depth, eta, c))
                assert not any(claim.fails for claim in Divergence().conclusions(start))


@pytest.mark.statement("arora2019:claim4", "fails")
@pytest.mark.parametrize(
    ("start", "statement", "margin"),
    [
        (Unbalanced(3, 0.1, 0.9), "the depth is even", -1),
        (Unbalanced(2, 0.1, 1.5), "0 < c < 1", -1),
        (Unbalanced(2, 0.1, 0.9, factor=15304.0), "the proven A <= A", -0.992),
    ],
    ids=["odd", "margin", "factor"],
)
def test_the_construction_needs_its_assumptions(start, statement, margin):
    for theorem in (Divergence(), DoublyExponentialGrowth()):
        certificate = theorem.check(start)
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        assert certificate.first_failure.statement == statement
        # A of the oracle, 15304.992, to its eight digits.
        np.testing.assert_allclose(certificate.first_failure.margin, margin, atol=1e-3)


@pytest.mark.statement("arora2019:claim4", "holds")
@pytest.mark.statement("arora2019:thm1", "fails")
def test_theorem_one_refuses_the_diverging_start_for_its_imbalance():
    eta, c = 0.01, 0.9
    trap = adversarial.diverging(2, 2, eta, c)
    case = trapped(trap, learning_rate=eta)
    certificate = LinearRate().check(case)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement.startswith("imbalance <= c^2")
    a = float(adversarial.divergence_factor(2, eta, c))
    # c^(2/N) (A^2 - A^-2); the allowed delta is far below its rounding.
    np.testing.assert_allclose(certificate.first_failure.lesser, c * (a**2 - a**-2), rtol=1e-12)
    run = tw.descend(case.objective, trap.weights, learning_rate=eta, steps=10)
    assert run.diverged
    assert np.all(run.loss[1:3] >= (2**2 - 1) ** 2 / 2)


# --- claim 5 and lemma 18 ----------------------------------------------------------------------


@pytest.mark.statement("arora2019:claim5", "holds")
@pytest.mark.statement("arora2019:lemma18", "holds")
@given(
    seed=st.integers(0, 2**32 - 1),
    depth=st.sampled_from([2, 4]),
    lowest=st.floats(-1.0, -0.05),
    eta=st.floats(0.01, 0.3),
)
def test_identity_layers_stall(seed, depth, lowest, eta):
    """Targets in any basis; the run is short enough for rounding not to escape."""
    random = np.random.default_rng(seed)
    basis = np.linalg.qr(random.standard_normal((2, 2)))[0]
    target = basis * np.array([lowest, random.uniform(-0.5, 1.5)]) @ basis.T
    case = trapped(adversarial.stalling(depth, (target + target.T) / 2))
    run = tw.descend(case.objective, case.weights, learning_rate=eta, steps=50)
    for theorem in (Stalling(), EqualLayers()):
        certificate = theorem.check(Case.of(run))
        assert certificate.verdict is Verdict.CONFIRMED, str(certificate)
        assert np.max(certificate.conclusions[0].resolution) < 1e-6  # the check says something


@pytest.mark.statement("arora2019:claim5", "tight")
@pytest.mark.statement("arora2019:lemma18", "tight")
@pytest.mark.parametrize(
    ("depth", "expected"),
    [
        (2, {10: 0.207100, 100: 0.125005332}),
        (4, {10: 0.194592, 100: 0.128243, 1000: 0.12504736}),
    ],
)
def test_the_stall_of_the_oracle(depth, expected):
    """The loss tends to the floor .125, by descent and by the recursion, to six digits."""
    case = trapped(adversarial.stalling(depth, TARGET))
    run = tw.descend(case.objective, case.weights, learning_rate=0.1, steps=1000, record_every=10)
    path = equal_path(np.array([1.5, -0.5]), depth, 0.1, 1000)
    losses = np.sum((path.values**depth - [1.5, -0.5]) ** 2, axis=1) / 2
    for step, loss in expected.items():
        np.testing.assert_allclose([run.loss[step // 10], losses[step]], loss, rtol=5e-6)
    np.testing.assert_allclose(run.loss, losses[::10], rtol=1e-10)
    early = tw.descend(case.objective, case.weights, learning_rate=0.1, steps=200)
    certificate = Stalling().check(Case.of(early))
    assert certificate.verdict is Verdict.CONFIRMED
    assert certificate.conclusions[0].looseness < (1.0001 if depth == 2 else 1.02)
    if depth == 4:
        np.testing.assert_allclose(path.values[-1], [1.10668192, 0.0986494], rtol=5e-7)


@pytest.mark.statement("arora2019:claim5", "holds")
def test_rounding_escapes_where_the_resolution_says_so():
    """Two layers in a rotated basis leave after hundreds of steps: not a violation."""
    random = np.random.default_rng(0)
    basis = np.linalg.qr(random.standard_normal((5, 5)))[0]
    target = basis * np.array([-0.5, 1.0, 1.2, 0.8, 1.5]) @ basis.T
    assert 0 < np.linalg.norm(target - target.T) < 1e-15  # as rounding leaves it
    case = trapped(adversarial.Trap(target, (np.eye(5),) * 2))
    run = tw.descend(case.objective, case.weights, learning_rate=0.1, steps=2000, record_every=20)
    assert np.all(run.loss[:25] >= 0.125 * (1 - 1e-12))  # rounding of numbers of order one
    assert run.loss[-1] < 1e-12  # escaped
    certificate = Stalling().check(Case.of(run))
    assert certificate.verdict is Verdict.CONFIRMED


@pytest.mark.statement("arora2019:claim5", "holds")
@pytest.mark.statement("arora2019:lemma18", "holds")
def test_what_diverges_has_not_arrived():
    """At eta = 2 the entries explode; the loss is above its floor while it is a number."""
    case = trapped(adversarial.stalling(4, TARGET))
    run = tw.descend(case.objective, case.weights, learning_rate=2.0, steps=50)
    assert run.diverged
    for theorem in (Stalling(), EqualLayers()):
        certificate = theorem.check(Case.of(run))
        assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:claim5", "fails")
@pytest.mark.statement("arora2019:lemma18", "fails")
def test_other_starts_need_not_stall():
    good = trapped(adversarial.stalling(2, TARGET))
    assert Stalling().check(good).verdict is Verdict.CONFIRMED

    def towards(target):
        return replace(
            good, objective=tw.Objective(good.objective.network, tw.TargetMatrix(target))
        )

    positive, skewed = towards(TARGET @ TARGET), towards([[1.5, 0.1], [0.0, -0.5]])
    moved = replace(good, weights=(np.eye(2), np.diag([1.0, -1.0])))
    odd = Case(tw.Objective(tw.LinearNetwork([2] * 4), tw.TargetMatrix(TARGET)), (np.eye(2),) * 3)
    cases = {
        "lambda_min(Phi) < 0": (positive, -0.25),
        "|Phi - Phi^T|_F <= 1e-12 F": (skewed, -0.1 * 2**0.5),
        "all layers are the identity": (moved, -1),
        "the depth is even": (odd, -1),
    }
    for statement, (case, margin) in cases.items():
        for theorem in (Stalling(), EqualLayers()):
            certificate = theorem.check(case)
            assert certificate.verdict is Verdict.NOT_APPLICABLE
            assert certificate.first_failure.statement == statement
            np.testing.assert_allclose(certificate.first_failure.margin, margin, rtol=1e-9)
    # With another sign in one layer the same target is reached.
    run = tw.descend(moved.objective, moved.weights, learning_rate=0.1, steps=500, record_every=500)
    assert run.loss[-1] < 1e-10


@pytest.mark.statement("arora2019:claim5", "fails")
def test_odd_depths_may_jump_over_zero():
    """Evenness is needed: three layers at eta = .8 reach lambda = -.5, at eta = .1 they stall."""
    fast, slow = (equal_path(np.array([-0.5]), 3, eta, 2000).values[-1, 0] for eta in (0.8, 0.1))
    np.testing.assert_allclose(fast**3, -0.5, rtol=1e-12)
    assert 0 < slow < 0.02


@pytest.mark.statement("arora2019:thm1", "fails")
def test_theorem_one_refuses_the_stalling_start_for_its_margin():
    """c = sigma_min(Phi) - |I - Phi|_F = .5 - sqrt(.25 + 2.25)."""
    certificate = LinearRate().check(trapped(adversarial.stalling(2, TARGET), learning_rate=0.1))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement.startswith("0 < c")
    np.testing.assert_allclose(certificate.first_failure.margin, 0.5 - 2.5**0.5, rtol=1e-13)


@pytest.mark.parametrize("theorem", [Stalling(), EqualLayers()], ids=["claim 5", "lemma 18"])
def test_a_run_that_arrives_is_a_violation(theorem):
    """Planted: from step 100 on the weights are those of the target's square root."""
    case = trapped(adversarial.stalling(2, TARGET))
    run = tw.descend(case.objective, case.weights, learning_rate=0.1, steps=150)
    arrived = [np.array(array) for array in run.weights]
    arrived[0][100:], arrived[1][100:] = TARGET, np.eye(len(TARGET))
    planted = eqx.tree_at(lambda each: each.weights, run, tuple(arrived))
    assert theorem.check(Case.of(run)).verdict is Verdict.CONFIRMED
    assert theorem.check(Case.of(planted)).verdict is Verdict.VIOLATED
