"""Flows from near zero, which keep layers nearly balanced and so the curvature under control.

Along every gradient flow W_{j+1}^T W_{j+1} - W_j W_j^T is constant for linear networks, and
|w_j|^2 - |w_k|^2 for networks that are homogeneous in each layer. Both are small from a start near
zero; then no layer can be much larger than the N-th root of the product (`BalancedChain`), or than
the smallest layer, and the bounds of `landscape` on the smallest Hessian eigenvalue no longer
depend on how a product is split into its factors.
"""

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._typing import Weights
from thalweg.certificates import (
    AbstractTheorem,
    Answer,
    Case,
    Claim,
    Magnitude,
    Place,
    Question,
    requirement,
    rounding,
)
from thalweg.certificates.points import Smallest, recorded, smallest_at, start_of
from thalweg.certificates.trajectories import FLOW_ERRORS, start_distance
from thalweg.curvature import flow_eigenvalue_bound
from thalweg.dynamics import AbstractFlow
from thalweg.measurement import imbalance, layer_norms
from thalweg.objective import Objective


@dataclass(frozen=True, eq=False)
class ChainOfMatrices:
    """Matrices A_1, ..., A_N that can be multiplied, the first one first."""

    matrices: Weights


class BalancedChain(AbstractTheorem[ChainOfMatrices]):
    """No matrix of a nearly balanced chain is much larger than the root of their product.

    If D = max_i |A_{i+1}^T A_{i+1} - A_i A_i^T|_s <= 1 / (2 N), then

        max_i |A_i|_s^N <= |A_N ... A_1|_s + 2 N sqrt(D) max{1, |A_i|_s}^{2 N}.

    Where D is larger this holds as well but says nothing, for the last term alone is then larger
    than the left side.
    """

    reference: ClassVar[str] = "elkabetz2021:lem33"

    @override
    def assumptions(self, subject: ChainOfMatrices, /) -> tuple[Claim, ...]:
        limit = 1 / (2 * len(subject.matrices))
        gap, size = self.gap(subject), _largest(subject.matrices)
        return (
            Claim(
                "max |A_{i+1}^T A_{i+1} - A_i A_i^T|_s <= 1 / (2 N)", gap, limit, rounding(size**2)
            ),
        )

    @override
    def conclusions(self, subject: ChainOfMatrices, /) -> tuple[Claim, ...]:
        depth, largest = len(subject.matrices), _largest(subject.matrices)
        product = reduce(lambda below, above: above @ below, map(np.asarray, subject.matrices))
        whole = Magnitude.of(np.linalg.norm(product, 2))
        off = 2 * depth * Magnitude.of(self.gap(subject)) ** 0.5
        greater = whole + off * Magnitude.of(max(1.0, largest)) ** (2 * depth)
        statement = "max |A_i|^N <= |A_N ... A_1| + 2 N sqrt(D) max{1, |A_i|}^{2 N}"
        # Compared by logarithms: of each factor of the product a rounding is left.
        return (Claim(statement, Magnitude.of(largest) ** depth, greater, 64 * depth * _UNIT),)

    def gap(self, subject: ChainOfMatrices) -> float:
        """D above; zero for one matrix."""
        return max(
            (float(np.linalg.norm(each, 2)) for each in imbalance(subject.matrices)), default=0.0
        )


class FlowCurvature(AbstractTheorem[Case]):
    """Along a flow from near zero the curvature of a linear network is bounded by its product.

    From a start of norm eps <= 1 / (2 N), at every point of the flow,

        lambda_min(H) >= -(N - 1) sqrt(min{d_0, d_N}) |G|_F
                          (|W_N ... W_1|_s^{1 - 2/N} + (4 N eps max{1, |W_j|_s}^{2 N})^{1 - 2/N}),

    because W_{j+1}^T W_{j+1} - W_j W_j^T is constant along the flow, hence at most 2 eps^2, and a
    nearly balanced chain has layers of the norm of the N-th root of its product (lem. 33). With two
    layers this is twice the bound of lem. 7, and for larger eps it is below that bound. A flow is
    known up to an error, by which the balance may be off: that much larger an eps is what the
    resolution allows.
    """

    reference: ClassVar[str] = "elkabetz2021:prop8"

    @override
    def assumptions(self, subject: Case, /) -> tuple[Claim, ...]:
        network = subject.objective.network
        linear = network.linear is not None
        radius, limit = _start_radius(subject), 1 / (2 * network.depth)
        return (
            requirement("the network is linear", linear),
            *_conserves_balance(subject),
            Claim("|start| <= 1 / (2 N)", radius, limit, rounding(limit)),
        )

    @override
    def conclusions(self, subject: Case, /) -> tuple[Claim, ...]:
        return _claims(subject)

    @override
    def answers(self, subject: Case, /) -> tuple[Answer, ...]:
        return _answers(subject)


