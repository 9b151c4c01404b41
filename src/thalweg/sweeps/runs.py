"""One block of a sweep: its starts, its descents side by side, and what is measured of each run.

Per run one number each, as `quantities` describes them:

    last_step                             how many steps it took
    diverged_at                           the first step whose loss is not finite; -1 if none
    minimum                               of the loss over all weights; NaN where unknown
    final_loss, final_excess              at the last step, and how far that is above the minimum
    squared_distance                      |W_N ... W_1 - M*|_F^2 at the last step
    {initial,final}_sharpness             largest eigenvalue of the Hessian at both ends of the run
    {initial,final}_smallest_eigenvalue   the smallest one; all four with `_error` behind the name
    largest_sharpness, lowest_eigenvalue  over all points at which they were measured
    phase                                 its outcome, see `phases`; -1 for too few records
    {paper,sharper}_sharpness_bound       what no minimiser is flatter than; NaN where unknown

and at its records `step`, `time`, `loss` and, if asked for, `sharpness` and `smallest_eigenvalue`.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from thalweg._checks import InputError
from thalweg._typing import Weights
from thalweg.curvature import minimiser_sharpness_bounds, spectrum_along
from thalweg.curvature.path import SpectrumPath
from thalweg.dynamics import Descent, descend, nothing
from thalweg.experiment import Experiment, objective
from thalweg.experiment.starts import starts
from thalweg.kernels import suits
from thalweg.measurement import least_loss
from thalweg.objective import Objective
from thalweg.phases import LEAST_RECORDS, TOO_FEW_RECORDS, classify
from thalweg.quantities.registry import QUANTITIES, measures, where_finite
from thalweg.storage.blocks import Block
from thalweg.sweeps.plan import Task, require_data

COMPUTATION = 5
"""Counts up whenever this package finds other numbers for the same runs."""

_POINTS_AT_ONCE = 96  # as many as one set of lanes of `spectrum_along`

Note = Callable[[int], None]
"""Told of network-steps that were taken."""


def compute(task: Task, note: Note = lambda steps: None) -> Block:
    """Run a block on one core."""
    settings: Any = task.experiment
    built = _objective(
        settings.data, settings.network, settings.loss, task.folder, task.data_digest
    )
    weights = starts(task.starts, built)
    rates = np.array(task.rates)
    _compile(task, built, tuple(array[: task.lanes] for array in weights), rates[: task.lanes])
    parts = []
    for first in range(0, rates.size, task.lanes):
        some = slice(first, first + task.lanes)
        some_starts = tuple(array[some] for array in weights)
        parts.append(_measured(task, built, some_starts, rates[some], note))
    numbers, paths = zip(*parts, strict=True)
    return Block(task.cells, _joined(numbers), _joined(paths))


_compiled: set[Any] = set()
_compiling = threading.Lock()


def _compile(
    task: Task, built: Objective, starts: Weights, rates: Float[np.ndarray, " runs"]
) -> None:
    """Let one thread compile what the others will use too, on a run of a few steps."""
    records = -(-task.steps // task.record_every)
    key = (built.network.shapes, type(built.problem), records, task.experiment.curvature.enabled)
    if task.lanes == 1 or key in _compiled or suits(built.chain, starts):
        return
    with _compiling:
        if key not in _compiled:
            short = replace(task, steps=records, record_every=1)
            _measured(short, built, starts, rates, lambda steps: None)
        _compiled.add(key)


def _measured(
    task: Task, built: Objective, starts: Weights, rates: Float[np.ndarray, " runs"], note: Note
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The numbers and paths of runs that fit into one set of lanes."""
    settings = task.experiment
    along = settings.curvature.enabled and settings.sweeping.spectrum_at_records
    taken = 0

    def progress(done: int, total: int) -> None:
        nonlocal taken
        note(done - taken)
        taken = done

    run = descend(
        built,
        starts,
        learning_rate=rates,
        steps=task.steps,
        record_every=task.record_every,
        observe=None if along else nothing,
        progress=progress,
    )
    numbers, paths = _losses(run, built, task.records)
    if along:
        spectrum = _spectrum(built, run.weights, settings.curvature.tolerance)
        for name, values in spectrum.named().items():
            paths[name] = _padded(values, task.records)
        numbers |= _ends(spectrum)
    elif settings.curvature.enabled:
        pairs = tuple(np.stack(pair, axis=1) for pair in zip(starts, run.final, strict=True))
        numbers |= _ends(_spectrum(built, pairs, settings.curvature.tolerance))
    numbers |= _bounds(built, rates.size) | _phases(run, numbers, paths)
    return numbers | _registered(task, built, run), paths


# --- what is measured ----------------------------------------------------------------------------


