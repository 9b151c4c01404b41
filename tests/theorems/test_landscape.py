"""Bounds on the smallest Hessian eigenvalue: they hold, are attained, and know where they end."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import strategies
import thalweg as tw
from thalweg.certificates import Case, Question, Verdict
from thalweg.certificates.points import recorded
from thalweg.curvature import (
    activation_pattern,
    dense_spectrum,
    is_regular,
    linear_form,
    linear_hessian,
    region_form,
)
from thalweg.network import Convolution, Dense, SharedNetwork, Tied
from thalweg.theorems.landscape.smallest_eigenvalue import (
    LinearCurvature,
    RegionCurvature,
    ShallowCurvature,
)

# Each kind compiles: a few examples of each.
few = settings(max_examples=max(4, settings.default.max_examples // 3))

# Compilation is what these tests cost, so XLA is told not to optimise: the arithmetic is the same.
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

LEAKY = tw.Objective(
    tw.HomogeneousNetwork([2, 2, 2, 1], (1.0, 0.2)),
    tw.Regression([[1.0, 2.0], [1.0, -2.0]], [1.0, -1.0]),
)
LINEAR = tw.Objective(tw.LinearNetwork([2, 2, 2, 1]), tw.TargetMatrix([1.0, 0.0]))
CONVOLUTIONS = tw.Objective(
    SharedNetwork(
        [Convolution(1, 1, (1, 2), (1, 4)), Convolution(1, 1, (1, 2), (1, 3)), Dense(2, 1)],
        (1.0, 0.2),
    ),
    tw.Regression([[1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 1.0, -2.0]], [1.0, 0.0]),
)
KERNELS = (jnp.array([[[[1.0, -0.4]]]]), jnp.array([[[[0.5, 1.0]]]]), jnp.array([[1.0, 2.0]]))


def kinds(*pairs):
    chosen = [next(kind for kind in strategies.KINDS if kind[:2] == pair) for pair in pairs]
    return pytest.mark.parametrize("kind", chosen, ids=lambda kind: f"{kind[0]} on {kind[1]}")


def smallest(certificate, name="sharper"):
    """The eigenvalue that the bound of this name was compared with, at the start."""
    found = [c for c in certificate.conclusions if c.statement.startswith(f"the {name} bound")]
    return found[0]


def scalars(*numbers):
    return tuple(jnp.full((1, 1), number) for number in numbers)


# --- the second derivative itself ----------------------------------------------------------------


@pytest.mark.statement("elkabetz2021:lem5", "value")
def test_the_hessian_of_the_small_linear_example():
    """Numbers computed elsewhere, to the twelve digits given."""
    weights = oracles.elkabetz_weights()

    @compiled
    def numbers(weights):
        ones = tuple(jnp.ones_like(array) for array in weights)
        value, slopes = LINEAR.value_and_gradient(weights)
        slope = jnp.sqrt(sum(jnp.sum(each**2) for each in slopes))
        form = linear_form(LINEAR, weights, ones)
        return value, slope, linear_hessian(LINEAR, weights), form

    value, slope, hessian, form = (np.asarray(number) for number in numbers(weights))
    np.testing.assert_allclose(value, 0.90625, rtol=1e-15)
    np.testing.assert_allclose(slope, 2.537222891273, rtol=1e-12)
    ends = np.linalg.eigvalsh(hessian)[[0, -1]]
    np.testing.assert_allclose(ends, [-2.370676963262, 8.056922080013], rtol=1e-12)
    # Sums of quarters, hence exact but for the order of summation.
    np.testing.assert_allclose(form, 53.25, rtol=1e-14)
    np.testing.assert_allclose(hessian.sum(), 53.25, rtol=1e-14)


@pytest.mark.statement("elkabetz2021:lem9", "value")
@pytest.mark.statement("elkabetz2021:lem21", "value")
@kinds(("homogeneous", "cross_entropy"), ("shared", "regression"))
def test_the_form_on_a_region_is_that_of_autodiff(kind):
    case = strategies.case(kind, strategies.Spec(5, slopes=(1.0, 0.1)))
    form = compiled(region_form)(case.objective, case.weights, case.direction)
    turned = compiled(partial(oracles.hvp, case.naive))(case.weights, case.direction)
    expected = sum(
        float(jnp.sum(one * other)) for one, other in zip(case.direction, turned, strict=True)
    )
    # Two orders of summation of the same hundred or so terms.
    np.testing.assert_allclose(form, expected, rtol=1e-11)


@pytest.mark.statement("elkabetz2021:prop25", "value")
@pytest.mark.statement("elkabetz2021:prop26", "value")
@pytest.mark.parametrize(
    "network",
    [
        tw.HomogeneousNetwork([3, 4, 3, 2]),
        SharedNetwork(
            [Convolution(1, 2, (1, 2), (1, 3)), Tied([[0, 1, -1, -1], [-1, 0, 1, 2]]), Dense(2, 1)],
            (1.0, 0.2),
        ),
    ],
    ids=["relu", "shared"],
)
def test_a_region_is_a_cone_on_which_the_network_is_a_masked_product(network):
    random = np.random.default_rng(4)
    x = jnp.asarray(random.standard_normal((5, 3)))
    weights = strategies.gaussians(network.shapes, 1.0, random)
    assert compiled(is_regular)(network, weights, x)
    # Powers of two rescale without rounding, so no sign can change by it.
    scaled = tuple(factor * array for factor, array in zip((8, 0.25, 4), weights, strict=True))
    pattern_of = compiled(activation_pattern)
    pattern = pattern_of(network, weights, x)
    for before, after in zip(pattern, pattern_of(network, scaled, x), strict=True):
        np.testing.assert_array_equal(before, after)
    matrices = network.matrices(scaled)
    matrices = [np.asarray(matrix) for matrix in matrices]
    outputs, slopes = np.asarray(network(scaled, x)), [float(slope) for slope in network.slopes]
    for index, sample in enumerate(np.asarray(x)):
        product = matrices[0]
        for mask, matrix in zip(pattern, matrices[1:], strict=True):
            product = matrix @ (np.where(mask[index], *slopes)[:, None] * product)
        # A dozen roundings of numbers around ten.
        np.testing.assert_allclose(product @ sample, outputs[index], rtol=0, atol=1e-13)


# --- bounds at a point ---------------------------------------------------------------------------


@pytest.mark.statement("elkabetz2021:lem7", "holds")
@kinds(("linear", "regression"), ("linear with readout", "cross_entropy"))
@few
@given(spec=strategies.SPECS)
def test_linear_networks_curve_no_more_than_their_bound(kind, spec):
    case = strategies.case(kind, spec)
    certificate = LinearCurvature().check(Case(case.objective, case.weights))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    sharper, printed = (answer.value for answer in certificate.answers)
    assert printed <= sharper + 1e-12 * abs(printed)  # both of some ten operations
    assert certificate.answers[0].question is Question.CURVATURE


@pytest.mark.statement("elkabetz2021:lem7", "tight")
def test_the_bound_of_the_small_linear_example():
    """Numbers from elsewhere: the sharper bound is off by a third, the printed by 4 / 5."""
    certificate = LinearCurvature().check(Case(LINEAR, oracles.elkabetz_weights()))
    sharper, printed = (answer.value for answer in certificate.answers)
    np.testing.assert_allclose([printed, sharper], [-4.257346591482, -3.185316642391], rtol=1e-12)
    np.testing.assert_allclose(smallest(certificate).greater, [-2.370676963262], rtol=1e-12)


@pytest.mark.statement("elkabetz2021:lem7", "tight")
@pytest.mark.parametrize("size", [1e-2, 1e-3])
def test_small_scalars_attain_the_bound(size):
    """The loss's own curvature is smaller by three orders of the size, and so is the gap."""
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1, 1]), tw.TargetMatrix([1.0]))
    certificate = LinearCurvature().check(Case(objective, scalars(size, size, size)))
    for name in ("printed", "sharper"):
        claim = smallest(certificate, name)
        np.testing.assert_allclose(claim.lesser, claim.greater, rtol=3 * size**3 + 1e-14)
    np.testing.assert_allclose(smallest(certificate).lesser, -2 * size, rtol=2 * size**3)


