"""Eigenvalues of any symmetric operator, next to NumPy's and SciPy's; and what is no operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh

import thalweg as tw
from thalweg.curvature import (
    HessianOperator,
    SpectrumObserver,
    SymmetricOperator,
    dense_spectrum,
    spectral_density,
    spectrum_along,
)
from thalweg.krylov.space import Space, norm
from thalweg.objective import AbstractObjective


def with_spectrum(values, seed):
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    matrix = (basis * values) @ basis.T
    return (matrix + matrix.T) / 2


SPECTRA = {
    "clustered": lambda rng, n: (
        np.repeat(rng.normal(size=4), [n - 9, 3, 3, 3]) + 1e-7 * rng.uniform(size=n)
    ),
    "repeated": lambda rng, n: rng.permutation(np.repeat([-3.0, 0.5, 4.0], [2, n - 5, 3])),
    "zero": lambda rng, n: np.zeros(n),
    "low rank": lambda rng, n: np.concatenate([np.zeros(n - 2), [-1.0, 2.0]]),
    "huge range": lambda rng, n: rng.choice([-1, 1], size=n) * np.logspace(-14, 14, n),
    "positive, huge range": lambda rng, n: np.logspace(-14, 14, n),
    "tiny": lambda rng, n: 1e-200 * rng.normal(size=n),  # whose squares are zero
    "huge": lambda rng, n: 1e200 * rng.normal(size=n),  # whose squares are infinite
}


@given(st.sampled_from(list(SPECTRA)), st.sampled_from([10, 45, 130]), st.integers(0, 10**6))
def test_every_source_finds_both_ends_of_any_spectrum(kind, size, seed):
    """Oracle: numpy.linalg.eigvalsh, whose error is some units of rounding of the norm."""
    matrix = with_spectrum(SPECTRA[kind](np.random.default_rng(seed), size), seed)
    exact = np.linalg.eigvalsh(matrix)
    spectral_norm = np.abs(exact).max()
    sources = {
        "matrix": (matrix, "dense"),
        "products with a matrix": (matrix, "davidson"),
        "scipy": (aslinearoperator(matrix), "auto"),
        "function": (SymmetricOperator(lambda v: matrix @ v, size), "auto"),
        "columns of a function": (SymmetricOperator(lambda v: matrix @ v, size), "dense"),
    }
    for operator, method in sources.values():
        found = tw.extreme_eigenvalues(operator, k=2, method=method)
        truths = [*exact[:2], *exact[::-1][:2]]
        for pair, truth in zip((*found.smallest, *found.largest), truths, strict=True):
            assert pair.converged
            assert abs(pair.value - truth) <= pair.error <= 1.1e-8 * spectral_norm + 1e-300
            rest = matrix @ pair.vector - pair.value * pair.vector
            assert norm(rest) <= pair.error
        for alone, both in (
            (tw.sharpness, found.largest),
            (tw.smallest_eigenvalue, found.smallest),
        ):
            pair = alone(operator, method=method)
            assert abs(pair.value - both[0].value) <= pair.error + both[0].error


def test_scipy_finds_the_same():
    """Oracle: scipy.sparse.linalg.eigsh, on an operator that nobody can write down."""
    size = 5000
    weights = np.random.default_rng(0).normal(size=size)

    def product(v):  # a diagonal, a low rank, and a circulant by a Fourier transform
        spread = np.fft.irfft(np.fft.rfft(v) / (1 + np.arange(size // 2 + 1)), size)
        return np.sin(np.arange(size)) * v + weights * (weights @ v) / size + spread

    theirs = LinearOperator((size, size), matvec=product, dtype=float)
    exact = eigsh(theirs, k=2, which="BE", return_eigenvectors=False, tol=1e-12)
    for operator in (theirs, SymmetricOperator(product, size)):
        found = tw.extreme_eigenvalues(operator, tolerance=1e-6)
        assert found.largest[0].method == "davidson"
        assert abs(found.largest[0].value - exact.max()) <= found.largest[0].error
        assert abs(found.smallest[0].value - exact.min()) <= found.smallest[0].error
        warm = tw.extreme_eigenvalues(operator, tolerance=1e-6, start=found)
        assert warm.largest[0].matvecs < 0.5 * found.largest[0].matvecs


def test_all_eigenvalues_can_be_asked_for_at_each_end():
    matrix = with_spectrum(np.arange(7.0), 0)
    found = tw.extreme_eigenvalues(SymmetricOperator(lambda v: matrix @ v, 7), k=7)
    for pairs, exact in ((found.smallest, np.arange(7.0)), (found.largest, np.arange(7.0)[::-1])):
        np.testing.assert_allclose([pair.value for pair in pairs], exact, atol=1e-13)  # rounding
    assert found.largest[0].matvecs == 7 + 2  # all directions, and two for the symmetry


def test_whole_numbers_are_numbers():
    weights = np.arange(-3, 5)
    nothing = SymmetricOperator(lambda v: np.zeros(v.size, int), 60)
    assert tw.sharpness(nothing).value == 0
    np.testing.assert_allclose(dense_spectrum(np.diag(weights)), weights, atol=1e-14)


def test_what_jax_can_trace_is_compiled_once(compilations):
    matrix = jnp.asarray(with_spectrum(np.linspace(-1, 2, 150), 0))
    operator = SymmetricOperator(lambda v: matrix @ v, 150, traceable=True)
    with compilations("_compiled") as count:
        for _ in range(2):
            assert abs(tw.sharpness(operator).value - 2) <= tw.sharpness(operator).error
    assert count() == 1


def test_single_precision_is_said_and_covered():
    matrix = with_spectrum(np.linspace(-1, 2, 150), 0).astype(np.float32)
    exact = np.linalg.eigvalsh(matrix.astype(float))[-1]
    operator = SymmetricOperator(lambda v: matrix @ v.astype(np.float32), 150)
    asked = tw.sharpness(operator)
    assert not asked.converged  # 1e-8 is not to be had
    assert asked.matvecs < 200  # and not looked for for ever
    assert abs(asked.value - exact) <= asked.error < 1e-3
    assert tw.sharpness(operator, tolerance=1e-3).converged


def test_the_density_of_an_operator_is_that_of_its_eigenvalues():
    """Each probe is a Gauss quadrature: with as many steps as eigenvalues, all are nodes."""
    matrix = with_spectrum(np.array([-1.0, 0.0, 2.0, 5.0]), 1)
    for operator in (matrix, aslinearoperator(matrix)):
        found = spectral_density(operator, probes=3, steps=9)
        assert found.matvecs == 3 * 4 + 2
        np.testing.assert_allclose(found.nodes, np.tile([-1.0, 0.0, 2.0, 5.0], (3, 1)), atol=1e-12)
    np.testing.assert_allclose(dense_spectrum(matrix), [-1.0, 0.0, 2.0, 5.0], atol=1e-13)


def test_a_krylov_space_ends_where_products_are_nothing_but_rounding():
    """Rank one: the start, its image, and no third direction."""
    direction = np.random.default_rng(0).normal(size=60)
    space = Space(lambda v: direction * (direction @ v), 60, 20)
    space.extend(np.ones(60))
    while space.extend_by_image():
        assert space.used <= 3
    assert space.products <= 3
    assert space.values[-1] == pytest.approx(direction @ direction, rel=1e-13)


# --- objectives over any pytree -----------------------------------------------------------------


class Well(AbstractObjective):
    """v^T A v / 2 + sum v^4 / 12 of all weights v together: the Hessian is A + diag(v^2)."""

    matrix: jax.Array

    def __call__(self, weights):
        v = ravel_pytree(weights)[0]
        return v @ self.matrix @ v / 2 + jnp.sum(v**4) / 12


def well():
    rng = np.random.default_rng(0)
    matrix = with_spectrum(np.linspace(-2, 3, 14), 0)
    weights = {"in": rng.normal(size=(3, 4)), "out": [rng.normal(), np.array([0.5])]}
    return Well(jnp.asarray(matrix)), weights


def hessian_of_well(objective, weights):
    return np.asarray(objective.matrix) + np.diag(np.asarray(ravel_pytree(weights)[0]) ** 2)


@pytest.mark.parametrize("method", ["auto", "dense", "davidson"])
def test_hessians_over_any_pytree(method):
    """Oracle: the formula for the Hessian. Vectors come back in the shape of the weights."""
    objective, weights = well()
    hessian = hessian_of_well(objective, weights)
    exact = np.linalg.eigvalsh(hessian)
    found = tw.extreme_eigenvalues(objective, weights, 2, method=method)
    operator = HessianOperator(objective, weights)
    again = tw.extreme_eigenvalues(operator, k=2, method=method)
    assert operator.size == 14
    for place in range(2):
        low, high = found.smallest[place], found.largest[place]
        assert abs(low.value - exact[place]) <= low.error
        assert abs(high.value - exact[-1 - place]) <= high.error
        assert again.largest[place].value == high.value
        assert jax.tree.map(np.shape, high.vector) == {"in": (3, 4), "out": [(), (1,)]}
        flat = np.asarray(ravel_pytree(high.vector)[0])
        assert np.linalg.norm(hessian @ flat - high.value * flat) <= high.error
    # One end alone: the same products in another order of rounding.
    alone = tw.sharpness(objective, weights, method=method)
    assert abs(alone.value - found.largest[0].value) <= alone.error + found.largest[0].error


def test_density_and_paths_over_any_pytree():
    """Oracle: the formula for the Hessian, at each point."""
    objective, weights = well()
    exact = np.linalg.eigvalsh(hessian_of_well(objective, weights))
    found = spectral_density(objective, weights, probes=1, steps=14)
    np.testing.assert_allclose(found.nodes[0], exact, atol=1e-9)  # a small weight blurs its node
    scales = np.array([1.0, 0.5, np.nan, 0.0])
    points = jax.tree.map(lambda array: np.multiply.outer(scales, array), weights)
    path = spectrum_along(objective, points)
    watch = jax.jit(lambda point: SpectrumObserver(objective)(point))
    for place, scale in enumerate(scales):
        if np.isnan(scale):
            assert np.isnan(path.largest[place])
            continue
        point = jax.tree.map(lambda array, scale=scale: scale * np.asarray(array), weights)
        low, *_, high = np.linalg.eigvalsh(hessian_of_well(objective, point))
        assert abs(path.smallest[place] - low) <= path.smallest_error[place]
        assert abs(path.largest[place] - high) <= path.largest_error[place]
        ends = watch(point)
        assert abs(float(ends.smallest) - low) <= float(ends.smallest_error)
        assert abs(float(ends.largest) - high) <= float(ends.largest_error)


def test_the_path_of_a_batch_of_runs_has_a_spectrum_at_every_record():
    """Oracle: the Hessian of sum w^4 / 12 is diag w^2. It takes any shape, a run's records too."""

    class Quartic(AbstractObjective):
        def __call__(self, weights):
            return jnp.sum(weights**4) / 12

    rates = np.array([0.1, 0.2])
    run = tw.descend(Quartic(), np.array([1.0, -2.0]), learning_rate=rates, steps=3)
    path = spectrum_along(Quartic(), run)
    assert path.largest.shape == run.loss.shape == (2, 4)
    assert np.all(np.abs(path.largest - np.max(run.weights**2, axis=-1)) <= path.largest_error)
    assert np.all(np.abs(path.smallest - np.min(run.weights**2, axis=-1)) <= path.smallest_error)


