"""A computed curve that is proven to stay within a radius of the exact gradient flow.

The curve z is a polynomial on each step (`series`), its defect delta >= |z' + grad f(z)| is bounded
(`defect`). With the exact flow theta, e = |theta - z|, and lambda_min(H) >= -m on the segment from
z to theta,

    e' <= m e + delta,    m <= -lambda_min(H(z)) + L e / 2,

because (e^2 / 2)' = -<d, grad f(z + d) - grad f(z)> - <d, z' + grad f(z)> with d = theta - z, and L
bounds how fast H changes near the curve. On a step of length h the matrix H(z(s)) is its linear
interpolation up to s (h - s) / 2 sup|H''|, and -lambda_min is a convex function of the matrix, so
that m between two points where it is known is at most its interpolation plus that. (It is known at
a rounded point, at most `placed` from the curve, which adds L times that.) If for some b

    exp(h max(0, largest m)) (e + integral of delta) < b,    L valid up to the distance b,

then e stays below b during the step: the left side bounds it for as long as it has not reached b.
Nothing about the flow is presupposed. At the end of the step

    e <= exp(integral of m) e + exp(h max(0, largest m)) integral of delta.

How much time goes into lambda_min is decided along the way (`exponents`).

One curve serves every run: the distance of a run to the exact flow differs from that to z by no
more than e.

Taylor steps are explicit, and at a sharp minimum there are many of them. Where the exact flow is
proven to stay for ever (`rest`) within little more than e of the last point, the curve stays there:
within 8 e, or 64 e where that spares more than 500 steps, for the sharper the minimum is in some
directions than in others, the larger is what a distance of e may still move.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice, takewhile
from math import exp, floor, inf, isfinite
from typing import Any

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg.validated.defect import NodeNorms, StepNorms, over_step
from thalweg.validated.exponents import AbstractEigenvalues, Known, over_length
from thalweg.validated.hessian import change, dense_bound, norm_bound
from thalweg.validated.losses import AbstractLossSeries
from thalweg.validated.lowest import Directions, Lowest, nystroem
from thalweg.validated.rest import Rest
from thalweg.validated.rounding import EXTENDED, SLACK, UNIT
from thalweg.validated.series import Series, expand, polynomial

Layers = tuple[Float[np.ndarray, "_ _"], ...]
Records = tuple[Float[np.ndarray, "times _ _"], ...]
Times = Float[np.ndarray, " times"]

_ATTEMPTS = 25
_SHRINK = 0.75  # what a step that cannot be proven is multiplied by; 25 times, a thousandth is left
_MOST_STEPS = 100_000
_ROUNDED = 30  # how much larger than rounding and precision the defect of a step may be
_WIDEST = 1e3  # a radius above this says nothing
_STEEPEST = 50  # nor does one that may grow by exp(50) on a step
_FEW = 20  # steps that are not worth looking whether the flow has come to rest
_LOOK = 10  # after so many steps it is looked again
_STILL = 8.0  # how much larger than e the ball may be in which the flow rests,
_STILL_LONG = 64.0  # and where more than so many steps are left:
_LONG = 500


@dataclass(frozen=True)
class Setting(AbstractEigenvalues):
    """What is flowed, and how finely.

    Attributes:
        readout: R; the identity where there is none.
        loss: the loss of the network's product.
        decay: the weight decay.
        dense: whether eigenvalues are computed from dense Hessians, or bounded by norms.
        order: p, the degree of the curve.
        known: q, the order up to which its defect is known.
        precision: the relative size of what a step leaves out.
        extended: whether series are computed in extended precision, where the loss allows it.
    """

    readout: Float[np.ndarray, "_ _"]
    loss: AbstractLossSeries
    decay: float
    dense: bool
    order: int = 16
    known: int = 24
    precision: float = UNIT
    extended: bool = False

    @override
    def smallest(self, layers: Layers) -> float:
        bound = dense_bound if self.dense else norm_bound
        return bound(layers, self.readout, self.loss, self.decay)

    @override
    def sharper(self, layers: Layers, directions: Directions | None) -> Lowest:
        return nystroem(layers, self.readout, self.loss, self.decay, directions)

    def rest(self, layers: Layers) -> Rest | None:
        """What is known of the flow's and descent's rest near these layers, if anything."""
        return Rest.at(layers, self.readout, self.loss, self.decay, self.dense)

    def value(self, layers: Layers) -> float:
        """The objective itself."""
        product = self.readout.T
        for layer in reversed(layers):
            product = product @ layer
        penalty = self.decay / 2 * _size(layers) ** 2 if self.decay else 0.0
        return self.loss.value(product) + penalty


@dataclass(frozen=True)
class Step:
    """One piece of the curve.

    Attributes:
        begin: when it begins.
        length: how long it lasts.
        layers: the coefficients of its polynomials, in units of `unit`.
        unit: of time.
        radius: what e is at most at its beginning.
        defect: the integral of delta.
        exponent: the largest m, or zero.
        after: what e is at most at its end.
        still: whether the exact flow is proven to stay within `after` of this point for ever.
    """

    begin: float
    length: float
    layers: tuple[Float[np.ndarray, "_ _ _"], ...]
    unit: float
    radius: float
    defect: float
    exponent: float
    after: float
    still: bool = False

    @classmethod
    def at_rest(cls, begin: float, length: float, layers: Layers, radius: float) -> "Step":
        """The curve stays where it is, and the exact flow within this radius of it."""
        points = tuple(layer[None] for layer in layers)
        return cls(begin, length, points, 1.0, radius, 0.0, 0.0, radius, still=True)

    @property
    def end(self) -> float:
        """When it ends."""
        return self.begin + self.length

    @property
    def largest(self) -> float:
        """What the radius stays below during the step, wherever it is evaluated."""
        grown = exp(self.exponent * self.length) * (self.radius + self.defect) * SLACK
        return max(grown, self.after) + _evaluation_error(self.layers, self.length / self.unit)

    def at(self, times: Times) -> tuple[Records, Times]:
        """The curve at times of this step, and its radius there."""
        since = times - self.begin
        layers = polynomial(self.layers, since / self.unit)
        if self.after == inf:
            return layers, np.full(times.shape, inf)
        grown = np.exp(self.exponent * since) * SLACK * (self.radius + self.defect)
        radius = np.where(times == self.end, self.after, grown)
        return layers, radius + _evaluation_error(self.layers, since / self.unit)


@dataclass(frozen=True)
class Curve:
    """The pieces in order; `failed_at` is from when on nothing is proven, None if there is none."""

    setting: Setting
    start: Layers
    steps: tuple[Step, ...]
    failed_at: float | None

    @property
    def end(self) -> float:
        """Up to when it goes."""
        return self.steps[-1].end if self.steps else 0.0

    def at(self, time: float) -> tuple[Layers, float]:
        """The curve at one time, and its radius there."""
        layers, radius = self.along(np.array([time]))
        return tuple(each[0] for each in layers), float(radius[0])

    def along(self, times: Times) -> tuple[Records, Times]:
        """The curve at many times, in any order, and its radius there; the start before time 0."""
        if times.max(initial=0.0) > self.end:
            raise ValueError(f"the curve ends at {self.end}, before {times.max()}")
        layers = tuple(np.empty((times.size, *each.shape)) for each in self.start)
        radius = np.empty(times.size)
        # Where two steps meet, the end of the first: the second may be unproven.
        index = np.searchsorted([each.begin for each in self.steps], times) - 1
        for number in np.unique(index):
            chosen = index == number
            points, radius[chosen] = (
                self.steps[number].at(times[chosen]) if number >= 0 else (self.start, 0.0)
            )
            for all_points, some in zip(layers, points, strict=True):
                all_points[chosen] = some
        return layers, radius

    def rest(self, time: float) -> float | None:
        """How far the exact flow gets from the curve at this time, at any later one.

        None where it is not proven to come to rest.
        """
        layers, radius = self.at(time)
        if not radius < inf:
            return None
        if self.steps and self.steps[-1].still and time > self.steps[-1].begin:
            return radius
        known = self.setting.rest(layers)
        return None if known is None else known.of_flow(radius)

    @property
    def largest(self) -> float:
        """What the radius stays below at all times."""
        if self.failed_at is not None:
            return inf
        return max(each.largest for each in self.steps)


def validated_curve(setting: Setting, start: Layers, horizon: float) -> Curve:
    """The curve from the start to the horizon; where nothing is proven, its radius is infinite."""
    steps = tuple(islice(_steps(setting, start, horizon), _MOST_STEPS))
    unproven = next((step.begin for step in steps if step.after == inf), None)
    if unproven is None and (not steps or steps[-1].end < horizon):
        unproven = steps[-1].end if steps else 0.0
    return Curve(setting, start, steps, unproven)


def proven_curve(
    setting: Setting, start: Layers, horizon: float, most: int, between: Callable[[], None]
) -> Curve:
    """The same until nothing is proven, after so many steps, or where `between` raises."""
    made = islice(_steps(setting, start, horizon), most)
    steps = tuple(takewhile(lambda step: (between(), step.after < inf)[1], made))
    end = steps[-1].end if steps else 0.0
    return Curve(setting, start, steps, end if end < horizon else None)


def _steps(setting: Setting, layers: Layers, horizon: float) -> Iterator[Step]:
    time, radius, unit = 0.0, 0.0, 0.1
    known = Known(setting.smallest(layers))
    for number in count(1):
        if time >= horizon:
            return
        left = (horizon - time) / unit
        if number % _LOOK == 0 and left > _FEW:
            resting = _still(setting, layers, radius, _STILL_LONG if left > _LONG else _STILL)
            if resting is not None:
                yield Step.at_rest(time, (horizon - time) * SLACK, layers, resting)
                return
        node = _Node.at(setting, layers, time, radius, known, unit, float(np.spacing(horizon)))
        step, known = node.proven_step(horizon - time) or node.unproven_step(horizon - time)
        yield step
        layers, radius = polynomial(step.layers, step.length / step.unit), step.after
        unit, time = step.length, step.end


def _still(setting: Setting, layers: Layers, radius: float, share: float) -> float | None:
    """The radius of a ball that the flow never leaves, if it is no larger than this share of e."""
    known = setting.rest(layers) if radius < inf else None
    reach = None if known is None else known.of_flow(radius)
    return reach if reach is not None and reach <= share * radius else None


@dataclass(frozen=True)
class _Node:
    """Where a step begins: the series there, and what is known of it."""

    setting: Setting
    series: Series
    norms: NodeNorms
    time: float
    radius: float
    known: Known
    grid: float

    @classmethod
    def at(
        cls,
        setting: Setting,
        layers: Layers,
        time: float,
        radius: float,
        known: Known,
        unit: float,
        grid: float,
    ) -> "_Node":
        """The series of the flow through these layers; lengths are multiples of the grid."""
        orders = (setting.order, setting.known)
        loss = setting.loss.fresh()
        kind = EXTENDED if setting.extended and loss.extended else float
        series = expand(layers, setting.readout, loss, setting.decay, *orders, unit, kind)
        return cls(setting, series, NodeNorms.of(series), time, radius, known, grid)

    def proven_step(self, left: float) -> tuple[Step, Known] | None:
        """The longest step that can be proven, and what is known at its end; None if none can."""
        if self.radius == inf:
            return None
        length = self._on_the_grid(min(self._first_length(), left))
        for _ in range(_ATTEMPTS):
            if not length > 0:
                return None
            with np.errstate(over="ignore", invalid="ignore"):  # steps that are far too long
                made = self._attempt(length)
            if made is not None:
                return made
            length = self._on_the_grid(length * _SHRINK)
        return None

    def unproven_step(self, left: float) -> tuple[Step, Known]:
        """A step as a plain integrator takes it: the curve goes on, the radius is infinite."""
        length, series = self._on_the_grid(min(self._first_length(), left)), self.series
        length = length or min(self.grid, left)
        step = Step(self.time, length, series.layers, series.unit, self.radius, inf, 0.0, inf)
        return step, self.known

    def _on_the_grid(self, length: float) -> float:
        """The length rounded down, so that no time is ever rounded when lengths are added."""
        return floor(length / self.grid) * self.grid

    def _first_length(self) -> float:
        """Where the first coefficient that is left out is as small as the precision."""
        order, unit = self.series.order, self.series.unit
        # A start at zero has no size but that of its first steps.
        size = sum(_size([each[k] for each in self.series.layers]) for k in (0, 1))
        found = inf
        for k in (order - 1, order):
            rate = self.norms.gradient[k] * unit / (k + 1)
            if rate > 0:
                found = min(found, unit * (size * self.setting.precision / rate) ** (1 / (k + 1)))
        return found

    def _attempt(self, length: float) -> tuple[Step, Known] | None:
        """A step of this length, if it can be proven."""
        setting, series = self.setting, self.series
        step = over_step(series, self.norms, length)
        coarse = setting.precision / UNIT
        placed = _evaluation_error(series.layers, length / series.unit)
        if not step.defect <= _ROUNDED * coarse * (step.rounding + placed) or not step.is_finite:
            return None
        found = over_length(setting, self.known, series.at, step, length)
        if found is None:
            return None
        exponent, known = found
        proven = self._proven(step, length, exponent.worst, placed)
        if proven is None:
            return None
        steepest, added = proven
        grown = exp(length * (exponent.mean + added)) * self.radius
        after = (grown + exp(length * steepest) * step.defect) * SLACK + placed
        layers = series.layers
        made = Step(
            self.time, length, layers, series.unit, self.radius, step.defect, steepest, after
        )
        return made, known

    def _proven(
        self, step: StepNorms, length: float, worst: float, placed: float
    ) -> tuple[float, float] | None:
        """The largest m and the part of it that the distance b adds, for a b that proves itself.

        Eigenvalues are those at rounded points, at most `placed` from the curve.
        """
        begun = self.radius + step.defect
        ball = max(1.5 * begun, placed) + 1e-300
        for _ in range(_ATTEMPTS):
            near = change(self.norms, step, self.series.loss, ball)
            added = near.lipschitz * (ball / 2 + placed) + 2 * near.unknown
            # What has overflowed proves nothing; the larger of zero and NaN would be zero.
            if not isfinite(worst + added) or not ball < _WIDEST:
                return None
            steepest = max(0.0, worst + added)
            if length * steepest > _STEEPEST:
                return None
            reached = exp(length * steepest) * begun * SLACK
            if reached < ball:
                return steepest, added
            ball = 1.1 * reached
        return None


def _evaluation_error(coefficients: tuple[Float[np.ndarray, "_ _ _"], ...], share: Any) -> Any:
    """What Horner's rule leaves, where the time by the unit may be off by three roundings, too.

    The coefficient of order k > 0 is rounded 2k times on the way, and its power has 3k more; the
    point itself is rounded once.
    """
    squares = sum(np.sum(each**2, axis=(1, 2)) for each in coefficients)
    order = np.arange(coefficients[0].shape[0])
    sizes = np.sqrt(squares) * np.asarray(share)[..., None] ** order
    return 1.01 * UNIT * np.sum((5 * order + 1) * sizes, axis=-1)


def _size(layers: Layers | list[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(each**2) for each in layers)))