@pytest.mark.statement("elkabetz2021:lem7", "fails")
def test_the_bound_of_linear_networks_is_for_linear_networks():
    certificate = LinearCurvature().check(Case(LEAKY, oracles.elkabetz_weights()))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin == -1
    assert not certificate.answers


@pytest.mark.statement("elkabetz2021:lem11", "holds")
@pytest.mark.statement("elkabetz2021:lem23", "holds")
@kinds(("homogeneous", "cross_entropy"), ("shared", "regression"))
@few
@given(spec=strategies.SPECS)
def test_networks_of_two_slopes_curve_no_more_than_their_bound(kind, spec):
    case = strategies.case(kind, spec)
    certificate = RegionCurvature().check(Case(case.objective, case.weights))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    sharper, printed = (answer.value for answer in certificate.answers)
    assert printed <= sharper + 1e-12 * abs(printed)  # both of some ten operations


@pytest.mark.statement("elkabetz2021:lem11", "tight")
@pytest.mark.statement("elkabetz2021:lem23", "tight")
@pytest.mark.parametrize(
    ("objective", "weights", "eigenvalue", "bound", "looseness"),
    [
        (LEAKY, oracles.elkabetz_weights(), -4.056005334709, -10.323759005324, 2.6),
        (CONVOLUTIONS, KERNELS, -14.502766337502, -151.742765001656, 10.5),
    ],
    ids=["full matrices", "convolutions"],
)
def test_the_bounds_of_the_small_examples(objective, weights, eigenvalue, bound, looseness):
    """Numbers from elsewhere, to the digits given."""
    certificate = RegionCurvature().check(Case(objective, weights))
    claim = smallest(certificate, "printed")
    np.testing.assert_allclose(claim.greater, [eigenvalue], rtol=1e-12)
    np.testing.assert_allclose(claim.lesser, [bound], rtol=1e-12)
    assert eigenvalue * looseness < bound < eigenvalue * (looseness - 0.1)
    assert np.all(smallest(certificate).lesser > claim.lesser)


