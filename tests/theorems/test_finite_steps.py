"""Exact laws of descent with finite steps, against rational arithmetic, JAX and real runs."""

from fractions import Fraction
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thalweg as tw
from thalweg import InputError
from thalweg.certificates import Case, Verdict
from thalweg.measurement import BALANCE_ROUNDING, balance_defect
from thalweg.reports.sentences import findings
from thalweg.theorems.finite_steps.aligned_modes import TwoCycles
from thalweg.theorems.finite_steps.balance_law import BalanceLaw
from thalweg.theorems.finite_steps.catapult import Catapult
from thalweg.theorems.finite_steps.two_cycles import log_step, stable_up_to, two_cycle

# --- the balance law -----------------------------------------------------------------------------


def rational(rows, columns, random):
    """A matrix of fractions."""
    return [[Fraction(random.randint(-9, 9), 7) for _ in range(columns)] for _ in range(rows)]


def times(left, right):
    columns = list(zip(*right, strict=True))
    return [[sum(map(lambda a, b: a * b, row, column)) for column in columns] for row in left]


def plus(left, right, factor=Fraction(1)):
    pairs = zip(left, right, strict=True)
    return [[a + factor * b for a, b in zip(p, q, strict=True)] for p, q in pairs]


def turned(matrix):
    return [list(row) for row in zip(*matrix, strict=True)]


def product_of(layers):
    found = layers[0]
    for layer in layers[1:]:
        found = times(layer, found)
    return found


def rational_gradients(layers, target):
    """Of |W_N ... W_1 - Phi|_F^2 / 2, by the chain rule."""
    slope, found = plus(product_of(layers), target, Fraction(-1)), []
    for place in range(len(layers)):
        part = slope
        for above in reversed(layers[place + 1 :]):
            part = times(turned(above), part)
        if place:
            part = times(part, turned(product_of(layers[:place])))
        found.append(part)
    return found


@given(st.randoms(use_true_random=False), st.integers(2, 4))
@pytest.mark.statement("thalweg:balance-law", "tight")
def test_the_law_is_an_identity_of_rational_numbers(random, depth):
    """Not a digit is rounded: with fractions both sides are equal, weight decay included."""
    widths = [random.randint(1, 3) for _ in range(depth + 1)]
    layers = [rational(rows, columns, random) for columns, rows in pairwise(widths)]
    target = rational(widths[-1], widths[0], random)
    eta, decay = Fraction(random.randint(1, 30), 10), Fraction(random.randint(0, 5), 10)
    slopes = rational_gradients(layers, target)
    shrunk = [[[(1 - eta * decay) * w for w in row] for row in layer] for layer in layers]
    moved = [plus(layer, slope, -eta) for layer, slope in zip(shrunk, slopes, strict=True)]

    def imbalances(matrices):
        return [
            plus(times(turned(upper), upper), times(lower, turned(lower)), Fraction(-1))
            for lower, upper in pairwise(matrices)
        ]

    for new, old, drift in zip(*map(imbalances, (moved, layers, slopes)), strict=True):
        scaled = [[(1 - eta * decay) ** 2 * entry for entry in row] for row in old]
        assert new == plus(scaled, drift, eta**2)


def training(kind, decay=0.0, seed=0):
    """A linear network of depth four on one of three losses, and a start."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(20, 3))
    problem, outputs = {
        "squares": lambda: (tw.Regression(x, random.normal(size=(20, 2))), 2),
        "labels": lambda: (tw.Classification(x, random.integers(0, 3, 20)), 3),
        "matrix": lambda: (tw.TargetMatrix(random.normal(size=(2, 3))), 2),
    }[kind]()
    network = tw.LinearNetwork([3, 4, 2, 4, outputs])
    weights = tuple(0.6 * random.normal(size=shape) for shape in network.shapes)
    return tw.Objective(network, problem, weight_decay=decay), weights


@pytest.mark.statement("thalweg:balance-law", "holds")
@pytest.mark.parametrize("kind", ["squares", "labels", "matrix"])
@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("spacing", [1, 7])
def test_runs_obey_the_law_step_by_step(kind, decay, spacing):
    """At rates from the flow's to the edge; at spaced records a step is taken again."""
    objective, weights = training(kind, decay)
    for rate in (1e-3, 0.05, 0.4):
        run = tw.descend(objective, weights, learning_rate=rate, steps=70, record_every=spacing)
        certificate = BalanceLaw().check(Case(objective, weights, learning_rate=rate, run=run))
        assert certificate.verdict is Verdict.CONFIRMED, certificate
        assert np.max(certificate.conclusions[0].lesser) < BALANCE_ROUNDING / 8


