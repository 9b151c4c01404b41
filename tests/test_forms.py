"""Exact second derivatives, against autodiff of naive implementations and against known numbers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

import oracles
import strategies
import thalweg as tw
from thalweg import adversarial
from thalweg._checks import InputError
from thalweg.curvature.forms import linear_form, linear_hessian, reduced_sharpness, region_form
from thalweg.curvature.products import partial_products

# Closed forms and autodiff put the same few hundred operations in a different order.
ROUNDING = 1e-12

# There are many kinds, and each compiles: a few examples of each.
few = settings(max_examples=max(3, settings.default.max_examples // 5))


def alternating(*networks):
    """Every problem, with these networks in turn: the forms meet a problem through few methods."""
    chosen = [
        next(
            kind for kind in strategies.KINDS if kind[:2] == (networks[i % len(networks)], problem)
        )
        for i, problem in enumerate(strategies.PROBLEMS)
    ]
    return pytest.mark.parametrize("kind", chosen, ids=lambda kind: f"{kind[0]} on {kind[1]}")


# --- against autodiff ----------------------------------------------------------------------------


# Compilation is what these tests cost, so XLA is told not to optimise: the arithmetic is the same.
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
hessian_of, form_of, region_form_of = map(compiled, (linear_hessian, linear_form, region_form))


@partial(compiled, static_argnums=0)
def linear_both_ways(kind, objective, data, weights, direction):
    """The Hessian and the form by the package, then the Hessian by autodiff."""
    package = linear_hessian(objective, weights), linear_form(objective, weights, direction)
    return *package, oracles.hessian(partial(strategies.naive_loss, kind, data), weights)


@alternating("linear", "linear with readout")
@few
@given(spec=strategies.SPECS)
def test_the_hessian_of_a_linear_network_is_that_of_autodiff(kind, spec):
    case = strategies.case(kind, spec)
    got, form, expected = map(
        np.asarray,
        linear_both_ways(kind, case.objective, case.data, case.weights, case.direction),
    )
    size = np.linalg.norm(expected, 2)
    assert np.linalg.norm(got - expected, 2) <= ROUNDING * size
    np.testing.assert_array_equal(got, got.T)
    flat = np.asarray(ravel_pytree(case.direction)[0])
    assert abs(form - flat @ expected @ flat) <= ROUNDING * size * (flat @ flat)


@partial(compiled, static_argnums=0)
def region_both_ways(kind, objective, data, weights, direction):
    """The form by the package, then the Hessian times the direction by autodiff."""
    image = oracles.hvp(partial(strategies.naive_loss, kind, data), weights, direction)
    return region_form(objective, weights, direction), ravel_pytree(image)[0]


@alternating("homogeneous", "shared")
@few
@given(spec=strategies.SPECS)
def test_the_form_on_a_region_is_that_of_autodiff(kind, spec):
    case = strategies.case(kind, spec)
    form, image = region_both_ways(kind, case.objective, case.data, case.weights, case.direction)
    flat = ravel_pytree(case.direction)[0]
    size = jnp.linalg.norm(image) * jnp.linalg.norm(flat)
    assert abs(form - image @ flat) <= max(ROUNDING * size, 1e-100)  # squares must not underflow


def test_a_region_with_equal_slopes_is_linear():
    """Slopes (1, 1) make a linear network of a homogeneous one."""
    random = np.random.default_rng(0)
    problem = tw.Regression(random.standard_normal((9, 3)), random.standard_normal((9, 2)))
    linear = tw.Objective(tw.LinearNetwork([3, 4, 2, 2]), problem)
    bent = tw.Objective(tw.HomogeneousNetwork([3, 4, 2, 2], (1.0, 1.0)), problem)
    weights = strategies.gaussians(linear.network.shapes, 0.7, random)
    direction = strategies.gaussians(linear.network.shapes, 1.0, random)
    expected = form_of(linear, weights, direction)
    np.testing.assert_allclose(region_form_of(bent, weights, direction), expected, rtol=ROUNDING)


def test_the_hessian_may_be_mapped_and_compiled():
    random = np.random.default_rng(1)
    network = tw.LinearNetwork([2, 3, 1], readout=[0.5])
    problem = tw.Classification(random.standard_normal((6, 2)), [0, 1, 1, 0, 1, 0], loss="logistic")
    objective = tw.Objective(network, problem, weight_decay=0.1)
    points = tuple(jnp.asarray(random.standard_normal((4, *shape))) for shape in network.shapes)
    mapped = compiled(jax.vmap(linear_hessian, in_axes=(None, 0)))(objective, points)
    for index, hessian in enumerate(mapped):
        expected = hessian_of(objective, tuple(array[index] for array in points))
        np.testing.assert_allclose(hessian, expected, atol=ROUNDING * np.abs(expected).max())


def test_a_classification_of_few_weights_and_many_features():
    """More features than weights, so that no basis of the matrices is used."""
    random = np.random.default_rng(2)
    x, labels = random.standard_normal((4, 9)), [0, 1, 2, 1]
    objective = tw.Objective(tw.LinearNetwork([9, 1, 3]), tw.Classification(x, labels))
    weights = strategies.gaussians(objective.network.shapes, 1.0, random)

    def naive(point):
        return oracles.cross_entropy(x @ (point[1] @ point[0]).T, np.array(labels))

    expected = np.asarray(compiled(oracles.hessian, static_argnums=0)(naive, weights))
    got = np.asarray(hessian_of(objective, weights))
    assert np.linalg.norm(got - expected, 2) <= ROUNDING * np.linalg.norm(expected, 2)


# --- against numbers -----------------------------------------------------------------------------


def test_the_small_example():
    """elkabetz2021's weights 2-2-2-1 on the target (1, 0), with twelve digits."""
    objective = tw.Objective(tw.LinearNetwork([2, 2, 2, 1]), tw.TargetMatrix([1.0, 0.0]))
    weights = oracles.elkabetz_weights()
    values = np.linalg.eigvalsh(np.asarray(hessian_of(objective, weights)))
    np.testing.assert_allclose(values[[0, -1]], [-2.370676963262, 8.056922080013], rtol=1e-12)
    ones = jax.tree.map(jnp.ones_like, weights)
    assert form_of(objective, weights, ones) == 53.25  # of numbers with few binary digits


