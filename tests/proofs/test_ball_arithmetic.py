"""The mathematics of the checker: bounds in ball arithmetic, each against an oracle."""

import json

import mpmath
import numpy as np
import pytest
from flint import arb, arb_mat, ctx
from hypothesis import example, given
from hypothesis import strategies as st
from proof_problems import CASES, DIGITS, Plain, digits

from thalweg.proofs import checker, prove

BITS = 256
SEEDS, SIZES = st.integers(0, 10**6), st.integers(1, 6)
SPREADS = st.sampled_from([1.0, 1e-3, 1e-9])


@pytest.fixture(autouse=True)
def bits():
    with ctx.workprec(BITS):
        yield


def in_balls(matrix):
    return arb_mat(np.asarray(matrix, float).tolist())


def matrix_of(seed, rows, columns, spread):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)) * np.geomspace(1, spread, columns)


def as_mpf(ball):
    """The midpoint, to all of its digits."""
    mantissa, exponent = ball.mid().man_exp()
    return mpmath.mpf(int(mantissa)) * mpmath.mpf(2) ** int(exponent)


@given(SEEDS, SIZES, SIZES, SPREADS)
@example(0, 3, 3, 0.0)
@example(0, 5, 5, 1.0)
def test_the_spectral_norm_is_bounded_from_above(seed, rows, columns, spread):
    matrix = matrix_of(seed, rows, columns, spread) if spread else np.zeros((rows, columns))
    exact = np.linalg.norm(matrix, 2)
    bound = float(checker.spectral(in_balls(matrix)))
    # The sum of n eigenvalues' 32nd powers is at most n times the largest.
    assert exact * (1 - 1e-14) <= bound <= exact * (1 + 1e-14) * min(rows, columns) ** (1 / 64)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=5), st.floats(0, 800))
def test_the_softmax_is_enclosed(outputs, shift):
    with mpmath.workdps(DIGITS):
        grown = [mpmath.exp(mpmath.mpf(z)) for z in outputs]
        found = checker.softmax([arb(z) + shift for z in outputs])
        for ball, exact in zip(found, grown, strict=True):
            assert abs(as_mpf(ball) - exact / sum(grown)) < 1e-35
            assert float(ball.rad()) < 1e-60


def test_the_crossing_terms_are_those_beyond_the_order():
    left, right = [arb(3 * i + 1) for i in range(6)], [arb(2 * i + 5) for i in range(4)]
    for last in (3, 5, 8, 20):
        wanted = sum((3 * i + 1) * (2 * k + 5) for i in range(6) for k in range(4) if i + k > last)
        if last >= 5:  # as the checker has it: no factor reaches beyond the order
            assert float(checker.crossing(left, right, last)) == wanted


def objective_of(plain):
    """The checker's view, by way of a file."""
    content = prove(plain.run(steps=1, rate=1e-4)).content
    claim = checker.parse(json.dumps({**content, "sha256": checker.digest(content)}).encode())
    return checker.Objective(claim.problem)


def step_of(plain, length, order):
    objective = objective_of(plain)
    point = objective.layers(plain.start.tolist())
    return checker.Step(objective, point, arb(0), arb(length), order)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gradients_are_enclosed(case):
    """Oracle: backpropagation in forty digits."""
    plain = Plain(**case)
    objective = objective_of(plain)
    found = objective.gradient(objective.layers(plain.start.tolist()))
    balls = [entry for layer in found for entry in layer.entries()]
    with mpmath.workdps(DIGITS):
        for ball, exact in zip(balls, plain.gradient(digits(plain.start)), strict=True):
            assert abs(as_mpf(ball) - exact) < 1e-34
            assert float(ball.rad()) < 1e-60


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_curve_is_the_flow_up_to_its_defect(case):
    """Oracle: the flow in forty digits; no step of these grows errors tenfold."""
    plain = Plain(**case)
    step = step_of(plain, 0.02, 12)
    end = [entry for layer in step.at(arb(0.02)) for entry in layer.entries()]
    with mpmath.workdps(DIGITS):
        exact = plain.flow([mpmath.mpf(0.02)])[0]
        off = mpmath.sqrt(sum((as_mpf(a) - b) ** 2 for a, b in zip(end, exact, strict=True)))
        assert off <= 10 * float(step.defect) + 1e-21  # what the oracle leaves


def defect_by_sampling(plain, step):
    """The integral of |z' + grad f(z)|, by Gauss's rule in forty digits."""
    order, length = step.order, as_mpf(step.length)
    coefficients = np.array(
        [
            [as_mpf(entry) for layer in step.layers for entry in layer[k].entries()]
            for k in range(order + 1)
        ],
        dtype=object,
    )
    nodes, weights = np.polynomial.legendre.leggauss(12)
    total = mpmath.mpf(0)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        s = mpmath.mpf(float(node))
        point = sum(coefficients[k] * s**k for k in range(order + 1))
        speed = sum(k * coefficients[k] * s ** (k - 1) for k in range(1, order + 1)) / length
        gap = speed + plain.gradient(point)
        total += float(weight) * mpmath.sqrt(sum(x * x for x in gap))
    return float(total * length)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize(("length", "order"), [(0.02, 3), (0.1, 3), (0.1, 8)])
def test_the_defect_is_bounded(case, length, order):
    """And not by much more than there is, where the series has converged."""
    plain = Plain(**case)
    with mpmath.workdps(DIGITS):
        measured = defect_by_sampling(plain, step_of(plain, length, order))
    bound = float(step_of(plain, length, order).defect)
    assert measured <= bound * (1 + 1e-9)  # quadrature is not exact
    if length == 0.02:
        assert bound <= 1.5 * measured + 1e-30