@given(st.integers(0, 2**31 - 1), st.floats(0.001, 0.5), st.floats(0.05, 1.5))
def test_random_networks_obey_the_law(seed, rate, scale):
    random = np.random.default_rng(seed)
    objective, weights = training("matrix", seed=seed)
    start = tuple(scale * random.normal(size=layer.shape) for layer in weights)
    run = tw.descend(objective, start, learning_rate=rate, steps=12)
    found = balance_defect(run)
    assert np.all(found[np.isfinite(found)] < BALANCE_ROUNDING / 8)
    assert np.isfinite(found[0])  # one step from a sensible start


@pytest.mark.statement("thalweg:balance-law", "fails")
def test_what_is_no_descent_of_this_loss_breaks_the_law():
    """A weight that is off by 1e-9 at one step, momentum, another loss: each is seen."""
    objective, weights = training("squares")
    run = tw.descend(objective, weights, learning_rate=0.05, steps=60)
    layers = [np.array(layer) for layer in run.weights]
    layers[2][30, 1, 1] += 1e-9
    moved = eqx.tree_at(lambda each: each.weights, run, tuple(layers))
    case = Case(objective, weights, learning_rate=0.05, run=moved)
    assert BalanceLaw().check(case).verdict is Verdict.VIOLATED
    ball = tw.optimisers.HeavyBall(0.5)
    other = tw.descend(objective, weights, learning_rate=0.05, steps=60, optimiser=ball)
    disguised = eqx.tree_at(lambda each: each.optimiser, other, tw.optimisers.PLAIN)
    assert np.nanmax(balance_defect(disguised)) > 1e6
    wrong = eqx.tree_at(lambda each: each.objective, run, training("matrix")[0])
    assert np.nanmax(balance_defect(wrong)) > 1e6
    relu = tw.Objective(tw.HomogeneousNetwork([3, 4, 2]), objective.problem)
    start = tuple(np.ones(shape) for shape in relu.network.shapes)
    certificate = BalanceLaw().check(Case(relu, start))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "the network is linear"


def test_the_defect_of_many_runs_is_that_of_each():
    objective, weights = training("squares")
    rates = np.array([0.01, 0.1, 50.0])
    runs = tw.descend(objective, weights, learning_rate=rates, steps=90, record_every=9)
    found = balance_defect(runs, 5)
    assert found.shape == (3, 5)
    assert np.isnan(found[2, -1])  # it has run off
    for place in (0, 1):
        one = tw.descend(objective, weights, learning_rate=rates[place], steps=90, record_every=9)
        np.testing.assert_array_equal(balance_defect(one, 5), found[place])


def test_every_report_of_a_small_linear_network_has_checked_itself(tmp_path):
    """Nothing is said where all is well; where rounding has eaten the digits the page says so."""
    objective, weights = training("matrix")
    run = tw.descend(objective, weights, learning_rate=[0.01, 0.1], steps=300, record_every=3)
    tw.report(run, folder=tmp_path)
    results = tw.open(tmp_path).load()
    assert np.all(results.balance_defect < BALANCE_ROUNDING / 8)
    assert np.all(results.balance_defect > 0)
    assert not any("not to be trusted" in each for each in findings(results))
    results.balance_defect[1] = 1e5
    told = findings(results)[-1]
    assert "not to be trusted" in told
    assert "at η = 0.1 it differs from that by up to 1.00e5 units of rounding" in told


