"""Problems to prove something about, with oracles in NumPy, and in forty digits with mpmath."""

from itertools import pairwise

import mpmath
import numpy as np
from scipy.integrate import solve_ivp

import thalweg as tw
from thalweg.dynamics import Descent

DIGITS = 40
_LENGTH = 0.021  # of an extrapolation: with it, 1e-21 is left
_MIDPOINTS = 8  # of an extrapolation, whose order is twice that


class Plain:
    """The objective of a regression or a classification in NumPy, of doubles, complex or mpf."""

    def __init__(self, widths, outputs=None, decay=0.0, condition=1.0, samples=9, classify=False):
        rng = np.random.default_rng(0)
        self.widths, self.decay = widths, decay
        self.readout = None if outputs is None else rng.normal(size=(widths[-1], outputs))
        wanted = widths[-1] if outputs is None else outputs
        self.x = rng.normal(size=(samples, widths[0])) * np.geomspace(1, condition**-0.5, widths[0])
        self.y = self.x @ rng.normal(size=(widths[0], wanted)) + rng.normal(size=(samples, wanted))
        self.labels = np.argmax(self.y, axis=1) if classify else None
        self.start = 0.5 * rng.normal(size=sum(a * b for a, b in pairwise(widths)))
        self._flows = {}

    @property
    def objective(self):
        problem = tw.Regression(self.x, self.y, 0.7)
        if self.labels is not None:
            problem = tw.Classification(self.x, self.labels, self.y.shape[1])
        return tw.Objective(tw.LinearNetwork(self.widths, self.readout), problem, self.decay)

    def layers(self, point):
        ends = np.cumsum([a * b for a, b in pairwise(self.widths)])[:-1]
        shapes = [(b, a) for a, b in pairwise(self.widths)]
        return [w.reshape(s) for w, s in zip(np.split(point, ends), shapes, strict=True)]

    def _error(self, outputs):
        """The loss's derivative with respect to the outputs, one column per sample."""
        if self.labels is None:
            # In the arithmetic of the outputs, for 1.4 is no double.
            return (outputs - self.y.T) * 2 * 0.7 / len(self.x)
        grown = elementwise_exp(outputs)
        chosen = np.arange(outputs.shape[0])[:, None] == self.labels
        return (grown / grown.sum(axis=0) - chosen) / len(self.x)

    def gradient(self, point):
        layers = self.layers(point)
        factors = layers if self.readout is None else [*layers, self.readout.T]
        outputs = [self.x.T]
        for factor in factors:
            outputs.append(factor @ outputs[-1])
        error, slopes = self._error(outputs[-1]), []
        for factor, before in zip(reversed(factors), reversed(outputs[:-1]), strict=True):
            slopes.append(error @ before.T)
            error = factor.T @ error
        flat = [slope.ravel() for slope in slopes[::-1][: len(layers)]]
        return np.concatenate(flat) + self.decay * point

    def hessian(self, point):
        """By complex steps, which lose no digits."""
        steps = 1e-30j * np.eye(point.size)
        return np.array([self.gradient(point + step).imag / 1e-30 for step in steps])

    def points(self, rate, steps, start=None):
        """A descent, in the arithmetic of its start."""
        found = [self.start if start is None else start]
        for _ in range(steps):
            found.append(found[-1] - rate * self.gradient(found[-1]))
        return np.array(found)

    def run(self, rate=0.02, steps=30):
        """The same in doubles, as a run, without compiling anything."""
        weights = zip(*map(self.layers, self.points(rate, steps)), strict=True)
        weights = tuple(np.array(w) for w in weights)
        return Descent(
            objective=self.objective,
            learning_rate=np.asarray(rate),
            steps=np.arange(steps + 1),
            times=rate * np.arange(steps + 1),
            weights=weights,
            loss=np.zeros(steps + 1),
            observed=None,
            diverged_at=np.asarray(-1),
            _final=tuple(w[-1] for w in weights),
        )

    def flow(self, times, start=None):
        """The flow at these times in forty digits, by extrapolated midpoint rules.

        It goes on from the nearest time before that it was asked for.
        """
        start = self.start if start is None else start
        with mpmath.workdps(DIGITS):
            known = self._flows.setdefault(tuple(start), {mpmath.mpf(0): digits(start)})
            for end in times:
                begin = max(time for time in known if time <= end)
                point = known[begin]
                count = int(mpmath.ceil((end - begin) / _LENGTH))
                for _ in range(count):
                    point = self._extrapolated(point, (end - begin) / count)
                known[end] = point
            return np.array([known[time] for time in times])

    def smooth(self, times):
        """The flow in doubles, by SciPy."""
        return solve_ivp(
            lambda _, point: -self.gradient(point), (0, times[-1]), self.start, "DOP853", times,
            rtol=1e-12, atol=1e-13,
        ).y.T  # fmt: skip

    def _extrapolated(self, point, length):
        """One step: the midpoint rule's error is a series in the square of its step."""
        rows, counts = [], [2 * i for i in range(1, _MIDPOINTS + 1)]
        for i, count in enumerate(counts):
            row = [self._midpoints(point, length, count)]
            for k in range(1, i + 1):
                factor = mpmath.mpf(count) ** 2 / counts[i - k] ** 2 - 1
                row.append(row[-1] + (row[-1] - rows[-1][k - 1]) / factor)
            rows.append(row)
        return rows[-1][-1]

    def _midpoints(self, point, length, count):
        share = length / count
        before, now = point, point - share * self.gradient(point)
        for _ in range(count - 1):
            before, now = now, before - 2 * share * self.gradient(now)
        return (before + now - share * self.gradient(now)) / 2

    def gaps(self, rate, steps, start=None):
        """The distance of exact descent to the exact flow from `start`, as mpf."""
        with mpmath.workdps(DIGITS):
            eta = mpmath.mpf(rate)
            points = self.points(eta, steps, digits(self.start))
            flow = self.flow([eta * k for k in range(steps + 1)], start)
            return [mpmath.sqrt(sum(d * d for d in row)) for row in points - flow]


def digits(array):
    """Doubles as mpf, exactly."""
    return np.array([mpmath.mpf(float(x)) for x in np.ravel(array)], dtype=object)


def elementwise_exp(values):
    if values.dtype == object:
        flat = [mpmath.exp(x) for x in values.ravel()]
        return np.array(flat, dtype=object).reshape(values.shape)
    return np.exp(values)


CASES = {
    "depth 1": {"widths": [3, 2]},
    "several outputs": {"widths": [3, 4, 2]},
    "readout": {"widths": [3, 3, 4], "outputs": 2},
    "one output": {"widths": [3, 2, 2], "outputs": 1},
    "decay": {"widths": [3, 2, 2], "decay": 0.3},
    "ill-conditioned": {"widths": [3, 2, 2], "condition": 1e10},
    "depth 4": {"widths": [3, 2, 3, 2, 2]},
    "classes": {"widths": [3, 2, 3], "classify": True},
    "classes, readout, decay": {
        "widths": [3, 2, 2], "outputs": 3, "decay": 0.1, "classify": True,
    },
}  # fmt: skip
