"""Networks with kinks on a few samples, with their oracle: small enough for `event_driven`."""

import jax.numpy as jnp
import numpy as np

import event_driven
import thalweg as tw
from thalweg.network import BiasedNetwork, Convolution, Dense, SharedNetwork, Tied


def gaussian_case(seed, widths=(2, 5, 5, 1), samples=10, slopes=(1.0, 0.0), decay=0.0, scale=1.0):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(samples, widths[0])), rng.normal(size=(samples, widths[-1]))
    shapes = list(zip(widths[1:], widths[:-1], strict=True))
    weights = [scale * rng.normal(size=shape) for shape in shapes]
    return event_driven.Network(x, y, shapes, slopes, decay=decay), weights


def with_bias(seed):
    """The last feature is constant: the first layer has a bias."""
    network, weights = gaussian_case(seed, (3, 5, 5, 1))
    network.x[:, -1] = 1.0
    return network, weights


def on_kinks(seed, slopes=(1.0, 0.0)):
    """Some pre-activations of the first layer are zero at the start."""
    network, weights = gaussian_case(seed, (2, 4, 4, 1), 6, slopes)
    network.x[0], network.x[1] = (1.0, 0.0), (0.0, 1.0)
    weights[0][0, 0] = weights[0][1, 1] = 0.0
    return network, weights


def on_kinks_of_two_layers(seed, slopes=(1.0, 0.1)):
    """One sample is on a kink of each layer at the start."""
    network, weights = gaussian_case(seed, (2, 4, 4, 1), 6, slopes)
    network.x[0] = (1.0, 0.0)
    weights[0][0, 0] = 0.0
    (below,) = np.maximum(weights[0] @ network.x[:1].T, slopes[1] * weights[0] @ network.x[:1].T).T
    active = int(np.argmax(np.abs(below)))
    weights[1][0, active] -= weights[1][0] @ below / below[active]
    return network, weights


def with_dead_samples(seed):
    """Narrow first layers: some samples have no active unit, and wake or fall asleep."""
    return gaussian_case(seed, (2, 2, 3, 1), 12)


def convolved(seed, layers, slopes=(1.0, 0.0), samples=5):
    """Layers that share weights; a signal of six numbers, unless the layers say otherwise."""
    layers = LAYERS[layers]
    network = SharedNetwork(layers, slopes)
    patterns = tuple(np.asarray(layer.pattern) for layer in layers)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, network.features))
    y = rng.normal(size=(samples, network.outputs))
    oracle = event_driven.Convolved(
        x, y, [pattern.shape for pattern in patterns], slopes, patterns=patterns
    )
    oracle.network = network
    return oracle, [rng.normal(size=shape) for shape in network.shapes]


def biased(seed, layers, pooling=(), slopes=(1.0, 0.0), samples=5):
    """Layers with biases, some of them pooled in pairs."""
    layers = LAYERS[layers]
    network = BiasedNetwork(layers, slopes, pooling=[(1, size) for size in pooling])
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, network.features))
    y = rng.normal(size=(samples, network.outputs))
    oracle = event_driven.Pooled(
        x,
        y,
        [],
        slopes,
        patterns=tuple(np.asarray(layer.pattern) for layer in layers),
        channels=tuple(
            np.repeat(np.arange(layer.channels), layer.outputs // layer.channels)
            for layer in layers
        ),
        pooled=tuple(size == 2 for size in (*pooling, *[1] * len(layers)))[: len(layers)],
    )
    oracle.network = network
    return oracle, [rng.normal(size=shape) for shape in network.shapes]


SIGNAL = Convolution(1, 2, kernel=(1, 3), image=(1, 6))
LAYERS = {
    "one": [SIGNAL, Dense(8, 1)],
    "two": [SIGNAL, Convolution(2, 2, kernel=(1, 2), image=(1, 4)), Dense(6, 1)],
    "stride": [Convolution(1, 2, kernel=2, image=4, stride=2, padding=1), Dense(18, 2)],
    "tied": [Tied([[0, 1, -1, 2], [-1, 0, 1, 2], [2, -1, 0, 1]]), Dense(3, 2), Dense(2, 1)],
    "dense": [Dense(2, 4), Dense(4, 3), Dense(3, 1)],
    "pooled": [SIGNAL, Dense(4, 1)],
    "pooled, deep": [SIGNAL, Dense(4, 2), Dense(2, 1)],
}


def problem_of(network, weights):
    if hasattr(network, "network"):
        model = network.network
    else:
        widths = [network.x.shape[1], *(array.shape[0] for array in weights)]
        model = tw.HomogeneousNetwork(widths, slopes=network.slopes)
    objective = tw.Objective(
        model,
        tw.Regression(network.x, network.y, scale=network.scale),
        weight_decay=network.decay,
    )
    return objective, tuple(jnp.asarray(array) for array in weights)
