"""What the page is sent is what `thalweg run` finds for the same experiment."""

import warnings
from queue import Queue

import numpy as np
import pytest

import thalweg as tw
from thalweg import InputError, experiment
from thalweg.explorer.computation import Computation
from thalweg.explorer.parts.inside import layers
from thalweg.explorer.session import Session
from thalweg.explorer.worker import Job, Worker

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


def test_a_network_that_is_wide_because_its_data_are_is_refused(page):
    """Before weights are drawn: each of the ten layers would be a matrix of a million numbers."""
    found = page.compute({"data": {"features": 1000, "samples": 2}}, "descent")
    assert found["descent"]["state"] == "refused"
    assert "at most 262,144 weights, got 9,001,000" in found["descent"]["reason"]


def test_a_page_begins_with_the_table_of_the_experiment(tmp_path):
    """With the column that it predicts; where the table is gone, the page says so itself."""
    (tmp_path / "people.csv").write_text("height,weight,age\n" + "1,2,3\n2,1,5\n4,2,2\n")
    data = {"source": "csv", "path": "people.csv", "target": ["weight"]}
    session = Session(experiment.from_values({"data": data}), tmp_path)
    assert session.table() == {
        "name": "people.csv", "columns": ["height", "weight", "age"], "rows": 3, "target": "weight",
    }  # fmt: skip
    (tmp_path / "people.csv").unlink()
    assert session.table() is None
    known = session.computation(session.first_values())
    with pytest.raises(InputError, match=r"people\.csv: No such file"):
        _ = known.runs


def test_an_objective_is_explored_with_a_learning_rate_that_makes_sense():
    objective = tw.FunctionObjective(lambda w: w @ w)
    with pytest.raises(InputError, match="learning_rate"):
        tw.explore(objective, np.ones(2), -1.0, wait=False, open_page=False)


def test_a_warm_up_that_fails_keeps_nobody_waiting(capsys):
    def fail():
        raise RuntimeError("no cache")

    found: Queue[bytes | None] = Queue()
    worker = Worker(fail)
    worker.start()
    assert worker.add(Job("a", 1, None, [(0, "descent", lambda _: iter([b"curve"]))], found.put))
    assert found.get(timeout=30) == b"curve"
    assert worker.ready.is_set()
    worker.stop()
    assert "no cache" in capsys.readouterr().err


def test_a_run_that_diverges_warns_nobody():
    training = {"learning_rate": [30.0], "steps": 60, "records": 60}
    known = Computation(experiment.from_values({"network": {"depth": 3}, "training": training}))
    assert known.runs[0].diverged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert b"".join(layers(known))
