"""What losses declare holds; what they do not declare is refused, or differentiated."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Array

import thalweg as tw
from thalweg.curvature.balls import loss_bounds
from thalweg.curvature.bounds import shallow_eigenvalue_bound
from thalweg.problem import AbstractMarginLoss, AbstractProblem, OutputBounds, Rounding
from thalweg.problem.base import units
from thalweg.problem.label_losses import LABEL_LOSSES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3))
SIGNS = np.array([1, -1, 1, 1, -1, -1])
ROUNDING = 1e-12  # of some dozen operations, where bounds are attained
CANCELLED = 1e-14  # what differentiating logarithms of sums leaves of terms of size one
PROBLEMS = {
    "regression": tw.Regression(X, RNG.normal(size=(6, 2)), 0.7),
    "target": tw.TargetMatrix(RNG.normal(size=(2, 3))),
    "cross_entropy": tw.Classification(X, np.arange(6) % 3),
    "logistic": tw.Classification(X, SIGNS, loss="logistic"),
    "exponential": tw.Classification(X, SIGNS, loss="exponential"),
}


class SquaredHinge(AbstractMarginLoss):
    """max(0, 1 - m)^2, of which nothing is declared."""

    def value(self, margins):
        return jnp.maximum(1 - margins, 0) ** 2


class BoundedHinge(SquaredHinge):
    """The same; its second derivative is 0 or 2, and jumps at m = 1."""

    def margin_bounds(self, margins, changes):
        second = jnp.where(margins - changes > 1, 0.0, 2.0)
        return OutputBounds(second, jnp.where(jnp.abs(margins - 1) > changes, 0.0, jnp.inf))

    def margin_rounding(self, margins):
        unit = units(margins.dtype)
        return unit * self.value(margins), unit * jnp.abs(self.derivative(margins))


class PlainSquare(AbstractProblem):
    """Half the mean squared error by its values alone, with the bounds of a square."""

    inputs: Array
    targets: Array

    @property
    def shape(self):
        return self.targets.shape[1], self.inputs.shape[1]

    def output_value(self, outputs):
        return jnp.mean(jnp.sum((outputs - self.targets) ** 2, axis=1)) / 2

    def output_bounds(self, outputs, changes):
        return OutputBounds(jnp.ones_like(changes), jnp.zeros_like(changes))

    def output_rounding(self, outputs):
        value, unit = self.output_value(outputs), units(outputs.dtype)
        return Rounding(unit * value, unit * jnp.sqrt(2 * value))


@eqx.filter_jit
def sample_derivatives(problem, outputs, direction):
    """Oracle: each sample's gradient, Hessian, and its change along a line, by differentiation."""
    count = outputs.shape[0]

    def own(index, row):
        return count * problem.output_value(outputs.at[index].set(row))

    def at(index, row, along):
        def hessian(point):
            return jax.hessian(lambda z: own(index, z))(point)

        second, change = jax.jvp(hessian, (row,), (along,))
        return (
            jnp.linalg.norm(jax.grad(lambda z: own(index, z))(row)),
            jnp.linalg.norm(second, 2),
            jnp.linalg.norm(change, 2),
        )

    return jax.vmap(at)(jnp.arange(count), outputs, direction)


@eqx.filter_jit
def declared(problem, outputs, changes):
    return problem.output_bounds(outputs, changes)


