"""One output and white inputs: the setting of elkabetz2021, section 5, in any units.

The paper's loss is |w - target|^2 / 2 with |target| = 1, w the product of the layers. A loss
a |w - target|^2 / 2 + minimum, of inputs with second moment c I and any target, is the same in
other units: with N layers and W_j = |target|^{1/N} V_j,

    f(W) - minimum = a |target|^2 f(V),    t(V) = a |target|^{2 - 2/N} t(W),

and learning rates change as times do. A `Regression` of scale s has a = 2 s c.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from thalweg._typing import Weights
from thalweg.certificates import Case, Claim, Narrowed, requirement
from thalweg.measurement import unbalancedness
from thalweg.network import LinearNetwork
from thalweg.problem import AbstractLeastSquares
from thalweg.theorems.settings.ray import LARGEST_NORM, Ray, ray_claims

Vector = Float[np.ndarray, " features"]

EXACT = 1e-10
"""How nearly white or balanced something must be, as a part of its size."""


@dataclass(frozen=True)
class Units:
    """The paper's units of loss and of time, in those of the case."""

    loss: float
    time: float


@dataclass(frozen=True, eq=False)
class OneOutputTraining:
    """A linear network with one output on white inputs and the squared error."""

    case: Case
    network: LinearNetwork
    problem: AbstractLeastSquares

    @property
    def target(self) -> Vector:
        """What the product is to become."""
        return np.asarray(self.problem.minimiser).ravel()

    @property
    def ray(self) -> Ray:
        """Where the product starts."""
        product = np.asarray(self.network.end_to_end(self.case.weights)).ravel()
        return ray_between(product, self.target, self.network.depth)

    @property
    def units(self) -> Units:
        """The paper's units, in those of the case."""
        size, moment = float(np.linalg.norm(self.target)), np.asarray(self.problem.input_moment)
        factor = 2 * float(self.problem.scale) * float(np.trace(moment)) / moment.shape[0]
        power = 2 - 2 / self.network.depth
        return Units(factor * size**2, 1 / (factor * size**power))

    @property
    def gap(self) -> float | None:
        """The target loss above the minimum, in the paper's units; None where none is given."""
        if self.case.target_loss is None:
            return None
        return (self.case.target_loss - float(self.problem.minimum)) / self.units.loss


def one_output_training(case: Case) -> Narrowed[OneOutputTraining]:
    """A case in these terms."""
    network, problem = case.objective.network.linear, case.objective.problem.least_squares
    plain = None if network is None or network.readout is not None else network
    claims = (
        requirement("the network is linear, without a readout", plain is not None),
        requirement("the loss is the squared error", problem is not None),
        requirement("there is no weight decay", float(case.objective.weight_decay) == 0),
        requirement("the network has one output", case.objective.problem.shape[0] == 1),
        Claim("2 <= depth", 2, case.objective.network.depth),
    )
    if plain is None or problem is None:
        return Narrowed(claims, None)
    training = OneOutputTraining(case, plain, problem)
    return Narrowed.where(claims, training).further(_white)


def _white(training: OneOutputTraining) -> Narrowed[OneOutputTraining]:
    moment = np.asarray(training.problem.input_moment)
    mean = np.trace(moment) / moment.shape[0]
    nonzero = bool(mean > 0 and np.any(training.target))
    claim = requirement("inputs and target are not zero", nonzero)
    if not nonzero:
        return Narrowed((claim,), None)
    gap = float(np.linalg.norm(moment / mean - np.eye(moment.shape[0])))
    return Narrowed.where((claim, Claim("|Sigma / c - I|_F <= 1e-10", gap, EXACT)), training)


def small_start(
    training: OneOutputTraining, *, balanced: bool = True, largest: float = LARGEST_NORM
) -> Narrowed[OneOutputTraining]:
    """That it starts near zero and, if that is asked for, balanced."""
    balance = (balance_claim(training.case.weights),) if balanced else ()
    return Narrowed.where((*balance, *ray_claims(training.ray, largest)[1:]), training)


def balance_claim(weights: Weights) -> Claim:
    """That the weights are balanced, up to rounding."""
    size = max(float(np.sum(np.asarray(layer) ** 2)) for layer in weights)
    part = float(unbalancedness(weights)) / size if size > 0 else 0.0
    return Claim("unbalancedness / max_j |W_j|_F^2 <= 1e-10", part, EXACT)


def target_claim(training: OneOutputTraining) -> Claim:
    """That there is a target loss, and that it can be reached."""
    reachable = training.gap is not None and training.gap > 0
    return requirement("a target loss above the minimum is given", reachable)


def ray_between(product: Vector, target: Vector, depth: int) -> Ray:
    """A product as seen from a target; the cosine of a product that is zero is zero."""
    size, norm = np.linalg.norm(target), np.linalg.norm(product)
    if norm == 0:
        return Ray(depth, 0.0, 0.0)
    cosine = float(np.clip(product @ target / (norm * size), -1.0, 1.0))
    return Ray(depth, float(norm / size), cosine)
