"""A sweep from its experiment to one dataset: resumed where it was left, kept block by block."""

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from thalweg import initialisation
from thalweg._arguments import checked
from thalweg._errors import InputError
from thalweg._fingerprint import fingerprint
from thalweg._sizes import require_time
from thalweg.experiment import Experiment, read, to_toml
from thalweg.quantities.registry import registered
from thalweg.storage import FORMAT, open_results, provenance
from thalweg.storage.blocks import BlockStore
from thalweg.storage.contents import MANIFEST, kind_of
from thalweg.storage.files import only_writer, write_text, writing_to
from thalweg.storage.layout import Layout
from thalweg.sweeps.local import run_locally
from thalweg.sweeps.plan import Plan, make_plan
from thalweg.sweeps.runs import COMPUTATION

Progress = Callable[[int, int], None]

_DIFFERENCES = {
    "experiment_digest": "a sweep of another experiment",
    "grid_digest": "a sweep of this experiment over another grid",
    "computation": "a sweep that another version of thalweg began",
    "registered": "a sweep that measures other registered quantities",
    "registered_starts": "a sweep from another registered initialisation of this name",
    "data_digest": "a sweep of this experiment before its data files were changed",
}
"""What is in a folder whose identity differs in this, the most telling first."""


@checked
def sweep(
    experiment: Experiment | str | Path,
    out: str | Path | None = None,
    *,
    scheduler: str | None = None,
    progress: Progress | None = None,
    folder: str | Path | None = None,
    fresh: bool = False,
) -> xr.Dataset:
    """Run every cell of an experiment's grids, and go on where an earlier call was interrupted.

    Args:
        experiment: with at least one grid in `sweep`, or the TOML file of one.
        out: the folder that results go to, block by block; without one they stay in memory.
        scheduler: the address of a Dask scheduler whose workers compute; this machine if not given.
        progress: called with the network-steps done and to do.
        folder: where relative paths of data start; if not given, that of the TOML file, or else the
            current one.
        fresh: forget what an earlier sweep has left in `out`.

    Returns:
        One dataset with a dimension per swept field, NaN where the grids have no run. Where `out`
        is given, it is read from there when it is looked at.
    """
    if not isinstance(experiment, Experiment):
        folder = Path(experiment).parent if folder is None else folder
        experiment = read(experiment)
    plan = prepared(experiment, folder)
    if out is None:
        with tempfile.TemporaryDirectory(prefix="thalweg-") as temporary:
            place = Path(temporary) / "sweep"
            return perform(plan, place, scheduler, progress, fresh).load()
    return perform(plan, Path(out), scheduler, progress, fresh)


@checked
def prepared(experiment: Experiment, folder: str | Path | None = None) -> Plan:
    """The plan of a sweep that can be afforded.

    Args:
        experiment: with at least one grid in `sweep`.
        folder: where relative paths of data start; the current folder if not given.
    """
    plan = make_plan(experiment, (Path() if folder is None else Path(folder)).resolve())
    require_time("The sweep", plan.seconds(), "take fewer runs, fewer steps or a smaller network")
    return plan


@checked
def perform(
    plan: Plan,
    out: Path,
    scheduler: str | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
) -> xr.Dataset:
    """Do what is planned, or what is left of it; see `sweep`."""
    with only_writer(out):
        store = _store(plan, out, fresh)
        if not store.complete:
            _write_experiment(plan.experiment, out)
            _compute(plan, store, scheduler, progress)
            store.assemble()
    return open_results(out)


@checked
def other_in(plan: Plan, folder: Path) -> str | None:
    """What in a folder stands in this sweep's way, in words; None if nothing does."""
    new = _blocks(plan, folder)
    if not (folder / MANIFEST).exists():
        own = kind_of(new.results) is None or new.complete
        return None if own else "the results of another command"
    old = BlockStore.read(folder)
    return None if old.identity == new.identity else _other(old, new)


@checked
def is_finished(plan: Plan, folder: Path) -> bool:
    """Whether a folder holds all of this very sweep."""
    return _blocks(plan, folder).complete


