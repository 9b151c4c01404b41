"""No command writes over what another one has left; the same command shows it again."""

import sys
import time

import pytest

from thalweg import cli, experiment, reports
from thalweg.experiment import folders, performance
from thalweg.storage.files import only_writer

FILE = """
title = "tiny"
data = {source = "target", matrix = [[0.8, -0.6]]}
network = {depth = 2, width = 2}
start = {kind = "aligned", norm = 0.2, cosine = 0.6}
training = {learning_rate = 0.1, steps = 12, records = 12}
flow = {enabled = false, tube = "off"}
curvature = {enabled = false}
certificates = {enabled = false}
"""


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


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to be in, with an experiment; drawing takes longest and is looked at elsewhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(FILE)

    def draw(_, folder):
        (folder / "report.html").write_text(reports.writing._sealed("drawn"))
        return folder / "report.html"

    monkeypatch.setattr(reports, "draw", draw)
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def never(monkeypatch):
    """Nothing may be computed."""

    def fail(*_, **__):
        raise AssertionError("this was done already")

    return lambda: monkeypatch.setattr(experiment, "perform", fail)


def test_a_second_experiment_takes_a_folder_of_its_own(thalweg, place):
    assert thalweg("run", "tiny.toml")[0] == 0
    before = contents(place / "thalweg-run")
    code, printed, said = thalweg("run", "tiny.toml", "--set", "start.cosine=0.5")
    assert code == 0
    assert "Report: thalweg-run-2/report.html" in printed
    assert "in which `start.cosine` is 0.6 instead of 0.5; this run goes to thalweg-run-2" in said
    assert contents(place / "thalweg-run") == before
    code, printed, said = thalweg("run", "tiny.toml", "--set", 'title="other"')
    assert "`title` is 'tiny' instead of 'other'; this run goes to thalweg-run-3" in said
    # Each of them is found again.
    for number, change in (("-2", "start.cosine=0.5"), ("", "start.cosine=0.6")):
        code, printed, said = thalweg("run", "tiny.toml", "--set", change)
        assert f"Report: thalweg-run{number}/report.html" in printed
        assert "shown, not repeated" in said


def test_an_identical_run_is_shown(thalweg, place, never):
    first = thalweg("run", "tiny.toml", "--out", "here")
    before = contents(place / "here")
    never()
    again = thalweg("run", "tiny.toml", "--out", "here")
    assert again[:2] == first[:2]
    assert "here holds this very run: shown, not repeated; `--fresh` runs it again" in again[2]
    assert contents(place / "here") == before
    # What was lost of the report is drawn from the data.
    (place / "here" / "report.html").unlink()
    assert thalweg("run", "tiny.toml", "--out", "here")[0] == 0
    assert (place / "here" / "report.html").exists()


def test_the_store_of_a_run_is_no_folder_for_another(thalweg, place):
    """Files that do not belong there would make all of it unreadable."""
    assert thalweg("run", "tiny.toml", "--out", "here")[0] == 0
    store = place / "here" / "results.zarr"
    code, _, said = thalweg("run", "tiny.toml", "--out", store, "--fresh")
    assert code == 2
    assert "must be the folder that a run is in" in " ".join(said.split())
    assert thalweg("show", "here")[0] == 0


def test_another_experiment_is_refused_where_it_was_named_and_replaced_if_fresh(thalweg, place):
    assert thalweg("run", "tiny.toml", "--out", "here")[0] == 0
    before = contents(place / "here")
    other = ("run", "tiny.toml", "--out", "here", "--set", "training.steps=13")
    code, _, said = thalweg(*other)
    assert code == 2
    assert "in which `training.steps` is 12 instead of 13" in said
    assert "`--fresh`" in said
    assert contents(place / "here") == before
    (place / "here" / "mine.txt").write_text("kept")
    assert thalweg(*other, "--fresh")[0] == 0
    assert experiment.read(place / "here" / "experiment.toml").training.steps == 13
    assert (place / "here" / "mine.txt").read_text() == "kept"


