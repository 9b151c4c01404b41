"""arora2019: lemma 7 with the steps of its proof, and the definitions that it uses."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from balanced_chains import balanced, imbalance, nearly_balanced
from hypothesis import assume, given
from hypothesis import strategies as st

import thalweg as tw
from thalweg.certificates import Verdict
from thalweg.theorems.convergence.linear_rate import Guarantee
from thalweg.theorems.convergence.single_step import SingleStep, Step
from thalweg.theorems.settings.matrix_approximation import Approximation, largest_imbalance

SAFE = 1 - 1e-9  # a learning rate at the bound itself is within rounding of it
STEPS = [(2, 2), (2, 3, 2), (3, 2, 1, 1), (2, 3, 2, 4), (1, 2, 2, 2, 3)]


@pytest.mark.statement("arora2019:lemma7", "holds")
@given(
    widths=st.sampled_from(STEPS),
    seed=st.integers(0, 2**32 - 1),
    size=st.floats(0.3, 3),
    away=st.floats(0.01, 0.4),
    shares=st.tuples(st.floats(0.3, 0.9), st.floats(0.1, 1.9), st.floats(0.01, 0.99)),
)
def test_single_steps_descend(widths, seed, size, away, shares):
    """A point near the target with its imbalance below 2 delta, and a margin below sigma_min."""
    random = np.random.default_rng(seed)
    product = size * random.standard_normal((widths[-1], widths[0]))
    change = random.standard_normal(product.shape)
    target = product + away * change / np.linalg.norm(change)
    depth, norm = len(widths) - 1, np.linalg.norm(target)
    c = shares[0] * min(np.linalg.svd(product, compute_uv=False)[-1], norm)
    assume(c > 1e-3)  # or delta is below what rounding leaves of the imbalance
    assume(np.linalg.norm(product - target) < 0.9 * norm)
    layers, guarantee = balanced(product, widths, random), Guarantee(depth, norm, c)
    directions = [random.standard_normal(layer.shape) for layer in layers]
    if depth > 1:
        layers = nearly_balanced(layers, directions, shares[1] * float(guarantee.imbalance))
    rate = shares[2] * float(guarantee.learning_rate)
    certificate = SingleStep().check(Step(tuple(layers), target, float(c), rate))
    assert certificate.verdict is Verdict.CONFIRMED, str(certificate)


@pytest.mark.statement("arora2019:lemma7", "tight")
@pytest.mark.parametrize(("depth", "ratio"), [(1, 2.0), (2, 4.0), (4, 8.0)])
def test_descent_is_loose_by_twice_the_depth_on_scalars(depth, ratio):
    """w^N with G small: l - l' = eta N w^(2N-2) G^2, against (eta / 2) w^p' G^2."""
    layers = (np.ones((1, 1)),) * depth
    guarantee = Guarantee(depth, 1.0 + 1e-6, 0.999)
    step = Step(layers, [[1.0 + 1e-6]], 0.999, SAFE * float(guarantee.learning_rate))
    descent, rate, balance, *pieces = SingleStep().check(step).conclusions
    # The bounds of the proof from N, F, |G| = 1e-6 and M = (4 F)^(1/N) alone.
    f, m, eta = 1 + 1e-6, (4 + 4e-6) ** (1 / depth), step.learning_rate
    closed = 2 * eta**2 * m ** (3 * depth - 4) * depth**2 * f * 1e-6
    allowed = 2 * float(guarantee.imbalance) * depth**3 * m ** (2 * (depth - 2)) * 1e-6
    np.testing.assert_allclose([each.greater for each in pieces[1:3]], [closed, allowed], rtol=1e-8)
    np.testing.assert_allclose(descent.looseness, ratio, rtol=1e-3)  # eta is up to 1.6e-4
    # Over all depths and margins the proof has 15 and 1.21 to spare. On scalars with c = F = s
    # (27) is 6144 N / 24 / 4^(4 - 4/N) and (28) the less of 16 / 4^(2 - 4/N) and
    # 256 N / 12 / 4^(2 - 2/N).
    bound = 256 * depth / 4 ** (4 - 4 / depth)
    np.testing.assert_allclose(rate.looseness, bound, rtol=0.01)
    bound = min(16 / 4 ** (2 - 4 / depth), 64 / 3 * depth / 4 ** (2 - 2 / depth))
    np.testing.assert_allclose(balance.looseness, bound, rtol=0.01)


@pytest.mark.statement("arora2019:lemma7", "fails")
def test_a_single_step_needs_its_assumptions():
    layers, target = (np.eye(2),) * 2, 1.05 * np.eye(2)
    eta = SAFE * float(Guarantee(2, np.linalg.norm(target), 0.9).learning_rate)
    good = Step(layers, target, 0.9, eta)
    assert SingleStep().check(good).verdict is Verdict.CONFIRMED
    broken = {
        "eta <= c^(4 - 2/N) / (6144 N^3 F^(6 - 4/N))": replace(good, learning_rate=1.1 * eta),
        "c <= sigma_min(W)": replace(good, margin=1.2, learning_rate=eta),
        "|G|_2 <= F": replace(good, weights=(3 * np.eye(2), np.eye(2))),
        "imbalance <= 2 delta": replace(good, weights=(1.01 * np.eye(2), np.eye(2))),
        "c <= F": replace(good, margin=2.0),
        "0 < c and 0 < eta": replace(good, learning_rate=-1.0),
    }
    for statement, step in broken.items():
        certificate = SingleStep().check(step)
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        failed = [claim.statement for claim in certificate.assumptions if claim.fails]
        assert statement in failed


# --- definitions -------------------------------------------------------------------------------


@pytest.mark.statement("arora2019:def1", "value")
@given(st.integers(0, 2**32 - 1))
def test_imbalance_by_definition_and_in_stacks(seed):
    random = np.random.default_rng(seed)
    layers = [random.standard_normal(shape) for shape in ((3, 4, 2), (3, 3, 4), (3, 1, 3))]
    found = largest_imbalance(layers)
    expected = [imbalance([layer[i] for layer in layers]) for i in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-14)  # a few products
    assert largest_imbalance(layers[:1]).shape == (3,)


@pytest.mark.statement("arora2019:def1", "value")
@given(st.integers(0, 2**32 - 1))
def test_balanced_layers_share_their_singular_values(seed):
    random = np.random.default_rng(seed)
    product = random.standard_normal((2, 3))
    layers = balanced(product, (3, 4, 3, 2), random)
    assert largest_imbalance(layers) <= 1e-13  # some roundings of numbers of order one
    roots = np.linalg.svd(product, compute_uv=False) ** (1 / 3)
    for layer in layers:
        values = np.linalg.svd(layer, compute_uv=False)
        np.testing.assert_allclose(values[:2], roots, rtol=1e-12)
        np.testing.assert_allclose(values[2:], 0, atol=1e-12)


@pytest.mark.statement("arora2019:def2", "value")
def test_the_margin_keeps_its_digits():
    """phi = e_1, w = 1e-20 e_1 + 1e-11 e_2 in R^20: the naive difference is zero."""
    target, vector = np.zeros((1, 20)), np.zeros((1, 20))
    target[0, 0], vector[0, :2] = 1.0, (1e-20, 1e-11)
    point = Approximation.of([vector], target)
    np.testing.assert_allclose(point.margin, 9.95e-21, rtol=1e-12)  # three digits, exactly so here
    assert point.margin_resolution > 0
    assert np.linalg.norm(target) - np.linalg.norm(vector - target) == 0


@pytest.mark.statement("arora2019:eq1", "value")
@given(st.integers(0, 2**32 - 1))
def test_whitened_least_squares_approximates_the_cross_moment(seed):
    """1/2n |W Z - Y|^2 = 1/2 |W - Phi|^2 + 1/2 (tr Lyy - |Phi|^2), the constant being >= 0."""
    random = np.random.default_rng(seed)
    raw, y = (
        random.standard_normal((50, 3)) @ random.standard_normal((3, 3)),
        random.standard_normal((50, 2)),
    )
    white = tw.data.whiten(raw)
    z = np.asarray(white.x)
    # Singular values of the random map are far above 1e-6, so that ten digits are left.
    np.testing.assert_allclose(z.T @ z / 50, np.eye(3), atol=1e-9)
    phi, matrix = y.T @ z / 50, random.standard_normal((2, 3))
    constant = (np.sum(y**2) / 50 - np.sum(phi**2)) / 2
    loss = np.sum((z @ matrix.T - y) ** 2) / 100
    assert constant >= 0
    np.testing.assert_allclose(loss, np.sum((matrix - phi) ** 2) / 2 + constant, rtol=1e-9)
    np.testing.assert_allclose(tw.Regression(z, y).minimum, constant, rtol=1e-9)
    np.testing.assert_allclose(
        np.asarray(white.matrix_on_raw(matrix)) @ raw.T, matrix @ z.T, rtol=1e-7, atol=1e-9
    )


@pytest.mark.statement("arora2019:eq3-loss", "value")
@pytest.mark.statement("arora2019:eq4-gd", "value")
@pytest.mark.parametrize("widths", [(2, 3), (2, 3, 4, 1)], ids=str)
def test_gradients_and_a_step_against_autodiff(widths):
    """Also of this module's own products, along a stack of points."""
    random = np.random.default_rng(5)
    layers = [
        random.standard_normal((2, *shape)) for shape in zip(widths[1:], widths, strict=False)
    ]
    target = random.standard_normal((widths[-1], widths[0]))
    points = Approximation.of(layers, target)

    def loss(weights):
        product = weights[0]
        for layer in weights[1:]:
            product = layer @ product
        return ((product - target) ** 2).sum() / 2

    gradient = jax.jit(jax.grad(loss))
    objective = tw.Objective(tw.LinearNetwork(widths), tw.TargetMatrix(target))
    for i in range(2):
        weights = tuple(layer[i] for layer in layers)
        slopes = gradient(weights)
        np.testing.assert_allclose(points.loss[i], loss(weights), rtol=1e-13)
        for mine, theirs in zip(points.gradients, slopes, strict=True):
            np.testing.assert_allclose(mine[i], theirs, rtol=1e-12, atol=1e-12)
        run = tw.descend(objective, weights, learning_rate=0.01, steps=1)
        np.testing.assert_allclose(run.loss[0], loss(weights), rtol=1e-13)
        for layer, slope, moved in zip(weights, slopes, run.final, strict=True):
            np.testing.assert_allclose(moved, layer - 0.01 * slope, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(points.decrease(0.01)[i], run.loss[0] - run.loss[1], rtol=1e-9)


@pytest.mark.statement("arora2019:proc1", "value")
@pytest.mark.parametrize("widths", [(3, 3, 3), (2, 7, 3, 5), (6, 4, 4, 4, 4, 4, 3)], ids=str)
def test_procedure_one(widths):
    """A_ij = sin(1 + i + 2j) has rank two; the errors of the check are 2.5e-15 at most."""
    rows, columns = np.indices((widths[-1], widths[0]))
    matrix = np.sin(1 + rows + 2 * columns)
    weights = tw.initialisation.balanced_from(tw.LinearNetwork(widths), matrix)
    assert np.linalg.norm(Approximation.of(weights, matrix).error) <= 1e-14 * np.linalg.norm(matrix)
    assert largest_imbalance(weights) <= 1e-14 * max(1, np.linalg.norm(matrix))
