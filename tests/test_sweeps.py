"""Sweeps: the numbers of single runs, whatever the company, the interruptions and the order."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import thalweg as tw
from thalweg import experiment, storage
from thalweg._checks import InputError
from thalweg.experiment import from_values
from thalweg.sweeps import local, performing, sweep
from thalweg.sweeps.plan import data_digest, make_plan
from thalweg.sweeps.runs import compute

SMALL = {
    "data": {"features": 2, "samples": 6},
    "network": {"depth": 3},
    "training": {"learning_rate": 0.1, "steps": 50},
    "sweeping": {"records": 7},
}
GRIDS = [
    {
        "training.learning_rate, training.steps": [[0.05, 40], [5.0, 30]],
        "start.scale": [0.4, 0.8],
        "start.seed": [3, 1],
    },
    {
        "training.learning_rate, training.steps": [[0.05, 40]],
        "start.scale": [0.8],
        "start.seed": [1, 9],
    },
]
DATA_SEEDS = {"data.seed": [0, 1, 2, 3], "start.seed": [0, 1]}
NO_SPECTRUM = {"curvature": {"enabled": False}}  # where it is not the point: it takes compiling


def small(*grids, **changes):
    return from_values({**SMALL, **changes, "sweep": list(grids)})


def four_blocks():
    return small(DATA_SEEDS, **NO_SPECTRUM)


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def swept() -> xr.Dataset:
    return sweep(small(*GRIDS, curvature={"tolerance": 1e-9}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A sweep that nobody interrupted: four groups, four blocks."""
    folder = tmp_path_factory.mktemp("whole")
    sweep(four_blocks(), folder)
    return folder


# --- the numbers ---------------------------------------------------------------------------------


def test_the_grids_span_one_dataset(swept):
    assert dict(swept.sizes) == {"learning_rate": 2, "scale": 2, "seed": 3, "record": 7}
    assert swept.seed.values.tolist() == [1, 3, 9]
    assert swept.steps.values.tolist() == [40, 30]
    has_run = swept.last_step.notnull()
    assert int(has_run.sum()) == 9  # 8, and 2 of which one is the same
    assert bool(has_run.sel(learning_rate=0.05, scale=0.8, seed=9))
    np.testing.assert_array_equal(swept.loss.notnull().any("record"), has_run)


@pytest.mark.parametrize("cell", [(0.05, 0.4, 3), (0.05, 0.8, 1), (5.0, 0.8, 3), (0.05, 0.8, 9)])
def test_every_run_is_what_it_is_alone(swept, cell):
    """Oracles: one descent of one network, and the eigenvalues of its dense Hessian."""
    rate, scale, seed = cell
    alone = small(start={"scale": scale, "seed": seed})
    built = experiment.objective(alone)
    start = experiment.start(alone, built)
    found = swept.sel(learning_rate=rate, scale=scale, seed=seed)
    steps = int(found.steps)
    run = tw.descend(
        built, start, learning_rate=rate, steps=steps, record_every=7 if rate < 1 else 5
    )
    held = found.step.notnull().values
    np.testing.assert_array_equal(found.step.values[held], run.steps)
    np.testing.assert_array_equal(found.loss.values[held], run.loss)  # the same to the last bit
    np.testing.assert_array_equal(found.time.values[held], run.times)
    np.testing.assert_array_equal(found.final_loss, run.loss[-1])
    np.testing.assert_array_equal(found.final_excess, run.loss[-1] - built.problem.minimum)
    np.testing.assert_array_equal(found.diverged_at, run.diverged_at)
    for when, point in (("initial", start), ("final", run.final)):
        if not np.isfinite(np.concatenate([array.ravel() for array in point])).all():
            assert np.isnan(found[f"{when}_sharpness"])
            continue
        values = np.linalg.eigvalsh(np.asarray(built.hessian(point)))
        # Asked for 1e-9 of the norm; each number says how far off it may be.
        for name, value in (("sharpness", values[-1]), ("smallest_eigenvalue", values[0])):
            error = float(found[f"{when}_{name}_error"])
            assert abs(found[f"{when}_{name}"] - value) <= error + 1e-14
            assert error <= 1e-8 * np.abs(values).max()
    if not run.diverged:
        product = np.linalg.multi_dot([np.asarray(array) for array in run.final[::-1]])
        squared = np.sum((product - np.asarray(built.problem.minimiser)) ** 2)
        # Both round the product a few times, which the square doubles times the distance.
        np.testing.assert_allclose(
            found.squared_distance, squared, rtol=1e-12, atol=1e-14 * np.sqrt(squared)
        )
        ends = [float(found[f"{when}_sharpness"]) for when in ("initial", "final")]
        assert float(found.largest_sharpness) == max(ends)


