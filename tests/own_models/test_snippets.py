"""Five lines each for plain JAX, Flax (nnx and linen) and Equinox: the same network, the same run.

Oracle: the loss and its derivatives by JAX alone, on plain arrays, for weights drawn by each
library. The snippets are what the README and docs/own-models.md show.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import phases

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 5)), RNG.normal(size=30)


def expected(layers, steps=5, rate=0.1):
    """Loss along descent and the sharpness at its start, of plain arrays."""

    def value(layers):
        (a, b), (c, d) = layers
        return jnp.mean(((jnp.tanh(X @ a + b) @ c + d)[:, 0] - Y) ** 2) / 2

    layers, losses = jax.tree.map(jnp.asarray, layers), []
    point, unravel = jax.flatten_util.ravel_pytree(layers)
    sharpness = np.linalg.eigvalsh(jax.hessian(lambda flat: value(unravel(flat)))(point))[-1]
    for _ in range(steps + 1):
        losses.append(float(value(layers)))
        layers = jax.tree.map(lambda w, g: w - rate * g, layers, jax.grad(value)(layers))
    return np.array(losses), sharpness


def compare(objective, params, layers, tolerance=1e-10):
    losses, sharpness = expected(layers)
    run = tw.descend(objective, params, learning_rate=0.1, steps=5)
    np.testing.assert_allclose(run.loss, losses, rtol=tolerance)
    found = tw.sharpness(objective, params)
    assert found.value == pytest.approx(sharpness, rel=max(tolerance, 1e-7))
    assert jax.tree.structure(run.final) == jax.tree.structure(params)
    return run


def test_plain_jax():
    params = [(RNG.normal(size=(5, 6)), np.zeros(6)), (RNG.normal(size=(6, 1)), np.zeros(1))]

    def loss(params, batch):
        (a, b), (c, d) = params
        x, y = batch
        return jnp.mean(((jnp.tanh(x @ a + b) @ c + d)[:, 0] - y) ** 2) / 2

    objective = tw.FunctionObjective(loss, (X, Y), batch_size=8)
    compare(objective, params, params)


def test_equinox():
    model = eqx.nn.MLP(5, "scalar", 6, 1, jnp.tanh, key=jax.random.key(0))
    params, fixed = eqx.partition(model, eqx.is_inexact_array)

    def loss(params, batch):
        x, y = batch
        return jnp.mean((jax.vmap(eqx.combine(params, fixed))(x) - y) ** 2) / 2

    objective = tw.FunctionObjective(loss, (X, Y))
    layers = [(layer.weight.T, layer.bias) for layer in model.layers]
    run = compare(objective, params, layers)
    trained = eqx.combine(run.final, fixed)
    assert float(trained(X[0])) != float(model(X[0]))
    names = list(tw.curvature.layer_operators(objective, params))
    assert names == ["layers.0", "layers.1"]
    with pytest.raises(tw.InputError, match=r"params, fixed = equinox.partition\(model"):
        tw.descend(objective, model, learning_rate=0.1, steps=1)


def test_flax_nnx():
    nnx = pytest.importorskip("flax.nnx", reason="needs flax: pip install 'thalweg[dev]'")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.hidden = nnx.Linear(5, 6, rngs=rngs, param_dtype=float)
            self.out = nnx.Linear(6, 1, rngs=rngs, param_dtype=float)

        def __call__(self, x):
            return self.out(jnp.tanh(self.hidden(x)))[:, 0]

    model = Net(nnx.Rngs(0))
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params, batch):
        x, y = batch
        return jnp.mean((nnx.merge(graph, params, rest)(x) - y) ** 2) / 2

    objective = tw.FunctionObjective(loss, (X, Y))
    layers = [(part.kernel[...], part.bias[...]) for part in (model.hidden, model.out)]
    run = compare(objective, params, layers)
    assert np.isfinite(nnx.merge(graph, run.final, rest)(X)).all()
    assert list(tw.curvature.layer_operators(objective, params)) == ["hidden", "out"]


def test_flax_nnx_with_dropout_is_refused():
    nnx = pytest.importorskip("flax.nnx", reason="needs flax: pip install 'thalweg[dev]'")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.out = nnx.Linear(5, 1, rngs=rngs)
            self.dropout = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.dropout(self.out(x))[:, 0]

    model = Net(nnx.Rngs(0))
    _, params, _ = nnx.split(model, nnx.Param, ...)

    def loss(params, batch):
        nnx.update(model, params)
        return jnp.mean((model(batch[0]) - batch[1]) ** 2)

    with pytest.raises(tw.InputError, match="The loss must change nothing outside of it"):
        tw.sharpness(tw.FunctionObjective(loss, (X, Y)), params)


def test_flax_linen():
    nn = pytest.importorskip("flax.linen", reason="needs flax: pip install 'thalweg[dev]'")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = jnp.tanh(nn.Dense(6, param_dtype=float)(x))
            return nn.Dense(1, param_dtype=float)(x)[:, 0]

    model = Net()
    params = model.init(jax.random.key(0), X)

    def loss(params, batch):
        x, y = batch
        return jnp.mean((model.apply(params, x) - y) ** 2) / 2

    objective = tw.FunctionObjective(loss, (X, Y))
    own = params["params"]
    layers = [(own[name]["kernel"], own[name]["bias"]) for name in ("Dense_0", "Dense_1")]
    compare(objective, params, layers)


def test_everything_that_makes_sense_takes_a_model_of_ones_own():
    params = {"a": RNG.normal(size=(5, 3)) / 2, "b": RNG.normal(size=3) / 2}

    def loss(params, batch):
        x, y = batch
        return jnp.mean((jnp.tanh(x @ params["a"]) @ params["b"] - y) ** 2) / 2

    objective = tw.FunctionObjective(loss, (X, Y), 10)
    momentum = tw.optimisers.HeavyBall(0.5)
    run = tw.descend(objective, params, learning_rate=0.1, steps=30, optimiser=momentum)
    assert run.loss[-1] < run.loss[0]
    # Phases by its curve: it falls all the way and is not at its end.
    plain = tw.descend(objective, params, learning_rate=0.1, steps=30)
    ends = tw.curvature.spectrum_along(objective, plain)
    found = phases.classify(plain.loss, np.nan, 0.1, ends.largest, -1)
    assert phases.Phase(int(found)) is phases.Phase.DESCENDING
    critical = tw.critical_learning_rate(objective, params, steps=40, minimum=0.0, precision=0.2)
    assert critical.lower <= critical.upper
    with pytest.raises(tw.InputError, match="about networks on problems"):
        tw.tube(plain)
