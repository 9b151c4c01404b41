"""A loss of one's own: Huber's, quadratic for small residuals and linear for outliers."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import thalweg as tw
from thalweg.problem import AbstractProblem, OutputBounds, Rounding
from thalweg.problem.base import units


class Huber(AbstractProblem):
    """The mean over samples of r^2 / 2 where |r| <= delta, else of delta (|r| - delta / 2)."""

    inputs: Array
    targets: Array
    delta: float

    @property
    def shape(self):
        return self.targets.shape[1], self.inputs.shape[1]

    def output_value(self, outputs):
        size = jnp.abs(outputs - self.targets)
        linear = self.delta * (size - self.delta / 2)
        return jnp.mean(jnp.sum(jnp.where(size <= self.delta, size**2 / 2, linear), axis=1))


class BoundedHuber(Huber):
    """The same with what no differentiation can find, so that tubes can be proven."""

    def output_bounds(self, outputs, changes):
        """The second derivative is 0 or 1, and jumps where a residual may pass delta."""
        gap = jnp.min(jnp.abs(jnp.abs(outputs - self.targets) - self.delta), axis=1)
        return OutputBounds(jnp.ones_like(gap), jnp.where(gap > changes, 0.0, jnp.inf))

    def output_rounding(self, outputs):
        """Differences, products and sums of what is not negative: nothing cancels."""
        gradients = outputs.shape[0] * self.output_gradient(outputs)
        unit = units(outputs.dtype)
        norm = jnp.sqrt(jnp.mean(jnp.sum(gradients**2, axis=1)))
        return Rounding(unit * self.output_value(outputs), unit * norm)

    @property
    def largest_gradient(self):
        return self.delta * self.shape[0] ** 0.5

    @property
    def least_output_value(self):
        return jnp.asarray(0.0)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
OUTLIERS = np.where(np.arange(12) % 4 == 0, 10.0, 0.0)
Y = (X @ [1.0, -0.5, 0.2] + OUTLIERS)[:, None]
NETWORK = tw.LinearNetwork([3, 2, 1])
START = (np.array([[0.6, -0.4, 0.3], [0.5, -0.3, 0.1]]), np.array([[0.7, 0.5]]))


def objective(kind, targets=Y):
    return tw.Objective(NETWORK, kind(jnp.asarray(X), jnp.asarray(targets), 1.0))


def loss(weights):
    """The same in NumPy."""
    size = np.abs(X @ (np.asarray(weights[1]) @ np.asarray(weights[0])).T - Y)
    return np.mean(np.where(size <= 1, size**2 / 2, size - 0.5))


def test_it_is_descended_and_flows():
    run = tw.descend(objective(Huber), START, learning_rate=0.05, steps=40)
    assert run.loss[-1] < run.loss[0]
    assert run.loss[-1] == pytest.approx(loss(run.final), rel=1e-12)
    flow = tw.flow(objective(Huber), START, times=run.times)
    assert np.all(tw.distance(run, flow) < 0.05)


def test_it_has_a_sharpness():
    top = tw.sharpness(objective(Huber), START)
    values = np.linalg.eigvalsh(objective(Huber).hessian(START))
    assert abs(top.value - values[-1]) <= top.error + 1e-12 * abs(values[-1])


def test_without_bounds_there_is_no_tube():
    run = tw.descend(objective(Huber), START, learning_rate=0.05, steps=2)
    with pytest.raises(tw.InputError, match=r"`Huber` declares no bounds .* \(`output_bounds`\)"):
        tw.tube(run)
    with pytest.raises(tw.InputError, match=r"`Huber` has no power series"):
        tw.flow(objective(Huber), START, time=1.0, validate=True)


def test_with_bounds_the_tube_holds_the_flow():
    run = tw.descend(objective(BoundedHuber), START, learning_rate=0.05, steps=40)
    tube = tw.tube(run)
    flow = tw.flow(objective(Huber), START, times=run.times, rtol=1e-11, atol=1e-13)
    gap = tw.distance(run, flow)
    error = 1e-9  # of the flow
    assert tube.failed_at is None
    assert np.all(tube.lower - error <= gap)
    assert np.all(gap <= tube.upper + error)
    assert tube.upper[-1] < 2 * gap[-1]


def test_the_tube_ends_where_a_residual_passes_delta():
    """There the second derivative jumps, and no third bounds it."""
    run = tw.descend(objective(BoundedHuber, 2 * Y), START, learning_rate=0.05, steps=40)
    residuals = np.abs(X @ (run.weights[1] @ run.weights[0]).swapaxes(1, 2) - 2 * Y)
    passed = run.times[np.any((residuals > 1) != (residuals[0] > 1), axis=(1, 2))]
    assert tw.tube(run).failed_at <= passed[0]
