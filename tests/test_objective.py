"""The objective against autodiff of naive implementations, for every network on every problem."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import oracles
import strategies
import thalweg as tw
from thalweg.objective import base as objective_module

# Closed forms and autodiff put the same few hundred operations in a different order.
ROUNDING = 1e-12

# There are 35 combinations, and each compiles: a few examples of each.
few = settings(max_examples=max(3, settings.default.max_examples // 5))


# --- derivatives ---------------------------------------------------------------------------------


# Compilation is what these tests cost, so XLA is told not to optimise: the arithmetic is the same.
@partial(jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})
def both_ways(kind, objective, data, weights, direction):
    """Values, gradient and Hessian-vector product by the package, then by autodiff."""
    naive = partial(strategies.naive_loss, kind, data)
    package = (
        objective(weights),
        *objective.value_and_gradient(weights),
        objective.hvp(weights, direction),
    )
    value, slope = jax.value_and_grad(naive)(weights)
    return package, (value, value, slope, oracles.hvp(naive, weights, direction))


@pytest.mark.parametrize("kind", strategies.KINDS, ids=lambda kind: f"{kind[0]} on {kind[1]}")
@few
@given(spec=strategies.SPECS)
def test_derivatives_agree_with_autodiff_of_the_naive_loss(kind, spec):
    case = strategies.case(kind, spec)
    package, naive = both_ways(kind, case.objective, case.data, case.weights, case.direction)
    for got, expected in zip(package, naive, strict=True):
        assert oracles.relative_error(got, expected) < ROUNDING


def a_case(network, problem, layout=strategies.LAYOUTS[0], decay=0.3):
    kind = strategies.Kind(network, problem, layout, decay)
    return strategies.case(kind, strategies.Spec(seed=0))


def test_gradient_is_the_second_half_of_value_and_gradient():
    case = a_case("linear", "regression")
    expected = case.objective.value_and_gradient(case.weights)[1]
    assert oracles.relative_error(case.objective.gradient(case.weights), expected) == 0.0


@pytest.mark.parametrize("layout", [0, 2])
def test_a_zero_layer_stops_no_other_gradient(layout):
    """Products of all the other layers are needed: no division by the layer itself."""
    case = a_case("linear", "regression", strategies.LAYOUTS[layout])
    weights = (jnp.zeros_like(case.weights[0]), *case.weights[1:])
    got = eqx.filter_jit(case.objective.gradient)(weights)
    assert oracles.relative_error(got, jax.jit(jax.grad(case.naive))(weights)) < ROUNDING


@pytest.mark.parametrize(
    ("network_kind", "problem_kind"),
    [
        ("linear", "regression"),
        ("homogeneous", "cross_entropy"),
        ("shared", "target vector"),
    ],
)
def test_hessian_is_jax_hessian_of_the_naive_loss(network_kind, problem_kind):
    case = a_case(network_kind, problem_kind)
    got = eqx.filter_jit(case.objective.hessian)(case.weights)
    expected = jax.jit(partial(oracles.hessian, case.naive))(case.weights)
    assert oracles.relative_error(got, expected) < ROUNDING
    np.testing.assert_array_equal(got, got.T)


@pytest.mark.parametrize(
    ("network_kind", "problem_kind", "decay"),
    [
        ("linear", "regression of one output", 0.3),
        ("linear", "regression", 0.0),
        ("linear", "target matrix", 0.3),
        ("linear", "cross_entropy", 0.3),
        ("linear with readout", "regression", 0.3),
        ("homogeneous", "regression", 0.3),
        ("shared", "cross_entropy", 0.0),
        ("model", "regression", 0.3),
    ],
)
def test_lanes_give_what_single_networks_give(network_kind, problem_kind, decay):
    case = a_case(network_kind, problem_kind, decay=decay)
    random = np.random.default_rng(1)
    shapes = case.objective.network.shapes
    singles = [strategies.gaussians(shapes, 0.8, random) for _ in range(3)]
    lanes = jax.tree.map(lambda *arrays: jnp.stack(arrays, axis=-1), *singles)

    values, slopes = eqx.filter_jit(case.objective.value_and_gradient_in_lanes)(lanes)
    of_one = eqx.filter_jit(case.objective.value_and_gradient)

    assert values.shape == (3,)
    for lane, single in enumerate(singles):
        value, slope = of_one(single)
        got = jax.tree.map(lambda array, lane=lane: array[..., lane], slopes)
        # The same sums in another order: a few units in the last place.
        assert oracles.relative_error(values[lane], value) < 1e-13
        assert oracles.relative_error(got, slope) < 1e-13


def test_recorded_weights_may_be_numpy_arrays():
    case = a_case("linear", "regression")
    recorded = tuple(np.asarray(array) for array in case.weights)
    expected = case.objective.value_and_gradient(case.weights)
    assert oracles.relative_error(case.objective.value_and_gradient(recorded), expected) == 0.0
    expected = case.objective.hvp(case.weights, case.direction)
    assert oracles.relative_error(case.objective.hvp(recorded, case.direction), expected) == 0.0


def test_weight_decay_may_be_traced():
    """A sweep over weight decay must not compile once per value."""
    case = a_case("linear", "regression", decay=0.0)
    network, problem = case.objective.network, case.objective.problem

    @jax.jit
    def value(decay):
        return tw.Objective(network, problem, weight_decay=decay)(case.weights)

    squares = sum(float(jnp.sum(array**2)) for array in case.weights)
    for decay in (0.0, 0.5):
        expected = case.naive(case.weights) + decay / 2 * squares
        assert oracles.relative_error(value(decay), expected) < ROUNDING
    assert value._cache_size() == 1


# --- numbers from the papers' checks -------------------------------------------------------------

# The numbers that these are compared with have twelve digits or more.
PRINTED = 1e-11


def test_marion_risk_gradients_and_extreme_curvature():
    x, y = oracles.marion_data_a()
    objective = tw.Objective(tw.LinearNetwork([3, 4, 2, 1]), tw.Regression(x, y, scale=1.0))
    weights = oracles.marion_weights((3, 4, 2, 1), scale=0.7, offset=0.0)
    product = objective.network.end_to_end(weights)[0]
    norms = [float(jnp.linalg.norm(array)) for array in objective.gradient(weights)]
    eigenvalues = np.linalg.eigvalsh(eqx.filter_jit(objective.hessian)(weights))

    np.testing.assert_allclose(objective(weights), 0.5933901332488742, rtol=1e-14)
    np.testing.assert_allclose(
        product, [0.240837268088, -0.18074725795, -0.090402468868], rtol=PRINTED
    )
    np.testing.assert_allclose(
        norms, [0.25076179940683285, 0.3617521331589726, 0.15633037618183854], rtol=1e-13
    )
    np.testing.assert_allclose(eigenvalues[0], -0.5932096645006886, rtol=1e-13)
    np.testing.assert_allclose(eigenvalues[-1], 3.408515566582816, rtol=1e-13)


def test_marion_curvature_at_the_origin_with_two_layers():
    """H(0) has eigenvalues +- 2 |Sigma w_star| for two layers, which is not small."""
    x, y = oracles.marion_data_b()
    objective = tw.Objective(tw.LinearNetwork([3, 4, 1]), tw.Regression(x, y, scale=1.0))
    origin = tuple(jnp.zeros(shape) for shape in objective.network.shapes)
    eigenvalues = np.linalg.eigvalsh(eqx.filter_jit(objective.hessian)(origin))
    np.testing.assert_allclose(
        eigenvalues[[0, -1]], [-1.6395452131863517, 1.6395452131863517], rtol=1e-13
    )


def test_elkabetz_linear_example():
    network = tw.LinearNetwork([2, 2, 2, 1])
    objective = tw.Objective(network, tw.TargetMatrix([1.0, 0.0]))
    weights = oracles.elkabetz_weights()
    hessian = eqx.filter_jit(objective.hessian)(weights)
    slopes = jnp.concatenate([array.ravel() for array in objective.gradient(weights)])

    np.testing.assert_allclose(network.end_to_end(weights), [[0.5, 1.25]], rtol=1e-15)
    np.testing.assert_allclose(objective(weights), 0.90625, rtol=1e-15)
    np.testing.assert_allclose(jnp.linalg.norm(slopes), 2.537222891273, rtol=PRINTED)
    eigenvalues = np.linalg.eigvalsh(hessian)
    np.testing.assert_allclose(
        eigenvalues[[0, -1]], [-2.370676963262, 8.056922080013], rtol=PRINTED
    )
    np.testing.assert_allclose(jnp.sum(hessian), 53.25, rtol=1e-14)


def test_elkabetz_leaky_example():
    network = tw.HomogeneousNetwork([2, 2, 2, 1], slopes=(1.0, 0.2))
    x = jnp.array([[1.0, 2.0], [1.0, -2.0]])
    objective = tw.Objective(network, tw.Regression(x, [1.0, -1.0]))
    weights = oracles.elkabetz_weights()
    # Printed to three digits, but they are exact decimals: products of a few small fractions.
    np.testing.assert_allclose(network(weights, x)[:, 0], [3.0, -0.08], rtol=1e-14)
    smallest = np.linalg.eigvalsh(eqx.filter_jit(objective.hessian)(weights))[0]
    np.testing.assert_allclose(smallest, -4.056005334709, rtol=PRINTED)


# --- cost ----------------------------------------------------------------------------------------


def flops_of_one_step(width, samples=40):
    random = np.random.default_rng(0)
    x, y = random.standard_normal((samples, width)), random.standard_normal(samples)
    objective = tw.Objective(tw.LinearNetwork([width, width, width, 1]), tw.Regression(x, y))
    weights = strategies.gaussians(objective.network.shapes, 0.1, random)

    @jax.jit
    def step(objective, weights, rate):
        return jax.tree.map(lambda w, g: w - rate * g, weights, objective.gradient(weights))

    return step.lower(objective, weights, 0.1).compile().cost_analysis()["flops"]


@pytest.mark.parametrize("width", [64, 128])
def test_a_step_with_one_output_costs_a_few_operations_per_weight(width):
    """Each weight takes part in two products, an outer product and the update: about eight flops.

    One product of two layers would cost 2 width^3, that is `width` flops per weight.
    """
    size = 2 * width**2 + width
    assert flops_of_one_step(width) <= 10 * size


def test_a_step_of_a_linear_network_does_not_see_the_samples():
    # Fewer samples than features, 40 of 64, make it cheaper still.
    of_some, of_many = (flops_of_one_step(64, samples=count) for count in (100, 4000))
    assert flops_of_one_step(64, samples=40) < of_some == of_many


# --- bad input -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def objective():
    x = np.arange(12.0).reshape(4, 3)
    return tw.Objective(tw.LinearNetwork([3, 4, 2]), tw.Regression(x, np.ones((4, 2))))


def test_features_must_fit():
    problem = tw.TargetMatrix(np.ones((1, 3)))
    with pytest.raises(tw.InputError, match="the network takes 2 features, the problem has 3"):
        tw.Objective(tw.HomogeneousNetwork([2, 1]), problem)


def test_outputs_must_fit():
    problem = tw.TargetMatrix(np.ones((1, 3)))
    with pytest.raises(tw.InputError, match="the network has 2 outputs, the problem 1"):
        tw.Objective(tw.LinearNetwork([3, 2]), problem)


def test_outputs_of_a_model_must_fit_when_it_runs():
    """One column against two targets would otherwise be broadcast without a word."""
    model = tw.Model(lambda weights, x: x @ weights[0].T, [(1, 3)])
    objective = tw.Objective(model, tw.TargetMatrix(np.ones((2, 3))))
    with pytest.raises(tw.InputError, match=r"one row of 2 outputs per sample, got shape \(3, 1\)"):
        objective((jnp.ones((1, 3)),))


def test_weights_in_the_wrong_order(objective):
    weights = (jnp.ones((2, 4)), jnp.ones((4, 3)))
    match = r"layer 1 has shape \(2, 4\), expected \(4, 3\). Was the tuple given last layer first\?"
    with pytest.raises(tw.InputError, match=match):
        objective.gradient(weights)


def test_weights_of_too_few_layers(objective):
    with pytest.raises(tw.InputError, match="must hold 2 arrays, one per layer, got 1"):
        objective((jnp.ones((4, 3)),))


@pytest.mark.parametrize("method", ["__call__", "gradient", "hessian"])
def test_a_batch_of_weights_is_not_summed_over(objective, method):
    weights = (jnp.ones((5, 4, 3)), jnp.ones((5, 2, 4)))
    match = r"`weights` must be those of one network: layer 1 has shape \(5, 4, 3\)"
    with pytest.raises(tw.InputError, match=match):
        getattr(objective, method)(weights)


def test_a_direction_that_does_not_fit(objective):
    weights = (jnp.ones((4, 3)), jnp.ones((2, 4)))
    with pytest.raises(tw.InputError, match=r"layer 2 has shape \(4,\), expected \(2, 4\)"):
        objective.hvp(weights, (jnp.ones((4, 3)), jnp.ones(4)))
    with pytest.raises(tw.InputError, match="`direction` must be those of one network"):
        objective.hvp(weights, (jnp.ones((2, 4, 3)), jnp.ones((2, 4))))


@pytest.mark.parametrize("decay", [-0.1, [0.1, 0.2]])
def test_weight_decay_must_be_one_number_that_is_not_negative(objective, decay):
    with pytest.raises(tw.InputError, match="`weight_decay` must be one number >= 0, got"):
        tw.Objective(objective.network, objective.problem, weight_decay=decay)


def test_weight_decay_must_be_finite(objective):
    with pytest.raises(tw.InputError, match="`weight_decay` must be finite, got nan"):
        tw.Objective(objective.network, objective.problem, weight_decay=float("nan"))


def test_a_hessian_above_the_limit_is_refused(objective, monkeypatch):
    monkeypatch.setattr(objective_module, "DENSE_LIMIT", 19)
    weights = (jnp.ones((4, 3)), jnp.ones((2, 4)))
    match = "there are 20 weights and the limit is 19; use `hvp`, which needs no matrix"
    with pytest.raises(tw.InputError, match=match):
        objective.hessian(weights)
