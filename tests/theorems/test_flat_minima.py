"""marion2024 on the sharpness of minimisers: bounds that hold and are attained, misprints aside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import oracles
import strategies
import thalweg as tw
from test_minimisers import chain, data_a, data_b, minimiser, regressions
from thalweg._checks import InputError
from thalweg.certificates import Case, Question, RandomStart, Verdict
from thalweg.curvature import least_sharpness, minimiser_sharpness_bounds
from thalweg.theorems.residual_starts.flow import ResidualStartConverges
from thalweg.theorems.residual_starts.products import ResidualProducts, ResidualProductsByTerms
from thalweg.theorems.residual_starts.random_starts import (
    RandomResidualLimitIsFlat,
    RandomResidualStartConverges,
    RandomResidualStartConvergesForManyOutputs,
)
from thalweg.theorems.settings.deep_regression import Point, deep_regression, unique_solution
from thalweg.theorems.sharpness.minimisers import (
    FlattestMinimiser,
    SharpnessIsUnbounded,
    SharpnessOfMinimisers,
    largest_settling_rate,
    rescaled,
)
from thalweg.theorems.small_starts.flow import (
    BalanceIsConserved,
    EventuallyLojasiewicz,
    LayersAlign,
)
from thalweg.theorems.small_starts.limit import (
    LayersGrowAlike,
    SmallStartConverges,
    SmallStartLimitIsFlat,
    SmallStartLimitSharpness,
)

ABOUT_TRAINING = [
    SharpnessOfMinimisers,
    FlattestMinimiser,
    BalanceIsConserved,
    LayersAlign,
    EventuallyLojasiewicz,
    LayersGrowAlike,
    SmallStartConverges,
    SmallStartLimitIsFlat,
    SmallStartLimitSharpness,
    ResidualProducts,
    ResidualProductsByTerms,
    ResidualStartConverges,
    RandomResidualStartConverges,
    RandomResidualLimitIsFlat,
    RandomResidualStartConvergesForManyOutputs,
]


@jax.jit
def hessian(objective, weights):
    return objective.hessian(weights)


def check(theorem, objective, weights):
    return theorem.check(Case(objective, weights))


# --- the setting ---------------------------------------------------------------------------------


@pytest.mark.statement("marion2024:def-model", "value")
@pytest.mark.statement("marion2024:def-risk", "value")
@pytest.mark.statement("marion2024:eq3", "value")
@pytest.mark.statement("marion2024:eq5", "value")
@pytest.mark.statement("marion2024:eq6", "value")
def test_the_risk_and_its_gradient():
    """The deterministic data A; the product is given to twelve decimals."""
    objective, _ = data_a()
    weights = oracles.marion_weights([3, 4, 2, 1], 0.7, 0.0)
    np.testing.assert_allclose(objective(weights), 0.5933901332488742, rtol=1e-13)
    product = objective.network.end_to_end(weights)
    np.testing.assert_allclose(
        product, [[0.240837268088, -0.18074725795, -0.090402468868]], atol=6e-13
    )
    gradient = objective.gradient(weights)
    expected = [0.25076179940683285, 0.3617521331589726, 0.15633037618183854]
    np.testing.assert_allclose([np.linalg.norm(g) for g in gradient], expected, rtol=1e-12)
    error = objective.problem.minimiser - product
    slope = -2 * error @ objective.problem.input_moment
    np.testing.assert_allclose(objective.problem.gradient(product), slope, rtol=1e-12)


@pytest.mark.statement("marion2024:def-sharpness", "value")
@pytest.mark.statement("marion2024:eq7", "value")
def test_gradients_change_by_the_eigenvalue_of_the_larger_modulus():
    """Central differences along both end eigenvectors; the square of the step is the error."""
    objective, _ = data_a()
    weights = oracles.marion_weights([3, 4, 2, 1], 0.7, 0.0)
    ends = tw.extreme_eigenvalues(objective, weights)
    found = (float(ends.smallest[0].value), float(ends.largest[0].value))
    assert found == pytest.approx((-0.5932096645006886, 3.408515566582816), rel=1e-10)
    values, vectors = np.linalg.eigh(np.asarray(hessian(objective, weights)))
    flat, step = np.concatenate([np.ravel(w) for w in weights]), 1e-5
    shapes = [np.shape(w) for w in weights]

    def gradient(point):
        parts = np.split(point, np.cumsum([np.prod(shape) for shape in shapes])[:-1])
        arrays = tuple(jnp.asarray(p.reshape(s)) for p, s in zip(parts, shapes, strict=True))
        return np.concatenate([np.ravel(g) for g in objective.gradient(arrays)])

    for value, vector in ((values[0], vectors[:, 0]), (values[-1], vectors[:, -1])):
        change = gradient(flat + step * vector) - gradient(flat - step * vector)
        quotient = np.linalg.norm(change) / (2 * step)
        np.testing.assert_allclose(quotient, abs(value), rtol=1e-8)  # so -0.59 counts as 0.59


@pytest.mark.statement("marion2024:d-reduced-sharpness", "value")
def test_the_sharpness_at_a_minimiser_needs_no_hessian():
    objective, weights = data_a()
    reduced = float(tw.curvature.reduced_sharpness(objective, weights))
    assert reduced == pytest.approx(2.38758410528763, rel=1e-12)
    full = np.linalg.eigvalsh(np.asarray(hessian(objective, weights)))[-1]
    assert reduced == pytest.approx(full, rel=1e-12)


@pytest.mark.statement("marion2024:def-smin", "value")
def test_the_three_numbers_at_depth_ten():
    """Data B, to the six decimals that are given."""
    expected = [5.120227, 17.982736, 18.835512]
    np.testing.assert_allclose(minimiser_sharpness_bounds(data_b(10)), expected, atol=5e-7)


@pytest.mark.statement("marion2024:asm-A1", "value")
def test_samples_must_span_all_directions():
    objective = data_b(2)
    (_, claim) = unique_solution(deep_regression(objective).known).claims
    assert claim.worst()[1] == pytest.approx(0.12347884339119472, rel=1e-12)
    few = tw.Objective(tw.LinearNetwork([3, 1]), tw.Regression(np.eye(3)[:2], [1.0, 2.0]))
    assert not unique_solution(deep_regression(few).known).claims[1].holds
    none = tw.Objective(tw.LinearNetwork([3, 1]), tw.Regression(np.zeros((2, 3)), [1.0, 2.0]))
    assert not unique_solution(deep_regression(none).known).claims[0].holds


@pytest.mark.parametrize("theorem", ABOUT_TRAINING)
def test_theorems_about_training_cope_with_any_case(theorem):
    """No network, problem or missing field may raise; where nothing fits, a claim says so."""
    for kind in strategies.KINDS[::5]:
        drawn = strategies.case(kind, strategies.Spec(seed=1))
        for law in (None, RandomStart("residual", 0.1), RandomStart("gaussian", 0.1)):
            case = Case(drawn.objective, drawn.weights, random_start=law, target_loss=0.1)
            certificate = theorem().check(case)
            if kind.decay or kind.network not in ("linear", "linear with readout"):
                known = theorem in (ResidualProducts, ResidualProductsByTerms)
                assert certificate.verdict is Verdict.NOT_APPLICABLE or known


# --- all minimisers ------------------------------------------------------------------------------

DRAWN = {"seed": st.integers(0, 2**31 - 1), "scale": st.floats(0.1, 3.0)}


@pytest.mark.statement("marion2024:thm1", "holds")
@pytest.mark.statement("marion2024:thm2", "holds")
@pytest.mark.statement("marion2024:d-min-sharpness", "holds")
@pytest.mark.parametrize(("depth", "readout"), [(3, None), (4, 0.2)])
@settings(max_examples=8)
@given(**DRAWN)
def test_no_minimiser_is_flatter_than_the_bounds(depth, readout, seed, scale):
    objective, weights = regressions(depth, readout, seed, scale, samples=8)
    weights = minimiser(objective, weights)
    assume(jnp.linalg.norm(weights[0]) < 1e4)  # else the product is only nearly the solution
    for theorem in (SharpnessOfMinimisers(), FlattestMinimiser()):
        certificate = check(theorem, objective, weights)
        assert certificate.verdict is Verdict.CONFIRMED, certificate
        assert certificate.conclusions
    floors = [a for a in certificate.answers if a.question is Question.LEAST_SHARPNESS]
    rates = [a for a in certificate.answers if a.question is Question.CRITICAL_RATE]
    assert float(floors[0].value) * float(rates[0].value) == pytest.approx(2)


@pytest.mark.statement("marion2024:thm1", "tight")
@pytest.mark.statement("marion2024:thm2", "tight")
@pytest.mark.parametrize("depth", [1, 6])
def test_balanced_chains_on_white_data_attain_all_bounds(depth):
    """All six; a dozen roundings."""
    problem = tw.TargetMatrix([1.2, -0.4, 2.0])
    objective = tw.Objective(tw.LinearNetwork([3] * depth + [1]), problem)
    size = float(jnp.linalg.norm(problem.minimiser))
    certificate = check(SharpnessOfMinimisers(), objective, chain(objective, size ** (1 / depth)))
    assert certificate.verdict is Verdict.CONFIRMED
    assert len(certificate.conclusions) == 6
    for claim in certificate.conclusions:
        assert claim.looseness == pytest.approx(1, abs=1e-12), claim.statement


@pytest.mark.statement("marion2024:thm2", "fails")
@pytest.mark.parametrize(("depth", "sharpness", "printed"), [(1, 0.02, 2.0), (2, 0.4, 4.0)])
def test_as_printed_the_bounds_fail_for_short_readouts(depth, sharpness, printed):
    """One sample x = y = 1 and a readout 1/10, with equal layers: off by r^{2/L}."""
    network = tw.LinearNetwork([1] * (depth + 1), [0.1])
    objective = tw.Objective(network, tw.Regression([[1.0]], [1.0], scale=1.0))
    weights = (jnp.full((1, 1), 10.0 ** (1 / depth)),) * depth
    certificate = check(SharpnessOfMinimisers(), objective, weights)
    assert certificate.verdict is Verdict.CONFIRMED
    corrected, found = certificate.conclusions[0].worst()
    assert found == pytest.approx(sharpness)
    assert corrected == pytest.approx(sharpness)
    assert corrected * 0.1 ** (-2 / depth) == pytest.approx(printed)
    assert printed > 9 * found


@pytest.mark.statement("marion2024:thm1", "fails")
@pytest.mark.statement("marion2024:thm2", "fails")
@pytest.mark.statement("marion2024:d-min-sharpness", "fails")
def test_without_their_assumptions_the_bounds_say_nothing():
    few = tw.Objective(tw.LinearNetwork([3, 1]), tw.Regression(np.eye(3)[:2], [1.0, 2.0]))
    start = (jnp.ones((1, 3)),)
    certificate = check(SharpnessOfMinimisers(), few, start)
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.margin < 0
    assert check(FlattestMinimiser(), few, start).verdict is Verdict.CONFIRMED  # needs no rank
    zero = tw.Objective(tw.LinearNetwork([3, 1]), tw.TargetMatrix(np.zeros(3)))
    assert check(FlattestMinimiser(), zero, start).verdict is Verdict.NOT_APPLICABLE
    two = tw.Objective(tw.LinearNetwork([3, 2]), tw.TargetMatrix(np.ones((2, 3))))
    for theorem in (SharpnessOfMinimisers(), FlattestMinimiser()):
        certificate = check(theorem, two, (jnp.ones((2, 3)),))
        assert certificate.first_failure.statement == "the network has one output"


@pytest.mark.statement("marion2024:d-min-sharpness", "tight")
@settings(max_examples=8)
@given(**DRAWN, samples=st.sampled_from([2, 8]))
def test_a_chain_attains_the_least_sharpness(seed, scale, samples):
    objective, _ = regressions(4, 0.2, seed, scale, samples)
    flattest = least_sharpness(objective)
    certificate = check(FlattestMinimiser(), objective, chain(objective, float(flattest[1])))
    (claim,) = certificate.conclusions
    assert claim.looseness == pytest.approx(1, abs=1e-9)  # the minimum is found to 1e-12 in log(a)
    assert float(certificate.answers[0].value) == pytest.approx(float(flattest[0]))


# --- rescaling -----------------------------------------------------------------------------------


@pytest.mark.statement("marion2024:ex-rescale", "holds")
@pytest.mark.parametrize(
    ("factor", "sharpness"),
    [
        (1.0, 2.38758410528763),
        (10.0, 150.61240221780528),
        (100.0, 15056.014928999139),
        (1000.0, 1505597.0976684238),
    ],
)
def test_the_sharpness_of_rescaled_minimisers(factor, sharpness):
    objective, weights = data_a()
    certificate = SharpnessIsUnbounded(factor).check(Point(objective, weights))
    assert certificate.verdict is Verdict.CONFIRMED
    bound, found = certificate.conclusions[1].worst()
    assert found == pytest.approx(sharpness, rel=1e-11)  # the layers differ by the factor squared
    assert bound == pytest.approx(0.00900422927975896 * factor, rel=1e-12)


@pytest.mark.statement("marion2024:ex-rescale", "tight")
def test_the_sharpness_grows_with_the_square_of_the_factor():
    """Our bound is off by a constant factor, the paper's by more and more."""
    objective, weights = data_a()
    looseness = {
        factor: [
            claim.looseness
            for claim in SharpnessIsUnbounded(factor).check(Point(objective, weights)).conclusions
        ]
        for factor in (1e2, 1e3)
    }
    assert looseness[1e3][1] / looseness[1e2][1] == pytest.approx(10, rel=1e-3)
    assert looseness[1e3][2] / looseness[1e2][2] == pytest.approx(1, rel=1e-3)
    # One input and aligned layers: all but one term of the sum over the layers fade away.
    scalar = tw.Objective(tw.LinearNetwork([1, 1, 1]), tw.TargetMatrix([2.0]))
    point = Point(scalar, (jnp.full((1, 1), 2.0), jnp.ones((1, 1))))
    claim = SharpnessIsUnbounded(1e4).check(point).conclusions[2]
    assert claim.looseness == pytest.approx(1, rel=1e-7)