@pytest.mark.statement("elkabetz2021:lem11", "tight")
@pytest.mark.statement("elkabetz2021:lem23", "tight")
@pytest.mark.parametrize(
    ("network", "weights", "expected"),
    [
        (tw.HomogeneousNetwork([1, 1, 1, 1], (0.5, 0.1)), (1, 1, 1), -2 * 0.5**2),
        (
            SharedNetwork([Tied([[0], [0]]), Dense(2, 1), Dense(1, 1)], (0.5, 0.1)),
            (1, np.full((1, 2), np.sqrt(0.5)), np.ones((1, 1))),
            -2 * np.sqrt(2) * 0.5**2,
        ),
    ],
    ids=["scalars", "a column of one shared weight"],
)
def test_small_chains_attain_the_bounds(network, weights, expected):
    """Both are scalar chains in disguise; a layer of the second has the operator norm sqrt(2)."""
    objective = tw.Objective(network, tw.Regression([[1.0]], [1.0]))
    size = 1e-3
    point = tuple(
        size * jnp.broadcast_to(jnp.asarray(each, float), shape)
        for each, shape in zip(weights, network.shapes, strict=True)
    )
    certificate = RegionCurvature().check(Case(objective, point))
    for name in ("printed", "sharper"):
        claim = smallest(certificate, name)
        np.testing.assert_allclose(claim.lesser, size * expected, rtol=10 * size**3)
        # The loss's own curvature is smaller by three orders of the size.
        np.testing.assert_allclose(claim.greater, claim.lesser, rtol=10 * size**3)


