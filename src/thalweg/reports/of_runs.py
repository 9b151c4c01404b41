"""The report of a run from Python, of any objective, with or without a flow next to it."""

from os import PathLike
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import xarray as xr

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._threads import one_blas_thread
from thalweg.dynamics import AbstractFlow, Descent
from thalweg.experiment.files import to_toml
from thalweg.experiment.performance import Work
from thalweg.experiment.settings import Experiment
from thalweg.experiment.trajectories import together
from thalweg.objective import Objective
from thalweg.reports.writing import write
from thalweg.storage.keeper import Keeper


@checked
def report(
    run: Descent,
    *,
    flow: AbstractFlow | None = None,
    folder: str | PathLike[str] = "thalweg-report",
    title: str = "",
    records: int | None = None,
    tolerance: float = 1e-4,
) -> Path:
    """Measure a run and write the page that `thalweg run` writes; the path of the page.

    What needs a network on a problem, such as certificates, is left out for other objectives.

    Args:
        run: what `descend` returned, of one learning rate or of several from one start.
        flow: the flow from the same start; it is integrated again where its times are others.
        folder: where data, pictures and page go.
        title: what the page is called.
        records: at how many records of each trajectory the spectrum is measured; at all, or at 20
            above 4000 weights, if not given.
        tolerance: the error of the eigenvalues that is asked for, as a part of the spectral norm.
    """
    runs, place = _single(run), Path(folder)
    if flow is not None and flow.times.ndim != 1:
        raise InputError(f"`flow` must be one flow, got a batch of shape {flow.times.shape[:-1]}.")
    with one_blas_thread():
        results = _measured(runs, flow, place, title, records, tolerance)
    return write(results, place)


def _measured(
    runs: list[Descent],
    flow: AbstractFlow | None,
    folder: Path,
    title: str,
    records: int | None,
    tolerance: float,
) -> xr.Dataset:
    settings = Experiment.model_validate(
        {
            "title": title,
            "start": {"kind": "identity"},  # of which theorems know no distribution
            "training": {
                "learning_rate": [float(each.learning_rate) for each in runs],
                "steps": max(int(runs[0].steps[-1]), 1),
                "records": runs[0].steps.size,
            },
            "curvature": {"records": records, "tolerance": tolerance},
            "certificates": {"enabled": _is_plain_network(runs[0])},
            "output": {"folder": folder.name or "."},
        }
    )
    exact = None if flow is None else flow.brought_to(together([each.times for each in runs]))
    start = jax.tree.map(lambda array: array[0], runs[0].weights)
    work = Work(settings, runs[0].objective, start, Keeper(None, {}), lambda stage, share: None)
    said = {"no_flow": "" if exact else "No flow was given.", "not_validated": ""}
    results = work.measured(runs, exact, np.full(len(runs), np.nan), said)
    results.attrs["experiment"] = to_toml(settings, own_model=True)
    return results


def _is_plain_network(run: Descent) -> bool:
    return isinstance(run.objective, Objective) and run.optimiser.plain


def _single(run: Descent) -> list[Descent]:
    """The runs of a batch over learning rates, one by one."""
    rates = run.learning_rate
    if not run.has_weights:
        raise InputError(
            "`run` must have kept its weights to be measured, but it kept what `observe` returned; "
            "descend without `observe`."
        )
    starts = [np.take(array, 0, axis=rates.ndim) for array in jax.tree.leaves(run.weights)]
    if rates.ndim > 1 or (rates.ndim and not all(np.all(each == each[:1]) for each in starts)):
        raise InputError(
            f"`run` must be of one start, at one learning rate or a list of them, got a batch of "
            f"shape {rates.shape}; report its parts one by one."
        )
    if len(set(np.ravel(rates))) < rates.size:
        raise InputError("`run` must have different learning rates, got one of them twice.")
    return [run] if rates.ndim == 0 else [_one(run, place) for place in range(rates.size)]


def _one(run: Descent, place: int) -> Descent:
    def fields(each: Descent) -> tuple[Any, ...]:
        return (
            each.learning_rate, each.times, each.weights, each.loss, each.diverged_at, each._final
        )  # fmt: skip

    return eqx.tree_at(
        fields, run, jax.tree.map(lambda array: np.asarray(array)[place], fields(run))
    )
