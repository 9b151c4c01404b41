"""Both ends of the spectrum: at a point, along runs, and for operators with awkward spectra."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thalweg as tw
from thalweg import adversarial, initialisation
from thalweg._checks import InputError
from thalweg.curvature import SpectrumObserver, dense_spectrum, extreme_eigenvalues, spectrum_along
from thalweg.curvature import path as along_runs
from thalweg.curvature.following import Eigenvalue, Extremes, search_start
from thalweg.krylov.extremes import extreme_pairs
from thalweg.krylov.lanes import tridiagonal
from thalweg.krylov.ritz import ends_of
from thalweg.network import Convolution, Dense, SharedNetwork


@cache
def objectives():
    """A few networks of up to 400 weights; each compiles once for all of its points."""
    rng = np.random.default_rng(0)

    def regression(features, outputs, samples=40):
        x, y = rng.normal(size=(samples, features)), rng.normal(size=(samples, outputs))
        return tw.Regression(x, y, scale=1.0)

    images = rng.normal(size=(12, 16))
    convolutional = SharedNetwork(
        [Convolution(1, 3, 2, image=4), Dense(27, 4), Dense(4, 2)], slopes=(1.0, 0.1)
    )
    return {
        "deep scalar": tw.Objective(tw.LinearNetwork([5] * 10 + [1]), regression(5, 1)),
        "wide": tw.Objective(tw.LinearNetwork([10, 14, 12, 6]), regression(10, 6)),
        "square": tw.Objective(tw.LinearNetwork([4] * 5), tw.TargetMatrix(rng.normal(size=(4, 4)))),
        "cross-entropy": tw.Objective(
            tw.LinearNetwork([6, 8, 4]), tw.Classification(images[:, :6], np.arange(12) % 4)
        ),
        "leaky": tw.Objective(
            tw.HomogeneousNetwork([6, 10, 8, 3], slopes=(1.0, 0.2)), regression(6, 3)
        ),
        "convolutional": tw.Objective(
            convolutional, tw.Classification(images, np.arange(12) % 2, classes=2)
        ),
    }


LINEAR = ("deep scalar", "wide", "square")


def points(name, count):
    """Random, tiny and large points; for regressions also saddles, balanced and minimising ones."""
    objective = objectives()[name]
    network, rng = objective.network, np.random.default_rng(len(name))

    def gaussian(scale):
        return tuple(scale * rng.normal(size=shape) for shape in network.shapes)

    for index in range(count):
        yield gaussian([0.05, 0.3, 0.5, 1.0][index % 4])
    yield tuple(np.zeros(shape) for shape in network.shapes)  # a saddle with a flat Hessian
    if name not in LINEAR:
        return
    minimiser = objective.problem.minimiser
    for index in range(count // 2):
        balanced = initialisation.balanced_from(network, minimiser)
        yield balanced  # a minimiser with a huge null space and repeated eigenvalues
        yield tuple(
            w + 10.0 ** -(2 + index) * g for w, g in zip(balanced, gaussian(1), strict=True)
        )
        yield initialisation.balanced(network, 0.3, key=jax.random.key(index))
        yield initialisation.one_zero_layer(gaussian(0.5), index % network.depth)
    yield adversarial.sharp_saddle(network, objective.problem, 30.0).weights


@pytest.mark.parametrize("name", objectives())
def test_both_ends_agree_with_the_dense_spectrum_and_errors_cover(name):
    objective = objectives()[name]
    spectrum = jax.jit(lambda weights: dense_spectrum(objective, weights))
    seen = 0
    for weights in points(name, 26):
        seen += 1
        exact = np.asarray(spectrum(weights))
        norm = np.abs(exact).max()
        for method in ("dense", "davidson"):
            found = extreme_eigenvalues(objective, weights, method=method)
            for pair, truth in ((found.smallest[0], exact[0]), (found.largest[0], exact[-1])):
                assert pair.converged
                assert abs(pair.value - truth) <= 1e-8 * norm  # what the default asks for
                assert abs(pair.value - truth) <= pair.error <= 1e-7 * norm + 1e-300
    assert seen == (80 if name in LINEAR else 27)  # 321 points over all networks


def test_a_returned_vector_has_the_residual_that_the_error_covers():
    objective = objectives()["wide"]
    weights = next(points("wide", 1))
    for method in ("dense", "davidson"):
        found = extreme_eigenvalues(objective, weights, 3, method=method)
        exact = np.asarray(dense_spectrum(objective, weights))
        np.testing.assert_allclose([p.value for p in found.smallest], exact[:3], atol=1e-6)
        np.testing.assert_allclose([p.value for p in found.largest], exact[::-1][:3], atol=1e-6)
        for pair in (*found.smallest, *found.largest):
            image = objective.hvp(weights, pair.vector)
            rest = [h - pair.value * v for h, v in zip(image, pair.vector, strict=True)]
            assert np.sqrt(sum(np.sum(r**2) for r in rest)) <= pair.error
            assert sum(np.sum(np.square(v)) for v in pair.vector) == pytest.approx(1, abs=1e-12)


def test_sharpness_is_the_largest_eigenvalue_where_power_iteration_finds_the_other_end():
    """Three scalar layers of 1 and the target 10: H = 11^T - 9 (11^T - I), by hand."""
    objective = tw.Objective(tw.LinearNetwork([1] * 4), tw.TargetMatrix([10.0]))
    ones = (np.ones((1, 1)),) * 3
    direction, hessian = np.array([1.0, 0.5, 0.2]), np.asarray(objective.hessian(ones))
    for _ in range(100):
        direction = hessian @ direction
        direction /= np.linalg.norm(direction)
    assert np.linalg.norm(hessian @ direction) == pytest.approx(15, rel=1e-12)  # (9 / 15)^200
    for method in ("dense", "davidson"):
        found = extreme_eigenvalues(objective, ones, method=method)
        assert found.largest[0].value == pytest.approx(9, rel=1e-13)
        assert found.smallest[0].value == pytest.approx(-15, rel=1e-13)
    assert tw.sharpness(objective, ones).value == pytest.approx(9, rel=1e-13)
    assert tw.smallest_eigenvalue(objective, ones).value == pytest.approx(-15, rel=1e-13)


def test_on_the_plateau_twenty_power_iterations_find_the_wrong_end():
    """marion2024's network before it learns: the most negative eigenvalue is the larger one."""
    x, y, _ = tw.data.gaussian_regression(jax.random.key(0))
    network = tw.LinearNetwork([5] * 10 + [1])
    objective = tw.Objective(network, tw.Regression(x, y, scale=1.0))
    keys = jax.random.split(jax.random.key(1), 40)
    start = initialisation.gaussian(network, 0.25, key=keys[17])
    run = tw.descend(objective, start, learning_rate=0.02, steps=200, record_every=200)
    path = spectrum_along(objective, run.weights)
    hessian = np.asarray(objective.hessian(run.final))
    exact = np.linalg.eigvalsh(hessian)
    assert -exact[0] > 2 * exact[-1]
    direction = np.random.default_rng(0).normal(size=network.size)
    for _ in range(20):
        direction = hessian @ (direction / np.linalg.norm(direction))
    assert np.linalg.norm(direction) > 2 * exact[-1]  # what would be reported as the sharpness
    assert abs(path.largest[-1] - exact[-1]) <= path.largest_error[-1] <= 1e-6 * -exact[0]