@given(seed=st.integers(0, 2**31 - 1), curvature=st.floats(1e-3, 1e6))
def test_a_linear_network_curves_down_as_sharply_as_asked(seed, curvature):
    """elkabetz2021:prop6: the form is -curvature |d|^2, hence no bound holds for all weights."""
    random = np.random.default_rng(seed)
    network = tw.LinearNetwork([3, 2, 4, 2])
    problem = tw.Regression(random.standard_normal((6, 3)), random.standard_normal((6, 2)))
    saddle = adversarial.sharp_saddle(network, problem, curvature)
    form = form_of(tw.Objective(network, problem), saddle.weights, saddle.direction)
    np.testing.assert_allclose(form, -2 * curvature, rtol=1e-13)  # some ten roundings


@pytest.mark.parametrize(("factor", "expected"), [(10.0, -30.529808), (100.0, -307.99729808)])
def test_a_region_curves_down_without_bound(factor, expected):
    """elkabetz2021:prop10 with the numbers of its small example, which are terminating decimals."""
    network = tw.HomogeneousNetwork([2, 2, 2, 1], (1.0, 0.2))
    problem = tw.Regression([[1.0, 2.0], [1.0, -2.0]], [1.0, -1.0])
    saddle = adversarial.rescaled_saddle(network, problem, oracles.elkabetz_weights(), factor)
    form = region_form_of(tw.Objective(network, problem), saddle.weights, saddle.direction)
    np.testing.assert_allclose(form, expected, rtol=1e-12)


# --- the sharpness of minimisers -----------------------------------------------------------------


def minimiser(objective, weights):
    """The weights with the first layer changed by the least that makes them a minimiser."""
    rest = partial_products(objective.network, weights)[0][0][0]  # of the layers after the first
    missing = objective.problem.minimiser[0] - weights[0].T @ rest
    return (weights[0] + jnp.outer(rest, missing) / (rest @ rest), *weights[1:])


