"""The main job: descent at several learning rates next to the flow, and all that is measured.

Work goes stage by stage, and every finished part of one may be kept (`storage.keeper`). A run is
recorded at its own steps; one with fewer records than the others is padded with NaN, and so is
whatever could not be measured: the reason then stands in an attribute.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import xarray as xr

from thalweg import quantities
from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._fingerprint import fingerprint
from thalweg._threads import one_blas_thread
from thalweg._typing import AnyWeights
from thalweg._version import __version__
from thalweg.certificates import Question
from thalweg.curvature import spectrum_along
from thalweg.dynamics import AbstractFlow, AbstractTrajectory, Descent, distance
from thalweg.dynamics.trajectory import Distance
from thalweg.experiment import building
from thalweg.experiment.edges import edge_arrays, is_at_the_edge
from thalweg.experiment.estimates import Prepared, prepared
from thalweg.experiment.files import to_toml
from thalweg.experiment.flatness import flatness
from thalweg.experiment.folders import PARTS
from thalweg.experiment.results import NO_CERTIFICATES, Measurements, assemble, phase_of
from thalweg.experiment.settings import Experiment, Output
from thalweg.experiment.trajectories import (
    descent_arrays,
    descent_from,
    flow_arrays,
    flow_at,
    flow_from,
    some_records,
)
from thalweg.measurement import least_loss
from thalweg.objective import AbstractObjective, Objective
from thalweg.quantities.registry import registered
from thalweg.storage.keeper import Arrays, Keeper
from thalweg.theorems import certify_case
from thalweg.tubes import tube

Progress = Callable[[str, float], None]
STAGES = ("descent", "flow", "tube", "spectrum", "quantities", "edge", "certificates")
"""What `perform` does, in this order."""

_NOTHING_PROVEN = "Nothing is proven of it: the bounds are for networks on problems."
_LARGE = 4000  # weights; above, one end of the spectrum takes seconds at every record
_FEW = 20  # records at which it is then measured
_COMPARED = (
    1000  # weights up to which promises are compared with the run, which takes spectra again
)


@checked
def perform(
    experiment: Experiment,
    folder: Path | None = None,
    progress: Progress = lambda stage, share: None,
    *,
    kept_in: Path | None = None,
    ready: Prepared | None = None,
    measured: Callable[[xr.Dataset], None] | None = None,
) -> xr.Dataset:
    """Run the experiment: loss, distance to the flow and curvature of every run, over time.

    Args:
        experiment: what is run.
        folder: where relative paths of data start; the current folder if not given.
        progress: called with a stage's name and how much of it is done.
        kept_in: a folder where finished parts are kept until `folders.finish`; work that was
            interrupted goes on from there, and comes to the same results.
        ready: what `prepared` made of it, if that was done already.
        measured: called with everything but the certificates, before these are checked.
    """
    ready = prepared(experiment, folder) if ready is None else ready
    keeper = keeper_of(experiment, ready, kept_in)
    work = Work(experiment, ready.objective, ready.weights, keeper, progress, measured)
    with one_blas_thread():
        return work.results()


@checked
def keeper_of(experiment: Experiment, ready: Prepared, kept_in: Path | None = None) -> Keeper:
    """What keeps finished parts in a folder of results, under all that they depend on."""
    key = {
        "thalweg": __version__,
        "experiment": to_toml(experiment.model_copy(update={"title": "", "output": Output()})),
        "registered": {each.name: fingerprint(each.measure) for each in registered()},
        "built_by": ready.source,
        "arrays": _digest(jax.tree.leaves((ready.objective, ready.weights))),
    }
    return Keeper(None if kept_in is None else kept_in / PARTS, key)


def _digest(arrays: Iterable[Any]) -> str:
    """Of data and start, which files may change."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


