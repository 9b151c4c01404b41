"""A whole run: what is measured, the folder it leaves, going on when interrupted, reading back.

All tests share one experiment, whose three runs converge, converge and diverge.
"""

import json
import re
import shutil
import sys
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import thalweg as tw
from legends import legend_faults
from thalweg import cli, experiment, reports, storage
from thalweg.experiment import folders, performance, trajectories
from thalweg.figures.overview import overview, pictures
from thalweg.figures.spectrum import draw_smallest_eigenvalue
from thalweg.phases import TOO_FEW_RECORDS, Phase
from thalweg.reports import beside, wording
from thalweg.reports.writing import picture_in
from thalweg.storage import FORMAT

FILE = """
title = "Three <runs>"
data = {source = "target", matrix = [[0.8, -0.6]]}
network = {depth = 2, width = 2}
start = {kind = "aligned", norm = 0.2, cosine = 0.6}
training = {learning_rate = [0.02, 0.1, 2.5], time = 30.0, records = 50}
"""
PICTURES = (
    "loss",
    "distance",
    "sharpness",
    "smallest_eigenvalue",
    "unbalancedness",
    "alignment",
    "overview",
)


@pytest.fixture(scope="module")
def settings():
    return experiment.from_toml(FILE)


@pytest.fixture(scope="module")
def performed(settings):
    """What a run has found, and what of it was known before theorems were checked."""
    early = []
    return experiment.perform(settings, measured=early.append), *early


@pytest.fixture(scope="module")
def results(performed):
    return performed[0]


@pytest.fixture(scope="module")
def by_tubes(settings):
    """The same, where each run proves its own distance."""
    less = {"curvature.enabled": False, "certificates.enabled": False, "flow.validated": False}
    changed = experiment.changed(settings, less)
    return changed, experiment.perform(changed)


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    reports.write(results, folder)
    return folder


@pytest.fixture(scope="module")
def built(settings):
    objective = experiment.objective(settings)
    return objective, experiment.start(settings, objective)


