"""Every file of every kind of results, damaged one at a time: noticed in one sentence, or harmless.

What `thalweg show` says of undamaged results is the truth that it is held against.
"""

import gc
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import thalweg as tw
from thalweg import cli, experiment, report, storage, studies
from thalweg._errors import InputError
from thalweg.experiment.pieces import FOLDER
from thalweg.quantities import QUANTITIES, described
from thalweg.storage import files
from thalweg.storage.files import only_writer
from thalweg.storage.sums import DamageError, require_whole
from thalweg.studies import AbstractStudy, Finding, Size, conduct
from thalweg.studies.parts import Parts
from thalweg.sweeps import sweep

RUN = experiment.from_toml(
    """
    title = "Two runs"
    data = {source = "target", matrix = [[0.8, -0.6]]}
    network = {depth = 2, width = 2}
    start = {kind = "aligned", norm = 0.2, cosine = 0.6}
    training = {learning_rate = [0.1, 2.5], time = 30.0, records = 10}
    flow = {tube = "off"}
    curvature = {enabled = false}
    certificates = {enabled = false}
    """
)
SWEEP = experiment.from_values(
    {
        "data": {"features": 2, "samples": 6},
        "network": {"depth": 2},
        "training": {"learning_rate": 0.1, "steps": 20},
        "sweeping": {"records": 9},
        "curvature": {"enabled": False},
        "sweep": [{"data.seed": [0, 1, 2], "start.seed": [0, 1]}],
    }
)


class Cubes(AbstractStudy):
    """A study that computes next to nothing."""

    name: ClassVar[str] = "cubes"
    title: ClassVar[str] = "cubes grow"
    protocol: ClassVar[str] = "Take cubes."
    comparison: ClassVar[str] = "As expected."

    @classmethod
    def of_size(cls, size: Size) -> "Cubes":
        return cls()

    def compute(self, parts: Parts, progress: Any) -> xr.Dataset:
        def cube(i: int) -> xr.Dataset:
            return xr.Dataset({"cube": ("i", [float(i**3)])}, {"i": [i]})

        rows = [parts.get(f"cube-{i}", lambda i=i: cube(i)) for i in range(3)]
        progress("cubes", 1.0)
        return xr.concat(rows, "i")

    def findings(self, results: xr.Dataset) -> list[Finding]:
        return [Finding("the last cube", float(results.cube[-1]), 8.0, 8.0)]

    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        figure, axes = plt.subplots()
        axes.plot(results.i, results.cube)
        return {"picture": figure}


class Stop(Exception):
    """In place of a kill."""


# --- one folder of each kind ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(studies.STUDIES, "cubes", "none:Cubes")
        patch.setattr(studies, "_load", lambda name: Cubes)
        yield patch


@pytest.fixture(scope="module")
def folders(tmp_path_factory, patched) -> dict[str, Path]:
    """By kind; those that are unfinished have all their parts but no results."""
    root = tmp_path_factory.mktemp("kinds")
    makers = {
        "run": _make_run,
        "unfinished run": _make_unfinished_run,
        "sweep": lambda folder: sweep(SWEEP, folder),
        "unfinished sweep": _make_unfinished_sweep,
        "study": lambda folder: conduct(Cubes, Size.QUICK, folder),
        "unfinished study": _make_unfinished_study,
    }
    for kind, make in makers.items():
        make(root / kind)
    places = {kind: root / kind for kind in makers}
    return places | {kind: places[kind] / "cubes-quick" for kind in makers if "study" in kind}