@pytest.mark.statement("marion2024:ex-rescale", "fails")
def test_rescaling_is_only_about_minimisers():
    objective, (first, *others) = data_a()
    certificate = SharpnessIsUnbounded().check(Point(objective, (1.1 * first, *others)))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    assert certificate.first_failure.statement == "the weights are a minimiser"
    with pytest.raises(InputError, match="two layers at least"):
        rescaled((first,), 2.0)


# --- critical learning rates ---------------------------------------------------------------------


@pytest.mark.statement("marion2024:eq1", "value")
def test_descent_settles_up_to_the_critical_rate_and_not_beyond():
    """From next to the flattest minimiser, one per cent below and above its critical rate."""
    objective = data_b(3)
    limit = largest_settling_rate(objective)
    assert limit == pytest.approx(2 / 5.303582, rel=1e-6)
    flattest = chain(objective, float(least_sharpness(objective).first_norm))
    start = tuple(layer + 1e-3 for layer in flattest)
    rates = np.array([0.99, 1.01]) * limit
    starts = tuple(np.stack([layer, layer]) for layer in start)
    run = tw.descend(objective, starts, learning_rate=rates, steps=6000, record_every=6000)
    excess = run.loss[:, -1] - float(objective.problem.minimum)
    assert excess[0] < 1e-12
    assert not excess[1] < 1e-9  # it oscillates, or is not a number
