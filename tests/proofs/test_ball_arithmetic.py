"""The mathematics of the checker: bounds in ball arithmetic, each against an oracle."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, arb_mat, ctx
from hypothesis import example, given
from hypothesis import strategies as st
from proof_problems import CASES, Plain
from scipy.integrate import quad

import thalweg as tw
from thalweg.curvature import ball_bounds
from thalweg.tubes import checker
from thalweg.tubes.proof import prove

# The bounds of linear algebra, each against NumPy.


def in_balls(matrix):
    return arb_mat(np.asarray(matrix, float).tolist())


def matrix_of(seed, rows, columns, spread):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)) * np.geomspace(1, spread, columns)


SEEDS, SIZES = st.integers(0, 10**6), st.integers(1, 6)
SPREADS = st.sampled_from([1.0, 1e-3, 1e-9])


@given(SEEDS, SIZES, SPREADS, st.floats(-2, 2))
@example(0, 4, 1.0, 0.5)
def test_the_smallest_eigenvalue_is_bounded_from_below(seed, size, spread, error):
    """For hints on both sides; a good hint is hardly lost."""
    matrix = matrix_of(seed, size, size, spread)
    matrix = matrix + matrix.T
    values = np.linalg.eigvalsh(matrix)
    scale = np.abs(values).max()
    for hint, good in ((values[0] - 1e-12 * scale, True), (values[0] + error * scale, False)):
        with ctx.workprec(checker.PRECISION):
            balls = in_balls(matrix) - arb(float(hint)) * checker.identity(size)
            bound = hint + float(checker.least(balls))
        assert bound <= values[0] + 1e-14 * size * scale  # eigvalsh is good to that
        if good:
            assert bound >= values[0] - 2e-12 * scale


@given(SEEDS, SIZES, SIZES, SPREADS, st.floats(0, 3))
@example(0, 3, 3, 0.0, 0.0)
@example(0, 3, 4, 1.0, 0.5)
def test_the_spectral_norm_is_bounded_from_above(seed, rows, columns, spread, error):
    matrix = matrix_of(seed, rows, columns, spread) if spread else np.zeros((rows, columns))
    exact = np.linalg.norm(matrix, 2)
    with ctx.workprec(checker.PRECISION):
        good, bad = (
            float(checker.spectral_norm(in_balls(matrix), float(hint)))
            for hint in (exact * (1 + 1e-12), exact * error)
        )
    assert exact * (1 - 1e-14) <= good <= exact * (1 + 2e-12)
    assert exact * (1 - 1e-14) <= bad <= np.linalg.norm(matrix) * (1 + 1e-14)


@given(SEEDS, SIZES, st.sampled_from([1.0, 1e-3, 1e-12]))
def test_the_largest_eigenvalue_of_nonnegative_matrices(seed, size, spread):
    matrix = np.abs(matrix_of(seed, size, size, spread))
    matrix = matrix + matrix.T - 2 * np.diag(np.diag(matrix))
    exact = np.linalg.eigvalsh(matrix)[-1]
    with ctx.workprec(checker.PRECISION):
        bound = float(checker.largest(in_balls(matrix).tolist()))
    assert bound >= exact * (1 - 1e-14)
    # Power iteration has converged, unless the matrix nearly falls into parts.
    assert spread < 1 or bound <= exact * (1 + 1e-6) + 1e-300


@given(st.floats(0, 30))
def test_the_phi_functions_are_their_integrals(x):
    """Oracle: quadrature of the definition, which is good to 1e-12; the width is the remainder."""
    with ctx.workprec(checker.PRECISION):
        found = checker.phi(arb(x))
    for order, ball in enumerate(found, 1):
        factor = [1, 1, 2][order - 1]
        exact = quad(lambda u, k=order, f=factor: np.exp((1 - u) * x) * u ** (k - 1) / f, 0, 1)[0]
        slack = 1e-11 * exact
        assert float(ball.lower()) - slack <= exact <= float(ball.upper()) + slack
        if x < 1:
            assert float(ball.rad()) < 1e-25


def place_of(plain):
    """The checker's view of the start."""
    return start_of(plain.run(steps=1, rate=1e-4))


