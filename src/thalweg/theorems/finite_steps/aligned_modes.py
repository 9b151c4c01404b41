"""Balanced networks above the edge: a mode that is aligned with the target ends in a two-cycle.

The closed forms, and their proofs, are in `two_cycles`; here they become a statement about
trainings, which is held against real steps of descent and against the end of a run.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from typing_extensions import override

from thalweg.certificates import (
    AbstractTrainingTheorem,
    Case,
    Claim,
    Narrowed,
    identity,
    requirement,
    rounding,
)
from thalweg.theorems.finite_steps.two_cycles import TwoCycle, stable_up_to, two_cycle
from thalweg.theorems.settings.matrix_approximation import (
    Approximation,
    WhiteTraining,
    largest_imbalance,
    white_training,
)

_EXACT = 1e-10  # relative: what counts as balanced, and as aligned
_NEARLY = 1e-3  # of the target: a run that returns so closely after two steps ends in a cycle
_NEAR = 0.1  # of what returning after two steps leaves of a jump around x = 1, where none ends
_RUN_OFF = 1e10  # of a weight: no run that large is in a cycle of a target
_ALONE = 1e-8  # relative: other modes change this one by the square of what they mix into it


@dataclass(frozen=True, eq=False)
class Mode:
    """A pair of singular vectors that the target and the product of the start share.

    Attributes:
        training: of the balanced layers.
        left: u.
        right: v.
        target: m = u^T Phi v > 0.
        product: w^N = u^T W v > 0.
    """

    training: WhiteTraining
    left: np.ndarray
    right: np.ndarray
    target: float
    product: float

    @property
    def step(self) -> float:
        """H = eta m^{2 - 2/N}, for the loss |W - Phi|_F^2 / 2."""
        rate = self.training.learning_rate
        return np.nan if rate is None else rate * self.target**self.training.start.power

    @cached_property
    def cycle(self) -> TwoCycle | None:
        """The two-cycle, in units of m^{1/N}."""
        return two_cycle(self.training.start.depth, self.step)

    def of(self, points: Approximation) -> np.ndarray:
        """What the product makes of the mode, over the target, at each point."""
        found = np.einsum("i,...ij,j->...", self.left, points.product, self.right)
        return np.asarray(found / self.target)

    def moved_to(self, value: float) -> Approximation:
        """The start, with each layer acting as `value` m^{1/N} along the mode."""
        start, vector, layers = self.training.start, self.right, []
        gain = value * self.target ** (1 / start.depth) - self.product ** (1 / start.depth)
        for layer in start.layers:
            image = layer @ vector
            image = image / np.linalg.norm(image)
            layers.append(layer + gain * np.outer(image, vector))
            vector = image
        return Approximation.of(layers, start.target)


class TwoCycles(AbstractTrainingTheorem[tuple[Mode, ...]]):
    """Above the edge a balanced, aligned mode has exactly one two-cycle, which is stable at first.

    For balanced layers on white inputs, descent of |W - Phi|_F^2 / 2 moves a mode that product and
    target share, with the values w^N > 0 and m > 0, alone. With h = eta m^{2 - 2/N} and N >= 2:

        h <= 2 / N             there is no cycle of two positive points, and x = 1 is stable below,
        h > 2 / N              there is exactly one; its points are given in closed form,
        2 / N < h < h_N        it is stable, for the mode and for imbalances of its N numbers,

    where h_2 = sqrt(5) - 1, and h_N is 1.2446, 1.2472, 1.2503 times 2 / N at the depths 3, 4, 10,
    and 1.2517 times for N to infinity. Ours; `two_cycles` has the formulas and the proofs. That the
    multiplier falls from 1 to -1 without turning is seen on a grid, not proven.

    *It is about one mode.* Another of nearly the same size may throw it off its cycle by mixing
    with it, even one that is itself below the edge: at depth 2 and 1.2 times the edge one of 0.8 m.
    """

    reference: ClassVar[str] = "thalweg:two-cycles"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[tuple[Mode, ...]]:
        return white_training(case).further(_balanced).further(_jumping)

    @override
    def conclusions(self, subject: tuple[Mode, ...], /) -> tuple[Claim, ...]:
        return tuple(
            claim for mode in subject for claim in (*_of_two_steps(mode), *_of_the_end(mode))
        )


def _balanced(training: WhiteTraining) -> Narrowed[tuple[Mode, ...]]:
    start = training.start
    size = float(np.max(start.layer_norms)) ** 2
    part = float(largest_imbalance(start.layers)) / size if size > 0 else np.inf
    found = _modes(training)
    claims = (
        Claim("2 <= depth", 2, start.depth),
        requirement("the learning rate is given", training.learning_rate is not None),
        Claim(f"largest imbalance / max_j |W_j|_2^2 <= {_EXACT:g}", part, _EXACT),
        requirement("a mode of the product is aligned with the target, and positive", bool(found)),
    )
    return Narrowed.where(claims, found)


def _jumping(modes: tuple[Mode, ...]) -> Narrowed[tuple[Mode, ...]]:
    """The modes above the edge, of which none may be beyond the range of stable cycles."""
    depth = modes[0].training.start.depth
    steps = [mode.step for mode in modes]
    claims = (
        Claim("2 / N < eta m^{2 - 2/N}, at the largest m", 2 / depth, max(steps)),
        Claim("eta m^{2 - 2/N} < h_N, at the largest m", max(steps), stable_up_to(depth)),
    )
    return Narrowed.where(claims, tuple(mode for mode in modes if mode.step > 2 / depth))


def _modes(training: WhiteTraining) -> tuple[Mode, ...]:
    start = training.start
    left, values, right = np.linalg.svd(start.target, full_matrices=False)
    product, found = start.product, []
    near = _EXACT * float(np.linalg.norm(product))
    for u, m, v in zip(left.T, values, right, strict=True):
        p = float(u @ product @ v)
        off = np.linalg.norm(product @ v - p * u) + np.linalg.norm(product.T @ u - p * v)
        if m > _EXACT * values[0] and p > near and off <= near:
            found.append(Mode(training, u, v, float(m), p))
    return tuple(found)


def _of_two_steps(mode: Mode) -> tuple[Claim, ...]:
    """From one point of the cycle to the other and back, with the gradients of all layers."""
    cycle, training = mode.cycle, mode.training
    if cycle is None or training.learning_rate is None:
        return ()
    depth, point, claims = training.start.depth, mode.moved_to(cycle.high), []
    for number, value in (("one step", cycle.low), ("two steps", cycle.high)):
        moved = [
            layer - training.learning_rate * slope
            for layer, slope in zip(point.layers, point.gradients, strict=True)
        ]
        point = Approximation.of(moved, training.start.target)
        statement = (
            f"the mode after {number} from the cycle = its point there, target {mode.target:.4g}"
        )
        gap = abs(float(mode.of(point)) - value**depth)
        claims.append(identity(statement, gap, rounding(1.0, units=256.0 * depth)))
    return tuple(claims)


def _of_the_end(mode: Mode) -> tuple[Claim, ...]:
    """Where a run comes back after two steps, and not after one, it is in this cycle.

    Just above the edge it is slow around x = 1, too: jumps of d come back there to within
    (N h - 2) d, which is small, and nearer than that to the cycle alone.
    """
    steps, points = mode.training.records
    cycle, depth = mode.cycle, mode.training.start.depth
    if cycle is None or steps.size < 3 or np.any(np.diff(steps[-3:]) != 1):
        return ()
    end = Approximation(tuple(layer[-3:] for layer in points.layers), points.target)
    if not _is_alone(mode, end):
        return ()
    before, other, last = (float(value) for value in mode.of(end))
    gap, jump = abs(last - before), abs(last - other)
    nearer = min(1.0, depth * mode.step - 2) * _NEAR * jump
    if not (gap <= _NEARLY and gap < nearer and min(last, other) > 0):
        return ()
    found = np.sort([other, last]) - np.array([cycle.low, cycle.high]) ** depth
    # What is left decays by the multiplier per cycle; at the other point it is up to N times that.
    left = 4 * depth * gap / (1 - abs(cycle.multiplier))
    slack = left + float(rounding(1.0, units=256.0 * depth))
    statement = (
        f"the last two products along the mode = those of the cycle, target {mode.target:.4g}"
    )
    return (identity(statement, float(np.max(np.abs(found))), slack),)


def _is_alone(mode: Mode, points: Approximation) -> bool:
    """Whether the mode is still one of balanced layers: rounding may grow where others mix in."""
    if not all(np.all(np.abs(layer) < _RUN_OFF) for layer in points.layers):
        return False
    product = points.product
    size = np.max(points.layer_norms) ** 2
    along = np.einsum("i,...ij,j->...", mode.left, product, mode.right)[:, None]
    off = (product @ mode.right - along * mode.left, mode.left @ product - along * mode.right)
    mixed = max(float(np.linalg.norm(each, axis=-1).max()) for each in off)
    unbalanced = float(np.max(largest_imbalance(points.layers)))
    return mixed <= _ALONE * mode.target and unbalanced <= _ALONE * float(size)
