"""How loose the proven lower bounds on the smallest eigenvalue are, and what they cost.

`python benchmarks/eigenvalue_bounds.py [random] [built-in] [mnist]` prints a table in Markdown for
each part that is named, or for all of them. Ratios are bound / eigenvalue, at points where the
eigenvalue is negative: median and range.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse.linalg

import thalweg as tw
from thalweg import data
from thalweg.experiment import Experiment, building, starts
from thalweg.validated import Setting, setting_of, validated_curve
from thalweg.validated.chains import Chains
from thalweg.validated.hessian import dense_bound, dense_hessian, norm_bound
from thalweg.validated.lowest import indefinite_bound, nystroem_bound

METHODS = {
    "norms": norm_bound,
    "indefinite": indefinite_bound,
    "nystroem": nystroem_bound,
    "dense": dense_bound,
}
RANDOM = {"5-5-5-1": [5, 5, 5, 1], "6-5-5-3": [6, 5, 5, 3], "depth 10, 5 to 1": [5] * 10 + [1]}
POINTS = 50


def table(columns: Sequence[str]) -> None:
    """The head of a table."""
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))


def row(cells: Sequence[str]) -> None:
    """One line of it."""
    print("| " + " | ".join(cells) + " |", flush=True)


def spread(values: Sequence[float]) -> str:
    """Median and range of ratios."""
    shown = (np.median(values), min(values), max(values))
    return "{:.4g} ({:.4g} to {:.4g})".format(*shown)


def ratios(setting: Setting, points: Sequence[tuple]) -> list[str]:
    """For each method, how its bounds compare with LAPACK's eigenvalues."""
    found = {name: [] for name in METHODS}
    for layers in points:
        parts = (layers, setting.readout, setting.loss)
        exact = np.linalg.eigvalsh(dense_hessian(Chains(*parts), setting.loss, setting.decay))[0]
        if exact < 0:
            for name, bound in METHODS.items():
                found[name].append(bound(*parts, setting.decay) / exact)
    return [spread(each) for each in found.values()]


def random_table() -> None:
    """Gaussian weights of standard deviation 0.5, 50 Gaussian samples."""
    table(["network", *METHODS])
    for name, widths in RANDOM.items():
        rng = np.random.default_rng(2024)
        x, y = rng.normal(size=(50, widths[0])), rng.normal(size=(50, widths[-1]))
        setting = setting_of(tw.Objective(tw.LinearNetwork(widths), tw.Regression(x, y)))
        shapes = list(zip(widths[1:], widths[:-1], strict=True))
        points = [tuple(0.5 * rng.normal(size=each) for each in shapes) for _ in range(POINTS)]
        row([f"linear {name}, 0.5", *ratios(setting, points)])


def built_in_table() -> None:
    """Along the flow of the experiment that `thalweg run` does."""
    objective = building.objective(Experiment())
    layers = tuple(np.asarray(each, float) for each in starts.start(Experiment(), objective))
    setting = setting_of(objective)
    curve = validated_curve(setting, layers, 16.0)
    table(["time", "smallest eigenvalue", *METHODS])
    for moment in (0.0, 1.0, 2.0, 3.0, 4.0, 8.0, 16.0):
        point = curve.at(moment)[0]
        parts = (point, setting.readout, setting.loss)
        exact = np.linalg.eigvalsh(dense_hessian(Chains(*parts), setting.loss, 0.0))[0]
        found = [f"{bound(*parts, 0.0):.5g}" for bound in METHODS.values()]
        row([f"{moment:g}", f"{exact:.5g}", *found])


def mnist_problem(size: float | None = None) -> tuple[tw.Objective, tuple]:
    """The network 784-50-50-10 on 1000 images, from a Xavier start, or that shrunk to a norm."""
    import jax  # which takes long to load

    digits = data.mnist(images=np.random.default_rng(2021).permutation(60_000)[:1000])
    network = tw.LinearNetwork([784, 50, 50, 10])
    objective = tw.Objective(network, tw.Classification(digits.x, digits.labels))
    key = jax.random.split(jax.random.key(1))[0]
    start = tuple(
        np.asarray(each, float) for each in tw.initialisation.xavier_uniform(network, key=key)
    )
    if size is not None:
        whole = np.sqrt(sum(np.sum(each**2) for each in start))
        start = tuple(each * size / whole for each in start)
    return objective, start


def mnist_table() -> None:
    """Along the flow from a Xavier start; the search is ARPACK's, on products with vectors."""
    objective, start = mnist_problem()
    setting = setting_of(objective)
    curve = validated_curve(setting, start, 10.0)
    methods = {name: bound for name, bound in METHODS.items() if name != "dense"}
    table(["time", "search", *methods, "CPU s of each"])
    for moment in (0.0, 0.2, 1.0, 10.0):
        point = curve.at(moment)[0]
        found = [_timed(_searched, objective, point)]
        for bound in methods.values():
            parts = (point, setting.readout, setting.loss, setting.decay)
            found.append(_timed(bound, *parts))
        spent = ", ".join(f"{seconds:.2g}" for _, seconds in found)
        row([f"{moment:g}", *(f"{value:.5g}" for value, _ in found), spent])


def _searched(objective: tw.Objective, point: tuple) -> float:
    ends = np.cumsum([each.size for each in point])[:-1]

    def product(vector: np.ndarray) -> np.ndarray:
        pieces = zip(np.split(vector, ends), point, strict=True)
        direction = tuple(piece.reshape(each.shape) for piece, each in pieces)
        return np.concatenate([np.ravel(each) for each in objective.hvp(point, direction)])

    size = sum(each.size for each in point)
    operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=product, dtype=float)
    return float(scipy.sparse.linalg.eigsh(operator, k=1, which="SA", tol=1e-4)[0][0])


def _timed(compute: Callable[..., float], *arguments: Any) -> tuple[float, float]:
    begun = time.process_time()
    return compute(*arguments), time.process_time() - begun


def main(parts: Sequence[str]) -> None:
    """Print the tables."""
    tables = {"random": random_table, "built-in": built_in_table, "mnist": mnist_table}
    for name in parts or tables:
        tables[name]()
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