def test_the_spectrum_at_every_record():
    """Oracle: dense eigenvalues at the recorded weights of the run alone."""
    grid = {"start.scale": [0.7], "start.seed": [5, 6]}
    found = sweep(small(grid, sweeping={"records": 4, "spectrum_at_records": True}))
    alone = small(start={"scale": 0.7, "seed": 6})
    built = experiment.objective(alone)
    run = tw.descend(
        built, experiment.start(alone, built), learning_rate=0.1, steps=50, record_every=13
    )
    spectra = [
        np.linalg.eigvalsh(np.asarray(built.hessian(tuple(a[i] for a in run.weights))))
        for i in range(run.steps.size)
    ]
    one = found.sel(scale=0.7, seed=6)
    for name, place in (("sharpness", -1), ("smallest_eigenvalue", 0)):
        # Asked for 1e-6 of the norm.
        scale = max(np.abs(values).max() for values in spectra)
        exact = [values[place] for values in spectra]
        np.testing.assert_allclose(one[name], exact, rtol=0, atol=1e-6 * scale)
    assert float(one.largest_sharpness) == float(one.sharpness.max())
    assert float(one.lowest_eigenvalue) == float(one.smallest_eigenvalue.min())


def test_each_field_reaches_its_runs():
    """Oracle: the experiments changed one by one."""
    grid = {"network.depth": [1, 2], "data.seed": [0, 7], "start.kind": ["balanced", "identity"]}
    plain = small(grid, **NO_SPECTRUM)
    found = sweep(plain)
    assert "final_sharpness" not in found
    for depth, seed, kind in [(1, 0, "identity"), (2, 7, "balanced"), (2, 0, "identity")]:
        alone = experiment.changed(
            plain, {"network.depth": depth, "data.seed": seed, "start.kind": kind}
        )
        built = experiment.objective(alone)
        run = tw.descend(
            built, experiment.start(alone, built), learning_rate=0.1, steps=50, record_every=50
        )
        loss = found.final_loss.sel(depth=depth, seed=seed, kind=kind)
        np.testing.assert_array_equal(loss, run.loss[-1])


def test_a_time_becomes_as_many_steps_as_each_rate_needs():
    training = {"time": 2.0, "learning_rate": [0.05, 0.2]}
    found = sweep(small({"start.seed": [0]}, training=training, **NO_SPECTRUM))
    assert found.last_step.values.ravel().tolist() == [40, 10]


# --- data files ----------------------------------------------------------------------------------


def table(path: Path, factor: float = 1.0) -> None:
    """A file of two inputs and a target, which is a multiple of their sum."""
    rng = np.random.default_rng(0)
    rows = [(a, b, factor * (a + b)) for a, b in rng.normal(size=(6, 2))]
    path.write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))


def of_table(path: str = "table.csv", *grids):
    held = {"source": "csv", "path": path, "target": "y", "standardise": False}
    return small(*(grids or ({"start.seed": [0, 1]},)), data=held, **NO_SPECTRUM)


def start_losses(found: xr.Dataset) -> np.ndarray:
    return found.loss.isel(record=0).values.ravel()


def test_an_edited_file_is_read_anew_in_the_same_process(tmp_path):
    """Oracle: the objective of the file as it is now."""
    for factor in (1.0, 3.0):
        table(tmp_path / "table.csv", factor)
        found = sweep(of_table(), folder=tmp_path)
        built = experiment.objective(of_table(), tmp_path)
        np.testing.assert_array_equal(found.minimum, float(built.problem.minimum))
        alone = experiment.changed(of_table(), {"start.seed": 1})
        first = built(experiment.start(alone, built))
        np.testing.assert_allclose(start_losses(found)[1], first, rtol=1e-13)


def test_a_block_is_refused_where_its_file_is_another(tmp_path):
    table(tmp_path / "table.csv")
    task = make_plan(of_table(), tmp_path).task(0)
    assert task.data_digest == data_digest(of_table().data, tmp_path)
    table(tmp_path / "table.csv", 2.0)
    with pytest.raises(InputError, match=r"table\.csv must be the same .* for all workers"):
        compute(task)
    (tmp_path / "table.csv").unlink()
    with pytest.raises(InputError, match="needs it under the same path"):
        compute(task)