# --- operators with a chosen spectrum ---------------------------------------------------------


def with_spectrum(values, seed):
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    matrix = (basis * values) @ basis.T
    return (matrix + matrix.T) / 2


def awkward(kind, size, rng):
    inner = rng.uniform(-1, 1, size)
    if kind == "repeated ends":
        inner[:3], inner[3:7] = -2.0, 5.0
    if kind == "clustered ends":
        inner[:5], inner[5:9] = 5 - 1e-6 * rng.uniform(size=5), -3 + 1e-7 * rng.uniform(size=4)
    if kind == "null space":
        inner[:-4] = 0.0
    if kind == "crowded at zero":
        inner = np.concatenate([-1e-6 * rng.uniform(size=size - 1), [10.0]])
    if kind == "one far out":
        inner[0] = -1000.0
    if kind == "identity":
        inner[:] = 1.0
    return inner


AWKWARD = ["repeated ends", "clustered ends", "null space", "crowded at zero", "one far out",
           "identity", "plain"]  # fmt: skip


@given(st.sampled_from(AWKWARD), st.sampled_from([12, 60, 150]), st.integers(0, 10**6))
def test_no_spectrum_fools_the_search(kind, size, seed):
    matrix = with_spectrum(awkward(kind, size, np.random.default_rng(seed)), seed)
    exact = np.linalg.eigvalsh(matrix)
    norm = np.abs(exact).max()
    found = extreme_pairs(lambda v: matrix @ v, size, seed=seed)
    assert found.converged
    for value, error, truth in (
        (found.smallest[0], found.smallest_errors[0], exact[0]),
        (found.largest[0], found.largest_errors[0], exact[-1]),
    ):
        assert abs(value - truth) <= min(error, 1e-8 * norm)  # the default tolerance


