"""Descent over learning rates, scales of the start and repetitions, as marion2024 sweeps them.

The dataset of a sweep has the dimensions (learning_rate, repetition, scale). Where a learning rate
has fewer repetitions than another, what is missing is NaN; `diverged` is 0 or 1 where there was a
run. What is measured at the end is measured after the last step, and is NaN where a run diverged,
and nowhere else. Where a sweep says so, `dense_sharpness` is the final sharpness of the first
repetitions once more, from the whole Hessian.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from thalweg import measurement
from thalweg._typing import Scalar, Weights
from thalweg.curvature import extreme_eigenvalues, spectrum_along
from thalweg.dynamics import descend, nothing
from thalweg.dynamics.trajectory import Recorded
from thalweg.objective import Objective
from thalweg.studies.marion2024_common import Row
from thalweg.studies.parts import Parts
from thalweg.studies.study import Progress

Measures = Mapping[str, Callable[[Weights], Scalar]]
Starts = Callable[[Row], Recorded]

COMPARED = 1
"""Repetitions whose final sharpness is computed once more, where a sweep is `compared`."""

FEW = 0.25
"""The share of runs below which those that did not diverge are few."""

_DIMENSIONS = ("repetition", "scale")


class Sweep(NamedTuple):
    """What is run: an objective, the authors' starts for a row, the rows, and the scales."""

    objective: Objective
    starts: Starts
    rows: Sequence[Row]
    scales: tuple[float, ...]
    measures: Measures
    together: int = 100
    """Repetitions that make one part of a study, so that an interrupted one loses little."""
    compared: bool = False
    """Whether the first repetition's sharpness is compared with dense eigenvalues."""

    def run(self, parts: Parts, progress: Progress) -> xr.Dataset:
        """Do all of it, or what is left of it."""
        total = sum(row.steps * row.repetitions for row in self.rows)
        done, finished = 0.0, []
        for row in self.rows:
            drawn = self.starts(row)
            for first in range(0, row.repetitions, self.together):
                chosen = slice(first, min(first + self.together, row.repetitions))
                share = row.steps * (chosen.stop - chosen.start) / total
                inner = _within(progress, f"learning rate {row.learning_rate:g}", done, share)
                starts = tuple(array[chosen] for array in drawn)
                part = parts.get(
                    f"rate-{row.learning_rate:g}-from-{first}",
                    lambda starts=starts, row=row, first=first, inner=inner: self._part(
                        starts, row, first, inner
                    ),
                )
                finished.append(part)
                done += share
                progress(f"learning rate {row.learning_rate:g}", min(done, 1.0))
        return _joined(finished)

    def _part(
        self, starts: Recorded, row: Row, first: int, progress: Callable[[int, int], None]
    ) -> xr.Dataset:
        run = descend(
            self.objective, starts, learning_rate=row.learning_rate, steps=row.steps,
            record_every=row.steps, observe=nothing, progress=progress,
        )  # fmt: skip
        diverged = run.diverged
        before, after = (_ends(self.objective, each) for each in (starts, run.final))
        columns = {
            "diverged": diverged.astype(float),
            "start_loss": run.loss[..., 0],
            "final_loss": _where(~diverged, run.loss[..., -1]),
            "start_sharpness": before.largest,
            "start_smallest": before.smallest,
            "final_sharpness": _where(~diverged, after.largest),
            # Of both ends, and NaN where either was not found, unless there is no end.
            "sharpness_error": np.maximum(before.error, np.where(diverged, 0.0, after.error)),
        }
        if self.compared:
            chosen = (first + np.arange(diverged.shape[0]) < COMPARED)[:, None] & ~diverged
            columns["dense_sharpness"] = dense_sharpness(self.objective, run.final, chosen)
        for name, measure in self.measures.items():
            columns[f"start_{name}"] = _everywhere(measure, starts)
            columns[f"final_{name}"] = _where(~diverged, _everywhere(measure, run.final))
        repetitions = first + np.arange(diverged.shape[0])
        part = xr.Dataset(
            {name: (_DIMENSIONS, values) for name, values in columns.items()},
            {"repetition": repetitions, "scale": list(self.scales)},
        )
        return part.expand_dims(learning_rate=[row.learning_rate])


