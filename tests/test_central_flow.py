"""The central flow of an oscillation: against descent itself at the edge, and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import thalweg as tw
from edge_problems import (
    EDGE,
    RATE,
    Valleys,
    built_in_experiment,
    over_50_steps,
    rows,
    split,
    valleys_start,
)  # fmt: skip
from thalweg.dynamics.flattened import Flattened
from thalweg.dynamics.oscillation import mapped, split_around, velocity
from thalweg.dynamics.stabilised import steps
from thalweg.objective.base import AbstractObjective
from thalweg.objective.modified import ModifiedObjective


class Bowl(AbstractObjective):
    """Half of w . diag(curvatures) w."""

    curvatures: tuple[float, ...]

    def __call__(self, weights):
        return jnp.sum(jnp.asarray(self.curvatures) * weights["w"] ** 2) / 2


# --- the pair, and its velocity -------------------------------------------------------------------


def test_the_map_of_the_pair_is_descent_from_both_points():
    objective, random = Valleys(), np.random.default_rng(0)
    flat = Flattened(objective, valleys_start())
    pair = flat.start + 1e-2 * random.standard_normal((2, 5)) * [[0.0], [1.0]]
    pair[1] -= flat.start
    runs = [
        tw.descend(objective, {"w": pair[0] + sign * pair[1]}, learning_rate=RATE, steps=20)
        for sign in (1, -1)
    ]
    for step in range(21):
        sides = [run.weights["w"][step] for run in runs]
        signed = (-1) ** step * pair[1]
        # Twenty steps with rounding errors of 1e-16 each, of which some grow.
        np.testing.assert_allclose([pair[0] + signed, pair[0] - signed], sides, atol=1e-13)
        pair = mapped(flat, pair, RATE)


@pytest.mark.parametrize("curvature", [-3.0, 0.0, 8.0, 19.0, 20.0, 23.0])
def test_the_velocity_of_a_quadratic_is_the_closed_formula(curvature):
    """The rates are -(m + m^2 / 2) / eta, m = eta s for c and 2 - eta s for x."""
    flat = Flattened(Bowl((curvature,)), {"w": np.ones(1)})
    pair = np.array([[0.7], [0.3]])
    m = np.array([[RATE * curvature], [2 - RATE * curvature]])
    expected = -(m + m**2 / 2) / RATE * pair
    np.testing.assert_allclose(velocity(flat, pair, RATE), expected, atol=1e-12 * EDGE)


def test_without_oscillation_it_is_the_modified_flow_of_order_one():
    objective, start = Valleys(), valleys_start(0.05, 0.1, 0.2, -0.1)
    flat, gaps = Flattened(objective, start), []
    for rate in (1e-3, 5e-4):
        found = velocity(flat, np.stack([flat.start, np.zeros(5)]), rate)
        assert np.all(found[1] == 0)
        field = ModifiedObjective(objective, jnp.asarray(rate), jnp.asarray(0.0), 1)
        expected = -np.asarray(field.gradient(jax.tree.map(jnp.asarray, start))["w"])
        gaps.append(np.linalg.norm(found[0] - expected))
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.1)  # both are right up to eta^2


def test_six_neighbours_take_polynomials_of_degree_five_apart():
    """w_k = p(k) + (-1)^k q(k)."""
    random = np.random.default_rng(1)
    p, q = random.standard_normal((2, 6)) / 10.0 ** np.arange(6)
    k = np.arange(40)
    smooth, alternating = np.polyval(p[::-1], k), np.polyval(q[::-1], k)
    points = smooth + (-1.0) ** k * alternating
    scale = np.abs(points).max()
    for step in range(5, 35):
        found = split_around(points[step - 5 : step + 6, None], step, 3)
        pair = found.pair[:, 0]
        # Rounding, of polynomials whose terms are some ten times larger than they are.
        np.testing.assert_allclose(pair, [smooth[step], alternating[step]], atol=1e-13 * scale)
        assert pair[0] + (-1) ** step * pair[1] == pytest.approx(points[step], abs=1e-15 * scale)


# --- stabilised steps -----------------------------------------------------------------------------


def test_stabilised_steps_follow_a_stiff_field_with_order_two():
    """Oracle: SciPy's implicit Radau, on a field that is no gradient."""

    def field(point):
        x, y, z = point
        return np.array([y, -x + 0.1 * (1 - x**2) * y, -400 * (z - x * y)])

    start = np.array([1.0, 0.0, 0.0])
    exact = solve_ivp(lambda _, y: field(y), (0, 8), start, method="Radau", rtol=1e-11, atol=1e-12)
    errors = []
    for tolerance in (1e-4, 1e-6):
        *_, last = steps(
            field, start, 0.0, 8.0, stiffness=450.0, tolerance=tolerance, most=10_000
        )  # fmt: skip
        errors.append(np.linalg.norm(last.points[1] - exact.y[:, -1]))
    assert errors[0] < 2e-2
    # Errors of a step go like h^3, so that the end's go like tolerance^(2/3): 21.5 for 100.
    assert 10 < errors[0] / errors[1] < 45


