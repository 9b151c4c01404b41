"""Descent steps: batched small networks against JAX used plainly, and MNIST against torch."""

import importlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from thalweg import data, initialisation
from thalweg._checks import InputError
from thalweg._typing import Scalar, Weights
from thalweg.bench.comparison import Comparison, best_of
from thalweg.dynamics import descend
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Classification, Regression

_PLAIN_STEPS, _OUR_STEPS, _NETWORKS = 1000, 10_000, 1000


def plain_loss(drawn: data.LinearData) -> Callable[[Weights], Scalar]:
    """The mean square over the raw samples, as a script would write it."""

    def loss(weights: Weights) -> Scalar:
        hidden = drawn.x.T
        for matrix in weights:
            hidden = matrix @ hidden
        return jnp.mean((hidden[0] - drawn.y) ** 2)

    return loss


def small_networks() -> Comparison:
    """marion2024's network (5 features, depth 10): one jitted update per Python step, or a batch.

    The plain way differentiates the mean square over the raw samples automatically, in one
    compiled update per step; it is what a script would do.
    """
    drawn = data.gaussian_regression(jax.random.key(0))
    network = LinearNetwork([5] * 10 + [1])
    objective = Objective(network, Regression(drawn.x, drawn.y, scale=1.0))
    keys = jax.random.split(jax.random.key(1), _NETWORKS)
    starts = jax.vmap(lambda key: initialisation.gaussian(network, 0.3, key=key))(keys)

    loss = plain_loss(drawn)

    @jax.jit
    def update(weights: Weights, rate: float) -> Weights:
        return jax.tree.map(lambda w, g: w - rate * g, weights, jax.grad(loss)(weights))

    def plain(steps: int = _PLAIN_STEPS) -> None:
        weights = tuple(array[0] for array in starts)
        for _ in range(steps):
            weights = update(weights, 0.02)
        jax.block_until_ready(weights)

    def ours(steps: int = _OUR_STEPS) -> None:
        descend(objective, starts, learning_rate=0.02, steps=steps, record_every=steps)

    plain(2)  # compile
    ours(200)
    best_ours, best_plain = best_of(7, ours, plain)
    return Comparison(
        what=f"{_NETWORKS} linear networks, d=5, depth 10: one step of one network",
        unit="us",
        ours=1e6 * best_ours / (_OUR_STEPS * _NETWORKS),
        plain=1e6 * best_plain / _PLAIN_STEPS,
        bar=1000,
        note="float64; plain: one jitted autodiff update per Python step",
    )


def linear_network_on_mnist() -> Comparison:
    """A descent step of a linear 784-50-50-10 network with cross-entropy, against torch's."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise InputError(
            "This benchmark compares with torch, which is not installed; `make bench` brings it."
        ) from error
    images = data.mnist(images=range(0, 50_000, 50))
    x, labels = np.asarray(images.x, np.float32), np.asarray(images.labels)
    network = LinearNetwork([784, 50, 50, 10])
    objective = Objective(network, Classification(x, labels, classes=10))
    start = initialisation.xavier_uniform(network, key=jax.random.key(0))
    start = tuple(np.asarray(array, np.float32) for array in start)
    layers = torch.nn.Sequential(*(torch.nn.Linear(a, b, bias=False) for b, a in network.shapes))
    inputs, targets = torch.tensor(x), torch.tensor(labels, dtype=torch.long)
    optimiser = torch.optim.SGD(layers.parameters(), lr=1e-3)

    def theirs(steps: int = 50) -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(layers(inputs), targets).backward()
            optimiser.step()

    def ours(steps: int = 200) -> None:
        descend(objective, start, learning_rate=1e-3, steps=steps, record_every=steps)

    theirs(2)  # warm up, compile
    ours(64)
    best_ours, best_theirs = best_of(7, ours, theirs)
    return Comparison(
        what="linear network 784-50-50-10, 1000 MNIST images: one step",
        unit="us",
        ours=1e6 * best_ours / 200,
        plain=1e6 * best_theirs / 50,
        bar=3,
        note=f"float32; plain: torch {torch.__version__}, {torch.get_num_threads()} threads",
    )
