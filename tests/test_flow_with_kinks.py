"""The flow of networks whose activation has a kink: across it, and sliding along it."""

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from test_flow import SOLVERS, assert_error_is_right, error_ratios
from thalweg.dynamics.descent import descend
from thalweg.dynamics.flow import flow
from thalweg.solvers import Chebyshev, Explicit, FlowError


def test_kinks_are_known():
    assert not tw.HomogeneousNetwork([2, 2, 1]).smooth
    assert tw.HomogeneousNetwork([2, 2, 1], slopes=(1.0, 1.0)).smooth
    assert tw.LinearNetwork([2, 2, 1]).smooth


def kinked_case():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(12, 3)), rng.normal(size=(12, 1))
    objective = tw.Objective(tw.HomogeneousNetwork([3, 6, 1]), tw.Regression(x, y))
    weights = tuple(jnp.asarray(0.7 * rng.normal(size=s)) for s in objective.network.shapes)
    return objective, weights


def switched(objective, run):
    """How many hidden units differ in sign between start and end, over all samples."""
    x = objective.problem.inputs
    return np.sum((x @ run.start[0].T > 0) != (x @ run.final[0].T > 0))


@pytest.mark.parametrize("solver", SOLVERS)
def test_error_is_right_across_kinks(solver):
    """Oracle: the same solver with a tolerance a thousand times smaller.

    What a kink costs depends on where a step happens to end. The estimate compares two runs, of
    which one may be right by chance, or both be wrong alike: single estimates of eight such starts
    were a factor of 15 off on either side. Hence several starts, and their median.
    """
    objective, weights = kinked_case()
    rtol = 1e-4 if solver == Chebyshev() else 1e-6
    rng = np.random.default_rng(0)

    def run(start, factor):
        rtol_, atol_ = factor * rtol, factor * rtol / 100
        times = [0.5, 1.0, 1.8]
        return flow(objective, start, times=times, rtol=rtol_, atol=atol_, solver=solver)

    ratios = []
    for _ in range(5):
        start = tuple(layer * (1 + 1e-3 * rng.normal(size=layer.shape)) for layer in weights)
        found, truth = run(start, 1.0), run(start, 1e-3)
        assert switched(objective, truth) > 0
        ratios.append(error_ratios(found, truth.weights))
    assert 0.5 < np.median(ratios) < 2, ratios
    assert np.all((np.array(ratios) > 1 / 30) & (np.array(ratios) < 30)), ratios


@pytest.mark.parametrize("solver", [Explicit(), Chebyshev()])
def test_error_is_right_along_kinks(solver):
    """Oracle: Euler's method with steps so short that its error is a thousandth of the flow's.

    From time 1.85 on this flow slides along a kink, where no solver has an order to lose.
    """
    objective, weights = kinked_case()
    times = np.array([1.0, 2.0, 4.0])
    run = flow(objective, weights, times=times, rtol=1e-3, atol=1e-3, solver=solver)
    truth = descend(objective, weights, learning_rate=1e-5, steps=400_000, record_every=100_000)
    assert_error_is_right(run, truth.at(times).weights)


def test_sliding_along_a_kink_is_named_when_it_takes_too_long():
    objective, weights = kinked_case()
    with pytest.raises(FlowError, match=r"only, by chebyshev steps.*The objective has kinks"):
        flow(objective, weights, times=[1.0, 2.0, 4.0], max_steps=500, solver=Chebyshev())
