"""Objectives that are no network on a problem: any function of any pytree of weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import thalweg as tw
from thalweg.objective import AbstractObjective, base
from thalweg.problem import AbstractProblem

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


class Absolute(AbstractProblem):
    """The mean absolute error, whose gradient jumps."""

    inputs: jax.Array
    targets: jax.Array
    smooth = False

    @property
    def shape(self):
        return self.targets.shape[1], self.inputs.shape[1]

    def output_value(self, outputs):
        return jnp.mean(jnp.abs(outputs - self.targets))


def test_an_objective_declares_smoothness_and_shapes():
    assert Bowl(jnp.eye(3)).smooth
    assert Bowl(jnp.eye(3)).shapes is None
    assert not ShapedBowl(jnp.eye(3)).smooth
    network = tw.HomogeneousNetwork([2, 3, 1])
    objective = tw.Objective(network, tw.Regression(np.ones((3, 2)), np.ones(3)))
    assert not objective.smooth
    loss = Absolute(jnp.eye(2), jnp.ones((2, 1)))
    assert not tw.Objective(tw.LinearNetwork([2, 1]), loss).smooth
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


def test_theorems_that_need_a_network_say_so_of_any_other_function(weights):
    """None is left out, none applies, and the reason is told once, with all that it stops."""
    bowl = Bowl(jnp.eye(3))
    run = tw.descend(bowl, weights, learning_rate=0.1, steps=3)
    found = tw.certify(bowl, weights, learning_rate=0.1, run=run)
    network = tw.Objective(tw.LinearNetwork([2, 2]), tw.TargetMatrix(np.eye(2)))
    named = [each.reference for each in tw.certify(network, (np.eye(2),), learning_rate=0.1)]
    assert [each.reference for each in found] == named
    assert {each.verdict for each in found} == {tw.certificates.Verdict.NOT_APPLICABLE}
    assert not found.applying
    (refused,) = found.overview()["refused"]
    assert "a network on a problem that declares itself" in refused["assumption"]
    assert "arora2019" in refused["source"]
    assert "declares itself" in str(found)
    assert "declares itself" in found._repr_html_()


def test_a_case_of_any_function_is_looked_at_before_it_is_answered(weights):
    bowl = Bowl(jnp.eye(3))
    with pytest.raises(tw.InputError, match="`learning_rate` must be positive"):
        tw.certify(bowl, weights, learning_rate=-0.1)
    with pytest.raises(tw.InputError, match="must be finite"):
        tw.certify(bowl, {"w": np.full(3, np.nan), "b": 0.0})
    other = tw.descend(Bowl(2 * jnp.eye(3)), weights, learning_rate=0.1, steps=3)
    with pytest.raises(tw.InputError, match="`run` must be on the objective of the case"):
        tw.certify(bowl, weights, learning_rate=0.1, run=other)


def test_a_dense_hessian_above_the_limit_is_refused(weights, monkeypatch):
    monkeypatch.setattr(base, "DENSE_LIMIT", 3)
    with pytest.raises(tw.InputError, match="there are 4 weights and the limit is 3; use `hvp`"):
        Bowl(jnp.eye(3)).hessian(weights)


# --- what takes any objective --------------------------------------------------------------------


class Tanh(AbstractObjective):
    """Two layers with tanh and biases, in a dict, on data."""

    inputs: jax.Array
    targets: jax.Array

    def __call__(self, weights):
        hidden = jnp.tanh(self.inputs @ weights["in"]["matrix"] + weights["in"]["bias"])
        return jnp.mean((hidden @ weights["out"] - self.targets) ** 2) / 2


X, Y = RNG.normal(size=(12, 2)), RNG.normal(size=12)
START = {
    "in": {"matrix": RNG.normal(size=(2, 3)), "bias": RNG.normal(size=3)},
    "out": RNG.normal(size=3),
}


def tanh_gradient(weights):
    """By hand, in NumPy: the loss and its gradient."""
    hidden = np.tanh(X @ weights["in"]["matrix"] + weights["in"]["bias"])
    error = hidden @ weights["out"] - Y
    back = np.outer(error, weights["out"]) * (1 - hidden**2) / len(Y)
    inner = {"matrix": X.T @ back, "bias": back.sum(axis=0)}
    return np.mean(error**2) / 2, {"in": inner, "out": hidden.T @ error / len(Y)}


@pytest.fixture(scope="module")
def tanh_run():
    objective = Tanh(jnp.asarray(X), jnp.asarray(Y))
    return tw.descend(objective, START, learning_rate=np.array([0.05, 0.2]), steps=30)


def test_descend_takes_any_pytree(tanh_run):
    """Oracle: a loop in NumPy. Tolerance: thirty steps of rounding."""
    assert tanh_run.loss.shape == (2, 31)
    for place, rate in enumerate((0.05, 0.2)):
        weights = START
        for step in range(31):
            value, slopes = tanh_gradient(weights)
            np.testing.assert_allclose(tanh_run.loss[place, step], value, rtol=1e-13)
            recorded = jax.tree.map(lambda array, p=place, k=step: array[p, k], tanh_run.weights)
            assert jax.tree.structure(recorded) == jax.tree.structure(START)
            for found, expected in zip(
                jax.tree.leaves(recorded), jax.tree.leaves(weights), strict=True
            ):
                assert type(found) in (np.ndarray, np.float64)
                np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
            weights = jax.tree.map(lambda w, s, eta=rate: w - eta * s, weights, slopes)


def test_a_run_of_any_pytree_is_continued_from_its_end(tanh_run):
    again = tw.descend(
        tanh_run.objective, jax.tree.map(lambda array: array[1], tanh_run.final),
        learning_rate=0.2, steps=1,
    )  # fmt: skip
    assert again.loss[0] == pytest.approx(tanh_run.loss[1, -1], rel=1e-14)


def test_distances_and_measurements_take_any_pytree(tanh_run):
    early = tanh_run.at(tanh_run.times[:, :5])
    np.testing.assert_array_equal(tw.distance(early, early), np.zeros((2, 5)))
    slow = tw.descend(tanh_run.objective, START, learning_rate=np.array([0.025, 0.1]), steps=60)
    apart = tw.distance(tanh_run, slow)
    gaps = jax.tree.map(lambda one, two: one[1, 30] - two[1, 60], tanh_run.weights, slow.weights)
    assert apart[1, -1] == pytest.approx(np.linalg.norm(ravel_pytree(gaps)[0]), rel=1e-12)
    norms = tw.measurement.along(tanh_run, lambda weights: jnp.sum(weights["out"] ** 2))
    np.testing.assert_allclose(norms, np.sum(tanh_run.weights["out"] ** 2, axis=-1), rtol=1e-14)


def test_a_batch_of_starts_needs_declared_shapes():
    rng = np.random.default_rng(1)
    many = {"w": rng.normal(size=(4, 3)), "b": rng.normal(size=4)}
    objective = ShapedBowl(jnp.asarray(MATRIX))
    run = tw.descend(objective, many, learning_rate=0.01, steps=5)
    assert run.weights["w"].shape == (4, 6, 3)
    one = tw.descend(objective, {"w": many["w"][2], "b": many["b"][2]}, learning_rate=0.01, steps=5)
    np.testing.assert_array_equal(run.weights["w"][2], one.weights["w"])
    with pytest.raises(tw.InputError, match="same batch axes in every array"):
        tw.descend(objective, {"w": many["w"], "b": 1.0}, learning_rate=0.01, steps=5)


def test_runs_on_other_objectives_have_no_tube(tanh_run):
    with pytest.raises(
        tw.InputError, match=r"`tube` is about networks on problems, .* got a trajectory on"
    ):
        tw.tube(tanh_run)


def test_a_bare_array_is_a_pytree():
    class Square(AbstractObjective):
        def __call__(self, weights):
            return jnp.sum(weights**2) / 2

    run = tw.descend(Square(), np.array([1.0, -2.0]), learning_rate=0.5, steps=2)
    np.testing.assert_array_equal(run.weights, [[1.0, -2.0], [0.5, -1.0], [0.25, -0.5]])
    np.testing.assert_array_equal(run.final, [0.25, -0.5])
    found = tw.critical_learning_rate(
        Square(), np.array([1.0, -2.0]), steps=50, minimum=0.0, around=1.0,
        optimiser=tw.optimisers.HeavyBall(0.0),
    )  # fmt: skip
    assert found.lower < 2 < 1.05 * found.upper


def test_weights_in_single_precision_stay_so_whatever_the_data_are():
    """Oracle: the same in double precision; four steps leave some units of 6e-8."""
    start = {"w": np.array([1.0, -2.0, 0.5]), "b": np.asarray(0.7)}
    single = jax.tree.map(lambda array: array.astype(np.float32), start)
    objective = Bowl(jnp.asarray(MATRIX))
    one, other = (
        tw.descend(objective, point, learning_rate=0.01, steps=4) for point in (single, start)
    )
    assert one.loss.dtype == one.weights["w"].dtype == one.weights["b"].dtype == np.float32
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-6)


def test_the_least_value_of_an_objective_of_ones_own_is_asked_for(weights):
    with pytest.raises(tw.InputError, match="`minimum` must be given for an objective that is no"):
        tw.critical_learning_rate(Bowl(jnp.eye(3)), weights, steps=5)


def test_the_critical_learning_rate_of_any_objective():
    """Oracle: 2 / curvature, from where the start's own sharpness says to look."""

    class Valley(AbstractObjective):
        def __call__(self, weights):
            return (weights["steep"] ** 2 * 5 + weights["flat"] ** 2) / 2

    start = {"steep": np.asarray(1.0), "flat": np.asarray(0.5)}
    found = tw.critical_learning_rate(Valley(), start, steps=400, minimum=0.0, precision=0.001)
    assert found.lower == pytest.approx(2 / 5, rel=0.01)  # log(1 / share) / (4 steps) is 0.003
    assert found.prediction("2 / sharpness at the start").rate == pytest.approx(2 / 5, rel=1e-6)
    assert found.prediction("2 / sharpness of the limit").rate == pytest.approx(2 / 5, rel=1e-6)