def _make_run(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, only_writer(folder):
        # Pictures take longest to draw, and nothing reads them.
        drawing = import_module("thalweg.figures.overview")
        patch.setattr(drawing, "pictures", lambda results: {})
        patch.setattr(drawing, "overview", lambda results: plt.figure())
        report.write(experiment.perform(RUN), folder)


def _make_unfinished_run(folder: Path) -> None:
    def stop(stage: str, share: float) -> None:
        if (stage, share) == ("balance", 1.0):
            raise Stop

    with only_writer(folder), pytest.raises(Stop):
        experiment.perform(RUN, progress=stop, kept_in=folder)


def _make_unfinished_sweep(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.blocks.BlockStore, "assemble", lambda store: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sweep(SWEEP, folder)


def _make_unfinished_study(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies.conducting, "write_results", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            conduct(Cubes, Size.QUICK, folder)


@pytest.fixture
def show(monkeypatch, capsys, patched):
    """Show a path; the exit code, and what is printed on both streams."""

    def call(path: Path, *options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["thalweg", "show", str(path), *options])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    return call


# --- damages -------------------------------------------------------------------------------------


def damages(content: bytes, flips: int) -> dict[str, bytes | None]:
    """What may happen to a file; None if it goes."""
    rng = np.random.default_rng(len(content))
    garbage = rng.bytes(max(len(content), 16))
    found: dict[str, bytes | None] = {"deleted": None, "garbage": garbage}
    if content:
        found["cut short"] = content[: len(content) // 2]
        for place in rng.integers(len(content), size=flips):
            flipped = bytearray(content)
            flipped[place] ^= 1 << int(rng.integers(8))
            found[f"byte {place} flipped"] = bytes(flipped)
    return found


def damaged(folder: Path, flips: int = 1) -> Iterator[tuple[Path, str]]:
    """The folder with one file damaged at a time: which, and how."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        for name, changed in damages(content, flips).items():
            path.unlink() if changed is None else path.write_bytes(changed)
            yield path, name
            path.write_bytes(content)


def refused(answer: tuple[int, str, str], folder: Path) -> bool:
    """Whether the answer is one sentence that names the folder, with code 2."""
    code, printed, complaint = answer
    told = complaint.startswith("error: ") and complaint.count("\n") == 1
    return code == 2 and told and not printed and str(folder) in complaint


@pytest.mark.parametrize("kind", ["sweep", "study"])
def test_every_damage_to_finished_results_is_noticed_or_harmless(folders, show, kind):
    folder, truth = folders[kind], show(folders[kind])
    assert truth[0] == 0
    noticed, harmless = set(), set()
    for path, how in damaged(folder):
        answer = show(folder)
        assert answer == truth or refused(answer, folder), (path, how, answer)
        (harmless if answer == truth else noticed).add(path)
    # What is shown is in the store, and all of that is noticed.
    store = {path for path in (folder / "results.zarr").rglob("*") if path.is_file()}
    assert noticed == store
    assert not harmless & store


def test_every_damage_to_a_run_is_noticed_or_harmless(folders, show):
    """The report is no part of the data; that it is damaged is said beside them."""
    folder, truth = folders["run"], show(folders["run"])
    assert truth[0] == 0
    assert f"Report: {folder / 'report.html'}\n" in truth[1]
    for path, how in damaged(folder):
        answer = show(folder)
        if path.name == "report.html":
            lines, other = truth[1].splitlines(), answer[1].splitlines()
            assert other[:-1] == lines[:-1], how
            assert other[-1].endswith("; `--figures` writes it again."), how
        elif folder / "results.zarr" in path.parents:
            assert refused(answer, folder), (path, how, answer)
        else:
            assert answer == truth, (path, how, answer)


def unfinished_parts(folder: Path) -> dict[Path, Path]:
    """The part that each file belongs to: itself, or the store that it lies in."""
    found = {}
    for path in (each for each in folder.rglob("*") if each.is_file()):
        stores = [parent for parent in path.parents if parent.suffix == ".zarr"]
        if stores or path.suffix in (".zip", ".npz"):
            found[path] = stores[0] if stores else path
    return found


COUNTS = {
    "unfinished run": ("6 pieces of it are done", "5 pieces of it are done"),
    "unfinished sweep": ("6 of 6 runs over", "4 of 6 runs over"),
    "unfinished study": ("3 parts of it are done", "2 parts of it are done"),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_every_damage_to_unfinished_work_is_said_and_not_counted(folders, show, kind):
    """A part that is gone is one that is not there yet; of any other damage the part is named."""
    folder, truth = folders[kind], show(folders[kind])
    before, after = COUNTS[kind]
    assert truth[0] == 0
    assert before in truth[1]
    assert "unfinished" in truth[1]
    assert "continues" in truth[1]
    parts = unfinished_parts(folder)
    assert len(set(parts.values())) >= 3
    for path, how in damaged(folder, flips=10):
        answer = show(folder)
        if path in parts and not ("flipped" in how and answer == truth):  # a date in an archive
            gone = how == "deleted" and parts[path] == path
            assert answer[0] == 0, (path, how, answer)
            assert after in answer[1], (path, how, answer)
            said = [line for line in answer[1].splitlines() if "will be computed again" in line]
            assert len(said) == (0 if gone else 1), (path, how, answer)
            assert gone or parts[path].name in said[0]
        else:
            assert answer == truth or refused(answer, folder), (path, how, answer)


# --- unfinished work goes on ---------------------------------------------------------------------


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def held(store: Path) -> dict[str, bytes]:
    paths = [path for path in store.rglob("*") if path.is_file()]
    return {str(path.relative_to(store)): path.read_bytes() for path in paths}


def test_a_damaged_block_is_computed_again(folders, tmp_path, caplog):
    shutil.copytree(folders["unfinished sweep"], tmp_path / "out")
    flipped(tmp_path / "out" / "blocks" / "000001.zarr.zip")
    with caplog.at_level(logging.WARNING):
        sweep(SWEEP, tmp_path / "out")
    assert "000001.zarr.zip" in caplog.text
    assert "is damaged and will be computed again" in caplog.text
    assert held(tmp_path / "out" / "results.zarr") == held(folders["sweep"] / "results.zarr")


def test_a_block_that_is_damaged_while_others_are_computed_is_refused(folders, tmp_path):
    shutil.copytree(folders["unfinished sweep"], tmp_path / "out")
    store = storage.blocks.BlockStore.read(tmp_path / "out")
    flipped(tmp_path / "out" / "blocks" / "000001.zarr.zip")
    with pytest.raises(DamageError, match=r"000001\.zarr\.zip is damaged; run the same command"):
        store.assemble()
    assert not (tmp_path / "out" / "results.zarr").exists()


def test_a_damaged_piece_is_computed_again(folders, tmp_path, caplog):
    shutil.copytree(folders["unfinished run"], tmp_path / "out")
    for piece in (tmp_path / "out" / FOLDER).glob("*/descent-1.npz"):
        flipped(piece)
    with caplog.at_level(logging.WARNING):
        again = experiment.perform(RUN, kept_in=tmp_path / "out")
    assert "descent-1.npz is damaged and is computed again" in caplog.text
    xr.testing.assert_identical(
        again.drop_attrs(deep=False), tw.open(folders["run"]).load().drop_attrs(deep=False)
    )


def test_a_damaged_part_is_computed_again(folders, tmp_path, caplog):
    shutil.copytree(folders["unfinished study"], tmp_path / "cubes-quick")
    (part,) = (tmp_path / "cubes-quick" / "parts").glob("*/cube-1.zarr/cube/0")
    part.unlink()
    with caplog.at_level(logging.WARNING):
        conduct(Cubes, Size.QUICK, tmp_path)
    assert "cube/0 is missing) and is computed again" in caplog.text
    found = tw.open(tmp_path / "cubes-quick")
    np.testing.assert_array_equal(found.cube, [0.0, 1.0, 8.0])


def test_damaged_results_are_not_taken_for_finished_ones(folders, tmp_path):
    for kind, again in (
        ("sweep", lambda place: sweep(SWEEP, place)),
        ("study", lambda place: conduct(Cubes, Size.QUICK, place.parent)),
    ):
        place = tmp_path / kind / "cubes-quick"
        shutil.copytree(folders[kind], place)
        (place / "results.zarr" / ".zattrs").write_text("{}")
        with pytest.raises(DamageError, match=r"\.zattrs is not what was written; take them from"):
            tw.open(place)
        with pytest.raises(InputError, match=r"zattrs is not what was written|another command"):
            again(place)
    fresh = sweep(SWEEP, tmp_path / "sweep" / "cubes-quick", fresh=True)
    xr.testing.assert_identical(fresh.load(), tw.open(folders["sweep"]).load())


# --- checksums -----------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_checksums_are_those_of_another_program(folders):
    for kind in ("run", "sweep", "study"):
        done = subprocess.run(
            ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"],
            cwd=folders[kind] / "results.zarr",
        )
        assert done.returncode == 0


def test_extra_files_are_named_unless_nothing_reads_them(folders, tmp_path):
    store = tmp_path / "results.zarr"
    shutil.copytree(folders["run"] / "results.zarr", store)
    (store / ".DS_Store").write_text("of a file manager")
    require_whole(store)
    (store / "loss" / "7.0").write_bytes(b"a chunk")
    with pytest.raises(InputError, match=r"loss/7\.0 does not belong there"):
        tw.open(tmp_path)


def test_results_without_checksums_are_said_to_be_older(folders, show, tmp_path):
    shutil.copytree(folders["run"], tmp_path / "old")
    (tmp_path / "old" / "results.zarr" / "SHA256SUMS").unlink()
    code, _, complaint = show(tmp_path / "old")
    assert code == 2
    assert "SHA256SUMS is missing, so that an older version of thalweg wrote them" in complaint


def test_a_full_disk_leaves_nothing_open(tmp_path, monkeypatch):
    """The archive is whole before the disk sees any of it; pytest fails where one is left open."""

    def half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(28, os.strerror(28))

    block = storage.blocks.Block(np.arange(2), {"a": np.ones(2)}, {"b": np.ones((2, 3))})
    layout = storage.layout.Layout(("x",), {"x": ("x", (0, 1))}, {})
    store = storage.blocks.BlockStore(tmp_path, {}, layout, 1)
    monkeypatch.setattr(files.Path, "write_bytes", half)
    with pytest.raises(InputError, match="must have room for the results, but it is full"):
        store.write(0, block)
    gc.collect()
    assert not list((tmp_path / "blocks").iterdir())


# --- what is shown of any folder -----------------------------------------------------------------


def test_nothing_to_show_is_said_in_one_sentence(folders, show, tmp_path):
    for name in ("empty", "foreign", "begun", "several", "worked"):
        (tmp_path / name).mkdir()
    (tmp_path / "file.txt").write_text("text")
    (tmp_path / "foreign" / "notes.txt").write_text("text")
    (tmp_path / "begun" / ".lock").write_text("")
    for kind in ("run", "sweep"):
        shutil.copytree(folders[kind], tmp_path / "several" / kind)
    xr.Dataset({"x": 1.0}).to_zarr(tmp_path / "other.zarr", zarr_format=2)
    storage.write_results(xr.Dataset({"x": 1.0}), tmp_path / "nameless")
    answers = {
        "none": "which does not exist",
        "file.txt": "which is a file",
        "empty": "which is empty",
        "foreign": "which holds no results.zarr, but notes.txt",
        "begun": "where a command began and has finished nothing yet; give it again",
        "several": "which holds folders of results: run, sweep; name one",
        "other.zarr": "SHA256SUMS is missing",
        "nameless": "must hold a run, a sweep or a study, but does not say which",
    }
    for name, sentence in answers.items():
        answer = show(tmp_path / name)
        assert refused(answer, tmp_path / name), answer
        assert sentence in answer[2], answer
    with only_writer(tmp_path / "worked"):
        assert "another command is at work there" in show(tmp_path / "worked")[2]


@pytest.mark.parametrize("kind", ["run", "sweep", "study"])
def test_results_of_another_format_are_named(folders, show, tmp_path, kind):
    results = tw.open(folders[kind]).load()
    storage.write_results(results.assign_attrs(format=1), tmp_path)
    answer = show(tmp_path)
    assert refused(answer, tmp_path)
    assert "got 1: another version of thalweg wrote this" in answer[2]
    assert kind in answer[2]


def test_studies_of_other_settings_are_named(folders, show, tmp_path):
    results = tw.open(folders["study"]).load()
    storage.write_results(results.assign_attrs(settings="others"), tmp_path)
    answer = show(tmp_path)
    assert refused(answer, tmp_path)
    assert "must be of this version of thalweg" in answer[2]


def test_what_is_shown_of_each_kind(folders, show, tmp_path):
    assert "Two runs" in show(folders["run"])[1]
    assert "diverged" in show(folders["run"])[1]
    assert "6 runs over 3 data_seed x 2 start_seed\n" in show(folders["sweep"])[1]
    assert "the last cube" in show(folders["study"])[1]
    assert '"verdict": "confirmed"' in show(folders["study"], "--json")[1]
    assert "`thalweg reproduce cubes --quick` continues" in show(folders["unfinished study"])[1]
    assert '"done": 3' in show(folders["unfinished study"], "--json")[1]
    assert "`thalweg run` continues" in show(folders["unfinished run"])[1]
    assert '"runs_wanted": 6' in show(folders["unfinished sweep"], "--json")[1]
    shutil.copytree(folders["unfinished sweep"], tmp_path / "sweep")
    shutil.rmtree(tmp_path / "sweep" / "blocks")
    code, printed, _ = show(tmp_path / "sweep")
    assert code == 0
    assert "0 of 6 runs over 3 data_seed x 2 start_seed, unfinished; the same" in printed
    with only_writer(tmp_path / "sweep"):
        assert "another command is at work on it" in show(tmp_path / "sweep")[1]


# --- what variables say of themselves ------------------------------------------------------------


def test_every_variable_says_what_it_is(folders):
    """The CF conventions: long_name, units of numbers, and the meanings of flags."""
    for kind in ("run", "sweep", "unfinished sweep"):
        results = tw.open(folders[kind])
        for name, variable in results.variables.items():
            assert variable.attrs.get("long_name"), (kind, name)
            assert variable.dtype.kind not in "iuf" or variable.attrs["units"] == "1", (kind, name)
        for name in results.data_vars:
            assert name in QUANTITIES, (kind, name)
        for name in ("diverged_at", "phase"):
            flags = results[name].attrs
            assert results[name].dtype.kind == "i"
            assert len(flags["flag_meanings"].split()) == len(flags["flag_values"])


def test_divergence_is_an_integer_that_missing_numbers_do_not_change(folders):
    run = tw.open(folders["run"]).load()
    assert run.diverged_at.values[0] == -1
    assert run.diverged_at.values[1] > 0
    rows = report.summary(run.assign(loss=run.loss * np.nan, excess=run.excess * np.nan))
    assert [row["diverged_at"] for row in rows] == [None, int(run.diverged_at[1])]
    assert rows[0]["phase"] == report.summary(run)[0]["phase"]


def test_a_description_keeps_what_a_variable_says_already():
    given = xr.Dataset({"loss": ("x", [1.0], {"units": "nats"})}, {"learning_rate": 0.1})
    found = described(given)
    assert found.loss.attrs["units"] == "nats"
    assert found.learning_rate.attrs["long_name"] == "learning rate"
    assert "long_name" not in given.loss.attrs
