"""Single runs of marion2024, over their steps: figures 1c, 1d, 3c and 3d.

The dataset has the dimensions (version, learning_rate, step): the paper's runs, and those of the
authors' later code, which has other data and, for Gaussian starts, another scale and more steps.
"""

from collections.abc import Sequence
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
from thalweg.studies.marion2024_sweep import squared_distance
from thalweg.studies.study import Finding, yes

RATES = (0.02, 0.1)
_EVERY = 5  # steps between two points of the pictures


class Version(NamedTuple):
    """Which of the authors' runs: their name here, the scale of the start, and the steps."""

    name: str
    scale: float
    steps: int

    @property
    def later(self) -> bool:
        """Whether it is the later code's."""
        return self.name == "later"


def traces(version: Version, place: int, network: AbstractNetwork) -> xr.Dataset:
    """The run at each learning rate, from one start."""
    objective = authors_objective(authors_data(later=version.later), network)
    start = trace_start(place, version.steps, version.scale, network)
    run = descend(
        objective, start, learning_rate=np.array(RATES), steps=version.steps, record_every=_EVERY
    )
    ends = spectrum_along(objective, run.weights)
    dimensions = ("learning_rate", "step")
    columns = {
        "distance": _distances(objective, run.weights),
        "sharpness": ends.largest,
        "sharpness_error": ends.largest_error,
        "smallest_eigenvalue": ends.smallest,
    }
    known = {name: ("version", [value]) for name, value in authors_bounds(objective).items()}
    return xr.Dataset(
        {name: (dimensions, values) for name, values in columns.items()},
        {"learning_rate": list(RATES), "step": run.steps},
    ).expand_dims(version=[version.name]).assign(known)  # fmt: skip


def joined(versions: Sequence[xr.Dataset]) -> xr.Dataset:
    """Several versions in one dataset; the shorter runs end in NaN."""
    together = xr.concat(
        versions, "version", data_vars="all", coords="minimal", compat="override", join="outer"
    )
    return together.drop_encoding()  # that of names read from disk cannot be written again


class Expected(NamedTuple):
    """Numbers of the authors' runs, computed with their keys apart from this package."""

    start_sharpness: float
    final_sharpness: float
    """At learning rate 0.02."""


def findings(results: xr.Dataset, version: str, expected: Expected) -> list[Finding]:
    """The calm run converges below 2/η; the other crosses 2/η, oscillates, and stays near."""
    runs = made(results.sel(version=version))
    calm, edge = runs.sel(learning_rate=RATES[0]), runs.sel(learning_rate=RATES[1])
    name = f"{version}:"
    threshold = 2 / RATES[1]
    late = edge.sharpness[edge.step > edge.step[-1] - 100]
    above = edge.sharpness.values - threshold
    crossings = np.sum(above[1:] * above[:-1] < 0)
    return [
        Finding(
            f"{name} sharpness at the start",
            float(calm.sharpness[0]),
            expected.start_sharpness * (1 - 1e-4),  # their numbers are given to five digits
            expected.start_sharpness * (1 + 1e-4),
        ),
        Finding(
            f"{name} largest sharpness at η = 0.02, over 2/η",
            float(calm.sharpness.max() * RATES[0] / 2),
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
        Finding(
            f"{name} largest sharpness at η = 0.1, over 2/η",
            float(edge.sharpness.max() / threshold),
            1.2,
            5.0,
            reported="the network enters edge of stability",
        ),
        Finding(
            f"{name} how often the sharpness at η = 0.1 crosses 2/η",
            float(crossings),
            least=3.0,
            reported="oscillations in figure 1d",
        ),
        Finding(
            f"{name} mean sharpness of the last 100 steps at η = 0.1, over 2/η",
            float(late.mean(skipna=False) / threshold),
            0.8,
            1.25,
        ),
        Finding(
            f"{name} final squared distance at η = 0.1",
            float(edge.distance[-1]),
            0.0,
            0.05,
        ),
        yes(
            f"{name} the distance at η = 0.1 goes up and down, at η = 0.02 it has only fallen "
            "since half of the way",
            bool(np.any(np.diff(edge.distance) > 0) and _falls(calm.distance.values)),
            reported="oscillations in figure 1d",
        ),
        Finding(
            f"{name} largest error of a sharpness",
            float(runs.sharpness_error.max()),
            0.0,
            1e-4,
        ),
    ]


def made(run: xr.Dataset) -> xr.Dataset:
    """A run without the steps that only the longer ones of a dataset have."""
    kept = run.dropna("step", how="all")
    return kept if kept.sizes["step"] else run


def _falls(distance: np.ndarray) -> bool:
    """Whether the distance only falls once it is below half, down to where rounding begins."""
    below = distance[(distance < 0.5) & (distance > 1e-20)]
    return below.size > 1 and bool(np.all(np.diff(below) < 0))


def _distances(objective: Objective, weights: Recorded) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(jax.vmap(squared_distance(objective))))(weights))