@dataclass(frozen=True)
class Work:
    """An experiment while it is being done."""

    experiment: Experiment
    objective: AbstractObjective
    weights: AnyWeights
    keeper: Keeper
    progress: Progress
    seen: Callable[[xr.Dataset], None] | None = None

    def results(self) -> xr.Dataset:
        """All stages, then all that they found in one dataset."""
        runs = self.descent()
        return self.measured(runs, *self.flow(runs))

    def measured(
        self,
        runs: list[Descent],
        exact: AbstractFlow | None,
        forever: np.ndarray,
        reasons: dict[str, str],
    ) -> xr.Dataset:
        """All stages that come after descent and flow, and everything in one dataset."""
        distances = [self.distance(run, exact) for run in runs]
        proven, no_tube = self.proofs(runs, distances, forever)
        trajectories: list[AbstractTrajectory] = [*runs, *([] if exact is None else [exact])]
        spectra, network = self.spectra(trajectories), self.network_objective
        minimum = np.nan if network is None else least_loss(network)
        found = Measurements(
            runs=runs,
            flow=exact,
            distances=distances,
            proven=proven,
            spectra=spectra,
            quantities=self.quantities(trajectories),
            edges=self.edges(runs, spectra, minimum),
            certificates=NO_CERTIFICATES,
            theory=flatness(network),
            minimum=minimum,
            reasons=reasons | {"no_tube": no_tube},
        )
        if self.seen is not None:
            self.seen(self.assembled(found, {}))
        return self.assembled(replace(found, certificates=self.certificates(runs[0], exact)))

    def assembled(
        self, found: Measurements, circumstances: dict[str, str] | None = None
    ) -> xr.Dataset:
        """One dataset."""
        results = assemble(
            self.experiment, self.objective, found, self.keeper.seconds, circumstances
        )
        return results.assign_attrs(digest=self.keeper.digest)

    def descent(self) -> list[Descent]:
        """One run per learning rate."""
        training, runs = self.experiment.training, []
        for number, rate in enumerate(training.learning_rate):

            def report(share: float, number: int = number) -> None:
                self.progress("descent", (number + share) / len(training.learning_rate))

            def descend(rate: float = rate, report: Callable[[float], None] = report) -> Arrays:
                return descent_arrays(self.objective, self.weights, training, rate, report)

            arrays = self._part("descent", number, descend)
            runs.append(descent_from(arrays, self.objective, self.weights))
            report(1.0)
        return runs

    def flow(self, runs: list[Descent]) -> tuple[AbstractFlow | None, np.ndarray, dict[str, str]]:
        """The flow, what it proves of each run after its end, and why there is no flow or proof."""
        settings, nothing = self.experiment.flow, np.full(len(runs), np.nan)
        self.progress("flow", 0.0)
        if not settings.enabled:
            self.progress("flow", 1.0)
            said = {"no_flow": "The flow was not asked for (flow.enabled = false)."}
            return None, nothing, said
        arrays = self._part(
            "flow", 0, lambda: flow_arrays(self.objective, self.weights, settings, runs)
        )
        self.progress("flow", 1.0)
        found = flow_from(arrays, self.objective, self.weights, settings)
        names = {"no_flow": "reason", "not_validated": "not_validated"}
        said = {name: str(arrays.get(key, "")) for name, key in names.items()}
        return found, arrays.get("forever", nothing), said

    def proofs(
        self, runs: list[Descent], distances: list[Distance], forever: np.ndarray
    ) -> tuple[list[Arrays], str]:
        """What is proven of each run's distance from the flow, or why nothing is.

        Nothing is known of objectives that are no network on a problem.

        A flow that is validated proves it of all runs; else each run proves its own.
        """
        kind, tubes, reason = self.experiment.flow.tube, [], ""
        if self.network_objective is None:
            self.progress("tube", 1.0)
            return [{} for _ in runs], _NOTHING_PROVEN
        validated = [interval(*each) for each in zip(distances, forever, strict=True)]
        if all(validated) or kind == "off":
            self.progress("tube", 1.0)
            said = "" if all(validated) else 'No tube was asked for (flow.tube = "off").'
            return validated, said
        for number, run in enumerate(runs):
            self.progress("tube", number / len(runs))
            arrays = self._part("tube", number, lambda run=run: _tube_arrays(run, kind))
            reason = reason or str(arrays.get("reason", ""))
            tubes.append(arrays)
        self.progress("tube", 1.0)
        return tubes, reason

    def spectra(self, trajectories: list[AbstractTrajectory]) -> list[Arrays]:
        """Both ends of the spectrum along each trajectory."""
        settings, found = self.experiment.curvature, []
        if not settings.enabled or not all(each.has_weights for each in trajectories):
            self.progress("spectrum", 1.0)
            return [{} for _ in trajectories]
        records = settings.records
        size = sum(np.size(array) for array in jax.tree.leaves(self.weights))
        if records is None and size > _LARGE:
            records = _FEW
        for number, each in enumerate(trajectories):
            self.progress("spectrum", number / len(trajectories))
            found.append(
                self._part(
                    "spectrum",
                    number,
                    lambda each=each: _spectrum_arrays(each, records, settings.tolerance),
                )
            )
        self.progress("spectrum", 1.0)
        return found

    def quantities(self, trajectories: list[AbstractTrajectory]) -> list[Arrays]:
        """All that is measured at every record and costs little."""
        found = []
        for number, each in enumerate(trajectories):
            self.progress("quantities", number / len(trajectories))
            found.append(self._part("quantities", number, lambda each=each: quantities.along(each)))
        self.progress("quantities", 1.0)
        return found

    def edges(self, runs: list[Descent], spectra: list[Arrays], minimum: float) -> list[Arrays]:
        """What the central flow says of each run at the edge of stability; nothing of others."""
        found: list[Arrays] = []
        for number, run in enumerate(runs):
            self.progress("edge", number / len(runs))
            if is_at_the_edge(run, phase_of(run, minimum, spectra[number])):
                found.append(self._part("edge", number, lambda run=run: edge_arrays(run)))
            else:
                found.append({})
        self.progress("edge", 1.0)
        return found

    def certificates(self, run: Descent, exact: AbstractFlow | None) -> Mapping[str, str | float]:
        """Which guarantees hold for the first learning rate, as text, and what they bound."""
        self.progress("certificates", 0.0)
        found = NO_CERTIFICATES
        if self.experiment.certificates.enabled and self.network_objective is not None:
            arrays = self._part("certificates", 0, lambda: self._certify(run, exact))
            found = {
                "text": str(arrays["text"]),
                "greatest_sharpness": float(arrays["greatest_sharpness"]),
            }
        self.progress("certificates", 1.0)
        return found

    def _certify(self, run: Descent, exact: AbstractFlow | None) -> Arrays:
        objective = cast(Objective, self.objective)
        case = building.case_of(self.experiment, objective, self.weights)
        small = objective.network.size <= _COMPARED
        if not run.diverged and exact is not None and small:  # NaN meets no bound
            case = replace(case, run=run, flow=flow_at(exact, run.times))
        found = certify_case(case)
        return {
            "text": np.asarray(json.dumps(found.overview())),
            "greatest_sharpness": np.asarray(found.strongest(Question.GREATEST_SHARPNESS)),
        }

    def distance(self, run: Descent, exact: AbstractFlow | None) -> Distance:
        """From a run to the flow, at the run's records."""
        if exact is None or not run.has_weights:
            return np.full(run.times.shape, np.nan).view(Distance)
        with np.errstate(over="ignore", invalid="ignore"):  # of a run that diverges
            return distance(run, flow_at(exact, run.times))

    @property
    def network_objective(self) -> Objective | None:
        """The network on its problem; None where the objective is another one."""
        return self.objective if isinstance(self.objective, Objective) else None

    def _part(self, stage: str, number: int, compute: Callable[[], Arrays]) -> Arrays:
        return self.keeper.get(f"{stage}-{number}", compute)


