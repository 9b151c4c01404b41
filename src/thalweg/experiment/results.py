"""One dataset for all that an experiment found, with its settings and how it was made."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jax
import numpy as np
import xarray as xr

from thalweg._typing import AnyWeights
from thalweg.dynamics import AbstractFlow, Descent, Flow
from thalweg.experiment.files import to_toml
from thalweg.experiment.settings import Experiment
from thalweg.kernels import suits
from thalweg.measurement import balance_defect
from thalweg.objective import AbstractObjective, Objective
from thalweg.phases import LEAST_RECORDS, NEVER, TOO_FEW_RECORDS, Phase, classify
from thalweg.quantities import QUANTITIES, described
from thalweg.quantities.of_runs import ACROSS_KINKS
from thalweg.storage import FORMAT, provenance
from thalweg.storage.keeper import Arrays

KIND = "run"
"""What the attribute `kind` of such a dataset says."""

NO_CERTIFICATES: Mapping[str, str | float] = {"text": "", "greatest_sharpness": np.nan}
"""What there is of theorems where none was asked for, or none was checked yet."""

_CHECKED = 8  # steps of each run that are held against the law of imbalances
_PROVEN = ("distance_lower", "distance_upper", "flow_loss_lower", "flow_loss_upper")


@dataclass(frozen=True)
class Measurements:
    """What the stages found: lists go by trajectory, the runs first and the flow, if any, last."""

    runs: list[Descent]
    flow: AbstractFlow | None
    distances: Sequence[np.ndarray]
    proven: list[Arrays]
    spectra: list[Arrays]
    quantities: list[Arrays]
    edges: list[Arrays]
    certificates: Mapping[str, str | float]
    theory: dict[str, float]
    minimum: float
    reasons: dict[str, str]


def assemble(
    experiment: Experiment,
    objective: AbstractObjective,
    found: Measurements,
    seconds: float,
    circumstances: dict[str, str] | None = None,
) -> xr.Dataset:
    """The dataset; runs over (learning_rate, record), the flow over flow_time.

    Args:
        experiment: what was run.
        objective: what was descended.
        found: what came of it.
        seconds: how long it took.
        circumstances: versions, machine and commit, which are found out if not given.
    """
    variables: dict[str, Any] = {
        **_of_runs(found),
        **_of_proofs(found),
        **_of_flow(found),
        "minimum": found.minimum,
        "greatest_sharpness": float(found.certificates["greatest_sharpness"]),
        **found.theory,
    }
    coordinates: dict[str, Any] = {"learning_rate": list(experiment.training.learning_rate)}
    if found.flow is not None:
        coordinates["flow_time"] = found.flow.times
    results = xr.Dataset(
        variables,
        coords=coordinates,
        attrs={
            "kind": KIND,
            "format": FORMAT,
            "title": experiment.title,
            "experiment": settings_of(experiment, objective),
            **_description(objective, found.runs[0].final),
            "certificates": str(found.certificates["text"]),
            **found.reasons,
            **_of_the_flow(found.flow),
            **(_circumstances() if circumstances is None else circumstances),
            "seconds": seconds,
        },
    )
    return described(results)


def _of_runs(found: Measurements) -> dict[str, Any]:
    runs, by_run = found.runs, ("learning_rate", "record")
    variables: dict[str, Any] = {
        "step": (by_run, _padded([run.steps.astype(float) for run in runs])),
        "time": (by_run, _padded([run.times for run in runs])),
        "loss": (by_run, _padded([run.loss for run in runs])),
        "distance": (by_run, _padded(found.distances)),
        "edge": ("learning_rate", [float(run.edge) for run in runs]),
        "balance_defect": ("learning_rate", [_balance_defect(run) for run in runs]),
        "diverged_at": (
            "learning_rate",
            [int(run.diverged_at) for run in runs],
        ),
    }
    merged = [low | high for low, high in zip(found.quantities, found.spectra, strict=True)]
    for name in (each for each in merged[0] if each in QUANTITIES):  # not how long it took
        variables[name] = (by_run, _padded([each[name] for each in merged[: len(runs)]]))
        if found.flow is not None:
            variables[f"flow_{name}"] = ("flow_time", merged[-1][name])
    for name in dict.fromkeys(name for each in found.edges for name in each):
        unknown = [np.full(run.times.shape, np.nan) for run in runs]
        rows = [each.get(name, none) for each, none in zip(found.edges, unknown, strict=True)]
        variables[name] = (by_run, _padded(rows))
    phases = [phase_of(run, found.minimum, each) for run, each in zip(runs, merged, strict=False)]
    return variables | {"phase": ("learning_rate", np.array(phases, np.int8))}


def _balance_defect(run: Descent) -> float:
    """The largest over some steps; NaN where the law is about something else, or it costs much."""
    objective = run.objective
    if not (isinstance(objective, Objective) and run.optimiser.plain and run.has_weights):
        return np.nan
    if objective.network.linear is None or not suits(objective.chain, run.weights):
        return np.nan
    found = balance_defect(run, _CHECKED)
    known = found[np.isfinite(found)]
    return float(known.max()) if known.size else np.nan


def phase_of(run: Descent, minimum: float, measured: Arrays) -> int:
    """The outcome of one run, by its sharpness where it was measured."""
    if run.diverged:
        return int(Phase.DIVERGED)
    if run.steps.size < LEAST_RECORDS:
        return TOO_FEW_RECORDS
    sharpness = measured.get("sharpness")
    return int(classify(run.loss, minimum, run.learning_rate, sharpness, NEVER, edge=run.edge))


def _of_proofs(found: Measurements) -> dict[str, Any]:
    """What is proven: between zero and infinity where nothing is."""
    pairs = list(zip(found.runs, found.proven, strict=True))
    variables: dict[str, Any] = {}
    for name in _PROVEN:
        unknown = 0.0 if name.endswith("lower") else np.inf
        rows = [each.get(name, np.full(run.times.size, unknown)) for run, each in pairs]
        variables[name] = (("learning_rate", "record"), _padded(rows))
    return variables | {
        "proven_until": ("learning_rate", [_proven_until(run, each) for run, each in pairs]),
        "proven_forever": (
            "learning_rate",
            [float(each.get("forever", np.nan)) for each in found.proven],
        ),
    }


def _of_flow(found: Measurements) -> dict[str, Any]:
    if found.flow is None:
        return {}
    return {
        "flow_loss": ("flow_time", found.flow.loss),
        "flow_error": ("flow_time", found.flow.error),
        **(_of_kinks(found.flow) if isinstance(found.flow, Flow) else {}),
    }


def _of_kinks(flow: Flow) -> dict[str, Any]:
    """What a flow across kinks met; nothing where the solver knows of none."""
    named = {each.name: flow.records.get(each.name.removeprefix("flow_")) for each in ACROSS_KINKS}
    known = {name: ("flow_time", values) for name, values in named.items() if values is not None}
    if not known:
        return {}
    uncertain = flow.times[flow.branch_uncertain]
    return {**known, "branch_uncertain_from": uncertain[0] if uncertain.size else np.nan}


def _proven_until(run: Descent, proven: Arrays) -> float:
    """The last recorded time at which the distance is bounded."""
    if "distance_upper" not in proven:
        return 0.0
    return float(run.times[np.isfinite(proven["distance_upper"])][-1])


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    longest = max(row.size for row in rows)
    return np.stack([np.pad(row, (0, longest - row.size), constant_values=np.nan) for row in rows])


# --- attributes ----------------------------------------------------------------------------------


def settings_of(experiment: Experiment, objective: AbstractObjective) -> str:
    """The settings in TOML; those of a network on a problem only where there is one."""
    whole = isinstance(objective, Objective)
    return to_toml(experiment, own_model=not whole)


def _description(objective: AbstractObjective, weights: AnyWeights) -> dict[str, Any]:
    """What was built, for readers of the report."""
    if not isinstance(objective, Objective):
        return {
            "objective": type(objective).__name__,
            "weights": sum(int(np.size(array)) for array in jax.tree.leaves(weights)),
            "samples": int(getattr(objective, "samples", 0)),
            "loss_name": "",
        }
    network, problem = objective.network, objective.problem
    return {
        "network": "homogeneous" if network.linear is None else "linear",
        "depth": len(network.shapes),
        "weights": int(network.size),
        "problem": type(problem).__name__,
        "loss_name": problem.loss_name,
        "samples": int(problem.inputs.shape[0]),
        "features": int(problem.shape[1]),
        "outputs": int(problem.shape[0]),
    }


def _of_the_flow(exact: AbstractFlow | None) -> dict[str, Any]:
    return {} if exact is None else {"flow_solver": exact.solver}


def _circumstances() -> dict[str, Any]:
    """Versions, machine and commit; nothing that tells where on a disk things were."""
    commit = _commit()
    return {
        **provenance(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"commit": commit} if commit else {}),
    }


def _commit() -> str:
    """The commit of the repository that the command was called in, if it was in one."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()
