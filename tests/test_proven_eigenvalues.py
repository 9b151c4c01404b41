"""Proven lower bounds on the smallest eigenvalue: below it, in order, and not by accident."""

from functools import cache
from itertools import pairwise

import jax
import mpmath
import numpy as np
import pytest

import thalweg as tw
from thalweg.curvature.balls import ball_bounds
from thalweg.validated import chains as chains_module
from thalweg.validated import hessian, lowest
from thalweg.validated.chains import Chains
from thalweg.validated.eigenvalues import proven_lowest
from thalweg.validated.hessian import norm_bound

METHODS = ("dense", "nystroem", "indefinite", "norms")
# Rounding: the bases' constants are pessimistic, by what is left a thousandfold below this.
SLACK = 1e-9


@cache
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


@cache
def _hessian(number):
    """Oracle: automatic differentiation, compiled once for each problem."""
    objective, weights = _problem(number)
    return np.asarray(objective.hessian(weights))


def _spectrum(number):
    """Oracle: LAPACK."""
    return np.linalg.eigvalsh(_hessian(number))


@pytest.mark.parametrize("number", range(12))
def test_no_eigenvalue_is_below(number):
    objective, weights = _problem(number)
    spectrum = _spectrum(number)
    exact, size = spectrum[0], 1 + np.abs(spectrum).max()
    bounds = [tw.curvature.smallest_eigenvalue_bound(objective, weights, m) for m in METHODS]
    assert all(bound <= exact + 1e-13 * size for bound in bounds)
    assert bounds[0] >= exact - 1e-11 * size
    for sharper, cruder in pairwise(bounds):
        assert sharper >= cruder - SLACK * size
    assert tw.curvature.smallest_eigenvalue_bound(objective, weights) == bounds[0]


def _small(number):
    """A problem, and its indefinite part."""
    objective, weights = _problem(number)
    setting = tw.validated.setting_of(objective)
    chains = Chains(tuple(map(np.asarray, weights)), setting.readout, setting.loss)
    return objective, weights, setting, lowest._Indefinite(chains)


@pytest.mark.parametrize("number", [3, 7, 8])
def test_few_directions_prove_less_and_never_too_much(number):
    objective, _, setting, small = _small(number)
    exact, rng = _spectrum(number)[0], np.random.default_rng(number)
    least = proven_lowest(small.matrix, small.error)
    for count in (1, 3, 8):
        wild = rng.normal(size=(objective.network.size, count))  # the worst of directions
        completed = lowest._Completed(small, wild)
        bound = setting.decay + min(proven_lowest(completed.matrix, completed.error), 0.0)
        assert bound <= exact + 1e-12
        assert bound >= setting.decay + min(least, 0.0) - SLACK


def test_directions_are_found_where_there_are_many(monkeypatch):
    """With room for few the search has to choose, and comes as near as with all of them."""
    monkeypatch.setattr(lowest, "_MANY", 12)
    monkeypatch.setattr(lowest, "_FEW", 4)
    for number in (3, 7, 8):
        _, weights, setting, _ = _small(number)
        layers = tuple(map(np.asarray, weights))
        arguments = (layers, setting.readout, setting.loss, setting.decay)
        found = lowest.nystroem(*arguments)
        exact, size = _spectrum(number)[0], _spectrum(number)[-1]
        assert exact - 0.1 * size <= found.bound <= exact + 1e-12 * size
        again = lowest.nystroem(*arguments, directions=found.directions)
        assert again.bound >= found.bound - 0.02 * abs(found.bound)
        assert found.directions.shape[1] <= 12


@pytest.mark.parametrize("number", [1, 4, 7])
def test_the_parts_make_up_the_hessian(number):
    objective, _, setting, small = _small(number)
    matrix = _hessian(number) - setting.decay * np.eye(objective.network.size)
    every = np.eye(matrix.shape[0])
    whole = lowest._Completed(small, every)
    moved = whole._moved(every)
    seen = small.coordinates(every)
    both = moved.T @ moved + seen.T @ small.matrix @ seen
    np.testing.assert_allclose(both, matrix, atol=1e-12 * (1 + np.abs(matrix).max()))
    np.testing.assert_allclose(whole._pulled_back(moved), moved.T @ moved, atol=1e-10)
    np.testing.assert_allclose(small.coordinates(small.lifted(seen)), seen, atol=1e-12)


@pytest.mark.parametrize("number", [5, 9])
def test_balls_bound_their_centre_by_the_same_norms(number):
    """Two ways to the blocks' norms: in NumPy with all rounding, and in JAX for tubes."""
    objective, weights = _problem(number)
    centre = ball_bounds(objective, weights, 0.0)
    proven = tw.curvature.smallest_eigenvalue_bound(objective, weights, "norms")
    size = 1 + abs(float(centre.central_eigenvalue))
    assert abs(float(centre.central_eigenvalue) - proven) <= 1e-9 * size


# --- rounding ------------------------------------------------------------------------------------


def _exact_lowest(matrix):
    """Oracle: the smallest eigenvalue by Jacobi's rotations in forty digits."""
    with mpmath.workdps(40):
        return min(mpmath.eigsy(mpmath.matrix(matrix.tolist()), eigvals_only=True))