def _losses(
    run: Descent, built: Objective, records: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    minimum = least_loss(built)
    final = run.loss[:, -1]
    ones = np.ones_like(final)
    numbers = {
        "last_step": ones * float(run.steps[-1]),
        "diverged_at": run.diverged_at.astype(float),
        "minimum": ones * minimum,
        "final_loss": final,
        "final_excess": final - np.nan_to_num(minimum),
        "squared_distance": _squared_distances(built, run.final),
    }
    steps = np.broadcast_to(run.steps.astype(float), run.loss.shape)
    paths = {"step": steps, "time": run.times, "loss": run.loss}
    return numbers, {name: _padded(values, records) for name, values in paths.items()}


def _bounds(built: Objective, runs: int) -> dict[str, np.ndarray]:
    try:
        found = minimiser_sharpness_bounds(built)
        bounds = float(found.paper), float(found.sharper)
    except InputError:  # several outputs, another loss, another network
        bounds = np.nan, np.nan
    names = ("paper_sharpness_bound", "sharper_sharpness_bound")
    return {name: np.full(runs, bound) for name, bound in zip(names, bounds, strict=True)}


def _registered(task: Task, built: Objective, run: Descent) -> dict[str, np.ndarray]:
    """The quantities that users have registered, after the last step.

    All of them in every block, which are put together: NaN where a quantity makes no sense.
    """
    missing = [name for name in task.registered if name not in QUANTITIES]
    if missing:
        raise InputError(
            f"The quantity {missing[0]!r} must be registered in every process of a sweep, and is "
            "not in this one; let the workers of the cluster import the module that registers it."
        )
    known = measures(built)
    functions = {name: known[name] for name in task.registered if name in known}

    def everything(weights: Weights) -> dict[str, Any]:
        return {name: function(weights) for name, function in functions.items()}

    final = run.loss[:, -1]
    found = {name: np.full_like(final, np.nan) for name in task.registered}
    if functions:
        found |= jax.jit(lambda points: jax.lax.map(everything, points))(run.final)
    return {f"final_{name}": where_finite(name, found[name], final) for name in found}


def _phases(
    run: Descent, numbers: dict[str, np.ndarray], paths: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The phase of every run, by the sharpness where it is known."""
    records = run.steps.size
    if records < LEAST_RECORDS:
        return {"phase": np.full(run.loss.shape[0], float(TOO_FEW_RECORDS))}
    sharpness = np.full(run.loss.shape, np.nan)
    if "sharpness" in paths:
        sharpness = paths["sharpness"][:, :records]
    elif "initial_sharpness" in numbers:
        sharpness[:, 0] = numbers["initial_sharpness"]
        sharpness[:, -1] = numbers["final_sharpness"]
    found = classify(
        run.loss, numbers["minimum"], run.learning_rate, sharpness, numbers["diverged_at"]
    )
    return {"phase": found.astype(float)}


def _squared_distances(built: Objective, final: Weights) -> Float[np.ndarray, " runs"]:
    runs = final[0].shape[0]
    linear, squares = built.network.linear, built.problem.least_squares
    if linear is None or squares is None:
        return np.full(runs, np.nan)
    with np.errstate(all="ignore"):  # some have diverged
        product = reduce(lambda below, layer: np.matmul(layer, below), final)
        if linear.readout is not None:
            product = np.matmul(np.asarray(linear.readout).T, product)
        return np.sum((product - np.asarray(squares.minimiser)) ** 2, axis=(1, 2))


def _spectrum(built: Objective, points: Weights, tolerance: float) -> SpectrumPath:
    """Both ends of the spectrum, of as many runs at a time as one core takes."""
    runs, times = points[0].shape[:2]
    at_once = max(1, _POINTS_AT_ONCE // times)
    parts = [
        spectrum_along(
            built, tuple(array[first : first + at_once] for array in points), tolerance=tolerance
        )
        for first in range(0, runs, at_once)
    ]
    return SpectrumPath(*(np.concatenate(rows) for rows in zip(*parts, strict=True)))


def _ends(spectrum: SpectrumPath) -> dict[str, np.ndarray]:
    """The spectrum at the first and the last point, and the extremes over all."""
    numbers = {}
    for when, record in (("initial", 0), ("final", -1)):
        for name, values in spectrum.named().items():
            numbers[f"{when}_{name}"] = values[:, record]
    numbers["largest_sharpness"] = _extreme(np.max, spectrum.largest, -np.inf)
    numbers["lowest_eigenvalue"] = _extreme(np.min, spectrum.smallest, np.inf)
    return numbers


def _extreme(
    choose: Callable[..., np.ndarray], values: Float[np.ndarray, "runs times"], least: float
) -> Float[np.ndarray, " runs"]:
    known: Bool[np.ndarray, "runs times"] = np.isfinite(values)
    found = choose(np.where(known, values, least), axis=1)
    return np.where(known.any(axis=1), found, np.nan)


# --- bookkeeping ---------------------------------------------------------------------------------


def _padded(
    values: Float[np.ndarray, "runs times"], records: int
) -> Float[np.ndarray, "runs records"]:
    room = np.full((values.shape[0], records), np.nan)
    room[:, : values.shape[1]] = values
    return room


def _joined(parts: tuple[dict[str, np.ndarray], ...]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@lru_cache(2)
def _objective(data: Any, network: Any, loss: Any, folder: Path, data_digest: str) -> Objective:
    """Blocks of one group share what they descend, as long as its data files stay what they are."""
    require_data(data, folder, data_digest)
    return objective(Experiment(data=data, network=network, loss=loss), folder)
