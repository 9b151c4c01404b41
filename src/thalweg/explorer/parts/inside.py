"""What happens inside: singular values of the product and of each layer, and the balance."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from thalweg.dynamics import AbstractTrajectory
from thalweg.explorer.computation import Computation, padded
from thalweg.explorer.parts.records import at_records, spread, thinned
from thalweg.quantities import stacked

_NUMBERS = 60_000  # weights whose singular values are had at once
_OF_A_PRODUCT, _OF_A_LAYER = 5, 3


def layers(known: Computation) -> Iterator[bytes]:
    """Singular values along descent where layers are matrices of a product, else their norms."""
    with np.errstate(over="ignore", invalid="ignore"):  # of a run that diverges
        found = [_along(known, run) for run in known.runs]
        names = found[0].keys()
        arrays = {name: padded([each[name] for each in found]).astype("f4") for name in names}
    yield known.framed("layers", arrays)


def _along(known: Computation, run: AbstractTrajectory) -> dict[str, np.ndarray]:
    chosen = thinned(run, max(24, _NUMBERS // max(known.size, 1)))
    points = jax.tree.leaves(at_records(run, chosen))
    if known.linear:
        found = {
            "product_singular": product_singular(known, points),
            "layer_singular": _of_layers(points),
        }
        balance: Any = stacked.unbalancedness(known.network_objective_or_fail)
        if balance is not None:
            found["unbalancedness"] = balance(points)
    else:
        found = {"layer_norms": np.stack([_norms(each) for each in points], axis=1)}
    return {name: spread(chosen, values, run.times.size) for name, values in found.items()}


def product_singular(known: Computation, points: list[np.ndarray]) -> np.ndarray:
    """The largest singular values of the product of all layers, at each of these points."""
    network = known.network_objective_or_fail.network.linear
    assert network is not None
    readout = () if network.readout is None else (np.asarray(network.readout, float).T,)
    *others, product = (*points, *readout)
    with np.errstate(all="ignore"):
        for layer in reversed(others):
            product = product @ layer
    return _singular(product)[:, :_OF_A_PRODUCT]


def _of_layers(points: list[np.ndarray]) -> np.ndarray:
    """The largest of each layer, with NaN where a layer has fewer."""
    found = np.full((len(points[0]), len(points), _OF_A_LAYER), np.nan)
    for number, layer in enumerate(points):
        values = _singular(layer)[:, :_OF_A_LAYER]
        found[:, number, : values.shape[1]] = values
    return found


def _singular(matrices: np.ndarray) -> np.ndarray:
    """Of each matrix, descending; NaN where it is not finite, which LAPACK refuses."""
    fine = np.all(np.isfinite(matrices), axis=(1, 2))
    found = np.linalg.svd(np.where(fine[:, None, None], matrices, 0.0), compute_uv=False)
    return np.where(fine[:, None], found, np.nan)


def _norms(layer: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.sqrt(np.sum(layer.reshape(len(layer), -1) ** 2, axis=1))
