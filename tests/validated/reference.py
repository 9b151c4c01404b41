"""The gradient flow in long double precision, by extrapolation: nothing in common with the package.

Gragg's modified midpoint rule, extrapolated in the square of the step (Bulirsch and Stoer). Losses
are written out over samples, gradients by the chain rule, matrix by matrix.
"""

import numpy as np

LONG = np.longdouble
NUMBERS = (2, 4, 6, 8, 10, 12, 14, 16)  # of steps of the midpoint rule


def gradient(layers, readout, outer, decay):
    """Of all layers, by multiplying everything out; `outer` is the gradient of the product."""
    depth = len(layers)
    found = []
    for j in range(depth):
        above = readout.T
        for k in range(depth - 1, j, -1):
            above = above @ layers[k]
        below = np.eye(layers[0].shape[1], dtype=LONG)
        for k in range(j):
            below = layers[k] @ below
        found.append(above.T @ outer @ below.T + LONG(decay) * layers[j])
    return found


def product(layers, readout):
    made = layers[0]
    for layer in layers[1:]:
        made = layer @ made
    return readout.T @ made


def square(x, y, scale):
    def outer(matrix):
        return 2 * LONG(scale) * (matrix @ x.T - y.T) @ x / LONG(len(x))

    return outer


def cross_entropy(x, labels):
    expected = (np.arange(labels.max() + 1)[:, None] == labels).astype(LONG)

    def outer(matrix):
        scores = matrix @ x.T
        grown = np.exp(scores - scores.max(axis=0))
        return (grown / grown.sum(axis=0) - expected) @ x / LONG(len(x))

    return outer


def logistic(x, signs):
    def outer(matrix):
        margins = signs * (matrix @ x.T)
        return (-signs / (1 + np.exp(margins))) @ x / LONG(len(x))

    return outer


def exponential(x, signs):
    def outer(matrix):
        return (-signs * np.exp(-signs * (matrix @ x.T))) @ x / LONG(len(x))

    return outer


def flow(layers, readout, outer, decay, times, tolerance=1e-17):
    """The layers at these times, to about the tolerance per unit of size."""
    state = [np.asarray(layer, LONG) for layer in layers]
    readout = np.asarray(readout, LONG)

    def field(point):
        return [-each for each in gradient(point, readout, outer(product(point, readout)), decay)]

    now, step, found = LONG(0), LONG(0.05), []
    for time in np.asarray(times, LONG):
        while now < time:
            length = min(step, time - now)
            with np.errstate(over="ignore", invalid="ignore"):  # steps that are too long
                after, error = _extrapolated(field, state, length)
            size = sum(np.sum(each**2) for each in state) ** LONG(0.5)
            if error <= LONG(tolerance) * (1 + size):
                state, now = after, now + length
                step = length * LONG(1.3)
            else:
                step = length * LONG(0.5)
        found.append([each.copy() for each in state])
    return found


def _extrapolated(field, state, length):
    table = []
    for row, number in enumerate(NUMBERS):
        current = [_midpoint(field, state, length, number)]
        for column in range(row):
            ratio = (LONG(number) / LONG(NUMBERS[row - column - 1])) ** 2
            current.append(
                [
                    better + (better - worse) / (ratio - 1)
                    for better, worse in zip(current[-1], table[-1][column], strict=True)
                ]
            )
        table.append(current)
    best, other = table[-1][-1], table[-1][-2]
    error = max(np.max(np.abs(a - b)) for a, b in zip(best, other, strict=True))
    return best, error


def _midpoint(field, state, length, number):
    part = length / LONG(number)
    before, here = state, [a + part * b for a, b in zip(state, field(state), strict=True)]
    for _ in range(number - 1):
        before, here = here, [a + 2 * part * b for a, b in zip(before, field(here), strict=True)]
    slopes = field(here)
    return [(a + b + part * c) / 2 for a, b, c in zip(before, here, slopes, strict=True)]
