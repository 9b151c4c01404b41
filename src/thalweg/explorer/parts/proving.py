"""What is proven of the distance to the exact flow, after all else: it may take seconds."""

from collections.abc import Iterator

import numpy as np

from thalweg.dynamics import ValidatedFlow, proven_flow
from thalweg.experiment.performance import interval
from thalweg.experiment.trajectories import together
from thalweg.explorer.computation import Computation, padded
from thalweg.explorer.parts.following import framed_flow
from thalweg.explorer.parts.guaranteeing import certificates
from thalweg.explorer.parts.words import words
from thalweg.explorer.settings import SettingError
from thalweg.explorer.waiting import beside


def proof(known: Computation) -> Iterator[bytes]:
    """The validated flow in the place of the other, the band, and what then is guaranteed."""
    proven = _proven(known)
    known.flow = proven
    yield framed_flow(known)
    forever = [None if run.diverged else proven.forever(run) for run in known.runs]
    known.proven = [
        interval(distances, np.nan if each is None else each)
        for distances, each in zip(known.distances, forever, strict=True)
    ]
    arrays = {
        name: padded([each[f"distance_{name}"] for each in known.proven])
        for name in ("lower", "upper")
    }
    yield known.framed("proof", arrays, radius=proven.largest, forever=forever)
    enabled = known.experiment.certificates.enabled
    yield from certificates(known) if enabled else words(known)


def _proven(known: Computation) -> ValidatedFlow:
    objective, settings = known.network_objective, known.experiment.flow
    if objective is None or not (settings.enabled and settings.validated):
        raise SettingError("No proof was asked for, or nothing is proven of this objective.")
    times = together([run.times for run in known.runs])
    found, reason = beside(known, lambda: proven_flow(objective, known.weights, times, known.check))
    if found is None:
        raise SettingError(reason or "No flow of such a network can be proven.")
    return found
