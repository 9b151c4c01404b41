"""Our own studies, at their quick size: confirmed, refutable, drawn."""

import numpy as np
import pytest
from tampering import assert_quick_study_holds

from thalweg import studies
from thalweg.studies.thalweg_common import aligned_example, largest_rate

NAMES = [name for name in studies.STUDIES if name.startswith("thalweg-")]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_confirmed_and_could_fail(name, tmp_path):
    assert_quick_study_holds(name, tmp_path)


def test_the_largest_rate_is_found_to_a_percent():
    tried = []

    def fits(rate):
        tried.append(rate)
        return rate <= 0.0371

    for guess in (1e-4, 0.03, 5.0):
        assert 0.0371 / 1.01 <= largest_rate(fits, guess) <= 0.0371
    assert len(tried) < 80


def test_the_example_starts_at_its_norm_and_angle():
    objective, weights = aligned_example(3, norm=0.2, cosine=0.3)
    product = np.asarray(objective.network.end_to_end(weights))[0]
    np.testing.assert_allclose(np.linalg.norm(product), 0.2, rtol=1e-12)  # rounding
    np.testing.assert_allclose(product[0] / 0.2, 0.3, rtol=1e-12)