@pytest.fixture
def thalweg(monkeypatch, capsys):
    """Run a command; its exit code, and what it printed on both streams."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["thalweg", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return stop.value.code or 0, printed.out, printed.err

    return call


def run_at(results, rate):
    """One run, without the room that others need for more records."""
    run = results.sel(learning_rate=rate)
    return run.isel(record=run.step.notnull().values)


def descent_by_hand(rate, steps, start):
    """Plain NumPy: the gradients of 1/2 |W_2 W_1 - target|^2."""
    first, second = (np.array(layer) for layer in start)
    points = [(first, second)]
    for _ in range(steps):
        error = second @ first - np.array([[0.8, -0.6]])
        first, second = first - rate * second.T @ error, second - rate * error @ first.T
        points.append((first, second))
    return points


def test_what_is_recorded_is_what_plain_arithmetic_gives(results, built):
    run = run_at(results, 0.1)
    points = descent_by_hand(0.1, 300, built[1])
    records = run.step.values.astype(int)
    assert records[0] == 0
    assert records[-1] == 300
    assert records.size <= 51
    losses = [np.sum((b @ a - [[0.8, -0.6]]) ** 2) / 2 for a, b in points]
    # 300 steps of order one, rounded at each.
    np.testing.assert_allclose(run.loss, np.array(losses)[records], rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(run.excess, np.array(losses)[records], rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(run.time, 0.1 * records)
    gaps = [b.T @ b - a @ a.T for a, b in points]
    nuclear = np.array([np.linalg.norm(gap, "nuc") for gap in gaps])
    np.testing.assert_allclose(run.unbalancedness, nuclear[records], atol=1e-13)


def test_both_ends_of_the_spectrum_are_the_dense_ones(results, built):
    objective, start = built
    points = descent_by_hand(0.1, 300, start)
    run = run_at(results, 0.1)
    flat, unflatten = jax.flatten_util.ravel_pytree(start)
    hessian = jax.jit(jax.hessian(lambda point: objective(unflatten(point))))
    for record in (0, 7, -1):
        point = points[int(run.step[record])]
        values = np.linalg.eigvalsh(hessian(jnp.concatenate([layer.ravel() for layer in point])))
        scale = np.abs(values).max()
        # The tolerance that was asked for is a millionth of the norm.
        np.testing.assert_allclose(run.sharpness[record], values[-1], atol=1e-6 * scale)
        np.testing.assert_allclose(run.smallest_eigenvalue[record], values[0], atol=1e-6 * scale)
    assert flat.size == results.attrs["weights"]


def test_distances_are_those_to_the_flow_and_lie_in_their_intervals(results, by_tubes, built):
    objective, start = built
    run = run_at(results, 0.1)
    points = descent_by_hand(0.1, 300, start)
    times = run.time.values[1::10]
    exact = tw.flow(objective, start, times=times, rtol=1e-10, atol=1e-12)
    for place, record in enumerate(range(1, run.time.size, 10)):
        here = points[int(run.step[record])]
        gap = np.sqrt(
            sum(np.sum((a[place] - b) ** 2) for a, b in zip(exact.weights, here, strict=True))
        )
        # Two flows with errors of about their tolerances.
        np.testing.assert_allclose(run.distance[record], gap, atol=1e-7)
    assert results.attrs["flow_solver"] == "validated"
    for found in (results, by_tubes[1]):
        slack = float(found.flow_error.max())
        for rate in (0.02, 0.1):
            run = run_at(found, rate)
            assert bool((run.distance <= run.distance_upper + slack).all())
            assert bool((run.distance >= run.distance_lower - slack).all())
            assert float(run.proven_until) > 0


def test_a_validated_flow_proves_every_distance_to_the_end(results, by_tubes):
    for rate in (0.02, 0.1):
        run = run_at(results, rate)
        assert float(run.proven_until) == float(run.time[-1])
        # The flow is proven to about 1e-12; the distance is off by it on either side.
        np.testing.assert_allclose(run.distance_upper, run.distance, rtol=0, atol=1e-10)
        np.testing.assert_allclose(run.distance_lower, run.distance, rtol=0, atol=1e-10)
        other = run_at(by_tubes[1], rate)
        doubt = 3 * float(by_tubes[1].flow_error.max())  # estimated, of another solver
        np.testing.assert_allclose(run.distance, other.distance, rtol=0, atol=doubt)
        # It has come to rest: what is left of the way is not seen in the distance.
        assert float(run.proven_forever) == pytest.approx(float(run.distance[-1]), abs=1e-6)
    lost = run_at(results, 2.5)  # it diverges, and nothing is known of what is not finite
    assert np.isinf(lost.distance_upper[-1])
    assert float(lost.proven_until) < float(lost.time[-1])


def test_a_run_that_diverges_says_when_and_disturbs_nobody(results):
    rows = reports.summary(results)
    assert [row["phase"] for row in rows] == [Phase.MONOTONE, Phase.MONOTONE, Phase.DIVERGED]
    assert rows[2]["diverged_at"] == int(results.diverged_at[2])
    assert 0 < rows[2]["diverged_at"] <= 12
    assert bool(run_at(results, 0.1).sharpness.notnull().all())


def test_theory_is_next_to_what_was_measured(results):
    # Of one output and depth 2 with white data: 2 scale L |w|^{2 - 2/L} = 2, |w| = 1.
    assert float(results.least_sharpness) == pytest.approx(2, rel=1e-6)
    assert float(run_at(results, 0.1).sharpness[-1]) >= 2 - 1e-6
    found = json.loads(results.attrs["certificates"])
    assert found["learning_rate"] == 0.02
    assert found["violated"] == []
    assert found["applying"] > 0
    questions = {each["question"]: each for each in found["answers"]}
    values = [
        float(row["bound"]) for row in questions["sharpness of the minimiser, at least"]["rows"]
    ]
    assert values == sorted(values, reverse=True)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("stage", ["spectrum", "quantities"])
def test_an_interrupted_run_goes_on_and_comes_to_the_same(
    settings, results, thalweg, tmp_path, monkeypatch, stage
):
    def stop(at, share):
        if (at, share) == (stage, 0.0):
            raise Interrupted

    with pytest.raises(Interrupted):
        experiment.perform(settings, progress=stop, kept_in=tmp_path / "out")
    kept = sorted(path.stem for path in (tmp_path / "out" / folders.PARTS).glob("*/*.npz"))
    assert {"descent-0", "descent-2", "flow-0"} <= set(kept)

    def never(*_, **__):
        raise AssertionError("this was done already")

    monkeypatch.setattr(performance, "descent_arrays", never)
    monkeypatch.setattr(performance, "flow_arrays", never)
    if stage == "quantities":
        monkeypatch.setattr(performance, "_spectrum_arrays", never)
    # Drawing takes longest, and is looked at elsewhere.
    monkeypatch.setattr(reports, "draw", lambda _, folder: folder / "report.html")
    (tmp_path / "experiment.toml").write_text(FILE)
    code, printed, _ = thalweg("run", tmp_path / "experiment.toml", "--out", tmp_path / "out")
    assert code == 0
    assert f"Report: {tmp_path / 'out' / 'report.html'}" in printed
    assert not (tmp_path / "out" / folders.PARTS).exists()
    again = xr.open_zarr(tmp_path / "out" / "results.zarr")
    xr.testing.assert_identical(again.drop_attrs().compute(), results.drop_attrs())
    assert again.attrs["certificates"] == results.attrs["certificates"]


def test_tubes_that_were_proven_are_not_proven_again(by_tubes, tmp_path, monkeypatch):
    settings, results = by_tubes

    def stop(at, share):
        if at == "spectrum":
            raise Interrupted

    with pytest.raises(Interrupted):
        experiment.perform(settings, progress=stop, kept_in=tmp_path)

    def never(*_, **__):
        raise AssertionError("this was done already")

    for name in ("descent_arrays", "flow_arrays", "_tube_arrays"):
        monkeypatch.setattr(performance, name, never)
    again = experiment.perform(settings, kept_in=tmp_path)
    xr.testing.assert_identical(again.drop_attrs(), results.drop_attrs())


def test_parts_of_another_experiment_are_not_taken(settings, tmp_path):
    def stop(at, share):
        if at == "flow":
            raise Interrupted

    other = experiment.changed(settings, {"start.cosine": 0.5})
    for each in (settings, other):
        with pytest.raises(Interrupted):
            experiment.perform(each, progress=stop, kept_in=tmp_path)
    assert len(list((tmp_path / folders.PARTS).iterdir())) == 2


def test_nothing_that_is_told_can_be_markup(results):
    """Every place of the page where words of the user's or of a statement stand."""
    bad = '"><script>`<b>`&'
    certificates = json.loads(results.attrs["certificates"])
    for answer in certificates["answers"]:
        answer["question"] = bad
        answer["rows"] = [dict.fromkeys(row, bad) for row in answer["rows"]]
    for rows in (certificates["compared"], certificates["refused"]):
        for row in rows:
            row |= {name: [bad] if name == "statements" else bad for name in row}
    said = {"title": bad, "experiment": bad, "machine": bad}
    hostile = results.assign_attrs({**said, "certificates": json.dumps(certificates)})
    text = reports.page(hostile, dict.fromkeys(("overview", "loss", "alignment"), b"png"))
    assert "<script" not in text
    assert "<b>" not in text
    assert text.count("&lt;script&gt;") > 10


