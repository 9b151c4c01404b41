"""Least squares on ill-conditioned samples: as right as sums over the samples, on every path."""

from decimal import Decimal, localcontext

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ill_conditioned
import thalweg as tw
from ill_conditioned import FEATURES, KINDS, Samples, off, rational
from thalweg import initialisation, measurement
from thalweg.certificates import Verdict
from thalweg.proofs import check

SEEDS = st.integers(0, 2**32 - 1)
CONDITIONS = st.floats(0, 12).map(lambda power: 10.0**power)
SIZES = st.floats(-1, 1).map(lambda power: 10.0**power)
every_kind = pytest.mark.parametrize("kind", KINDS)

# A few units in the last place of the samples move the loss by 1e-15 of its root times |y|; the
# rest is a margin, for sums of a hundred terms.
LOSS, GRADIENT = 1e-12, 1e-10


@eqx.filter_jit
def all_paths(problem, matrix, layers):
    """Loss and gradient in every way that there is: each must be right by itself."""
    outputs = problem.inputs @ matrix.T
    linear = tw.Objective(tw.LinearNetwork([FEATURES, 2, problem.shape[0]]), problem)
    two_slopes = tw.HomogeneousNetwork([FEATURES, 2, problem.shape[0]], slopes=(1.0, 1.0))
    lanes = problem.value_and_gradient_in_lanes(jnp.stack([matrix, 0 * matrix], axis=-1))
    stacked = tuple(jnp.stack([layer, 0 * layer], axis=-1) for layer in layers)
    in_lanes = linear.value_and_gradient_in_lanes(stacked)
    of_matrix = {
        "one matrix": problem.value_and_gradient(matrix),
        "lanes": (lanes[0][0], lanes[1][..., 0]),
        "outputs": (
            problem.output_value(outputs),
            problem.output_gradient(outputs).T @ problem.inputs,
        ),
        "excess and minimum": (problem.excess(matrix) + problem.minimum, problem.gradient(matrix)),
    }
    of_layers = {
        "network": linear.value_and_gradient(layers),
        "network in lanes": (in_lanes[0][0], tuple(each[..., 0] for each in in_lanes[1])),
        "network on samples": tw.Objective(two_slopes, problem).value_and_gradient(layers),
    }
    return of_matrix, of_layers, problem.rounding(matrix), problem.output_rounding(outputs)


def right(samples, factors, value):
    exact = samples.loss(factors)
    return off(value, exact) <= LOSS * (float(exact) + samples.power)


@every_kind
@pytest.mark.parametrize("outputs", [1, 2])
@given(condition=CONDITIONS, seed=SEEDS, size=SIZES)
def test_losses_and_gradients_are_those_of_the_samples(kind, outputs, condition, seed, size):
    """Oracle: sums over the samples in rational numbers."""
    samples = Samples.drawn(kind, condition, seed, outputs, scale=0.7)
    random = np.random.default_rng(seed + 1)
    matrix = jnp.asarray(size * random.standard_normal((outputs, FEATURES)))
    layers = tuple(jnp.asarray(random.standard_normal(s)) for s in ((2, FEATURES), (outputs, 2)))
    of_matrix, of_layers, rounding, output_rounding = all_paths(samples.problem, matrix, layers)
    exact, slope = samples.loss([matrix]), samples.gradient([matrix])
    allowed = GRADIENT * samples.gradient_size(np.linalg.norm(matrix))
    for name, (value, gradient) in of_matrix.items():
        assert off(value, exact) <= LOSS * (float(exact) + samples.power), name
        assert off(gradient, slope) <= allowed, name
    value, gradient = of_matrix["one matrix"]
    assert off(value, exact) <= rounding.value
    assert off(gradient, slope) <= rounding.gradient
    assert off(of_matrix["outputs"][0], exact) <= rounding.value + output_rounding.value
    lower, upper = layers
    slope = samples.gradient([upper, lower])
    slopes = (rational(upper).T @ slope, slope @ rational(lower).T)
    norms = [np.linalg.norm(layer) for layer in layers]
    allowed = GRADIENT * samples.gradient_size(norms[0] * norms[1])
    for name, (value, gradients) in of_layers.items():
        assert right(samples, [upper, lower], value), name
        for found, wanted, other in zip(gradients, slopes, norms[::-1], strict=True):
            assert off(found, wanted) <= allowed * other, name


