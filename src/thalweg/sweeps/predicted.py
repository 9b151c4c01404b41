"""Where in a sweep over learning rates descent is predicted to meet the edge, start by start."""

import json
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from thalweg._arguments import checked
from thalweg.critical import edge_learning_rate
from thalweg.experiment import changed, objective
from thalweg.experiment.files import from_toml
from thalweg.experiment.starts import starts
from thalweg.kernels import suits

_RATE = "training.learning_rate"
_BEYOND = 1.1  # the largest rate that is looked at, over that of the grid
_MOST = 2e8  # network-steps of all slow descents: some seconds


@checked
def predicted_edges(results: xr.Dataset) -> xr.DataArray | None:
    """The learning rate of each start above which the flow says that descent meets the edge.

    Args:
        results: of a sweep.

    Returns:
        `critical.edge_learning_rate` over all dimensions but that of the learning rate. None where
        more varies than learning rate and start, where the data are files, and where it would take
        long: it is for small linear networks, which kernels descend.
    """
    fields: dict[str, list[str]] = json.loads(results.attrs["fields"])
    rate = [name for name, own in fields.items() if own == [_RATE]]
    others = {name: own for name, own in fields.items() if name not in rate}
    varied = [field for own in others.values() for field in own]
    drawn = not json.loads(results.attrs["data_files"])
    if not (rate and drawn and all(field.startswith("start.") for field in varied)):
        return None
    settings = from_toml(results.attrs["experiment"])
    shape = tuple(results.sizes[name] for name in others)
    steps = settings.training.steps
    if steps is None or not 60 * steps * np.prod(shape) <= _MOST:
        return None
    built = objective(settings)
    many = starts([changed(settings, each).start for each in _changes(results, others)], built)
    if not suits(built.chain, many):
        return None
    highest = _BEYOND * float(results[rate[0]].max())
    found = edge_learning_rate(built, many, steps=steps, highest=highest)
    coordinates = {name: results[name] for name in others}
    return xr.DataArray(found.reshape(shape), coordinates, tuple(others), "edge_learning_rate")


def _changes(results: xr.Dataset, others: dict[str, list[str]]) -> list[dict[str, Any]]:
    """What is set for each start, the last dimension first."""
    rows = [
        [{field: results[_named(results, name, field)].values[place].item() for field in own}
         for place in range(results.sizes[name])]
        for name, own in others.items()
    ]  # fmt: skip
    return [
        {key: value for part in parts for key, value in part.items()} for parts in product(*rows)
    ]


def _named(results: xr.Dataset, dimension: str, field: str) -> str:
    """The coordinate that has a field's values: the dimension's, or one along it."""
    own = field.rpartition(".")[2]
    return own if own in results.coords and results[own].dims == (dimension,) else dimension
