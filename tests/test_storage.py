"""Storage: whole or not at all, read back as written, and what a disk refuses in one sentence."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from thalweg._checks import InputError
from thalweg.storage import files, holds, open_results, provenance, write_results
from thalweg.storage.blocks import Block, BlockStore
from thalweg.storage.files import (
    is_written_to,
    only_writer,
    remove,
    write_file,
    write_folder,
    writing_to,
)
from thalweg.storage.keeper import Keeper, forget, kept_in, keys_in
from thalweg.storage.layout import Layout

LAYOUT = Layout(
    dims=("rate", "kind", "seed"),
    coords={
        "rate": ("rate", (0.1, 0.25)),
        "kind": ("kind", ("gaussian", "balanced", "residual")),
        "seed": ("seed", tuple(range(5))),
        "steps": ("rate", (10, None)),
        "depth": ("", (3,)),
    },
    attrs={"title": "a grid"},
)


def filled_store(folder: Path, blocks: int = 4) -> tuple[BlockStore, np.ndarray]:
    """A store of which all cells but two have a run, dealt out at random; and what it holds."""
    rng = np.random.default_rng(0)
    truth = np.full((LAYOUT.size, 7), np.nan)
    cells = rng.permutation(LAYOUT.size)[:-2]
    truth[cells] = rng.normal(size=(cells.size, 7))
    store = BlockStore(folder, {"experiment": "e"}, LAYOUT, blocks)
    store.write_manifest()
    for number, part in enumerate(np.array_split(cells, blocks)):
        store.write(number, Block(part, {"first": truth[part, 0]}, {"path": truth[part, 1:]}))
    return store, truth


def assert_holds(results: xr.Dataset, truth: np.ndarray) -> None:
    """Bit for bit: storing rounds nothing."""
    assert results.first.dims == LAYOUT.dims
    np.testing.assert_array_equal(results.first.values.ravel(), truth[:, 0])
    np.testing.assert_array_equal(results.path.values.reshape(LAYOUT.size, -1), truth[:, 1:])


def test_assembled_blocks_are_where_their_cells_say(tmp_path, monkeypatch):
    """Oracle: the array from which the blocks were cut; windows smaller than the grid."""
    monkeypatch.setattr("thalweg.storage.layout._CELLS_AT_ONCE", 4)
    store, truth = filled_store(tmp_path)
    store.assemble()
    assert not (tmp_path / "blocks").exists()
    results = open_results(tmp_path)
    assert_holds(results, truth)
    assert results.kind.values.tolist() == ["gaussian", "balanced", "residual"]
    np.testing.assert_array_equal(results.steps.values, [10, np.nan])
    assert results.depth.item() == 3
    assert results.attrs["title"] == "a grid"


def test_an_unfinished_store_opens_with_what_it_has(tmp_path):
    store, truth = filled_store(tmp_path)
    (lost,) = tmp_path.rglob("000002.npz")
    with_block = open_results(tmp_path)
    assert_holds(with_block, truth)
    lost.write_bytes(lost.read_bytes()[:100])  # damaged: it counts as not there
    assert store.done() == {0, 1, 3}
    results = open_results(tmp_path)
    assert "3 of 4" in results.attrs["unfinished"]
    held = np.isfinite(results.first.values).sum()
    assert held == np.isfinite(truth[:, 0]).sum() - 7  # the damaged block had 7 of 28 runs


def sweep_store(folder: Path, **identity: str) -> BlockStore:
    """A store whose dataset says what it is of, as that of a sweep does."""
    attrs = {"kind": "sweep", **identity}
    return BlockStore(folder, identity, Layout(LAYOUT.dims, LAYOUT.coords, attrs), 1)


def one_block(cells: int = 30) -> Block:
    return Block(np.arange(cells), {"first": np.ones(cells)}, {"path": np.ones((cells, 2))})


def test_only_the_results_of_the_same_sweep_make_it_complete(tmp_path):
    store = sweep_store(tmp_path, digest="a")
    store.write_manifest()
    store.write(0, one_block())
    write_results(xr.Dataset({"loss": 1.0}, attrs={"kind": "run", "digest": "a"}), tmp_path)
    assert not store.complete
    store.clean()
    assert store.done() == {0}
    store.assemble()
    assert store.complete
    assert not sweep_store(tmp_path, digest="b").complete


def test_what_a_folder_holds_is_told_by_its_kind(tmp_path):
    assert holds(tmp_path / "nowhere") is None
    assert holds(tmp_path) is None
    for name, attrs in (("run", {"kind": "run"}), ("study", {"study": "s"}), ("unknown", {})):
        write_results(xr.Dataset(attrs=attrs), tmp_path / name)
        assert holds(tmp_path / name) == name
    store = sweep_store(tmp_path / "sweep")
    store.write_manifest()
    assert holds(tmp_path / "sweep") == "sweep"
    store.write(0, one_block())
    store.assemble()
    (tmp_path / "sweep" / "sweep.json").unlink()
    assert holds(str(tmp_path / "sweep")) == "sweep"


def test_blocks_that_no_manifest_knows_are_not_adopted(tmp_path):
    store, _ = filled_store(tmp_path)
    (tmp_path / "sweep.json").unlink()
    (tmp_path / "blocks" / "mine.npz").write_text("kept")
    store.write_manifest()
    assert store.done() == set()
    assert not list(tmp_path.rglob("00000*"))
    assert (tmp_path / "blocks" / "mine.npz").read_text() == "kept"


def test_a_sweep_is_cleared_without_what_else_is_there(tmp_path):
    store, _ = filled_store(tmp_path)
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "sweep.json").write_text("damaged")
    store.clear()
    assert os.listdir(tmp_path) == ["mine"]


def test_windows_cover_every_cell_once():
    cells = np.concatenate([LAYOUT.cells(window).ravel() for window in LAYOUT.windows()])
    assert sorted(cells.tolist()) == list(range(30))


# --- finished parts ------------------------------------------------------------------------------


def numbers() -> dict[str, np.ndarray]:
    return {"x": np.arange(3.0), "word": np.asarray("ß"), "flag": np.array([True, False])}


def never() -> dict[str, np.ndarray]:
    raise AssertionError("this was kept")


def test_a_part_is_computed_once_and_read_back_bit_for_bit(tmp_path):
    first, again = Keeper(tmp_path, {"a": 1}), Keeper(tmp_path, {"a": 1})
    computed, read = first.get("part", numbers), again.get("part", never)
    assert computed.keys() == read.keys() == numbers().keys()
    for name, array in numbers().items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)
    assert first.seconds == again.seconds > 0  # how long it took, not how long reading did
    (file,) = tmp_path.rglob("part.npz")
    with np.load(file) as archive:  # NumPy's own format
        np.testing.assert_array_equal(archive["x"], np.arange(3.0))


def test_parts_of_another_key_are_not_seen(tmp_path):
    Keeper(tmp_path, {"a": 1}).get("part", numbers)
    other = Keeper(tmp_path, {"a": 2})
    with pytest.raises(AssertionError, match="this was kept"):
        other.get("part", never)
    assert other.checked().whole == []
    assert list(keys_in(tmp_path).values()) == [{"a": 1}]


def test_damage_costs_that_part_alone(tmp_path):
    keeper = Keeper(tmp_path, {})
    for name in ("one", "two"):
        keeper.get(name, numbers)
    (file,) = tmp_path.rglob("one.npz")
    file.write_bytes(file.read_bytes()[:-1])
    assert keeper.checked() == kept_in(tmp_path) == (["two"], ["one.npz"])
    with pytest.raises(InputError, match=r"one\.npz is damaged"):
        keeper.read("one")
    keeper.get("one", numbers)
    assert keeper.checked() == (["one", "two"], [])


def test_parts_of_all_keys_are_forgotten_and_nothing_else(tmp_path):
    place = tmp_path / "parts"
    for value in (1, 2):
        Keeper(place, {"a": value}).get("part", numbers)
    (place / "mine").mkdir()
    forget(place)
    assert os.listdir(place) == ["mine"]
    (place / "mine").rmdir()
    Keeper(place, {}).get("part", numbers)
    forget(place)
    assert not place.exists()


def test_a_key_that_was_lost_is_still_a_key(tmp_path):
    keeper = Keeper(tmp_path, {"a": 1})
    keeper.get("part", numbers)
    (file,) = tmp_path.rglob("key.json")
    file.write_text("{")
    assert keys_in(tmp_path) == {keeper.digest: {}}


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keeper = Keeper(None, {"a": 1})
    keeper.get("part", numbers)
    assert keeper.checked() == ([], [])
    assert os.listdir(tmp_path) == []


# --- files ---------------------------------------------------------------------------------------


def test_a_failing_writer_leaves_the_old_and_no_parts(tmp_path):
    path = tmp_path / "file"
    write_file(path, lambda part: part.write_text("old") and None)

    def fail(part: Path) -> None:
        part.write_text("ne")
        raise OSError(errno.ENOSPC, "No space left on device")

    said = r"full; free some space.*what was finished is kept"
    with pytest.raises(InputError, match=said), writing_to(tmp_path):
        write_file(path, fail)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    def fill(text: str):
        def write(part: Path) -> None:
            part.mkdir()
            (part / text).write_text(text)

        return write

    for text in ("one", "two"):
        write_folder(tmp_path / "held", fill(text))
    assert sorted(os.listdir(tmp_path / "held")) == ["SHA256SUMS", "two"]
    assert os.listdir(tmp_path) == ["held"]


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def put(part: Path) -> None:
    part.write_text("new")


def test_a_writer_sweeps_up_after_dead_writers_of_the_same_name_only(tmp_path, dead):
    gone = f"file.{dead}.part"
    kept = {
        f"file.{os.getppid()}.part",  # alive
        f"other.{dead}.part",
        f"file.{dead}.part.rar",
        "file.part1.rar",
        "file.old.part",  # of a folder, and this is none
        ".partial",
    }
    for name in (gone, *kept):
        (tmp_path / name).write_text("x")
    write_file(tmp_path / "file", put)
    assert set(os.listdir(tmp_path)) == kept | {"file"}


def test_blocks_of_dead_writers_go_and_other_files_stay(tmp_path, dead):
    store, _ = filled_store(tmp_path)
    (place,) = (tmp_path / "blocks").iterdir()
    own = set(os.listdir(place))
    assert {f"00000{n}.npz" for n in range(4)} < own
    kept = {f"000001.npz.{os.getppid()}.part", "my.part1.rar", f"mine.{dead}.part"}
    for name in (f"000001.npz.{dead}.part", *kept):
        (place / name).write_text("x")
    store.clean()
    assert set(os.listdir(place)) == kept | own


def killed_between_the_renames(folder: Path) -> xr.Dataset:
    """Results whose writer was killed after it had put the old ones aside."""
    written = xr.Dataset({"loss": 1.0}, attrs={"kind": "run"})
    store = write_results(written, folder)
    os.replace(store, folder / "results.zarr.old.part")
    return written


def test_results_that_were_put_aside_are_still_read(tmp_path):
    written = killed_between_the_renames(tmp_path)
    assert holds(tmp_path) == "run"
    for path in (tmp_path, tmp_path / "results.zarr"):
        assert open_results(path).identical(written)


def test_results_that_were_put_aside_are_not_lost_to_the_next_writer(tmp_path):
    written = killed_between_the_renames(tmp_path)

    def fail(part: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_folder(tmp_path / "results.zarr", fail)
    assert os.listdir(tmp_path) == ["results.zarr"]
    assert open_results(tmp_path).identical(written)
    other = xr.Dataset({"loss": 2.0})
    killed_between_the_renames(tmp_path)
    write_results(other, tmp_path)
    assert os.listdir(tmp_path) == ["results.zarr"]
    assert open_results(tmp_path).identical(other)


def test_the_old_folder_stands_again_if_the_new_one_cannot_be_put_in_place(tmp_path, monkeypatch):
    write_results(xr.Dataset({"loss": 1.0}), tmp_path)
    replace = os.replace

    def refuse_the_new(source: Path, target: Path) -> None:
        if source.name == f"results.zarr.{os.getpid()}.part":
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", refuse_the_new)
    with pytest.raises(InputError, match="Input/output error"):
        write_results(xr.Dataset({"loss": 2.0}), tmp_path)
    assert os.listdir(tmp_path) == ["results.zarr"]
    assert float(open_results(tmp_path).loss) == 1.0


def test_what_cannot_be_removed_is_said(tmp_path, monkeypatch):
    (tmp_path / "held").mkdir()

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files.shutil, "rmtree", refuse)
    with pytest.raises(InputError, match="held must be removed, but cannot be: Permission denied"):
        remove(tmp_path / "held")


def test_any_dataset_is_read_back(tmp_path):
    written = xr.Dataset({"loss": (("rate",), [1.0, np.nan])}, {"rate": [0.1, 0.2]}, {"a": "b"})
    store = write_results(written, tmp_path / "new" / "folder")
    for path in (store, store.parent, str(store)):
        assert open_results(path).identical(written)


def test_bad_places_are_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="must go to a folder that can be written to"):
        write_results(xr.Dataset(), tmp_path / "file")
    with pytest.raises(InputError, match="which does not exist"):
        open_results(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no results\.zarr"):
        open_results(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"holds no results\.zarr"):
        open_results(".")
    for damaged in ('{"format": 99}', "[1]", '{"format": 1', '{"format": 1, "layout": {}}'):
        (tmp_path / "sweep.json").write_text(damaged)
        with pytest.raises(InputError, match=r"sweep\.json must be that of a sweep.*`--fresh`"):
            open_results(tmp_path)


def test_one_writer_at_a_time(tmp_path):
    def enter() -> None:
        with only_writer(tmp_path):
            pass

    with only_writer(tmp_path), pytest.raises(InputError, match="another one is at work"):
        enter()
    enter()


def test_the_lock_of_a_killed_writer_is_free(tmp_path):
    hold = "with only_writer(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    imports = "import sys; from pathlib import Path; from thalweg.storage.files import only_writer"
    with subprocess.Popen(
        [sys.executable, "-c", f"{imports}\n{hold}", str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        assert is_written_to(tmp_path)
        with pytest.raises(InputError, match="another one is at work"), only_writer(tmp_path):
            pass
        writer.kill()
    assert not is_written_to(tmp_path)
    with only_writer(tmp_path):
        pass


def test_provenance_names_versions_and_nothing_that_changes():
    assert provenance() == provenance()
    assert {"thalweg", "jax", "numpy"} <= set(provenance())