def test_all_but_the_certificates_is_known_before_them(performed):
    results, early = performed
    assert not early.attrs["certificates"]
    xr.testing.assert_identical(
        early.drop_vars("greatest_sharpness").drop_attrs(deep=False),
        results.drop_vars("greatest_sharpness").drop_attrs(deep=False),
    )
    least = float(results.least_sharpness)
    known = results.assign(greatest_sharpness=results.greatest_sharpness.copy(data=2 * least))
    for name in PICTURES:
        drawn = [picture_in(("png",), each, name)["png"] for each in (early, known)]
        assert (drawn[0] != drawn[1]) == (name in folders.OF_CERTIFICATES), name


def _found_first(monkeypatch, folder, name, text):
    """A module that a fresh interpreter finds before those that this one has."""
    folder.mkdir()
    (folder / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize(
    "trouble",
    ["none", "another version", "it ended", "there is none", "it prints", "nothing pickles"],
)
def test_what_a_second_process_draws_is_the_same(
    written, performed, tmp_path, monkeypatch, trouble
):
    """To the byte, also what it draws before there are certificates; else the first one draws."""
    results, early = performed
    came = []
    drawn = beside.Beside.drawn
    monkeypatch.setattr(beside.Beside, "drawn", lambda self: came.append(drawn(self)) or came[0])
    monkeypatch.setattr(beside, "_cores", lambda: 1 if trouble == "there is none" else 2)
    if trouble == "another version":
        _found_first(monkeypatch, tmp_path / "path", "thalweg", "raise SystemExit(1)")
    if trouble == "it prints":
        _found_first(monkeypatch, tmp_path / "path", "sitecustomize", "print('welcome')")
    if trouble == "nothing pickles":
        monkeypatch.setattr(beside.pickle, "dumps", lambda _: {}[0])
    with beside.Beside() as second:
        if trouble == "it ended":
            second._process.kill()
        second.draw(early, but=folders.OF_CERTIFICATES)
        reports.write(results, tmp_path, second)
    well = trouble in ("none", "another version")
    assert [[*each] for each in came] == [[*PICTURES] if well else []]
    for name in ("report.html", *(f"{name}.png" for name in PICTURES)):
        assert (tmp_path / name).read_bytes() == (written / name).read_bytes(), name


def test_the_folder_holds_report_pictures_data_and_settings(settings, written):
    text = (written / "report.html").read_text("utf-8")
    for name in PICTURES:
        assert (written / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    # The overview shows loss, sharpness and distance, which are not shown again.
    assert text.count("data:image/png;base64,") == len(PICTURES) - 3
    # A file of its own: nothing is fetched, and nothing tells where it was made.
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "<h1>Three &lt;runs&gt;</h1>" in text
    assert not re.search(r"/(tmp|home|root|work)/", re.sub(r"base64,[^\"]*", "", text))
    below = re.findall(r"<figcaption>(.*?)</figcaption>", text, re.DOTALL)
    captions = [
        each for every in below for each in re.findall("<p[^>]*>(.*?)</p>", every) or [every]
    ]
    assert len(captions) == 1 + 6  # how to read the overview, and one for each panel and picture
    assert all(len(each) > 60 and each.endswith(".") and "nan" not in each for each in captions)
    assert "What does not apply, and why" in text
    assert experiment.read(written / "experiment.toml") == settings
    assert not list(written.glob("*.part*"))


def without_curves(results):
    """The results with a run and the flow whose weights were not looked at."""
    blank = results.copy()
    for name in ("distance", "unbalancedness", "sharpness"):
        blank[name] = blank[name].where(blank.learning_rate != 0.1)
    return blank.drop_vars([name for name in blank if "flow_time" in blank[name].dims])


@pytest.mark.parametrize("change", [lambda r: r, without_curves], ids=["all", "less"])
def test_legends_list_what_is_drawn(results, change):
    shown = change(results)
    for name, figure in {**pictures(shown), "overview": overview(shown)}.items():
        assert legend_faults(figure) == [], name
    plt.close("all")


def test_the_legend_of_the_distance_lists_the_bounds_and_not_the_flow(results, by_tubes):
    figure = pictures(results)["distance"]
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert "certified upper bound" not in labels
    assert re.search(r"certified to \$10\^{-1\d}\$", figure.axes[0].get_title("left"))
    figure = pictures(by_tubes[1])["distance"]
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"certified upper bound", "certified range"} <= labels
    assert "flow" not in labels
    plt.close("all")


def test_sentences_follow_the_data(results, by_tubes):
    from thalweg.reports.captions import captions

    told = captions(results)
    assert "diverge" in reports.findings(results)[0]
    assert "It rises on the way at η = 2.5." in told["loss"]
    assert "known to" not in told["distance"]
    rough = results.assign(flow_error=results.flow_error * 0 + 0.5)
    assert "the flow itself is known to about 0.5" in reports.findings(rough)[1]
    assert "the flow itself is known to about 0.5" in captions(rough)["distance"]
    blind = results.assign_attrs(
        certificates=results.attrs["certificates"].replace('"followed": true', '"followed": false')
    )
    assert reports.findings(results)[-1].endswith("; none is violated along this run.")
    assert "at the start alone" in reports.findings(blind)[-1]
    said = "the distance is certified to the end of the run, and to stay below"
    assert said in reports.findings(results)[1]
    assert "Each is certified up to" in captions(results)["distance"]
    tubes = by_tubes[1]
    assert "every measured distance lies in its band" in captions(tubes)["distance"]
    broken = tubes.assign(distance_upper=tubes.distance_upper / 1e3)
    assert "outside of them, which must not be" in captions(broken)["distance"]
    calm = results.sel(learning_rate=[0.02, 0.1])
    assert "It never rises." in captions(calm)["loss"]
    assert "stays below at every learning rate" in captions(calm)["sharpness"]


def test_show_says_it_again_and_draws_it_again(written, thalweg, tmp_path):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    code, printed, _ = thalweg("show", tmp_path)
    assert code == 0
    assert "Three <runs>" in printed
    assert "theorems apply at learning rate 0.02" in printed
    (tmp_path / "report.html").unlink()
    (tmp_path / "loss.png").unlink()
    code, printed, _ = thalweg("show", tmp_path / "results.zarr", "--figures", "--json")
    assert code == 0
    found = json.loads(printed)
    assert found["report"] == str(tmp_path / "report.html")
    assert [row["learning_rate"] for row in found["runs"]] == [0.02, 0.1, 2.5]
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "loss.png").exists()
    code, _, complaint = thalweg("show", tmp_path / "none")
    assert code == 2
    assert "does not exist" in complaint


