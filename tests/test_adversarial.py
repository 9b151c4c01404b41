"""Constructions of the proofs: the numbers of the papers' statements, and exact fractions."""

from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg import (
    HomogeneousNetwork,
    InputError,
    LinearNetwork,
    Objective,
    Regression,
    TargetMatrix,
    adversarial,
)


def losses(objective, weights, learning_rate, steps):
    """Oracle: plain descent, the loss at each step."""

    @jax.jit
    def step(weights, _):
        value, slopes = objective.value_and_gradient(weights)
        return jax.tree.map(lambda w, g: w - learning_rate * g, weights, slopes), value

    return np.asarray(jax.lax.scan(step, weights, length=steps + 1)[1])


@eqx.filter_jit
def form(objective, saddle):
    """d^T H d, and |d|^2."""
    turned = objective.hvp(saddle.weights, saddle.direction)
    pairs = zip(saddle.direction, turned, strict=True)
    length = sum(jnp.sum(array**2) for array in saddle.direction)
    return sum(jnp.sum(one * other) for one, other in pairs), length


@pytest.mark.parametrize(
    ("learning_rate", "margin", "depth", "expected"),
    [(0.1, 0.9, 2, 15304.992), (0.01, 0.9999, 2, 4.4724714e10), (1.0, 0.75, 4, 10.679798)],
)
def test_divergence_factor_of_the_oracle(learning_rate, margin, depth, expected):
    """arora2019:claim4, corrected A, to the eight digits printed there."""
    found = adversarial.divergence_factor(depth, learning_rate, margin)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_descent_diverges_as_in_the_oracle():
    """arora2019:claim4's run, with the A = 2000 of the paper."""
    trap = adversarial.diverging(2, 3, 1.0, 0.75, factor=2000.0)
    objective = Objective(LinearNetwork([3, 3, 3]), TargetMatrix(trap.target))
    slopes = objective.gradient(trap.weights)
    first = [float((w - g)[0, 0]) for w, g in zip(trap.weights, slopes, strict=True)]
    np.testing.assert_allclose(first, [1732.0509, 433.01313], rtol=5e-8)  # eight digits printed
    expected = [0.03125, 2.8124985e11, 8.89883e34, 2.81877e105]
    found = losses(objective, trap.weights, 1.0, 3)
    np.testing.assert_allclose(found, expected, rtol=5e-6)  # six digits printed


@given(
    depth=st.sampled_from([2, 4]),
    rate=st.floats(1e-4, 10),
    margin=st.floats(0.05, 0.999),
)
def test_diverging_starts_obey_their_bounds(depth, rate, margin):
    """arora2019:lemma17 by exact arithmetic on the first entries, all other entries being still."""
    trap = adversarial.diverging(depth, 2, rate, margin)
    entries = [Fraction(float(layer[0, 0])) for layer in trap.weights]
    eta, c = Fraction(rate), max(margin, 0.75)
    signs = []
    for _ in range(3):
        total = Fraction(1)
        for entry in entries:
            total *= entry
        entries = [entry - eta * (total - 1) * total / entry for entry in entries]
        # To 60 digits, since exact fractions double in length at every product.
        entries = [_rounded(entry) for entry in entries]
        assert len({entry > 0 for entry in entries}) == 1
        assert min(abs(entry) for entry in entries) >= 2
        signs.append(entries[0] > 0)
    assert signs == [True, False, True]
    start = np.asarray(trap.weights[-1] @ trap.weights[0]) if depth == 2 else None
    if start is not None:
        np.testing.assert_allclose(start, np.diag([c, 1]), rtol=1e-13)  # a handful of roundings


def _rounded(value, digits=60):
    size = len(str(abs(value.numerator))) - len(str(value.denominator))
    shift = Fraction(10) ** (digits - size)
    return Fraction(round(value * shift)) / shift


@pytest.mark.parametrize(
    ("depth", "expected"),
    [(2, {10: 0.207100, 100: 0.125005332}), (4, {10: 0.194592, 100: 0.128243})],
)
def test_descent_stalls_as_in_the_oracle(depth, expected):
    """arora2019:claim5's run, to the six digits printed there."""
    trap = adversarial.stalling(depth, np.diag([1.5, -0.5]))
    objective = Objective(LinearNetwork([2] * (depth + 1)), TargetMatrix(trap.target))
    found = losses(objective, trap.weights, 0.1, 100)
    for step, loss in expected.items():
        np.testing.assert_allclose(found[step], loss, rtol=5e-6)
    assert np.min(found) >= 0.125


