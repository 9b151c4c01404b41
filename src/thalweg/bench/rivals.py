"""Both ends of a Hessian's spectrum as other tools find them, for the benchmark alone.

scipy's eigsh works on our own products. curvlinops gives scipy an operator made of torch's
products. PyHessian takes power iterations, which find the eigenvalue of largest modulus: one end.
The torch tools run in single precision, which is their default and their fastest.
"""

import importlib
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh

from thalweg._typing import Weights
from thalweg.curvature.operators import HessianOperator, products_of
from thalweg.objective import Objective
from thalweg.problem import Classification


@dataclass(frozen=True)
class Ends:
    """What a tool found, how often it multiplied, and how long it took."""

    smallest: float
    largest: float
    products: int
    seconds: float


Rival = Callable[[Objective, Weights, float], Ends]


def scipy_eigsh(objective: Objective, weights: Weights, tolerance: float) -> Ends:
    """Lanczos as scipy has it, on our products."""
    operator = HessianOperator(objective, weights)
    product = products_of(operator)
    product(np.ones(operator.size))  # compile
    return by_eigsh(product, operator.size, tolerance)


def curvlinops(objective: Objective, weights: Weights, tolerance: float) -> Ends:
    """Lanczos as scipy has it, on curvlinops' products."""
    torch, layers, inputs, labels = _in_torch(objective, weights)
    operator = importlib.import_module("curvlinops").HessianLinearOperator(
        layers,
        torch.nn.CrossEntropyLoss(),
        list(layers.parameters()),
        [(inputs, labels)],
        check_deterministic=False,
    )
    theirs = operator.to_scipy()

    def product(vector: np.ndarray) -> np.ndarray:
        return theirs @ vector.astype(np.float32)

    product(np.ones(objective.network.size))  # warm up
    return by_eigsh(product, objective.network.size, tolerance)


def pyhessian(objective: Objective, weights: Weights, tolerance: float) -> Ends:
    """PyHessian's power iterations: the end of largest modulus only; the other is not a number."""
    torch, layers, inputs, labels = _in_torch(objective, weights)
    module = importlib.import_module("pyhessian")
    torch.manual_seed(0)
    tool = module.hessian(layers, torch.nn.CrossEntropyLoss(), data=(inputs, labels), cuda=False)
    began = time.perf_counter()
    found = tool.eigenvalues(maxIter=1000, tol=tolerance)[0][0]
    return Ends(np.nan, float(found), 0, time.perf_counter() - began)


def available() -> dict[str, Rival]:
    """The tools that are installed here."""
    rivals: dict[str, Rival] = {"scipy's eigsh": scipy_eigsh}
    for name, module, rival in (
        ("curvlinops", "curvlinops", curvlinops),
        ("PyHessian", "pyhessian", pyhessian),
    ):
        if importlib.util.find_spec(module) is not None:
            rivals[name] = rival
    return rivals


def _in_torch(objective: Objective, weights: Weights) -> tuple[Any, Any, Any, Any]:
    """The same fully connected network and its data, as torch has them."""
    torch = importlib.import_module("torch")
    problem = objective.problem
    assert isinstance(problem, Classification)  # all that is compared; torch takes its labels
    modules = []
    for layer, array in enumerate(weights):
        if layer > 0 and objective.network.linear is None:
            modules.append(torch.nn.ReLU())
        modules.append(torch.nn.Linear(*reversed(array.shape), bias=False))
        modules[-1].weight.data = torch.tensor(np.asarray(array, np.float32))
    inputs = torch.tensor(np.asarray(problem.inputs, np.float32))
    labels = torch.tensor(np.asarray(problem.labels), dtype=torch.long)
    return torch, torch.nn.Sequential(*modules), inputs, labels


def by_eigsh(
    product: Callable[[np.ndarray], np.ndarray],
    size: int,
    tolerance: float,
    ends: tuple[str, ...] = ("SA", "LA"),
) -> Ends:
    """Both ends by scipy's Lanczos; an end that was not asked for is not a number."""
    counted = _Counted(product, size)
    began = time.perf_counter()
    found: dict[str, float] = {}
    for which in ends:
        how: Any = {"which": which, "tol": tolerance, "return_eigenvectors": False}
        found[which] = float(eigsh(counted.operator, 1, **how)[0])
    smallest, largest = (found.get(which, np.nan) for which in ("SA", "LA"))
    return Ends(smallest, largest, counted.count, time.perf_counter() - began)


class _Counted:
    """A symmetric product as scipy takes it, counting how often it is used."""

    dtype = np.dtype(float)

    def __init__(self, product: Callable[[np.ndarray], np.ndarray], size: int):
        self.count, self.shape, self._product = 0, (size, size), product

    def matvec(self, vector: np.ndarray) -> np.ndarray:
        """The product, counted."""
        self.count += 1
        return np.asarray(self._product(vector.ravel()), float)

    @property
    def operator(self) -> LinearOperator:
        """For eigsh."""
        return aslinearoperator(self)
