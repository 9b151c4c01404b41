"""What an experiment takes in memory and time, before it is done."""

from pathlib import Path
from typing import NamedTuple

from thalweg._arguments import checked
from thalweg._sizes import compiling_seconds as compiling
from thalweg._sizes import computing_seconds, require_memory, require_time
from thalweg._typing import AnyWeights
from thalweg.dynamics.batch import block_operations, counts_of
from thalweg.experiment.building import objective
from thalweg.experiment.settings import Experiment
from thalweg.experiment.starts import finite_start
from thalweg.objective import AbstractObjective

_FUNCTIONS = 20  # that are compiled for a whole run: steps, flows, products, theorems
_FLOW_GRADIENTS = 5000  # of a flow and its companion, typically
_END_GRADIENTS = 200  # for both ends of the spectrum at one record, typically


class Prepared(NamedTuple):
    """An experiment that can be afforded, before it is begun.

    Attributes:
        objective: what is descended.
        weights: the start.
        seconds: about how long it takes.
        source: what tells it from others with the same numbers, where settings alone do not.
    """

    objective: AbstractObjective
    weights: AnyWeights
    seconds: float
    source: str = ""


@checked
def prepared(experiment: Experiment, folder: Path | None = None) -> Prepared:
    """What is descended from where, and about how many seconds the whole will take.

    Args:
        experiment: what is to be done.
        folder: where relative paths of data start; the current folder if not given.
    """
    built = objective(experiment, folder)
    seconds = _afforded(experiment, built, None, "or `network.depth`")
    return Prepared(built, finite_start(experiment, built), seconds)


@checked
def prepared_own(
    experiment: Experiment, objective: AbstractObjective, weights: AnyWeights, source: str
) -> Prepared:
    """The same of an objective and a start that were built by somebody else.

    Args:
        experiment: what is to be done; its data, network, loss and start do not matter.
        objective: what is descended.
        weights: the start.
        source: what tells them from others with the same numbers, such as a digest of their code.
    """
    objective.try_out(weights)
    seconds = _afforded(experiment, objective, weights, "or take a smaller model")
    return Prepared(objective, weights, seconds, source)


def _afforded(
    experiment: Experiment, built: AbstractObjective, weights: AnyWeights, fix: str
) -> float:
    seconds = _seconds(experiment, built, weights)
    require_time("The experiment", seconds, f"lower `training.steps` or `training.time`, {fix}")
    _require_room(experiment, counts_of(built, weights)[1])
    return seconds


def _records(experiment: Experiment) -> int:
    """Of all runs together."""
    training = experiment.training
    return sum(
        -(-training.steps_at(rate) // training.record_every(rate)) + 1
        for rate in training.learning_rate
    )


def _require_room(experiment: Experiment, size: int) -> None:
    records = _records(experiment)
    copies = 4 if experiment.flow.enabled else 2  # runs; flow and companion at all their times
    require_memory(
        f"The weights at {records} records of {size} weights each",
        copies * records * size,
        "lower `training.records`, or take a smaller network",
    )


def _seconds(experiment: Experiment, built: AbstractObjective, weights: AnyWeights) -> float:
    """Roughly: compiling, descent, the flow, and the spectrum at every record."""
    training = experiment.training
    steps = sum(training.steps_at(rate) for rate in training.learning_rate)
    gradients = _FLOW_GRADIENTS * experiment.flow.enabled
    if experiment.curvature.enabled:
        kept = experiment.curvature.records
        runs = len(training.learning_rate) + 1
        records = _records(experiment) if kept is None else kept * runs
        gradients += _END_GRADIENTS * min(records, training.records * runs)
    block, alone = (block_operations(built, weights, lanes=lanes) for lanes in (None, 1))
    return (
        compiling(counts_of(built, weights)[0], _FUNCTIONS)
        + computing_seconds(steps * block)
        + computing_seconds(gradients * alone)
    )