@every_kind
@given(condition=CONDITIONS, seed=SEEDS)
def test_the_minimum_is_known_to_its_own_error(kind, condition, seed):
    """Oracle: exact orthogonalisation of the samples. The error is eps times the condition."""
    samples = Samples.drawn(kind, condition, seed, outputs=2, scale=1.0)
    problem, exact = samples.problem, samples.minimum()
    assert rational(problem.least_value) <= exact
    gap = abs(float(problem.minimum) ** 0.5 - float(exact) ** 0.5)
    assert gap <= problem.fit_error
    if kind in ("prescribed", "collinear", "scaled"):
        assert problem.fit_error <= 1e-12 * condition  # 64 eps, and factors of these samples
    random = np.random.default_rng(seed)
    matrix = jnp.asarray(random.standard_normal(problem.shape))
    excess = float(samples.loss([matrix]) - exact) ** 0.5
    assert excess <= problem.root_excess_bound(matrix)
    assert problem.root_excess_bound(matrix) <= excess + 2 * problem.fit_error + 1e-11
    # At the minimiser itself there is no excess but rounding, which its length multiplies.
    length = float(jnp.linalg.norm(problem.minimiser)) * np.linalg.norm(samples.x)
    assert problem.excess(problem.minimiser) <= (1e-14 * (1 + length)) ** 2


def test_the_minimum_of_well_conditioned_samples_is_nearly_all_proven():
    problem = Samples.drawn("prescribed", 2.0, seed=0).problem
    assert problem.minimum > 0.1
    assert problem.minimum * (1 - 1e-12) < problem.least_value < problem.minimum


@every_kind
@given(condition=CONDITIONS, seed=SEEDS)
def test_moments_are_those_of_the_samples(kind, condition, seed):
    samples = Samples.drawn(kind, condition, seed)
    problem, count = samples.problem, len(samples.x)
    x, y = rational(samples.x), rational(samples.y)
    size = np.linalg.norm(samples.x) ** 2 / count
    assert off(problem.input_moment, x.T @ x / count) <= 1e-14 * size
    assert off(problem.cross_moment, y.T @ x / count) <= 1e-14 * (size + samples.power)
    values = np.zeros(FEATURES)
    values[-min(x.shape) :] = np.linalg.svd(samples.x / count**0.5, compute_uv=False)[::-1]
    np.testing.assert_allclose(problem.spectrum**0.5, values, rtol=0, atol=1e-14 * size**0.5)


def test_eigenvalues_are_known_beyond_what_a_moment_can_hold():
    """A moment would hold 1 and 1e-22 in one matrix, and lose the second one."""
    random = np.random.default_rng(0)
    problem = tw.Regression(ill_conditioned.prescribed(random, 1e11), np.ones(12))
    np.testing.assert_allclose(problem.spectrum, [1e-22, 1e-11, 1.0], rtol=1e-4)


@pytest.mark.parametrize(("kind", "condition"), [("repeated", 1e3), ("few", 10.0)])
def test_without_full_rank_the_minimiser_is_the_shortest(kind, condition):
    """Oracle: NumPy's pseudo-inverse."""
    samples = Samples.drawn(kind, condition, seed=3, outputs=2)
    expected = np.linalg.pinv(samples.x, rcond=1e-10) @ samples.y
    np.testing.assert_allclose(samples.problem.minimiser, expected.T, rtol=1e-9)
    assert samples.problem.least_value == 0  # nothing below rounding tells a rank from its failure


def test_units_of_features_do_not_decide_the_rank():
    """A feature in units of 1e-20 counts like any other."""
    samples = Samples.drawn("prescribed", 3.0, seed=1)
    units = np.array([1.0, 1e-20, 1e6])
    one, other = samples.problem, tw.Regression(samples.x * units, samples.y)
    np.testing.assert_allclose(other.minimiser * units, one.minimiser, rtol=1e-12)
    np.testing.assert_allclose(other.minimum, one.minimum, rtol=1e-12)
    np.testing.assert_allclose(other.least_value, one.least_value, rtol=1e-12)


