"""From settings to the nouns of the package: data, problem, network, objective, case."""

from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from thalweg import data
from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._drawing import normal
from thalweg._sizes import compiling_seconds, require_memory, require_time
from thalweg._typing import Weights
from thalweg.certificates import Case, RandomStart
from thalweg.experiment.data_settings import (
    ConditionedData,
    CsvData,
    GaussianData,
    ImageData,
    TableData,
    TargetData,
)
from thalweg.experiment.settings import DrawnStart, Experiment, NetworkSettings
from thalweg.experiment.starts import finite_start, key_for
from thalweg.measurement import least_loss
from thalweg.network import AbstractNetwork, HomogeneousNetwork, LinearNetwork
from thalweg.objective import Objective
from thalweg.objective.points import value_at
from thalweg.problem import (
    AbstractProblem,
    Classification,
    Regression,
    TargetMatrix,
)

DEPTH = 10


class _Samples(NamedTuple):
    """Inputs, and targets or labels."""

    x: Any
    y: Any


@checked
def objective(experiment: Experiment, folder: Path | None = None) -> Objective:
    """The network on its problem.

    Args:
        experiment: what is built.
        folder: where relative paths of data start; the current folder if not given.
    """
    problem = _problem(experiment, folder or Path())
    network = _network(experiment.network, *_ends(problem))
    return Objective(network, problem, experiment.loss.weight_decay)


@checked
def case(
    experiment: Experiment,
    learning_rate: float | None = None,
    target_loss: float | None = None,
    folder: Path | None = None,
) -> Case:
    """What theorems are asked about: a hundredth of the excess loss, if no target is given."""
    built = objective(experiment, folder)
    weights = finite_start(experiment, built)
    return case_of(experiment, built, weights, learning_rate, target_loss)


def case_of(
    experiment: Experiment,
    objective: Objective,
    weights: Weights,
    learning_rate: float | None = None,
    target_loss: float | None = None,
) -> Case:
    """The same where objective and start have been built already."""
    rates, settings = experiment.training.learning_rate, experiment.certificates
    if target_loss is None:
        target_loss = settings.target_loss
    if target_loss is None:
        known = least_loss(objective)
        lowest = 0.0 if isnan(known) else known
        target_loss = lowest + 0.01 * (value_at(objective, weights) - lowest)
    return Case(
        objective,
        weights,
        learning_rate=rates[0] if learning_rate is None else learning_rate,
        target_loss=target_loss,
        time=experiment.training.horizon,
        radius=settings.radius,
        random_start=_distribution(experiment.start),
    )


def _distribution(settings: Any) -> RandomStart | None:
    """The initialisation's distribution, where statements about probabilities know it."""
    if isinstance(settings, DrawnStart) and settings.scale > 0 and not settings.zero_last_layer:
        return RandomStart(settings.kind, settings.scale)
    return None


# --- problems ------------------------------------------------------------------------------------


def _problem(experiment: Experiment, folder: Path) -> AbstractProblem:
    settings, loss = experiment.data, experiment.loss
    if isinstance(settings, TargetData):
        return TargetMatrix(jnp.asarray(_rows(settings.matrix)))
    drawn = _samples(settings, folder)
    if not isinstance(settings, ImageData):
        return Regression(drawn.x, drawn.y, loss.scale)
    if loss.kind == "square":
        return Regression(drawn.x, jax.nn.one_hot(drawn.y, settings.classes), loss.scale)
    if loss.kind in ("auto", "cross_entropy"):
        return Classification(drawn.x, drawn.y, settings.classes)
    return Classification(drawn.x, drawn.y, loss=loss.kind)


def _samples(settings: Any, folder: Path) -> _Samples:
    match settings:
        case GaussianData():
            drawn = data.gaussian_regression(
                key_for(0, settings.seed), settings.samples, settings.features, settings.noise
            )
            return _Samples(_whitened(drawn.x, settings.white), drawn.y)
        case ConditionedData():
            drawn = data.conditioned_regression(
                key_for(0, settings.seed), settings.samples, settings.features, settings.condition,
                settings.outputs, settings.noise,
            )  # fmt: skip
            return _Samples(drawn.x, drawn.y)
        case TableData():
            return _table(getattr(data, settings.source)(), settings)
        case CsvData():
            names = settings.target[0] if len(settings.target) == 1 else settings.target
            return _table(data.from_csv(folder / settings.path, names), settings)
        case ImageData():
            return _images(settings, folder)
        case _:
            raise AssertionError(settings)


