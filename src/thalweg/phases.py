"""The outcome of a run: one of seven phases, decided by its recorded loss and sharpness.

Let e be the loss above the minimum, as a share of the *reference*: the start's own excess, or a
number that is given, such as the excess of a network with output zero. The running minimum is the
least e so far, and S the sharpness, where it was measured. A run has *settled* if e <= SETTLED in
the last tenth of its records, and e *rose* if it got RISE times as large as its running minimum
while it was above SETTLED. The first line that is true decides:

    diverged       the loss is not finite, or e ends above BLOWN_UP times the larger of e(0) and 1
    edge           settled; S ended within EDGE_WIDTH of 2 / eta, and was above it or e rose
    catapult       settled; e rose, or S fell from above 2 / eta at the start to below
    monotone       settled
    edge           in the second half e rises by RISE above its running minimum, yet falls on
                   average, and S hovers: its mean there is within HOVER of 2 / eta
    oscillating    in the second half e rises by RISE above its running minimum
    saddle         in the last quarter e changes by less than FLAT of itself, and the mean of S
                   there is not above 2 / eta
    oscillating    in the last quarter e changes by less than FLAT: every record shows the same side
    descending     all others: the budget was too short

"Falls on average" means that its mean over the last quarter is below FALLING times that over the
second quarter. Where the sharpness is not known, what is asked of it counts as true in the line
for unsettled runs at the edge, and as false elsewhere: then a run that settled at the edge is
called monotone or a catapult. Runs should be recorded at an odd distance of steps, so that an
oscillation from step to step is seen on both sides.

Only ratios enter, so that the phase does not depend on the units of the loss. 2 / eta is the edge
of plain descent; a run with momentum has another, `optimiser.edge(learning_rate)`, which is then
meant wherever 2 / eta stands here.
"""

from enum import IntEnum
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from thalweg._arguments import checked
from thalweg._errors import InputError
from thalweg._quantity import NEVER, NO_RUN, Quantity

__all__ = [
    "BLOWN_UP",
    "EDGE_WIDTH",
    "FALLING",
    "FLAT",
    "HOVER",
    "LEAST_RECORDS",
    "NEVER",
    "NO_RUN",
    "PHASE",
    "RISE",
    "SETTLED",
    "TOO_FEW_RECORDS",
    "Phase",
    "classified",
    "classify",
]


def __dir__() -> list[str]:
    return __all__


SETTLED = 1e-3
BLOWN_UP = 1e6
RISE = 1.1
EDGE_WIDTH = 0.03
HOVER = 0.15
FALLING = 0.8
FLAT = 0.01
_ROUNDING = 64 * np.finfo(float).eps
LEAST_RECORDS = 8
"""With fewer a quarter of a run is not seen."""

TOO_FEW_RECORDS = -1
"""What `phase` is where a run has too few records to say."""


class Phase(IntEnum):
    """The outcome of a run."""

    MONOTONE = 0
    CATAPULT = 1
    EDGE = 2
    OSCILLATING = 3
    DIVERGED = 4
    SADDLE = 5
    DESCENDING = 6

    @property
    def meaning(self) -> str:
        """The phase in words."""
        return _MEANINGS[self]


_MEANINGS = {
    Phase.MONOTONE: "converged monotonically",
    Phase.CATAPULT: "converged through a catapult",
    Phase.EDGE: "at the edge of stability",
    Phase.OSCILLATING: "oscillating",
    Phase.DIVERGED: "diverged",
    Phase.SADDLE: "stuck at a saddle",
    Phase.DESCENDING: "still descending",
}

PHASE = Quantity(
    "phase",
    "outcome of the run",
    missing=NO_RUN,
    dtype="int8",
    flags={NO_RUN: "no run", TOO_FEW_RECORDS: "too few records"}
    | {int(phase): phase.meaning for phase in Phase},
)
"""How phases are stored, and what the numbers mean."""

_PER_RUN = (("minimum", np.nan), ("learning_rate", np.nan))


