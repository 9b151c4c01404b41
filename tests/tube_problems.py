"""Random problems on which tubes are tried: `python tests/tube_problems.py 200` tries so many."""

import sys
from dataclasses import dataclass

import jax
import numpy as np

import thalweg as tw
from thalweg import curvature, initialisation

# Depths 2 to 6 and widths 1 to 8, with one and several outputs. A short list: every shape is
# compiled anew.
SHAPES = (
    (3, 2, 1),
    (2, 8, 2),
    (4, 4, 4, 1),
    (3, 3, 3, 3),
    (5, 2, 3, 2, 1),
    (2, 2, 2, 2, 2),
    (3, 1, 1, 1, 1, 1),
    (3, 3, 3, 3, 3, 2),
    (2, 4, 2, 4, 2, 4, 1),
    (2, 2, 2, 2, 2, 2, 2),
)
STARTS = ("balanced", "gaussian", "near zero", "residual")
CONDITIONS = (1.0, 1e3)
EDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 1.2)
STEPS, RECORD_EVERY, SAMPLES = 200, 5, 12
FLOW = {"rtol": 1e-11, "atol": 1e-13}


@dataclass(frozen=True)
class Problem:
    """A run to be proven: what, where from, and its learning rate as a part of 2 / sharpness."""

    objective: tw.Objective
    start: tuple
    start_kind: str
    condition: float
    edge: float
    learning_rate: float


@dataclass(frozen=True)
class Outcome:
    """What a tube said and whether it was so.

    `excess` is by how much the flow was outside, beyond three times its own error; at most zero if
    it was not. `margin` is the smallest distance to either bound, and `looseness` the largest upper
    bound, as parts of the true distance, where that is known to four digits.
    """

    failed_at: float | None
    times_proven: int
    excess: float
    margin: float
    looseness: float


def random_problem(number: int) -> Problem:
    rng = np.random.default_rng(number)
    shape = SHAPES[number % len(SHAPES)]
    kind, condition, edge = (rng.choice(each) for each in (STARTS, CONDITIONS, EDGES))
    network = tw.LinearNetwork(shape)
    objective = tw.Objective(network, _regression(rng, shape, condition))
    start = _start(network, kind, jax.random.key(number))
    rate = edge * 2 / _sharpness(objective, start)
    return Problem(objective, start, str(kind), float(condition), float(edge), float(rate))


def _regression(rng, shape, condition):
    """White or ill-conditioned inputs, a random target, and a little noise."""
    inputs = np.linalg.qr(rng.normal(size=(SAMPLES, shape[0])))[0] * np.sqrt(SAMPLES)
    turn = np.linalg.qr(rng.normal(size=(shape[0], shape[0])))[0]
    inputs = inputs * np.geomspace(1, condition**-0.5, shape[0]) @ turn
    target = rng.normal(size=(shape[0], shape[-1])) / np.sqrt(shape[0])
    return tw.Regression(inputs, inputs @ target + 0.1 * rng.normal(size=(SAMPLES, shape[-1])))


def _start(network, kind, key):
    if kind == "balanced":
        return initialisation.balanced(network, 0.3, key=key)
    if kind == "residual":
        noise = initialisation.gaussian(network, 0.1, key=key)
        return tuple(a + b for a, b in zip(initialisation.identity(network), noise, strict=True))
    return initialisation.gaussian(network, 0.5 if kind == "gaussian" else 0.01, key=key)


def _sharpness(objective, start):
    """The larger of what it is at the start, and at a minimiser whose layers share the work."""
    problem, depth = objective.problem, objective.network.depth
    size = np.linalg.norm(np.asarray(problem.minimiser), 2)
    there = 2 * float(problem.scale) * float(problem.spectrum[-1]) * depth * size ** (2 - 2 / depth)
    return max(curvature.sharpness(objective, start).value, there)


def outcome(problem: Problem) -> Outcome:
    """Oracle: the flow, integrated to eleven digits with an error that is measured."""
    run = tw.descend(
        problem.objective,
        problem.start,
        learning_rate=problem.learning_rate,
        steps=STEPS,
        record_every=RECORD_EVERY,
    )
    proven = tw.tube(run)
    flow = tw.flow(problem.objective, problem.start, times=run.times, **FLOW)
    known = np.isfinite(proven.upper)
    gap, doubt = tw.distance(run, flow)[known], 3 * flow.error[known] + 1e-12
    lower, upper = proven.lower[known], proven.upper[known]
    excess = np.max(np.maximum(gap - upper, lower - gap) - doubt)
    clear = gap > 1e4 * doubt
    nearest = np.minimum(upper - gap, gap - lower)[clear] / gap[clear]
    return Outcome(
        proven.failed_at,
        int(known.sum()),
        float(excess),
        float(np.min(nearest, initial=np.inf)),
        float(np.max(upper[clear] / gap[clear], initial=0.0)),
    )


def main(count: int) -> None:
    kept = []
    for number in sorted(range(count), key=lambda each: each % len(SHAPES)):
        problem = random_problem(number)
        found = outcome(problem)
        kept.append(found)
        widths = problem.objective.network.widths
        print(
            number, widths, problem.start_kind, problem.condition, problem.edge, found, flush=True
        )
    whole = [each for each in kept if each.failed_at is None]
    print(f"outside: {sum(each.excess > 0 for each in kept)} of {len(kept)}")
    print(f"proven to the end: {len(whole)}, ended before: {len(kept) - len(whole)}")
    print(f"smallest margin: {min(each.margin for each in kept):.3g}")
    ratios = [each.looseness for each in whole if each.looseness]
    print(f"upper / true to the end: median {np.median(ratios):.4g}, largest {max(ratios):.4g}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