@pytest.mark.parametrize("name", PROBLEMS)
@given(seed=st.integers(0, 2**31 - 1), size=st.floats(0.01, 20.0), reach=st.floats(0.0, 3.0))
def test_each_loss_is_bounded_as_it_declares(name, seed, size, reach):
    random, problem = np.random.default_rng(seed), PROBLEMS[name]
    shape = (problem.inputs.shape[0], problem.shape[0])
    centre, changes = size * random.standard_normal(shape), reach * random.uniform(size=shape[0])
    bounds = declared(problem, jnp.asarray(centre), jnp.asarray(changes))
    for part in (0.0, 0.5, 1.0):  # of the way to the boundary of each sample's ball
        step, along = (
            each / np.linalg.norm(each, axis=1, keepdims=True)
            for each in random.standard_normal((2, *shape))
        )
        outputs = jnp.asarray(centre + part * changes[:, None] * step)
        gradient, second, third = sample_derivatives(problem, outputs, jnp.asarray(along))
        assert np.all(second <= bounds.second * (1 + ROUNDING) + CANCELLED)
        assert np.all(third <= bounds.third * (1 + ROUNDING) + CANCELLED)
        if problem.largest_gradient is not None:
            assert np.all(gradient <= problem.largest_gradient * (1 + ROUNDING))
        assert problem.output_value(outputs) >= problem.least_output_value


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_declared_bound_is_far_above_what_occurs(name):
    """A bound of infinity would hold, too: at a point each is reached within a factor of three."""
    problem = PROBLEMS[name]
    outputs = jnp.asarray(0.1 * RNG.normal(size=(problem.inputs.shape[0], problem.shape[0])))
    bounds = declared(problem, outputs, jnp.zeros(outputs.shape[0]))
    second = sample_derivatives(problem, outputs, jnp.ones_like(outputs))[1]
    assert np.all(bounds.second <= 3 * second)


def test_the_largest_gradients_are_approached():
    far = {"cross_entropy": jnp.full((6, 3), -50.0).at[:, 0].set(50.0), "logistic": -50.0 * SIGNS}
    for name, outputs in far.items():
        problem = PROBLEMS[name]
        outputs = jnp.reshape(outputs, (6, -1))
        gradient = sample_derivatives(problem, outputs, jnp.ones_like(outputs))[0]
        np.testing.assert_allclose(np.max(gradient), problem.largest_gradient, rtol=1e-12)
    assert PROBLEMS["exponential"].largest_gradient is None
    assert PROBLEMS["regression"].largest_gradient is None


def test_what_is_not_defined_is_differentiated():
    """Oracle: Regression, which has all in closed form from its factors."""
    y = RNG.normal(size=(6, 2))
    plain, known = PlainSquare(jnp.asarray(X), jnp.asarray(y)), tw.Regression(X, y)
    matrix, direction = jnp.asarray(RNG.normal(size=(2, 2, 3)))
    lanes = jnp.stack([matrix, direction], axis=-1)
    outputs, change = known.inputs @ matrix.T, known.inputs @ direction.T
    for one, other in (
        (plain.value_and_gradient(matrix), known.value_and_gradient(matrix)),
        (plain.value_and_gradient_in_lanes(lanes), known.value_and_gradient_in_lanes(lanes)),
        (plain.hessian_action(matrix, direction), known.hessian_action(matrix, direction)),
        (plain.output_gradient(outputs), known.output_gradient(outputs)),
        (
            plain.output_hessian_action(outputs, change),
            known.output_hessian_action(outputs, change),
        ),
        # One factor for all samples: the weighted moment is the moment.
        (loss_bounds(plain, matrix, 1.0).second, loss_bounds(known, matrix, 1.0).second),
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), one, other)
    assert plain.accuracy is None
    assert plain.least_value == -np.inf
    assert plain.loss_name == "PlainSquare"


def test_the_rounding_of_a_matrix_comes_from_that_of_outputs():
    """Oracle: long doubles, on samples whose features nearly cancel."""
    x = np.array([[1e8, 1.0], [1e8, -2.0], [1.0, 1e8]])
    y = np.array([[0.5], [0.25], [-1.0]])
    matrix = np.array([[1e-8 / 3, 1.0 / 7]])
    problem = PlainSquare(jnp.asarray(x), jnp.asarray(y))
    off = problem.rounding(jnp.asarray(matrix))
    residual = x.astype(np.longdouble) @ matrix.T.astype(np.longdouble) - y
    value, gradient = map(np.longdouble, problem.value_and_gradient(jnp.asarray(matrix)))
    exact = residual.T @ x / 3
    assert abs(value - np.sum(residual**2) / 6) <= float(off.value) < 1e-3 * value
    assert np.sqrt(np.sum((gradient - exact) ** 2)) <= float(off.gradient)
    assert off.gradient < 1e-3 * float(np.sqrt(np.sum(exact**2)))