def _compute(
    plan: Plan, store: BlockStore, scheduler: str | None, progress: Progress | None
) -> None:
    done, works = store.done(), plan.works()
    total, taken = int(works.sum()), int(sum(works[number] for number in done))

    def note(steps: int) -> None:
        nonlocal taken
        taken += steps
        if progress is not None:
            progress(taken, total)

    note(0)
    longest_first = np.argsort(-works, kind="stable")
    tasks = [partial(plan.task, int(n)) for n in longest_first if int(n) not in done]
    if scheduler is None:
        run_locally(tasks, store.write, note)
    elif tasks:
        from thalweg.sweeps.cluster import run_on_cluster

        run_on_cluster(scheduler, tasks, store.write, note)


def _blocks(plan: Plan, folder: Path) -> BlockStore:
    """The blocks of this sweep in a folder, whatever is there."""
    return BlockStore(folder, identity(plan), layout(plan), len(plan))


def _store(plan: Plan, out: Path, fresh: bool) -> BlockStore:
    """The store in a folder: the one that is there if it is of this sweep, or a new one."""
    new = _blocks(plan, out)
    begun = (out / MANIFEST).exists()
    if begun and not fresh:
        _require_same(BlockStore.read(out), new)
    _require_own_results(new, replaced=begun and fresh)
    if fresh:
        new.clear()
    if fresh or not (begun or new.complete):
        new.write_manifest()
    new.clean()
    return new


def _require_same(old: BlockStore, new: BlockStore) -> None:
    if old.identity != new.identity:
        raise InputError(
            f"{new.folder} must be a folder of this sweep or a new one, but holds "
            f"{_other(old, new)}; give another `--out`, or `--fresh` to replace it."
        )


def _require_own_results(new: BlockStore, replaced: bool) -> None:
    """Refuse a store that is not this sweep's; one of a sweep is fine if it is to be replaced."""
    kind = kind_of(new.results)
    # One that is too damaged to say what it is lies beside the manifest of a sweep.
    if kind is None or new.complete or (replaced and kind in ("sweep", "damaged")):
        return
    if kind == "damaged":
        open_results(new.results)  # says what is
    raise InputError(
        f"{new.folder} must be a folder of this sweep or a new one, but holds the results of "
        "another command; give another `--out`."
    )


def _other(old: BlockStore, new: BlockStore) -> str:
    """How the sweep in a folder differs from the wanted one."""
    differ = [name for name, value in new.identity.items() if old.identity.get(name) != value]
    for name, what in _DIFFERENCES.items():
        if name in differ:
            return what
    return f"a sweep that was begun with another version of {' and '.join(differ)}"


def identity(plan: Plan) -> dict[str, str]:
    """What must be the same for a sweep to be gone on with."""
    jax = {name: provenance()[name] for name in ("jax", "jaxlib")}
    own = {each.name: fingerprint(each.measure) for each in registered()}
    starts = {name: fingerprint(initialisation.registered(name)) for name in plan.own_starts()}
    names = {"registered": _listed(own), "registered_starts": _listed(starts)}
    return {**plan.identity(), "computation": str(COMPUTATION), **names, **jax}


def _listed(fingerprints: dict[str, str]) -> str:
    """Names with what tells one function of that name from another."""
    return ", ".join(f"{name} ({digest})" for name, digest in fingerprints.items())


def layout(plan: Plan) -> Layout:
    """The grid as the dataset has it."""
    coords: dict[str, tuple[str, tuple[Any, ...]]] = dict(plan.grid.coordinates())
    if "learning_rate" not in coords:
        coords["learning_rate"] = ("", plan.experiment.training.learning_rate)
    attrs = {
        "title": plan.experiment.title,
        "kind": "sweep",
        "experiment": to_toml(plan.experiment),
        "runs": len(plan.grid.points),
        "fields": json.dumps({each.name: each.fields for each in plan.grid.dimensions}),
        "data_files": json.dumps(plan.data_files),
        "format": FORMAT,
        **identity(plan),
        **provenance(),
    }
    names = tuple(each.name for each in plan.grid.dimensions)
    return Layout(names, coords, attrs, plan.grid.long_names())


def _write_experiment(experiment: Experiment, out: Path) -> None:
    with writing_to(out):
        write_text(out / "experiment.toml", to_toml(experiment))
