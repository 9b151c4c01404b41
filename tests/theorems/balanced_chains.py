"""Balanced and nearly balanced layers in NumPy, and the six instances of arora2019's theorem 1."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from thalweg.dynamics import Descent


def imbalance(layers):
    """By definition, with a loop."""
    gaps = [up.T @ up - low @ low.T for low, up in pairwise(layers)]
    return max((np.linalg.norm(gap) for gap in gaps), default=0.0)


def balanced(matrix, widths, random=None):
    """Procedure 1, with hidden units rotated at random where a generator is given."""
    left, values, right = np.linalg.svd(np.atleast_2d(matrix), full_matrices=False)
    depth, rank = len(widths) - 1, values.size
    if depth == 1:
        return [np.atleast_2d(np.asarray(matrix, float))]
    root = np.diag(values ** (1 / depth))
    blocks = [root @ right, *[root] * (depth - 2), left @ root]
    layers = []
    for (inputs, outputs), block in zip(pairwise(widths), blocks, strict=True):
        layer = np.zeros((outputs, inputs))
        layer[: block.shape[0], : block.shape[1]] = block
        layers.append(layer)
    assert min(widths[1:-1]) >= rank
    for j in range(depth - 1) if random is not None else ():
        turn = np.linalg.qr(random.standard_normal((widths[j + 1],) * 2))[0]
        layers[j], layers[j + 1] = turn @ layers[j], layers[j + 1] @ turn.T
    return layers


def nearly_balanced(layers, directions, wanted):
    """The layers plus the multiple of the directions at which the imbalance is as wanted."""

    def moved(size):
        return [layer + size * change for layer, change in zip(layers, directions, strict=True)]

    high = 1e-12
    while imbalance(moved(high)) < wanted:
        high *= 2
    low = 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if imbalance(moved(middle)) < wanted else (low, middle)
    return moved(low)


def stretched(layers, wanted):
    """W_1 (1 + a) and W_N / (1 + a), with a such that the imbalance is as wanted."""

    def moved(a):
        return [layers[0] * (1 + a), *layers[1:-1], layers[-1] / (1 + a)]

    low, high = 0.0, 0.5
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if imbalance(moved(middle)) < wanted else (low, middle)
    return moved(low)


def _delta(depth, target, product):
    c = np.linalg.svd(target, compute_uv=False)[-1] - np.linalg.norm(product - target)
    return c**2 / (256 * depth**3 * np.linalg.norm(target) ** (2 - 2 / depth))


def _stretched(widths, target, product):
    target, product = np.atleast_2d(target), np.atleast_2d(product)
    wanted = 0.999 * _delta(len(widths) - 1, target, product)
    return widths, target, stretched(balanced(product, widths), wanted)


def _instances():
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    diagonal, flat = np.diag([1.0, 0.95]), np.array([[0.6, 0.0, 0.8]])
    wide = np.array([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0]])
    change = np.array([[0.03, -0.02, 0.01], [0.02, -0.03, 0.04]])
    return {
        "I1": ((1, 1, 1), np.eye(1), [np.full((1, 1), 0.9**0.5)] * 2),
        "I2": ((2, 2, 2), np.eye(2) + 0.05 * turn, [np.eye(2)] * 2),
        "I3": _stretched(
            (2, 3, 2, 2), diagonal, diagonal + np.array([[-0.02, 0.03], [0.01, -0.03]])
        ),
        "I4": _stretched((3, 1, 2, 1, 1), flat, 0.92 * flat + [[0, 0.05, 0]]),
        "I5": _stretched((3, 2, 2), wide, wide + change),
        "I6": ((2, 2), np.eye(2), [np.array([[0.9, 0.05], [-0.05, 0.95]])]),
    }


INSTANCES = _instances()
"""Widths, target and start; the stretched ones have an imbalance of .999 of what is allowed."""


def long_descent(objective, weights, rate, marks):
    """`descend` for one run, recorded at these steps; ten times faster, as it pays for no lanes."""

    @jax.jit
    def advance(layers, count):
        def step(_, layers):
            # In lanes of one, so that small products are sums and not calls.
            slopes = objective.value_and_gradient_in_lanes(layers)[1]
            return tuple(w - rate * slope for w, slope in zip(layers, slopes, strict=True))

        moved = jax.lax.fori_loop(0, count, step, layers)
        return moved, objective.value_and_gradient_in_lanes(moved)[0]

    layers = tuple(jnp.asarray(array)[..., None] for array in weights)
    found = []
    for count in np.diff(marks, prepend=0):
        layers, loss = advance(layers, count)
        found.append((*(np.asarray(layer)[..., 0] for layer in layers), float(loss[0])))
    *stacks, losses = (np.array(column) for column in zip(*found, strict=True))
    return Descent(
        objective=objective,
        learning_rate=np.asarray(rate, float),
        steps=marks,
        times=rate * marks,
        weights=tuple(stacks),
        loss=losses,
        observed=None,
        diverged_at=np.asarray(-1),
        _final=tuple(stack[-1] for stack in stacks),
    )
