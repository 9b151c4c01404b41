"""Both ends of the spectrum: for many small networks along runs, and for one large network."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh

from thalweg import data, initialisation
from thalweg._typing import Weights
from thalweg.bench.comparison import Comparison, best_of
from thalweg.bench.descent import plain_loss
from thalweg.curvature import extreme_eigenvalues, spectrum_along
from thalweg.curvature.spectrum import hessian_product
from thalweg.dynamics import descend
from thalweg.network import AbstractNetwork, HomogeneousNetwork, LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Classification, Regression

_EIGSH: dict[str, Any] = {"tol": 1e-4, "return_eigenvectors": False}
_RUNS, _STEPS, _EVERY, _POWER = 200, 4000, 5, 20


def sharpness_along_runs() -> Comparison:
    """marion2024's set-up: sharpness every 5 steps along 200 runs of 4000 steps.

    The plain way takes 20 power iterations per point, one point per call of a compiled function
    that differentiates the mean square over the raw samples; it finds the largest modulus only.
    """
    drawn = data.gaussian_regression(jax.random.key(0))
    network = LinearNetwork([5] * 10 + [1])
    objective = Objective(network, Regression(drawn.x, drawn.y, scale=1.0))
    keys = jax.random.split(jax.random.key(1), _RUNS)
    starts = jax.vmap(lambda key: initialisation.gaussian(network, 0.3, key=key))(keys)
    run = descend(objective, starts, learning_rate=0.02, steps=_STEPS, record_every=_EVERY)

    loss = plain_loss(drawn)

    @eqx.filter_jit
    def power(weights: Weights, direction: jax.Array) -> jax.Array:
        point, unravel = ravel_pytree(weights)
        slope = jax.grad(lambda flat: loss(unravel(flat)))

        def again(_: jax.Array, vector: jax.Array) -> jax.Array:
            vector = vector / jnp.linalg.norm(vector)
            return jax.jvp(slope, (point,), (vector,))[1]

        return jnp.linalg.norm(jax.lax.fori_loop(0, _POWER, again, direction))

    direction = jax.random.normal(jax.random.key(2), (network.size,))
    sample = [tuple(jnp.asarray(array[i, 10 * i]) for array in run.weights) for i in range(50)]

    def plain() -> None:
        for point in sample:
            power(point, direction).block_until_ready()

    def ours() -> None:
        spectrum_along(objective, run.weights)

    plain()  # compile
    spectrum_along(objective, tuple(array[:1] for array in run.weights))
    best_ours, best_plain = best_of(3, ours, plain)
    return Comparison(
        what=f"both ends of the spectrum every {_EVERY} steps of {_RUNS} runs: one point",
        unit="us",
        ours=1e6 * best_ours / run.loss.size,
        plain=1e6 * best_plain / len(sample),
        bar=50,
        note=f"plain: {_POWER} power iterations, one point at a time, largest modulus only",
    )


def ends_on_mnist() -> Comparison:
    """784-50-50-10 with ReLU on 1000 images: both ends to 1e-4, next to scipy's eigsh."""
    return _ends_on_mnist(HomogeneousNetwork([784, 50, 50, 10]), "ReLU")


def linear_ends_on_mnist() -> Comparison:
    """The same for the linear network."""
    return _ends_on_mnist(LinearNetwork([784, 50, 50, 10]), "linear")


def _ends_on_mnist(network: AbstractNetwork, name: str) -> Comparison:
    images = data.mnist(images=range(0, 50_000, 50))
    objective = Objective(network, Classification(images.x, images.labels, classes=10))
    start = initialisation.xavier_uniform(network, key=jax.random.key(0))
    run = descend(objective, start, learning_rate=0.01, steps=600, record_every=300)
    mine, theirs, matvecs, products, gap = 0.0, 0.0, 0, 0, 0.0
    for record in range(run.steps.size):
        point = tuple(jnp.asarray(array[record]) for array in run.weights)
        counted = _Counted(objective, point)
        began = time.perf_counter()
        found = extreme_eigenvalues(objective, point, tolerance=1e-4, method="davidson")
        mine += time.perf_counter() - began
        matvecs += found.largest[0].matvecs
        began = time.perf_counter()
        ends = [
            float(eigsh(counted.operator(), 1, which=which, **_EIGSH)[0]) for which in ("SA", "LA")
        ]
        theirs += time.perf_counter() - began
        products += counted.count
        norm = max(abs(value) for value in ends)
        pairs = zip((found.smallest[0].value, found.largest[0].value), ends, strict=True)
        gap = max(gap, *(abs(a - b) / norm for a, b in pairs))
    return Comparison(
        what=f"both ends, {name} 784-50-50-10, 1000 MNIST images, start, middle and end",
        unit="s",
        ours=mine,
        plain=theirs,
        bar=1,
        note=f"{matvecs} products against {products} of scipy's eigsh; they differ by {gap:.0e} "
        "of the norm",
    )


class _Shaped:
    """What scipy takes for an operator."""

    dtype = np.dtype(float)

    def __init__(self, shape: tuple[int, int], matvec: Callable[[np.ndarray], np.ndarray]):
        self.shape, self.matvec = shape, matvec


class _Counted:
    """A Hessian as a scipy operator that counts its products."""

    def __init__(self, objective: Objective, weights: Weights):
        self.count, self._size = 0, objective.network.size
        self._product = hessian_product(objective, weights)
        self._product(np.ones(self._size))  # compile

    def operator(self) -> LinearOperator:
        def product(vector: np.ndarray) -> np.ndarray:
            self.count += 1
            return self._product(vector.ravel())

        shape = (self._size, self._size)
        return aslinearoperator(_Shaped(shape, product))
