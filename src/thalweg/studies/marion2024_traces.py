"""Single runs of marion2024, over their steps: figures 1c, 1d, 3c and 3d.

The dataset has the dimensions (version, learning_rate, step): the paper's runs, and those of the
authors' later code, which has other data and, for Gaussian starts, another scale and more steps.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr

from thalweg.curvature import spectrum_along
from thalweg.dynamics import descend
from thalweg.dynamics.trajectory import Recorded
from thalweg.network import AbstractNetwork
from thalweg.objective import Objective
from thalweg.studies.marion2024_common import (
    authors_bounds,
    authors_data,
    authors_objective,
    trace_start,
)
from thalweg.studies.marion2024_sweep import dense_sharpness, squared_distance
from thalweg.studies.parts import Parts
from thalweg.studies.study import Finding, Progress, yes

RATES = (0.02, 0.1)
_EVERY = 5  # steps between two points of the pictures
_COMPARED_EVERY = 25  # steps between two points at which the sharpness is computed twice


class Version(NamedTuple):
    """Which of the authors' runs: their name here, the scale of the start, and the steps."""

    name: str
    scale: float
    steps: int

    @property
    def later(self) -> bool:
        """Whether it is the later code's."""
        return self.name == "later"


def traces(
    versions: Sequence[Version],
    place: int,
    network: AbstractNetwork,
    parts: Parts,
    progress: Progress,
) -> xr.Dataset:
    """All versions in one dataset; the shorter runs end in NaN."""
    done = []
    for version in versions:
        progress(version.name, len(done) / len(versions))
        done.append(parts.get(version.name, partial(_trace, version, place, network)))
    progress("done", 1.0)
    together = xr.concat(
        done, "version", data_vars="all", coords="minimal", compat="override", join="outer"
    )
    return together.drop_encoding()  # that of names read from disk cannot be written again


def _trace(version: Version, place: int, network: AbstractNetwork) -> xr.Dataset:
    """The run at each learning rate, from one start."""
    objective = authors_objective(authors_data(later=version.later), network)
    start = trace_start(place, version.steps, version.scale, network)
    run = descend(
        objective, start, learning_rate=np.array(RATES), steps=version.steps, record_every=_EVERY
    )
    ends = spectrum_along(objective, run.weights)
    chosen = np.broadcast_to(run.steps % _COMPARED_EVERY == 0, (len(RATES), run.steps.size))
    dimensions = ("learning_rate", "step")
    columns = {
        "distance": _distances(objective, run.weights),
        "sharpness": ends.largest,
        "sharpness_error": ends.largest_error,
        "smallest_eigenvalue": ends.smallest,
        "dense_sharpness": dense_sharpness(objective, run.weights, chosen),
    }
    known = {name: ("version", [value]) for name, value in authors_bounds(objective).items()}
    return xr.Dataset(
        {name: (dimensions, values) for name, values in columns.items()},
        {"learning_rate": list(RATES), "step": run.steps},
    ).expand_dims(version=[version.name]).assign(known)  # fmt: skip


class Expected(NamedTuple):
    """Numbers of the authors' runs, computed with their keys and precision apart from this package.

    Those at learning rate 0.1 are given to three digits or four.
    """

    start_sharpness: float
    final_sharpness: float
    """At learning rate 0.02."""
    largest: float | None = None
    """The largest sharpness at learning rate 0.1."""
    late_mean: float | None = None
    """The mean sharpness of the last 100 steps at learning rate 0.1."""
    final_distance: float | None = None
    """At learning rate 0.1."""
    at_a_tenth: float | None = None
    """The first step, of every fifth, with a tenth of the distance, at learning rate 0.02."""


def findings(
    results: xr.Dataset, version: Version, expected: Expected, figure: int
) -> list[Finding]:
    """The calm run converges below 2/η; the other crosses 2/η, oscillates, and stays near."""
    runs = made(results, version)
    calm, edge = runs.sel(learning_rate=RATES[0]), runs.sel(learning_rate=RATES[1])
    name = f"{version.name}:"
    late = float(edge.sharpness[edge.step > version.steps - 100].mean(skipna=False))
    largest = float(edge.sharpness.max(skipna=False))
    oscillations = f"oscillations in figure {figure}d"
    return [
        *_calm(name, calm, expected),
        *_at_the_edge(name, edge, late, oscillations),
        yes(
            f"{name} the distance at η = 0.1 goes up and down, at η = 0.02 it only falls once it "
            "is below one half",
            bool(np.any(np.diff(edge.distance) > 0) and _falls(calm.distance.values)),
            reported=oscillations,
        ),
        *_as_computed_apart(name, "largest sharpness at η = 0.1", largest, expected.largest),
        *_as_computed_apart(
            name, "mean sharpness of the last 100 steps at η = 0.1", late, expected.late_mean
        ),
        *_as_computed_apart(
            name,
            "final squared distance at η = 0.1",
            float(edge.distance[-1]),
            expected.final_distance,
        ),
        *_at_a_tenth(name, calm, expected.at_a_tenth),
        Finding(
            f"{name} sharpness at every 25th step against LAPACK on the whole Hessian: the largest "
            "relative difference",
            float(abs(runs.sharpness / runs.dense_sharpness - 1).max()),
            0.0,
            1e-5,  # 1e-6 of the spectral norm was asked for
        ),
        _complete(name, runs, version),
    ]