def test_sharp_saddle_of_the_oracle():
    """elkabetz2021's O4: W_3 = (10, 0), the form is -20 and the least eigenvalue -10."""
    network, problem = LinearNetwork([2, 2, 2, 1]), TargetMatrix([1.0, 0.0])
    saddle = adversarial.sharp_saddle(network, problem, 10.0)
    np.testing.assert_array_equal(saddle.weights[2], [[10.0, 0.0]])
    objective = Objective(network, problem)
    assert form(objective, saddle) == (-20, 2)
    smallest = np.linalg.eigvalsh(np.asarray(objective.hessian(saddle.weights)))[0]
    np.testing.assert_allclose(smallest, -10, rtol=1e-14)  # eigenvalues of numbers up to 10


@given(
    seed=st.integers(0, 2**31 - 1),
    case=st.sampled_from([((3, 2, 4, 2), False), ((2, 3, 1, 2, 3), True)]),
    curvature=st.floats(1e-3, 1e6),
)
def test_sharp_saddles_curve_as_asked(seed, case, curvature):
    widths, readout = case
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((6, widths[0])), rng.standard_normal((6, widths[-1]))
    out = rng.standard_normal(widths[-1]) if readout else None
    network = LinearNetwork(widths, out)
    problem = Regression(x, y[:, :1] if readout else y, scale=1.0)
    saddle = _sharp_saddle(network, problem, jnp.asarray(curvature))
    value, length = form(Objective(network, problem), saddle)
    # One product of each layer, so some ten roundings.
    np.testing.assert_allclose(value, -curvature * length, rtol=1e-13)


_sharp_saddle = eqx.filter_jit(adversarial.sharp_saddle)

WEIGHTS = (
    jnp.array([[1.0, 2.0], [0.0, 1.0]]) / 2,
    jnp.array([[1.0, -1.0], [1.0, 1.0]]) / 2,
    jnp.array([[1.0, 3.0]]) / 2,
)


