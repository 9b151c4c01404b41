"""The studies of arora2019, at their quick size: confirmed, refutable, drawn."""

import numpy as np
import pytest
import xarray as xr
from tampering import assert_quick_study_holds

from thalweg import studies
from thalweg.studies.arora2019_probability import _frequency
from thalweg.studies.arora2019_rates import _borne, _objective, _shrunk, _turned, _unbalanced
from thalweg.theorems.settings.matrix_approximation import largest_imbalance

NAMES = [name for name in studies.STUDIES if name.startswith("arora2019-")]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_confirmed_and_could_fail(name, tmp_path):
    assert_quick_study_holds(name, tmp_path)


@pytest.mark.parametrize("make", [_shrunk, _turned])
@pytest.mark.parametrize("margin", [0.2, 0.9])
def test_starts_have_the_margin_and_imbalance_that_they_are_made_for(make, margin):
    objective = _objective(3)
    start = make(objective, margin)
    product = np.asarray(objective.network.end_to_end(start))
    target = np.asarray(objective.problem.minimiser)
    away = np.linalg.norm(product - target)
    np.testing.assert_allclose(0.95 - away, margin, rtol=1e-12)  # rounding
    assert float(np.max(largest_imbalance(start))) < 1e-14
    smallest = np.linalg.svd(product)[1][-1]
    assert abs(smallest - margin) < 1e-12 if make is _shrunk else smallest > 0.95
    for imbalance in (0.3, 16384.0):
        uneven = _unbalanced(start, imbalance)
        np.testing.assert_allclose(np.max(largest_imbalance(uneven)), imbalance, rtol=1e-9)
        np.testing.assert_allclose(
            objective.network.end_to_end(uneven), product, rtol=1e-12, atol=1e-15
        )


@pytest.mark.parametrize(
    ("rates", "expected"),
    [([3, 2, 1], 4.0), ([3, 0, 2], 1.0), ([0, 3, 2], 0.0), ([3, 2, np.nan], np.nan)],
)
def test_what_is_borne_ends_at_the_first_failure(rates, expected):
    row = xr.Dataset(
        {"unbalanced": ("imbalance", np.asarray(rates, float)), "promised_unbalanced": 0.5},
        {"imbalance": [1.0, 2.0, 4.0]},
    )
    np.testing.assert_equal(_borne(row), expected)


def test_two_coordinates_stand_for_all():
    """The same frequency from whole vectors; four standard errors of 50,000 draws are 0.009."""
    features, ratio, draws = 20, 50.0, 50_000
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((draws, features)) / (np.sqrt(ratio) * features)
    margins = 1 - np.linalg.norm(vectors - np.eye(features)[0], axis=1)
    plain = np.mean(margins >= 1 / (2 * ratio * features))
    assert abs(_frequency(features, ratio, draws, generator) - plain) < 0.009
