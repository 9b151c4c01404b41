"""Random problems for validated flows: `python tests/validated/problems.py 0 500` tries so many."""

import sys
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import reference

from thalweg.validated.curve import Setting, validated_curve
from thalweg.validated.losses import SquareSeries
from thalweg.validated.probabilities import CrossEntropySeries, ExponentialSeries, LogisticSeries
from thalweg.validated.rounding import UNIT

LOSSES = ("square", "cross-entropy", "logistic", "exponential")
WIDTHS = ((3, 2), (2, 3, 2), (3, 4, 3), (2, 2, 2, 2), (3, 1, 2, 3), (2, 3, 1, 3, 2))
PRECISIONS = (UNIT, 1e-12, 1e-8, 1e-5)


@dataclass(frozen=True)
class Trial:
    """A problem, and what flows it in long double precision."""

    setting: Setting
    start: tuple
    outer: object
    horizon: float
    kind: str


def trial(number: int) -> Trial:
    rng = np.random.default_rng(number)
    kind = LOSSES[number % 4]
    widths = list(WIDTHS[rng.integers(len(WIDTHS))])
    outputs = 3 if kind == "cross-entropy" else 1 if kind != "square" else int(rng.integers(1, 4))
    if rng.random() < 0.3:
        readout = rng.normal(size=(widths[-1], outputs))
    else:
        widths.append(outputs)
        readout = np.eye(outputs)
    scale = float(rng.choice([0.05, 0.4, 0.8]))
    start = tuple(scale * rng.normal(size=(b, a)) for a, b in pairwise(widths))
    loss, outer = _loss(rng, kind, widths[0], outputs)
    decay = float(rng.choice([0.0, 0.0, 0.1]))
    precision = float(rng.choice(PRECISIONS))
    dense = bool(rng.random() < 0.7)
    order = int(rng.choice([8, 16]))
    horizon, extended = float(rng.choice([0.5, 2.0, 6.0])), bool(rng.random() < 0.5)
    setting = Setting(readout, loss, decay, dense, order, order + 8, precision, extended)
    return Trial(setting, start, outer, horizon, kind)


def _loss(rng, kind, features, outputs):
    samples = int(rng.integers(4, 9))
    x = rng.normal(size=(samples, features)) * np.geomspace(1, rng.choice([1, 0.05]), features)
    exact = x.astype(reference.LONG)
    if kind == "square":
        y = rng.normal(size=(samples, outputs))
        loss = SquareSeries(x / samples**0.5, y.T / samples**0.5, 0.5)
        # The same rounded numbers, so that both speak of one loss.
        long = (loss.factor.astype(reference.LONG), loss.target.T.astype(reference.LONG))
        root = reference.LONG(samples) ** reference.LONG(0.5)
        return loss, reference.square(long[0] * root, long[1] * root, 0.5)
    if kind == "cross-entropy":
        labels = np.concatenate([np.arange(3), rng.integers(3, size=samples - 3)])
        return CrossEntropySeries(x, labels, 3), reference.cross_entropy(exact, labels)
    signs = rng.choice([-1.0, 1.0], size=samples)
    makers = {
        "logistic": (LogisticSeries, reference.logistic),
        "exponential": (ExponentialSeries, reference.exponential),
    }
    ours, theirs = makers[kind]
    return ours(x, signs), theirs(exact, signs.astype(reference.LONG))


def outcome(problem: Trial) -> tuple[float | None, float, float]:
    """When it failed, the largest share of the radius that was used, and the last radius."""
    curve = validated_curve(problem.setting, problem.start, problem.horizon)
    reached = problem.horizon if curve.failed_at is None else curve.failed_at
    times = np.linspace(0, reached, 9)[1:]
    exact = reference.flow(
        problem.start, problem.setting.readout, problem.outer, problem.setting.decay, times
    )
    used = 0.0
    for time, truth in zip(times, exact, strict=True):
        layers, radius = curve.at(float(time))
        off = np.sqrt(float(sum(np.sum((a - b) ** 2) for a, b in zip(layers, truth, strict=True))))
        assert radius > 0  # and so no NaN
        used = max(used, off / radius)
    return curve.failed_at, used, radius


def main(first: int, last: int) -> None:
    shares, failed = [], 0
    for number in range(first, last):
        problem = trial(number)
        failed_at, used, radius = outcome(problem)
        failed += failed_at is not None
        shares.append(used)
        mark = "" if used < 1 else "   OUTSIDE"
        print(number, problem.kind, failed_at, f"used {used:.2g} of {radius:.2g}{mark}", flush=True)
    print(f"{len(shares)} problems, outside {sum(s >= 1 for s in shares)}, failed {failed}, ")
    print(f"largest share of the radius {max(shares):.3g}, median {np.median(shares):.2g}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
