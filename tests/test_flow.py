"""The flow against closed forms, conserved quantities, scipy's Radau, and its own estimate."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

import thalweg as tw
from thalweg import initialisation
from thalweg.dynamics.exact import aligned_modes, one_output_weights, two_layers
from thalweg.dynamics.flow import flow
from thalweg.dynamics.trajectory import distance
from thalweg.solvers import Chebyshev, Collocation, Explicit, FlowError
from thalweg.solvers.steady import KRYLOV

# The tolerance that each solver is asked for where its error is to be compared with the truth: far
# above rounding, and not so small that order 2 takes long.
TOLERANCES = {Explicit(): 1e-8, Collocation(): 1e-8, Chebyshev(): 1e-5}
SOLVERS = [pytest.param(solver, id=solver.name) for solver in TOLERANCES]
ACCURATE = SOLVERS[:2]


def distances(weights, others):
    """The Euclidean distance in weight space at each time."""
    squares = sum(
        np.sum((np.asarray(a) - np.asarray(b)) ** 2, axis=tuple(range(1, np.ndim(a))))
        for a, b in zip(weights, others, strict=True)
    )
    return np.sqrt(squares)


def error_ratios(run, truth):
    """The estimated over the true error, at every time but the start."""
    later = run.times > 0
    return run.error[later] / distances(run.weights, truth)[later]


def assert_error_is_right(run, truth):
    """The estimate is within a factor 10 of the true error, at every time but the start."""
    ratios = error_ratios(run, truth)
    assert np.all((ratios > 0.1) & (ratios < 10)), ratios


# --- closed forms ------------------------------------------------------------------------------

ONE_OUTPUT = tw.Objective(tw.LinearNetwork([3, 3, 2, 1]), tw.TargetMatrix([0.6, 0.0, 0.8]))
ONE_OUTPUT_START = initialisation.balanced_from(ONE_OUTPUT.network, [[0.05, -0.1, 0.02]])
TIMES = np.linspace(0.0, 12.0, 7)  # seven times wherever possible: another number compiles anew


@pytest.mark.parametrize("solver", ACCURATE)
def test_one_output_follows_the_closed_form(solver):
    """Oracle: elkabetz2021:exactflow; depth 3, from near the saddle to the minimum."""
    run = flow(ONE_OUTPUT, ONE_OUTPUT_START, times=TIMES, rtol=1e-12, atol=1e-14, solver=solver)
    exact = one_output_weights(ONE_OUTPUT_START, [0.6, 0.0, 0.8], TIMES)
    assert distances(run.weights, exact).max() < 1e-9  # the acceptance; 1e-11 was seen
    assert run.error.max() < 1e-9


@pytest.mark.parametrize("solver", SOLVERS)
def test_error_is_that_against_the_closed_form(solver):
    rtol = TOLERANCES[solver]
    run = flow(ONE_OUTPUT, ONE_OUTPUT_START, times=TIMES, rtol=rtol, atol=rtol / 100, solver=solver)
    assert_error_is_right(run, one_output_weights(ONE_OUTPUT_START, [0.6, 0.0, 0.8], TIMES))


def test_aligned_modes_follow_the_closed_form():
    """Oracle: singular values of a product that starts with the singular vectors of the target."""
    left, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    start, goal, depth = np.array([0.5, 0.2, 0.05]), np.array([2.0, 1.0, 0.1]), 4
    objective = tw.Objective(tw.LinearNetwork([3] * (depth + 1)), tw.TargetMatrix(left * goal))
    weights = initialisation.balanced_from(objective.network, left * start)
    run = flow(objective, weights, times=TIMES, rtol=1e-12, atol=1e-14)
    products = np.stack(
        [objective.network.end_to_end(tuple(a[k] for a in run.weights)) for k in range(TIMES.size)]
    )
    modes = aligned_modes(start, goal, depth, TIMES)
    assert np.abs(products - left * modes[:, None, :]).max() < 1e-9  # the acceptance


def test_two_layers_follow_the_closed_form():
    """Oracle: the Riccati equation, with several outputs."""
    rng = np.random.default_rng(1)
    target, matrix = rng.normal(size=(2, 3)), 0.2 * rng.normal(size=(2, 3))
    objective = tw.Objective(tw.LinearNetwork([3, 4, 2]), tw.TargetMatrix(target))
    weights = initialisation.balanced_from(objective.network, matrix)
    run = flow(objective, weights, times=TIMES, rtol=1e-11, atol=1e-13)
    products = run.weights[1] @ run.weights[0]
    assert np.abs(products - two_layers(weights, target, TIMES)).max() < 1e-9  # the acceptance


# --- stiff problems ----------------------------------------------------------------------------


def stiff_case(condition, widths, horizon, seed):
    """A regression whose input moment has this condition number, and a Gaussian start."""
    rng = np.random.default_rng(seed)
    features, outputs, samples = widths[0], widths[-1], 4 * widths[0]
    white = np.sqrt(samples) * np.linalg.qr(rng.normal(size=(samples, features)))[0]
    turn = np.linalg.qr(rng.normal(size=(features, features)))[0]
    x = white * np.sqrt(np.geomspace(1 / condition, 1.0, features)) @ turn.T
    y = x @ rng.normal(size=(features, outputs)) + 0.1 * rng.normal(size=(samples, outputs))
    objective = tw.Objective(tw.LinearNetwork(widths), tw.Regression(x, y))
    weights = tuple(
        jnp.asarray(rng.normal(size=shape) / np.sqrt(shape[1]))
        for shape in objective.network.shapes
    )
    return objective, weights, np.array([0.01, 0.1, 0.5, 1.0]) * horizon


STIFF = {
    "condition 1e2, depth 2": stiff_case(1e2, [4, 4, 2], 200.0, 1),
    "condition 1e3, depth 3": stiff_case(1e3, [4, 3, 3, 2], 400.0, 2),
    "condition 1e4, depth 3": stiff_case(1e4, [4, 3, 3, 2], 800.0, 3),
}


@pytest.fixture(scope="module", params=list(STIFF))
def stiff(request):
    """A stiff case with scipy's solution, integrated from one output time to the next."""
    objective, weights, times = STIFF[request.param]
    point, unravel = ravel_pytree(weights)
    gradient = jax.jit(lambda y: ravel_pytree(objective.gradient(unravel(y)))[0])
    hessian = jax.jit(lambda y: objective.hessian(unravel(y)))
    points, last, y = [], 0.0, np.asarray(point)
    for time in times:
        y = solve_ivp(
            lambda _, v: -np.asarray(gradient(v)), (last, time), y, "Radau",
            jac=lambda _, v: -np.asarray(hessian(v)), rtol=1e-12, atol=1e-13,
        ).y[:, -1]  # fmt: skip
        points.append(y)
        last = time
    return objective, weights, times, jax.vmap(unravel)(jnp.asarray(np.stack(points)))