def test_a_margin_loss_is_given_as_an_object():
    problem = tw.Classification(X, SIGNS, loss=SquaredHinge())
    outputs = RNG.normal(size=(6, 1))
    below = np.maximum(1 - SIGNS[:, None] * outputs, 0)
    assert problem.output_value(outputs) == pytest.approx(np.mean(below**2), rel=1e-14)
    slopes = -2 * SIGNS[:, None] * below / 6
    np.testing.assert_allclose(problem.output_gradient(outputs), slopes, rtol=1e-14)
    bent = problem.output_hessian_action(outputs, np.ones((6, 1)))
    np.testing.assert_allclose(bent, 2 * (below > 0) / 6, rtol=1e-14)
    assert problem.accuracy(outputs) == np.mean(SIGNS * outputs[:, 0] > 0)
    assert problem.loss_name == "SquaredHinge"
    with pytest.raises(tw.InputError, match=r"one of cross_entropy.*or an AbstractMarginLoss"):
        tw.Classification(X, SIGNS, loss="hinge")


def test_a_margin_loss_has_no_bounds_but_its_own():
    matrix = jnp.asarray(RNG.normal(size=(1, 3)))
    silent = tw.Classification(X, SIGNS, loss=SquaredHinge())
    with pytest.raises(tw.InputError, match=r"`SquaredHinge` declares no bounds.*`margin_bounds`"):
        loss_bounds(silent, matrix, 0.1)
    with pytest.raises(tw.InputError, match=r"`SquaredHinge` declares no.*`margin_rounding`"):
        silent.rounding(matrix)
    with pytest.raises(tw.InputError, match=r"'SquaredHinge' declares none \(`largest_gradient`\)"):
        shallow_eigenvalue_bound(tw.Objective(tw.LinearNetwork([3, 2, 1]), silent))
    spoken = tw.Classification(X, SIGNS, loss=BoundedHinge())
    bounds = loss_bounds(spoken, matrix, 100.0)  # every margin may pass 1
    assert bounds.second == pytest.approx(2 * np.linalg.norm(X, 2) ** 2 / 6, rel=1e-12)
    assert bounds.third == np.inf
    far = loss_bounds(spoken, jnp.zeros((1, 3)), 1e-6)  # none does
    assert far.third == 0


def test_a_loss_without_a_series_is_not_validated():
    problem = tw.Classification(X, SIGNS, loss=SquaredHinge())
    objective = tw.Objective(tw.LinearNetwork([3, 1]), problem)
    with pytest.raises(tw.InputError, match=r"`SquaredHinge` has no power series.*label_series"):
        tw.flow(objective, (np.zeros((1, 3)),), time=1.0, validate=True)


class TwiceLogistic(LABEL_LOSSES["logistic"].__class__):
    """Against the advice of type checkers: the series of its base is that of another flow."""

    def value(self, margins):
        return 2 * jax.nn.softplus(-margins)


class OwnClassification(tw.Classification):
    """A problem that may be anything."""


@pytest.mark.parametrize(
    "problem",
    [
        tw.Classification(X, SIGNS, loss=TwiceLogistic()),
        OwnClassification(X, SIGNS, loss="logistic"),
    ],
)
def test_a_series_is_not_inherited(problem):
    objective = tw.Objective(tw.LinearNetwork([3, 1]), problem)
    with pytest.raises(tw.InputError, match=r"(TwiceLogistic|OwnClassification)` has no power ser"):
        tw.flow(objective, (np.zeros((1, 3)),), time=1.0, validate=True)


class Lowered(AbstractMarginLoss):
    """A loss that is negative, and declares nothing."""

    def value(self, margins):
        return jnp.exp(-margins) - 5


def test_a_loss_without_a_least_value_has_no_critical_learning_rate_by_itself():
    """The excess loss would be measured from a zero that means nothing."""
    problem = tw.Classification(np.ones((2, 1)), [1, 1], loss=Lowered())
    lowered = tw.Objective(tw.LinearNetwork([1, 1]), problem)
    with pytest.raises(tw.InputError, match="`minimum` must be given for the loss 'Lowered', whi"):
        tw.critical_learning_rate(lowered, (np.ones((1, 1)),), steps=9)