@given(st.sampled_from(AWKWARD), st.sampled_from([12, 60, 150]), st.integers(0, 10**6))
def test_one_end_alone_is_as_sure_and_never_dearer(kind, size, seed):
    matrix = with_spectrum(awkward(kind, size, np.random.default_rng(seed)), seed)
    exact = np.linalg.eigvalsh(matrix)
    both = extreme_pairs(lambda v: matrix @ v, size, seed=seed)
    low = extreme_pairs(lambda v: matrix @ v, size, ends="smallest", seed=seed)
    high = extreme_pairs(lambda v: matrix @ v, size, ends="largest", seed=seed)
    assert low.largest.size == high.smallest.size == 0
    assert abs(low.smallest[0] - exact[0]) <= low.smallest_errors[0]
    assert abs(high.largest[0] - exact[-1]) <= high.largest_errors[0]
    # Never dearer but for chance: the probes are drawn at other times.
    assert max(low.products, high.products) <= 1.5 * both.products + 8


@given(st.sampled_from(AWKWARD), st.integers(0, 10**6))
def test_a_start_at_eigenvectors_that_are_no_longer_extreme_is_seen_through(kind, seed):
    size = 60
    values = awkward(kind, size, np.random.default_rng(seed))
    matrix = with_spectrum(values, seed)
    exact, vectors = np.linalg.eigh(matrix)
    stale = vectors[:, [size // 2, size // 2 + 1]].T
    found = extreme_pairs(lambda v: matrix @ v, size, start=stale, seed=seed)
    assert abs(found.smallest[0] - exact[0]) <= found.smallest_errors[0]
    assert abs(found.largest[0] - exact[-1]) <= found.largest_errors[0]


@pytest.mark.parametrize("inner", [(-0.3, 0.3), (-0.8, 0.9)])
@pytest.mark.parametrize("gap", [0.1, 0.03, 0.01])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-8])
def test_eigenvectors_that_were_overtaken_are_seen_through(inner, gap, tolerance):
    """As of two parts of a network that do not touch: what was found is exact, and the second."""
    size, rng = 2000, np.random.default_rng(0)
    values = np.concatenate([[1.0, 1.0 - gap], rng.uniform(*inner, size - 2)])
    known = np.eye(size)[[np.argmin(values), 1]]
    for seed in range(4):
        found = extreme_pairs(
            lambda v: values * v, size, start=known, tolerance=tolerance, seed=seed
        )
        assert abs(found.largest[0] - 1.0) <= found.largest_errors[0]
        assert abs(found.smallest[0] - values.min()) <= found.smallest_errors[0]