def marion_minimiser():
    """marion2024's deterministic data A and a minimiser of widths 3-4-2-1."""
    x, y = oracles.marion_data_a()
    objective = tw.Objective(tw.LinearNetwork([3, 4, 2, 1]), tw.Regression(x, y, scale=1.0))
    return objective, minimiser(objective, oracles.marion_weights([3, 4, 2, 1], 0.7, 0.0))


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (1, 2.38758410528763),
        (10, 150.61240221780528),
        (100, 15056.014928999139),
        (1000, 1505597.0976684238),
    ],
)
def test_the_sharpness_of_rescaled_minimisers(factor, expected):
    """marion2024's example that sharpness is unbounded among minimisers, to all digits given."""
    objective, (first, second, third) = marion_minimiser()
    rescaled = (factor * first, second / factor, third)
    np.testing.assert_allclose(reduced_sharpness(objective, rescaled), expected, rtol=1e-13)


@pytest.mark.parametrize("readout", [None, (0.3, -0.2)])
@given(seed=st.integers(0, 2**31 - 1), scale=st.floats(0.1, 3.0), samples=st.sampled_from([2, 9]))
def test_the_reduced_sharpness_is_the_largest_eigenvalue(readout, seed, scale, samples):
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((samples, 3)), random.standard_normal(samples)
    network = tw.LinearNetwork([3, 4, 2, 1 if readout is None else 2], readout)
    objective = tw.Objective(network, tw.Regression(x, y, scale=scale))
    weights = minimiser(objective, strategies.gaussians(network.shapes, 1.0, random))
    expected = np.linalg.eigvalsh(np.asarray(hessian_of(objective, weights)))[-1]
    # The first layer may be large where the others' product is small: then the weights are only
    # nearly a minimiser, which the tolerance allows for.
    got = reduced_sharpness(objective, weights, tolerance=1e-8)
    np.testing.assert_allclose(got, expected, rtol=1e-8)


def test_the_reduced_sharpness_of_the_identity():
    """At W_k = I with the readout as solution it is 2 scale L lambda_max(Sigma) |w|^2."""
    x, _ = oracles.marion_data_b()
    readout = np.array([0.6, -0.8, 2.0])
    problem = tw.Regression(x, x @ readout, scale=1.0)
    network = tw.LinearNetwork([3] * 6, readout)
    objective = tw.Objective(network, problem, weight_decay=0.25)
    expected = 2 * 5 * problem.spectrum[-1] * readout @ readout + 0.25
    sharpness = reduced_sharpness(objective, (jnp.eye(3),) * 5)
    np.testing.assert_allclose(sharpness, expected, rtol=1e-13)  # eigenvalues of size 3 matrices


def test_the_reduced_sharpness_is_refused_elsewhere():
    objective, weights = marion_minimiser()
    moved = (weights[0] + 0.1, *weights[1:])
    with pytest.raises(InputError, match=r"gradient there has norm 0\.\d+"):
        reduced_sharpness(objective, moved)
    assert np.isnan(jax.jit(lambda point: reduced_sharpness(objective, point))(moved))
    two = tw.Objective(tw.LinearNetwork([3, 2]), tw.TargetMatrix(np.ones((2, 3))))
    with pytest.raises(InputError, match="one output, got TargetMatrix with 2"):
        reduced_sharpness(two, (jnp.ones((2, 3)),))


def test_forms_are_refused_for_other_networks():
    relu = tw.Objective(tw.HomogeneousNetwork([2, 2, 1]), tw.TargetMatrix([1.0, 0.0]))
    linear = tw.Objective(tw.LinearNetwork([2, 2, 1]), tw.TargetMatrix([1.0, 0.0]))
    weights = (jnp.ones((2, 2)), jnp.ones((1, 2)))
    with pytest.raises(InputError, match="`linear_hessian` needs a LinearNetwork"):
        linear_hessian(relu, weights)
    with pytest.raises(InputError, match="a LinearNetwork has `linear_form`"):
        region_form(linear, weights, weights)
