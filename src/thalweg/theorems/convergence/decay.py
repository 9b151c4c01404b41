"""How fast a loss falls along a flow whose gradient is never too small for it.

Along x' = -grad f(x) the loss falls at the rate |grad f|^2, so that |grad f|^2 >= mu (f - f_min)
makes f - f_min fall like exp(-mu t). For least squares both sides are quadratic in the predictor,
and mu comes from the input moment. marion2024 takes the scale 1, the objective here may have any:
a factor in f multiplies |grad f|^2 twice, so it multiplies mu once.

[marion2024] P. Marion, L. Chizat, "Deep linear networks for regression are implicitly regularized
    towards flat minima", arXiv:2405.13456.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._checks import InputError, require_positive
from thalweg._typing import Scalar, Weights
from thalweg.certificates import AbstractTheorem, Answer, Claim, Question, requirement, rounding
from thalweg.dynamics import AbstractFlow
from thalweg.measurement import along
from thalweg.problem import AbstractProblem
from thalweg.theorems.settings.deep_regression import squared_error


@dataclass(frozen=True, eq=False)
class FlowWithRate:
    """A flow from one start, and a rate at which its loss is to fall to what bounds it below."""

    flow: AbstractFlow
    rate: float
    minimum: float = 0.0

    def __post_init__(self):
        require_positive("rate", self.rate)
        if self.flow.times.ndim != 1 or not self.flow.weights:
            raise InputError("`flow` must be from one start, with its weights recorded.")

    @property
    def excess(self) -> np.ndarray:
        """The loss above the minimum."""
        return self.flow.loss - self.minimum

    @property
    def squared_slope(self) -> np.ndarray:
        """|grad f|^2 at the recorded times."""
        gradient = self.flow.objective.gradient
        slopes = along(self.flow, lambda weights: _square(gradient(weights)))
        return np.asarray(slopes)


class ExponentialDecay(AbstractTheorem[FlowWithRate]):
    """Where the gradient dominates the loss, the loss falls exponentially along the flow.

    If f >= f_min, and along the flow

        |grad f|^2 >= mu (f - f_min),

    then f(t) - f_min <= (f(0) - f_min) exp(-mu t). The paper prints the assumption without the
    square, and so it is false: f = x^2 / 200 from x = 1 has |f'| >= 2 f all along, but falls like
    exp(-t / 50). The textbook's constant, with |grad f|^2 / 2, is mu / 2. The assumption is looked
    at where the flow was recorded, the conclusion from the first of these times on.
    """

    reference: ClassVar[str] = "marion2024:lem7"

    @override
    def assumptions(self, subject: FlowWithRate, /) -> tuple[Claim, ...]:
        blur = rounding(subject.minimum, subject.flow.loss)
        needed, slope = subject.rate * subject.excess, subject.squared_slope
        return (
            Claim("f_min <= f + rounding", subject.minimum, subject.flow.loss + blur),
            Claim("mu (f - f_min) <= |grad f|^2 + rounding", needed, slope + subject.rate * blur),
        )

    @override
    def conclusions(self, subject: FlowWithRate, /) -> tuple[Claim, ...]:
        times, excess = subject.flow.times, subject.excess
        bound = excess[0] * np.exp(-subject.rate * (times - times[0]))
        # A flow's error is estimated, by a companion that has a smaller error itself.
        slope, off = np.sqrt(subject.squared_slope), 2 * subject.flow.error
        # An error of the weights changes the loss by the slope, and to second order by a curvature
        # that is about half of what the squared slope is of the excess.
        curved = np.max(slope**2 / np.maximum(excess, np.finfo(float).tiny))
        slack = slope * off + curved * off**2 + rounding(subject.flow.loss, subject.minimum)
        return (Claim("f - f_min <= (f(0) - f_min) exp(-mu t)", excess, bound, slack + slack[0]),)

    @override
    def answers(self, subject: FlowWithRate, /) -> tuple[Answer, ...]:
        return (Answer(Question.RATE, subject.rate, "where the gradient dominates the loss"),)


@dataclass(frozen=True, eq=False)
class Predictor:
    """A linear predictor x -> matrix x on a problem."""

    problem: AbstractProblem
    matrix: Float[Array | np.ndarray, "rows columns"]


class QuadraticRisk(AbstractTheorem[Predictor]):
    """The excess of the squared error is a quadratic form, and its gradient grows with its root.

    With R = s mean_i |M x_i - y_i|^2, the input moment Sigma of extreme eigenvalues mu <= m, and a
    minimiser M* of the least value R_min,

        R - R_min = s tr((M - M*) Sigma (M - M*)^T),
        4 s mu (R - R_min) <= |grad R|_F^2 <= 4 s m (R - R_min).

    The paper has s = 1 and one output; the proof is the same, row by row.
    """

    reference: ClassVar[str] = "marion2024:lem8"

    @override
    def assumptions(self, subject: Predictor, /) -> tuple[Claim, ...]:
        fits = np.shape(subject.matrix) == subject.problem.shape
        return (
            *squared_error(subject.problem).claims,
            requirement("the matrix has the shape of a predictor", fits),
        )

    @override
    def conclusions(self, subject: Predictor, /) -> tuple[Claim, ...]:
        problem, matrix = squared_error(subject.problem).known, jnp.asarray(subject.matrix)
        risk = float(problem.output_value(problem.inputs @ matrix.T))
        excess, square = (
            float(problem.excess(matrix)),
            float(jnp.sum(problem.gradient(matrix) ** 2)),
        )
        low, high = (4 * float(problem.scale) * float(problem.spectrum[i]) for i in (0, -1))
        # The risk is a sum over samples, of which the excess is known to their rounding.
        off = problem.rounding(matrix)
        slack = rounding(risk, float(problem.minimum), units=1024.0) + float(off.value)
        blur = float((2 * jnp.sqrt(square) + off.gradient) * off.gradient)
        wide = rounding(square, high * excess, units=1024.0) + blur
        above, form = risk - float(problem.minimum), "tr((M - M*) Sigma (M - M*)^T)"
        return (
            Claim(f"R - R_min <= s {form}", above, excess, slack),
            Claim(f"s {form} <= R - R_min", excess, above, slack),
            Claim("4 s mu (R - R_min) <= |grad R|^2", low * excess, square, wide),
            Claim("|grad R|^2 <= 4 s m (R - R_min)", square, high * excess, wide),
        )


def _square(arrays: Weights) -> Scalar:
    return sum((jnp.sum(jnp.asarray(array) ** 2) for array in arrays), start=jnp.zeros(()))
