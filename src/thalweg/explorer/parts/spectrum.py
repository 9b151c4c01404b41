"""Both ends of the Hessian's spectrum along descent, and what theory says of minimisers."""

from collections.abc import Iterator

import numpy as np

from thalweg.curvature import spectrum_along
from thalweg.dynamics import AbstractTrajectory
from thalweg.experiment.flatness import flatness
from thalweg.explorer.computation import Computation, padded
from thalweg.explorer.parts.records import at_records, thinned
from thalweg.phases import LEAST_RECORDS, NEVER, Phase, classify
from thalweg.storage.keeper import Arrays

NAMES = ("sharpness", "sharpness_error", "smallest_eigenvalue", "smallest_eigenvalue_error")
_OPERATIONS = 4e7  # of products with the Hessian, some 200 gradients for each record


def sharpness(known: Computation) -> Iterator[bytes]:
    """Sharpness and smallest eigenvalue with their errors, bounds for minimisers, and the phase."""
    known.spectra = [ends_along(known, run) for run in known.runs]
    ensure_theory(known)
    arrays = {name: padded([each[name] for each in known.spectra]) for name in NAMES}
    phases = [_phase(known, number) for number in range(len(known.runs))]
    yield known.framed(
        "sharpness",
        arrays,
        **known.theory,
        phases=[None if each is None else each.name.lower() for each in phases],
        phase_meanings=[None if each is None else each.meaning for each in phases],
    )


def ensure_theory(known: Computation) -> dict[str, float]:
    """What theory says of minimisers, found when it is first asked for."""
    known.theory = known.theory or flatness(known.network_objective)
    return known.theory


def ends_along(known: Computation, trajectory: AbstractTrajectory) -> Arrays:
    """Both ends at as many records as can be had at once; NaN at the others."""
    cost = known.objective.operations(known.weights)
    chosen = thinned(trajectory, max(16, int(_OPERATIONS / cost)))
    tolerance = known.experiment.curvature.tolerance
    path = spectrum_along(known.objective, at_records(trajectory, chosen), tolerance=tolerance)
    found = {name: np.full(trajectory.times.shape, np.nan) for name in NAMES}
    for name, values in path.named().items():
        if name in found:
            found[name][chosen] = values
    return found


def _phase(known: Computation, number: int) -> Phase | None:
    run = known.runs[number]
    if run.diverged:
        return Phase.DIVERGED
    if run.steps.size < LEAST_RECORDS:
        return None
    measured = known.spectra[number]["sharpness"]
    return Phase(int(classify(run.loss, known.minimum, run.learning_rate, measured, NEVER)))
