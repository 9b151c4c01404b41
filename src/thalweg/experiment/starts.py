"""Where the runs of an experiment start: one start, or many that are drawn together.

Of many, each is the same to the last bit as what `start` draws alone.
"""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from thalweg import initialisation
from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._drawing import Keys, folded, seeded
from thalweg._typing import Weights
from thalweg.experiment.settings import (
    AlignedStart,
    CommonStart,
    DrawnStart,
    Experiment,
    IdentityStart,
    RegisteredStart,
    UnbalancedStart,
)
from thalweg.objective import Objective
from thalweg.objective.points import value_at
from thalweg.problem import AbstractProblem

Stacked = tuple[Float[np.ndarray, "..."], ...]
"""One array per layer, runs first."""


@checked
def finite_start(experiment: Experiment, objective: Objective) -> Weights:
    """The start of runs that are to come to something: the loss there is a number."""
    weights = start(experiment, objective)
    value = value_at(objective, weights)
    if not isfinite(value):
        scale = getattr(experiment.start, "scale", None)
        which = "" if scale is None else f" with `start.scale` = {scale:g}"
        raise InputError(
            f"The loss at the start must be finite, got {value:g}{which}; take a smaller start, or "
            "smaller data."
        )
    return weights


@checked
def start(experiment: Experiment, objective: Objective) -> Weights:
    """The weights that all runs start from."""
    return _one(experiment.start, objective)


def starts(settings: Sequence[Any], objective: Objective) -> Stacked:
    """The weights that each of many runs starts from, by the settings of each, runs first."""
    weights = tuple(np.empty((len(settings), *shape)) for shape in objective.network.shapes)
    for runs, drawn in _drawn(settings, objective):
        for room, array in zip(weights, drawn, strict=True):
            room[runs] = array
    return weights


def key_for(purpose: int, seed: int | Int[np.ndarray, " seeds"]) -> Keys:
    """Data (0), start (1) and readout (2) of one seed must not be made of the same numbers."""
    return folded(seeded(seed), purpose)


def _one(settings: Any, objective: Objective) -> Weights:
    network = objective.network
    match settings:
        case DrawnStart():
            draw = getattr(initialisation, settings.kind)
            weights = draw(network, settings.scale, key=key_for(1, settings.seed))
            return initialisation.one_zero_layer(weights) if settings.zero_last_layer else weights
        case CommonStart():
            return getattr(initialisation, settings.kind)(network, key=key_for(1, settings.seed))
        case AlignedStart():
            solution = _solution(objective.problem)
            return initialisation.aligned(network, settings.norm, settings.cosine, solution)
        case UnbalancedStart():
            return initialisation.unbalanced(network, settings.product, settings.factor)
        case IdentityStart():
            return initialisation.identity(network)
        case RegisteredStart():
            draw = initialisation.registered(settings.name)
            weights = draw(network, settings.scale, key=key_for(1, settings.seed))
            network.check(weights, name=f"what {settings.name!r} draws", many=False)
            return weights
        case _:
            raise AssertionError(settings)


def _solution(problem: AbstractProblem) -> Any:
    squared = problem.least_squares
    if squared is None:
        raise InputError(
            'An "aligned" `start` needs a square loss, whose solution is known, got '
            f"{type(problem).__name__}."
        )
    return squared.minimiser


def _drawn(settings: Sequence[Any], objective: Objective) -> Iterator[tuple[list[int], Stacked]]:
    alike: dict[Any, list[int]] = {}
    for run, each in enumerate(settings):
        alike.setdefault(_apart(each), []).append(run)
    for runs in alike.values():
        first = settings[runs[0]]
        if isinstance(first, DrawnStart | CommonStart):
            yield runs, _together([settings[run] for run in runs], objective)
        else:
            yield runs, tuple(np.asarray(array) for array in _one(first, objective))


def _apart(settings: Any) -> Any:
    """Starts for which this is the same are drawn together."""
    if isinstance(settings, DrawnStart):
        return settings.kind, settings.zero_last_layer
    return settings.kind if isinstance(settings, CommonStart) else settings


def _together(settings: list[DrawnStart] | list[CommonStart], objective: Objective) -> Stacked:
    draw, count = getattr(initialisation, settings[0].kind), len(settings)
    room = 8 if count <= 8 else -(-count // 100) * 100  # few sizes, few compilations
    padded = [settings[number % count] for number in range(room)]
    scales = np.array([each.scale for each in padded if isinstance(each, DrawnStart)])
    keys = key_for(1, np.array([each.seed for each in padded]))
    weights = initialisation.many(draw, objective.network, scales if scales.size else None, keys)
    arrays = [np.asarray(array)[:count] for array in weights]
    if isinstance(settings[0], DrawnStart) and settings[0].zero_last_layer:
        arrays[-1] = np.zeros_like(arrays[-1])
    return tuple(arrays)
