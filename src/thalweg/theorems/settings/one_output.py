"""One output and white inputs: the setting of elkabetz2021, section 5, in any units.

The paper's loss is |w - target|^2 / 2 with |target| = 1, w the product of the layers. A loss
a |w - target|^2 / 2 + minimum, of inputs with second moment c I and any target, is the same in
other units: with N layers and W_j = |target|^{1/N} V_j,

    f(W) - minimum = a |target|^2 f(V),    t(V) = a |target|^{2 - 2/N} t(W),

and learning rates change as times do. A `Regression` of scale s has a = 2 s c.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg._typing import Matrix, Weights
from thalweg.certificates.case import Case
from thalweg.certificates.certificate import (
    AbstractTheorem,
    Claim,
    identity,
    requirement,
    rounding,
)
from thalweg.certificates.trajectories import one_network
from thalweg.measurement import unbalancedness
from thalweg.network import LinearNetwork
from thalweg.problem import AbstractLeastSquares, Regression
from thalweg.theorems.one_output.stages import LARGEST_NORM, Ray, ray_claims

Vector = Float[np.ndarray, " features"]

EXACT = 1e-10
"""How nearly white or balanced something must be, as a part of its size."""


@dataclass(frozen=True)
class Units:
    """The paper's units of loss and of time, in those of the case."""

    loss: float
    time: float


@dataclass(frozen=True, eq=False)
class Predictor:
    """A linear predictor on a regression."""

    problem: Regression
    matrix: Matrix


class WhiteLoss(AbstractTheorem[Predictor]):
    """On white inputs the square loss is the squared distance to the cross moment.

    With scale s, X^T X / n = I, C = Y^T X / n and |.| the Frobenius norm,

        s mean |W x_i - y_i|^2 = s |W - C|^2 + s (|Y|^2 / n - |C|^2).

    The paper has s = 1/2 and one output. The minimum is met by networks of any widths.
    """

    reference: ClassVar[str] = "elkabetz2021:appF"

    @override
    def assumptions(self, subject: Predictor, /) -> tuple[Claim, ...]:
        moment = np.asarray(subject.problem.input_moment)
        gap = np.linalg.norm(moment - np.eye(moment.shape[0]))
        return (Claim("|Sigma - I|_F <= 1e-10", gap, EXACT),)

    @override
    def conclusions(self, subject: Predictor, /) -> tuple[Claim, ...]:
        problem, scale = subject.problem, float(subject.problem.scale)
        matrix, cross = np.asarray(subject.matrix), np.asarray(problem.cross_moment)
        targets = np.asarray(problem.targets)
        errors = np.asarray(problem.inputs) @ matrix.T - targets
        value = scale * np.sum(errors**2) / len(targets)
        power = scale * np.sum(targets**2) / len(targets)
        constant = power - scale * np.sum(cross**2)
        formula = scale * np.sum((matrix - cross) ** 2) + constant
        # What is not white to 1e-10 changes the value by as much of |W|^2.
        slack = 10 * EXACT * scale * np.sum(matrix**2) + rounding(value, power)
        return (
            identity("loss = s |W - C|^2 + s (|Y|^2 / n - |C|^2)", abs(value - formula), slack),
            identity("minimum = s (|Y|^2 / n - |C|^2)", abs(problem.minimum - constant), slack),
        )


def problem_claims(case: Case) -> tuple[Claim, ...]:
    """That the network and the problem are of this kind; ends at the first that they are not."""
    network, problem = case.objective.network, case.objective.problem
    linear = isinstance(network, LinearNetwork) and network.readout is None
    square = isinstance(problem, AbstractLeastSquares)
    claims = [
        requirement("the network is linear, without a readout", linear),
        one_network(case),
        requirement("the loss is a square loss", square),
        requirement("there is no weight decay", float(case.objective.weight_decay) == 0),
        requirement("there is one output", problem.shape[0] == 1),
        Claim("2 <= depth", 2, network.depth),
    ]
    if any(claim.fails for claim in claims) or not isinstance(problem, AbstractLeastSquares):
        return tuple(claims)
    moment = np.asarray(problem.input_moment)
    mean = np.trace(moment) / moment.shape[0]
    nonzero = bool(mean > 0 and np.any(target_of(case)))
    claims.append(requirement("inputs and target are not zero", nonzero))
    if nonzero:
        gap = float(np.linalg.norm(moment / mean - np.eye(moment.shape[0])))
        claims.append(Claim("|Sigma / c - I|_F <= 1e-10", gap, EXACT))
    return tuple(claims)


def setting_claims(
    case: Case, *, balanced: bool = True, largest: float = LARGEST_NORM
) -> tuple[Claim, ...]:
    """All that is assumed of a case before a target loss or a learning rate is."""
    claims = problem_claims(case)
    if any(claim.fails for claim in claims):
        return claims
    balance = (balance_claim(case.weights),) if balanced else ()
    return (*claims, *balance, *ray_claims(ray_of(case), largest)[1:])


def balance_claim(weights: Weights) -> Claim:
    """That the weights are balanced, up to rounding."""
    size = max(float(np.sum(np.asarray(layer) ** 2)) for layer in weights)
    part = float(unbalancedness(weights)) / size if size > 0 else 0.0
    return Claim("unbalancedness / max_j |W_j|_F^2 <= 1e-10", part, EXACT)


def target_claim(case: Case) -> Claim:
    """That there is a target loss, and that it can be reached."""
    minimum = getattr(case.objective.problem, "minimum", 0.0)
    met = case.target_loss is not None and case.target_loss > float(minimum)
    return requirement("a target loss above the minimum is given", met)


def target_of(case: Case) -> Vector:
    """What the product is to become."""
    problem = case.objective.problem
    assert isinstance(problem, AbstractLeastSquares)  # one of the assumptions
    return np.asarray(problem.minimiser).ravel()


def units(case: Case) -> Units:
    """The paper's units, in those of the case."""
    problem, size = case.objective.problem, float(np.linalg.norm(target_of(case)))
    assert isinstance(problem, AbstractLeastSquares)  # one of the assumptions
    moment = np.asarray(problem.input_moment)
    factor = 2 * float(problem.scale) * float(np.trace(moment)) / moment.shape[0]
    power = 2 - 2 / case.objective.network.depth
    return Units(factor * size**2, 1 / (factor * size**power))


def gap_of(case: Case) -> float:
    """The target loss above the minimum, in the paper's units."""
    problem = case.objective.problem
    assert isinstance(problem, AbstractLeastSquares)  # two of the assumptions
    assert case.target_loss is not None
    return (case.target_loss - float(problem.minimum)) / units(case).loss


def ray_of(case: Case) -> Ray:
    """Where the product starts."""
    network = case.objective.network
    assert isinstance(network, LinearNetwork)  # one of the assumptions
    product = np.asarray(network.end_to_end(case.weights)).ravel()
    return ray_between(product, target_of(case), network.depth)


def ray_between(product: Vector, target: Vector, depth: int) -> Ray:
    """A product as seen from a target; the cosine of a product that is zero is zero."""
    size, norm = np.linalg.norm(target), np.linalg.norm(product)
    if norm == 0:
        return Ray(depth, 0.0, 0.0)
    cosine = float(np.clip(product @ target / (norm * size), -1.0, 1.0))
    return Ray(depth, float(norm / size), cosine)