def test_other_versions_and_other_data_are_other_runs(thalweg, place, monkeypatch):
    table = place / "table.csv"
    table.write_text("a,b\n1,2\n2,3\n3,5\n")
    data = 'data = {source = "csv", path = "table.csv", target = "b"}'
    text = FILE.replace('data = {source = "target", matrix = [[0.8, -0.6]]}', data)
    (place / "tiny.toml").write_text(
        text.replace('"aligned", norm = 0.2, cosine = 0.6', '"gaussian"')
    )
    command = ("run", "tiny.toml", "--out", "here")
    assert thalweg(*command)[0] == 0
    assert "shown" in thalweg(*command)[2]
    table.write_text("a,b\n1,2\n2,3\n3,6\n")
    code, _, said = thalweg(*command)
    assert code == 2
    assert "holds another experiment, on other data" in said
    table.write_text("a,b\n1,2\n2,3\n3,5\n")
    monkeypatch.setattr("thalweg.experiment.performance.__version__", "9.9")
    monkeypatch.setattr(folders, "__version__", "9.9")
    code, _, said = thalweg(*command)
    assert code == 2
    assert "holds this experiment as done by thalweg" in said


class Interrupted(Exception):
    pass


def test_an_unfinished_run_is_not_disturbed_and_is_resumed(thalweg, place, monkeypatch):
    def stop(*_):
        raise Interrupted

    settings = experiment.from_toml(FILE)
    with monkeypatch.context() as patch:
        patch.setattr(performance.quantities, "along", stop)
        with pytest.raises(Interrupted):
            experiment.perform(settings, kept_in=place / "thalweg-run")
    kept = contents(place / "thalweg-run")
    assert kept
    other = ("run", "tiny.toml", "--set", "start.cosine=0.5")
    code, _, said = thalweg(*other, "--out", "thalweg-run")
    assert code == 2
    assert "an unfinished run of another experiment, in which `start.cosine` is 0.6" in said
    assert "goes to thalweg-run-2" in thalweg(*other)[2]
    assert contents(place / "thalweg-run") == kept
    # The same one goes on: its descent is not done again.
    monkeypatch.setattr(performance, "descent_arrays", stop)
    code, printed, _ = thalweg("run", "tiny.toml")
    assert code == 0
    assert "Report: thalweg-run/report.html" in printed
    assert not (place / "thalweg-run" / folders.PARTS).exists()


def test_files_of_ones_own_are_not_replaced(thalweg, place):
    """The experiment's own file, with its comments, would be the first victim."""
    (place / "experiment.toml").write_text(FILE)
    code, _, said = thalweg("run", "experiment.toml", "--out", ".")
    assert code == 2
    assert "holds a file experiment.toml that is not of a run" in said
    assert thalweg("run", "experiment.toml", "--out", ".", "--fresh")[0] == 2
    assert (place / "experiment.toml").read_text() == FILE


@pytest.mark.parametrize("change", ["training.steps=13", "training.steps=12"])
def test_a_run_stays_until_the_one_that_replaces_it_is_finished(
    thalweg, place, monkeypatch, change
):
    """Another experiment, or the same one anew: both go on without `--fresh`."""
    assert thalweg("run", "tiny.toml", "--out", "here")[0] == 0
    before = contents(place / "here")
    command, computed = ("run", "tiny.toml", "--out", "here", "--set", change), []

    def stop(*_):
        raise Interrupted

    def descend(*arguments):
        computed.append(arguments)
        return descent_arrays(*arguments)

    descent_arrays = performance.descent_arrays
    monkeypatch.setattr(performance, "descent_arrays", descend)
    with monkeypatch.context() as patch:
        patch.setattr(performance.quantities, "along", stop)
        patch.setattr(sys, "argv", ["thalweg", *command, "--fresh"])
        with pytest.raises(Interrupted):
            cli.main()
    assert len(computed) == 1
    kept = contents(place / "here")
    assert before.items() <= kept.items()
    assert all(folders.PARTS in path.parts for path in kept.keys() - before.keys())
    if change != "training.steps=12":  # looking at the old one takes nothing from the new one
        assert "shown, not repeated" in thalweg("run", "tiny.toml", "--out", "here")[2]
    assert contents(place / "here") == kept
    assert thalweg(*command)[0] == 0
    assert len(computed) == 1  # the parts were used
    steps = experiment.read(place / "here" / "experiment.toml").training.steps
    assert steps == int(change[-2:])
    assert not (place / "here" / folders.PARTS).exists()
    assert "shown, not repeated" in thalweg(*command)[2]


