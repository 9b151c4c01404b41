"""Collocation by itself: its order, and how it foretells a steady state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import thalweg as tw
from thalweg.solvers.adaptive import FlatObjective
from thalweg.solvers.collocation import CollocationStepper, radau_tableau
from thalweg.solvers.steady import way_from_products, way_in_basis


def test_three_stages_are_the_known_method():
    """Oracle: the points and the last row of Radau IIA of order 5, in radicals."""
    tableau, root = radau_tableau(3), np.sqrt(6)
    points, weights = (
        [(4 - root) / 10, (4 + root) / 10, 1],
        [(16 - root) / 36, (16 + root) / 36, 1 / 9],
    )
    np.testing.assert_allclose(tableau.nodes, points, rtol=1e-14)  # rounding, as below
    np.testing.assert_allclose(tableau.matrix[-1], weights, rtol=1e-13)


@pytest.mark.parametrize("stages", [3, 5])
def test_order_of_collocation(stages):
    """Order 2 stages - 1 at the end of a step, stages inside; by regression over halvings."""
    point, unravel = ravel_pytree((jnp.array([[0.6, -0.2], [0.1, 0.5]]), jnp.array([[0.4, 0.7]])))
    objective = FlatObjective(
        tw.Objective(tw.LinearNetwork([2, 2, 1]), tw.TargetMatrix([1.0, -3.0])), unravel
    )
    tiny = jnp.asarray(1e-13)
    method = CollocationStepper(objective=objective, rtol=tiny, atol=tiny, order=stages)

    @jax.jit
    def step(point, h):
        local, _ = method.linearise(point)
        trial, _ = method.attempt(local, point, h)
        return trial.point, method.between(local, point, trial, jnp.asarray(0.25))

    def follow(steps, fraction=1.0):
        y = point
        for _ in range(steps):
            y, inside = step(y, jnp.asarray(fraction / steps))
        return np.asarray(y), np.asarray(inside)

    counts = {3: [4, 6, 8, 12], 5: [3, 4, 6, 8]}[stages]  # errors from 1e-4 down to 1e-11
    reference, _ = follow(64)
    errors = [np.linalg.norm(follow(count)[0] - reference) for count in counts]
    order = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert order == pytest.approx(2 * stages - 1, abs=0.3)  # the next term is a power smaller
    lengths = np.array([0.1, 0.05, 0.025])
    inside = [np.linalg.norm(follow(1, h)[1] - follow(16, 0.25 * h)[0]) for h in lengths]
    local = np.polyfit(np.log(lengths), np.log(inside), 1)[0]
    assert local == pytest.approx(stages + 1, abs=0.5)  # likewise


@pytest.mark.parametrize("remaining", [0.1, 10.0, 1e4])
def test_way_from_products_is_the_way_from_eigenvalues(remaining):
    """Oracle: the dense formula; as many eigenvalues as the Krylov space has dimensions."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    values = np.repeat([1e-3, 0.01, 0.1, 1.0, 3.0], 8)
    matrix, gradient = jnp.asarray(basis * values @ basis.T), jnp.asarray(rng.normal(size=40))
    exact = way_in_basis(gradient, jnp.asarray(values), jnp.asarray(basis), jnp.asarray(remaining))
    found, products = way_from_products(
        gradient, lambda v: matrix @ v, jnp.asarray(remaining), jnp.asarray(1e9)
    )
    assert float(found) == pytest.approx(
        float(exact), rel=1e-9
    )  # rounding, over the smallest eigenvalue
    assert products == 9
    found, products = way_from_products(
        gradient, lambda v: matrix @ v, jnp.asarray(remaining), jnp.asarray(1e-9)
    )
    assert np.isinf(found)
    assert products == 1