def start_of(run):
    content = prove(run).content
    claim = checker.parse(json.dumps({**content, "sha256": checker.digest(content)}).encode())
    return checker.Place(checker.Objective(claim.problem), claim.points[0], claim.hints[0])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_derivatives_are_enclosed(case):
    """Oracles: backpropagation, complex steps and eigenvalues in NumPy; equal up to rounding."""
    plain = Plain(**case)
    with ctx.workprec(checker.PRECISION):
        place = place_of(plain)
    gradient = [float(x) for x in place.gradient.entries()]
    hessian = [[float(x) for x in row] for row in place.hessian.tolist()]
    wanted = plain.hessian(plain.start)
    np.testing.assert_allclose(gradient, plain.gradient(plain.start), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(hessian, wanted, rtol=1e-12, atol=1e-13)
    smallest = np.linalg.eigvalsh(wanted)[0]
    assert smallest - 1e-10 <= float(place.smallest) <= smallest + 1e-13


@pytest.mark.parametrize("white", [False, True], ids=["regression", "target"])
def test_bounds_on_balls_are_those_in_double_precision(white):
    plain = Plain([3, 3, 3, 3, 3], outputs=2)
    run, bounds = plain.run(steps=1, rate=1e-4), jax.jit(ball_bounds)
    weights = tuple(map(jnp.asarray, plain.layers(plain.start)))
    if white:
        goal = tw.TargetMatrix(np.arange(6.0).reshape(2, 3))
        objective = tw.Objective(run.objective.network, goal)
        run = tw.descend(objective, weights, learning_rate=1e-4, steps=1)
    for radius in (0.0, 0.1, 1.0):
        with ctx.workprec(checker.PRECISION):
            change, first, second = map(float, start_of(run).ball(arb(radius)))
        known = bounds(run.objective, weights, radius)
        # Hints lie 1e-12 above, and the power iteration may end a little above.
        np.testing.assert_allclose(change, known.hessian_lipschitz, rtol=1e-8)
        np.testing.assert_allclose(first, known.product_first, rtol=1e-10)
        np.testing.assert_allclose(second, known.product_second, rtol=1e-8)


@pytest.fixture(scope="module")
def place():
    with ctx.workprec(checker.PRECISION):
        return place_of(Plain([3, 2, 3, 2]))


@given(SEEDS, st.floats(0, 1))
def test_bounds_on_balls_hold(place, seed, radius):
    """The Hessian, at points of the ball, differs by no more than L times the distance."""
    with ctx.workprec(checker.PRECISION):
        change = float(place.ball(arb(radius))[0])
    plain, rng = Plain([3, 2, 3, 2]), np.random.default_rng(seed)
    away = rng.normal(size=plain.start.size)
    away *= radius / np.linalg.norm(away)
    bent = plain.hessian(plain.start + away) - plain.hessian(plain.start)
    assert np.linalg.norm(bent, 2) <= change * radius * (1 + 1e-12)


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.999, 2.0])
def test_bounds_hold_whatever_the_hints(factor):
    """Oracle: NumPy's eigenvalues and norms, to rounding."""
    plain = Plain([3, 2, 3, 2], outputs=2)
    lowest = np.linalg.eigvalsh(plain.hessian(plain.start))[0]
    with ctx.workprec(checker.PRECISION):
        place = place_of(plain)
        exact = {key: np.linalg.norm(floats(each), 2) for key, each in place.products.items()}
        slope = np.linalg.norm(floats(place.slope_matrix), 2)
        norms = [float(factor * exact[key]) for key in [*exact] if key[0] < key[1]]
        hint = checker.Hint(1.0, float(lowest + factor), [*norms, factor], float(factor * slope))
        place.measure(hint)
    assert float(place.smallest) <= lowest + 1e-13
    assert float(place.slope) >= slope * (1 - 1e-14)
    for key, bound in place.norms.items():
        assert float(bound) >= exact[key] * (1 - 1e-14)


def floats(matrix):
    return np.array([[float(x) for x in row] for row in matrix.tolist()])


@pytest.mark.parametrize(
    ("size", "lowest"), [(0.01, 0.0), (0.3, 0.0), (0.01, None), (0.01, 50.0), (0.01, -50.0)]
)
def test_one_step_is_the_formula(place, size, lowest):
    """Oracle: the bounds in NumPy, with phi_j as integrals; L, d1 and d2 are tested above."""
    plain, rate, radius, within, norm = Plain([3, 2, 3, 2]), 0.03, 0.02, 0.05, np.linalg.norm
    c = size * np.cos(np.arange(plain.start.size))
    g, matrix = plain.gradient(plain.start), plain.hessian(plain.start)
    bent, turned = matrix @ g, matrix @ c
    speed = norm(g) + rate / 2 * norm(bent) + norm(turned)
    with ctx.workprec(checker.PRECISION):
        balls = [place.ball(arb(norm(c) + rate * speed + b)) for b in (0.0, within)]
        step = checker.Step(place, checker.column(c.tolist()), arb(rate))
        smallest, place.smallest = place.smallest, None if lowest is None else arb(lowest)
        found = [float(x) for x in step.grown(arb(radius), arb(within))]
        place.smallest = smallest
    (near, _, _), (change, first, second) = (map(float, ball) for ball in balls)
    slope, bend = float(place.slope), float(place.bend)

    def exponent(time):
        away = norm(c) + time * speed + within / 2
        by_norms = (slope + bend * first * away) * second
        return by_norms if lowest is None else min(change * away - lowest, by_norms)

    q = (
        near * norm(c) ** 2 / 2,
        norm(matrix @ turned) + near * norm(c) * speed,
        norm(matrix @ bent) + near * speed**2,
    )
    steepest = max(0.0, exponent(rate))
    added = sum(
        quad(lambda s, j=j: np.exp(steepest * (rate - s)) * q[j] * s**j / (1, 1, 2)[j], 0, rate)[0]
        for j in range(3)
    )
    wanted = [np.exp(m * rate) * radius + added for m in (steepest, exponent(rate / 2))]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)  # the hints' 1e-12, and rounding
    curve = [float(x) for x in step.correction.entries()]
    np.testing.assert_allclose(curve, c - rate * turned + rate**2 / 2 * bent, rtol=1e-12)
    wander = norm(c) + rate * norm(turned) + rate**2 / 2 * norm(bent)
    assert float(step.wander) == pytest.approx(wander, rel=1e-12)


def test_comparisons_are_certain():
    """What the checker rests on: an undecided or senseless comparison is false."""
    wide, nan = arb(1, 0.1), arb("nan")
    assert not wide < 1.05
    assert not wide >= 1.05
    assert not any((nan < 1, nan <= 1, nan > 1, nan >= 1))
    assert wide.upper() >= wide
    assert checker.smaller(nan, arb(1)) == 1
    assert checker.smaller(arb(1), nan) == 1
    assert checker.bigger(nan, arb(1)).is_nan()
    assert checker.bigger(arb(1), nan).is_nan()
    assert checker.rounded_up(nan) == np.inf
    assert checker.rounded_up(arb(1) / 3) >= arb(1) / 3
    assert checker.rounded_up(arb(2) ** -1100) > 0
