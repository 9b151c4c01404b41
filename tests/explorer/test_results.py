"""What the page is sent is what `thalweg run` finds for the same experiment."""

import numpy as np
import pytest

from thalweg import experiment

SETTING = {
    "network": {"depth": 3, "width": 4},
    "training": {"learning_rate": [0.05, 0.2], "time": 8.0, "records": 60},
}


@pytest.fixture(scope="module")
def results():
    """What `thalweg run` finds."""
    quiet = {"flow": {"validated": False, "tube": "off"}, "certificates": {"enabled": False}}
    return experiment.perform(experiment.from_values(SETTING | quiet))


@pytest.fixture(scope="module")
def found(page):
    return page.compute(SETTING)


def test_descents_are_the_same_to_the_last_bit(found, results):
    np.testing.assert_array_equal(found["descent"]["loss"], results.loss)
    np.testing.assert_array_equal(found["descent"]["time"], results.time)
    assert found["descent"]["edge"] == [2 / 0.05, 2 / 0.2]
    assert found["descent"]["minimum"] == float(results.minimum)
    assert found["end"]["state"] == "ok"


def test_spectra_are_the_same(found, results):
    for name in ("sharpness", "smallest_eigenvalue"):
        np.testing.assert_array_equal(found["sharpness"][name], results[name])
    assert found["sharpness"]["least_sharpness"] == float(results.least_sharpness)
    assert found["sharpness"]["phases"] == ["monotone", "monotone"]


def test_sentences_are_those_of_the_report(found, results):
    from thalweg.reports import findings

    assert found["words"]["setting"].startswith("A linear network of depth 3")
    assert findings(results)[0] == found["words"]["sentences"][0]


def test_a_setting_that_starts_too_far_away_says_so(page):
    found = page.compute({"start": {"scale": 1e60}}, "descent")
    assert found["descent"]["state"] == "refused"
    assert "start.scale" in found["descent"]["reason"]