@checked
def classify(
    loss: Float[np.ndarray, "*runs records"],
    minimum: Any,
    learning_rate: Any,
    sharpness: Any = None,
    diverged_at: Any = None,
    reference: Any = None,
    edge: Any = None,
) -> Int[np.ndarray, "*runs"]:
    """The `Phase` of every run, by the criteria above.

    Args:
        loss: at evenly spaced steps, the start and the end included.
        minimum: the least loss; one number, or one per run. NaN, where it is not known, counts as
            zero, below which no loss of this package is; runs that go below it are refused.
        learning_rate: one number, or one per run.
        sharpness: at the same steps as the loss, if it was measured; NaN where it was not.
        diverged_at: the step at which the loss stopped being finite, -1 where it did not. It
            decides: a loss that is not finite elsewhere is refused. If not given, the loss does.
        reference: what counts as a large excess; the start's own if not given.
        edge: the sharpness above which descent is unstable; that of plain descent, 2 /
            learning_rate, if not given. `run.edge` for other optimisers; NaN where it is not known,
            and then the sharpness counts as not known, too.
    """
    loss = np.asarray(loss, float)
    if loss.ndim == 0 or loss.shape[-1] < LEAST_RECORDS:
        raise InputError(
            f"`loss` must have at least {LEAST_RECORDS} records of each run, got shape "
            f"{loss.shape}; record more often."
        )
    runs, records = loss.shape[:-1], loss.shape[-1]

    def per_run(value: Any) -> Float[np.ndarray, "runs 1"]:
        return np.broadcast_to(np.asarray(value, float), runs).reshape(-1, 1)

    flat = loss.reshape(-1, records)
    limit = 2 / per_run(learning_rate) if edge is None else per_run(edge)
    stability = _measured(sharpness, loss.shape) / limit
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        least = _least(per_run(minimum), flat)
        excess = _excess(flat, least, None if reference is None else per_run(reference))
        broken: Any = ~np.isfinite(flat).all(axis=1)
        if diverged_at is not None:
            broken = _told(broken, per_run(diverged_at)[:, 0] >= 0)
        decided = [
            (broken | _has_blown_up(excess), Phase.DIVERGED),
            *_settled_phases(excess, stability),
            *_open_phases(excess, stability),
        ]
    phase = np.full(flat.shape[0], int(Phase.DESCENDING))
    for true, name in reversed(decided):
        phase = np.where(true, int(name), phase)
    return phase.reshape(runs)


@checked
def classified(runs: xr.Dataset) -> xr.DataArray:
    """The phases of a sweep, with their meanings as attributes (`flag_values`, `flag_meanings`).

    Runs may have different numbers of records: those that a run does not have are NaN in `step`.
    A cell without any has no run, and gets the phase NO_RUN.

    Args:
        runs: with `loss`, `step`, `minimum` and `learning_rate`; `sharpness` along the records or
            else `initial_sharpness` and `final_sharpness`, `diverged_at`, `reference` and `edge`
            are used where they are there, and without `diverged_at` a loss that is not finite
            means that a run diverged. The records are along `record`.
    """
    loss = runs.loss.transpose(..., "record")
    one = loss.isel(record=0, drop=True)

    def values(name: str, default: Any, template: xr.DataArray = one) -> np.ndarray:
        found = runs[name] if name in runs else xr.DataArray(default)
        return np.asarray(found.broadcast_like(template).transpose(*template.dims).values, float)

    counts = np.isfinite(values("step", 0.0, loss)).sum(axis=-1)
    sharpness = values("sharpness", np.nan, loss)
    ends = values("initial_sharpness", np.nan), values("final_sharpness", np.nan)
    singles = [values(name, default) for name, default in _PER_RUN]
    optional = ("diverged_at", "reference", "edge")
    noted = {name: values(name, np.nan) for name in optional if name in runs}
    phase = np.full(one.shape, NO_RUN)
    for count in np.unique(counts[counts > 0]):
        some = counts == count
        known = sharpness[some][:, :count]
        for record, end in zip((0, -1), ends, strict=True):
            missing = np.isnan(known[:, record])
            known[missing, record] = end[some][missing]
        minimum, rate = (each[some] for each in singles)
        own = {name: each[some] for name, each in noted.items()}
        phase[some] = classify(loss.values[some][:, :count], minimum, rate, known, **own)
    return xr.DataArray(phase, one.coords, one.dims, "phase", PHASE.attrs)


# --- what the criteria speak about ---------------------------------------------------------------


_Runs = Float[np.ndarray, "runs records"]
_Some = Bool[np.ndarray, " runs"]


