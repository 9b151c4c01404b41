"""Every file of every kind of results, damaged one at a time: noticed in one sentence, or harmless.

What `thalweg show` says of undamaged results is the truth that it is held against.
"""

import gc
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from stored_kinds import RUN, SWEEP, Cubes, refused

import thalweg as tw
from thalweg import experiment, storage
from thalweg._errors import InputError
from thalweg.storage import files
from thalweg.storage.sums import DamageError, require_whole
from thalweg.studies import Size, conduct
from thalweg.sweeps import sweep

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


COUNTS = {
    "unfinished run": ("6 parts of it are done", "5 parts of it are done"),
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
    parts = set(folder.rglob("*.npz"))
    assert len(parts) >= 3
    for path, how in damaged(folder, flips=10):
        answer = show(folder)
        if path in parts and not ("flipped" in how and answer == truth):  # a date in an archive
            gone = how == "deleted"
            assert answer[0] == 0, (path, how, answer)
            assert after in answer[1], (path, how, answer)
            said = [line for line in answer[1].splitlines() if "will be computed again" in line]
            assert len(said) == (0 if gone else 1), (path, how, answer)
            assert gone or path.name in said[0]
        else:
            assert answer == truth or refused(answer, folder), (path, how, answer)


# --- unfinished work goes on ---------------------------------------------------------------------


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def part_of(folder: Path, name: str) -> Path:
    (found,) = folder.rglob(f"{name}.npz")
    return found


def held(store: Path) -> dict[str, bytes]:
    paths = [path for path in store.rglob("*") if path.is_file()]
    return {str(path.relative_to(store)): path.read_bytes() for path in paths}


def test_a_damaged_block_is_computed_again(folders, tmp_path, caplog):
    shutil.copytree(folders["unfinished sweep"], tmp_path / "out")
    flipped(part_of(tmp_path / "out", "000001"))
    with caplog.at_level(logging.WARNING):
        sweep(SWEEP, tmp_path / "out")
    assert "000001.npz" in caplog.text
    assert "is damaged and will be computed again" in caplog.text
    assert held(tmp_path / "out" / "results.zarr") == held(folders["sweep"] / "results.zarr")


def test_a_block_that_is_damaged_while_others_are_computed_is_refused(folders, tmp_path):
    shutil.copytree(folders["unfinished sweep"], tmp_path / "out")
    store = storage.blocks.BlockStore.read(tmp_path / "out")
    flipped(part_of(tmp_path / "out", "000001"))
    with pytest.raises(DamageError, match=r"000001\.npz is damaged; run the same command"):
        store.assemble()
    assert not (tmp_path / "out" / "results.zarr").exists()


def test_a_damaged_part_of_a_run_is_computed_again(folders, tmp_path, caplog):
    shutil.copytree(folders["unfinished run"], tmp_path / "out")
    flipped(part_of(tmp_path / "out", "descent-1"))
    with caplog.at_level(logging.WARNING):
        again = experiment.perform(RUN, kept_in=tmp_path / "out")
    assert "descent-1.npz is damaged and is computed again" in caplog.text
    xr.testing.assert_identical(
        again.drop_attrs(deep=False), tw.open(folders["run"]).load().drop_attrs(deep=False)
    )


def test_a_damaged_part_of_a_study_is_computed_again(folders, tmp_path, caplog):
    shutil.copytree(folders["unfinished study"], tmp_path / "cubes-quick")
    flipped(part_of(tmp_path / "cubes-quick", "cube-1"))
    with caplog.at_level(logging.WARNING):
        conduct(Cubes, Size.QUICK, tmp_path)
    assert "cube-1.npz is damaged and is computed again" in caplog.text
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
        with pytest.raises(DamageError, match=r"\.zattrs is not what was written"):
            again(place)
    fresh = sweep(SWEEP, tmp_path / "sweep" / "cubes-quick", fresh=True)
    xr.testing.assert_identical(fresh.load(), tw.open(folders["sweep"]).load())


@pytest.mark.parametrize("lost", ["results.zarr", "results.zarr/loss", "results.zarr/loss/0.0.0"])
def test_a_finished_sweep_that_lost_numbers_is_not_called_unfinished(folders, show, tmp_path, lost):
    """Blocks that an unfinished one lost are not computed yet; a finished one has none to come."""
    place = tmp_path / "out"
    shutil.copytree(folders["sweep"], place)
    gone = place / lost
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    answer = show(place)
    assert refused(answer, place)
    assert "unfinished" not in answer[2]
    with pytest.raises(DamageError):
        tw.open(place)
    shutil.rmtree(place / "results.zarr", ignore_errors=True)  # as the sentences advise
    sweep(SWEEP, place)
    assert held(place / "results.zarr") == held(folders["sweep"] / "results.zarr")


def test_a_store_whose_word_cannot_be_trusted_is_called_damaged(folders, tmp_path):
    """Not a run of another experiment, of which its changed digest would tell."""
    store = tmp_path / "results.zarr"
    shutil.copytree(folders["run"] / "results.zarr", store)
    assert storage.holds(tmp_path) == "run"
    for name in (".zattrs", ".zmetadata", ".zgroup"):
        content = (store / name).read_bytes()
        flipped(store / name)
        assert storage.holds(tmp_path) == "damaged", name
        (store / name).write_bytes(content)


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
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