class FlowRegionCurvature(AbstractTheorem[Case]):
    """Along a flow from near zero the curvature of a network is bounded by its smallest layer.

    From a start of norm eps, at every point of the flow where no pre-activation is zero,

        lambda_min(H) >= -a^{N-1} (N - 1) mean_i |g_i| |x_i| prod_j p_j (min_j |w_j| + eps)^{N - 2},

    in the notation of lem. 11 and 23, because |w_j|^2 - |w_k|^2 is constant along the flow; for
    full matrices (prop. 12) and shared weights (prop. 24). With two layers it is their bound. A
    flow is known up to an error, by which the balance may be off: that much larger an eps is what
    the resolution allows.
    """

    reference: ClassVar[str] = "elkabetz2021:prop12"

    @override
    def assumptions(self, subject: Case, /) -> tuple[Claim, ...]:
        network = subject.objective.network
        known = network.layered is not None
        statement = "the network is a (leaky-)ReLU network without biases"
        return (requirement(statement, known), *_conserves_balance(subject))

    @override
    def conclusions(self, subject: Case, /) -> tuple[Claim, ...]:
        return _claims(subject)

    @override
    def answers(self, subject: Case, /) -> tuple[Answer, ...]:
        return _answers(subject)


_UNIT = float(np.finfo(float).eps)


def _largest(matrices: Weights) -> float:
    return max(float(np.linalg.norm(matrix, 2)) for matrix in matrices)


def _conserves_balance(case: Case) -> tuple[Claim, ...]:
    return (
        requirement("the network has at least two layers", case.objective.network.depth >= 2),
        Claim("weight decay <= 0", float(case.objective.weight_decay), 0.0),
    )


def _start_radius(case: Case) -> float:
    """The norm of the start; any larger number would do, and the statements want a positive one."""
    norm = float(np.linalg.norm(layer_norms(case.weights)))
    return max(norm, float(np.finfo(float).tiny))


def _flow_from_start(case: Case) -> AbstractFlow | None:
    """The flow of the case, if it is the one from its start, of whose norm the bounds are made."""
    return case.flow if start_distance(case) == 0 else None


def _claims(case: Case) -> tuple[Claim, ...]:
    """The bound against the eigenvalue, to the resolution of the flow's error."""
    places = (start_of(case), recorded("along the flow", _flow_from_start(case)))
    measured = (smallest_at(case.objective, points) for points in places)
    return tuple(_claim(case, found) for found in measured if found is not None)


def _claim(case: Case, found: Smallest) -> Claim:
    off, radius = FLOW_ERRORS * found.points.error, _start_radius(case)
    # At a distance `off` from the flow the squares of norms differ by no more than this.
    worse = np.sqrt(radius**2 + 4 * found.points.largest_layer * off + 2 * off**2)
    bound, worst = (
        np.asarray(_bounds(case.objective, found.points.weights, jnp.asarray(radii)))
        for radii in (np.full_like(off, radius), worse)
    )
    resolution = found.error + (bound - worst) + rounding(bound)
    statement = f"the bound along a flow <= lambda_min(H) {found.points.where}"
    return Claim(statement, bound, found.value, resolution)


def _answers(case: Case) -> tuple[Answer, ...]:
    """The least bound over the recorded flow, or the bound at the start if there is none."""
    flowing = recorded("along the recorded flow", _flow_from_start(case))
    points, place = (start_of(case), Place.START) if flowing is None else (flowing, Place.FLOW)
    radii = jnp.full(points.error.size, _start_radius(case))
    bounds = np.asarray(_bounds(case.objective, points.weights, radii))
    return (Answer(Question.CURVATURE, float(np.min(bounds)), points.where, place),)


@eqx.filter_jit
def _bounds(objective: Objective, points: Weights, radii: Array) -> Float[Array, " points"]:
    return jax.lax.map(lambda at: flow_eigenvalue_bound(objective, at[0], at[1]), (points, radii))