def _spectrum_arrays(
    trajectory: AbstractTrajectory, records: int | None, tolerance: float
) -> Arrays:
    """Both ends with their errors; NaN at records that were left out."""
    chosen = some_records(trajectory, records)
    points = jax.tree.map(lambda array: np.take(array, chosen, axis=0), trajectory.weights)
    path = spectrum_along(trajectory.objective, points, tolerance=tolerance)
    found = {}
    for name, values in path.named().items():
        found[name] = np.full(trajectory.times.shape, np.nan)
        found[name][chosen] = values
    return found


def interval(distances: Distance, forever: float) -> Arrays:
    """What a validated flow proves of the distance, at every record and after; else nothing."""
    if distances.lower is None or distances.upper is None:
        return {}
    finite = np.isfinite(distances.upper)  # but where a run has diverged
    return {
        "distance_lower": np.where(finite, distances.lower, 0.0),
        "distance_upper": np.where(finite, distances.upper, np.inf),
        "forever": np.asarray(forever),
    }


def _tube_arrays(run: Descent, curvature: str) -> Arrays:
    """What is proven at every record, or the reason why nothing is."""
    try:
        proven = tube(run, curvature=curvature)
    except InputError as error:
        return {"reason": np.asarray(str(error))}
    return {
        "distance_lower": proven.lower,
        "distance_upper": proven.upper,
        "flow_loss_lower": proven.loss_lower,
        "flow_loss_upper": proven.loss_upper,
        "forever": np.asarray(np.nan if proven.forever is None else proven.forever),
    }
