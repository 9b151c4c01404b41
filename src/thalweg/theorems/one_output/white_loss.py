"""The square loss on white inputs, which is a squared distance."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from thalweg._typing import Matrix
from thalweg.certificates import AbstractTheorem, Claim, identity, rounding
from thalweg.problem import Regression
from thalweg.theorems.settings.one_output import EXACT


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