def test_a_damaged_run_can_be_replaced(thalweg, place):
    command = ("run", "tiny.toml", "--out", "here")
    assert thalweg(*command)[0] == 0
    for name in (".zattrs", ".zmetadata"):
        (place / "here" / "results.zarr" / name).write_text("{}")
    assert thalweg(*command)[0] == 2
    assert thalweg(*command, "--fresh")[0] == 0
    assert "shown, not repeated" in thalweg(*command)[2]


def test_all_pictures_of_a_report_are_known(tmp_path):
    from thalweg.figures.overview import _drawn

    settings = experiment.changed(
        experiment.from_toml(FILE), {"curvature.enabled": True, "flow.tube": "auto"}
    )
    assert {*_drawn(experiment.perform(settings)), "overview"} <= set(folders.pictures())


SWEEP = FILE + '[[sweep]]\n"start.cosine" = [0.1, 0.2]\n'


def test_sweeps_keep_apart_too(thalweg, place):
    (place / "sweep.toml").write_text(SWEEP)
    assert thalweg("sweep", "sweep.toml")[0] == 0
    before = contents(place / "thalweg-sweep")
    code, printed, said = thalweg("sweep", "sweep.toml", "--set", "training.steps=20")
    assert code == 0
    assert "thalweg-sweep holds a sweep of another experiment; this sweep goes to" in said
    assert "Results: thalweg-sweep-2" in printed
    assert contents(place / "thalweg-sweep") == before
    assert "shown, not repeated" in thalweg("sweep", "sweep.toml")[2]
    code, _, said = thalweg(
        "sweep", "sweep.toml", "--set", "training.steps=30", "--out", "thalweg-sweep"
    )
    assert code == 2
    assert "`--fresh`" in said


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_folder_at_work_is_refused_before_anything_is_built(thalweg, place, monkeypatch, command):
    def late(*_):
        raise AssertionError("too late")

    (place / "sweep.toml").write_text(SWEEP)
    monkeypatch.setattr(experiment, "prepared", late)
    monkeypatch.setattr("thalweg.sweeps.prepared", late)
    with only_writer(place / "busy"):
        code, _, said = thalweg(command, "sweep.toml", "--out", "busy")
    assert code == 2
    assert "Only one command at a time may write to busy" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["critical", "--starts", "0"], "`--starts` must be a whole number from 1"),
        (["critical", "--steps", "0"], "`--steps` must be a whole number from 1"),
        (["critical", "--precision", "0"], "`--precision` must be a finite number >= 1e-09, got 0"),
        (["critical", "--precision", "nan"], "`--precision` must be a finite number"),
        (["critical", "--share", "2"], "`--share` must be a finite number above 0 and below 1"),
        (["critical", "--depths", "2,x"], "`--depths` must be whole numbers"),
        (["critical", "--out", "taken.png"], "taken.png must not be there yet; `--force`"),
        (["critical", "--out", "none/new.png"], "there is no folder none"),
        (["critical", "--out", "new.xyz"], "must be a picture, with a name that ends in .png"),
        (["prove", "--out", "taken.png"], "taken.png must not be there yet; `--force`"),
        (["prove", "--learning-rate", "-1"], "`--learning-rate` must be a finite number above 0"),
        (["prove", "--start-distance", "nan"], "`--start-distance` must be a finite number >= 0"),
        (["certify", "--target-loss", "inf"], "`--target-loss` must be a finite number, got inf"),
    ],
)
def test_options_are_checked_before_anything_is_read(
    thalweg, place, monkeypatch, arguments, sentence
):
    def late(*_):
        raise AssertionError("too late")

    for module in ("critical", "proving", "stating"):
        monkeypatch.setattr(f"thalweg.cli.{module}.read_experiment", late)
    (place / "taken.png").write_text("mine")
    began = time.process_time()
    code, _, said = thalweg(*arguments)
    assert code == 2
    assert sentence in said
    assert time.process_time() - began < 2
    assert (place / "taken.png").read_text() == "mine"
