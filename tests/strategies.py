"""Hypothesis strategies: shapes from short lists (each compiles anew), values freely.

Hypothesis draws a `Spec` of plain numbers; `case` makes of it an objective with a point, a
direction, and the raw data on which `Case.naive` computes the same function. Values are Gaussian
with a drawn seed and size: the comparisons are relative, and numbers that hypothesis would choose
to cancel exactly say nothing about rounding.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

import oracles
import thalweg as tw
from thalweg.network import Convolution, Dense, SharedNetwork, Tied

NETWORKS = ("linear", "linear with readout", "homogeneous", "shared", "model")
PROBLEMS = {  # each kind of problem, and its number of outputs
    "regression of one output": 1,
    "regression": 3,
    "target vector": 1,
    "target matrix": 3,
    "cross_entropy": 3,
    "logistic": 1,
    "exponential": 1,
}
IMAGE = (2, 4)
READOUT_WIDTH = 4


class Layout(NamedTuple):
    """The shapes of a case but for its outputs; stride and padding are a convolution's."""

    samples: int
    features: int
    hidden: tuple[int, ...]
    stride: tuple[int, int]
    padding: tuple[int, int]


# The narrow end of the first is its input where there are three outputs: products then start
# there. Samples are far more or fewer than features: in between the least-squares minimiser is
# ill-conditioned, and two correct gradients differ by more than rounding.
LAYOUTS = (
    Layout(20, 2, (4,), stride=(2, 1), padding=(1, 0)),
    Layout(1, 4, (), stride=(1, 1), padding=(0, 0)),
    Layout(20, 4, (3, 5, 2), stride=(1, 2), padding=(2, 1)),
)


class Kind(NamedTuple):
    """All that decides which code is compiled."""

    network: str
    problem: str
    layout: Layout
    decay: float


# Every network with every problem; layouts and weight decay take turns, so that each of them meets
# every network and every problem.
KINDS = [
    Kind(network, problem, LAYOUTS[(i + j) % len(LAYOUTS)], (0.0, 0.3)[(i + j) % 2])
    for i, network in enumerate(NETWORKS)
    for j, problem in enumerate(PROBLEMS)
]


@dataclass(frozen=True)
class Spec:
    """The numbers that are drawn; which of them matter depends on the kind."""

    seed: int
    slopes: tuple[float, float] = (1.0, 0.2)
    scale: float = 0.7
    size: float = 0.8


SPECS = st.builds(
    Spec,
    seed=st.integers(0, 2**32 - 1),
    slopes=st.tuples(st.floats(0.5, 2.0), st.floats(-1.0, 1.5)),
    scale=st.floats(0.1, 3.0),
    size=st.floats(0.4, 1.2),
)


class Data(NamedTuple):
    """The raw data of a case, of which nothing has passed through the package."""

    x: Any
    y: Any
    readout: Any
    slopes: Any
    scale: Any
    decay: Any


class Case(NamedTuple):
    """An objective at a point, and the data to compute the same function by the obvious way."""

    kind: Kind
    objective: tw.Objective
    data: Data
    weights: Any
    direction: Any

    def naive(self, weights):
        """The objective at the weights, by the slow and obvious way."""
        return naive_loss(self.kind, self.data, weights)


def case(kind: Kind, spec: Spec) -> Case:
    """An objective of this kind with these numbers."""
    random = np.random.default_rng(spec.seed)
    outputs = PROBLEMS[kind.problem]
    readout = random.standard_normal((READOUT_WIDTH, outputs))
    network = _network(kind, outputs, readout, spec.slopes)
    x, y = _samples(kind, network.features, outputs, random)
    return Case(
        kind=kind,
        objective=tw.Objective(network, _problem(kind.problem, x, y, spec.scale), kind.decay),
        data=Data(x, y, readout, spec.slopes, spec.scale, kind.decay),
        weights=gaussians(network.shapes, spec.size, random),
        direction=gaussians(network.shapes, 1.0, random),
    )


