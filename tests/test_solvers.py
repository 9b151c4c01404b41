"""What solvers share: their names in files, and which one is chosen for what."""

from typing import get_args

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from scipy.linalg import expm

import thalweg as tw
from thalweg.dynamics import ValidatedFlow
from thalweg.experiment.settings import FlowSettings
from thalweg.objective import AbstractObjective
from thalweg.solvers import AbstractSolver, Auto, Chebyshev, Collocation, Explicit, Solution, Work
from thalweg.solvers.choosing import SOLVERS

X = 2 * np.diag([30.0, 3.0])
STIFF = tw.Regression(X, X @ np.ones((2, 1)))


def test_files_name_the_solvers_by_their_own_names():
    names = get_args(FlowSettings.model_fields["solver"].annotation)
    assert names == tuple(SOLVERS)
    assert [kind().name for kind in SOLVERS.values()] == list(names)


@pytest.mark.parametrize(
    ("network", "wanted"),
    [
        (tw.LinearNetwork([2, 3, 1]), "collocation"),
        (tw.HomogeneousNetwork([2, 3, 1]), "chebyshev"),  # it has kinks, but none is met
        (tw.LinearNetwork([2, 301, 1]), "chebyshev"),  # it has 903 weights
    ],
)
def test_auto_chooses_by_size_and_smoothness(network, wanted):
    """The curvature is some 900 and the horizon 10: far too stiff for explicit steps."""
    weights = tuple(0.5 * jnp.ones(shape) / shape[0] ** 0.5 for shape in network.shapes)
    objective = tw.Objective(network, STIFF)
    rough = {"rtol": 1e-2, "atol": 1e-2, "estimate_error": False}
    # What looks for kinks takes explicit steps, and gives up after that many.
    run = tw.flow(objective, weights, times=[0.0, 10.0], max_steps=1000, **rough)
    assert run.solver == wanted


def test_validated_is_the_long_form_of_validate():
    objective = tw.Objective(tw.LinearNetwork([2, 1]), tw.TargetMatrix([1.0, 2.0]))
    start, times = (jnp.ones((1, 2)),), [0.0, 0.5]
    short = tw.flow(objective, start, times=times, validate=True)
    long = tw.flow(objective, start, times=times, solver=tw.solvers.Validated())
    assert isinstance(long, ValidatedFlow)
    assert short.solver == long.solver == "validated"
    np.testing.assert_array_equal(short.radius, long.radius)


def test_a_kink_cannot_be_validated():
    objective = tw.Objective(tw.HomogeneousNetwork([2, 3, 1]), STIFF)
    weights = tuple(jnp.ones(shape) for shape in objective.network.shapes)
    with pytest.raises(tw.InputError, match="validated for linear networks, got"):
        tw.flow(objective, weights, time=1.0, solver=tw.solvers.Validated())


# --- any objective, over any pytree --------------------------------------------------------------


class Quadratic(AbstractObjective):
    """Half of theta^T A theta, with the weights {"bias": (), "slope": (2, 2)} as theta."""

    matrix: Array

    def __call__(self, weights):
        point = ravel_pytree(weights)[0]
        return point @ self.matrix @ point / 2


FACTOR = np.random.default_rng(0).normal(size=(5, 5))
QUADRATIC = Quadratic(jnp.asarray(FACTOR @ FACTOR.T))
START = {"bias": 1.0, "slope": jnp.asarray([[1.0, -2.0], [0.5, 3.0]])}
TIMES = np.array([0.0, 0.3, 1.0])


@pytest.mark.parametrize(
    "solver", [Auto(), Explicit(), Collocation(), Chebyshev(), diffrax.Kvaerno5()]
)
def test_any_objective_flows_over_any_pytree(solver):
    """Oracle: theta(t) = exp(-t A) theta(0)."""
    run = tw.flow(QUADRATIC, START, times=TIMES, rtol=1e-6, atol=1e-8, solver=solver)
    point = np.asarray(ravel_pytree(START)[0])
    exact = np.stack([expm(-time * FACTOR @ FACTOR.T) @ point for time in TIMES])
    found = np.concatenate([run.weights["bias"][:, None], run.weights["slope"].reshape(3, 4)], 1)
    error = np.linalg.norm(found - exact, axis=1)
    assert error.max() < 1e-3  # of |theta| = 4: Chebyshev's order 2 is what needs so much
    assert np.all(error <= 10 * run.error + 1e-12)  # the factor that estimates are held to
    assert all(type(array) is np.ndarray for array in jax.tree.leaves(run.weights))
    again = tw.flow(QUADRATIC, run.final, times=[0.0], solver=solver)
    np.testing.assert_array_equal(again.weights["slope"][0], run.weights["slope"][-1])


