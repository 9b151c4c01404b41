"""What the estimated error of a flow means: against validated flows, on many problems.

    python benchmarks/flow_error.py 100

For each problem, solver and tolerance: the true error (up to the proven radius, which is far below
it) divided by `error`, and by `error_so_far`, at the times recorded.
"""

import sys
from collections import defaultdict
from itertools import product

import jax
import numpy as np

import thalweg as tw

TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)
SOLVERS = {
    "explicit": tw.solvers.Explicit(),
    "collocation": tw.solvers.Collocation(),
    "chebyshev": tw.solvers.Chebyshev(),
}


def problem(number: int) -> tuple[tw.Objective, tuple, float]:
    """A linear network with the square loss, cross-entropy or the logistic loss."""
    rng = np.random.default_rng(number)
    depth, kind = 1 + number % 4, number // 4 % 3
    network = tw.LinearNetwork([3] * depth + [(2, 3, 1)[kind]])
    x = rng.normal(size=(12, 3)) * np.geomspace(1, rng.choice([1.0, 0.1]), 3)
    labels = np.arange(12) % (3 if kind == 1 else 2)
    problems = (
        lambda: tw.Regression(x, rng.normal(size=(12, 2))),
        lambda: tw.Classification(x, labels),
        lambda: tw.Classification(x, labels, loss="logistic"),
    )
    objective = tw.Objective(network, problems[kind](), float(rng.choice([0.0, 0.05])))
    scale = float(rng.choice([0.2, 0.6, 1.0]))
    start = tw.initialisation.gaussian(network, scale, key=jax.random.key(number))
    return objective, start, float(rng.choice([2.0, 10.0, 40.0]))


def ratios(number: int, name: str, rtol: float) -> tuple[np.ndarray, np.ndarray] | None:
    """The true error by the estimate, at each time, and by the largest estimate so far."""
    objective, start, time = problem(number)
    times = np.linspace(0, time, 21)[1:]
    proven = PROVEN.setdefault(number, tw.flow(objective, start, times=times, validate=True))
    if proven.failed_at is not None:
        return None
    try:
        found = tw.flow(
            objective, start, times=times, rtol=rtol, atol=rtol / 100, solver=SOLVERS[name]
        )
    except tw.dynamics.FlowError:
        return None
    true = np.asarray(tw.distance(found, proven))
    true = np.where(true > 3 * proven.radius, true, np.nan)  # else rounding, not the flow's error
    return true / found.error, true / found.error_so_far


PROVEN: dict[int, tw.dynamics.ValidatedFlow] = {}


def main(count: int) -> None:
    """Print a table."""
    at_once, so_far, lost = defaultdict(list), defaultdict(list), defaultdict(int)
    for number, name, rtol in product(range(count), SOLVERS, TOLERANCES):
        if name == "chebyshev" and rtol < 1e-8:  # order two: too many steps
            continue
        found = ratios(number, name, rtol)
        if found is None:
            lost[name, rtol] += 1
            continue
        for kept, values in zip((at_once, so_far), found, strict=True):
            kept[name, rtol].append(values[np.isfinite(values)])
        if number % 10 == 0:
            print(number, name, rtol, f"{np.nanmax(found[0]):.2g}", file=sys.stderr, flush=True)
    print("| solver | rtol | records | true / error: median | 99 % | largest | above 1 "
          "| true / error_so_far: largest | above 1 |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for key in at_once:
        one, far = np.concatenate(at_once[key]), np.concatenate(so_far[key])
        if not one.size:
            continue
        print(f"| {key[0]} | {key[1]:g} | {one.size} | {np.median(one):.2f} | "
              f"{np.quantile(one, 0.99):.2f} | {one.max():.2g} | {np.mean(one > 1):.1%} | "
              f"{far.max():.2g} | {np.mean(far > 1):.1%} |")  # fmt: skip
    print(dict(lost))


if __name__ == "__main__":
    main(int(sys.argv[1]))