def _least(minimum: Float[np.ndarray, "runs 1"], loss: _Runs) -> Float[np.ndarray, "runs 1"]:
    """The least loss, zero where it is not known: then no loss may be below."""
    unknown = np.isnan(minimum)
    if np.any(unknown & (loss < 0)):
        raise InputError(
            "`minimum` must be given where the loss goes below zero: without it there is no "
            f"telling whether a loss of {np.min(loss[unknown[:, 0]]):.3g} is the least."
        )
    return np.where(unknown, 0.0, minimum)


def _excess(loss: _Runs, minimum: np.ndarray, reference: np.ndarray | None) -> _Runs:
    """As a share of the reference; zero where it is rounding, which may go below the minimum."""
    rounding = _ROUNDING * np.abs(loss[:, :1])
    excess = np.where(loss - minimum <= rounding, 0.0, loss - minimum)
    scale = np.maximum(excess[:, :1] if reference is None else reference, rounding)
    return np.where(excess > 0, excess / scale, excess)  # zero over zero is zero; NaN stays


def _measured(sharpness: Any, shape: tuple[int, ...]) -> _Runs:
    """The sharpness; NaN where it is not known."""
    if sharpness is None:
        return np.full((1, shape[-1]), np.nan)
    values = np.asarray(sharpness, float)
    if values.shape != shape:
        raise InputError(
            f"`sharpness` must have the shape of the loss, {shape}, got {values.shape}; NaN "
            "stands for what was not measured."
        )
    return values.reshape(-1, shape[-1])


def _told(broken: _Some, diverged: _Some) -> _Some:
    """Which runs diverged, as was noted when they ran; a number that is lost is no divergence."""
    if np.any(broken & ~diverged):
        raise InputError(
            "`loss` must be finite in every run that did not diverge, but is not in "
            f"{int((broken & ~diverged).sum())} of them; are numbers missing?"
        )
    return diverged


def _has_blown_up(excess: _Runs) -> _Some:
    return excess[:, -1] > BLOWN_UP * np.maximum(excess[:, 0], 1.0)


def _settled_phases(excess: _Runs, stability: _Runs) -> list[tuple[_Some, Phase]]:
    last = max(1, excess.shape[-1] // 10)
    settled = excess[:, -last:].max(axis=1) <= SETTLED
    end = _mean(stability[:, -last:])
    rose = _rises(excess, above=SETTLED)
    unstable = rose | np.any(stability > 1, axis=1)
    at_edge = unstable & (np.abs(end - 1) <= EDGE_WIDTH)
    fell = (stability[:, 0] > 1) & (end < 1)
    return [
        (settled & at_edge, Phase.EDGE),
        (settled & (rose | fell), Phase.CATAPULT),
        (settled, Phase.MONOTONE),
    ]


def _open_phases(excess: _Runs, stability: _Runs) -> list[tuple[_Some, Phase]]:
    records = excess.shape[-1]
    half, quarter = records // 2, records // 4
    last = excess[:, -quarter:]
    rises = _rises(excess[:, half:])
    falls = last.mean(axis=1) < FALLING * excess[:, quarter:half].mean(axis=1)
    around = _mean(stability[:, half:])
    hovers = ~(np.abs(around - 1) > HOVER)  # true where it is not known
    spread = last.max(axis=1) - last.min(axis=1)
    flat = spread <= FLAT * last.mean(axis=1)
    return [
        (rises & falls & hovers, Phase.EDGE),
        (rises, Phase.OSCILLATING),
        (flat & ~(_mean(stability[:, -quarter:]) > 1), Phase.SADDLE),
        (flat, Phase.OSCILLATING),
    ]


def _rises(excess: _Runs, above: float = 0.0) -> _Some:
    """Whether it gets RISE times as large as its running minimum, while it is above this."""
    lowest = np.minimum.accumulate(excess, axis=1)
    return np.any((excess > RISE * lowest) & (excess > above), axis=1)


def _mean(values: _Runs) -> Float[np.ndarray, " runs"]:
    """Over what is known of the last axis; NaN where nothing is."""
    known = np.isfinite(values)
    return np.where(known, values, 0.0).sum(axis=1) / np.where(
        known.any(axis=1), known.sum(axis=1), np.nan
    )