def test_the_defect_is_refused_where_the_law_is_about_something_else():
    objective, weights = training("squares")
    ball = tw.optimisers.HeavyBall(0.5)
    run = tw.descend(objective, weights, learning_rate=0.05, steps=5, optimiser=ball)
    with pytest.raises(InputError, match="`balance_defect` is about plain gradient descent"):
        balance_defect(run)
    relu = tw.Objective(tw.HomogeneousNetwork([3, 4, 2]), objective.problem)
    start = tuple(np.ones(shape) for shape in relu.network.shapes)
    run = tw.descend(relu, start, learning_rate=0.01, steps=5)
    with pytest.raises(InputError, match="`balance_defect` is about linear networks"):
        balance_defect(run)


# --- the catapult --------------------------------------------------------------------------------

FORGETTING = tw.Objective(tw.LinearNetwork([1, 3, 1]), tw.TargetMatrix([[0.0]]))


def start_of(seed, size):
    """Three hidden units, with the sum of squares `size`."""
    random = np.random.default_rng(seed)
    weights = random.normal(size=(3, 1)), random.normal(size=(1, 3))
    factor = np.sqrt(size / sum(np.sum(layer**2) for layer in weights))
    return tuple(factor * layer for layer in weights)


def catapulted(weights, rate, steps=3000, objective=FORGETTING):
    run = tw.descend(objective, weights, learning_rate=rate, steps=steps)
    return run, Catapult().check(Case(objective, weights, learning_rate=rate, run=run))


@pytest.mark.statement("thalweg:catapult", "holds")
@given(st.integers(0, 2**31 - 1), st.floats(0.05, 3.9), st.floats(0.01, 10.0))
def test_every_start_below_the_threshold_converges(seed, share, rate):
    """Of width three and any imbalance, at rates of any size; in 3,000 steps to rounding."""
    weights = start_of(seed, share / rate)
    run, certificate = catapulted(weights, rate)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    sizes = sum(np.sum(layer**2, axis=(1, 2)) for layer in run.weights)
    assert rate * sizes[-1] <= 2 + 1e-9
    if share <= 1.9 and rate * sizes[-1] > 0.05:  # slower ones are not there yet
        assert run.loss[-1] <= 1e-20 * run.loss[0]
        assert np.all(np.diff(run.loss) <= 1e-30 * run.loss[0])  # at last f is rounding
    if share > 2.2:
        assert rate**2 * run.loss[-1] <= 1e-3


@pytest.mark.statement("thalweg:catapult", "tight")
@pytest.mark.parametrize("seed", range(5))
def test_four_is_exact_and_two_plus_the_square_is_where_the_loss_rises(seed):
    """A millionth to either side of 4 decides; at 2 + b^2 the first step keeps the loss."""
    below, above = (catapulted(start_of(seed, 4 * share), 1.0) for share in (1 - 1e-6, 1 + 1e-6))
    assert below[0].loss[-1] < 1e-12
    assert above[0].diverged
    assert below[1].verdict is above[1].verdict is Verdict.CONFIRMED
    direction = start_of(seed, 1.0)
    ratio = float((direction[1] @ direction[0])[0, 0])  # f / s; s = 2 + (s ratio)^2 is solved by
    size = 2 * 2 / (1 + np.sqrt(1 - 8 * ratio**2)) if 8 * ratio**2 < 1 else np.nan
    for share, rises in ((1 - 1e-6, False), (1 + 1e-6, True)):
        if size < 4:
            run = tw.descend(FORGETTING, start_of(seed, size * share), learning_rate=1.0, steps=1)
            assert (run.loss[1] > run.loss[0]) == rises


def test_at_four_the_map_is_that_of_chebyshev():
    """Oracle: cos(3^k x) in 400 digits, of a rational start; the sum of squares stays 4 exactly."""
    u, v = Fraction(8, 5), Fraction(6, 5)  # u^2 + v^2 = 4
    with mpmath.workdps(400):
        angle = mpmath.acos(mpmath.mpf(24) / 25)  # b / 2 = u v / 2
        for k in range(6):
            b = u * v
            assert u**2 + v**2 == 4
            assert mpmath.almosteq(
                mpmath.mpf(b.numerator) / b.denominator, 2 * mpmath.cos(3**k * angle), 1e-300
            )
            u, v = u - b * v, v - b * u