@pytest.mark.statement("elkabetz2021:lem11", "fails")
@pytest.mark.statement("elkabetz2021:lem23", "fails")
def test_the_bound_of_two_slopes_needs_a_smooth_point():
    linear = RegionCurvature().check(Case(LINEAR, oracles.elkabetz_weights()))
    assert linear.verdict is Verdict.NOT_APPLICABLE
    for objective, weights in ((LEAKY, oracles.elkabetz_weights()), (CONVOLUTIONS, KERNELS)):
        kink = (0 * weights[0], *weights[1:])
        certificate = RegionCurvature().check(Case(objective, kink))
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        assert certificate.first_failure.statement.startswith("no pre-activation")
        assert certificate.first_failure.margin == -1


def test_the_bound_is_looked_at_along_a_run_where_there_is_something_to_see():
    """Of three points of a run, two of them smooth, and one of those not finite."""
    weights = oracles.elkabetz_weights()
    run = tw.descend(LEAKY, weights, learning_rate=0.01, steps=2)
    spoilt = tuple(np.array(array) for array in run.weights)
    spoilt[0][1], spoilt[1][2] = 0, np.nan
    run = eqx.tree_at(lambda run: run.weights, run, spoilt)
    certificate = RegionCurvature().check(Case.of(run))
    assert certificate.verdict is Verdict.CONFIRMED
    along = [claim for claim in certificate.conclusions if claim.statement.endswith("the run")]
    assert [np.size(claim.lesser) for claim in along] == [1, 1]
    observed = eqx.tree_at(lambda run: run.weights, run, ())
    certificate = RegionCurvature().check(Case(LEAKY, weights, run=observed))
    assert len(certificate.conclusions) == 2  # at the start alone


def test_many_points_are_solved_together():
    """Three equal scalars w: the eigenvalues are (1 - w^3) w, twice, and 3 w^4 - 2 (1 - w^3) w."""
    objective = tw.Objective(tw.LinearNetwork([1, 1, 1, 1]), tw.TargetMatrix([1.0]))
    run = tw.descend(objective, scalars(0.4, 0.4, 0.4), learning_rate=0.02, steps=39)
    certificate = LinearCurvature().check(Case.of(run))
    assert certificate.verdict is Verdict.CONFIRMED
    claim = certificate.conclusions[-1]
    w = run.weights[0][:, 0, 0]
    expected = np.minimum((1 - w**3) * w, 3 * w**4 - 2 * (1 - w**3) * w)
    np.testing.assert_allclose(claim.greater, expected, atol=1e-6 * 3)  # of norms up to 3
    # A descent is what it is; a flow is known up to its error.
    assert not recorded("along the run", run).error.any()
    flow = tw.flow(objective, scalars(0.4, 0.4, 0.4), times=[0.0, 0.5, 1.0])
    np.testing.assert_array_equal(recorded("along the flow", flow).error, flow.error)


# --- two layers ----------------------------------------------------------------------------------

SHALLOW = {
    "linear": tw.LinearNetwork([3, 4, 1], readout=[0.3]),
    "two slopes": tw.HomogeneousNetwork([3, 4, 1], (1.0, -2.0)),
    "shared": SharedNetwork([Convolution(1, 2, (1, 2), (1, 3)), Dense(4, 1)], (0.5, 1.5)),
}


@pytest.mark.statement("elkabetz2021:claim27", "holds")
@pytest.mark.statement("elkabetz2021:claim28", "holds")
@pytest.mark.statement("elkabetz2021:claim29", "holds")
@pytest.mark.parametrize("name", SHALLOW)
@given(seed=st.integers(0, 2**31 - 1), size=st.floats(0.01, 30.0))
def test_two_layers_are_bounded_below_at_all_weights(name, seed, size):
    random = np.random.default_rng(seed)
    x, labels = random.standard_normal((7, 3)), random.integers(0, 2, 7)
    objective = tw.Objective(SHALLOW[name], tw.Classification(x, labels, loss="logistic"))
    weights = strategies.gaussians(SHALLOW[name].shapes, size, random)
    certificate = ShallowCurvature().check(Case(objective, weights))
    assert certificate.verdict is Verdict.CONFIRMED, certificate
    assert certificate.answers[0].condition == "at all weights"
    assert len(certificate.conclusions) == 1


