"""The bounds that the proof is made of, each against what it bounds."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import reference
from problems import LOSSES, trial

from thalweg.validated import probabilities
from thalweg.validated.curve import _Node
from thalweg.validated.defect import over_step
from thalweg.validated.exponents import Known
from thalweg.validated.hessian import (
    Chains,
    bending,
    change,
    dense_bound,
    dense_hessian,
    norm_bound,
)
from thalweg.validated.losses import Moments
from thalweg.validated.rounding import EXTENDED, roundoff

NUMBERS = range(12)  # three of each loss


def _node(number):
    problem = trial(number)
    setting = problem.setting
    known = Known(setting.smallest(problem.start))
    return problem, _Node.at(setting, problem.start, 0.0, 0.0, known, 0.1, 1e-16)


def _hessian(setting, layers):
    chains = Chains(layers, setting.readout, setting.loss)
    return dense_hessian(chains, setting.loss, setting.decay)


def _gradient(setting, layers, outer):
    long = [layer.astype(reference.LONG) for layer in layers]
    readout = setting.readout.astype(reference.LONG)
    made = reference.product(long, readout)
    slopes = reference.gradient(long, readout, outer(made), setting.decay)
    return np.concatenate([each.ravel() for each in slopes])


@pytest.mark.parametrize("number", NUMBERS)
def test_the_hessian_is_the_derivative_of_the_gradient(number):
    """Oracle: central differences in long double, with steps of 1e-5: errors of about 1e-10."""
    problem, _ = _node(number)
    setting, step = problem.setting, reference.LONG(1e-5)
    matrix = _hessian(setting, problem.start)
    ends = np.cumsum([0, *(layer.size for layer in problem.start)])
    for column in range(ends[-1]):
        sides = []
        for sign in (1, -1):
            moved = [layer.astype(reference.LONG) for layer in problem.start]
            index = int(np.searchsorted(ends, column, side="right")) - 1
            moved[index].flat[column - ends[index]] += sign * step
            sides.append(_gradient(setting, moved, problem.outer))
        slope = ((sides[0] - sides[1]) / (2 * step)).astype(float)
        np.testing.assert_allclose(matrix[:, column], slope, atol=1e-8 * (1 + np.abs(matrix).max()))


@pytest.mark.parametrize("number", NUMBERS)
def test_both_bounds_are_below_the_smallest_eigenvalue(number):
    problem, _ = _node(number)
    setting = problem.setting
    smallest = np.linalg.eigvalsh(_hessian(setting, problem.start))[0]
    arguments = (problem.start, setting.readout, setting.loss, setting.decay)
    dense, norms = dense_bound(*arguments), norm_bound(*arguments)
    assert smallest - 1e-10 < dense <= smallest + 1e-13  # below but for the comparison's rounding
    assert norms <= smallest + 1e-13


@pytest.mark.parametrize("number", NUMBERS)
def test_the_hessian_changes_no_faster_than_promised(number):
    """In the ball around the curve, along random directions and the one of steepest change."""
    problem, node = _node(number)
    rng, length, ball = np.random.default_rng(number), 0.05, 0.02
    step = over_step(node.series, node.norms, length)
    bound = change(node.norms, step, node.series.loss, ball).lipschitz
    largest = 0.0
    for _ in range(20):
        centre = node.series.at(length * rng.random())
        away = [rng.normal(size=layer.shape) for layer in centre]
        size = np.sqrt(sum(np.sum(each**2) for each in away))
        moved = [a + ball / size * b for a, b in zip(centre, away, strict=True)]
        gap = _hessian(problem.setting, moved) - _hessian(problem.setting, centre)
        largest = max(largest, np.linalg.norm(gap, 2) / ball)
    assert largest <= bound
    # Random directions see a part of the largest change only; a bound 300 times as large as they
    # see would make steps needlessly short.
    assert bound < 300 * largest


@pytest.mark.parametrize("number", NUMBERS)
def test_the_hessian_bends_no_more_than_promised(number):
    """Second differences of the Hessian along the curve; rounding of them is 1e-16 / 0.02^2."""
    problem, node = _node(number)
    length, part = 0.05, 0.02
    step = over_step(node.series, node.norms, length)
    bound = bending(step, dense=True)
    for x in np.linspace(part, 1 - part, 7):
        sides = [
            _hessian(problem.setting, node.series.at(length * (x + d))) for d in (-part, 0, part)
        ]
        second = (sides[0] - 2 * sides[1] + sides[2]) / part**2
        assert np.linalg.norm(second, 2) <= bound + 1e-10


@pytest.mark.parametrize("number", [each for each in range(24) if each % 4])
def test_the_remainder_of_probabilities_is_all_that_is_missing(number):
    problem, node = _node(number)
    used = _share_of_remainder(problem, node)
    assert used <= 1


def _share_of_remainder(problem, node) -> float:
    """What phi' is off by at the end of a step, in long double, by its remainder."""
    loss, length = node.series.loss, min(0.3, node._first_length())
    step = over_step(node.series, node.norms, length)
    share = length / node.series.unit
    layers = [
        sum(c.astype(reference.LONG) * reference.LONG(share) ** k for k, c in enumerate(each))
        for each in node.series.layers
    ]
    made = reference.product(layers, problem.setting.readout.astype(reference.LONG))
    exact = _probabilities(loss, made @ (loss.images.astype(reference.LONG) * loss.root))
    ours = sum(
        c.astype(reference.LONG) * reference.LONG(share) ** k for k, c in enumerate(loss.chances)
    )
    off = np.sqrt(float(np.sum((exact - ours) ** 2) / loss.count))
    return off / step.unknown