def _calm(name: str, calm: xr.Dataset, expected: Expected) -> list[Finding]:
    """The run that stays below 2/η."""
    return [
        Finding(
            f"{name} sharpness at the start",
            float(calm.sharpness[0]),
            expected.start_sharpness * (1 - 1e-4),  # their numbers are given to five digits
            expected.start_sharpness * (1 + 1e-4),
        ),
        Finding(
            f"{name} largest sharpness at η = 0.02, over 2/η",
            float(calm.sharpness.max(skipna=False) * RATES[0] / 2),
            0.0,
            1.0,
            reported="the network does not enter edge of stability",
        ),
        Finding(
            f"{name} final sharpness at η = 0.02",
            float(calm.sharpness[-1]),
            expected.final_sharpness * (1 - 1e-3),  # single against double precision, 1e-6
            expected.final_sharpness * (1 + 1e-3),
        ),
        Finding(
            f"{name} final squared distance at η = 0.02",
            float(calm.distance[-1]),
            0.0,
            1e-10,
        ),
    ]


def _at_the_edge(name: str, edge: xr.Dataset, late: float, oscillations: str) -> list[Finding]:
    """The run that crosses 2/η, again and again."""
    threshold = 2 / RATES[1]
    above = edge.sharpness.values - threshold
    crossings = np.sum(above[1:] * above[:-1] < 0)
    return [
        Finding(
            f"{name} largest sharpness at η = 0.1, over 2/η",
            float(edge.sharpness.max(skipna=False)) / threshold,
            1.2,
            5.0,
            reported="the network enters edge of stability",
        ),
        Finding(
            f"{name} how often the sharpness at η = 0.1 crosses 2/η",
            float(crossings),
            least=3.0,
            reported=oscillations,
        ),
        Finding(
            f"{name} mean sharpness of the last 100 steps at η = 0.1, over 2/η",
            late / threshold,
            0.8,
            1.25,
        ),
        Finding(
            f"{name} final squared distance at η = 0.1",
            float(edge.distance[-1]),
            0.0,
            0.05,
        ),
    ]


def made(results: xr.Dataset, version: Version) -> xr.Dataset:
    """The runs of a version, without the steps that only longer ones have."""
    return results.sel(version=version.name, step=slice(0, version.steps))


def _as_computed_apart(
    name: str, what: str, measured: float, expected: float | None
) -> list[Finding]:
    """A number of the edge of stability; at three digits rounding is up to 0.5 % of it."""
    if expected is None:
        return []
    limits = expected * (1 - 5e-3), expected * (1 + 5e-3)
    return [Finding(f"{name} {what}, as computed apart", measured, *limits)]


def _at_a_tenth(name: str, calm: xr.Dataset, expected: float | None) -> list[Finding]:
    if expected is None:
        return []
    below = calm.distance.values < 0.1 * calm.distance.values[0]
    step = float(calm.step[np.argmax(below)]) if below.any() else np.nan
    statement = f"{name} first step at η = 0.02 with less than a tenth of the distance"
    return [Finding(f"{statement}, as computed apart", step, expected, expected)]


def _complete(name: str, runs: xr.Dataset, version: Version) -> Finding:
    """Whether each number is there; neither run diverges."""
    steps = np.arange(0, version.steps + 1, _EVERY)
    runs = runs.reindex(step=steps)
    twice = xr.DataArray(steps % _COMPARED_EVERY == 0, coords={"step": steps})
    missing = 0
    for variable, values in runs.data_vars.items():
        due = twice if variable == "dense_sharpness" else True
        missing += int((~np.isfinite(values) & due).sum())
    return Finding(f"{name} numbers that are missing", float(missing), 0.0, 0.0)


def _falls(distance: np.ndarray) -> bool:
    """Whether the distance only falls once it is below half, down to where rounding begins."""
    half, rounding = distance < 0.5, distance < 1e-20
    if not half.any():
        return False
    first = int(np.argmax(half))
    last = int(np.argmax(rounding)) if rounding.any() else distance.size
    between = distance[first:last]
    return between.size > 1 and bool(np.all(np.diff(between) < 0))


def _distances(objective: Objective, weights: Recorded) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(jax.vmap(squared_distance(objective))))(weights))
