"""Errors planted into one step of the proof: the exact flow, or P, is then seen outside."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import reference
from problems import trial

from thalweg.validated import curve, defect, hessian
from thalweg.validated.curve import Setting, _Node
from thalweg.validated.defect import over_step
from thalweg.validated.exponents import Known
from thalweg.validated.losses import SquareSeries
from thalweg.validated.probabilities import CrossEntropySeries, convolved

GRID = 2.0**-60


def _used(setting, start, outer, *, radius=0.0, begun=None, left) -> float:
    """The share of the radius after one step that a flow uses which began within `radius`."""
    node = _Node.at(setting, start, 0.0, radius, Known(setting.smallest(start)), 0.1, GRID)
    step, _ = node.proven_step(left)
    begun = start if begun is None else begun
    exact = reference.flow(begun, setting.readout, outer, setting.decay, [step.length])[0]
    ours = curve.polynomial(step.layers, step.length / step.unit)
    off = sum(float(np.sum((a - b) ** 2)) for a, b in zip(ours, exact, strict=True)) ** 0.5
    return off / step.after


def _with_less_curvature():
    """Two weights that leave a saddle along the diagonal, and a flow that began nearer to it.

    (w1 w2 - 1)^2 / 2 has lambda_min = 3 w^2 - 1 at w1 = w2 = w, and the distance of the two grows
    along that eigenvector: the exponent is met to first order, and L is needed for the second.
    """
    one = np.ones((1, 1))
    setting = Setting(one, SquareSeries(one, one, 0.5), 0.0, True)
    start, begun = ((each * one,) * 2 for each in (0.4, 0.39))
    return _used(setting, start, lambda m: m - one, radius=0.01 * 2**0.5, begun=begun, left=0.02)


def test_a_smaller_change_of_the_hessian_is_seen(monkeypatch):
    assert 0.999 < _with_less_curvature() < 1
    right = hessian.change

    def tenth(*arguments):
        found = right(*arguments)
        return found._replace(lipschitz=0.1 * found.lipschitz)

    monkeypatch.setattr(curve, "change", tenth)
    assert _with_less_curvature() > 1


def _in_single_precision(number) -> float:
    """One step whose series are computed in single precision, where the start is exact."""
    problem = trial(number)
    monkey = replace(problem.setting, extended=True, precision=1e-8, order=8, known=16)
    start, readout = (
        tuple(each.astype(np.float32).astype(float) for each in arrays)
        for arrays in (problem.start, (monkey.readout,))
    )
    return _used(replace(monkey, readout=readout[0]), start, problem.outer, left=0.5)


@pytest.mark.parametrize("number", [0, 8, 12])
def test_rounding_left_out_at_crude_precision_is_seen(number, monkeypatch):
    monkeypatch.setattr(curve, "EXTENDED", np.float32)
    assert _in_single_precision(number) < 1
    monkeypatch.setattr(defect, "roundoff", lambda _: 2.0**-53)
    assert _in_single_precision(number) > 1


def _share_of_probabilities(seed) -> float:
    """What P is off by after a step, by its remainder; one layer, so that outputs have no tail."""
    rng, left = np.random.default_rng(seed), 0.05
    x, labels = rng.normal(size=(1, 2)), np.array([0])
    setting = Setting(np.eye(3), CrossEntropySeries(x, labels, 3), 0.0, True, 1, 1, 1e-3)
    start = (rng.normal(size=(3, 2)),)
    node = _Node.at(setting, start, 0.0, 0.0, Known(setting.smallest(start)), 0.1, GRID)
    loss, step = node.series.loss, over_step(node.series, node.norms, left)
    share = reference.LONG(left / node.series.unit)
    (layer,) = node.series.layers
    made = sum(c.astype(reference.LONG) * share**k for k, c in enumerate(layer))
    grown = np.exp(made @ x.T.astype(reference.LONG))
    ours = sum(c.astype(reference.LONG) * share**k for k, c in enumerate(loss.chances))
    off = np.sqrt(float(np.sum((grown / grown.sum(axis=0) - ours) ** 2)) / loss.count)
    assert 0 < step.unknown < np.inf
    return off / step.unknown


def _tail(_, chances, rates):
    """P z' - P <P, z'> with its sign, where bounds must add up."""
    direct = convolved(chances, rates)
    total = convolved(chances, direct)
    total[: direct.shape[0]] -= direct
    return total


def _coefficients(self, rates):
    """P (z' + <P, z'>)."""
    turned, chances = np.stack(rates[::-1]), np.stack(self.chances)
    self.means.append(np.sum(chances * turned, axis=(0, 1)))
    return np.sum(chances * (turned + np.stack(self.means[::-1])[:, None]), axis=0)


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize(
    ("name", "wrong"), [("equation_norms", _tail), ("next_probabilities", _coefficients)]
)
def test_a_wrong_sign_in_the_softmax_is_seen(seed, name, wrong, monkeypatch):
    assert _share_of_probabilities(seed) < 0.2
    monkeypatch.setattr(CrossEntropySeries, name, wrong)
    assert _share_of_probabilities(seed) > 1


def test_no_time_is_rounded():
    """The exact flow is at t_k + s where the lengths of the steps, added up exactly, are t_k."""
    problem = trial(5)
    steps = curve.validated_curve(problem.setting, problem.start, 6.0 / 7).steps
    total = Fraction(0)
    for step in steps:
        assert Fraction(step.begin) == total
        total += Fraction(step.length)
    assert total == Fraction(6.0 / 7)
    assert len(steps) > 1