@pytest.mark.parametrize("kind", ["collinear", "repeated", "few"])
def test_traced_samples_make_the_same_problem(kind):
    samples = Samples.drawn(kind, 1e5, seed=5, outputs=2)
    matrix = jnp.ones((2, FEATURES))

    def loss_of(x, y):
        problem = tw.Regression(x, y)
        return problem.value(matrix), problem.minimum, problem.least_value

    traced = jax.jit(jax.vmap(loss_of))(samples.x[None], samples.y[None])
    for found, expected in zip(traced, loss_of(samples.x, samples.y), strict=True):
        np.testing.assert_allclose(found[0], expected, rtol=1e-10, atol=1e-14)


def test_single_precision_keeps_its_own_digits():
    samples = Samples.drawn("collinear", 1e3, seed=6)
    narrow = Samples(samples.x.astype(np.float32), samples.y.astype(np.float32), 0.5)
    problem, matrix = narrow.problem, jnp.ones((1, FEATURES), np.float32)
    assert problem.fitted.dtype == problem.value(matrix).dtype == np.float32
    exact = samples.scale * np.mean((narrow.x.astype(float).sum(1) - narrow.y[:, 0]) ** 2)
    np.testing.assert_allclose(problem.value(matrix), exact, rtol=1e-6)


# --- what is made of them ------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[0, 1e4, 1e12], ids=str)
def run(request):
    """A run on nearly collinear columns (0: repeated ones), and its samples."""
    kind = "collinear" if request.param else "repeated"
    samples = Samples.drawn(kind, request.param or 1.0, seed=11)
    objective = tw.Objective(tw.LinearNetwork([FEATURES, FEATURES, 1]), samples.problem)
    start = tuple(
        0.5 * np.random.default_rng(2).standard_normal(shape) for shape in objective.network.shapes
    )
    return samples, tw.descend(objective, start, learning_rate=0.05, steps=20)


def test_recorded_losses_are_those_of_the_samples(run):
    samples, found = run
    for place in (0, 1, 20):
        lower, upper = (array[place] for array in found.weights)
        assert right(samples, [upper, lower], found.loss[place])
        excess = measurement.along(found, lambda w: found.objective(w))[place]
        assert excess == pytest.approx(found.loss[place], rel=1e-13)


def test_recorded_losses_of_a_batch_are_those_of_the_samples(run):
    samples, found = run
    starts = tuple(np.stack([array[0], array[-1]]) for array in found.weights)
    batch = tw.descend(found.objective, starts, learning_rate=0.05, steps=20)
    for which, place in ((0, 0), (0, 20), (1, 20)):
        lower, upper = (array[which, place] for array in batch.weights)
        assert right(samples, [upper, lower], batch.loss[which, place])


def test_proofs_are_about_the_samples(run, tmp_path):
    """The checker's balls hold the exact gradient, and its verdict is that of the samples."""
    checker = pytest.importorskip("thalweg.proofs.checker")
    samples, found = run
    proof = tw.prove(found)
    proof.write(tmp_path / "proof.json")
    assert check(tmp_path / "proof.json").accepted
    problem = checker.parse_problem(proof.content)
    assert np.array_equal(problem.inputs, samples.x)
    assert np.array_equal(problem.targets, samples.y)
    with checker.ctx.workprec(128):
        lower, upper = (array[3] for array in found.weights)
        point = np.concatenate([lower.ravel(), upper.ravel()]).tolist()
        objective = checker.Objective(problem)
        first, second = objective.layers(point)
        balls = objective.loss.gradient(second * first).entries()
        exact = samples.gradient([upper, lower]).ravel()
        for ball, number in zip(balls, exact, strict=True):
            wanted = checker.arb(number.numerator) / checker.arb(number.denominator)
            assert ball.overlaps(wanted)
            assert float(ball.rad()) < 1e-25  # 128 bits


