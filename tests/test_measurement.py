"""Measurements against NumPy by hand, and mapped along a run."""

from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typing_extensions import override

from thalweg import (
    Classification,
    HomogeneousNetwork,
    InputError,
    LinearNetwork,
    Objective,
    Regression,
    TargetMatrix,
    descend,
    measurement,
)
from thalweg.dynamics.trajectory import AbstractTrajectory


def random_weights(widths, *batch, seed=0):
    rng = np.random.default_rng(seed)
    pairs = zip(widths[1:], widths[:-1], strict=True)
    return tuple(rng.standard_normal((*batch, *shape)) for shape in pairs)


def as_jax(weights):
    return tuple(jnp.asarray(array) for array in weights)


def test_imbalance_by_hand():
    weights = (jnp.array([[1.0, 2.0]]), jnp.array([[3.0], [1.0]]), jnp.array([[1.0, 1.0]]))
    first, second = measurement.imbalance(weights)
    np.testing.assert_array_equal(first, [[10.0 - 5.0]])
    np.testing.assert_array_equal(second, [[1.0 - 9.0, 1.0 - 3.0], [1.0 - 3.0, 1.0 - 1.0]])


def test_unbalancedness_of_the_oracle():
    """elkabetz2021:lem31's example, to the digits printed there."""
    weights = (
        np.array([[0.5, 0.1], [0, 0.3]]),
        np.array([[0.4, 0], [0.2, 0.1]]),
        np.array([[0.3, -0.4]]),
    )
    np.testing.assert_allclose(measurement.unbalancedness(weights), 0.438634243989, atol=5e-13)
    assert measurement.unbalancedness(weights[:1]) == 0


def test_the_flow_conserves_what_is_conserved():
    """The derivative of a conserved quantity along the gradient is zero."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((7, 4)), rng.standard_normal((7, 2))
    widths = [4, 3, 5, 2]
    for network in (LinearNetwork(widths), HomogeneousNetwork(widths, (1.0, 0.3))):
        objective = Objective(network, Regression(x, y))
        weights = as_jax(random_weights(widths))
        velocity = eqx.filter_jit(objective.gradient)(weights)
        values, drift = jax.jit(
            lambda weights, velocity, network=network: jax.jvp(
                lambda point: measurement.conserved(network, point), (weights,), (velocity,)
            )
        )(weights, velocity)
        assert len(values) == 2
        scale = sum(float(jnp.sum(array**2)) for array in velocity)
        for change in drift:
            assert float(jnp.max(jnp.abs(change))) < 1e-13 * max(
                1, scale
            )  # sums of cancelling pairs


def test_conserved_norms_by_hand():
    weights = (jnp.array([[1.0, 2.0]]), jnp.array([[3.0]]))
    (difference,) = measurement.conserved(HomogeneousNetwork([2, 1, 1]), weights)
    assert difference == 9 - 5


def test_layer_norms():
    norms = measurement.layer_norms((jnp.array([[3.0, 4.0]]), jnp.full((2, 1, 2, 2), 0.5)))
    np.testing.assert_allclose(norms, [5, 2**0.5], rtol=1e-15)


def test_alignment_and_rank_one_against_numpy():
    weights = random_weights([4, 3, 5, 2], seed=3)
    parts = [np.linalg.svd(array) for array in weights]
    expected = [(parts[k + 1][2][0] @ parts[k][0][:, 0]) ** 2 for k in range(2)]
    # Top singular vectors are right to rounding over the gap of singular values, here above .1.
    np.testing.assert_allclose(measurement.alignment(weights), expected, atol=1e-13)
    distances = [np.sum(array**2) - np.linalg.norm(array, 2) ** 2 for array in weights]
    np.testing.assert_allclose(
        measurement.distance_from_rank_one(weights), distances, atol=1e-13
    )  # the oracle cancels numbers of size ten


def test_a_rank_one_chain_is_aligned():
    units = [np.array(vector) / 5 for vector in ([3.0, 4.0], [4.0, -3.0, 0.0], [0.0, 5.0])]
    weights = tuple(2 * np.outer(b, a) for a, b in pairwise(units))
    np.testing.assert_allclose(measurement.alignment(weights), [1.0], rtol=1e-14)
    # Squares of singular values that are rounding: (1e-16)^2, where the difference gives 1e-16.
    assert float(jnp.max(measurement.distance_from_rank_one(weights))) < 1e-30
    assert measurement.alignment(weights[:1]).shape == (0,)


def test_deficiency_margin_keeps_its_digits():
    """arora2019:def2's example, where the naive difference is zero."""
    phi = np.zeros((1, 20))
    phi[0, 0] = 1
    w = np.zeros((1, 20))
    w[0, :2] = 1e-20, 1e-11
    margin = measurement.deficiency_margin(jnp.asarray(w), jnp.asarray(phi))
    # In exact arithmetic 2e-20 - 1e-22 over 1 + sqrt(1 - 2e-20 + 1e-22) = 2 - 1e-20.
    np.testing.assert_allclose(margin, 9.95e-21, rtol=1e-14)
    column = measurement.deficiency_margin(jnp.asarray(w.T), jnp.asarray(phi.T))
    assert column == margin
    assert measurement.deficiency_margin(jnp.zeros((1, 2)), jnp.zeros((1, 2))) == 0


