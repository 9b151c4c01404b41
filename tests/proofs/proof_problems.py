"""Problems to prove something about, with oracles in NumPy and SciPy."""

from itertools import pairwise

import numpy as np
from scipy.integrate import solve_ivp

import thalweg as tw
from thalweg.dynamics import Descent


class Plain:
    """The objective of a regression in NumPy: an oracle, and descents that need no compiling."""

    def __init__(self, widths, outputs=None, decay=0.0, condition=1.0, samples=9):
        rng = np.random.default_rng(0)
        self.widths, self.decay = widths, decay
        self.readout = None if outputs is None else rng.normal(size=(widths[-1], outputs))
        wanted = widths[-1] if outputs is None else outputs
        self.x = rng.normal(size=(samples, widths[0])) * np.geomspace(1, condition**-0.5, widths[0])
        self.y = self.x @ rng.normal(size=(widths[0], wanted)) + rng.normal(size=(samples, wanted))
        self.start = 0.5 * rng.normal(size=sum(a * b for a, b in pairwise(widths)))

    def layers(self, point):
        ends = np.cumsum([a * b for a, b in pairwise(self.widths)])[:-1]
        shapes = [(b, a) for a, b in pairwise(self.widths)]
        return [w.reshape(s) for w, s in zip(np.split(point, ends), shapes, strict=True)]

    def gradient(self, point):
        layers = self.layers(point)
        factors = layers if self.readout is None else [*layers, self.readout.T]
        outputs = [self.x.T]
        for factor in factors:
            outputs.append(factor @ outputs[-1])
        error, slopes = 2 * 0.7 / len(self.x) * (outputs[-1] - self.y.T), []
        for factor, before in zip(reversed(factors), reversed(outputs[:-1]), strict=True):
            slopes.append(error @ before.T)
            error = factor.T @ error
        flat = [slope.ravel() for slope in slopes[::-1][: len(layers)]]
        return np.concatenate(flat) + self.decay * point

    def hessian(self, point):
        """By complex steps, which lose no digits."""
        steps = 1e-30j * np.eye(point.size)
        return np.array([self.gradient(point + step).imag / 1e-30 for step in steps])

    def run(self, rate=0.02, steps=30, noise=0.0):
        """A descent, whose points may be disturbed."""
        points = [self.start]
        for _ in range(steps):
            points.append(points[-1] - rate * self.gradient(points[-1]))
        points = np.array(points)
        points[1:] += noise * np.random.default_rng(1).normal(size=points[1:].shape)
        network = tw.LinearNetwork(self.widths, self.readout)
        weights = [np.array(w) for w in zip(*map(self.layers, points), strict=True)]
        return Descent(
            objective=tw.Objective(network, tw.Regression(self.x, self.y, 0.7), self.decay),
            learning_rate=np.asarray(rate),
            steps=np.arange(steps + 1),
            times=rate * np.arange(steps + 1),
            weights=tuple(weights),
            loss=np.zeros(steps + 1),
            observed=None,
            diverged_at=np.asarray(-1),
            _final=tuple(w[-1] for w in weights),
        )

    def gap(self, run, start=None):
        """The distance from the flow, by SciPy."""
        flow = solve_ivp(
            lambda _, point: -self.gradient(point),
            (0, run.times[-1]),
            self.start if start is None else start,
            "DOP853",
            run.times,
            rtol=1e-12,
            atol=1e-13,
        )
        points = np.concatenate([w.reshape(run.times.size, -1) for w in run.weights], axis=1)
        return np.linalg.norm(points - flow.y.T, axis=1)


CASES = {
    "depth 1": {"widths": [3, 2]},
    "several outputs": {"widths": [3, 4, 2]},
    "readout": {"widths": [3, 3, 4], "outputs": 2},
    "one output": {"widths": [3, 2, 2], "outputs": 1},
    "decay": {"widths": [3, 2, 2], "decay": 0.3},
    "ill-conditioned": {"widths": [3, 2, 2], "condition": 1e10},
    "depth 4": {"widths": [3, 2, 3, 2, 2]},
}