@pytest.mark.parametrize("number", range(5))
def test_tubes_bound_the_loss_of_the_flow(number):
    """On five of the problems that `python tests/ill_conditioned.py 100` tries."""
    found = ill_conditioned.loss_bounds(number)
    assert found.outside <= 0
    assert found.proven > 30
    assert found.width < 1e-2  # they say something


def test_collinear_features_violate_no_theorem():
    """The third column is the second but for 1e-9: moments lost the loss, and proofs were false."""
    random = np.random.default_rng(0)
    x = random.standard_normal((50, 3))
    x[:, 2] = x[:, 1] + 1e-9 * random.standard_normal(50)
    samples = Samples(x, random.standard_normal((50, 1)), 0.5)
    network = tw.LinearNetwork([3, 3, 1])
    objective = tw.Objective(network, samples.problem)
    start = initialisation.gaussian(network, 0.5, key=jax.random.key(0))
    run = tw.descend(objective, start, learning_rate=0.01, steps=60)
    for loss, *layers in zip(run.loss, *run.weights, strict=True):
        assert right(samples, layers[::-1], loss)
    flow = tw.flow(objective, start, times=run.times)
    certificates = tw.certify(objective, start, learning_rate=0.01, run=run, flow=flow)
    violated = [each.reference for each in certificates if each.verdict is Verdict.VIOLATED]
    assert not violated
    proven = tw.tube(run)
    losses = ill_conditioned.flow_losses(samples, tuple(map(np.asarray, start)), run.times)
    doubt = 1e-11 * losses * (run.times > 0)
    assert np.all(proven.loss_lower <= losses + doubt)
    assert np.all(losses <= proven.loss_upper + doubt)
    assert np.all(np.isfinite(proven.loss_upper))


# --- cross-entropy -------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["cross_entropy", "logistic", "exponential"])
@given(size=st.floats(0, 40), seed=SEEDS)
def test_the_rounding_of_losses_of_labels_is_bounded(loss, size, seed):
    """Oracle: fifty decimal digits. Where the labels are learnt nearly everything cancels."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((5, 2))
    matrix = size * np.array([[1.0, 0.0], [0.0, 1.0]] if loss == "cross_entropy" else [[1.0, 0.5]])
    scores = x @ matrix.T
    labels = scores.argmax(1) if loss == "cross_entropy" else np.where(scores[:, 0] > 0, 1, -1)
    problem = tw.Classification(x, labels, classes=2, loss=loss)
    value, gradient = problem.value_and_gradient(jnp.asarray(matrix))
    rounding = problem.rounding(jnp.asarray(matrix))
    exact, slope = _in_decimals(loss, x, labels, matrix)
    assert abs(Decimal(float(value)) - exact) <= Decimal(float(rounding.value))
    assert rounding.value <= 1e-12 * (1 + size + float(value))
    gaps = [Decimal(float(a)) - b for a, b in zip(gradient.ravel(), slope, strict=True)]
    assert sum(gap * gap for gap in gaps).sqrt() <= Decimal(float(rounding.gradient))


def _in_decimals(loss, x, labels, matrix):
    """The mean loss and its gradient, entry by entry."""
    with localcontext(prec=60):
        rows, weights = _decimals(x), _decimals(matrix)
        value, slope = Decimal(0), [[Decimal(0)] * len(weights[0]) for _ in weights]
        for row, label in zip(rows, labels.tolist(), strict=True):
            scores = [sum(a * b for a, b in zip(line, row, strict=True)) for line in weights]
            if loss == "cross_entropy":
                chances = [score.exp() for score in scores]
                total = sum(chances)
                value += total.ln() - scores[label]
                slopes = [each / total - (i == label) for i, each in enumerate(chances)]
            else:
                fallen = (-label * scores[0]).exp()
                value += fallen if loss == "exponential" else (1 + fallen).ln()
                slopes = [-label * (fallen if loss == "exponential" else fallen / (1 + fallen))]
            for line, factor in zip(slope, slopes, strict=True):
                line[:] = [a + factor * b for a, b in zip(line, row, strict=True)]
        count = len(rows)
        return value / count, [each / count for line in slope for each in line]


def _decimals(matrix):
    return [[Decimal(float(each)) for each in row] for row in matrix]
