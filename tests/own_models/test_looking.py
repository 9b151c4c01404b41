"""What is drawn and shown of results in memory, and the pages that are written of them."""

import json
import re

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from small_model import OBJECTIVE, PARAMS

import thalweg as tw
from thalweg.figures.curves import picture
from thalweg.figures.spectrum import draw_sharpness
from thalweg.reports.captions import captions
from thalweg.reports.summary import table

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def run():
    return tw.descend(OBJECTIVE, PARAMS, learning_rate=[0.1, 0.3], steps=40, record_every=4)


@pytest.fixture(scope="module")
def flow():
    return tw.flow(OBJECTIVE, PARAMS, times=np.linspace(0, 12, 31), rtol=1e-6)


@pytest.fixture(scope="module")
def probe(run):
    found = tw.Probe(OBJECTIVE, every=5, learning_rate=0.3)
    for place in range(11):
        found(jax.tree.map(lambda array, k=place: array[1, k], run.weights))
    return found


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def curves(axes):
    return {line.get_label(): np.asarray(line.get_data()) for line in axes.lines}


def test_a_run_is_drawn(run):
    drawn = curves(run.plot())
    np.testing.assert_array_equal(drawn[r"$\eta$ = 0.3"], [run.times[1], run.loss[1]])
    _, axes = matplotlib.pyplot.subplots()
    assert run.plot(axes) is axes
    with pytest.raises(tw.InputError, match="`axes` must be 1 of matplotlib's axes, got the text"):
        run.plot("here")


def test_a_flow_is_drawn_with_its_error(flow):
    upper, lower = flow.plot()
    np.testing.assert_array_equal(upper.lines[0].get_ydata(), flow.loss)
    known = flow.error > 0
    np.testing.assert_array_equal(lower.lines[0].get_ydata(), flow.error[known])


def test_a_comparison_holds_the_distance_and_is_drawn(run, flow):
    """Oracle: `distance`, which it is made of."""
    both = tw.compare(run, flow)
    np.testing.assert_array_equal(both.distance, tw.distance(run, both.flow))
    assert both.error.shape == run.times.shape
    upper, lower = both.plot()
    assert "flow" in curves(upper)
    np.testing.assert_array_equal(lower.lines[0].get_ydata(), both.distance[0, 1:])
    short = tw.descend(
        OBJECTIVE, PARAMS, learning_rate=0.1, steps=2, observe=tw.dynamics.nothing
    )  # fmt: skip
    with pytest.raises(tw.InputError, match="`run` must have kept its weights to be compared"):
        tw.compare(short, flow)


def test_a_probe_is_drawn_with_the_edge(probe):
    loss, high, low = probe.plot()
    np.testing.assert_array_equal(loss.lines[0].get_ydata(), probe.named()["loss"])
    np.testing.assert_allclose(curves(high)[r"edge, 2/$\eta$"][1], 2 / 0.3)
    assert low.get_xlabel() == "step"


def test_a_probe_of_a_loop_with_momentum_has_its_edge(run):
    """Oracle: 2 (1 + beta) / rate for the heavy ball, by the roots of its recursion."""
    probe = tw.Probe(OBJECTIVE, every=1, learning_rate=0.3, optimiser=tw.optimisers.HeavyBall(0.9))
    for place in (0, 1):
        probe(jax.tree.map(lambda array, at=place: array[0, at], run.weights))
    _, high, _ = probe.plot()
    np.testing.assert_allclose(curves(high)[r"edge, 3.8/$\eta$"][1], 3.8 / 0.3)
    assert "3.8 / learning rate" in probe._repr_html_()


def test_notebooks_show_a_table_and_a_picture(run, flow, probe):
    for each in (run, flow, tw.compare(run, flow), probe):
        shown = each._repr_html_()
        assert shown.count("<table>") == 1
        assert shown.count("<img ") == 1
        assert len(re.sub('src="[^"]*"', "", shown)) < 2000  # no more than this
    assert "0.1 to 0.3" in run._repr_html_()
    assert f"{probe.records[-1].sharpness:.5g}" in probe._repr_html_()


def test_certificates_show_their_tables():
    objective = tw.Objective(tw.LinearNetwork([2, 2, 1]), tw.TargetMatrix([[1.0, 0.0]]))
    found = tw.certify(objective, (np.eye(2), np.ones((1, 2))), learning_rate=0.1)
    shown = found._repr_html_()
    assert "What does not apply, and why" in shown
    assert "<td" in found.certificates[0]._repr_html_()
    assert found.certificates[0].reference in found.certificates[0]._repr_html_()