def _probabilities(loss, outputs):
    if isinstance(loss, probabilities.CrossEntropySeries):
        grown = np.exp(outputs - outputs.max(axis=0))
        return grown / grown.sum(axis=0)
    margins = loss.signs * outputs
    return (
        np.exp(-margins)
        if isinstance(loss, probabilities.ExponentialSeries)
        else 1 / (1 + np.exp(margins))
    )


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_remainder_without_its_tail_is_seen(number, monkeypatch):
    """The largest part of what is missing lies beyond the order that is known."""
    kind = {
        5: probabilities.CrossEntropySeries,
        6: probabilities.LogisticSeries,
        7: probabilities.ExponentialSeries,
    }[number]
    right = kind.equation_norms

    def cut(self, chances, rates):
        made = right(self, chances, rates)
        made[chances.shape[0] - 1 :] = 0.0
        return made

    problem = trial(number)
    setting = replace(problem.setting, order=3, known=3)
    node = _Node.at(setting, problem.start, 0.0, 0.0, Known(0.0), 0.1, 1e-16)
    problem = replace(problem, setting=setting)
    assert _share_of_remainder(problem, node) <= 1
    monkeypatch.setattr(kind, "equation_norms", cut)
    monkeypatch.setattr(kind, "sensitivity", lambda *_: 0.0)
    assert _share_of_remainder(problem, node) > 1


def test_moments_of_samples_are_off_by_no_more_than_they_say():
    """Oracle: fractions, which are exact."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 3)) * [1, 1e-3, 1e3], rng.normal(size=(50, 2))
    found = Moments.of(x, y, 50)
    for ours, doubt, left in (
        (found.inputs, found.inputs_error, x),
        (found.cross, found.cross_error, y),
    ):
        exact = _exactly(left).T @ _exactly(x) / 50
        whole, rest = ours.astype(float), (ours - ours.astype(float)).astype(float)
        off = exact - _exactly(whole) - _exactly(rest)
        assert 0 < float(np.sum(off**2)) ** 0.5 <= doubt
        assert doubt < 2 * roundoff(EXTENDED) * np.linalg.norm(left) * np.linalg.norm(x)


def _exactly(array):
    return np.vectorize(Fraction, otypes=[object])(array)


def test_every_loss_is_among_the_problems():
    assert {trial(number).kind for number in NUMBERS} == set(LOSSES)
