"""What the page is sent beyond descent: the flow, what is proven, the slice, the phase diagram."""

import json

import jax
import numpy as np
import pytest

import thalweg as tw
from thalweg import experiment
from thalweg.explorer.computation import Computation
from thalweg.explorer.frames import frames_in
from thalweg.explorer.parts import PARTS
from thalweg.explorer.parts.mapping import COLUMNS, ROWS, RUNS
from thalweg.explorer.parts.slicing import rows
from thalweg.phases import classify

SETTING = {
    "network": {"depth": 3, "width": 4},
    "training": {"learning_rate": [0.05, 0.2], "time": 8.0, "records": 60},
    "flow": {"tube": "off"},
}


@pytest.fixture(scope="module")
def settings():
    return experiment.from_values(SETTING)


@pytest.fixture(scope="module")
def results(settings):
    """What `thalweg run` finds."""
    return experiment.perform(settings)


@pytest.fixture(scope="module")
def found(settings):
    """All frames, by part, in the order in which they come."""
    known, frames = Computation(settings), {}
    for part in PARTS.values():
        for header, arrays in frames_in(b"".join(part(known))):
            frames.setdefault(header["part"], []).append(header | arrays)
    return known, frames


def test_the_first_flow_is_that_of_an_independent_solver(settings, found):
    """Oracle: `tw.flow`, whose steps are diffrax's, at a hundredth of the tolerance."""
    known, frames = found
    first, run = frames["flow"][0], known.runs[0]
    assert first["solver"] == "dop853"
    objective = experiment.objective(settings)
    exact = tw.flow(objective, known.weights, times=first["time"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(first["loss"], exact.loss, rtol=1e-6)
    distances = tw.distance(run, exact.at(run.times))
    # The error is an estimate: ten of them, and the tolerance of a step.
    off = np.abs(first["distance"][0][: run.times.size] - distances)
    assert np.max(off) < 10 * np.max(first["error"]) + 1e-8
    assert np.max(first["error"]) < 1e-6


def test_what_is_proven_is_what_a_run_proves(found, results):
    """To the last bit: the flow, distances, and both ends of the band."""
    _, frames = found
    last, band = frames["flow"][-1], frames["proof"][-1]
    assert last["solver"] == "validated"
    np.testing.assert_array_equal(last["time"], results.flow_time)
    np.testing.assert_array_equal(last["loss"], results.flow_loss)
    np.testing.assert_array_equal(last["distance"], results.distance)
    np.testing.assert_array_equal(band["lower"], results.distance_lower)
    np.testing.assert_array_equal(band["upper"], results.distance_upper)
    assert np.nanmax(band["upper"] - band["lower"]) < 1e-6


def test_certificates_and_words_are_those_of_the_report(found, results):
    from thalweg.reports import findings

    _, frames = found
    first, last = frames["certificates"][0], frames["certificates"][-1]
    assert not first["followed"]
    assert last["followed"]
    wanted = json.loads(results.attrs["certificates"])
    for name in ("applying", "checked", "violated", "learning_rate"):
        assert last[name] == wanted[name], name
    assert [each["question"] for each in last["answers"]] == [
        each["question"] for each in wanted["answers"]
    ]
    bounds = [row["bound"] for each in last["answers"] for row in each["rows"]]
    assert bounds == [row["bound"] for each in wanted["answers"] for row in each["rows"]]
    assert len(last["statements"]) == last["checked"]
    assert sum(each["applies"] for each in last["statements"]) == last["applying"]
    for each in last["statements"]:
        assert each["margin"] is None or -1 <= each["margin"] <= 1
        assert each["applies"] or each["assumption"], each
    assert findings(results) == frames["words"][-1]["sentences"]


def test_the_slice_shows_the_loss_on_the_plane_through_three_points(settings, found):
    """Oracle: the objective at points of the plane that are spanned anew from the three points."""
    known, frames = found
    (shown,) = frames["slice"]
    objective = experiment.objective(settings)
    flow, run = rows(known.flow.weights), rows(known.runs[0].weights)
    assert shown["names"] == ["start", "end of the flow", "end of descent"] or shown["names"] == [
        "start", "end of both", "farthest from the line",
    ]  # fmt: skip
    third = run[-1] if shown["names"][2] == "end of descent" else None
    if third is None:
        way = (flow[-1] - flow[0]) / np.linalg.norm(flow[-1] - flow[0])
        off = (flow - flow[0]) - np.outer((flow - flow[0]) @ way, way)
        third = flow[np.argmax(np.linalg.norm(off, axis=1))]
    corners = np.stack([flow[0], flow[-1], third])
    basis = np.linalg.qr((corners[1:] - corners[0]).T)[0]
    spread = np.linalg.norm((shown["points"] - shown["points"][0])[:, None, :], axis=-1)
    wanted = np.linalg.norm((corners - corners[0]) @ basis, axis=1)[:, None]
    np.testing.assert_allclose(spread, wanted, rtol=1e-7, atol=1e-12)
    # Coordinates of the page, brought back into weight space by the three points alone.
    map_back = np.linalg.solve(shown["points"][1:], corners[1:] - corners[0])
    for row, column in ((0, 0), (10, 40), (55, 3), (30, 30)):
        place = np.array([shown["x"][column], shown["y"][row]])
        weights = _layers(corners[0] + place @ map_back, known.weights)
        assert shown["loss"][row, column] == pytest.approx(float(objective(weights)), rel=1e-6)
    assert shown["flow"].shape == (known.flow.times.size, 2)
    off = np.linalg.norm(run - (corners[0] + shown["descent"][0][: len(run)] @ map_back), axis=1)
    np.testing.assert_allclose(shown["descent_off"][0][: len(run)], off, rtol=1e-5, atol=1e-9)


def _layers(point, like):
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = zip(np.split(point, ends), leaves, strict=True)
    return structure.unflatten([np.reshape(part, leaf.shape) for part, leaf in parts])


def test_cells_of_the_diagram_are_the_outcomes_of_their_runs(settings, found):
    """Oracle: descent from each start by itself, with the sharpness at every record."""
    _, frames = found
    (head,), (theory,) = frames["phase"], frames["phase_boundaries"]
    tiles = {tile["columns"][0]: tile for tile in frames["phase_tile"]}
    assert sorted(tiles) == list(range(COLUMNS))
    assert frames["phase_tile"][-1]["done"] == 1
    assert head["rates"].shape == (COLUMNS,)
    assert head["scales"].shape == (ROWS,)
    objective = experiment.objective(settings)
    minimum = frames["descent"][0]["minimum"]
    for column, row, run in (
        (0, 9, 0),
        (17, 20, 3),
        (39, 29, 1),
        (25, 4, 2),
        (26, 14, 0),
        (22, 16, 1),
    ):
        rate, scale = float(head["rates"][column]), float(head["scales"][row])
        start = {"start": {"scale": scale, "seed": run}, "training": {"learning_rate": [rate]}}
        one = experiment.from_values(_merged(SETTING, start))
        weights = experiment.start(one, objective)
        training = one.training
        descent = tw.descend(
            objective, weights, learning_rate=rate, steps=training.steps_at(rate),
            record_every=training.record_every(rate),
        )  # fmt: skip
        sharpness = np.full(descent.loss.shape, np.nan)
        if not descent.diverged:
            sharpness = tw.curvature.spectrum_along(objective, descent).largest
        wanted = classify(descent.loss, minimum, rate, sharpness, int(descent.diverged_at))
        assert tiles[column]["phase"].reshape(ROWS, RUNS)[row, run] == int(wanted), (column, row)
    lines = {line["name"]: theory[line["array"]] for line in theory["lines"]}
    least = tw.curvature.least_sharpness(objective).sharpness
    np.testing.assert_allclose(lines["least"], 2 / float(least), rtol=1e-12)


def _merged(a, b):
    return {name: {**a.get(name, {}), **b.get(name, {})} for name in a | b}


def test_a_diagram_that_a_page_has_is_not_computed_again(page):
    first = page.compute(SETTING, "descent", "sharpness", "phase")
    key = first["phase"]["key"]
    moved = _merged(SETTING, {"start": {"scale": 0.21}, "training": {"learning_rate": [0.11]}})
    again = page.compute(moved, "descent", "sharpness", "phase", phase={"have": key})
    assert again["phase"]["same"]
    assert "phase_tile" not in again
    deeper = _merged(SETTING, {"network": {"depth": 4}})
    other = page.compute(deeper, "descent", "sharpness", "phase", phase={"have": key})
    assert other["phase"]["key"] != key
    assert other["phase_tile"]["done"] == 1


@pytest.mark.parametrize(
    ("setting", "part", "sentence"),
    [
        ({"start": {"kind": "identity"}, "data": {"source": "target", "matrix": [[1, 0], [0, 1]]},
          "network": {"depth": 2}}, "phase", "over the scale of the start"),
        ({"network": {"kind": "homogeneous", "depth": 2}, "flow": {"enabled": False}}, "phase",
         "small linear networks"),
        ({"flow": {"enabled": False}}, "flow", "not asked for"),
        ({"flow": {"enabled": False}}, "slice", "end of the flow"),
        ({"flow": {"validated": False}}, "proof", "No proof was asked for"),
        ({"certificates": {"enabled": False}}, "certificates", "not asked for"),
        ({"start": {"scale": 0.0}}, "slice", "stays where it starts"),
        ({"training": {"steps": 30, "learning_rate": [0.05]}}, "phase", "training.time"),
    ],
)  # fmt: skip
def test_what_does_not_apply_is_said_in_its_place(page, setting, part, sentence):
    quick = {"network": {"depth": 2}, "training": {"learning_rate": [0.05], "time": 2.0}}
    if "steps" in setting.get("training", {}):
        quick["training"] = {}
    found = page.compute(_merged(quick, setting), "descent", "flow", part)
    assert found[part]["state"] == "refused"
    assert sentence in found[part]["reason"]
    assert found["descent"]["state"] == "ok"


def test_depth_and_width_compile_nothing(page, caplog):
    """Of linear networks everything but the comparison at the end is known to the kernels."""
    wanted = ("descent", "sharpness", "flow", "layers", "words", "slice", "phase", "certificates")
    training = {"learning_rate": [0.1], "time": 4.0}
    page.compute({"training": training}, *wanted)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for depth, width in ((2, 1), (3, 7), (6, 10), (11, 3)):
            network = {"depth": depth, "width": width}
            found = page.compute({"network": network, "training": training}, *wanted)
            assert found["certificates"]["checked"] > 30
    assert [each for each in caplog.messages if "Finished XLA compilation" in each] == []


def test_what_is_there_at_once_does_not_wait_for_a_flow_that_is_compiled(page):
    network = {"kind": "homogeneous", "depth": 2, "width": 2}
    setting = {"network": network, "training": {"learning_rate": [0.05], "time": 1.0}}
    answer = page.request(setting, "descent", "flow", "layers", "words")
    assert answer.status == 200
    order = [header["part"] for header, _ in frames_in(answer.body)]
    assert order == ["descent", "layers", "words", "flow", "end"]
    linear = page.request({"training": {"time": 1.0}}, "descent", "flow", "layers", "words")
    order = [header["part"] for header, _ in frames_in(linear.body)]
    assert order == ["descent", "flow", "layers", "words", "end"]