@pytest.mark.statement("thalweg:catapult", "fails")
def test_with_another_target_both_thresholds_are_false():
    """Counterexamples: between 2 / s and 4 / s a cycle, above 4 / s convergence."""
    cycling = tw.Objective(tw.LinearNetwork([1, 1, 1]), tw.TargetMatrix([[1.1]]))
    weights = (np.array([[1.2]]), np.array([[0.9]]))  # s = 2.25, and eta |y| = 1.1
    run, certificate = catapulted(weights, 1.0, 20_000, cycling)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "the target is zero"
    assert run.loss[-1] > 0.01
    assert run.loss[-1] == pytest.approx(run.loss[-3], rel=1e-9)
    settling = tw.Objective(tw.LinearNetwork([1, 1, 1]), tw.TargetMatrix([[0.5]]))
    weights = (np.array([[1.65]]), np.array([[1.5]]))
    run, _ = catapulted(weights, 1.0, 4000, settling)
    assert 1.65**2 + 1.5**2 > 4.97
    assert run.loss[-1] < 1e-20


def test_the_threshold_is_no_sharpness_of_the_start():
    """At u = v the sharpness is 3 s / 2: descent converges from 5.9 / eta, by the dense Hessian."""
    side = np.sqrt(5.9 / 3)
    weights = (np.array([[side]]), np.array([[side]]))
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1]), tw.TargetMatrix([[0.0]]))
    top = np.linalg.eigvalsh(np.asarray(objective.hessian(weights)))[-1]
    assert top == pytest.approx(5.9, rel=1e-12)
    run, certificate = catapulted(weights, 1.0, 4000, objective)
    assert certificate.verdict is Verdict.CONFIRMED
    assert run.loss[-1] < 1e-6  # as 1 / (8 k^2): balanced layers go to zero, where it is flat
    assert float(certificate.answers[1].value) == pytest.approx(4 / (2 * side**2), rel=1e-12)


def test_a_scaled_regression_has_the_same_thresholds():
    """Oracle: 2 scale mean(x^2) multiplies the rate; descents to both sides of 4."""
    x = np.array([[1.0], [2.0], [-3.0]])
    problem = tw.Regression(x, np.zeros(3), scale=0.7)
    objective = tw.Objective(tw.LinearNetwork([1, 3, 1]), problem)
    weights = start_of(1, 1.0)
    limit = 4 / (2 * 0.7 * 14 / 3)
    case = Case(objective, weights)
    assert float(Catapult().check(case).answers[1].value) == pytest.approx(limit, rel=1e-12)
    calm, wild = (
        tw.descend(objective, weights, learning_rate=share * limit, steps=2000)
        for share in (1 - 1e-5, 1 + 1e-5)
    )
    assert calm.loss[-1] < 1e-8
    assert wild.diverged


# --- two-cycles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [2, 3, 4, 7, 20, 100])
@pytest.mark.parametrize("share", [1.0001, 1.05, 1.2, 1.4])
def test_the_cycle_solves_its_equations(depth, share):
    """Oracle: the map itself in 60 digits, and Newton's method from the points to a true cycle."""
    step = 2 * share / depth
    cycle = two_cycle(depth, step)
    with mpmath.workdps(60):
        h = mpmath.mpf(step)

        def after(x):
            return x - h * x ** (depth - 1) * (x**depth - 1)

        def slope(x):
            return 1 - h * ((2 * depth - 1) * x ** (2 * depth - 2) - (depth - 1) * x ** (depth - 2))

        near = mpmath.mpf(cycle.high) * (1 + mpmath.mpf(10) ** -14), mpmath.mpf(cycle.high)
        exact = mpmath.findroot(lambda x: after(after(x)) - x, near, tol=mpmath.mpf(10) ** -90)
        other = after(exact)
        assert abs(exact - cycle.high) < 1e-13
        assert abs(other - cycle.low) < 1e-13
        assert exact - other > mpmath.mpf("1e-3") / depth  # not the fixed point
        # The cycle's own rounding is seen through the slopes of the map, of order N.
        assert abs(slope(exact) * slope(other) - cycle.multiplier) < 1e-12 * depth**2