@pytest.mark.parametrize("solver", [Explicit(), Chebyshev()])
def test_another_number_of_times_compiles_nothing(compilations, solver):
    rough = {"rtol": 1e-4, "atol": 1e-4, "estimate_error": False, "solver": solver}
    long = tw.flow(QUADRATIC, START, times=np.linspace(0, 1, 8), **rough)
    with compilations("_integrate", "_loss_along") as count:
        short = tw.flow(QUADRATIC, START, times=np.linspace(0, 1, 8)[[0, 1, 2, 4, 7]], **rough)
        assert count() == 0
    assert short.loss.shape == (5,)
    np.testing.assert_array_equal(short.loss, long.loss[[0, 1, 2, 4, 7]])
    np.testing.assert_array_equal(short.final["slope"], long.final["slope"])
    with compilations("_integrate") as count:  # which would be seen
        tw.flow(QUADRATIC, START, times=np.linspace(0, 1, 9), **rough)
        assert count() == 1


class Declared(Quadratic):
    """The same, with shapes by which batch axes are told."""

    shapes = {"bias": (), "slope": (2, 2)}  # noqa: RUF012


def test_batch_axes_are_told_where_shapes_are_declared():
    objective = Declared(QUADRATIC.matrix)
    many = jax.tree.map(lambda array: jnp.stack([array, 2 * array]), START | {"bias": jnp.ones(())})
    run = tw.flow(objective, many, times=TIMES, solver=Explicit())
    alone = tw.flow(QUADRATIC, START, times=TIMES, solver=Explicit())
    assert run.loss.shape == (2, 3)
    np.testing.assert_array_equal(run.weights["slope"][0], alone.weights["slope"])


class Kinked(Quadratic):
    """A quadratic that says that it has kinks."""

    smooth = False


def test_auto_goes_by_what_the_objective_declares():
    late = {"times": [0.0, 3e4], "rtol": 1e-2, "atol": 1e-2, "estimate_error": False}
    assert tw.flow(QUADRATIC, START, **late).solver == "collocation"
    assert tw.flow(Kinked(QUADRATIC.matrix), START, **late).solver == "chebyshev"


def test_only_networks_can_be_validated():
    with pytest.raises(tw.InputError, match="validated for linear networks, got a Quadratic"):
        tw.flow(QUADRATIC, START, time=1.0, validate=True)


class Noting(AbstractSolver):
    """Stays where it is, and notes how many weights are positive; where none is, it says nothing.

    As a solver for kinks notes those that the flow slides along.
    """

    def solve(self, task):
        positive = sum(int(jnp.sum(array > 0)) for array in jax.tree.leaves(task.start))
        weights = jax.tree.map(lambda array: np.stack([array] * task.times.size), task.start)
        return Solution.of(
            task, weights, solver=self.name, work=Work.of(), steps=0,
            records={"positive": np.full(task.times.size, positive)} if positive else {},
        )  # fmt: skip


def test_records_of_a_solver_are_those_of_each_run():
    objective = tw.Objective(tw.LinearNetwork([2, 1]), tw.TargetMatrix([1.0, 2.0]))
    starts = (jnp.asarray([[[1.0, 2.0]], [[1.0, -2.0]], [[-1.0, -2.0]]]),)
    run = tw.flow(objective, starts, times=TIMES, solver=Noting())
    wanted = [[2, 2, 2], [1, 1, 1], [np.nan] * 3]
    np.testing.assert_array_equal(run.records["positive"], wanted)
    assert np.all(np.isnan(run.error))