def test_collocation_equals_radau(stiff):
    """The acceptance; scipy's own error is some 1e-11."""
    objective, weights, times, truth = stiff
    run = flow(objective, weights, times=times, rtol=1e-12, atol=1e-14, solver=Collocation())
    assert distances(run.weights, truth).max() < 1e-10
    assert run.error.max() < 1e-10


def test_explicit_flow_equals_radau(stiff):
    objective, weights, times, truth = stiff
    run = flow(objective, weights, times=times, rtol=1e-12, atol=1e-14, solver=Explicit())
    assert distances(run.weights, truth).max() < 1e-10


@pytest.mark.parametrize("solver", SOLVERS)
def test_error_is_that_against_radau(stiff, solver):
    objective, weights, times, truth = stiff
    rtol = TOLERANCES[solver]
    run = flow(objective, weights, times=times, rtol=rtol, atol=rtol / 100, solver=solver)
    assert_error_is_right(run, truth)


def test_collocation_needs_few_gradients_where_explicit_ones_need_many():
    """Stability alone costs an explicit method 2 T rho gradients."""
    objective, weights, _ = STIFF["condition 1e4, depth 3"]
    run = flow(objective, weights, times=[1.0, 1e2, 1e4, 2e5], estimate_error=False)
    assert run.solver == "collocation"
    radius = np.abs(np.linalg.eigvalsh(objective.hessian(run.final))).max()
    assert 20 * run.gradient_evaluations < 2 * 2e5 * radius


@pytest.mark.parametrize("solver", ACCURATE)
def test_conserved_quantities_are_conserved(solver):
    """W_{j+1}^T W_{j+1} - W_j W_j^T is constant; the acceptance is a drift below 1e-9."""
    objective, weights, _ = STIFF["condition 1e3, depth 3"]
    times = [0.0, 1.0, 10.0, 100.0]
    run = flow(objective, weights, times=times, rtol=1e-10, atol=1e-12, solver=solver)
    for lower, upper in zip(run.weights[:-1], run.weights[1:], strict=True):
        imbalance = np.swapaxes(upper, 1, 2) @ upper - lower @ np.swapaxes(lower, 1, 2)
        assert np.abs(imbalance - imbalance[0]).max() < 1e-9


