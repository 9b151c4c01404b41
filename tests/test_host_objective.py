"""Objectives that another library computes: here NumPy, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.objective import AbstractHostObjective, AbstractObjective

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(3, 3))
MATRIX = ROOT @ ROOT.T + np.eye(3)
START = {"w": np.array([1.0, -2.0, 0.5]), "b": np.asarray(0.7)}


class HostBowl(AbstractHostObjective):
    """w^T A w / 2 + b^4 in NumPy, which JAX cannot trace."""

    shapes = {"w": (3,), "b": ()}  # noqa: RUF012

    def value_on_host(self, weights):
        assert all(type(array) is np.ndarray for array in weights.values())
        return weights["w"] @ MATRIX @ weights["w"] / 2 + weights["b"] ** 4

    def gradient_on_host(self, weights):
        slopes = {"w": MATRIX @ weights["w"], "b": 4 * weights["b"] ** 3}
        return self.value_on_host(weights), slopes

    def product_on_host(self, weights):
        return lambda v: {"w": MATRIX @ v["w"], "b": 12 * weights["b"] ** 2 * v["b"]}


class Bowl(AbstractObjective):
    """The same in JAX."""

    def __call__(self, weights):
        return weights["w"] @ jnp.asarray(MATRIX) @ weights["w"] / 2 + weights["b"] ** 4


def test_derivatives_are_those_of_jax():
    """Oracle: JAX's; within its loops, too, and differentiated there. A few roundings."""
    for found, expected in (
        (HostBowl()(START), Bowl()(START)),
        (HostBowl().hessian(START), Bowl().hessian(START)),
        (jax.jit(HostBowl().hessian)(START), Bowl().hessian(START)),
        (jax.grad(HostBowl())(START)["w"], Bowl().gradient(START)["w"]),
        (jax.hessian(HostBowl())(START)["b"]["b"], Bowl().hessian(START)[0, 0]),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)
    lanes = jax.tree.map(lambda array: np.stack([array, 2 * array], axis=-1), START)
    for found, expected in zip(
        jax.tree.leaves(HostBowl().value_and_gradient_in_lanes(lanes)),
        jax.tree.leaves(Bowl().value_and_gradient_in_lanes(lanes)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("optimiser", [tw.optimisers.PLAIN, tw.optimisers.Nesterov(0.7)])
def test_it_is_descended_as_jax_descends(optimiser):
    rates = np.array([0.01, 0.02])
    how = {"steps": 23, "record_every": 5, "optimiser": optimiser}
    host = tw.descend(HostBowl(), START, learning_rate=rates, **how)
    for place, rate in enumerate(rates):
        plain = tw.descend(Bowl(), START, learning_rate=rate, **how)
        np.testing.assert_array_equal(host.steps, plain.steps)
        np.testing.assert_allclose(host.loss[place], plain.loss, rtol=1e-12)
        for name, array in plain.weights.items():
            np.testing.assert_allclose(host.weights[name][place], array, rtol=1e-12)
            np.testing.assert_array_equal(host.final[name][place], host.weights[name][place, -1])


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")  # of the objective itself
def test_divergence_is_told_and_costs_nothing_more():
    host, plain = (
        tw.descend(kind(), START, learning_rate=1.0, steps=3000, record_every=500)
        for kind in (HostBowl, Bowl)
    )
    assert host.diverged_at == plain.diverged_at
    np.testing.assert_array_equal(np.isfinite(host.loss), np.isfinite(plain.loss))


def test_what_is_observed():
    watch = tw.curvature.SpectrumObserver(HostBowl())
    run = tw.descend(HostBowl(), START, learning_rate=0.01, steps=2, observe=watch)
    values = np.linalg.eigvalsh(MATRIX)
    bend = 12 * START["b"] ** 2
    assert run.observed.largest[0] == pytest.approx(max(values[-1], bend), rel=1e-6)
    norms = tw.descend(
        HostBowl(), START, learning_rate=0.01, steps=2,
        observe=lambda weights: jnp.sum(weights["w"] ** 2),
    ).observed  # fmt: skip
    assert norms[0] == pytest.approx(1 + 4 + 0.25)


def test_both_ends_and_the_density():
    values = np.sort(np.append(np.linalg.eigvalsh(MATRIX), 12 * 0.7**2))
    found = tw.extreme_eigenvalues(HostBowl(), START)
    for pair, expected in ((found.smallest[0], values[0]), (found.largest[0], values[-1])):
        assert abs(pair.value - expected) <= pair.error + 1e-12
        assert pair.error < 1e-7 * values[-1]
        assert pair.matvecs > 0
    np.testing.assert_allclose(tw.curvature.dense_spectrum(HostBowl(), START), values, rtol=1e-12)
    density = tw.curvature.spectral_density(HostBowl(), START, probes=30)
    mean, error = density.mean_of(density.nodes)
    assert abs(mean - values.mean()) < 4 * error


def test_the_flow_calls_back():
    """Oracle: exp(-A t) w and the solution of b' = -4 b^3."""
    flow = tw.flow(HostBowl(), START, times=[0.0, 0.3])
    rates, basis = np.linalg.eigh(MATRIX)
    expected = basis @ (np.exp(-0.3 * rates) * (basis.T @ START["w"]))
    np.testing.assert_allclose(flow.final["w"], expected, atol=2 * flow.error[-1])
    final = 0.7 / np.sqrt(1 + 8 * 0.7**2 * 0.3)
    np.testing.assert_allclose(flow.final["b"], final, atol=2 * flow.error[-1])
    assert 0 < flow.error[-1] < 1e-7


def test_a_direction_must_be_like_the_weights():
    with pytest.raises(tw.InputError, match="`direction` must have the structure"):
        HostBowl().hvp(START, {"w": np.ones(3)})
