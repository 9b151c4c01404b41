"""The catapult of two layers, exactly: where descent converges, rises first, or diverges.

For l = f^2 / 2 with f = <u, v>, u the first layer as a column and v the last as a row, a step of
descent of learning rate eta goes to u - eta f v and v - eta f u. With s = |u|^2 + |v|^2,

    f' = f (1 - eta s + eta^2 f^2),    s' = s + eta f^2 (eta s - 4),

a map of two numbers, whatever the width; in a = eta s and b = eta f, where |b| <= a / 2,

    b' = b (1 - a + b^2),              a' = a - b^2 (4 - a).

s is the sharpness at the minimisers (f = 0), and the trace of the Hessian everywhere.
"""

from typing import ClassVar

import numpy as np
from typing_extensions import override

from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Narrowed,
    Question,
    identity,
    requirement,
    rounding,
)
from thalweg.theorems.settings.matrix_approximation import (
    Approximation,
    WhiteTraining,
    white_training,
)

_BELOW = 1 - 1e-12  # of a limit that does not itself converge
_BOUNDED = 1e50  # what is larger is on its way to infinity


class Catapult(AbstractTrainingTheorem[WhiteTraining]):
    """Two layers that must forget: 2 / s and 4 / s are exact, with the sum s of all squares.

    For two layers with one input and one output, no readout and the target zero, l = f^2 / 2 and
    s(0) the sum of all squared weights at the start,

        eta s(0) <= 2       the loss falls at every step, to zero,
        eta s(0) < 4        the loss goes to zero, whatever the start; s falls at every step, and

            sum_k (eta f(k))^2 (4 - eta s(k)) = eta s(0) - eta s(K);

                            f hits zero within finitely many steps, or else eta s ends <= 2,
        eta s(0) = 4        s stays; eta f / 2 = cos(x) goes to cos(3 x): neither of both,
        eta s(0) > 4        s grows without bound, unless f hits zero exactly.

    While eta s < 4, a step raises the loss if and only if eta s > 2 + (eta f)^2, and f is not 0.
    Ours: the literature has it for wide networks and small f.

    Proof. Write a = eta s and b = eta f. (1) a <= 2: with |b| <= a / 2, the factor 1 - a + b^2 is
    between 1 - a >= -1 and (1 - a / 2)^2 <= 1. (2) a < 4: a falls by b^2 (4 - a), so stays below 4
    and is not negative, and sum_k b_k^2 (4 - a_k) = a_0 - a_K with 4 - a_k >= 4 - a_0 > 0; so b
    goes to 0. If a stayed above 2 + c, then |1 - a + b^2| > 1 + c / 2 from some step on, and b
    could not go to 0 but by being 0. (3) a > 4: a never falls. Were it bounded, sum b_k^2 (a_k - 4)
    would be finite and b go to 0, but then |1 - a + b^2| > 2 from some step on: b must be 0.
    (4) a = 4 stays, and b' = b^3 - 3 b, which is 2 T_3(b / 2), with |b| <= 2.

    *The target must be zero, and s is no sharpness away from minimisers.* With the target y the
    minimisers have s >= 2 |y|: for eta |y| > 1 none is stable, and starts with 2 < eta s(0) < 4
    may end in a cycle; for eta |y| < 1 some with eta s(0) > 4 converge. And away from minimisers
    the sharpness is up to 3 s / 2, so that descent may converge from one of nearly 6 / eta.
    """

    reference: ClassVar[str] = "thalweg:catapult"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[WhiteTraining]:
        return white_training(case)

    @override
    def assumptions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        start = subject.start
        inputs_and_outputs = max(start.target.shape)
        return (
            Claim("depth <= 2", start.depth, 2),
            Claim("2 <= depth", 2, start.depth),
            Claim("inputs, outputs <= 1", inputs_and_outputs, 1),
            requirement("the target is zero", not np.any(start.target)),
        )

    @override
    def conclusions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        eta = subject.learning_rate
        if eta is None:
            return ()
        steps, points = subject.records
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges
            sizes, outputs = _sizes(points), points.product[:, 0, 0]
        calm = (np.cumsum(~(eta * sizes < _BOUNDED)) == 0) & np.isfinite(outputs)
        a, b = eta * sizes[calm], eta * outputs[calm]
        return (
            *_of_one_step(subject.start, eta),
            *_of_all(a, b),
            *_of_consecutive(steps[calm], a, b),
        )

    @override
    def answers(self, subject: WhiteTraining, /) -> tuple[Answer, ...]:
        size = float(_sizes(subject.start)) * subject.steepness
        if size == 0:
            return ()
        limit = 4 / size
        return (
            Answer(
                Question.LEARNING_RATE,
                limit * _BELOW,
                "up to half of it the loss always falls",
            ),
            Answer(Question.PREDICTED_RATE, limit, "exactly, for this model and all starts"),
        )


def _sizes(points: Approximation) -> np.ndarray:
    """s, at each point."""
    squares = [np.sum(layer**2, axis=(-2, -1)) for layer in points.layers]
    return np.asarray(sum(squares[1:], squares[0]))


def _of_one_step(start: Approximation, eta: float) -> tuple[Claim, ...]:
    """Both equations of the map, for a step that is taken with the gradients of the layers."""
    moved = [w - eta * g for w, g in zip(start.layers, start.gradients, strict=True)]
    end = Approximation.of(moved, start.target)
    f, s = float(start.product[0, 0]), float(_sizes(start))
    expected = f * (1 - eta * s + (eta * f) ** 2), s + eta * f**2 * (eta * s - 4)
    largest = s + abs(eta * f * s) + (eta * f) ** 2 * s
    found = float(end.product[0, 0]), float(_sizes(end))
    return (
        identity("f' = f (1 - eta s + eta^2 f^2)", abs(found[0] - expected[0]), rounding(largest)),
        identity("s' = s + eta f^2 (eta s - 4)", abs(found[1] - expected[1]), rounding(largest)),
    )


def _of_all(a: np.ndarray, b: np.ndarray) -> tuple[Claim, ...]:
    """What holds at any records."""
    if a.size == 0:
        return ()
    first, slack = float(a[0]), np.asarray(rounding(a, 1.0))
    claims = [Claim("eta |f| <= eta s / 2, at all records", np.abs(b), a / 2, slack)]
    if a.size == 1:
        return tuple(claims)
    later, earlier, room = a[1:], a[:-1], np.maximum(slack[1:], slack[:-1])
    if first < 4:
        claims.append(Claim("s <= s before, at all records", later, earlier, room))
    if first > 4:
        claims.append(Claim("s before <= s, at all records", earlier, later, room))
    if first <= 2:
        sides = np.abs(b[1:]), np.abs(b[:-1])
        claims.append(Claim("|f| <= |f| before, at all records", *sides, room))
    return tuple(claims)


def _of_consecutive(steps: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[Claim, ...]:
    """What needs every step."""
    if a.size < 2 or np.any(np.diff(steps) != 1) or not a[0] < 4:
        return ()
    gained = np.cumsum(b[:-1] ** 2 * (4 - a[:-1]))
    statement = "sum of (eta f)^2 (4 - eta s) = eta s(0) - eta s, at all records"
    slack = rounding(a[0]) * np.arange(1, a.size)
    return (identity(statement, np.abs(gained - (a[0] - a[1:])), slack),)