def squared_distance(objective: Objective) -> Callable[[Weights], Scalar]:
    """|w_prod - w_star|^2, summed over the entries as the paper writes it."""
    return lambda weights: measurement.distance_to_minimiser(objective, weights) ** 2


def dense_sharpness(
    objective: Objective, weights: Recorded, chosen: Bool[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """The largest eigenvalue of the whole Hessian (LAPACK) at chosen points, NaN at others."""
    values = np.full(chosen.shape, np.nan)
    for place in zip(*np.nonzero(chosen), strict=True):
        point = tuple(array[place] for array in weights)
        values[place] = extreme_eigenvalues(objective, point, method="dense").largest[0].value
    return values


def few(diverged: xr.DataArray) -> xr.DataArray:
    """Where fewer than a quarter of the runs are left, too few for a mean or a median."""
    runs = diverged.notnull().sum("repetition")
    return (diverged == 0).sum("repetition") < FEW * runs


def mean_and_interval(
    values: xr.DataArray, resamplings: int = 1000
) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """The mean over the runs that did not diverge, and its 95 % bootstrap interval."""
    from scipy.stats import bootstrap  # slow to load

    rng = np.random.default_rng(0)
    table = values.transpose(..., "repetition").values
    flat = table.reshape(-1, table.shape[-1])
    rows = np.full((3, flat.shape[0]), np.nan)
    for place, each in enumerate(flat):
        kept = each[np.isfinite(each)]
        if kept.size == 1:
            rows[:, place] = kept
        elif kept.size:
            drawn = bootstrap(
                (kept,), np.mean, n_resamples=resamplings, method="percentile", rng=rng
            )
            rows[:, place] = kept.mean(), *drawn.confidence_interval
    like = values.isel(repetition=0, drop=True)
    order = [name for name in values.dims if name != "repetition"]
    shaped = [row.reshape(table.shape[:-1]) for row in rows]
    mean, low, high = (xr.DataArray(each, dims=order, coords=like.coords) for each in shaped)
    return mean, low, high


def _joined(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """All parts in one dataset, NaN where there was no run."""
    rates = list(dict.fromkeys(float(part.learning_rate[0]) for part in parts))
    rows = [
        xr.concat(
            [part for part in parts if float(part.learning_rate[0]) == rate],
            "repetition", data_vars="all", coords="minimal", compat="override", join="outer",
        )
        for rate in rates
    ]  # fmt: skip
    return xr.concat(
        rows, "learning_rate", data_vars="all", coords="minimal", compat="override", join="outer"
    )


def _everywhere(measure: Callable[[Weights], Scalar], weights: Recorded) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(jax.vmap(measure)))(weights))


def _where(good: Bool[np.ndarray, "..."], values: Float[np.ndarray, "..."]) -> np.ndarray:
    return np.where(good, values, np.nan)


class _Ends(NamedTuple):
    """Both ends of the spectrum, and the error of the larger one as a part of the norm."""

    smallest: Float[np.ndarray, "..."]
    largest: Float[np.ndarray, "..."]
    error: Float[np.ndarray, "..."]


def _ends(objective: Objective, weights: Recorded) -> _Ends:
    if objective.network.linear is not None:
        path = spectrum_along(objective, weights)
        found = path.smallest, path.largest, path.largest_error
    else:
        found = _dense_ends(objective, weights)
    smallest, largest, error = found
    return _Ends(smallest, largest, error / np.maximum(np.abs(smallest), np.abs(largest)))


def _dense_ends(
    objective: Objective, weights: Recorded
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Point by point: what Lanczos saves over a few hundred points, its compilation costs."""
    shape = weights[0].shape[:2]
    rows = np.full((3, *shape), np.nan)
    for place in np.ndindex(shape):
        point = tuple(array[place] for array in weights)
        if all(np.isfinite(array).all() for array in point):
            ends = extreme_eigenvalues(objective, point, method="dense")
            low, high = ends.smallest[0], ends.largest[0]
            rows[:, *place] = low.value, high.value, high.error
    return rows[0], rows[1], rows[2]


def _within(
    progress: Progress, stage: str, done: float, share: float
) -> Callable[[int, int], None]:
    """Progress of a part as progress of the whole."""
    return lambda steps, total: progress(stage, min(done + share * steps / total, 1.0))