@pytest.mark.statement("elkabetz2021:claim27", "tight")
@pytest.mark.statement("elkabetz2021:claim28", "tight")
@pytest.mark.statement("elkabetz2021:claim29", "tight")
@pytest.mark.parametrize(
    "network",
    [
        tw.LinearNetwork([1, 1, 1]),
        tw.HomogeneousNetwork([1, 1, 1], (1.0, 0.2)),
        SharedNetwork([Dense(1, 1), Dense(1, 1)], (1.0, 0.2)),
    ],
    ids=SHALLOW,
)
def test_outputs_that_are_very_wrong_attain_the_bound(network):
    """The logistic loss is then straight, with slope -1, and H is minus the exchange of weights."""
    problem = tw.Classification([[1.0]], [1], loss="logistic")
    weights = scalars(5.0, -7.0)
    certificate = ShallowCurvature().check(Case(tw.Objective(network, problem), weights))
    claim = certificate.conclusions[0]
    assert claim.lesser == -1
    # Straight but for e^-35 times the squared norm of the weights, 74.
    np.testing.assert_allclose(claim.greater, -1, rtol=75 * np.exp(-35) + 1e-15)


@pytest.mark.statement("elkabetz2021:claim27", "fails")
@pytest.mark.statement("elkabetz2021:claim28", "fails")
@pytest.mark.statement("elkabetz2021:claim29", "fails")
@pytest.mark.parametrize("deep", [False, True])
def test_a_bound_at_all_weights_needs_two_layers_and_a_bounded_slope(deep):
    widths = [2, 2, 2, 1] if deep else [2, 2, 1]
    problem = tw.Classification(np.eye(2), [0, 1], loss="logistic" if deep else "exponential")
    networks = (
        tw.LinearNetwork(widths),
        tw.HomogeneousNetwork(widths),
        SharedNetwork([Dense(2, 2)] * (2 if deep else 1) + [Dense(2, 1)]),
    )
    for network in networks:
        weights = tuple(jnp.ones(shape) for shape in network.shapes)
        certificate = ShallowCurvature().check(Case(tw.Objective(network, problem), weights))
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        word = "two layers" if deep else "is bounded"
        assert word in certificate.first_failure.statement
        assert certificate.first_failure.margin == -1


@pytest.mark.statement("elkabetz2021:claim27", "value")
@pytest.mark.statement("elkabetz2021:claim28", "value")
@pytest.mark.statement("elkabetz2021:claim29", "value")
def test_without_inputs_the_loss_is_flat_at_any_depth():
    """The other half of the claims: the curvature need not be unbounded if zero is a minimiser."""
    problem = tw.Regression(np.zeros((2, 2)), [1.0, -1.0])
    networks = (
        tw.LinearNetwork([2, 2, 2, 1]),
        tw.HomogeneousNetwork([2, 2, 2, 1]),
        SharedNetwork([Dense(2, 2), Dense(2, 2), Dense(2, 1)]),
    )
    for network in networks:
        spectrum = dense_spectrum(tw.Objective(network, problem), oracles.elkabetz_weights())
        np.testing.assert_array_equal(spectrum, 0)


def test_any_case_gets_an_answer_instead_of_an_error():
    bend = tw.Model(lambda w, x: jnp.tanh(x @ w[0].T), [(1, 2)], 2, 1)
    objective = tw.Objective(bend, tw.TargetMatrix([1.0, 0.0]), weight_decay=0.1)
    for theorem in (LinearCurvature(), RegionCurvature(), ShallowCurvature()):
        certificate = theorem.check(Case(objective, (jnp.ones((1, 2)),)))
        assert certificate.verdict is Verdict.NOT_APPLICABLE