# --- the built-in experiment at learning rate 0.1 -------------------------------------------------


@pytest.fixture(scope="module")
def built_in():
    """Its start, descent and the central flow to t = 60."""
    objective, start = built_in_experiment()
    run = tw.descend(objective, start, learning_rate=RATE, steps=626)
    return objective, start, run, tw.central_flow(
        objective, start, learning_rate=RATE, times=RATE * np.arange(601)
    )  # fmt: skip


class TestBuiltInExperiment:
    def test_midpoints_are_near_it_and_far_from_the_flow(self, built_in):
        objective, start, run, central = built_in
        flow = tw.flow(objective, start, times=central.times[100::100], rtol=1e-8)
        middle = split(run)[0][99:600]
        near = np.linalg.norm(rows(central.weights)[100:] - middle, axis=1)
        far = np.linalg.norm(rows(flow.weights) - middle[::100], axis=1)
        assert np.all(near < 1e-4)  # seen: 1.5e-5
        assert np.all(near[::100] < far / 1000)  # the bar is 1/8

    def test_variance_and_mean_loss_are_those_of_descent(self, built_in):
        """From t = 7.5 on, so that the first average has its middle at t = 10."""
        _, _, run, central = built_in
        oscillation = np.sum(split(run)[1] ** 2, axis=1)
        np.testing.assert_allclose(
            over_50_steps(central.variance[75:601]), over_50_steps(oscillation[74:600]), rtol=1e-3
        )  # seen: 2e-4; the bar is 0.1
        np.testing.assert_allclose(
            over_50_steps(central.mean_loss[75:601]), over_50_steps(run.loss[75:601]), rtol=2e-4
        )  # seen: 4e-5; the bar is 2e-3

    def test_it_passes_through_the_very_steps_of_descent(self, built_in):
        """c + (-1)^k x: descent's own before the edge, predicted after it."""
        _, _, run, central = built_in
        signs = (-1.0) ** np.arange(601)[:, None]
        predicted = rows(central.weights) + signs * rows(central.oscillation)
        gap = np.linalg.norm(predicted - rows(run.weights)[:601], axis=1)
        begin = round(central.met_at / RATE)
        assert 42 < begin < 60  # the sharpness meets the edge at step 42
        assert np.all(gap[: begin + 1] < 1e-13)
        assert np.all(gap < 3e-4)  # seen: 1e-4 at once, 2e-5 later; the oscillation is 0.04

    def test_the_error_is_that_of_the_prediction(self, built_in):
        """Within a factor of ten, but where one of them is small by chance."""
        _, _, run, central = built_in
        signs = (-1.0) ** np.arange(601)[:, None]
        predicted = rows(central.weights) + signs * rows(central.oscillation)
        true = np.linalg.norm(predicted - rows(run.weights)[:601], axis=1)
        later = slice(round(central.met_at / RATE) + 1, None)
        ratio = central.error[later] / true[later]
        assert np.all((ratio > 0.1) & (ratio < 10))

    def test_loss_and_covariance_are_those_of_the_two_sides(self, built_in):
        objective, _, _, central = built_in
        at = [
            jax.tree.map(lambda a: jnp.asarray(a[300]), w)
            for w in (central.weights, central.oscillation)
        ]
        sides = [jax.tree.map(lambda c, x, s=s: c + s * x, *at) for s in (1, -1)]
        assert central.loss[300] == pytest.approx(float(objective(at[0])), rel=1e-12)
        assert central.mean_loss[300] == pytest.approx(
            np.mean([float(objective(side)) for side in sides]), rel=1e-12
        )
        x = rows(central.oscillation)[300]
        u = central.directions[300]
        np.testing.assert_allclose(u.T @ central.covariance[300] @ u, np.outer(x, x), atol=1e-15)
        assert central.variance[300] == pytest.approx(x @ x, rel=1e-12)

    def test_times_between_steps_and_other_records(self, built_in):
        """`at` takes the same steps: what is between them is on the same curve."""
        _, _, _, central = built_in
        again = central.at([0.0, 2.05, 20.0, 33.33])
        assert again.met_at == central.met_at
        np.testing.assert_array_equal(rows(again.weights)[0], rows(central.weights)[0])
        near = rows(central.weights)
        np.testing.assert_allclose(rows(again.weights)[2], near[200], atol=1e-4)
        # A straight line between steps is off by the bend of c: some 1e-4 before the edge.
        np.testing.assert_allclose(rows(again.weights)[1], (near[20] + near[21]) / 2, atol=1e-4)
        np.testing.assert_allclose(
            rows(again.weights)[3], 0.7 * near[333] + 0.3 * near[334], atol=1e-4
        )