@given(st.sampled_from(AWKWARD), st.integers(0, 10**6))
def test_a_hint_may_be_anything(kind, seed):
    """Even an inner eigenvector, in whose own Krylov space no end is."""
    size = 60
    matrix = with_spectrum(awkward(kind, size, np.random.default_rng(seed)), seed)
    exact, vectors = np.linalg.eigh(matrix)
    for hint in (vectors[:, size // 2], np.zeros(size)):
        found = extreme_pairs(lambda v: matrix @ v, size, hint=hint, seed=seed)
        assert abs(found.smallest[0] - exact[0]) <= found.smallest_errors[0]
        assert abs(found.largest[0] - exact[-1]) <= found.largest_errors[0]


def test_one_vector_serves_both_ends_where_a_path_is_rough():
    """Eigenvectors that turned by 60 degrees: their sum costs less than both, or than chance."""
    size, rng = 400, np.random.default_rng(0)
    values = np.concatenate([rng.uniform(-1, 1, size - 2), [-1.2, 3.0]])
    matrix = with_spectrum(values, 0)
    exact, vectors = np.linalg.eigh(matrix)
    stray = rng.normal(size=(2, size)) / np.sqrt(size)
    turned = 0.5 * vectors[:, [0, -1]].T + np.sqrt(0.75) * stray

    def searched(**known):
        return extreme_pairs(lambda v: matrix @ v, size, tolerance=1e-3, seed=1, **known)

    one, two, none = searched(hint=turned.sum(axis=0)), searched(start=turned), searched()
    assert one.products < min(two.products, none.products)
    for found in (one, two, none):
        assert abs(found.smallest[0] - exact[0]) <= found.smallest_errors[0]
        assert abs(found.largest[0] - exact[-1]) <= found.largest_errors[0]


@pytest.mark.parametrize(("angle", "rows"), [(0.1, 6), (1.2, 1)])
def test_how_a_search_begins_is_told_by_how_far_eigenvectors_turned(angle, rows):
    """On a circle, at even steps: a line through two points misses the third by about angle^2."""
    place = angle * np.arange(3)
    turning = np.stack([np.cos(place), np.sin(place), np.zeros(3)], axis=1)

    def point(vector):
        pair = Eigenvalue(1.0, 0.0, vector, "davidson", 1, True)
        return Extremes((pair,), (pair._replace(vector=np.array([0.0, 0.0, 1.0])),))

    known = [point(vector) for vector in turning * np.array([[1], [-1], [1]])]  # signs mean nothing
    found, hint = search_start(known, ("smallest", "largest"), 3)
    if rows == 1:
        np.testing.assert_allclose(hint, turning[-1] + [0, 0, 1], atol=1e-15)
    else:
        assert hint is None
        assert found.shape == (rows, 3)
    assert search_start(known[-1], ("smallest", "largest"), 3)[0].shape == (2, 3)
    assert search_start(None, ("smallest", "largest"), 3) == (None, None)


def test_giving_up_is_said():
    matrix = with_spectrum(np.linspace(0, 1, 150), 0)
    found = extreme_pairs(lambda v: matrix @ v, 150, max_products=5)
    assert not found.converged
    assert found.products <= 6


@jax.jit
def lanczos_ends(matrices, start):
    def product(vectors):
        return (jnp.sum(matrices * vectors[0][None], axis=1),)

    return ends_of(tridiagonal(product, (start,), jnp.asarray(64), 64))


@given(st.sampled_from(AWKWARD), st.integers(0, 10**6))
def test_lanczos_in_lanes_covers_its_error(kind, seed):
    """Three matrices with the same kind of spectrum, side by side."""
    size, lanes = 40, 3
    rng = np.random.default_rng(seed)
    matrices = [with_spectrum(awkward(kind, size, rng), seed + lane) for lane in range(lanes)]
    ends = lanczos_ends(np.stack(matrices, axis=-1), rng.normal(size=(size, lanes)))
    for lane, matrix in enumerate(matrices):
        exact = np.linalg.eigvalsh(matrix)
        assert abs(ends.smallest[lane] - exact[0]) <= ends.smallest_error[lane]
        assert abs(ends.largest[lane] - exact[-1]) <= ends.largest_error[lane]


# --- along runs -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deep scalar", "leaky"])
def test_the_ends_along_a_batch_of_runs_are_those_of_each_point(name):
    objective = objectives()[name]
    weights = tuple(
        0.4 * np.random.default_rng(1).normal(size=(5, *shape))
        for shape in objective.network.shapes
    )
    rates = np.array([0.01, 0.01, 0.02, 1e4, 0.02])
    run = tw.descend(objective, weights, learning_rate=rates, steps=60, record_every=10)
    path = spectrum_along(objective, run.weights)
    spectrum = jax.jit(lambda weights: dense_spectrum(objective, weights))
    assert path.largest.shape == (5, 7)
    assert np.isnan(path.largest[3, -1])  # diverged
    for index in np.ndindex(path.largest.shape):
        point = tuple(array[index] for array in run.weights)
        if not all(np.isfinite(array).all() for array in point) or index[0] == 3:
            continue
        exact = np.asarray(spectrum(point))
        norm = np.abs(exact).max()
        assert abs(path.largest[index] - exact[-1]) <= path.largest_error[index] <= 1e-6 * norm
        assert abs(path.smallest[index] - exact[0]) <= path.smallest_error[index] <= 1e-6 * norm


def test_the_ends_can_be_had_while_a_batch_descends():
    """Oracle: the dense spectrum at the weights of the same run."""
    objective = objectives()["deep scalar"]
    weights = tuple(
        0.4 * np.random.default_rng(1).normal(size=(4, *shape))
        for shape in objective.network.shapes
    )
    how = {"learning_rate": np.array([0.01, 0.02, 1e4, 0.02]), "steps": 40, "record_every": 20}
    watched = tw.descend(objective, weights, observe=SpectrumObserver(objective), **how)
    kept = tw.descend(objective, weights, **how)
    assert watched.weights == ()
    assert watched.observed.largest.shape == (4, 3)
    assert np.isnan(watched.observed.largest[2, -1])  # diverged
    spectrum = jax.jit(lambda weights: dense_spectrum(objective, weights))
    for index in np.ndindex(4, 3):
        point = tuple(array[index] for array in kept.weights)
        if not all(np.isfinite(array).all() for array in point):
            continue
        values = np.asarray(spectrum(point))
        norm = np.abs(values).max()
        for found, error, truth in (
            (watched.observed.smallest, watched.observed.smallest_error, values[0]),
            (watched.observed.largest, watched.observed.largest_error, values[-1]),
        ):
            assert abs(found[index] - truth) <= error[index]
            assert error[index] <= 1e-6 * norm  # the default tolerance
    alone = SpectrumObserver(objective)(tuple(array[0, 0] for array in kept.weights))
    np.testing.assert_allclose(alone.largest, watched.observed.largest[0, 0], rtol=1e-6)


@pytest.mark.parametrize("small", [0, 4000], ids=["in turn", "in blocks"])
def test_one_layer_has_a_constant_spectrum(small, monkeypatch):
    """The Hessian of least squares with scale 1/2 is Sigma, once for each output, everywhere."""
    monkeypatch.setattr(along_runs, "_SMALL", small)
    x = np.random.default_rng(3).normal(size=(20, 3))
    objective = tw.Objective(tw.LinearNetwork([3, 2]), tw.Regression(x, x[:, :2]))
    run = tw.descend(objective, (np.ones((2, 3)),), learning_rate=0.1, steps=2)
    ends = np.linalg.eigvalsh(x.T @ x / 20)[[0, -1]]
    found = spectrum_along(objective, run.weights)
    np.testing.assert_allclose(found.smallest, np.full(3, ends[0]), rtol=1e-5)  # tolerance 1e-6
    np.testing.assert_allclose(found.largest, np.full(3, ends[1]), rtol=1e-5)
    alone = SpectrumObserver(objective)(tuple(array[0] for array in run.weights))
    np.testing.assert_allclose([alone.smallest, alone.largest], ends, rtol=1e-5)


def test_what_is_known_along_a_run_halves_the_products():
    objective = objectives()["wide"]
    weights = tuple(
        0.3 * np.random.default_rng(2).normal(size=shape) for shape in objective.network.shapes
    )
    run = tw.descend(objective, weights, learning_rate=0.005, steps=20)
    cold, warm, past = [], [], []
    spectrum = jax.jit(lambda weights: dense_spectrum(objective, weights)[jnp.array([0, -1])])
    for index in range(21):
        point = tuple(array[index] for array in run.weights)
        one = {"method": "davidson", "tolerance": 1e-4}
        cold.append(extreme_eigenvalues(objective, point, **one).largest[0].matvecs)
        past.append(extreme_eigenvalues(objective, point, start=past[-3:], **one))
        warm.append(past[-1].largest[0].matvecs)
        exact = np.asarray(spectrum(point))
        for pair, truth in ((past[-1].largest[0], exact[-1]), (past[-1].smallest[0], exact[0])):
            assert abs(pair.value - truth) <= pair.error
    assert np.mean(warm[4:]) <= 0.5 * np.mean(cold[4:])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"k": 0}, "`k` must be a whole number >= 1, got 0"),
        ({"k": 10**6}, "`k` must be at most the number of eigenvalues, 64"),
        ({"tolerance": 0.0}, "`tolerance` must be positive"),
        ({"method": "power"}, "`method` must be auto, dense or davidson, got 'power'"),
    ],
)
def test_bad_input_gets_one_sentence(change, sentence):
    objective = objectives()["square"]
    with pytest.raises(InputError, match=sentence):
        extreme_eigenvalues(objective, next(points("square", 1)), **change)


def test_one_point_is_not_a_path():
    objective = objectives()["square"]
    with pytest.raises(InputError, match="must have a leading axis of points"):
        spectrum_along(objective, next(points("square", 1)))
