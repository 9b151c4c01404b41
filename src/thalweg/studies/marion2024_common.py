"""Data and starts of marion2024's experiments, drawn as the authors draw them.

The authors draw all of it from one chain of keys: `key, use = split(key)`, again and again, from
PRNGKey(0). The place of a key in that chain says what it is used for (`Place`). Their JAX drew in
single precision, and from another random stream than today's, which has to be asked for. What they
drew is promoted to double precision here, and all that follows is computed in it. The scales of
their sweeps are spaced in single precision, too, and ours in double: so starts of sweeps are theirs
to one or two units in the last place of single precision, and not all of them to the bit.

Their code changed after the paper was written: `later=True` is that code, which also draws a test
set, and so has another teacher and other noise on the same inputs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, Key, PRNGKeyArray

from thalweg.curvature import (
    balanced_sharpness,
    minimiser_sharpness_bounds,
    small_start_sharpness_bounds,
)
from thalweg.dynamics.trajectory import Recorded
from thalweg.network import AbstractNetwork, LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Regression
from thalweg.studies.study import Variant

DEPTH, FEATURES, SAMPLES = 10, 5, 50
LATER_DATA = Variant(
    "the teacher and the noise are those of the authors' later code; the lower dotted line is that "
    "of Theorem 1 all the same, 2 L λ, where their later code draws 2 L A with A = w*ᵀ Σ w*",
    {"later_data": True},
)


class Place(IntEnum):
    """Where in the authors' chain of keys a key stands; those in between are drawn and not used."""

    DATA = 0
    GAUSSIAN_SWEEP = 2
    GAUSSIAN_TRACE = 3
    READOUT = 5
    RESIDUAL_SWEEP = 6
    RESIDUAL_TRACE = 7
    DEPTHS = 8  # three for each of four depths: unused, readout, runs
    UNDERDETERMINED_DATA = 20
    UNDERDETERMINED_SWEEP = 22


class AuthorsData(NamedTuple):
    """Samples and targets, scaled so that the least-squares solution has unit norm."""

    x: Float[np.ndarray, "samples features"]
    y: Float[np.ndarray, " samples"]
    test_x: Float[np.ndarray, "_ features"]
    test_y: Float[np.ndarray, " _"]


class Row(NamedTuple):
    """A line of the authors' table: what was run at a learning rate."""

    learning_rate: float
    steps: int
    repetitions: int


def authors_data(
    place: int = Place.DATA,
    *,
    samples: int = SAMPLES,
    features: int = FEATURES,
    noise: float = 1.0,
    later: bool = False,
) -> AuthorsData:
    """The data of the paper, or of the authors' later code; the test set of the former is empty.

    The scale is that of the least-squares solution in double precision, which moves the targets by
    a few units of single precision.
    """
    tests = samples if later else 0
    x, test_x, teacher, zeta, test_zeta = _draws(
        authors_key(place), (samples, features), (tests, features), (features,), (samples,),
        (tests,),
    )  # fmt: skip
    y, test_y = x @ teacher + noise * zeta, test_x @ teacher + noise * test_zeta
    size = np.linalg.norm(np.linalg.lstsq(x, y, rcond=None)[0])
    return AuthorsData(x, y / size, test_x, test_y / size)


def authors_objective(data: AuthorsData, network: AbstractNetwork) -> Objective:
    """The mean squared error, without the factor 1/2 that other papers have."""
    return Objective(network, Regression(data.x, data.y, scale=1.0))


def authors_readout(place: int = Place.READOUT) -> Float[np.ndarray, " features"]:
    """The direction that residual networks are read along: random, of unit norm, not trained."""
    with _authors_stream():
        drawn = jax.random.normal(authors_key(place), (FEATURES,), jnp.float32)
    vector = np.asarray(drawn, float)
    return vector / np.linalg.norm(vector)


def gaussian_network(features: int = FEATURES, depth: int = DEPTH) -> LinearNetwork:
    """The fully connected network: square layers and one output."""
    return LinearNetwork([features] * depth + [1])


def residual_network(readout: Float[np.ndarray, " features"], depth: int = DEPTH) -> LinearNetwork:
    """The residual network: square layers, read along a fixed direction."""
    return LinearNetwork([FEATURES] * (depth + 1), readout=readout)


def authors_key(place: int) -> PRNGKeyArray:
    """The key at a place of the authors' chain."""
    with _authors_stream():
        key = jax.random.key(0)
        for _ in range(place):
            key, _ = jax.random.split(key)
        return jax.random.split(key)[1]