def test_a_sweep_is_not_gone_on_with_when_a_file_was_edited(tmp_path):
    """Whether it is the one file of all runs, or one of several that are swept over."""
    for name in "ab":
        table(tmp_path / f"{name}.csv")
    for number, wanted in enumerate(
        (of_table("b.csv"), of_table("none.csv", {"data.path": ["a.csv", "b.csv"]}))
    ):
        out = tmp_path / str(number)
        sweep(wanted, out, folder=tmp_path)
        table(tmp_path / "b.csv", 2.0)
        with pytest.raises(InputError, match="before its data files were changed"):
            sweep(wanted, out, folder=tmp_path)
        found = sweep(wanted, out, folder=tmp_path, fresh=True)
        assert start_losses(found).size == 2
        table(tmp_path / "b.csv")


def test_a_file_that_no_run_reads_need_not_be(tmp_path):
    table(tmp_path / "a.csv")
    plan = make_plan(of_table("none.csv", {"data.path": ["a.csv"]}), tmp_path)
    assert set(plan.data_files) == {"a.csv"}
    assert plan.identity() == make_plan(plan.experiment, tmp_path).identity()


def test_the_files_of_mnist_count(tmp_path):
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (tmp_path / name).write_bytes(name.encode())
    images = small(data={"source": "mnist", "path": "."}).data
    before = data_digest(images, tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(b"others")
    assert data_digest(images, tmp_path) != before
    assert data_digest(small().data, tmp_path) == ""


# --- interruptions -------------------------------------------------------------------------------


def test_an_interrupted_sweep_goes_on_and_computes_nothing_twice(whole, tmp_path, monkeypatch):
    computed: list[int] = []
    compute = local.compute

    def fail_at_the_third(task, note):
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(task.number)
        return compute(task, note)

    monkeypatch.setattr(local, "compute", fail_at_the_third)
    monkeypatch.setattr(local.os, "cpu_count", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        sweep(four_blocks(), tmp_path)
    so_far = storage.open_results(tmp_path)
    assert "2 of 4" in so_far.attrs["unfinished"]
    assert int(so_far.last_step.notnull().sum()) == 4

    monkeypatch.setattr(
        local, "compute", lambda task, note: computed.append(task.number) or compute(task, note)
    )
    told: list[tuple[int, int]] = []
    sweep(four_blocks(), tmp_path, progress=lambda done, total: told.append((done, total)))
    assert sorted(computed) == [0, 1, 2, 3]
    assert told[0] == (200, 400)
    assert told[-1] == (400, 400)
    assert files_of(tmp_path / "results.zarr") == files_of(whole / "results.zarr")


def test_a_finished_sweep_is_only_read(whole, monkeypatch):
    monkeypatch.setattr(local, "compute", None)
    again = sweep(four_blocks(), whole)
    assert again.sizes["data_seed"] == 4


def test_another_sweep_in_the_folder_is_refused_unless_fresh(tmp_path):
    first, second = (
        small({"start.seed": [0]}, **NO_SPECTRUM),
        small({"start.seed": [1]}, **NO_SPECTRUM),
    )
    sweep(first, tmp_path)
    with pytest.raises(InputError, match="another grid; give another `--out`, or `--fresh`"):
        sweep(second, tmp_path)
    with pytest.raises(InputError, match="a sweep of another experiment"):
        sweep(small({"start.seed": [0]}, network={"depth": 2}, **NO_SPECTRUM), tmp_path)
    (tmp_path / "mine.txt").write_text("kept")
    assert sweep(second, tmp_path, fresh=True).seed.values.tolist() == [1]
    assert (tmp_path / "mine.txt").exists()


def test_results_of_another_command_are_not_touched(tmp_path):
    storage.write_results(xr.Dataset({"loss": 1.0}), tmp_path)
    with pytest.raises(InputError, match="results of another command"):
        sweep(small({"start.seed": [0]}, **NO_SPECTRUM), tmp_path, fresh=True)
    assert float(storage.open_results(tmp_path).loss) == 1.0


def test_a_run_in_the_folder_of_a_sweep_costs_no_block(tmp_path, monkeypatch):
    wanted = small({"start.seed": [0]}, **NO_SPECTRUM)
    monkeypatch.setattr(storage.blocks.BlockStore, "assemble", lambda store: None)
    sweep(wanted, tmp_path)
    assert storage.holds(tmp_path) == "sweep"
    storage.write_results(xr.Dataset({"loss": 1.0}, attrs={"kind": "run"}), tmp_path)
    before = files_of(tmp_path)
    assert any(name.startswith("blocks/") for name in before)
    for fresh in (False, True):
        with pytest.raises(InputError, match="results of another command; give another `--out`"):
            sweep(wanted, tmp_path, fresh=fresh)
        assert files_of(tmp_path) == before


def test_a_damaged_manifest_can_be_replaced(tmp_path):
    wanted = small({"start.seed": [0]}, **NO_SPECTRUM)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(InputError, match=r"sweep\.json must be that of a sweep"):
        sweep(wanted, tmp_path)
    assert sweep(wanted, tmp_path, fresh=True).seed.values.tolist() == [0]


def test_blocks_without_a_manifest_are_computed_anew(tmp_path, monkeypatch):
    with monkeypatch.context() as interrupted:
        interrupted.setattr(storage.blocks.BlockStore, "assemble", lambda store: None)
        sweep(small({"start.seed": [0]}, start={"scale": 9.0}, **NO_SPECTRUM), tmp_path)
    (tmp_path / "sweep.json").unlink()
    wanted = small({"start.seed": [0]}, **NO_SPECTRUM)
    found = sweep(wanted, tmp_path)
    np.testing.assert_array_equal(start_losses(found), start_losses(sweep(wanted)))


def test_a_finished_sweep_needs_no_manifest(tmp_path, monkeypatch):
    wanted = small({"start.seed": [0]}, **NO_SPECTRUM)
    sweep(wanted, tmp_path)
    (tmp_path / "sweep.json").unlink()
    with pytest.raises(InputError, match="results of another command"):
        sweep(small({"start.seed": [1]}, **NO_SPECTRUM), tmp_path, fresh=True)
    monkeypatch.setattr(local, "compute", None)
    assert sweep(wanted, tmp_path).seed.values.tolist() == [0]


def test_a_full_disk_is_said_and_finished_blocks_stay(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(local.os, "cpu_count", lambda: 1)
    to_disk, blocks = storage.files._to_disk, set()

    def until_full(path):
        if ".npz." in path.name:
            blocks.add(path)
        if len(blocks) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        to_disk(path)

    monkeypatch.setattr(storage.files, "_to_disk", until_full)
    with pytest.raises(InputError, match="must have room for the results, but it is full"):
        sweep(four_blocks(), tmp_path)
    assert int(storage.open_results(tmp_path).last_step.notnull().sum()) == 4
    assert not list(tmp_path.rglob("*.part"))
    monkeypatch.setattr(storage.files, "_to_disk", to_disk)
    sweep(four_blocks(), tmp_path)
    assert files_of(tmp_path / "results.zarr") == files_of(whole / "results.zarr")


def test_a_folder_that_cannot_be_is_said_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "compute", None)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="must go to a folder that can be written to"):
        sweep(small({"start.seed": [0]}, **NO_SPECTRUM), tmp_path / "file" / "inside")


KILLED = """
import os, sys
from pathlib import Path
import thalweg
from thalweg.experiment import from_toml
from thalweg.sweeps import sweep
text, out, moments = sys.argv[1], Path(sys.argv[2]), [int(each) for each in sys.argv[3:]]
for blocks in moments:  # one process per moment, without importing everything anew
    child = os.fork()
    if child == 0:
        sweep(from_toml(text), out)
        os._exit(0)
    while len(list(out.glob("blocks/*/*.npz"))) < blocks:
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it ended before it was killed"
    os.kill(child, 9)
    os.waitpid(child, 0)
sweep(from_toml(text), out)
"""


def test_kill_9_loses_nothing_and_changes_no_bit(whole, tmp_path):
    """Killed at once, and with one and three of four blocks done: the same store, byte by byte."""
    text = experiment.to_toml(four_blocks())
    where = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    where["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, text, str(tmp_path / "out"), "0", "1", "3"],
        env=where, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "out" / "results.zarr") == files_of(whole / "results.zarr")


# --- a cluster -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # dask's own, when a worker is killed
def test_a_cluster_that_loses_a_worker_finds_the_same(whole, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        victim = next(iter(cluster.workers.values())).pid
        told: list[int] = []

        def progress(done: int, total: int) -> None:
            if done and not told[-1]:  # one block is there, three are not
                os.kill(victim, signal.SIGKILL)
            told.append(done)

        address = cluster.scheduler_address
        sweep(four_blocks(), tmp_path, scheduler=address, progress=progress)
    assert told[-1] == 400
    assert files_of(tmp_path / "results.zarr") == files_of(whole / "results.zarr")


@pytest.mark.filterwarnings("ignore")  # dask's own, when its scheduler goes
def test_a_lost_scheduler_is_said_and_costs_no_finished_block(whole, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("thalweg.sweeps.cluster._SECONDS_TO_CONNECT", 5)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:

        def progress(done: int, total: int) -> None:
            if done:
                cluster.sync(cluster.scheduler.close)

        with pytest.raises(InputError, match=r"must stay until all blocks are done.*is kept"):
            sweep(four_blocks(), tmp_path, scheduler=cluster.scheduler_address, progress=progress)
        # The worker takes leave of the scheduler, and would wait for it for half a minute.
        with pytest.importorskip("dask").config.set({"distributed.comm.timeouts.connect": "1s"}):
            cluster.close()
    kept = len(list(tmp_path.glob("blocks/*/*.npz")))
    assert kept >= 1
    computed: list[int] = []
    compute = local.compute
    monkeypatch.setattr(
        local, "compute", lambda task, note: computed.append(task.number) or compute(task, note)
    )
    sweep(four_blocks(), tmp_path)
    assert len(computed) == 4 - kept
    assert files_of(tmp_path / "results.zarr") == files_of(whole / "results.zarr")


def test_a_block_that_takes_down_every_worker_is_said(monkeypatch):
    distributed = pytest.importorskip("distributed")
    cluster = pytest.importorskip("thalweg.sweeps.cluster")
    task = make_plan(four_blocks(), Path()).task(2)

    class Future:
        key = "k"

        def result(self):
            raise distributed.KilledWorker("k", None, 1)

    class Client:
        loop = None

        def submit(self, *_, **__):
            return Future()

    monkeypatch.setattr(distributed, "as_completed", lambda loop: set())
    work = cluster._Work(Client(), iter(()))
    work._submit(task)
    for _ in range(cluster._TRIES - 1):
        assert work.taken(Future()) == (task, None)
    with pytest.raises(InputError, match="5 attempts at block 2 ended"):
        work.taken(Future())


def test_a_scheduler_that_does_not_answer_is_said(monkeypatch):
    cluster = pytest.importorskip("thalweg.sweeps.cluster")
    monkeypatch.setattr(cluster, "_SECONDS_TO_CONNECT", 0.2)
    with pytest.raises(InputError, match="must answer at tcp://127"):
        sweep(small({"start.seed": [0]}, **NO_SPECTRUM), scheduler="tcp://127.0.0.1:1")


# --- the command ---------------------------------------------------------------------------------


def test_the_commands(tmp_path, monkeypatch):
    from thalweg.cli import app

    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text(experiment.to_toml(small({"start.seed": [0, 1]}, **NO_SPECTRUM)))
    arguments = ["sweep", "grid.toml", "--set", "start.scale=0.5", "--json"]
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert json.loads(shown.stdout)["runs"] == 2
    found = storage.open_results("thalweg-sweep")
    assert experiment.from_toml(found.attrs["experiment"]).start.scale == 0.5
    assert Path("thalweg-sweep/experiment.toml").is_file()
    again = CliRunner().invoke(app, ["show", "thalweg-sweep", "--json"], catch_exceptions=False)
    assert json.loads(again.stdout) == json.loads(shown.stdout)
    with pytest.raises(InputError, match="holds a sweep; give another"):
        CliRunner().invoke(app, ["run", "--out", "thalweg-sweep"], catch_exceptions=False)


def test_the_example_is_the_figure_of_the_paper():
    path = Path(__file__).parents[1] / "examples" / "marion2024-fig1.toml"
    plan = performing.make_plan(experiment.read(path), path.parent)
    assert plan.works().sum() == 13_200_000
    assert len(plan.grid.points) == 1600
    assert plan.grid.shape == (5, 10, 80)
