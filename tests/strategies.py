"""Hypothesis strategies: shapes from short lists (each compiles anew), values freely.

Hypothesis draws a `Spec` of plain numbers; `case` makes of it an objective with a point, a
direction, and the same function written naively on the raw data. Values are Gaussian with a drawn
seed and size: the comparisons are relative, and numbers that hypothesis would choose to cancel
exactly say nothing about rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracles
from hypothesis import strategies as st

import thalweg as tw
from thalweg.network import Convolution, Dense, SharedNetwork, Tied

PROBLEMS = {  # each kind of problem, and its number of outputs
    "regression of one output": 1,
    "regression": 3,
    "target vector": 1,
    "target matrix": 3,
    "cross_entropy": 3,
    "logistic": 1,
    "exponential": 1,
}
NETWORKS = ("linear", "linear with readout", "homogeneous", "shared", "model")
IMAGE = (2, 4)
READOUT_WIDTH = 4


class Layout(NamedTuple):
    """The shapes of a case but for its outputs."""

    samples: int
    features: int
    hidden: tuple[int, ...]


# The narrow end of the first is its input where there are three outputs: products then start
# there. Samples are far more or fewer than features: in between the least-squares minimiser is
# ill-conditioned, and two correct gradients differ by more than rounding.
LAYOUTS = [Layout(20, 2, (4,)), Layout(1, 4, ()), Layout(20, 4, (3, 5, 2))]


@dataclass(frozen=True)
class Spec:
    """What is drawn; which of it matters depends on the kinds of network and problem."""

    seed: int
    layout: Layout
    slopes: tuple[float, float]
    stride_and_padding: tuple[tuple[int, int], tuple[int, int]]
    scale: float
    decay: float
    size: float


SPECS = st.builds(
    Spec,
    seed=st.integers(0, 2**32 - 1),
    layout=st.sampled_from(LAYOUTS),
    slopes=st.tuples(st.floats(0.5, 2.0), st.floats(-1.0, 1.5)),
    stride_and_padding=st.sampled_from([((1, 1), (0, 0)), ((2, 1), (1, 0)), ((1, 2), (2, 1))]),
    scale=st.floats(0.1, 3.0),
    decay=st.sampled_from([0.0, 0.3]),
    size=st.floats(0.4, 1.2),
)


@dataclass(frozen=True)
class Case:
    """An objective at a point, and the same function by the slow and obvious way."""

    objective: tw.Objective
    weights: Any
    direction: Any
    naive: Callable[[Any], jax.Array]


def case(network_kind: str, problem_kind: str, spec: Spec) -> Case:
    """An objective of this kind of network on this kind of problem."""
    random = np.random.default_rng(spec.seed)
    network, predict = _network(network_kind, PROBLEMS[problem_kind], spec, random)
    problem, x, loss = _problem(problem_kind, network.features, spec, random)

    def naive(weights):
        return loss(jax.vmap(predict, in_axes=(None, 0))(weights, x))

    return Case(
        objective=tw.Objective(network, problem, weight_decay=spec.decay),
        weights=gaussians(network.shapes, spec.size, random),
        direction=gaussians(network.shapes, 1.0, random),
        naive=oracles.with_decay(naive, spec.decay),
    )


def gaussians(shapes, size, random):
    """Gaussian arrays of these shapes."""
    return tuple(jnp.asarray(size * random.standard_normal(shape)) for shape in shapes)


def _network(kind, outputs, spec, random):
    """A network of this kind, and the naive map of its weights and one sample."""
    _, features, hidden = spec.layout
    if kind == "linear":
        return tw.LinearNetwork([features, *hidden, outputs]), oracles.chain_of_layers
    if kind == "linear with readout":
        readout = random.standard_normal((READOUT_WIDTH, outputs))
        network = tw.LinearNetwork([features, *hidden, READOUT_WIDTH], readout)
        return network, lambda w, x: oracles.chain_of_layers(w, x, readout=readout)
    if kind == "homogeneous":
        network = tw.HomogeneousNetwork([features, *hidden, outputs], spec.slopes)
        return network, lambda w, x: oracles.chain_of_layers(w, x, spec.slopes)
    if kind == "shared":
        return _shared_network(outputs, spec)
    return _tanh_model(features, outputs), _tanh_of_one_sample


def _shared_network(outputs, spec):
    """A convolution, a tied layer and a dense one."""
    stride, padding = spec.stride_and_padding
    convolution = Convolution(2, 2, (2, 3), IMAGE, stride, padding)
    # Three coordinates in a band, the rest zero: coordinates repeat, but in no row.
    width = convolution.outputs
    band = np.array([[(k - row) % width for k in range(width)] for row in range(3)])
    band[band > 2] = -1
    network = SharedNetwork([convolution, Tied(band), Dense(3, outputs)], spec.slopes)
    pattern = oracles.convolution_pattern((2, 2, 2, 3), IMAGE, stride, padding)

    def predict(weights, sample):
        first, second = (
            oracles.tied_matrix(weights[0], pattern),
            oracles.tied_matrix(weights[1], band),
        )
        return oracles.chain_of_layers((first, second, weights[2]), sample, spec.slopes)

    return network, predict


def _tanh_model(features, outputs):
    def apply(weights, x):
        first, bias, second = weights
        return jnp.tanh(x @ first.T + bias[None]) @ second.T

    return tw.Model(apply, [(3, features), (3,), (outputs, 3)], features, outputs)


def _tanh_of_one_sample(weights, sample):
    first, bias, second = weights
    return second @ jnp.tanh(first @ sample + bias)


def _problem(kind, features, spec, random):
    """A problem of this kind, its raw samples, and its naive loss of the outputs on them."""
    outputs = PROBLEMS[kind]
    if kind.startswith("target"):
        target = random.standard_normal((outputs, features))
        x = np.sqrt(features) * np.eye(features)
        return tw.TargetMatrix(target), x, lambda z: oracles.squared_error(z, x @ target.T, 0.5)
    x = random.standard_normal((spec.layout.samples, features))
    if kind.startswith("regression"):
        y = random.standard_normal((len(x), outputs))
        problem = tw.Regression(x, y, scale=spec.scale)
        return problem, x, lambda z: oracles.squared_error(z, y, spec.scale)
    if kind == "cross_entropy":
        labels = random.integers(0, outputs, len(x))
        problem = tw.Classification(x, labels, classes=outputs)
        return problem, x, lambda z: oracles.cross_entropy(z, labels)
    labels = random.integers(0, 2, len(x))
    loss = {"logistic": oracles.logistic, "exponential": oracles.exponential}[kind]
    problem = tw.Classification(x, labels, loss=kind)
    return problem, x, lambda z: loss(z, 2 * labels - 1)
