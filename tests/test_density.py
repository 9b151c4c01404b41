"""The spectral density: its quadrature is exact per probe, and its mean is that of the spectrum."""

import numpy as np
import pytest

import thalweg as tw
from thalweg._checks import InputError
from thalweg.curvature import dense_spectrum, spectral_density


def case():
    rng = np.random.default_rng(0)
    network = tw.LinearNetwork([6, 8, 7, 3])
    problem = tw.Regression(rng.normal(size=(30, 6)), rng.normal(size=(30, 3)))
    weights = tuple(0.4 * rng.normal(size=shape) for shape in network.shapes)
    return tw.Objective(network, problem), weights


def test_each_probe_is_a_gauss_quadrature():
    """With the first probe v: sum of weights * nodes^k = v^T H^k v for k up to 2 steps - 1."""
    objective, weights = case()
    found = spectral_density(objective, weights, probes=1, steps=4, seed=3)
    hessian = np.asarray(objective.hessian(weights))
    probe = np.random.default_rng(3).standard_normal(len(hessian))
    probe /= np.linalg.norm(probe)
    for power in range(8):
        exact = probe @ np.linalg.matrix_power(hessian, power) @ probe
        mine = np.sum(found.weights * found.nodes**power)
        assert mine == pytest.approx(exact, rel=1e-10)  # degree 7 of a norm of about 10
    assert found.matvecs == 4


def test_means_over_the_spectrum_lie_within_their_standard_errors():
    objective, weights = case()
    exact = np.asarray(dense_spectrum(objective, weights))
    found = spectral_density(objective, weights, probes=40, steps=40)
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    for function in (np.asarray, np.square, lambda x: (x > 1e-3 * exact[-1]).astype(float)):
        mean, spread = found.mean_of(function(found.nodes))
        assert abs(mean - function(exact).mean()) <= 5 * spread  # five standard errors, fixed seed
        assert spread < 0.2 * np.abs(function(exact)).mean()


def test_the_smoothed_density_is_that_of_the_eigenvalues():
    objective, weights = case()
    exact = np.asarray(dense_spectrum(objective, weights))
    width = 0.05 * exact[-1]
    places = np.linspace(exact[0] - 4 * width, exact[-1] + 4 * width, 200)
    found = spectral_density(objective, weights, probes=40, steps=60)
    mine = found.smoothed(places, width)
    bells = np.exp(-(((places[:, None] - exact) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
    # The integral of the difference: Monte Carlo with 40 probes of 125 weights.
    assert np.trapezoid(np.abs(mine - bells.mean(axis=1)), places) < 0.1
    assert np.trapezoid(mine, places) == pytest.approx(1, abs=1e-3)


def test_an_exhausted_space_ends_early():
    objective = tw.Objective(tw.LinearNetwork([3, 1]), tw.TargetMatrix(np.ones(3)))
    found = spectral_density(objective, (np.zeros((1, 3)),), probes=2, steps=50)
    assert found.matvecs == 2  # the Hessian is the identity
    np.testing.assert_allclose(found.nodes[:, 0], 1, rtol=1e-14)


def test_bad_input_gets_one_sentence():
    objective, weights = case()
    with pytest.raises(InputError, match="`probes` must be a whole number >= 1, got 0"):
        spectral_density(objective, weights, probes=0)
    with pytest.raises(InputError, match="`width` must be positive"):
        spectral_density(objective, weights, probes=1, steps=2).smoothed(np.zeros(1), 0.0)
