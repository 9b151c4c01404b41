"""A solver of one's own, in one file: fixed steps of the classical Runge-Kutta method.

And the solvers that come for nothing: those of diffrax.
"""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

import thalweg as tw
from thalweg.solvers import AbstractSolver, FlowError, Solution, Work


class RungeKutta4(AbstractSolver):
    """Steps of one length, or a little less, so that they meet the times that are recorded."""

    step: float

    def solve(self, task):
        run = self.walk(task)
        if not task.estimate_error:
            return run
        return run.compared_with(RungeKutta4(self.step / 2).walk(task), task)

    def walk(self, task):
        lengths = np.diff(np.asarray(task.times), prepend=0.0)
        counts = np.ceil(lengths / self.step).astype(int)
        if counts.sum() > task.max_steps:
            raise FlowError(f"{counts.sum()} steps are more than `max_steps`, {task.max_steps}.")
        point, points = task.start, []
        for length, count in zip(lengths, counts, strict=True):
            point = steps_from(point, task.objective, length / max(count, 1), count)
            points.append(point)
        return Solution.of(
            task,
            jax.tree.map(lambda *arrays: np.stack(arrays), *points),
            solver=self.name,
            work=Work.of(gradients=4 * counts.sum()),
            steps=int(counts.sum()),
            records={"shortest_step": np.min(lengths[counts > 0] / counts[counts > 0])},
        )


@eqx.filter_jit
def steps_from(point, objective, step, count):
    start, unravel = ravel_pytree(point)

    def velocity(vector):
        return -ravel_pytree(objective.gradient(unravel(vector)))[0]

    def advance(_, vector):
        first = velocity(vector)
        second = velocity(vector + step / 2 * first)
        third = velocity(vector + step / 2 * second)
        last = velocity(vector + step * third)
        return vector + step / 6 * (first + 2 * second + 2 * third + last)

    return unravel(jax.lax.fori_loop(0, count, advance, start))


# --- how it is used ------------------------------------------------------------------------------

x, y, _ = tw.data.gaussian_regression(jax.random.key(0), samples=20, features=3)
objective = tw.Objective(tw.LinearNetwork([3, 3, 1]), tw.Regression(x, y))
start = tw.initialisation.gaussian(objective.network, 0.5, key=jax.random.key(1))
times = np.linspace(0.0, 2.0, 5)


@pytest.fixture(scope="module")
def by_scipy():
    """Oracle: the same flow by SciPy, with an error far below all others here."""
    point, unravel = ravel_pytree(start)
    gradient = jax.jit(lambda y: ravel_pytree(objective.gradient(unravel(y)))[0])
    return solve_ivp(
        lambda _, y: -np.asarray(gradient(y)), (0.0, 2.0), np.asarray(point), "DOP853",
        t_eval=times, rtol=1e-12, atol=1e-14,
    ).y.T  # fmt: skip


def true_error(flow, points):
    rows = np.concatenate([array.reshape(times.size, -1) for array in flow.weights], axis=1)
    return np.linalg.norm(rows - points, axis=1)[1:]  # at the start there is none


def test_a_solver_of_ones_own(by_scipy):
    flow = tw.flow(objective, start, times=times, solver=RungeKutta4(0.05))
    true = true_error(flow, by_scipy)
    assert true.max() < 1e-4
    # Of order 4: the companion with half the steps has a 16th of the error, and higher orders.
    np.testing.assert_allclose(flow.error[1:] / true, 15 / 16, rtol=0.1)
    assert flow.solver == "rungekutta4"
    assert flow.gradient_evaluations == 4 * 40
    assert flow.companion_evaluations == 4 * 80
    assert flow.records["shortest_step"] == pytest.approx(0.05)


def test_it_serves_wherever_a_flow_does():
    """Batches, other times, the distance from descent, a limit that is too small."""
    solver = RungeKutta4(0.1)
    one = tw.flow(objective, start, times=times, solver=solver)
    both = jax.tree.map(lambda array: jnp.stack([array, 2 * array]), start)
    batch = tw.flow(objective, both, times=times, solver=solver, estimate_error=False)
    np.testing.assert_array_equal(batch.weights[0][0], one.weights[0])
    assert batch.records["shortest_step"].shape == (2,)
    run = tw.descend(objective, start, learning_rate=0.01, steps=200, record_every=50)
    at_its_times = one.at(run.times)
    assert at_its_times.solver == "rungekutta4"
    assert tw.distance(run, one).max() == tw.distance(run, at_its_times).max()
    with pytest.raises(FlowError, match="20 steps are more than `max_steps`, 5"):
        tw.flow(objective, start, times=times, solver=solver, max_steps=5)


def test_a_run_that_did_not_arrive_is_refused():
    """Steps of 4 are unstable, and thirty of them overflow."""
    with pytest.raises(FlowError, match=r"followed to time .* of 1000 only, by rungekutta4 steps"):
        tw.flow(objective, start, times=np.linspace(0, 1000, 5), solver=RungeKutta4(4.0))


@pytest.mark.parametrize("solver", [diffrax.Kvaerno5(), diffrax.Tsit5()])
def test_a_solver_of_diffrax(by_scipy, solver):
    flow = tw.flow(objective, start, times=times, rtol=1e-6, atol=1e-8, solver=solver)
    ratio = flow.error[1:] / true_error(flow, by_scipy)
    # The factor that all estimates by a companion are held to: tolerances bound steps, not errors.
    assert np.all((ratio > 0.1) & (ratio < 10)), ratio
    assert flow.solver == type(solver).__name__.lower()


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        ("explicit", r"`solver` must be .* got the text 'explicit'; use tw.solvers.Explicit\(\)"),
        (RungeKutta4, r"got the class RungeKutta4; make one: RungeKutta4\(\)"),
        (diffrax.Tsit5, r"got the class Tsit5; make one: Tsit5\(\)"),
        (None, r"`solver` must be a solver such as tw.solvers.Auto\(\) or one of diffrax"),
        (diffrax.Euler(), "must estimate the error of its steps, but diffrax's Euler takes fixed"),
        (diffrax.SPaRK(), "diffrax's SPaRK is made for stochastic or split equations"),
        (diffrax.KenCarp4(), "diffrax's KenCarp4 is made for stochastic or split equations"),
        (diffrax.SemiImplicitEuler(), "SemiImplicitEuler is made for stochastic or split"),
    ],
)
def test_what_is_no_solver_is_refused(solver, message):
    with pytest.raises(tw.InputError, match=message):
        tw.flow(objective, start, time=1.0, solver=solver)
