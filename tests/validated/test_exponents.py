"""The exponent of a step: never too small, and no dearer than it is worth."""

from dataclasses import replace

import numpy as np
import pytest
from problems import outcome, trial

from thalweg.validated import curve, exponents
from thalweg.validated.curve import _Node, validated_curve
from thalweg.validated.defect import over_step
from thalweg.validated.exponents import Known, over_length
from thalweg.validated.hessian import Chains, dense_hessian


def _by_norms(number):
    problem = trial(number)
    return replace(problem, setting=replace(problem.setting, dense=False))


def _looks(monkeypatch, worth, patience):
    """How many sharp bounds have been asked for, counted from now on."""
    monkeypatch.setattr(exponents, "_WORTH", worth)
    monkeypatch.setattr(exponents, "_PATIENCE", patience)
    right, counted = curve.nystroem, []

    def counting(*arguments):
        counted.append(arguments)
        return right(*arguments)

    monkeypatch.setattr(curve, "nystroem", counting)
    return counted


@pytest.mark.parametrize("number", [5, 6, 7, 13])
def test_looking_closer_everywhere_stays_sound(number, monkeypatch):
    problem = _by_norms(number)
    crude = validated_curve(problem.setting, problem.start, problem.horizon)
    looks = _looks(monkeypatch, -1.0, 0.0)
    failed_at, used, radius = outcome(problem)
    assert used < 1
    assert looks
    if failed_at is None:
        assert radius <= crude.at(problem.horizon)[1] * (1 + 1e-6)


@pytest.mark.parametrize(
    # Problem 4 takes no step as long as 0.1.
    ("number", "length"),
    [(n, h) for h in (0.01, 0.1) for n in range(8) if (n, h) != (4, 0.1)],
)
def test_the_exponent_is_never_too_small(number, length, monkeypatch):
    """Oracle: eigenvalues of dense Hessians all along the step."""
    problem = _by_norms(number)
    setting = problem.setting
    _looks(monkeypatch, -1.0, 0.0)
    node = _Node.at(
        setting, problem.start, 0.0, 0.0, Known(setting.smallest(problem.start)), length, 1e-16
    )
    step = over_step(node.series, node.norms, length)
    found = over_length(setting, node.known, node.series.at, step, length)
    assert found is not None
    shares = np.linspace(0, 1, 21)
    exact = [_growth(setting, node.series.at(share * length)) for share in shares]
    doubt = 2 * step.unknown * 100 + 1e-12  # the Hessian of the polynomial, not that of the loss
    assert found[0].worst >= max(exact) - doubt
    assert found[0].mean >= np.trapezoid(exact, shares) - doubt - np.ptp(exact) / 400


def _growth(setting, layers):
    chains = Chains(layers, setting.readout, setting.loss)
    return -np.linalg.eigvalsh(dense_hessian(chains, setting.loss, setting.decay))[0]


def test_looking_is_paid_for_by_what_it_saves(monkeypatch):
    problem = _by_norms(5)
    assert not _asked(problem, np.inf, np.inf, monkeypatch)
    patient, impatient = (_asked(problem, np.inf, each, monkeypatch) for each in (0.5, 0.05))
    assert 0 < patient < impatient
    steps = len(validated_curve(problem.setting, problem.start, problem.horizon).steps)
    assert _asked(problem, -1.0, 0.0, monkeypatch) >= steps


def _asked(problem, worth, patience, monkeypatch):
    with monkeypatch.context() as patch:
        looks = _looks(patch, worth, patience)
        validated_curve(problem.setting, problem.start, problem.horizon)
        return len(looks)