def test_points_of_unlike_numbers_are_no_path():
    objective, _ = well()
    with pytest.raises(tw.InputError, match=r"same leading axes .* got \(2,\) and \(3,\)"):
        spectrum_along(objective, {"in": np.ones((2, 3, 4)), "out": [np.ones(3), np.ones((3, 1))]})


# --- what is no operator ------------------------------------------------------------------------


UNSYMMETRIC = np.triu(np.ones((40, 40)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: tw.sharpness(UNSYMMETRIC),
            r"must be symmetric, but .* is \(A \+ A\^T\) / 2 meant",
        ),
        (lambda: tw.sharpness(aslinearoperator(UNSYMMETRIC)), "must be symmetric, but"),
        (lambda: spectral_density(UNSYMMETRIC), "must be symmetric, but"),
        (lambda: dense_spectrum(UNSYMMETRIC), "must be symmetric, but"),
        (lambda: tw.sharpness(np.ones((2, 3))), r"square and not empty, got shape \(2, 3\)"),
        (lambda: tw.sharpness(aslinearoperator(np.ones((2, 3)))), "The LinearOperator must be sym"),
        (lambda: tw.sharpness(np.ones((2, 2)) * np.nan), "`matrix` must be finite, got nan"),
        (lambda: tw.sharpness(np.eye(2) * 1j), "must hold real numbers"),
        (lambda: tw.sharpness(np.ones(3)), "a LinearOperator or a matrix, got an array of shape"),
        (lambda: tw.sharpness("A"), "or a SymmetricOperator or a LinearOperator or a matrix, got"),
        (lambda: SymmetricOperator(np.asarray, 0), "`size` must be a whole number >= 1, got 0"),
        (lambda: SymmetricOperator(np.eye(2), 2), "`function` must be a function"),
        (lambda: tw.sharpness(SymmetricOperator(lambda v: v[1:], 5)), r"5 real .* shape \(4,\)"),
        (lambda: tw.sharpness(SymmetricOperator(lambda v: 1j * v, 5)), "5 real .* complex128"),
        (lambda: tw.sharpness(SymmetricOperator(lambda v: None, 5)), "5 real .* dtype object"),
        (lambda: tw.sharpness(SymmetricOperator(lambda v: v / 0.0, 5)), "products must be finite"),
        (lambda: tw.sharpness(np.eye(2), (np.eye(2),)), "`weights` must be left out"),
        (lambda: tw.sharpness(well()[0]), "`weights` must say at which point"),
        (lambda: tw.extreme_eigenvalues(np.eye(2), k=3), "the number of eigenvalues, 2, got 3"),
        (
            lambda: tw.sharpness(
                np.eye(3), start=tw.extreme_eigenvalues(np.eye(2)), method="davidson"
            ),
            "`start` must hold eigenvectors of the operator's size, 3, got 2",
        ),
    ],
)
def test_bad_operators_get_one_sentence(call, message):
    with np.errstate(divide="ignore"), pytest.raises(tw.InputError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