@pytest.mark.parametrize(
    ("factor", "value", "smallest"),
    [(10.0, -30.529808, -18.05772832), (100.0, -307.99729808, -181.10717232)],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_rescaled_saddle_of_the_oracle(factor, value, smallest, sign):
    """elkabetz2021's O5, also from the start that must be flipped."""
    network = HomogeneousNetwork([2, 2, 2, 1], (1.0, 0.2))
    problem = Regression([[1.0, 2.0], [1.0, -2.0]], [1.0, -1.0])
    start = (*WEIGHTS[:-1], sign * WEIGHTS[-1])
    saddle = adversarial.rescaled_saddle(network, problem, start, factor)
    objective = Objective(network, problem)
    np.testing.assert_allclose(
        form(objective, saddle)[0], value, rtol=1e-12
    )  # terminating decimals
    found = np.linalg.eigvalsh(np.asarray(objective.hessian(saddle.weights)))[0]
    np.testing.assert_allclose(found, smallest, rtol=1e-9)  # ten digits printed


# --------------------------------------------------------------------------------- worst case


class Polynomial:
    """A polynomial in z - centre with exact coefficients, lowest first."""

    def __init__(self, centre, *coefficients):
        self.centre, self.coefficients = centre, coefficients

    def derivatives(self, z):
        """Value, first and second derivative."""
        results, coefficients = [], self.coefficients
        for _ in range(3):
            powers = (c * (z - self.centre) ** k for k, c in enumerate(coefficients))
            results.append(sum(powers, Fraction(0)))
            coefficients = tuple(k * c for k, c in enumerate(coefficients))[1:]
        return results


def total(z, *parts):
    return [sum(column) for column in zip(*(part.derivatives(z) for part in parts), strict=True)]


def printed_hill(z, a, edge):
    """elkabetz2021:eq25 as printed, in fractions: value, slope, curvature."""
    if z < 0:
        value, slope, curvature = printed_hill(-z, a, edge)
        return [value, -slope, curvature]
    if z > edge + 1:
        return [Fraction(0)] * 3
    top = a * (edge + 1) ** 2 / 2 - 5 * a / 12 - a * edge / 2
    fall = Polynomial(0, top, 0, -a / 2)
    return total(z, fall) if z < edge else total(z, fall, quartic(a, edge))


def quartic(a, edge):
    two_thirds, quarter = Fraction(2, 3) + edge, Fraction(1, 4) + edge / 2
    return Polynomial(edge, 0, 0, 0, a * two_thirds, -a * quarter)


def printed_ridge(z, a, edge, r):
    """elkabetz2021:eq26 as printed, in fractions: value, slope, curvature."""
    peak = r / 2 - 1
    if z < peak:
        value, slope, curvature = printed_ridge(2 * peak - z, a, edge, r)
        return [value, -slope, curvature]
    if z > edge + 1:
        return [Fraction(0)] * 3
    k = r / 2 - 7 * r**2 / 48
    top = a * (edge + 1) ** 2 / 2 + a / 12 - a * edge / 2 - a * k
    if z < 1 - r:
        return total(z, Polynomial(peak, top, 0, -a / 4))
    fall = Polynomial(0, top - a / 2 + a * k, 0, -a / 2)
    if z <= 1:
        return total(z, fall, Polynomial(1, 0, 0, 0, -a / (12 * r)))
    return total(z, fall) if z < edge else total(z, fall, quartic(a, edge))


def around(*places):
    """The places and their neighbours among floating point numbers, and mirrored about zero."""
    near = [np.nextafter(place, place + side) for place in places for side in (-1, 1)]
    return sorted({float(sign * z) for z in (*places, *near) for sign in (1, -1)})


# With b = 1e-10 the hill's edge is at about 1070, where a number of length one can still be
# resolved; with b = 1e6 it is at 1e19.
@pytest.mark.parametrize(
    ("a", "b", "tolerance"), [(1.5, 1e-10, 0.3), (1.0, 1e6, 0.5), (2.0, 3.0, 2)]
)
def test_worst_case_equals_the_printed_formula(a, b, tolerance):
    """Values, slopes and curvatures against exact fractions, at and around every joint."""
    case = adversarial.WorstCase(a, b, tolerance)
    far, near = (float(edge) for edge in case.edges)
    r = float(case.transition)
    exact = [Fraction(number) for number in (a, far, near, r)]
    joints = around(
        0.0, 0.3, 1 - 2 * r, 1 - r, 1 - r / 3, 1.0, near, near + 0.4, near + 1, r / 2 - 1
    )
    joints += around(0.5 * far, far, far + 0.25, far + 1, far + 5)
    points = jnp.asarray(joints)
    origin = jnp.array([far + 2, near + 2, 0.0])  # where both parts are zero
    for axis, oracle in (
        (0, lambda z: printed_hill(z, exact[0], exact[1])),
        (1, lambda z: printed_ridge(z, exact[0], exact[2], exact[3])),
    ):
        found = _derivatives(case, origin, axis, points)
        expected = np.array([[float(part) for part in oracle(Fraction(z))] for z in joints]).T
        # Each number relative to what it would be changed by a rounding of z: the value's slope,
        # the slope's curvature, and the curvature's change, 3 a edge or a / (2 r) per unit length.
        edge = (far, near)[axis]
        rounding = 4e-16 * (np.abs(joints) + edge)
        bend = a * (12 * edge + 2) + (a / (2 * r) if axis else 0)
        slack = [
            1e-14 * expected[0] + rounding * np.abs(expected[1]) + bend * rounding**3,
            1e-14 * np.abs(expected[1]) + rounding * np.abs(expected[2]) + bend * rounding**2,
            1e-14 * np.abs(expected[2]) + bend * rounding,
        ]
        for order in range(3):
            assert np.all(np.abs(found[order] - expected[order]) <= slack[order]), (axis, order)


def _derivatives(case, origin, axis, points):
    def part(z):
        return case(origin.at[axis].set(z))

    functions = (part, jax.grad(part), jax.grad(jax.grad(part)))
    return [np.asarray(jax.jit(jax.vmap(function))(points)) for function in functions]


def test_worst_case_curves_no_more_than_a_downwards():
    case = adversarial.WorstCase(1.5, 1e-10, 0.3)
    far, near = (float(edge) for edge in case.edges)
    origin = jnp.array([far + 2, near + 2, 0.0])
    for axis, edge in ((0, far), (1, near)):
        points = jnp.concatenate(
            [jnp.linspace(-2.5, edge + 2, 997), jnp.linspace(edge, edge + 1, 97)]
        )
        value, _, curvature = _derivatives(case, origin, axis, points)
        assert np.min(curvature) >= -1.5 * (1 + 1e-14)  # rounding
        assert np.min(value) >= 0


def test_worst_case_ignores_further_coordinates():
    case = adversarial.WorstCase(1.0, 2.0, 0.5)
    q = jnp.array([0.3, -0.2, 1.5, 4.0])
    slope = jax.jit(jax.grad(case))(q)
    np.testing.assert_allclose(slope[2:], [12 * 1.5, 0.0], rtol=1e-15)
    with pytest.raises(InputError, match="at least three coordinates, got 2"):
        case(q[:2])


def test_worst_case_can_be_differentiated_by_its_parameters():
    """Oracle: f is proportional to a, and so is its gradient."""

    def value(a):
        return adversarial.WorstCase(a, 2.0, 0.5)(jnp.array([0.3, -0.2, 1.5]))

    np.testing.assert_allclose(jax.grad(value)(1.5), value(1.5) / 1.5, rtol=1e-14)


START = jnp.array([0.75, 0.8 * np.exp(-12) - 1, 2.5, -1.0])


@pytest.mark.parametrize(("a", "b", "tolerance"), [(1.0, 10.0, 0.5), (2.0, 1e6, 0.1)])
def test_exact_flow_solves_the_flow(a, b, tolerance):
    """Its time derivative is minus the gradient, in all three phases and at their joints."""
    case = adversarial.WorstCase(a, b, tolerance)
    assert bool(case.start_is_covered(START))
    early, late = case.window(START)
    r = case.transition
    entry = 2 / a * jnp.log((2 - 1.5 * r) / (START[1] + 1 - r / 2))
    inside = entry + r / a * jnp.linspace(-0.5, 1.5, 41)  # the change takes about r / a
    times = jnp.concatenate([jnp.linspace(0, late, 50), inside])

    @jax.jit
    @jax.vmap
    def moving(time):
        state, velocity = jax.jvp(lambda t: case.flow(START, t), (time,), (jnp.ones(()),))
        return state, velocity, jax.grad(case)(state)

    states, velocities, slopes = moving(times)
    # The second coordinate is known to rounding of one, where its distance from the top is 5e-6;
    # inside the change, a rounding of z of 1e-16 stands beside r >= 5e-8.
    np.testing.assert_allclose(velocities, -slopes, rtol=1e-8)
    np.testing.assert_allclose(states[0], START, atol=1e-16)
    second = np.asarray(states[50:, 1])
    assert np.all(np.diff(second) > 0)  # no jump back at a joint
    assert np.max(np.diff(second)) < 0.06 * float(r)  # nor forward: the speed is about a
    assert second[0] < 1 - r
    assert second[-1] > 1
    assert bool(early < late)


def test_exact_flow_ends_where_the_slopes_do():
    case = adversarial.WorstCase(1.0, 10.0, 0.5)
    late = case.window(START)[1]
    assert np.all(np.isfinite(case.flow(START, late)))
    assert np.all(np.isnan(case.flow(START, 2 * late)))


def test_descent_loses_the_flow_at_the_least_failing_step():
    """elkabetz2021:prop20: no iterate comes within the tolerance of the flow.

    The distances are above 1e10, so that rounding of coordinates of size 1e15 cannot matter.
    """
    case = adversarial.WorstCase(1.0, 1e10, 0.9)
    early, late = case.window(START)
    time = (early + late) / 2
    rate = case.least_failing_step(time)
    # The statement's own form of the threshold.
    np.testing.assert_allclose(rate, 1e14 * np.exp(-float(time)) * 0.9, rtol=1e-13)
    goal = case.flow(START, time)

    def step(q, _):
        return q - rate * jax.grad(case)(q), jnp.linalg.norm(q - goal)

    last, distances = jax.lax.scan(step, START, length=int(1.2 * time / rate))
    assert float(last[0]) > 2 * float(goal[0])  # it has gone past
    assert float(jnp.min(distances)) > 1e9


@pytest.mark.parametrize("index", [0, 1, 2])
def test_starts_that_are_not_covered(index):
    case = adversarial.WorstCase(1.0, 10.0, 0.5)
    outside = START.at[index].set([1.5, 0.0, 1.0][index])
    assert not bool(case.start_is_covered(outside))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: adversarial.diverging(3, 2, 0.1, 0.9), "depth.*even.*got 3"),
        (lambda: adversarial.diverging(2, 2, 0.0, 0.9), "learning_rate.*positive"),
        (lambda: adversarial.diverging(2, 2, 0.1, 1.0), "margin.*between 0 and 1, got 1"),
        (lambda: adversarial.stalling(2, [[0.0, 1.0], [0.0, -1.0]]), "must be symmetric"),
        (lambda: adversarial.stalling(2, np.eye(2)), "negative eigenvalue, but the smallest is 1"),
        (lambda: adversarial.stalling(2, np.ones((2, 3))), "square matrix"),
        (
            lambda: adversarial.sharp_saddle(LinearNetwork([2, 2, 1]), TargetMatrix([1, 0]), 1.0),
            "three layers, got 2",
        ),
        (
            lambda: adversarial.sharp_saddle(
                LinearNetwork([2] * 4), TargetMatrix(0 * np.eye(2)), 1.0
            ),
            "gradient at the zero predictor",
        ),
        (
            lambda: adversarial.rescaled_saddle(
                HomogeneousNetwork([2, 2, 2, 1]),
                Regression(np.ones((1, 2)), np.zeros(1)),
                WEIGHTS,
                10.0,
            ),
            "move the loss at zero output",
        ),
        (lambda: adversarial.WorstCase(1.0, -1.0, 0.1), "`b` must be positive"),
    ],
)
def test_constructions_refuse(call, message):
    with pytest.raises(InputError, match=message):
        call()