# --- two unstable directions ----------------------------------------------------------------------


def agrees(objective, start, rate, count, first):
    """Midpoints, variance and mean loss from a step on, over fifty steps each."""
    run = tw.descend(objective, start, learning_rate=rate, steps=count + 2)
    central = tw.central_flow(
        objective, start, learning_rate=rate, times=rate * np.arange(count + 1),
        estimate_error=False, rtol=1e-5,
    )  # fmt: skip
    assert central.met_at < rate * first
    middle, swing = (each[first - 1 : count] for each in split(run))
    near = np.linalg.norm(rows(central.weights)[first:] - middle, axis=1)
    return (
        central,
        near,
        over_50_steps(central.variance[first:]) / over_50_steps(np.sum(swing**2, axis=1)),
        over_50_steps(central.mean_loss[first:]) / over_50_steps(run.loss[first : count + 1]),
    )


class TestTwoEigenvalues:
    def test_constructed(self):
        """Descent comes to a cycle of rank one, for which averages say 1.7 times the variance."""
        objective, start = Valleys(), valleys_start()
        central, near, variance, loss = agrees(objective, start, RATE, 400, 100)
        hessian = objective.hessian({"w": jnp.asarray(central.weights["w"][-1])})
        assert np.all(np.linalg.eigvalsh(hessian)[-2:] > 0.99 * EDGE)
        assert np.all(near < 1e-3)  # seen: 5e-5; the oscillation is 0.05, the flow 0.03 away
        np.testing.assert_allclose(variance, 1, atol=0.01)  # seen: 0.0005; the bar is 0.2
        np.testing.assert_allclose(loss, 1, atol=0.01)

    def test_found_by_sweeping(self):
        """Of 192 runs of linear networks with two or three outputs, one of those that came there.

        Depths 2, 3, 5 at eight learning rates from four starts, looking for two eigenvalues above
        0.95 of the edge from step 400 to 600.
        """
        network, random = tw.LinearNetwork([4] * 5 + [2]), np.random.default_rng(52)
        x = random.standard_normal((40, 4))
        y = x @ random.standard_normal((4, 2)) + 0.3 * random.standard_normal((40, 2))
        objective = tw.Objective(network, tw.Regression(x, y, 1.0))
        key = jax.random.split(jax.random.key(1), 4)[1]
        start = tw.initialisation.gaussian(network, 0.5, key=key)
        central, near, variance, loss = agrees(objective, start, 0.08, 300, 60)
        last = jax.tree.map(lambda array: jnp.asarray(array[-1]), central.weights)
        values = np.linalg.eigvalsh(np.asarray(objective.hessian(last)))
        assert np.all(values[-2:] > 0.95 * 2 / 0.08)
        assert np.all(near < 0.01)  # seen: 6e-4; the gradient flow is 0.5 to 0.9 away
        np.testing.assert_allclose(variance, 1, atol=0.02)  # seen: 0.0002; the bar is 0.2
        np.testing.assert_allclose(loss, 1, atol=0.02)


# --- where there is nothing to predict, or no prediction ------------------------------------------


def test_below_the_edge_it_is_descent_itself():
    objective, start = built_in_experiment()
    run = tw.descend(objective, start, learning_rate=0.02, steps=300)
    central = tw.central_flow(objective, start, learning_rate=0.02, times=run.times[::10])
    assert np.isnan(central.met_at)
    gap = np.linalg.norm(rows(central.weights) - rows(run.weights)[::10], axis=1)
    # What alternates of it, where the start is left behind quickly, is taken for an oscillation.
    assert np.all(gap <= np.linalg.norm(rows(central.oscillation), axis=1) + 1e-13)
    assert np.all(central.variance < 1e-10)