def test_depth_two_in_surds():
    for step in (1.01, 1.1, 1.2, 1.5):
        cycle = two_cycle(2, step)
        total = np.sqrt(1 + 3 / step)
        gap = np.sqrt(1 - 1 / step)
        np.testing.assert_allclose(cycle[:2], [(total + gap) / 2, (total - gap) / 2], rtol=1e-14)
        assert cycle.multiplier == pytest.approx(9 - 2 * (1 + step) ** 2, rel=1e-12)
    assert stable_up_to(2) == pytest.approx(np.sqrt(5) - 1, rel=1e-14)


@pytest.mark.parametrize("depth", [2, 3, 5, 10, 40])
def test_one_cycle_for_each_step_and_one_range_of_stable_ones(depth):
    """ln h rises and the multiplier falls all along a fine grid, to where the cycle is unstable."""
    times = np.linspace(0, 1.5, 3001)[1:] / depth
    steps = np.exp([log_step(depth, t) for t in times])
    assert np.all(np.diff(steps) > 0)
    assert steps[0] == pytest.approx(2 / depth, rel=1e-5)
    below = steps < 1.4 * 2 / depth
    multipliers = np.array([two_cycle(depth, step).multiplier for step in steps[below]])
    assert np.all(np.diff(multipliers) < 0)
    first = steps[below][np.argmax(multipliers < -1)]
    assert first == pytest.approx(stable_up_to(depth), rel=1e-2)
    assert 1.236 < stable_up_to(depth) * depth / 2 < 1.2517
    for step in steps[below][multipliers > -1]:
        assert 0.5 < two_cycle(depth, step).imbalance < 1
    assert two_cycle(depth, 2 / depth) is None


@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("share", [1.03, 1.15, 1.3])
def test_both_multipliers_are_eigenvalues_of_two_steps(depth, share):
    """Oracle: the Jacobian of two steps on N numbers, by JAX; one along, N - 1 across."""
    step = 2 * share / depth
    cycle = two_cycle(depth, step)

    def moved(w):
        return w - step * jax.grad(lambda v: (jnp.prod(v) - 1) ** 2 / 2)(w)

    jacobian = jax.jacobian(lambda w: moved(moved(w)))(jnp.full(depth, cycle.high))
    found = np.linalg.eigvalsh(np.asarray(jacobian + jacobian.T) / 2)
    expected = sorted([cycle.multiplier, *[cycle.imbalance] * (depth - 1)])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


def turned_target(values, shape, seed):
    """A matrix with these singular values, in random directions."""
    random = np.random.default_rng(seed)
    left, right = (np.linalg.qr(random.normal(size=(size, size)))[0] for size in shape)
    inner = np.zeros(shape)
    inner[range(len(values)), range(len(values))] = values
    return left @ inner @ right


@pytest.mark.statement("thalweg:two-cycles", "holds")
@given(st.integers(0, 2**31 - 1), st.integers(2, 5), st.floats(0.03, 0.97))
def test_networks_end_in_the_cycle(seed, depth, place):
    """Real networks, of a target in random directions; the second mode settles below its edge."""
    target = turned_target([2.0, 0.9], (2, 3), seed)
    network = tw.LinearNetwork([3, *[4] * (depth - 1), 2])
    objective = tw.Objective(network, tw.TargetMatrix(target))
    weights = tw.initialisation.balanced_from(network, 0.8 * target)
    low, high = 2 / depth, stable_up_to(depth)
    step = low + place * (high - low)
    rate = step / 2.0 ** (2 - 2 / depth)
    run = tw.descend(objective, weights, learning_rate=rate, steps=4000)
    case = Case(objective, weights, learning_rate=rate, run=run)
    certificate = TwoCycles().check(case)
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert len(certificate.conclusions) == 3  # the run's end among them
    cycle = two_cycle(depth, step)
    last = [tw.LinearNetwork.end_to_end(network, [w[-k] for w in run.weights]) for k in (1, 2)]
    values = sorted(float(np.linalg.svd(product, compute_uv=False)[0]) / 2 for product in last)
    np.testing.assert_allclose(values, [cycle.low**depth, cycle.high**depth], rtol=1e-6)


