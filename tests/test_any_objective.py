"""Objectives that are no network on a problem: any function of any pytree of weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import thalweg as tw
from thalweg.objective import AbstractObjective, base

RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(3, 3)) + 5 * np.eye(3)


class Bowl(AbstractObjective):
    """w^T A w / 2 + b^4, of which everything is known."""

    matrix: jax.Array

    def __call__(self, weights):
        return weights["w"] @ self.matrix @ weights["w"] / 2 + weights["b"] ** 4


class ShapedBowl(AbstractObjective):
    """The same, which says what it takes; its gradient is said to jump."""

    matrix: jax.Array
    smooth = False
    shapes = {"w": (3,), "b": ()}  # noqa: RUF012

    def __call__(self, weights):
        return Bowl(self.matrix)(weights)


class Fit(AbstractObjective):
    """A module of equinox's on data."""

    inputs: jax.Array
    module: eqx.nn.MLP

    def __call__(self, weights):
        network = eqx.combine(weights, self.module)
        return jnp.mean(jax.vmap(network)(self.inputs) ** 2)


@pytest.fixture
def weights():
    return {"w": RNG.normal(size=3), "b": np.asarray(0.7)}


@pytest.mark.parametrize("kind", [Bowl, ShapedBowl])
def test_all_follows_from_the_value(kind, weights):
    """Oracle: the formulas. Tolerances: a few operations, rounded."""
    objective = kind(jnp.asarray(MATRIX))
    symmetric = (MATRIX + MATRIX.T) / 2
    value, slopes = objective.value_and_gradient(weights)
    expected = weights["w"] @ symmetric @ weights["w"] / 2 + 0.7**4
    np.testing.assert_allclose(value, expected, rtol=1e-14)
    np.testing.assert_allclose(slopes["w"], symmetric @ weights["w"], rtol=1e-13)
    np.testing.assert_allclose(slopes["b"], 4 * 0.7**3, rtol=1e-14)
    np.testing.assert_array_equal(objective.gradient(weights)["w"], slopes["w"])
    product = objective.hvp(weights, {"w": np.array([1, 0, 2]), "b": 3.0})
    np.testing.assert_allclose(product["w"], symmetric @ [1.0, 0.0, 2.0], rtol=1e-13)
    np.testing.assert_allclose(product["b"], 12 * 0.7**2 * 3, rtol=1e-13)
    dense = np.zeros((4, 4))
    dense[0, 0], dense[1:, 1:] = 12 * 0.7**2, symmetric  # a dict's keys are sorted: b, w
    np.testing.assert_allclose(objective.hessian(weights), dense, rtol=1e-13, atol=1e-13)


def test_many_are_evaluated_side_by_side(weights):
    objective = Bowl(jnp.asarray(MATRIX))
    lanes = {"w": RNG.normal(size=(3, 4)), "b": RNG.normal(size=4)}
    values, slopes = objective.value_and_gradient_in_lanes(lanes)
    for lane in range(4):
        one = {"w": lanes["w"][:, lane], "b": lanes["b"][lane]}
        value, slope = objective.value_and_gradient(one)
        np.testing.assert_allclose(values[lane], value, rtol=1e-14)
        np.testing.assert_allclose(slopes["w"][:, lane], slope["w"], rtol=1e-13)
        np.testing.assert_allclose(slopes["b"][lane], slope["b"], rtol=1e-14)


def test_a_module_of_equinox_is_weights():
    """Oracle: `jax.hessian` of the same function of a vector."""
    module = eqx.nn.MLP(2, 1, 3, 1, activation=jnp.tanh, key=jax.random.key(0))
    weights, rest = eqx.partition(module, eqx.is_inexact_array)
    objective = Fit(jnp.asarray(RNG.normal(size=(5, 2))), rest)
    vector, unravel = ravel_pytree(weights)
    expected = jax.hessian(lambda flat: objective(unravel(flat)))(vector)
    np.testing.assert_allclose(objective.hessian(weights), expected, rtol=1e-12, atol=1e-14)
    with pytest.raises(tw.InputError, match=r"must be an array, got .*equinox.filter\(module"):
        objective.gradient(module)


def test_an_objective_declares_smoothness_and_shapes():
    assert Bowl(jnp.eye(3)).smooth
    assert Bowl(jnp.eye(3)).shapes is None
    assert not ShapedBowl(jnp.eye(3)).smooth
    network = tw.HomogeneousNetwork([2, 3, 1])
    objective = tw.Objective(network, tw.Regression(np.ones((3, 2)), np.ones(3)))
    assert not objective.smooth
    assert objective.shapes == network.shapes


def test_weights_of_declared_shapes_may_have_batch_axes():
    objective = ShapedBowl(jnp.eye(3))
    many = {"w": np.ones((7, 3)), "b": np.ones(7)}
    objective.check(many)
    with pytest.raises(
        tw.InputError, match=r"`weights\['b'\]` must have shape \(\), got .* \(7,\)"
    ):
        objective.gradient(many)
    with pytest.raises(
        tw.InputError, match=r"`weights\['w'\]` must have shape \(3,\), after batch"
    ):
        objective.check({"w": np.ones((3, 4)), "b": 1.0})
    with pytest.raises(tw.InputError, match="`weights` must have the structure of the objective's"):
        objective.check({"w": np.ones(3)})


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (None, "`weights` must be a pytree with at least one array, got None"),
        ([], "at least one array, got a list of length 0"),
        ("big", "`weights` must be an array of numbers, got the text 'big'"),
        ({"w": np.ones(3), "b": 1j}, r"`weights\['b'\]` must hold real numbers, got dtype complex"),
        ({"w": np.ones(3), "b": "x"}, r"`weights\['b'\]` must be an array of numbers"),
    ],
)
def test_what_is_no_pytree_of_numbers_is_refused(wrong, sentence):
    with pytest.raises(tw.InputError, match=sentence):
        Bowl(jnp.eye(3)).gradient(wrong)


def test_a_direction_must_be_like_the_weights(weights):
    objective = Bowl(jnp.eye(3))
    with pytest.raises(tw.InputError, match="`direction` must have the structure of `weights`"):
        objective.hvp(weights, {"w": np.ones(3)})
    with pytest.raises(tw.InputError, match=r"`direction\['w'\]` must have shape \(3,\), got"):
        objective.hvp(weights, {"w": np.ones(2), "b": 1.0})


def test_what_needs_a_network_says_so(weights):
    with pytest.raises(tw.InputError, match=r"must be an Objective, got a Bowl; only a network on"):
        tw.certify(Bowl(jnp.eye(3)), weights, learning_rate=0.1)


def test_a_dense_hessian_above_the_limit_is_refused(weights, monkeypatch):
    monkeypatch.setattr(base, "DENSE_LIMIT", 3)
    with pytest.raises(tw.InputError, match="there are 4 weights and the limit is 3; use `hvp`"):
        Bowl(jnp.eye(3)).hessian(weights)