def test_an_oscillation_of_four_steps_is_not_predicted():
    """w_{k+1} = -(r - 1) w_k + r w_k^3 settles, at r = 3.3, into a cycle of four steps."""

    class Quartic(AbstractObjective):
        def __call__(self, weights):
            return jnp.sum(weights["w"] ** 2 / 2 - weights["w"] ** 4 / 4)

    start = {"w": np.array([0.3])}
    cycle = tw.descend(Quartic(), start, learning_rate=3.3, steps=500).weights["w"][-4:]
    assert np.abs(cycle[0] - cycle[2]) > 0.05  # even steps do not lie on one curve
    central = tw.central_flow(
        Quartic(), {"w": cycle[0]}, learning_rate=3.3, times=3.3 * np.arange(100)
    )
    assert np.isnan(central.met_at)


class TestRefusals:
    def test_of_arguments(self):
        start = valleys_start()
        with pytest.raises(tw.InputError, match="must be one of oscillation, covariance"):
            tw.central_flow(Valleys(), start, learning_rate=RATE, time=1.0, method="mean")  # pyright: ignore
        with pytest.raises(tw.InputError, match='Only method="covariance" has corrections'):
            tw.central_flow(Valleys(), start, learning_rate=RATE, time=1.0, corrected=False)
        with pytest.raises(tw.InputError, match="one row of times"):
            tw.central_flow(Valleys(), start, learning_rate=RATE, times=[[1.0], [2.0]])
        with pytest.raises(tw.InputError, match="learning_rate"):
            tw.central_flow(Valleys(), start, learning_rate=-1.0, time=1.0)

    def test_of_kinks(self):
        network = tw.HomogeneousNetwork([2, 3, 1])
        objective = tw.Objective(network, tw.Regression(np.eye(2), np.ones((2, 1))))
        start = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(0))
        with pytest.raises(tw.InputError, match="has kinks"):
            tw.central_flow(objective, start, learning_rate=0.1, time=1.0)

    def test_of_descent_that_diverges(self):
        with pytest.raises(tw.dynamics.FlowError, match="Descent itself diverges"):
            tw.central_flow(Bowl((1e300,)), {"w": np.ones(1)}, learning_rate=1e10, time=1e12)

    def test_of_too_few_steps(self, built_in):
        objective, start, _, _ = built_in
        with pytest.raises(tw.dynamics.FlowError, match="raise `max_steps`"):
            tw.central_flow(objective, start, learning_rate=RATE, time=20.0, max_steps=3)


class TestOfParabolas:
    """w_k = (1 - eta s)^k w_0 in closed form, whose centre is the origin: it has no length."""

    @pytest.mark.parametrize("stability", [1.95, 2.0, 2.002])
    def test_the_oscillation_around_the_origin_is_predicted(self, stability):
        rate = stability / 2
        central = tw.central_flow(
            Bowl((2.0,)), {"w": np.ones(1)}, learning_rate=rate, times=rate * np.arange(50)
        )
        assert np.isfinite(central.met_at)
        expected = (stability - 1) ** (2 * np.arange(50.0))
        # Two terms of the logarithm are kept: the rate is off by the third, (2 - stability)^3 / 3.
        slack = 100 * (2 - stability) ** 3 / 3 + 1e-4
        begin = round(central.met_at / rate)
        np.testing.assert_allclose(central.variance[begin:], expected[begin:], rtol=slack)

    def test_at_rest_far_below_the_edge_last_digits_are_no_oscillation(self):
        objective = tw.Objective(tw.LinearNetwork([1, 2, 1]), tw.TargetMatrix([[1.0]]))
        start = np.full((2, 1), 0.3), np.full((1, 2), 0.4)
        central = tw.central_flow(objective, start, learning_rate=0.01, time=30.0)
        assert np.isnan(central.met_at)

    @pytest.mark.parametrize("rate", [1.0, 1.1])
    def test_no_covariance_holds_a_parabola_at_the_edge(self, rate):
        with pytest.raises(tw.dynamics.FlowError, match="there is no finite oscillation there"):
            tw.central_flow(
                Bowl((2.0, 0.5)), {"w": np.ones(2)}, learning_rate=rate, time=20.0,
                method="covariance",
            )  # fmt: skip

    def test_the_covariance_at_a_saddle_at_zero(self):
        """Weights of zero have no length to which tolerances could be relative: it stays there."""
        objective = tw.Objective(tw.LinearNetwork([1, 2, 1]), tw.TargetMatrix([[1.0]]))
        start = np.zeros((2, 1)), np.zeros((1, 2))
        found = tw.central_flow(objective, start, learning_rate=0.5, time=20.0, method="covariance")
        assert not rows(found.weights).any()
