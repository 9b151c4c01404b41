"""The dense spectrum, and how flat minimisers can be, against numbers from elsewhere."""

import jax
import numpy as np
import pytest

import thalweg as tw
from thalweg._checks import InputError
from thalweg.curvature import dense_spectrum, minimiser_sharpness_bounds


def deterministic_data(samples):
    """Twelve samples of three features: X_ij = cos(ij) + 1[(i - 1) mod 3 = j - 1]."""
    i, j = np.arange(1, samples + 1)[:, None], np.arange(1, 4)[None]
    x = np.cos(i * j) + ((i - 1) % 3 == j - 1)
    return x, x @ [1.0, -1.0, 0.5] + 0.1 * np.sin(i[:, 0])


@pytest.mark.parametrize(
    ("depth", "paper", "stronger"),
    [(2, 0.740591, 3.279090), (3, 1.271486, 5.211353), (10, 5.120227, 18.835512)],
)
def test_the_bounds_are_those_of_the_tables(depth, paper, stronger):
    x, y = deterministic_data(12)
    network = tw.LinearNetwork([3] * depth + [1])
    bounds = minimiser_sharpness_bounds(tw.Objective(network, tw.Regression(x, y, scale=1.0)))
    assert bounds.paper == pytest.approx(paper, abs=5e-7)  # six decimals are given
    assert bounds.sharper == pytest.approx(stronger, abs=5e-7)


@pytest.mark.parametrize("readout", [1.0, 0.1])
def test_a_balanced_chain_on_white_data_attains_the_bounds(readout):
    """On white data both bounds agree and are attained; with a small readout the print is false."""
    depth, target = 4, 1.7
    weight = (target / readout) ** (1 / depth)
    network = tw.LinearNetwork([1] * (depth + 1), readout=[readout])
    objective = tw.Objective(network, tw.Regression(np.ones((3, 1)), np.full(3, target), scale=1.0))
    weights = (np.full((1, 1), weight),) * depth
    sharpness = dense_spectrum(objective, weights)[-1]
    bounds = minimiser_sharpness_bounds(objective)
    np.testing.assert_allclose([bounds.paper, bounds.sharper], sharpness, rtol=1e-12)


def test_the_loss_scale_scales_the_bounds():
    x, y = deterministic_data(12)
    network = tw.LinearNetwork([3, 3, 1])
    one, half = (
        minimiser_sharpness_bounds(tw.Objective(network, tw.Regression(x, y, scale=scale)))
        for scale in (1.0, 0.5)
    )
    np.testing.assert_allclose(np.asarray(half) * 2, np.asarray(one), rtol=1e-14)


def test_the_dense_spectrum_is_that_of_the_automatic_hessian():
    x, y = deterministic_data(8)
    network = tw.LinearNetwork([3, 4, 2, 1])
    objective = tw.Objective(network, tw.Regression(x, y, scale=1.0))
    rng = np.random.default_rng(0)
    weights = tuple(rng.normal(size=shape) for shape in network.shapes)
    flat, unravel = jax.flatten_util.ravel_pytree(weights)
    plain = np.linalg.eigvalsh(jax.hessian(lambda v: objective(unravel(v)))(flat))
    spectrum = np.asarray(dense_spectrum(objective, weights))
    np.testing.assert_allclose(spectrum, plain, atol=1e-12 * abs(plain).max())  # Weyl


def test_the_bounds_refuse_what_they_do_not_speak_of():
    x, y = deterministic_data(12)
    relu = tw.Objective(tw.HomogeneousNetwork([3, 2, 1]), tw.Regression(x, y))
    with pytest.raises(InputError, match="asked of a LinearNetwork on a Regression"):
        minimiser_sharpness_bounds(relu)
    two = tw.Objective(tw.LinearNetwork([3, 2]), tw.Regression(x, np.stack([y, y], axis=1)))
    with pytest.raises(InputError, match="needs one output, got 2"):
        minimiser_sharpness_bounds(two)
