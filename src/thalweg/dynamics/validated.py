"""The gradient flow with a proven radius, as a trajectory.

`thalweg.validated` has the argument and the arithmetic; here its curve is recorded at times.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg._checks import InputError
from thalweg._threads import one_blas_thread
from thalweg._typing import AnyWeights, Weights
from thalweg.dynamics.trajectory import AbstractFlow, Recorded
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

    @override
    def proven_radius(self) -> Float[np.ndarray, "*batch times"]:
        return self.error

    @override
    def at(self, times: Any) -> "ValidatedFlow":
        """The same curve at other times; of any shape, as runs of several learning rates have."""
        moments = np.atleast_1d(np.asarray(times, float))
        if self.curve is None or moments.max() > self.curve.end:
            return validated_flow(Validated(), self.objective, self.start, moments)
        return _recorded(self.objective, self.curve, moments)


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


def proven_flow(
    objective: Objective, weights: Weights, times: Float[np.ndarray, " times"]
) -> tuple[ValidatedFlow | None, str]:
    """The flow that is proven to the last of these times, or how far it could be proven, in words.

    The effort is bounded, because a plain flow with an estimated error can be had instead. Where
    no flow can be validated, nothing is said.
    """
    try:
        setting = setting_of(objective)
    except InputError:
        return None, ""
    arrays = tuple(np.asarray(array, float) for array in weights)
    with one_blas_thread():
        curve = proven_curve(setting, arrays, float(times[-1]), _MOST_STEPS)
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
