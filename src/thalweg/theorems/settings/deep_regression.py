"""What statements about deep linear regression share: the data in numbers, and minima reached.

For a linear network of depth L whose readout has norm r, on least squares with input moment Sigma
(extreme eigenvalues mu <= M) and solution w, marion2024 writes the risk R without a factor. An
objective f = scale * R has the same curve of gradient flow, on which time runs `scale` times as
fast: sharpness, rates and excess losses are `scale` times the paper's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from thalweg._checks import InputError
from thalweg._typing import Scalar, Weights
from thalweg.certificates import Case, Claim, Narrowed, requirement
from thalweg.curvature import reduced_sharpness
from thalweg.curvature.products import linear_network, partial_products, readout_norm, spectral_norm
from thalweg.dynamics import AbstractFlow, Descent
from thalweg.dynamics.trajectory import network_objective
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.objective.points import at_points
from thalweg.problem import AbstractLeastSquares, AbstractProblem

RANK_TOLERANCE = 1e-12
"""Eigenvalues of the input moment below this part of the largest count as zero."""


_COARSEST = 1e-2  # a resolution above this part of the sharpness tells nothing
_TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class DeepRegression:
    """A linear network on least squares, with the numbers that bounds are made of."""

    objective: Objective
    network: LinearNetwork
    problem: AbstractLeastSquares
    scale: float
    smallest: float
    largest: float
    readout: float
    size: float

    @property
    def depth(self) -> int:
        """How many layers are trained."""
        return self.network.depth

    @property
    def condition(self) -> float:
        """The largest eigenvalue of the input moment over the smallest that is not zero."""
        values = np.asarray(self.problem.spectrum)
        return self.largest / float(values[values > RANK_TOLERANCE * self.largest][0])


@dataclass(frozen=True, eq=False)
class Point:
    """A point of weight space, for statements that need neither a start nor a run."""

    objective: Objective
    weights: Weights

    def __post_init__(self):
        self.objective.network.check(self.weights)


class Minimum(NamedTuple):
    """A minimiser that was given or reached, its sharpness, how well that is known, and where."""

    weights: Weights
    sharpness: float
    resolution: float
    where: str = ""


class RegressionTraining(NamedTuple):
    """A case, and the regression that is trained."""

    case: Case
    regression: DeepRegression


def squared_error(problem: AbstractProblem) -> Narrowed[AbstractLeastSquares]:
    """A problem as a squared error."""
    squares = problem.least_squares
    return Narrowed((requirement("the loss is the squared error", squares is not None),), squares)


def deep_regression(objective: Objective) -> Narrowed[DeepRegression]:
    """A linear network that is trained on the squared error, and on nothing else."""
    network, problem = objective.network.linear, objective.problem.least_squares
    claims = (
        requirement("the network is linear", network is not None),
        requirement("there is no weight decay", float(objective.weight_decay) == 0),
        requirement("the loss is the squared error", problem is not None),
    )
    if network is None or problem is None:
        return Narrowed(claims, None)
    setting = DeepRegression(
        objective,
        network,
        problem,
        scale=float(problem.scale),
        smallest=max(float(np.asarray(problem.spectrum)[0]), 0.0),
        largest=float(np.asarray(problem.spectrum)[-1]),
        readout=float(readout_norm(network)),
        size=float(np.linalg.norm(problem.minimiser)),
    )
    return Narrowed.where(claims, setting)


def scalar_regression(objective: Objective) -> Narrowed[DeepRegression]:
    """The same with one output."""
    one = requirement("the network has one output", objective.problem.shape[0] == 1)
    return deep_regression(objective).further(lambda setting: Narrowed.where((one,), setting))


def unique_solution(setting: DeepRegression) -> Narrowed[DeepRegression]:
    """That the input moment is invertible, so that one linear predictor is the best (A1)."""
    spectrum = np.asarray(setting.problem.spectrum)
    part = max(RANK_TOLERANCE, spectrum.size * float(np.finfo(spectrum.dtype).eps))
    statement = f"{part:.0e} lambda_max(Sigma) <= lambda_min(Sigma)"
    claims = (
        requirement("the samples are not all zero", bool(spectrum[-1] > 0)),
        Claim(statement, part * spectrum[-1], spectrum[0]),
    )
    return Narrowed.where(claims, setting)


def in_training(case: Case, found: Narrowed[DeepRegression]) -> Narrowed[RegressionTraining]:
    """The case beside its regression."""
    return found.further(lambda setting: Narrowed((), RegressionTraining(case, setting)))


def minimum_at(setting: DeepRegression, weights: Weights) -> Minimum | None:
    """The sharpness at a minimiser of a scalar regression; None where there is none.

    Weights are taken for a minimiser if what is left of the gradient changes the sharpness by a
    millionth at most, and the loss is as near to its least. Then the product of the layers is right
    to about the condition number times that part, and every bound on the sharpness is a power of
    the product that is at most 2 per layer, hence the resolution; where that is above a hundredth
    there is nothing to compare.
    """
    at_zero = [np.zeros_like(array) for array in weights]
    excess, most = (_excess(setting, point) for point in (weights, at_zero))
    left = excess / max(most, _TINY)
    for tolerance in (1e-12, 1e-9, 1e-6):
        part = 4 * setting.depth * setting.condition * tolerance
        if left > tolerance or part > _COARSEST:
            continue
        try:
            sharpness = float(reduced_sharpness(setting.objective, weights, tolerance=tolerance))
        except InputError:
            continue
        return Minimum(weights, sharpness, part * sharpness) if sharpness > 0 else None
    return None


def _excess(setting: DeepRegression, weights: Any) -> float:
    product = np.asarray(setting.network.end_to_end(weights))
    image = product @ np.asarray(setting.problem.input_factor).T
    return float(setting.scale * np.sum((image - np.asarray(setting.problem.fitted).T) ** 2))


def minima_of(training: RegressionTraining) -> tuple[Minimum, ...]:
    """The start and the ends of run and flow, as far as they are minimisers."""
    case, setting = training
    points = {", at the start": case.weights}
    for name, path in (("flow", case.flow), ("run", case.run)):
        if path is not None:
            points[f", at the end of the {name}"] = path.final
    found = {where: minimum_at(setting, point) for where, point in points.items()}
    return tuple(each._replace(where=where) for where, each in found.items() if each is not None)


def seen_along(path: Descent | AbstractFlow, function: Callable[..., Any], *known: Any) -> Any:
    """`function(objective, weights, *known)` at each recorded time, as NumPy arrays.

    As `measurement.along`, for functions of a module.
    """
    objective = network_objective(path, "Deep linear regression")
    return at_points(function, objective, tuple(path.weights), *known)


class Loss(NamedTuple):
    """The loss above its minimum at each recorded time, with what its error follows from.

    `slope` is the norm of the gradient; the product of the layers moves by at most the root of
    `sensitivity` times a move of the weights.
    """

    excess: np.ndarray
    slope: np.ndarray
    sensitivity: np.ndarray

    def error(self, setting: DeepRegression, distance: np.ndarray) -> np.ndarray:
        """Of the excess, where the weights are off by this distance; to second order, doubled."""
        curvature = setting.scale * setting.largest * self.sensitivity
        return 2 * self.slope * distance + 2 * curvature * distance**2


def loss_at(objective: Objective, weights: Weights) -> tuple[Scalar, Scalar, Scalar]:
    """The fields of `Loss` at one point."""
    network = linear_network(objective, "`loss_at`")
    problem = squared_error(objective.problem).known
    pairs = zip(*partial_products(network, weights), strict=True)
    squares = [(spectral_norm(after) * spectral_norm(before)) ** 2 for after, before in pairs]
    gradient = objective.gradient(weights)
    return (
        problem.excess(network.end_to_end(weights)),
        jnp.sqrt(sum(jnp.sum(array**2) for array in gradient)),
        jnp.sum(jnp.stack(squares)),
    )