def test_results_of_another_format_are_refused_by_name(written, thalweg, tmp_path):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    store = xr.open_zarr(tmp_path / "results.zarr").load()
    storage.write_results(store.assign_attrs(format=FORMAT + 1), tmp_path)
    code, _, complaint = thalweg("show", tmp_path)
    assert code == 2
    assert f"must have format {FORMAT}, got {FORMAT + 1}" in complaint


def test_a_run_with_few_records_is_not_judged(results):
    few = results.isel(learning_rate=[0])
    few = few.assign(phase=few.phase * 0 + TOO_FEW_RECORDS)
    assert reports.summary(few)[0]["phase"] is None
    assert reports.table(few)[0].get("phase", "-") == "-"
    assert "too few records" in reports.findings(few)[0]


@pytest.fixture(scope="module")
def across_kinks():
    """A network with kinks, of which its flow crosses some and slides along others."""
    settings = experiment.from_toml(
        """
        data = {source = "gaussian", samples = 8, features = 2}
        network = {kind = "homogeneous", hidden = [6]}
        start = {kind = "xavier_uniform", seed = 1}
        training = {learning_rate = [0.1, 0.2], time = 6.0, records = 12}
        flow = {rtol = 1e-3, tube = "off"}
        curvature = {enabled = false}
        certificates = {enabled = false}
        """
    )
    return settings, experiment.perform(settings)


