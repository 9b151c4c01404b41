"""Proven lower bounds on the smallest eigenvalue: below it, in order, and not by accident."""

from itertools import pairwise

import jax
import numpy as np
import pytest

import thalweg as tw
from thalweg.validated import lowest

METHODS = ("dense", "nystroem", "indefinite", "norms")
# Nystroem's inversion gives 1e-8 of the Gauss-Newton part away; rounding is far below.
SLACK = 1e-6


def _problem(number):
    rng = np.random.default_rng(number)
    depth, kind = 1 + number % 5, number % 4
    outputs = (2, 3, 1, 1)[kind]
    widths = [int(rng.integers(2, 6)) for _ in range(depth)]
    readout = None
    if number % 3 == 0:
        readout, outputs_widths = rng.normal(size=(4, outputs)), [4]
    else:
        outputs_widths = [outputs]
    network = tw.LinearNetwork([*widths, *outputs_widths], readout=readout)
    x, labels = rng.normal(size=(9, widths[0])), np.arange(9) % (3 if kind == 1 else 2)
    problem = (
        lambda: tw.Regression(x, rng.normal(size=(9, 2))),
        lambda: tw.Classification(x, labels),
        lambda: tw.Classification(x, labels, loss="logistic"),
        lambda: tw.Classification(x, labels, loss="exponential"),
    )[kind]()
    objective = tw.Objective(network, problem, float(rng.choice([0.0, 0.1])))
    scale = float(rng.choice([0.1, 0.5, 1.0]))
    return objective, tw.initialisation.gaussian(network, scale, key=jax.random.key(number))


def _smallest(objective, weights):
    """Oracle: automatic differentiation, and LAPACK."""
    return float(_spectrum(objective, weights)[0])


def _spectrum(objective, weights):
    return np.linalg.eigvalsh(np.asarray(objective.hessian(weights)))


@pytest.mark.parametrize("number", range(12))
def test_no_eigenvalue_is_below(number):
    objective, weights = _problem(number)
    spectrum = _spectrum(objective, weights)
    exact, size = spectrum[0], 1 + np.abs(spectrum).max()
    bounds = [tw.curvature.smallest_eigenvalue_bound(objective, weights, m) for m in METHODS]
    assert all(bound <= exact + 1e-13 * size for bound in bounds)
    assert bounds[0] >= exact - 1e-11 * size
    for sharper, cruder in pairwise(bounds):
        assert sharper >= cruder - SLACK * size
    assert tw.curvature.smallest_eigenvalue_bound(objective, weights) == bounds[0]


@pytest.mark.parametrize("number", [3, 7, 8])
def test_few_directions_prove_less_and_never_too_much(number):
    objective, weights = _problem(number)
    setting = tw.validated.setting_of(objective)
    layers = tuple(map(np.asarray, weights))
    arguments = (layers, setting.readout, setting.loss, setting.decay)
    small = lowest._Indefinite(lowest.Chains(*arguments[:3]))
    curved = lowest._Curved(small, setting.loss)
    exact, rng = _smallest(objective, weights), np.random.default_rng(number)
    size = sum(layer.size for layer in layers)
    for count in (1, 3, 8):
        wild = rng.normal(size=(size, count))  # the worst of directions
        matrix, slack = lowest._with_nystroem(small, curved, wild)
        bound = setting.decay + min(lowest._lowest(matrix, len(layers), slack), 0.0)
        assert bound <= exact + 1e-12
        assert bound >= lowest.indefinite_bound(*arguments) - SLACK


@pytest.mark.parametrize("number", [1, 4, 7])
def test_the_products_are_those_of_the_hessian(number):
    objective, weights = _problem(number)
    setting = tw.validated.setting_of(objective)
    layers = tuple(map(np.asarray, weights))
    small = lowest._Indefinite(lowest.Chains(layers, setting.readout, setting.loss))
    curved = lowest._Curved(small, setting.loss)
    matrix = np.asarray(objective.hessian(weights)) - setting.decay * np.eye(objective.network.size)
    columns = [curved.hessian_product(unit) for unit in np.eye(matrix.shape[0])]
    np.testing.assert_allclose(np.stack(columns), matrix, atol=1e-12 * (1 + np.abs(matrix).max()))


def _seen(monkeypatch, plant) -> int:
    """In how many problems some bound is above the eigenvalue."""
    plant(monkeypatch)
    seen = 0
    for number in range(1, 12):
        objective, weights = _problem(number)
        found = [
            tw.curvature.smallest_eigenvalue_bound(objective, weights, method)
            for method in ("nystroem", "indefinite")
        ]
        seen += max(found) > _smallest(objective, weights) + 1e-6
    return seen


def _too_curved(monkeypatch):
    right = lowest._Curved.product
    monkeypatch.setattr(lowest._Curved, "product", lambda *a: 1.5 * right(*a))


def _dropped_coordinates(monkeypatch):
    """The part of a layer that is seen through Q alone."""
    right = lowest._Indefinite.__init__

    def cut(self, chains):
        right(self, chains)
        self.beyond = [each[:, :1] for each in self.beyond]

    monkeypatch.setattr(lowest._Indefinite, "__init__", cut)


def _wrong_factor(monkeypatch):
    right = lowest._Indefinite.__init__

    def smaller(self, chains):
        right(self, chains)
        self.turned = [(0.9 * a, b) for a, b in self.turned]

    monkeypatch.setattr(lowest._Indefinite, "__init__", smaller)


@pytest.mark.parametrize("plant", [_too_curved, _dropped_coordinates, _wrong_factor])
def test_planted_errors_are_seen(plant, monkeypatch):
    assert _seen(monkeypatch, plant) >= 2


def test_what_has_no_bound_is_refused():
    network = tw.HomogeneousNetwork([3, 2, 1])
    objective = tw.Objective(network, tw.TargetMatrix([[1.0, 2.0, 0.5]]))
    weights = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(1))
    with pytest.raises(tw.InputError, match="linear networks, got LayeredNetwork"):
        tw.curvature.smallest_eigenvalue_bound(objective, weights)
