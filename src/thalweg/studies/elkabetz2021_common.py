"""What the studies of elkabetz2021's experiments share: images, starts, long descents, panels.

The experiments compare runs of descent that differ in their learning rate alone: iteration k at
the rate eta_0 with iteration r k at eta_0 / r. Such runs are long, so they are cut into pieces that
are kept on disk, each of which begins where the last one ended.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from thalweg import data, initialisation
from thalweg._typing import Weights
from thalweg.dynamics import descend
from thalweg.dynamics.trajectory import Recorded
from thalweg.network import AbstractNetwork
from thalweg.objective import Objective
from thalweg.problem import Classification
from thalweg.studies.parts import Parts
from thalweg.studies.study import Progress, Variant

RATE = 1e-3
"""The paper's eta_0."""

EVERY_50TH = "every 50th"
AUTHORS_IMAGES = Variant("images are those of the authors' code", {"choice": EVERY_50TH})

_TRAINING_IMAGES = 60_000
_DATA_SEED = 2021


class Motion(NamedTuple):
    """A run at its recorded iterations: the weights, layer by layer, and the loss."""

    weights: Recorded
    loss: Float[np.ndarray, " records"]


class Meter:
    """Turns steps that were taken, of any run, into the share of the whole study."""

    def __init__(self, progress: Progress, total: int | float):
        """Report to `progress`, against this many steps in all."""
        self._progress, self._total, self._done = progress, total, 0.0

    def add(self, stage: str, steps: int | float) -> None:
        """Note steps that were taken."""
        self._done += steps
        self._progress(stage, min(1.0, self._done / self._total))


@lru_cache(maxsize=2)  # the files are large, and pieces of a run ask again and again
def problem(images: int, choice: str, dtype: str) -> Classification:
    """MNIST images under cross-entropy: "random" as the paper says, EVERY_50TH as its code does.

    The random choice is the same for all studies, and a smaller one is a part of a larger one.
    """
    if choice == EVERY_50TH:
        places = np.arange(0, 50 * images, 50)
    else:
        order = np.random.default_rng(_DATA_SEED).permutation(_TRAINING_IMAGES)
        places = order[:images]
    rows, labels = data.mnist(images=places)
    return Classification(jnp.asarray(rows, dtype), labels, classes=10)


def start(network: AbstractNetwork, seed: int, start_as: str, dtype: str) -> Weights:
    """Where all runs of a network begin.

    "xavier" draws every matrix and kernel from the Xavier distribution and has biases of zero;
    "pytorch" does what the authors' code does: PyTorch's own start for kernels and biases.
    """
    keys = jax.random.split(jax.random.key(seed))
    xavier = initialisation.xavier_uniform(network, key=keys[0])
    other = initialisation.pytorch_default(network, key=keys[1])
    chosen = (
        by_xavier if start_as == "xavier" or by_xavier.ndim == 2 else default
        for by_xavier, default in zip(xavier, other, strict=True)
    )
    return tuple(jnp.asarray(array, dtype) for array in chosen)


def long_descent(
    parts: Parts,
    name: str,
    objective: Objective,
    weights: Weights,
    *,
    divisor: int,
    iterations: int,
    record_every: int,
    piece: int,
    note: Callable[[int], None],
) -> Motion:
    """Descent at RATE / divisor over so many iterations at RATE, in pieces that are kept.

    Args:
        parts: where the pieces are kept.
        name: of the run, from which the names of its pieces are made.
        objective: what is descended.
        weights: the start.
        divisor: r above; an iteration at RATE is r steps of this run.
        iterations: how many of those.
        record_every: at every so many of them weights and loss are recorded.
        piece: about how many steps a piece may have.
        note: called with the steps of each piece once it is there.
    """
    length = record_every * max(1, piece // (divisor * record_every))
    pieces, here = [], tuple(np.asarray(array) for array in weights)
    for first in range(0, iterations, length):
        count = min(length, iterations - first)

        def descended(here: Weights = here, count: int = count) -> xr.Dataset:
            run = descend(
                objective,
                here,
                learning_rate=RATE / divisor,
                steps=divisor * count,
                record_every=divisor * record_every,
            )
            return stored(Motion(run.weights, run.loss))

        pieces.append(motion_of(parts.get(f"{name}-{first}", descended)))
        here = tuple(array[-1] for array in pieces[-1].weights)
        note(divisor * count)
    return _joined(pieces)


def apart(one: Recorded, other: Recorded) -> Float[np.ndarray, " records"]:
    """The Euclidean distance in weight space at each record."""
    squares = [
        np.sum((np.asarray(a, float) - np.asarray(b, float)).reshape(len(a), -1) ** 2, axis=1)
        for a, b in zip(one, other, strict=True)
    ]
    return np.sqrt(np.sum(squares, axis=0))


def from_start(weights: Recorded) -> Float[np.ndarray, " records"]:
    """The Euclidean distance to the first record."""
    return apart(weights, tuple(np.broadcast_to(array[:1], array.shape) for array in weights))


def extrapolated(coarse: Recorded, fine: Recorded, divisors: tuple[int, int]) -> Recorded:
    """Where runs at RATE / r and RATE / s point to as the rate goes to zero, to first order.

    Descent is off its flow by c eta + O(eta^2), so (s fine - r coarse) / (s - r) is off by
    O(eta^2).
    """
    r, s = divisors
    return tuple(
        (s * np.asarray(f, float) - r * np.asarray(c, float)) / (s - r)
        for c, f in zip(coarse, fine, strict=True)
    )


def stored(motion: Motion) -> xr.Dataset:
    """A run as a part that can be kept."""
    layers = {
        f"layer{j}": (("record", *(f"axis{j}_{k}" for k in range(array.ndim - 1))), array)
        for j, array in enumerate(motion.weights)
    }
    return xr.Dataset({**layers, "loss": ("record", motion.loss)})


def motion_of(part: xr.Dataset) -> Motion:
    """The run that was kept as this part."""
    count = sum(str(name).startswith("layer") for name in part.data_vars)
    layers = tuple(part[f"layer{j}"].values for j in range(count))
    return Motion(layers, part["loss"].values)


def _joined(pieces: Sequence[Motion]) -> Motion:
    """One run: each piece begins with the last record of the one before."""

    def join(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([arrays[0], *(array[1:] for array in arrays[1:])])

    layers = zip(*(piece.weights for piece in pieces), strict=True)
    return Motion(
        tuple(join(list(layer)) for layer in layers), join([piece.loss for piece in pieces])
    )