@pytest.mark.parametrize(("case", "length"), [("depth 4", 2.0), ("classes", 1.0)])
def test_a_dropped_rest_is_seen(case, length, monkeypatch):
    """Without what lies beyond the order, the bound of a long step is false."""
    plain = Plain(**CASES[case])
    monkeypatch.setattr(checker, "BEYOND", 0)
    step = step_of(plain, length, 2)
    with mpmath.workdps(DIGITS):
        measured = defect_by_sampling(plain, step)
    assert measured <= float(step.defect)
    monkeypatch.setattr(checker, "crossing", lambda *_: arb(0))
    monkeypatch.setattr(checker.Probabilities, "rest", lambda _: arb(0))
    assert measured > float(step_of(plain, length, 2).defect)


@pytest.mark.parametrize("length", [0.01, 0.1, 0.5])
@given(seed=SEEDS)
def test_probabilities_are_within_their_rest(seed, length):
    """Oracle: the softmax in forty digits, along random curves of degree five."""
    rng = np.random.default_rng(seed)
    coefficients = rng.normal(size=(6, 3)) * length ** np.arange(6)[:, None]
    with ctx.workprec(BITS):
        series = checker.Probabilities()
        for row in coefficients:
            series.extend([arb(float(z)) for z in row])
        rest = float(series.rest())
        known = [[as_mpf(p) for p in each] for each in series.chances]
    with mpmath.workdps(DIGITS):
        for s in (mpmath.mpf("0.3"), mpmath.mpf(1)):
            z = [
                sum(mpmath.mpf(float(c)) * s**k for k, c in enumerate(row))
                for row in coefficients.T
            ]
            grown = [mpmath.exp(each) for each in z]
            off = [
                sum(p * s**k for k, p in enumerate(row)) - g / sum(grown)
                for row, g in zip(known, grown, strict=True)
            ]
            assert mpmath.sqrt(sum(x * x for x in off)) <= rest


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("within", [0.0, 1e-3, 0.1])
def test_the_growth_is_bounded(case, within):
    """Along the curve and within a distance of it. Oracle: eigenvalues of dense Hessians."""
    plain, rng = Plain(**case), np.random.default_rng(1)
    step = step_of(plain, 0.1, 12)
    bound = float(step.steepest(arb(within)))
    for share in (0.0, 0.5, 1.0):
        layers = step.at(arb(0.1) * share)
        point = np.array([float(entry) for layer in layers for entry in layer.entries()])
        for _ in range(4):
            away = rng.normal(size=point.size)
            away *= within / np.linalg.norm(away)
            smallest = np.linalg.eigvalsh(plain.hessian(point + away))[0]
            assert -smallest <= bound + 1e-12


def test_the_growth_is_tight_where_it_can_be():
    """At the saddle W = 0 of depth two, |Gamma| is what errors grow with."""
    plain = Plain([3, 2, 2])
    plain.start = 0 * plain.start
    found = float(step_of(plain, 1e-9, 4).steepest(arb(0)))
    exact = -np.linalg.eigvalsh(plain.hessian(plain.start))[0]
    assert exact <= found <= exact * 2 ** (1 / 32) * (1 + 1e-6)


@given(SEEDS, st.floats(0, 0.5), st.floats(0, 0.5))
def test_products_of_disturbed_layers(seed, moved, within):
    """T bounds products of layers that have moved, T' - T what moves them farther."""
    rng = np.random.default_rng(seed)
    layers = [rng.normal(size=(2, 2)) for _ in range(3)]
    norms = {(3, 3): arb(1)}
    for i in range(3):
        norms[i, i], product = arb(1), np.eye(2)
        for j in range(i, 3):
            product = layers[j] @ product
            norms[i, j + 1] = arb(float(np.linalg.norm(product, 2)))
    near = checker.disturbed(norms, [arb(moved)] * 3, 3)
    far = checker.disturbed(norms, [arb(moved) + within] * 3, 3)

    def shifted(some, size):
        away = [rng.normal(size=(2, 2)) for _ in range(3)]
        return [w + size * a / np.linalg.norm(a) for w, a in zip(some, away, strict=True)]

    one = shifted(layers, moved)
    two = shifted(one, within)
    for i in range(3):
        for j in range(i + 1, 4):
            first, second = (_product(some[i:j]) for some in (one, two))
            assert np.linalg.norm(first, 2) <= float(near[i, j]) * (1 + 1e-13)
            change = np.linalg.norm(second - first)
            assert change <= float(far[i, j] - near[i, j]) * (1 + 1e-12) + 1e-13


def _product(layers):
    found = np.eye(2)
    for layer in layers:
        found = layer @ found
    return found


def test_comparisons_are_certain():
    """What the checker rests on: an undecided or senseless comparison is false."""
    wide, nan = arb(1, 0.1), arb("nan")
    assert not wide < 1.05
    assert not wide >= 1.05
    assert not any((nan < 1, nan <= 1, nan > 1, nan >= 1))
    assert wide.upper() >= wide
    assert checker.at_least_zero(nan).is_nan()
    assert checker.at_least_zero(arb(-1)) == 0
    assert checker.at_least_zero(wide) >= wide
    assert checker.rounded_up(nan) == np.inf
    assert checker.rounded_up(arb(1) / 3) >= arb(1) / 3
    assert checker.rounded_up(arb(2) ** -1100) > 0
    near = [arb_mat(1, 1, [arb(0, 1e-9)])]
    assert checker.distance(near, [arb_mat(1, 1)]).contains(0)
    assert checker.distance(near, [arb_mat(1, 1)]) <= 1.01e-9
