"""How far down the loss of a network can curve: bounds on the smallest Hessian eigenvalue.

With depth N, layers W_j, the gradient G of the loss with respect to their product, and the matrix
C of products of spectral norms that leave out two, the smallest eigenvalue is at least

    -|G|_s lambda_max(C)                             at any point of a linear network,
    -a^{N-1} mean_i |g_i| |x_i| lambda_max(C')       at any smooth point of a (leaky-)ReLU network,

where a bounds the slopes, g_i is the gradient of a sample's loss and C' is C times the operator
norms of two layers. Both come from the second derivative of the product, for that of the convex
loss only adds. With two layers no norms are left, and the bound holds at all weights. Along a flow
from near zero more can be said (`along_flows`); with three layers no bound holds at all weights
(`saddles`). The numbers themselves are those of `curvature.bounds`.

The statements of elkabetz2021 are about any convex loss, so the loss's scale is part of G and g_i.
"""

from typing import ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg._typing import Scalar, Weights
from thalweg.certificates import (
    AbstractTheorem,
    Answer,
    Case,
    Claim,
    Place,
    Question,
    requirement,
    rounding,
)
from thalweg.certificates.points import regular_at_start, smallest_along, start_of
from thalweg.curvature import shallow_eigenvalue_bound, smallest_eigenvalue_bounds
from thalweg.objective import Objective
from thalweg.objective.points import at_points


class LinearCurvature(AbstractTheorem[Case]):
    """The curvature of a linear network is bounded below by the norms of its layers.

    With depth N, the gradient G of the loss with respect to the product of the layers W_j, inputs
    of width d_0 and a last layer of width d_N,

        lambda_min(H) >= -|G|_s lambda_max(C)
                      >= -(N - 1) sqrt(min{d_0, d_N}) |G|_F (the N - 2 largest |W_j|_s),

    C_ij the product of |W_k|_s over k other than i and j, zero for i = j. The second line is the
    paper's. The first is ours: |<G, A X B Y D>| <= |G|_s |A X B Y D|_nuclear bounds each mixed term
    of the second derivative by |G|_s C_ij |X|_F |Y|_F. Weight decay adds itself to both.
    """

    reference: ClassVar[str] = "elkabetz2021:lem7"

    @override
    def assumptions(self, subject: Case, /) -> tuple[Claim, ...]:
        linear = subject.objective.network.linear is not None
        return (requirement("the network is linear", linear),)

    @override
    def conclusions(self, subject: Case, /) -> tuple[Claim, ...]:
        return _claims_at_points(subject)

    @override
    def answers(self, subject: Case, /) -> tuple[Answer, ...]:
        return _answers_at_start(subject)


class RegionCurvature(AbstractTheorem[Case]):
    """The curvature of a (leaky-)ReLU network is bounded below by the norms of its layers.

    With slopes of modulus a at most, gradients g_i of the samples' losses with respect to the
    outputs, p_j the norm of w_j -> W_j(w_j) (one for a full matrix), where no pre-activation is
    zero,

        lambda_min(H) >= -a^{N-1} mean_i |g_i| |x_i| lambda_max(C')
                      >= -a^{N-1} (N - 1) mean_i |g_i| |x_i| prod_j p_j (the N - 2 largest |w_j|),

    C'_ij = p_i p_j times the product of |W_k(w_k)|_s over k other than i and j. The second line is
    the paper's, for full matrices (lem. 11) and shared weights (lem. 23). The first is ours, by the
    paper's own proof: it changes two layers and leaves the others as they are. Weight decay adds
    itself to both.
    """

    reference: ClassVar[str] = "elkabetz2021:lem11"

    @override
    def assumptions(self, subject: Case, /) -> tuple[Claim, ...]:
        network = subject.objective.network
        known = network.layered is not None
        claim = requirement("the network is a (leaky-)ReLU network without biases", known)
        return (claim, regular_at_start(subject)) if known else (claim,)

    @override
    def conclusions(self, subject: Case, /) -> tuple[Claim, ...]:
        return _claims_at_points(subject)

    @override
    def answers(self, subject: Case, /) -> tuple[Answer, ...]:
        return _answers_at_start(subject)


class ShallowCurvature(AbstractTheorem[Case]):
    """With two layers and a loss of bounded gradient the curvature is bounded below everywhere.

    Where the gradient of a sample's loss has the norm c at most, whatever the outputs,

        lambda_min(H) >= -c a p_1 p_2 mean_i |x_i|,

    with the largest slope a of the activation and the norms p_j of w_j -> W_j(w_j). For full
    matrices p_j = 1, for linear networks a = 1, and a readout counts with its norm. The paper uses
    it to show that three layers are needed for a curvature that is unbounded below: claim 27 for
    linear networks, 28 for (leaky-)ReLU networks, 29 for shared weights. c is sqrt(2) for
    cross-entropy and 1 for the logistic loss. Weight decay adds itself.
    """

    reference: ClassVar[str] = "elkabetz2021:claim27"

    @override
    def assumptions(self, subject: Case, /) -> tuple[Claim, ...]:
        network, problem = subject.objective.network, subject.objective.problem
        known = network.linear is not None or network.layered is not None
        bounded = problem.largest_gradient is not None
        return (
            requirement("the network is linear or a (leaky-)ReLU network", known),
            requirement("the network has two layers", network.depth == 2),
            requirement("the gradient of a sample's loss is bounded", bounded),
        )

    @override
    def conclusions(self, subject: Case, /) -> tuple[Claim, ...]:
        bound = float(shallow_eigenvalue_bound(subject.objective))
        statement = "-c a p_1 p_2 mean |x_i| <= lambda_min(H)"
        return tuple(
            Claim(f"{statement} {found.points.where}", bound, found.value, found.error)
            for found in smallest_along(subject)
        )

    @override
    def answers(self, subject: Case, /) -> tuple[Answer, ...]:
        bound = float(shallow_eigenvalue_bound(subject.objective))
        return (Answer(Question.CURVATURE, bound, "at all weights"),)


def _claims_at_points(case: Case) -> tuple[Claim, ...]:
    """Both bounds at a point against the eigenvalue, everywhere the case knows of."""
    claims = []
    for found in smallest_along(case):
        bounds = _bounds(case.objective, found.points.weights)
        for name, bound in zip(("printed", "sharper"), bounds, strict=True):
            statement = f"the {name} bound <= lambda_min(H) {found.points.where}"
            claims.append(Claim(statement, bound, found.value, found.error + rounding(bound)))
    return tuple(claims)


def _answers_at_start(case: Case) -> tuple[Answer, ...]:
    printed, sharper = _bounds(case.objective, start_of(case).weights)
    return (
        Answer(Question.CURVATURE, float(sharper[0]), "at the start", Place.START),
        Answer(Question.CURVATURE, float(printed[0]), "at the start, as printed", Place.START),
    )


def _bounds(
    objective: Objective, points: Weights
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """The printed and the sharper bound at each point."""
    return at_points(_both_bounds, objective, points)


def _both_bounds(objective: Objective, point: Weights) -> tuple[Scalar, Scalar]:
    printed, sharper = smallest_eigenvalue_bounds(objective, point)
    return printed, sharper
