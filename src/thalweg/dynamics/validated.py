"""The gradient flow with a proven radius, as a trajectory.

`thalweg.validated` has the argument and the arithmetic; here its curve is recorded at times.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._threads import one_blas_thread
from thalweg._typing import AnyWeights, Weights
from thalweg.dynamics.descent import Descent, plain_objective
from thalweg.dynamics.trajectory import AbstractFlow, Recorded, distance
from thalweg.objective import AbstractObjective, Objective
from thalweg.solvers import Validated
from thalweg.validated import Curve, proven_curve, setting_of

_MOST_STEPS = 1000  # of some 50 gradients each: a flow that takes more is a long one in any case


class ValidatedFlow(AbstractFlow):
    """A curve that is proven to stay within a radius of the exact gradient flow.

    Attributes:
        objective: what is descended.
        times: when; time 0 is the start.
        weights: the weights of the curve at those times.
        loss: f there.
        error: the exact flow is at most this far from `weights`; infinite where nothing is proven.
        largest: what the radius stays below at all times up to the last, also between.
        failed_at: the time from which on nothing is proven; None if there is none.
        start: the weights at time 0.
        curve: the curve itself, from which it can be recorded at other times at no cost; None where
            it was read from a file.
        level: "float64": rounding is bounded in every sum, and the bounds themselves are computed
            in double precision with a slack.
        solver: "validated".
    """

    objective: Objective
    times: Float[np.ndarray, "*batch times"]
    weights: Recorded
    loss: Float[np.ndarray, "*batch times"]
    error: Float[np.ndarray, "*batch times"]
    largest: float
    failed_at: float | None
    start: Recorded
    curve: Curve | None = eqx.field(static=True)
    level: str = eqx.field(static=True, default="float64")
    solver: str = eqx.field(static=True, default="validated")

    @property
    def radius(self) -> Float[np.ndarray, "*batch times"]:
        """The same as `error`, which is proven here."""
        return self.error

    @property
    @override
    def error_so_far(self) -> Float[np.ndarray, "*batch times"]:
        """The same as `error`, which is proven at each time."""
        return self.error

    def forever(self, run: Descent | None = None) -> float | None:
        """What holds at all times after the last, where the flow is proven to come to rest.

        Without a run: how far the exact flow gets from the last weights. With a run of plain
        descent from the same start: what the distance of the two stays below after the run's last
        record, descent going on without rounding. Both then converge to global minimisers.

        Returns:
            None where it is not proven: other losses than the square loss, weight decay, data whose
            rank is not full, a flow or run that has not come near its end, or a learning rate that
            is not below 2 / sharpness there.
        """
        if run is None:
            return self._curve_to(self.times).rest(float(self.times.max()))
        plain_objective(run, "`forever`")
        if run.times.ndim > 1:
            raise InputError(
                f"`forever` takes one run, got a batch of shape {run.times.shape[:-1]}; one at a "
                "time."
            )
        curve, end = self._curve_to(run.times), run.times[-1:]
        reached = jax.tree.map(lambda array: array[-1:], run.weights)
        there = eqx.tree_at(lambda each: (each.times, each.weights), run, (end, reached))
        gap = float(distance(there, _recorded(self.objective, curve, end))[0])
        flow = curve.rest(float(end[0]))
        known = curve.setting.rest(tuple(np.asarray(each, float) for each in run.final))
        descent = None if known is None else known.of_descent(float(run.learning_rate))
        if flow is None or descent is None:
            return None
        # Of a distance the sum of squares is rounded.
        slack = 1 + (self.objective.network.size + 8) * float(np.finfo(float).eps)
        return (gap + flow + descent) * slack

    @override
    def proven_radius(self) -> Float[np.ndarray, "*batch times"]:
        return self.error

    @override
    def at(self, times: Any) -> "ValidatedFlow":
        """The same curve at other times; of any shape, as runs of several learning rates have."""
        moments = np.atleast_1d(np.asarray(times, float))
        return _recorded(self.objective, self._curve_to(moments), moments)

    def _curve_to(self, times: Float[np.ndarray, "*batch times"]) -> Curve:
        """The curve, made anew where it was not kept or ends before the last of these times."""
        if self.curve is None or times.max() > self.curve.end:
            return Validated().curve(self.objective, self.start, float(times.max()))
        return self.curve


def validated_flow(
    solver: Validated,
    objective: AbstractObjective,
    weights: AnyWeights,
    times: Float[np.ndarray, "*batch times"],
) -> ValidatedFlow:
    """The flow from these weights at these times, proven."""
    curve = solver.curve(objective, weights, float(times.max()))
    assert isinstance(objective, Objective)  # nothing else is proven
    return _recorded(objective, curve, times)


@checked
def proven_flow(
    objective: Objective,
    weights: Weights,
    times: Float[np.ndarray, " times"],
    between: Callable[[], None] = lambda: None,
) -> tuple[ValidatedFlow | None, str]:
    """The flow that is proven to the last of these times, or how far it could be proven, in words.

    The effort is bounded, because a plain flow with an estimated error can be had instead. Where
    no flow can be validated, nothing is said.

    Args:
        objective: the loss.
        weights: the start.
        times: when it is recorded.
        between: called after every step; what it raises ends the work.
    """
    try:
        setting = setting_of(objective)
    except InputError:
        return None, ""
    arrays = tuple(np.asarray(array, float) for array in weights)
    with one_blas_thread():
        curve = proven_curve(setting, arrays, float(times[-1]), _MOST_STEPS, between)
        if curve.failed_at is None:
            return _recorded(objective, curve, times), ""
    return None, f"The flow could be validated up to time {curve.failed_at:.3g} only."


def _recorded(
    objective: Objective, curve: Curve, times: Float[np.ndarray, "*batch times"]
) -> ValidatedFlow:
    layers, radius = curve.along(times.ravel())
    loss = np.array([curve.setting.value(point) for point in zip(*layers, strict=True)])
    return ValidatedFlow(
        objective=objective,
        times=times,
        weights=tuple(each.reshape(times.shape + each.shape[1:]) for each in layers),
        loss=loss.reshape(times.shape),
        error=radius.reshape(times.shape),
        largest=curve.largest,
        failed_at=curve.failed_at,
        start=curve.start,
        curve=curve,
    )