# --- steady states -----------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_flow_stops_where_it_has_come_to_rest(solver):
    """The minimum is reached at rate 1 or faster: what is left is what `steady` says."""
    times = np.append(np.linspace(0.0, 30.0, 6), 1e3)
    settings = {"rtol": 1e-8, "atol": 1e-10, "solver": solver}
    if solver == Chebyshev():
        settings |= {"rtol": 1e-5, "atol": 1e-7}
    run = flow(ONE_OUTPUT, ONE_OUTPUT_START, times=times, steady=1e-4, **settings)
    exact = one_output_weights(ONE_OUTPUT_START, [0.6, 0.0, 0.8], times)
    assert 5 < run.steady_at < 30
    left = distances(run.weights, exact)[-1]
    assert left < run.error[-1]
    assert left < 2e-4 + 10 * settings["rtol"]  # `steady` and the linearisation's error in it
    for array in run.weights:
        np.testing.assert_array_equal(array[-1], array[-2])
    slower = flow(ONE_OUTPUT, ONE_OUTPUT_START, times=times, **settings)
    assert np.isnan(slower.steady_at)
    assert run.gradient_evaluations < slower.gradient_evaluations


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_plateau_near_a_saddle_is_not_steady(solver):
    """The gradient at the start is below `steady`, but it grows."""
    weights = tuple(0.02 * array for array in ONE_OUTPUT_START)
    slope = ravel_pytree(ONE_OUTPUT.gradient(weights))[0]
    times = np.linspace(0.0, 600.0, 7)
    run = flow(ONE_OUTPUT, weights, times=times, steady=1e-3, rtol=1e-5, solver=solver)
    assert np.linalg.norm(slope) < 1e-3
    assert run.loss[1] == pytest.approx(0.5, rel=1e-3)  # still on the plateau
    assert run.loss[-1] < 1e-5  # and yet it went on to the minimum
    assert run.steady_at > 100


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_flow_that_simply_ends_has_not_come_to_rest(solver):
    """No way is left at the end of any flow, here at a speed of about 0.2."""
    settings = {"rtol": 1e-5, "atol": 1e-7, "solver": solver}
    plain, watched = (
        flow(
            ONE_OUTPUT, ONE_OUTPUT_START, times=np.linspace(0.0, 1.0, 7), steady=length, **settings
        )
        for length in (None, 1e-9)
    )
    assert np.linalg.norm(ravel_pytree(ONE_OUTPUT.gradient(watched.final))[0]) > 0.1
    assert np.isnan(watched.steady_at)
    for one, other in zip(plain.weights, watched.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_slow_direction_is_waited_for():
    """The fast direction has the larger gradient and comes to rest; the slow one has 10 to go."""
    x = np.sqrt(2) * np.diag([1.0, 1e-4])
    objective = tw.Objective(tw.LinearNetwork([2, 1]), tw.Regression(x, np.zeros(2)))
    weights = (jnp.array([[1e-3, 10.0]]),)
    run = flow(objective, weights, times=[1e9], steady=1e-2, rtol=1e-6, solver=Collocation())
    assert np.abs(run.final[0]).max() < 0.02  # `steady`, and the tolerance
    assert run.steady_at > 1e8


# --- the result --------------------------------------------------------------------------------


def test_flow_records_the_start_and_201_times():
    run = flow(ONE_OUTPUT, ONE_OUTPUT_START, time=2.0)
    np.testing.assert_array_equal(run.times, np.linspace(0.0, 2.0, 201))
    for array, start in zip(run.weights, ONE_OUTPUT_START, strict=True):
        np.testing.assert_array_equal(array[0], start)
    assert run.error[0] < 1e-14
    value = ONE_OUTPUT(tuple(jnp.asarray(array) for array in run.final))
    assert run.loss[-1] == pytest.approx(float(value), rel=1e-14)  # the same function, rounding
    assert np.all(np.diff(run.loss) < 0)


def test_at_gives_the_same_motion_at_other_times():
    run = flow(ONE_OUTPUT, ONE_OUTPUT_START, times=TIMES + 0.5, solver=Explicit())
    other = run.at(0.5 * TIMES + 0.5)
    for mine, theirs in zip(run.weights, other.weights, strict=True):
        np.testing.assert_allclose(theirs[::2], mine[:4], atol=1e-7)  # ten times the tolerance
    assert distance(other, run).max() < 1e-15  # integrated again, to the same digits


def test_a_batch_is_its_members():
    """Starts with two batch axes and times of their own give what each gives alone."""
    keys = jax.random.split(jax.random.key(0), (2, 1))
    weights = jax.vmap(
        jax.vmap(lambda key: initialisation.gaussian(ONE_OUTPUT.network, 0.5, key=key))
    )(keys)
    times = np.stack([TIMES, 0.5 * TIMES + 0.1])[:, None]
    run = flow(ONE_OUTPUT, weights, times=times, solver=Explicit())
    assert run.loss.shape == (2, 1, 7)
    assert run.error.shape == (2, 1, 7)
    assert run.gradient_evaluations.shape == (2, 1)
    for i in range(2):
        start = tuple(array[i, 0] for array in weights)
        alone = flow(ONE_OUTPUT, start, times=times[i, 0], solver=Explicit())
        for mine, theirs in zip(run.weights, alone.weights, strict=True):
            np.testing.assert_array_equal(mine[i, 0], theirs)
    shared = flow(ONE_OUTPUT, weights, times=TIMES, solver=Explicit())
    np.testing.assert_array_equal(shared.loss[0], run.loss[0])
    single = flow(ONE_OUTPUT, ONE_OUTPUT_START, times=times[:, 0], solver=Explicit())
    assert single.weights[0].shape == (2, 7, 3, 3)


def test_time_zero_alone_is_the_start():
    run = flow(ONE_OUTPUT, ONE_OUTPUT_START, times=[0.0])
    np.testing.assert_array_equal(run.weights[0][0], ONE_OUTPUT_START[0])


def test_auto_leaves_explicit_steps_where_the_curvature_grows():
    """Flat at the start, so that explicit steps are tried; far too sharp for it later."""
    x = 2 * np.diag([30.0, 3.0, 0.3, 0.1])
    network = STIFF["condition 1e3, depth 3"][0].network
    objective = tw.Objective(network, tw.Regression(x, x @ np.ones((4, 2))))
    weights = tuple(1e-3 * jnp.ones(shape) for shape in network.shapes)
    run = flow(objective, weights, times=[1.0, 10.0, 50.0, 100.0], rtol=1e-6)
    assert run.solver == "collocation"
    assert run.hessian_evaluations > 0
    assert run.gradient_evaluations > 13 * 1000  # the attempt is counted


FOREIGN = [diffrax.Tsit5(), diffrax.Heun()]  # with and without a stage that two steps share


@pytest.mark.parametrize("solver", [*SOLVERS, *FOREIGN])
def test_gradients_are_counted_exactly(solver):
    """Oracle: a network that counts its own evaluations from inside of the compiled loop."""
    count = 0

    def tick(_):
        nonlocal count
        count += 1

    def apply(weights, x):
        jax.debug.callback(tick, weights[0][0, 0])  # an argument, to be called for each of a batch
        return jnp.tanh(x @ weights[0].T) @ weights[1].T

    rng = np.random.default_rng(0)
    network = tw.Model(apply, [(3, 2), (1, 3)])
    problem = tw.Regression(rng.normal(size=(8, 2)), rng.normal(size=8))
    weights = tuple(jnp.asarray(rng.normal(size=shape)) for shape in network.shapes)
    objective = tw.Objective(network, problem)
    run = flow(objective, weights, times=[0.0, 9.0], rtol=1e-5, solver=solver, estimate_error=False)
    jax.effects_barrier()
    # A Hessian evaluates the network once for all of its columns; the loss is recorded twice.
    work = run.gradient_evaluations + run.hvp_evaluations + run.hessian_evaluations
    assert count == int(work) + 2


@pytest.mark.parametrize("solver", SOLVERS)
def test_nothing_is_compiled_twice(solver):
    """New starts, data, tolerances, horizons and output times of the same shapes reuse the code."""
    compiled = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(duration)

    def run(scale, rtol, times):
        problem = tw.TargetMatrix(scale * np.array([0.6, 0.0, 0.8]))
        objective = tw.Objective(ONE_OUTPUT.network, problem)
        weights = tuple(scale * array for array in ONE_OUTPUT_START)
        flow(objective, weights, times=times, rtol=rtol, atol=rtol / 10, solver=solver)

    run(1.0, 1e-4, TIMES)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        run(1.5, 1e-5, 0.5 * TIMES + 0.1)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not compiled


def test_a_flow_is_a_pytree():
    run = flow(ONE_OUTPUT, ONE_OUTPUT_START, times=TIMES, solver=Explicit())
    doubled = eqx.tree_at(lambda r: r.loss, run, 2 * run.loss)
    assert doubled.loss[0] == 2 * run.loss[0]


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "either `time`, the horizon, or `times`"),
        ({"time": 1.0, "times": [1.0]}, "either `time`, the horizon, or `times`"),
        ({"time": 0.0}, "`time` must be one positive, finite number, got 0.0"),
        ({"time": np.inf}, "`time` must be one positive, finite number, got inf"),
        ({"times": [1.0, 1.0]}, "`times` must increase and not be negative"),
        ({"times": [-1.0, 1.0]}, "`times` must increase and not be negative"),
        ({"times": [1.0, np.nan]}, "`times` must be finite"),
        ({"times": []}, "`times` must hold at least one time"),
        ({"time": 1.0, "rtol": -1e-8}, "`rtol` must lie between 1e-12 and 1, got -1e-08"),
        ({"time": 1.0, "rtol": 1e-15}, "`rtol` must lie between 1e-12 and 1, got 1e-15"),
        ({"time": 1.0, "atol": 0.0}, "`atol` must be one positive, finite number, got 0.0"),
        ({"time": 1.0, "steady": -1.0}, "`steady` must be one positive, finite number"),
        ({"time": 1.0, "max_steps": 0}, "`max_steps` must be a whole number >= 1"),
    ],
)
def test_bad_input_is_refused(settings, message):
    with pytest.raises(tw.InputError, match=message):
        flow(ONE_OUTPUT, ONE_OUTPUT_START, **settings)