def _table(table: data.Table, settings: TableData | CsvData) -> _Samples:
    x, y = table.x, table.y
    if settings.standardise:
        x, y = _standardised(x, table.features), _standardised(y, table.targets)
    return _Samples(_whitened(x, settings.white), y)


def _standardised(columns: Any, names: tuple[str, ...]) -> Any:
    # In units, powers of two, in which squares neither overflow nor vanish.
    _, exponents = np.frexp(np.max(np.abs(np.asarray(columns)), axis=0))
    columns = jnp.asarray(np.ldexp(np.asarray(columns), -exponents))
    spread = jnp.std(columns, axis=0)
    still = np.flatnonzero(np.atleast_1d(np.asarray(spread == 0)))
    if still.size:
        raise InputError(
            f"Column `{names[still[0]]}` must vary to be standardised, but it is constant; drop it "
            "or set `data.standardise = false`."
        )
    return (columns - jnp.mean(columns, axis=0)) / spread


def _whitened(x: Any, wanted: bool) -> Any:
    return data.whiten(x).x if wanted else x


def _images(settings: ImageData, folder: Path) -> _Samples:
    if settings.source == "mnist":
        found = data.mnist(None if settings.path is None else folder / settings.path)
    else:
        found = data.digits()
        found = found._replace(x=found.x / 16)
    x, labels = np.asarray(found.x), np.asarray(found.labels)
    if settings.only is not None:
        kept = np.isin(labels, settings.only)
        x, labels = x[kept], np.searchsorted(np.sort(settings.only), labels[kept])
    wanted = labels.size if settings.samples is None else settings.samples
    if wanted > labels.size:
        raise InputError(
            f"`data.samples` must be at most {labels.size}, as many as {settings.source} has of "
            f"these digits, got {wanted}."
        )
    chosen = np.arange(wanted) * labels.size // wanted
    return _Samples(jnp.asarray(x[chosen]), jnp.asarray(labels[chosen]))


def _rows(matrix: tuple[tuple[float, ...], ...]) -> np.ndarray:
    lengths = {len(row) for row in matrix}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(
            f"`data.matrix` must have rows of one length, got lengths {[len(r) for r in matrix]}."
        )
    return np.asarray(matrix, float)


# --- networks ------------------------------------------------------------------------------------


def _ends(problem: AbstractProblem) -> tuple[int, int]:
    """How many features and outputs a network for this problem must have."""
    outputs, features = problem.shape
    return features, outputs


def _network(settings: NetworkSettings, features: int, outputs: int) -> AbstractNetwork:
    if settings.hidden is not None:
        hidden = list(settings.hidden)
        numbers = sum(low * high for low, high in pairwise([features, *hidden, outputs]))
        _require_room(len(hidden) + 1, numbers)
    else:
        width = features if settings.width is None else settings.width
        layers = DEPTH if settings.depth is None else settings.depth
        _require_room(layers, width * (features + outputs + width * max(layers - 2, 0)))
        hidden = [width] * (layers - 1)
    if settings.kind == "homogeneous":
        return HomogeneousNetwork([features, *hidden, outputs], settings.slopes)
    if not settings.readout:
        return LinearNetwork([features, *hidden, outputs])
    if outputs != 1:
        raise InputError(
            f"`network.readout` must be false for {outputs} outputs; it brings layers to one."
        )
    last = hidden[-1] if hidden else features
    vector = np.asarray(normal(key_for(2, settings.seed), (last,)))
    return LinearNetwork([features, *hidden, last], vector / np.linalg.norm(vector))


def _require_room(layers: int, weights: int) -> None:
    """Refuse a network before there is a list of its widths, which may be too long itself."""
    require_memory(
        f"A network of {layers} layers with {weights} weights",
        2 * (layers + weights),
        "take a smaller `network.width` or `network.depth`",
    )
    require_time(
        f"Compiling a network of {layers} layers",
        compiling_seconds(layers),
        "take a smaller `network.depth`",
    )
