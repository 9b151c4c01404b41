"""The phase diagram: what becomes of descent over learning rate and scale of the start.

Every cell has a run for each of some random starts, all of them of the setting's network, data and
time. A column shares its learning rate, so that its runs lie side by side in a kernel; the columns
with large rates, which take few steps, come first. As in `thalweg sweep`, sharpness is measured at
both ends of a run; runs that oscillate, or end near the edge, descend a second time, and it is
measured along them, which tells those at the edge. Theory draws its lines without training:

    start   2 / sharpness of the start, the median of the starts of each scale
    least   2 / sharpness of the flattest minimiser: above, none is linearly stable
    paper   2 / the bound on it of marion2024, theorem 2
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from thalweg.curvature import spectrum_along
from thalweg.dynamics import descend, nothing
from thalweg.experiment import Experiment, to_toml
from thalweg.experiment.settings import DrawnStart
from thalweg.experiment.starts import starts
from thalweg.explorer.computation import Computation
from thalweg.explorer.parts.spectrum import ensure_theory
from thalweg.explorer.settings import MOST_STEPS, SettingError
from thalweg.kernels import suits
from thalweg.objective import Objective
from thalweg.phases import EDGE_WIDTH, LEAST_RECORDS, TOO_FEW_RECORDS, Phase, classify

COLUMNS, ROWS, RUNS = 40, 30, 4
_BELOW, _ABOVE = 5.0, 10.0  # of the middle, which is moved by half decades
_SCALES = (0.6, 1.2, 3.0)  # the largest scale: the first that is not below the setting's
_LEAST_STEPS = 12  # at the largest rate: fewer tell no phases apart
_MOST_OPERATIONS = 3e11  # of all runs: some ten seconds
_SAMPLED = 16  # records of a run at which sharpness is measured, where its ends do not decide
_AT_ONCE = 96  # points whose spectra are had together

Starts = tuple[Float[np.ndarray, "..."], ...]


def phase(known: Computation) -> Iterator[bytes]:
    """The axes, the lines of theory, and then the cells, column by column."""
    objective = _small_linear(known)
    rates, scales = _rates(known), _scales(known.experiment)
    key = _key(known.experiment, rates, scales)
    if known.options.get("phase", {}).get("have") == key:
        yield known.framed("phase", key=key, same=True)
        return
    _require_short(known, rates)
    axes = {"rates": rates, "scales": scales}
    yield known.framed("phase", axes, key=key, runs=RUNS)
    weights = _starts(known.experiment, objective, scales)
    sharpness = _sharpness(known, weights)
    yield _boundaries(known, sharpness)
    for done, column in enumerate(reversed(range(COLUMNS)), start=1):
        known.turn()
        found = _column(known, weights, sharpness, float(rates[column]))
        yield known.framed(
            "phase_tile",
            {"phase": found.reshape(ROWS, RUNS).astype("i1")},
            rows=[0, ROWS],
            columns=[column, column + 1],
            done=done / COLUMNS,
        )


def _small_linear(known: Computation) -> Objective:
    found, settings = known.network_objective, known.experiment
    if not isinstance(settings.start, DrawnStart):
        raise SettingError(
            f'The diagram is over the scale of the start, and "{settings.start.kind}" has none.',
            "start.kind",
        )
    if found is None or not suits(found.chain, known.weights):
        raise SettingError(
            "The diagram takes thousands of runs, and is drawn for small linear networks with a "
            "square loss; `thalweg sweep` draws it for others.",
            "network.kind",
        )
    if settings.training.steps is not None:
        raise SettingError(
            "The diagram is drawn where all runs go on to the same time; set `training.time`.",
            "training.steps",
        )
    return found


def _rates(known: Computation) -> Float[np.ndarray, " columns"]:
    """Around the rate that theory names, where it names one, else around 2 / sharpness."""
    least = ensure_theory(known)["least_sharpness"]
    if not least > 0:
        least = float(np.nanmax(known.spectra[0]["sharpness"][:1])) if known.spectra else np.nan
    middle = 2 / least if least > 0 else 0.1
    middle = 10 ** (round(2 * np.log10(np.clip(middle, 1e-3, 1e1))) / 2)
    longest = known.experiment.training.horizon / _LEAST_STEPS
    most = max(min(middle * _ABOVE, longest), 2 * middle)
    return np.geomspace(middle / _BELOW, most, COLUMNS)


def _scales(settings: Experiment) -> Float[np.ndarray, " rows"]:
    scale = getattr(settings.start, "scale", 0.0)
    most = next((each for each in _SCALES if scale <= each), _SCALES[-1])
    return most * np.arange(1, ROWS + 1) / ROWS


def _key(settings: Experiment, rates: np.ndarray, scales: np.ndarray) -> str:
    """What the diagram depends on: all but where in it the setting is."""
    plain = Experiment()
    alike = settings.model_copy(
        update={
            "title": "",
            "start": settings.start.model_copy(update={"scale": 0.0}),
            "training": settings.training.model_copy(
                update={"learning_rate": plain.training.learning_rate}
            ),
            "flow": plain.flow,
            "certificates": plain.certificates,
            "output": plain.output,
        }
    )
    total = hashlib.sha256(to_toml(alike).encode())
    total.update(rates.tobytes() + scales.tobytes())
    return total.hexdigest()[:16]


def _require_short(known: Computation, rates: np.ndarray) -> None:
    training = known.experiment.training
    steps = [training.steps_at(float(rate)) for rate in rates]
    operations = known.objective.operations(known.weights) * sum(steps) * ROWS * RUNS
    if max(steps) > MOST_STEPS or operations > _MOST_OPERATIONS:
        raise SettingError(
            "The diagram of these settings takes too many steps; take a shorter `training.time`, "
            "or `thalweg sweep`.",
            "training.time",
        )


def _starts(settings: Experiment, objective: Objective, scales: np.ndarray) -> Starts:
    """Of every scale and seed, the seeds of a scale one after the other."""
    first: Any = settings.start
    wanted = [
        first.model_copy(update={"scale": float(scale), "seed": first.seed + number})
        for scale in scales
        for number in range(RUNS)
    ]
    return starts(wanted, objective)


def _sharpness(known: Computation, points: Starts) -> Float[np.ndarray, " runs"]:
    """The largest eigenvalue at each of these points; NaN where they are not finite."""
    found = []
    for first in range(0, len(points[0]), _AT_ONCE):
        known.turn()
        some = tuple(layer[first : first + _AT_ONCE] for layer in points)
        tolerance = known.experiment.curvature.tolerance
        found.append(spectrum_along(known.objective, some, tolerance=tolerance).largest)
    return np.concatenate(found)


def _column(
    known: Computation, weights: Starts, at_start: np.ndarray, rate: float
) -> Int[np.ndarray, " runs"]:
    """The phases of all runs at one learning rate."""
    training = known.experiment.training
    steps, every = training.steps_at(rate), training.record_every(rate)
    if steps < 1 or -(-steps // every) + 1 < LEAST_RECORDS:
        return np.full(len(at_start), TOO_FEW_RECORDS)
    run = descend(
        known.objective, weights, learning_rate=np.full(len(at_start), rate),
        steps=steps, record_every=every, observe=nothing,
    )  # fmt: skip
    sharpness = np.full(run.loss.shape, np.nan)
    sharpness[:, 0], sharpness[:, -1] = at_start, _sharpness(known, run.final)
    found = classify(run.loss, known.minimum, run.learning_rate, sharpness, run.diverged_at)
    close = np.abs(sharpness[:, -1] * rate / 2 - 1) <= EDGE_WIDTH
    unclear = np.flatnonzero(np.isin(found, (Phase.OSCILLATING, Phase.EDGE)) | close)
    if unclear.size:
        some = tuple(layer[unclear] for layer in weights)
        _measure_between(known, some, rate, (steps, every), sharpness, unclear)
        found = classify(run.loss, known.minimum, run.learning_rate, sharpness, run.diverged_at)
    return found


def _measure_between(
    known: Computation,
    weights: Starts,
    rate: float,
    records: tuple[int, int],
    sharpness: Float[np.ndarray, "runs records"],
    which: Int[np.ndarray, " some"],
) -> None:
    """Fill in the sharpness of some runs at about so many of their records as `_SAMPLED` says."""
    steps, every = records
    apart = -(-sharpness.shape[1] // _SAMPLED) | 1  # odd, so that both sides of a step are seen
    run = descend(
        known.objective, weights, learning_rate=np.full(which.size, rate),
        steps=steps, record_every=every * apart,
    )  # fmt: skip
    places = np.arange(apart, sharpness.shape[1] - 1, apart)
    inner = slice(1, 1 + places.size)  # without the start
    points = tuple(layer[:, inner].reshape(-1, *layer.shape[2:]) for layer in run.weights)
    if places.size:
        sharpness[np.ix_(which, places)] = _sharpness(known, points).reshape(which.size, -1)


def _boundaries(known: Computation, at_start: np.ndarray) -> bytes:
    with np.errstate(divide="ignore", invalid="ignore"):
        lines = {"start": 2 / np.nanmedian(at_start.reshape(ROWS, RUNS), axis=1)}
    labels = {"start": "2/sharpness of the start"}
    for name, source, label in (
        ("least", "least_sharpness", "no minimiser is stable to the right"),
        ("paper", "paper_sharpness_bound", "the same by the bound of marion2024"),
    ):
        bound = known.theory[source]
        if bound > 0:
            lines[name], labels[name] = np.full(ROWS, 2 / bound), label
    told = [{"name": name, "label": labels[name], "array": name} for name in lines]
    return known.framed("phase_boundaries", lines, lines=told)