def test_the_report_of_a_run_of_any_objective(run, flow, tmp_path):
    """Oracles: the run, the distance and the spectrum along it."""
    page = tw.report(run, flow=flow, folder=tmp_path / "out", title="Mine").read_text("utf-8")
    assert "<h1>Mine</h1>" in page
    assert "40 weights, over 20 samples" in page
    assert "What is guaranteed" not in page  # which needs a network
    results = tw.open(tmp_path / "out")
    np.testing.assert_array_equal(results.loss, run.loss)
    expected = tw.distance(run, tw.compare(run, flow).flow)
    np.testing.assert_allclose(results.distance, expected, rtol=1e-3, atol=1e-5)  # of two flows
    ends = tw.curvature.spectrum_along(OBJECTIVE, run, tolerance=1e-4)
    np.testing.assert_allclose(results.sharpness, ends.largest, rtol=1e-4)
    assert json.loads(json.dumps(results.attrs["weights"])) == 40
    assert "[network]" not in (tmp_path / "out" / "experiment.toml").read_text()


def test_the_report_of_a_run_with_momentum_has_its_edge(tmp_path):
    """The line in the picture, the sentence below it and the table: all 3 / eta."""
    beta = tw.optimisers.HeavyBall(0.5)
    runs = tw.descend(
        OBJECTIVE, PARAMS, learning_rate=np.array([0.1, 0.2]), steps=20, optimiser=beta
    )
    tw.report(runs, folder=tmp_path / "out")
    results = tw.open(tmp_path / "out")
    np.testing.assert_allclose(results.edge, 3 / results.learning_rate)
    assert "3/η" in captions(results)["sharpness"]
    assert "3 / rate" in table(results)[0]
    figure = picture(results, draw_sharpness)
    dashed = [each for each in figure.axes[0].lines if each.get_linestyle() == "--"]
    lines = [each.get_ydata()[0] for each in dashed if len(each.get_ydata())]
    np.testing.assert_allclose(sorted(lines), [15.0, 30.0])


def test_the_report_of_a_network_has_what_networks_have(tmp_path):
    objective = tw.Objective(tw.LinearNetwork([2, 2, 1]), tw.TargetMatrix([[1.0, 0.0]]))
    weights = (np.eye(2), np.ones((1, 2)) / 2)
    run = tw.descend(objective, weights, learning_rate=0.1, steps=20)
    page = tw.report(run, folder=tmp_path).read_text("utf-8")
    assert "What is guaranteed" in page
    assert "No flow was given." in page


def test_what_cannot_be_reported_is_refused(run, tmp_path):
    other = tw.descend(OBJECTIVE, PARAMS, learning_rate=[0.1, 0.1], steps=2)
    with pytest.raises(tw.InputError, match="`run` must have different learning rates"):
        tw.report(other, folder=tmp_path)
    bare = tw.descend(OBJECTIVE, PARAMS, learning_rate=0.1, steps=2, observe=tw.dynamics.nothing)
    with pytest.raises(tw.InputError, match="`run` must have kept its weights to be measured"):
        tw.report(bare, folder=tmp_path)
    with pytest.raises(tw.InputError, match=r"`run` must be of one start, .*batch of shape \(1, 2"):
        tw.report(
            tw.descend(OBJECTIVE, PARAMS, learning_rate=[[0.1, 0.2]], steps=2), folder=tmp_path
        )


class StopError(Exception):
    """What ends a loop."""


def loop_that_fails(probe):
    with probe:
        for step in range(10):
            if step == 5:
                raise StopError
            probe(PARAMS)


def test_a_loop_that_fails_leaves_a_report(tmp_path):
    probe = tw.Probe(OBJECTIVE, every=2, learning_rate=0.5, folder=tmp_path / "probe")
    with pytest.raises(StopError):
        loop_that_fails(probe)
    page = (tmp_path / "probe" / "report.html").read_text("utf-8")
    assert "Measured 3 times, at every 2 steps up to step 4" in page
    rows = (tmp_path / "probe" / "probe.csv").read_text().splitlines()
    assert len(rows) == 4
    assert float(rows[1].split(",")[3]) == probe.records[0].sharpness
    assert probe.report(tmp_path / "again").exists()
    with pytest.raises(tw.InputError, match="`folder` must say where the report goes"):
        tw.Probe(OBJECTIVE).report()


def test_what_ended_a_loop_is_not_hidden_by_a_folder_that_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    probe = tw.Probe(OBJECTIVE, folder=tmp_path / "file")
    with (
        pytest.warns(UserWarning, match="must go to a folder that can be written to"),
        pytest.raises(StopError),
    ):
        loop_that_fails(probe)