def test_batch_axes_must_agree():
    weights = tuple(jnp.zeros((2, *array.shape)) for array in ONE_OUTPUT_START)
    with pytest.raises(tw.InputError, match="`times` must have the batch axes of the weights"):
        flow(ONE_OUTPUT, weights, times=np.ones((3, 1)))
    with pytest.raises(tw.InputError, match="same batch axes in every array"):
        flow(ONE_OUTPUT, (weights[0], *ONE_OUTPUT_START[1:]), time=1.0)


def test_looking_for_rest_is_counted():
    """One gradient and one product more for each accepted step, and KRYLOV products at the end.

    It ends there because no way is left; the steps are the same.
    """
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1]), tw.TargetMatrix([1.0]))
    start = (np.full((1, 1), 0.5), np.full((1, 1), 0.6))
    plain, watched = (
        tw.flow(objective, start, time=1.0, solver=Explicit(), steady=length)
        for length in (None, 1e-12)
    )
    assert plain.hvp_evaluations == 0
    more = watched.gradient_evaluations - plain.gradient_evaluations
    assert more > 1
    assert watched.hvp_evaluations == more + KRYLOV


def test_dense_hessians_of_a_large_network_are_refused():
    objective = tw.Objective(tw.LinearNetwork([100, 100, 1]), tw.TargetMatrix(np.ones(100)))
    weights = tuple(jnp.zeros(shape) for shape in objective.network.shapes)
    with pytest.raises(tw.InputError, match="needs dense Hessians, of at most 6000 weights"):
        flow(objective, weights, time=1.0, solver=Collocation())


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_flow_that_takes_too_long_says_what_to_do(solver):
    with pytest.raises(FlowError, match=r"followed to time .* of 50 only.*raise `max_steps` \(5\)"):
        flow(ONE_OUTPUT, ONE_OUTPUT_START, times=50 / 12 * TIMES, solver=solver, max_steps=5)


@pytest.mark.parametrize("seed", [6, 28])
def test_the_error_is_covered_over_the_first_step_too(seed):
    """Oracle: the same flow with a tolerance ten thousand times smaller.

    Run and companion once took the same first step, and agreed there to rounding.
    """
    rng = np.random.default_rng(seed)
    network = tw.LinearNetwork([3, 3, 3, 1])
    objective = tw.Objective(network, tw.Regression(rng.normal(size=(12, 3)), rng.normal(size=12)))
    weights = tuple(0.5 * rng.normal(size=shape) for shape in network.shapes)
    times = np.linspace(0, 3, 101)
    found = tw.flow(objective, weights, times=times)
    exact = tw.flow(objective, weights, times=times, rtol=1e-12, atol=1e-14)
    true = tw.distance(found, exact)
    # Where errors pass through each other the distance to a companion may be small by chance.
    assert np.mean(true <= 10 * found.error + 1e-12) > 0.9
    assert true.max() <= 10 * found.error.max()