def test_a_run_tells_which_kinks_its_flow_meets(across_kinks, tmp_path):
    """Oracle: the flow itself, followed at the same times."""
    settings, results = across_kinks
    objective = experiment.objective(settings)
    flow = tw.flow(
        objective,
        experiment.start(settings, objective),
        times=results.flow_time.values,
        rtol=1e-3,
    )
    assert flow.solver == results.attrs["flow_solver"] == "filippov"
    for name, values in flow.records.items():
        np.testing.assert_array_equal(results[f"flow_{name}"], values)
        assert results[f"flow_{name}"].attrs["long_name"]
    assert results.flow_crossings[-1] > 0
    assert results.flow_sliding.max() > 0
    found = reports.findings(results)
    most = int(flow.records["sliding"].max())
    said = f"The flow crosses {int(flow.records['crossings'][-1])} kinks and slides along up to "
    assert any(each.startswith(f"{said}{most} at a time") for each in found)
    reports.write(results, tmp_path)
    assert {"flow_crossings.png", "flow_sliding.png"} <= {each.name for each in tmp_path.iterdir()}
    for figure in pictures(results).values():
        assert not legend_faults(figure)
        plt.close(figure)


def test_a_run_tells_from_when_on_its_branch_is_uncertain(across_kinks):
    _, results = across_kinks
    sure = results.assign(
        flow_ridge_distance=results.flow_ridge_distance * np.nan + 1.0,
        branch_uncertain_from=np.nan,
    )
    assert not any("uncertain" in each for each in reports.findings(sure))
    near = sure.flow_ridge_distance.copy()
    near[5] = 2e-9
    unsure = sure.assign(flow_ridge_distance=near, branch_uncertain_from=near.flow_time.values[5])
    (said,) = (each for each in reports.findings(unsure) if "kinks" in each)
    assert f"From t = {float(near.flow_time[5]):.3g} on its branch is uncertain" in said
    assert "within 2.0e-9 of a repelling kink" in said
    figure = pictures(unsure)["flow_ridge_distance"]
    assert "branch uncertain" in figure.legends[0].get_texts()[-1].get_text()
    plt.close(figure)


