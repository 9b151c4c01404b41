"""A small model of one's own: a dictionary of weights, tanh, the square loss."""

import jax.numpy as jnp
import numpy as np

import thalweg as tw

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(20, 8))
Y = _RNG.normal(size=20)
PARAMS = {
    "hidden": {"b": np.zeros(4), "w": _RNG.normal(size=(8, 4)) / 2},
    "out": _RNG.normal(size=4),
}


def loss(params, batch):
    x, y = batch
    hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return jnp.mean((hidden @ params["out"] - y) ** 2) / 2


OBJECTIVE = tw.FunctionObjective(loss, (X, Y), 8)