@pytest.mark.statement("thalweg:two-cycles", "tight")
@pytest.mark.parametrize("depth", [2, 3, 6])
def test_both_ends_of_the_range_are_exact(depth):
    """A hundredth below the edge the mode settles; a hundredth above h_N its period has doubled."""
    target = turned_target([1.5], (2, 2), depth)
    network = tw.LinearNetwork([2] * (depth + 1))
    objective = tw.Objective(network, tw.TargetMatrix(target))
    weights = tw.initialisation.balanced_from(network, 0.9 * target)
    unit = 1.5 ** (2 / depth - 2)

    def products(step):
        run = tw.descend(objective, weights, learning_rate=step * unit, steps=6000)
        end = [np.asarray([layer[-k] for k in range(1, 9)]) for layer in run.weights]
        found = end[0]
        for layer in end[1:]:
            found = layer @ found
        return np.linalg.svd(found, compute_uv=False)[:, 0]

    calm = products(0.99 * 2 / depth)
    np.testing.assert_allclose(calm, 1.5, rtol=1e-9)
    inside, beyond = (products(share * stable_up_to(depth)) for share in (0.99, 1.01))
    np.testing.assert_allclose(inside[2:], inside[:-2], rtol=1e-9)
    assert abs(inside[1] - inside[0]) > 0.3
    assert np.max(np.abs(beyond[2:] - beyond[:-2])) > 0.01
    np.testing.assert_allclose(beyond[4:], beyond[:-4], rtol=1e-6)


@pytest.mark.statement("thalweg:two-cycles", "fails")
def test_what_is_not_assumed_breaks_the_statement():
    """No alignment, no balance, below the edge, beyond the stable range: each by its own margin."""
    target = turned_target([2.0, 0.9], (2, 3), 1)
    network = tw.LinearNetwork([3, 4, 2])
    objective = tw.Objective(network, tw.TargetMatrix(target))
    aligned = tw.initialisation.balanced_from(network, 0.8 * target)

    def failure(weights, rate):
        certificate = TwoCycles().check(Case(objective, weights, learning_rate=rate))
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        return certificate.first_failure.statement

    assert "2 / N < eta" in failure(aligned, 0.49)
    assert "< h_N" in failure(aligned, 0.63)
    assert "largest imbalance" in failure((2 * aligned[0], aligned[1] / 2), 0.55)
    other = tw.initialisation.balanced_from(network, turned_target([2.0, 0.9], (2, 3), 2))
    assert "aligned with the target" in failure(other, 0.55)
    assert "learning rate is given" in failure(aligned, None)
    # A run that does not end in the cycle of the theorem, but says that it does, is caught.
    run = tw.descend(objective, aligned, learning_rate=0.55, steps=2000)
    layers = tuple(np.concatenate([layer[:1], 1.02 * layer[1:]]) for layer in run.weights)
    moved = eqx.tree_at(lambda each: each.weights, run, layers)
    case = Case(objective, aligned, learning_rate=0.55, run=moved)
    assert TwoCycles().check(case).verdict is Verdict.VIOLATED