def sweep_starts(
    place: int,
    table: tuple[Row, ...],
    row: Row,
    scales: tuple[float, ...],
    network: AbstractNetwork,
) -> Recorded:
    """The authors' starts for one learning rate, with the axes (repetition, scale) in front.

    A residual start for a network of square layers with a readout, a Gaussian one for any other.
    Each run has its own key, which depends on the place of its learning rate in the table, on the
    numbers of repetitions, scales and steps there, and on nothing that happens in the run. A row
    with fewer repetitions or steps than the table has takes the first of them.
    """
    number = [each.learning_rate for each in table].index(row.learning_rate)
    _, steps, repetitions = table[number]
    with _authors_stream():
        own = jax.random.split(authors_key(place), len(table))[number]
        keys = jax.random.split(own, repetitions)[: row.repetitions]
        keys = jax.vmap(lambda key: jax.random.split(key, len(scales)))(keys)
        last = jax.vmap(lambda key: last_of_split(key, steps + 2))(keys.reshape(-1))
    flat = _starts(network, np.tile(scales, row.repetitions), last)
    shape = (row.repetitions, len(scales))
    return tuple(array.reshape(*shape, *array.shape[1:]) for array in flat)


def last_of_split(key: PRNGKeyArray, count: int) -> PRNGKeyArray:
    """`jax.random.split(key, count)[-1]` in the authors' stream, without making all the others.

    There the numbers 0, ..., 2 count - 1 are hashed in pairs (i, count + i), and the last key is
    made of the second halves of the last two pairs.
    """
    pairs = jnp.asarray([count - 2, count - 1, 2 * count - 2, 2 * count - 1], jnp.uint32)
    words = threefry_2x32(jax.random.key_data(key), pairs)
    return jax.random.wrap_key_data(words[2:])


def trace_start(place: int, steps: int, scale: float, network: AbstractNetwork) -> Recorded:
    """The authors' start of a single run, which depends on how many steps it takes."""
    with _authors_stream():
        key = last_of_split(authors_key(place), steps + 1)
    return tuple(array[0] for array in _starts(network, np.array([scale]), key[None]))


def authors_bounds(objective: Objective) -> dict[str, float]:
    """What is known of the sharpness of minimisers, by name, for the attributes of a dataset."""
    network, problem = objective.network.linear, objective.problem.least_squares
    lower = minimiser_sharpness_bounds(objective)  # which refuses all that is neither
    assert network is not None
    assert problem is not None
    spectrum = np.asarray(problem.spectrum)
    known = {
        "lambda_min": spectrum[0],
        "lambda_max": spectrum[-1],
        "moment": np.sum(np.asarray(problem.fitted) ** 2),
        "paper_sharpness_bound": lower.paper,
        "moment_sharpness_bound": lower.moment,
        "sharper_sharpness_bound": lower.sharper,
        "balanced_sharpness": balanced_sharpness(objective),
    }
    if network.readout is None:
        known["greatest_sharpness"] = small_start_sharpness_bounds(objective).paper
    return {name: float(value) for name, value in known.items()}


# --- the authors' random stream ------------------------------------------------------------------


@contextmanager
def _authors_stream() -> Iterator[None]:
    """JAX's random numbers as they were until version 0.5."""
    with jax.threefry_partitionable(False):
        yield


def _draws(key: PRNGKeyArray, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Single-precision Gaussian arrays from successive keys; an empty one uses none up."""
    arrays = []
    with _authors_stream():
        for shape in shapes:
            if 0 in shape:
                arrays.append(np.zeros(shape))
                continue
            key, use = jax.random.split(key)
            arrays.append(np.asarray(jax.random.normal(use, shape, jnp.float32), float))
    return arrays


def _starts(
    network: AbstractNetwork, scales: Float[np.ndarray, " runs"], keys: Key[Array, " runs"]
) -> Recorded:
    """One start per key, as the authors draw it: a key per layer, all in single precision."""
    with _authors_stream():
        keys = jax.vmap(lambda key: jax.random.split(key, network.depth))(keys)
        # One call for all layers of a shape, for each call is compiled.
        drawn = {
            shape: jax.vmap(jax.vmap(lambda key: jax.random.normal(key, shape, jnp.float32)))(keys)  # noqa: B023
            for shape in set(network.shapes)
        }
    noise = [np.asarray(drawn[shape][:, layer]) for layer, shape in enumerate(network.shapes)]
    sizes = scales.astype(np.float32)[:, None, None]
    linear = network.linear
    if linear is None or linear.readout is None:
        return tuple((sizes * array).astype(float) for array in noise)
    width = linear.widths[0]
    spread = sizes / np.sqrt(np.float32(network.depth * width))
    return tuple((np.eye(width, dtype=np.float32) + spread * each).astype(float) for each in noise)
