"""The trajectories of an experiment, and their form as arrays: descent at every rate, and the flow.

The flow is integrated once, at the times of all runs together, and then compared with each.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from thalweg._typing import AnyWeights
from thalweg.dynamics import (
    AbstractFlow,
    AbstractTrajectory,
    Descent,
    Flow,
    FlowError,
    ValidatedFlow,
    descend,
    flow,
    proven_flow,
)
from thalweg.experiment.settings import FlowSettings, Training
from thalweg.objective import AbstractObjective, Objective
from thalweg.solvers.choosing import SOLVERS
from thalweg.storage.keeper import Arrays

Times = Float[np.ndarray, " times"]

_MOST_STEPS = 100_000
_OF_A_RUN = ("learning_rate", "steps", "times", "loss", "diverged_at")
_OF_A_FLOW = (
    "times", "loss", "error", "steady_at", "gradient_evaluations", "hvp_evaluations",
    "hessian_evaluations", "companion_evaluations",
)  # fmt: skip
_OF_A_VALIDATED_FLOW = ("times", "loss", "error", "largest")
_RECORD = "record_"  # before the names of what a solver recorded
_SAME = 1e-12  # of the horizon: times that differ by rounding alone


def descent_arrays(
    objective: AbstractObjective,
    weights: AnyWeights,
    training: Training,
    rate: float,
    progress: Any,
) -> Arrays:
    """One run of descent."""
    run = descend(
        objective,
        weights,
        learning_rate=rate,
        steps=training.steps_at(rate),
        record_every=training.record_every(rate),
        progress=lambda done, total: progress(done / total),
    )
    named = {name: np.asarray(getattr(run, name)) for name in _OF_A_RUN}
    return named | _numbered("weights", run.weights) | _numbered("final", run.final)


def descent_from(arrays: Arrays, objective: AbstractObjective, weights: AnyWeights) -> Descent:
    """The run that these arrays describe, from a start of the structure of these weights."""
    numbers: dict[str, Any] = {name: arrays[name] for name in _OF_A_RUN}
    return Descent(
        objective=objective,
        weights=_tree(arrays, "weights", weights),
        observed=None,
        _final=_tree(arrays, "final", weights),
        **numbers,
    )


def flow_arrays(
    objective: AbstractObjective,
    weights: AnyWeights,
    settings: FlowSettings,
    runs: Sequence[Descent],
) -> Arrays:
    """The flow at the times of all runs, or the reason why there is none."""
    times = together([run.times for run in runs])
    proven, reason = None, ""
    if settings.validated and isinstance(objective, Objective):
        proven, reason = proven_flow(objective, weights, times)
    if proven is not None:
        named = {name: np.asarray(getattr(proven, name)) for name in _OF_A_VALIDATED_FLOW}
        # While the curve is there, which is not kept.
        known = [None if run.diverged else proven.forever(run) for run in runs]
        named["forever"] = np.array([np.nan if each is None else each for each in known])
        return named | _numbered("weights", proven.weights)
    try:
        exact = flow(
            objective,
            weights,
            times=times,
            rtol=settings.rtol,
            atol=settings.atol,
            solver=SOLVERS[settings.solver](),
            max_steps=_MOST_STEPS,
        )
    except FlowError as error:
        return {"reason": np.asarray(str(error))}
    named = {name: np.asarray(getattr(exact, name)) for name in (*_OF_A_FLOW, "solver")}
    named["not_validated"] = np.asarray(reason)
    named |= {f"{_RECORD}{name}": values for name, values in exact.records.items()}
    return named | _numbered("weights", exact.weights)


def flow_from(
    arrays: Arrays, objective: AbstractObjective, weights: AnyWeights, settings: FlowSettings
) -> AbstractFlow | None:
    """The flow that these arrays describe; None where it could not be followed."""
    if "reason" in arrays:
        return None
    points = _tree(arrays, "weights", weights)
    start = jax.tree.map(np.asarray, weights)
    if "largest" in arrays:
        return _validated_from(arrays, objective, points, start)
    return Flow(
        objective=objective,
        weights=points,
        start=start,
        rtol=settings.rtol,
        atol=settings.atol,
        solver=str(arrays["solver"]),
        steady=None,
        records={
            name.removeprefix(_RECORD): values
            for name, values in arrays.items()
            if name.startswith(_RECORD)
        },
        _asked=SOLVERS[settings.solver](),
        _max_steps=_MOST_STEPS,
        **{name: arrays[name] for name in _OF_A_FLOW},
    )


def _validated_from(
    arrays: Arrays,
    objective: Any,
    points: AnyWeights,
    start: AnyWeights,
) -> ValidatedFlow:
    return ValidatedFlow(
        objective=objective,
        weights=points,
        start=start,
        largest=float(arrays["largest"]),
        failed_at=None,
        curve=None,
        times=arrays["times"],
        loss=arrays["loss"],
        error=arrays["error"],
    )


def flow_at(exact: AbstractFlow, times: Times) -> AbstractFlow:
    """The flow at times among those that it was recorded at; nothing is integrated again."""
    index = np.clip(np.searchsorted(exact.times, times), 1, exact.times.size - 1)
    index -= times - exact.times[index - 1] < exact.times[index] - times
    chosen = jax.tree.map(lambda array: np.take(array, index, axis=0), exact.weights)
    found = eqx.tree_at(
        lambda each: (each.times, each.weights, each.loss, each.error),
        exact,
        (times, chosen, exact.loss[index], exact.error[index]),
    )
    if not isinstance(exact, Flow):
        return found
    return eqx.tree_at(lambda each: each.records, found, _records_at(exact.records, index))


def _records_at(records: Mapping[str, np.ndarray], index: np.ndarray) -> dict[str, np.ndarray]:
    """What a solver recorded, at some of its times; a ridge may have been met between two."""
    found = {name: values[index] if np.ndim(values) else values for name, values in records.items()}
    if "ridge_distance" in records:
        spans = pairwise([-1, *index])
        least = [np.min(records["ridge_distance"][a + 1 : b + 1], initial=np.inf) for a, b in spans]
        found["ridge_distance"] = np.array(least)
    return found


def some_records(trajectory: AbstractTrajectory, count: int | None) -> np.ndarray:
    """The numbers of so many records, evenly spread over a trajectory; of all of them if None."""
    every = trajectory.times.size
    if count is None or count >= every:
        return np.arange(every)
    return np.unique(np.linspace(0, every - 1, count).round().astype(int))


def together(times: Sequence[np.ndarray]) -> np.ndarray:
    """The times of all runs in order, those that are the same but for rounding once."""
    ordered = np.unique(np.concatenate(times))
    return ordered[np.diff(ordered, prepend=-np.inf) > _SAME * ordered[-1]]


def _numbered(name: str, weights: AnyWeights) -> Arrays:
    arrays = enumerate(jax.tree.leaves(weights))
    return {f"{name}_{number}": np.asarray(array) for number, array in arrays}


def _tree(arrays: Arrays, name: str, like: AnyWeights) -> AnyWeights:
    structure = jax.tree.structure(like)
    leaves = [arrays[f"{name}_{number}"] for number in range(structure.num_leaves)]
    return jax.tree.unflatten(structure, leaves)