def _adversaries():
    """Nearly singular, of huge condition, all alike, graded; at tiny and huge scales."""
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 9):
        turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
        ones = np.ones((size, size))
        graded = np.outer(*[np.geomspace(1, 1e-150, size)] * 2)
        spectra = (np.geomspace(1, 1e-18, size), -np.geomspace(1, 1e-18, size))
        hilbert = 1 / (1 + np.add.outer(np.arange(size), np.arange(size)))
        made = [turn @ np.diag(each) @ turn.T for each in spectra]
        for matrix in (*made, ones, ones - 1e-17, graded, hilbert, np.zeros((size, size))):
            for scale in (1.0, 1e-300, 1e-155, 1e155, 1e300):
                yield (matrix + matrix.T) / 2 * scale


def test_no_matrix_is_too_hard():
    for matrix in _adversaries():
        bound, exact = proven_lowest(matrix), _exact_lowest(matrix)
        top = np.abs(matrix).max()
        assert bound <= exact
        assert bound >= exact - 1e-14 * matrix.shape[0] ** 2 * top - 1e-320
        assert proven_lowest(matrix, doubt=top) <= exact - 0.99 * top


@pytest.mark.parametrize("broken", [np.inf, np.nan])
def test_what_is_no_number_has_no_bound(broken):
    assert proven_lowest(np.array([[1.0, 0.0], [0.0, broken]])) == -np.inf
    assert proven_lowest(np.eye(2), doubt=broken) == -np.inf


def test_a_wrong_guess_proves_nothing_wrong():
    matrix = np.diag([-3.0, 1.0, 2.0])
    for guess in (-100.0, -3.0, -2.9, -1e-9, 1.0, 5.0):
        bound = proven_lowest(matrix, guess=guess)
        assert bound <= -3
        assert guess > -3 or bound >= guess * (1 + 1e-5)


def _cancelling(number):
    """Layers whose product nearly vanishes, next to a minimiser, at some scale."""
    rng = np.random.default_rng(number)
    scale = float(rng.choice([1e-100, 1e-20, 1.0, 1e8]))
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    wild = np.diag([1e8, 1.0, 1e-4, 1e-8])
    layers = (
        turn @ wild @ rng.normal(size=(4, 3)) * scale,
        np.linalg.inv(wild) @ turn.T + 1e-9 * rng.normal(size=(4, 4)),
        rng.normal(size=(2, 4)),
    )
    product = layers[2] @ layers[1] @ layers[0]
    target = product * (1 + 1e-15 * rng.normal(size=product.shape))
    return layers, target


def _exact_blocks(layers, target):
    """Oracle: the indefinite part's largest block, in forty digits."""
    with mpmath.workdps(40):
        first, second, third = (mpmath.matrix(each.tolist()) for each in layers)
        gradient = third * second * first - mpmath.matrix(target.tolist())
        blocks = (third.T * gradient, gradient * first.T)
        return float(max(mpmath.svd_r(each, compute_uv=False)[0] for each in blocks))


@pytest.mark.parametrize("number", range(8))
def test_rounding_of_cancelling_products_is_in_every_bound(number):
    """-B's smallest eigenvalue is at least its largest block's norm; A can be left out of it."""
    layers, target = _cancelling(number)
    setting = tw.validated.setting_of(
        tw.Objective(tw.LinearNetwork([3, 4, 4, 2]), tw.TargetMatrix(target))
    )
    arguments = (layers, setting.readout, setting.loss, 0.0)
    block = _exact_blocks(layers, target)
    assert norm_bound(*arguments) <= -block
    assert lowest.indefinite_bound(*arguments) <= -block
    small = lowest._Indefinite(Chains(*arguments[:3]))
    assert small.error < np.inf


def test_forgotten_rounding_is_seen(monkeypatch):
    """Where a gradient is nothing but rounding, what was computed is too small somewhere."""
    forgotten = 0
    monkeypatch.setattr(hessian, "householder", lambda *shape: 0.0)
    nothing = chains_module.ChainErrors
    right = chains_module._errors

    def without(chains):
        found = right(chains)
        pairs = (found.upper, found.lower, found.images, found.middle)
        return nothing(*((size, 0 * off) for size, off in pairs), found.curvature, 0.0)

    monkeypatch.setattr(chains_module, "_errors", without)
    for number in range(8):
        layers, target = _cancelling(number)
        setting = tw.validated.setting_of(
            tw.Objective(tw.LinearNetwork([3, 4, 4, 2]), tw.TargetMatrix(target))
        )
        bound = norm_bound(layers, setting.readout, setting.loss, 0.0)
        forgotten += bound > -_exact_blocks(layers, target)
    assert forgotten >= 1


# --- planted errors ------------------------------------------------------------------------------


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
        seen += max(found) > _spectrum(number)[0] + 1e-6
    return seen


def _too_curved(monkeypatch):
    right = lowest._Completed._pulled_back
    monkeypatch.setattr(lowest._Completed, "_pulled_back", lambda *a: 1.5 * right(*a))


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
