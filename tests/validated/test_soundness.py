"""No exact flow is outside its radius; and if something were wrong, it would be."""

from dataclasses import replace

import numpy as np
import pytest
import reference
from problems import Trial, outcome, trial

from thalweg.validated import curve, defect, exponents, hessian
from thalweg.validated.curve import Setting
from thalweg.validated.losses import SquareSeries
from thalweg.validated.rounding import UNIT


@pytest.mark.parametrize("number", range(16))
def test_the_exact_flow_is_inside(number):
    """Oracle: extrapolation in long double precision; all losses, networks and precisions."""
    failed_at, used, radius = outcome(trial(number))
    assert failed_at is None
    assert used < 1
    assert radius < 1e-3


def _outside(numbers, precision: float) -> int:
    """In how many problems the exact flow is seen outside."""
    trials = [trial(number) for number in numbers]
    finer = [replace(each, setting=replace(each.setting, precision=precision)) for each in trials]
    return sum(outcome(each)[1] > 1 for each in finer)


def test_a_wrong_coefficient_is_seen(monkeypatch):
    right = curve.expand

    def wrong(*arguments):
        made = right(*arguments)
        made.layers[0][3] *= 1 + 1e-3
        return made

    monkeypatch.setattr(curve, "expand", wrong)
    assert _outside(range(4), UNIT) == 4


def test_a_dropped_tail_is_seen(monkeypatch):
    monkeypatch.setattr(defect, "_truncation", lambda *_: 0.0)
    assert _outside(range(4), 1e-5) >= 3


def test_rounding_left_out_is_seen(monkeypatch):
    monkeypatch.setattr(defect._Rounding, "total", lambda *_: 1e-30)
    monkeypatch.setattr(curve, "_evaluation_error", lambda *_: 0.0)
    monkeypatch.setattr(curve, "_ROUNDED", 1e300)
    assert _outside(range(8), UNIT) >= 4


def _leaving_a_saddle() -> Trial:
    """Two layers near zero: errors grow by orders before they shrink."""
    target, rng = np.diag([3.0, 1.0]), np.random.default_rng(0)
    start = tuple(0.05 * rng.normal(size=(2, 2)) for _ in range(2))
    setting = Setting(np.eye(2), SquareSeries(np.eye(2), target, 0.5), 0.0, True, 8, 14, 1e-9)
    exact = target.astype(reference.LONG)
    return Trial(setting, start, lambda matrix: matrix - exact, 3.0, "square")


def test_growth_left_out_is_seen(monkeypatch):
    problem = _leaving_a_saddle()
    assert outcome(problem)[1] < 1
    monkeypatch.setattr(curve.Setting, "smallest", lambda *_: 0.0)
    monkeypatch.setattr(exponents, "bending", lambda *_: 0.0)
    assert outcome(problem)[1] > 1


def test_what_is_not_a_number_proves_nothing(monkeypatch):
    problem = trial(0)
    monkeypatch.setattr(curve, "change", lambda *_: hessian.Change(np.nan, 0.0))
    assert curve.validated_curve(problem.setting, problem.start, 1.0).failed_at == 0.0


def test_where_nothing_is_proven_the_radius_is_infinite(monkeypatch):
    problem = trial(0)
    monkeypatch.setattr(curve, "_ATTEMPTS", 0)
    found = curve.validated_curve(problem.setting, problem.start, 1.0)
    assert found.failed_at == 0.0
    assert found.largest == np.inf
    layers, radius = found.at(1.0)
    assert radius == np.inf
    # The curve itself goes on, as an integrator without a proof.
    exact = reference.flow(
        problem.start, problem.setting.readout, problem.outer, problem.setting.decay, [1.0]
    )[0]
    for ours, theirs in zip(layers, exact, strict=True):
        np.testing.assert_allclose(ours, theirs.astype(float), atol=1e-4)  # precision 1e-5