def gaussians(shapes, size, random):
    """Gaussian arrays of these shapes."""
    return tuple(jnp.asarray(size * random.standard_normal(shape)) for shape in shapes)


def naive_loss(kind: Kind, data: Data, weights):
    """The function that an objective of this kind must be, sample by sample."""

    def predict(sample):
        if kind.network == "linear":
            return oracles.chain_of_layers(weights, sample)
        if kind.network == "linear with readout":
            return oracles.chain_of_layers(weights, sample, readout=data.readout)
        if kind.network == "homogeneous":
            return oracles.chain_of_layers(weights, sample, data.slopes)
        if kind.network == "shared":
            matrices = (
                oracles.tied_matrix(weights[0], _convolution_pattern(kind.layout)),
                oracles.tied_matrix(weights[1], _band(kind.layout)),
                weights[2],
            )
            return oracles.chain_of_layers(matrices, sample, data.slopes)
        first, bias, second = weights
        return second @ jnp.tanh(first @ sample + bias)

    outputs = jax.vmap(predict)(data.x)
    loss = _naive_loss_of_outputs(kind.problem, outputs, data)
    return loss + data.decay / 2 * sum(jnp.sum(array**2) for array in weights)


def _naive_loss_of_outputs(problem, outputs, data):
    if problem.startswith("regression"):
        return oracles.squared_error(outputs, data.y, data.scale)
    if problem.startswith("target"):
        return oracles.squared_error(outputs, data.x @ data.y.T, 0.5)
    if problem == "cross_entropy":
        return oracles.cross_entropy(outputs, data.y)
    loss = {"logistic": oracles.logistic, "exponential": oracles.exponential}[problem]
    return loss(outputs, 2 * data.y - 1)


def _network(kind, outputs, readout, slopes):
    features, hidden = kind.layout.features, kind.layout.hidden
    if kind.network == "linear":
        return tw.LinearNetwork([features, *hidden, outputs])
    if kind.network == "linear with readout":
        return tw.LinearNetwork([features, *hidden, READOUT_WIDTH], readout)
    if kind.network == "homogeneous":
        return tw.HomogeneousNetwork([features, *hidden, outputs], slopes)
    if kind.network == "shared":
        first = Convolution(2, 2, (2, 3), IMAGE, kind.layout.stride, kind.layout.padding)
        return SharedNetwork([first, Tied(_band(kind.layout)), Dense(3, outputs)], slopes)
    return tw.Model(_tanh_network, [(3, features), (3,), (outputs, 3)], features, outputs)


def _tanh_network(weights, x):
    first, bias, second = weights
    return jnp.tanh(x @ first.T + bias[None]) @ second.T


@cache
def _convolution_pattern(layout):
    return oracles.convolution_pattern((2, 2, 2, 3), IMAGE, layout.stride, layout.padding)


@cache
def _band(layout):
    """Three coordinates in a band, the rest zero: coordinates repeat, but in no row."""
    width = _convolution_pattern(layout).shape[0]
    band = np.array([[(k - row) % width for k in range(width)] for row in range(3)])
    return np.where(band > 2, -1, band)


def _samples(kind, features, outputs, random):
    if kind.problem.startswith("target"):
        return np.sqrt(features) * np.eye(features), random.standard_normal((outputs, features))
    x = random.standard_normal((kind.layout.samples, features))
    if kind.problem.startswith("regression"):
        return x, random.standard_normal((len(x), outputs))
    return x, random.integers(0, 3 if kind.problem == "cross_entropy" else 2, len(x))


def _problem(problem, x, y, scale):
    if problem.startswith("regression"):
        return tw.Regression(x, y, scale=scale)
    if problem.startswith("target"):
        return tw.TargetMatrix(y)
    if problem == "cross_entropy":
        return tw.Classification(x, y, classes=3)
    return tw.Classification(x, y, loss=problem)
