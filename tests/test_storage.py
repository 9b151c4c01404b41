"""Storage: whole or not at all, read back as written, and what a disk refuses in one sentence."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from thalweg._checks import InputError
from thalweg.storage import open_results, provenance, write_results
from thalweg.storage.blocks import Block, BlockStore
from thalweg.storage.files import only_writer, write_file, write_folder, writing_to
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
    lost = store._path(2)
    with_block = open_results(tmp_path)
    assert_holds(with_block, truth)
    lost.write_bytes(lost.read_bytes()[:100])  # damaged: it counts as not there
    assert store.done() == {0, 1, 3}
    results = open_results(tmp_path)
    assert "3 of 4" in results.attrs["unfinished"]
    held = np.isfinite(results.first.values).sum()
    assert held == np.isfinite(truth[:, 0]).sum() - 7  # the damaged block had 7 of 28 runs


def test_windows_cover_every_cell_once():
    cells = np.concatenate([LAYOUT.cells(window).ravel() for window in LAYOUT.windows()])
    assert sorted(cells.tolist()) == list(range(30))


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
    assert os.listdir(tmp_path / "held") == ["two"]
    assert os.listdir(tmp_path) == ["held"]


def test_any_dataset_is_read_back(tmp_path):
    written = xr.Dataset({"loss": (("rate",), [1.0, np.nan])}, {"rate": [0.1, 0.2]}, {"a": "b"})
    store = write_results(written, tmp_path / "new" / "folder")
    for path in (store, store.parent, str(store)):
        assert open_results(path).identical(written)


def test_bad_places_are_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="must go to a folder that can be written to"):
        write_results(xr.Dataset(), tmp_path / "file")
    with pytest.raises(InputError, match="which does not exist"):
        open_results(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no results\.zarr"):
        open_results(tmp_path)
    (tmp_path / "sweep.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match=r"sweep\.json must be that of a sweep"):
        open_results(tmp_path)


def test_one_writer_at_a_time(tmp_path):
    def enter() -> None:
        with only_writer(tmp_path):
            pass

    with only_writer(tmp_path), pytest.raises(InputError, match="another one is at work"):
        enter()
    enter()


def test_provenance_names_versions_and_nothing_that_changes():
    assert provenance() == provenance()
    assert {"thalweg", "jax", "numpy"} <= set(provenance())