def test_records_between_two_times_are_not_lost(across_kinks):
    """A ridge that was met between two times of a run is met at the second."""
    settings, results = across_kinks
    objective = experiment.objective(settings)
    start = experiment.start(settings, objective)
    times = results.flow_time.values
    flow = tw.flow(objective, start, times=times, rtol=1e-3)
    distances = np.arange(times.size, 0.0, -1)
    distances[3] = 1e-3
    given = dict(flow.records) | {"ridge_distance": distances}
    flow = eqx.tree_at(lambda each: each.records, flow, given)
    chosen = trajectories.flow_at(flow, times[[0, 2, 5, 6]])
    assert chosen.records["ridge_distance"].tolist() == [
        distances[0],
        distances[2],
        1e-3,
        distances[6],
    ]
    assert chosen.records["crossings"].tolist() == flow.records["crossings"][[0, 2, 5, 6]].tolist()


def test_a_relu_network_with_labels_has_no_minimum_and_says_what_is_missing(tmp_path):
    """No flow, no tube, no theory: the report still stands."""
    other = experiment.from_toml(
        """
        data = {source = "digits", samples = 12, only = [0, 1]}
        network = {kind = "homogeneous", hidden = [3]}
        start = {kind = "xavier_uniform"}
        training = {learning_rate = 0.5, steps = 20, records = 4}
        flow = {enabled = false, tube = "off"}
        curvature = {records = 2}
        certificates = {enabled = false}
        """
    )
    results = experiment.perform(other)
    assert bool(results.minimum.isnull())
    assert bool((results.excess == results.loss).all())
    assert "flow_time" not in results.coords
    assert int(results.sharpness.notnull().sum()) == 2
    assert 0 <= float(results.accuracy[0, -1]) <= 1
    objective = experiment.objective(other)
    norms = [float(jnp.sum(layer**2)) for layer in experiment.start(other, objective)]
    gap = max(abs(high - low) for low, high in pairwise(norms))
    assert float(results.norm_imbalance[0, 0]) == pytest.approx(gap)
    text = reports.write(results, tmp_path).read_text("utf-8")
    assert "The flow was not asked for" in text
    assert "<h2>What is guaranteed</h2>" not in text
    assert not (tmp_path / "distance.png").exists()
    # Nor a phase: there are too few records.
    assert set(reports.table(results)[0]) == {"rate", "loss", "accuracy", "2 / rate", "sharpness"}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234.0, "1234"), (2.5e-7, "2.50e-7"), (np.inf, "inf"), (np.nan, "nan")],
)
def test_numbers_in_sentences(value, text):
    assert wording.number(value) == text


def test_a_run_that_diverges_is_no_vertical_line():
    """It ends where it leaves the picture, even if it should come back."""
    by_run = ("learning_rate", "record")
    results = xr.Dataset(
        {
            "time": (by_run, [[0.0, 1.0, 2.0, 3.0]] * 2),
            "smallest_eigenvalue": (by_run, [[-0.1, 0.0, 0.1, 0.2], [-0.1, 0.05, -1e30, 0.1]]),
            "diverged_at": ("learning_rate", [-1, 2]),
        },
        coords={"learning_rate": [0.1, 0.5]},
    )
    axes = Figure().subplots()
    draw_smallest_eigenvalue(axes, results)
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn[r"$\eta$ = 0.1"] == [-0.1, 0.0, 0.1, 0.2]
    assert drawn[r"$\eta$ = 0.5"] == [-0.1, 0.05]