@pytest.mark.parametrize("shape", [(3, 2), (2, 4), (1, 3), (3, 1)])
def test_deficiency_margin_against_the_definition(shape):
    rng = np.random.default_rng(5)
    w, phi = rng.standard_normal(shape), rng.standard_normal(shape)
    expected = np.linalg.svd(phi, compute_uv=False)[-1] - np.linalg.norm(w - phi)
    found = measurement.deficiency_margin(jnp.asarray(w), jnp.asarray(phi))
    np.testing.assert_allclose(found, expected, rtol=1e-13)  # numbers of size one


def test_distance_to_minimiser():
    network = LinearNetwork([3, 2, 2])
    weights = random_weights([3, 2, 2])
    phi = np.arange(6.0).reshape(2, 3)
    objective = Objective(network, TargetMatrix(phi))
    expected = np.linalg.norm(weights[1] @ weights[0] - phi)
    found = measurement.distance_to_minimiser(objective, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    with pytest.raises(InputError, match=r"needs a LinearNetwork.*got LayeredNetwork"):
        measurement.distance_to_minimiser(
            Objective(HomogeneousNetwork([3, 2, 2]), TargetMatrix(phi)), weights
        )
    labels = Classification(np.eye(3), [0, 1, 1])
    with pytest.raises(InputError, match=r"Regression or a TargetMatrix.*got Classification"):
        measurement.distance_to_minimiser(Objective(network, labels), weights)


def test_measurements_take_one_network_at_a_time():
    with pytest.raises(InputError, match=r"matrices of one linear network.*`jax.vmap`"):
        measurement.imbalance(random_weights([3, 2, 2], 5))


class Record(AbstractTrajectory):
    """A trajectory that was not run but written down."""

    objective: Objective
    times: Any
    weights: Any
    loss: Any

    @override
    def at(self, times):
        return self


def record(widths, *lead):
    objective = Objective(LinearNetwork(widths), TargetMatrix(np.ones((widths[-1], widths[0]))))
    weights = random_weights(widths, *lead)
    return Record(objective, np.zeros(lead), weights, np.zeros(lead))


@pytest.mark.parametrize("lead", [(4,), (2, 3), (2, 1, 3)])
def test_along_maps_over_batches_and_times(lead):
    run = record([3, 2, 2], *lead)
    found = measurement.along(
        run, lambda weights: {"norms": measurement.layer_norms(weights), "first": weights[0][0, 0]}
    )
    assert isinstance(found["norms"], np.ndarray)
    np.testing.assert_array_equal(found["first"], run.weights[0][..., 0, 0])
    expected = np.stack([np.linalg.norm(array, axis=(-2, -1)) for array in run.weights], axis=-1)
    np.testing.assert_allclose(found["norms"], expected, rtol=1e-14)


def test_along_in_chunks_is_the_same(monkeypatch):
    """Ten points, three at a time: the last chunk is not full."""
    run = record([3, 2, 2], 10)
    at_once = measurement.along(run, measurement.imbalance)
    monkeypatch.setattr(measurement, "_NUMBERS_AT_ONCE", 3 * run.objective.network.size)
    in_chunks = measurement.along(run, measurement.imbalance)
    np.testing.assert_allclose(in_chunks[0], at_once[0], atol=1e-14)
    assert in_chunks[0].shape == (10, 2, 2)


def test_along_keeps_what_diverged_apart():
    """A run that left the finite numbers gives NaN there, and only there."""
    run = record([3, 2, 1], 4)
    run.weights[0][2] = np.nan
    found = measurement.along(run, measurement.alignment)
    np.testing.assert_array_equal(np.isnan(found[:, 0]), [False, False, True, False])


def test_along_needs_weights():
    run = record([3, 2, 2], 4)
    bare = Record(run.objective, run.times, (), run.loss)
    with pytest.raises(InputError, match=r"recorded weights.*`observe`"):
        measurement.along(bare, measurement.imbalance)


def test_the_least_loss_of_a_narrow_network_is_where_descent_ends():
    """Oracle: descent on [3, 1, 2], whose product has rank one, until it rests."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 3)) * [1.0, 0.5, 2.0]
    y = x @ rng.normal(size=(3, 2)) + 0.1 * rng.normal(size=(20, 2))
    narrow = Objective(LinearNetwork([3, 1, 2]), Regression(x, y))
    weights = tuple(rng.normal(size=shape) for shape in narrow.network.shapes)
    run = descend(narrow, weights, learning_rate=0.1, steps=20_000, record_every=20_000)
    assert measurement.least_loss(narrow) == pytest.approx(float(run.loss[-1]), rel=1e-9)
    wide = Objective(LinearNetwork([3, 2, 2]), Regression(x, y))
    assert measurement.least_loss(wide) == pytest.approx(float(wide.problem.minimum), rel=1e-12)
    target = Objective(LinearNetwork([2, 1, 2]), TargetMatrix([[2.0, 0.0], [0.0, 1.0]]))
    assert measurement.least_loss(target) == pytest.approx(0.5)  # 1/2 of the square that is lost


def test_the_least_loss_is_not_guessed():
    problem = TargetMatrix([[1.0, 0.0]])
    flat = LinearNetwork([2, 2], np.zeros(2))
    for other in (
        Objective(HomogeneousNetwork([2, 2, 1]), problem),
        Objective(LinearNetwork([2, 2, 1]), problem, weight_decay=0.1),
        Objective(flat, problem),
    ):
        assert np.isnan(measurement.least_loss(other))