@pytest.mark.statement("thalweg:two-cycles", "fails")
@pytest.mark.parametrize(("other", "stays"), [(0.45, True), (0.8, False), (1.0, False)])
def test_another_mode_of_nearly_the_same_size_throws_a_mode_off_its_cycle(other, stays):
    """Oracle: the Jacobian of two steps on all entries, at depth two; both begin on their cycles.

    An eigenvalue of 1.17 mixes modes of sizes 1 and 0.8, though only the first is above the edge.
    """
    step = 1.2
    network = tw.LinearNetwork([2, 2, 2])
    objective = tw.Objective(network, tw.TargetMatrix(np.diag([1.0, other])))
    cycle, second = two_cycle(2, step), two_cycle(2, step * other)
    layer = np.diag([cycle.high, np.sqrt(other) * (second.high if second else 1.0)])

    def moved(flat):
        weights = tuple(flat.reshape(2, 2, 2))
        slopes = objective.gradient(weights)
        return jnp.stack([w - step * g for w, g in zip(weights, slopes, strict=True)]).ravel()

    jacobian = jax.jacobian(lambda flat: moved(moved(flat)))(jnp.stack([layer] * 2).ravel())
    radius = np.abs(np.linalg.eigvals(np.asarray(jacobian))).max()
    assert (radius < 1 + 1e-6) == stays  # turning the hidden layer changes nothing: 1
    random = np.random.default_rng(0)
    start = tuple(layer + 1e-9 * random.normal(size=(2, 2)) for _ in range(2))
    run = tw.descend(objective, start, learning_rate=step, steps=400)
    last = np.asarray(run.weights[1][-1] @ run.weights[0][-1])
    assert (abs(last[0, 0] - cycle.high**2) < 1e-6) == stays


def test_a_cycle_needs_two_layers():
    with pytest.raises(InputError, match="`depth` must be a whole number >= 2, got 1"):
        two_cycle(1, 2.5)


@pytest.mark.parametrize(("share", "product", "steps"), [(1.03, 1.0001, 4), (1.02, 1 + 1e-6, 30)])
def test_a_run_on_its_slow_way_from_the_minimiser_is_not_taken_for_its_end(share, product, steps):
    """Just above the edge a run jumps around x = 1 for long, and nearly comes back each time."""
    network = tw.LinearNetwork([1, 1, 1])
    objective = tw.Objective(network, tw.TargetMatrix([[1.0]]))
    weights = tw.initialisation.balanced_from(network, np.array([[product]]))

    def certificate(count):
        run = tw.descend(objective, weights, learning_rate=share, steps=count)
        return TwoCycles().check(Case(objective, weights, learning_rate=share, run=run))

    early, late = certificate(steps), certificate(3000)
    assert early.verdict is late.verdict is Verdict.CONFIRMED
    assert (len(early.conclusions), len(late.conclusions)) == (2, 3)


@pytest.mark.parametrize(("depth", "share", "other"), [(2, 1.2, 0.7), (2, 1.1, 0.9), (3, 1.2, 0.8)])
def test_where_rounding_has_grown_into_mixing_no_end_is_claimed(depth, share, other):
    """On its way from 1e-16 to 1 what mixes in passes every size: no end is called violated."""
    target = turned_target([1.0, other], (2, 2), 3)
    network = tw.LinearNetwork([2] * (depth + 1))
    objective = tw.Objective(network, tw.TargetMatrix(target))
    weights = tw.initialisation.balanced_from(network, 0.8 * target)
    step, claims = 2 * share / depth, set()
    whole = tw.descend(objective, weights, learning_rate=step, steps=1500)
    for last in range(150, 1500, 5):
        kept = np.r_[0, last - 2 : last + 1]
        run = whole.at(whole.times[kept])
        certificate = TwoCycles().check(Case(objective, weights, learning_rate=step, run=run))
        assert certificate.verdict is Verdict.CONFIRMED, certificate
        claims.add(len(certificate.conclusions))
    assert len(claims) > 1  # at first the end is in the cycle, later nothing is said of it


@pytest.mark.parametrize("points", [0, -1])
def test_the_defect_is_of_one_point_at_least(points):
    objective, weights = training("squares")
    run = tw.descend(objective, weights, learning_rate=0.05, steps=5)
    with pytest.raises(InputError, match=f"`points` must be a whole number >= 1, got {points}"):
        balance_defect(run, points)
