"""The flow of the product of a balanced linear network's layers [arora2019, elkabetz2021]."""

from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Magnitude,
    Narrowed,
    Question,
    identity,
    rounding,
)
from thalweg.dynamics.end_to_end import end_to_end_flow, preconditioned, preconditioner_spectrum
from thalweg.theorems.settings.linear import LinearTraining, product_training
from thalweg.theorems.settings.matrix_approximation import (
    Approximation,
    largest_imbalance,
    white_training,
)

BALANCED = 1e-10
"""How large an imbalance may be, as a part of the squared layers, to count as none."""


class EndToEndFlow(AbstractTrainingTheorem[LinearTraining]):
    """The product of balanced layers follows a flow of its own.

    For any loss of the product, with G its gradient there,

        W' = -P_W(G) = -sum_j (W W^T)^((N-j)/N) G (W^T W)^((j-1)/N),

    which for one output is w' = -|w|^(2 - 2/N) (g + (N - 1) <w, g> w / |w|^2). With s the smallest
    singular value of W the least eigenvalue of P_W is N s^p if there are as many outputs as
    features, s^p if not (arora2019: s^p at least), and the largest N sigma_max^p.
    So with white inputs, the square loss and a deficiency margin c the excess loss of the flow
    falls at least like exp(-2 kappa c^p t) with kappa = N or 1; the rate times the steepness.
    """

    reference: ClassVar[str] = "arora2019:eq11"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[LinearTraining]:
        return product_training(case)

    @override
    def assumptions(self, subject: LinearTraining, /) -> tuple[Claim, ...]:
        weights = subject.case.weights
        gap, allowed = float(largest_imbalance(weights)), _allowed_imbalance(weights)
        return (Claim(f"imbalance <= {BALANCED:g} max_j |W_j|_F^2", gap, allowed),)

    @override
    def conclusions(self, subject: LinearTraining, /) -> tuple[Claim, ...]:
        case, problem = subject.case, subject.case.objective.problem
        point = Approximation.of(case.weights, np.zeros(problem.shape))
        n, product = point.depth, point.product
        slope = np.asarray(problem.gradient(jnp.asarray(product)))
        pairs = zip(point.after, point.before[:-1], strict=True)
        pushed = sum((a @ a.T @ slope @ b.T @ b for a, b in pairs), np.zeros_like(slope))
        gap = np.linalg.norm(
            pushed - np.asarray(preconditioned(jnp.asarray(product), jnp.asarray(slope), n))
        )
        slack = _slack(point) * float(np.linalg.norm(slope))
        spectrum = np.asarray(preconditioner_spectrum(jnp.asarray(product), n))
        values = np.linalg.svd(product, compute_uv=False)
        low, top = (n if product.shape[0] == product.shape[1] else 1), rounding(spectrum[-1])
        power = point.power
        claims = (
            identity("W' = -P_W(G)", gap, slack),
            Claim(
                "least eigenvalue of P_W <= kappa s^p", spectrum[0], low * values[-1] ** power, top
            ),
            Claim(
                "kappa s^p <= least eigenvalue of P_W", low * values[-1] ** power, spectrum[0], top
            ),
            Claim(
                "largest eigenvalue of P_W <= N sigma_max^p",
                spectrum[-1],
                n * values[0] ** power,
                top,
            ),
        )
        return (*claims, *_vector_claims(product, slope, pushed, n), *_flow_claims(case, point))

    @override
    def answers(self, subject: LinearTraining, /) -> tuple[Answer, ...]:
        training = white_training(subject.case).setting
        if training is None:
            return ()
        start, goal, steep = training.start, training.target_loss, training.steepness
        # What is left of an imbalance must not be of the order of the margin's own layers.
        smallest = float(start.margin) ** (2 / start.depth) if start.margin > 0 else 0.0
        unbalanced = float(largest_imbalance(start.layers)) > 1e-3 * smallest
        if start.margin <= start.margin_resolution or unbalanced:
            return ()
        kappa = start.depth if start.is_square else 1
        rate = 2 * kappa * Magnitude.of(start.margin) ** start.power * steep
        answers = (Answer(Question.RATE, rate, "along the flow"),)
        if goal is None:
            return answers
        gained = max(np.log(float(start.loss) / goal), 0.0) if start.loss > 0 else 0.0
        return (*answers, Answer(Question.TIME, gained / rate))


def _allowed_imbalance(weights: Sequence[Any]) -> float:
    return BALANCED * max(float(np.linalg.norm(array)) ** 2 for array in weights)


def _slack(point: Approximation) -> float:
    """How far rounding and what is left of an imbalance may take layers from powers of products.

    By lemma 5 the N-th powers of a layer's square and the square of the product differ by e at
    most, in units of the layers; an N-th root of what is small or zero makes much of that. No more
    of an imbalance is forgiven than is assumed.
    """
    n, size = point.depth, float(np.max(point.layer_norms))
    if size ** max(n, 2) == 0:  # below floating point: rounding alone is left
        return n**2 * size ** (2 * (n - 1)) * float(rounding(1.0))
    values = np.zeros(max(point.product.shape))
    found = np.linalg.svd(point.product, compute_uv=False)
    values[: found.size] = (found / size**n) ** 2
    imbalance = min(float(largest_imbalance(point.layers)), _allowed_imbalance(point.layers))
    e = n**2 * imbalance / size**2 + float(rounding(1.0))
    moved = np.max((values + e) ** (1 / n) - values ** (1 / n))
    return n**2 * size ** (2 * (n - 1)) * float(moved)


def _vector_claims(
    product: np.ndarray, slope: np.ndarray, pushed: np.ndarray, depth: int
) -> tuple[Claim, ...]:
    """The form for one output."""
    size, steep = float(np.linalg.norm(product)), float(np.linalg.norm(slope))
    if product.shape[0] != 1 or size == 0:
        return ()
    along, factor = product / size, size ** (2 - 2 / depth)
    vector = factor * (slope + (depth - 1) * np.sum(along * slope) * along)
    slack = 10 * BALANCED * depth * steep * factor
    statement = "w' = -|w|^(2 - 2/N) (g + (N - 1) <w, g> w / |w|^2)"
    return (identity(statement, np.linalg.norm(pushed - vector), slack),)


def _flow_claims(case: Case, start: Approximation) -> tuple[Claim, ...]:
    """That the recorded flow has the product of the end-to-end flow, at its last time."""
    flow = case.flow
    if flow is None or flow.times.ndim != 1 or not flow.weights or flow.times[-1] <= 0:
        return ()
    tight = {"rtol": 1e-11, "atol": 1e-13}
    problem, last = case.objective.problem, np.asarray(flow.times[-1:])
    alone = end_to_end_flow(problem, start.product, start.depth, last, **tight)[0]
    end = Approximation.of([array[-1] for array in flow.weights], start.target)
    gap = float(np.linalg.norm(end.product - alone))
    sensitivity = start.depth * float(np.max(end.layer_norms)) ** (start.depth - 1)
    # The flow's own error through the product, and that of the integration here.
    slack = 2 * sensitivity * float(flow.error[-1]) + 1e-8 * float(np.linalg.norm(alone))
    return (identity("W along the flow = W of the end-to-end flow, at the last time", gap, slack),)
