"""The central flow: what descent follows on average at the edge of stability.

Above the edge 2 / eta descent does not follow the gradient flow: along the sharpest directions it
jumps from one side of a valley to the other, and the oscillation pulls its centre to where the
valley is wider. Two smooth curves say where the centre is, and how large the oscillation:

* of the *oscillation* x itself (`oscillation`), which takes averages over its two sides,

      c' = -(g(c + x) + g(c - x)) / 2 + ...,    x' = (g(c + x) - g(c - x)) / 2 - 2 x / eta + ...,

  for any number of unstable directions and oscillations of any size, from gradients alone;
* of the *covariance* (`covariance`), the central flow of the literature [cohen2025], which says why
  the sharpness stays where it is, and needs eigenvectors and derivatives of the Hessian.

Both predict; nothing here is proven. The first needs descent's own steps up to the edge, because
the size of the oscillation as it comes there is left over from what was not smooth before.
"""

from typing import Any, Literal, overload

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, finite_weights, require_count, require_positive
from thalweg._sizes import require_memory
from thalweg._typing import AnyWeights
from thalweg.dynamics import oscillation
from thalweg.dynamics.covariance import CovarianceFlow, covariance_flow
from thalweg.dynamics.flattened import Flattened
from thalweg.dynamics.flow import output_times
from thalweg.dynamics.trajectory import AbstractCentralFlow
from thalweg.objective import AbstractObjective

Method = Literal["oscillation", "covariance"]

_COMPANION = 0.1  # the companion's tolerance, as a part of the asked one


class CentralFlow(AbstractCentralFlow):
    """What descent is predicted to follow: a centre c, with an oscillation x to both sides.

    Step k of descent is predicted to be at c + (-1)^k x at time learning_rate * k.

    Attributes:
        objective: what is descended.
        times: when; time t is that of step t / learning_rate.
        weights: the centre.
        oscillation: x, in the structure of the weights.
        loss: f at the centre.
        mean_loss: the mean of f at c + x and c - x.
        error: the distance of (c, x) to that of a companion with a tenth of the tolerance, one
            more term of the velocity, and one neighbour less where descent is split.
        met_at: the time from which on it is predicted: the oscillation was found to lose less than
            a tenth in a step there, as it does from 5 % below the edge on. Before it, and where it
            is NaN everywhere, all is descent's own, split into centre and oscillation.
        learning_rate: eta.
        rtol: the error of a step, as a part of the length of centre and oscillation.
        evaluations: how many gradients it took, those of the companion not counted.
    """

    objective: AbstractObjective
    times: Float[np.ndarray, " times"]
    weights: AnyWeights
    oscillation: AnyWeights
    loss: Float[np.ndarray, " times"]
    mean_loss: Float[np.ndarray, " times"]
    error: Float[np.ndarray, " times"]
    met_at: float
    learning_rate: float
    rtol: float
    evaluations: int
    _start: Any
    _max_steps: int = eqx.field(static=True)

    @property
    @override
    def variance(self) -> Float[np.ndarray, " times"]:
        return np.sum(self._rows**2, axis=1)

    @property
    def covariance(self) -> Float[np.ndarray, "times 1 1"]:
        """|x|^2: the oscillation has one direction at a time."""
        return self.variance[:, None, None]

    @property
    def directions(self) -> Float[np.ndarray, "times 1 size"]:
        """X / |x|, which turns where there are several unstable directions."""
        lengths = np.linalg.norm(self._rows, axis=1, keepdims=True)
        return (self._rows / np.where(lengths > 0, lengths, 1.0))[:, None]

    @property
    def _rows(self) -> Float[np.ndarray, "times size"]:
        leaves = jax.tree.leaves(self.oscillation)
        return np.concatenate([leaf.reshape(self.times.size, -1) for leaf in leaves], axis=1)

    @override
    def at(self, times: Any) -> "CentralFlow":
        return central_flow(
            self.objective, self._start, learning_rate=self.learning_rate, times=times,
            rtol=self.rtol, max_steps=self._max_steps,
            estimate_error=not bool(np.all(np.isnan(self.error))),
        )  # fmt: skip


@overload
def central_flow(
    objective: AbstractObjective,
    weights: AnyWeights,
    *,
    learning_rate: float,
    time: float | None = None,
    times: Any = None,
    method: Literal["covariance"],
    rtol: float = 1e-6,
    corrected: bool = True,
    estimate_error: bool = True,
    max_steps: int = 20_000,
) -> CovarianceFlow: ...


@overload
def central_flow(
    objective: AbstractObjective,
    weights: AnyWeights,
    *,
    learning_rate: float,
    time: float | None = None,
    times: Any = None,
    method: Literal["oscillation"] = "oscillation",
    rtol: float = 1e-6,
    corrected: bool = True,
    estimate_error: bool = True,
    max_steps: int = 20_000,
) -> CentralFlow: ...


@checked
def central_flow(
    objective: AbstractObjective,
    weights: AnyWeights,
    *,
    learning_rate: float,
    time: float | None = None,
    times: Any = None,
    method: Method = "oscillation",
    rtol: float = 1e-6,
    corrected: bool = True,
    estimate_error: bool = True,
    max_steps: int = 20_000,
) -> CentralFlow | CovarianceFlow:
    """Predict what descent at this learning rate follows on average, at the edge of stability too.

    Args:
        objective: what is descended; smooth.
        weights: one start.
        learning_rate: that of descent, whose edge is 2 / learning_rate.
        time: the horizon; 201 evenly spaced times are recorded.
        times: or the times to record, increasing and not negative.
        method: "oscillation" follows a centre and the oscillation around it, from gradients;
            "covariance" is the central flow of the literature, which needs four derivatives.
        rtol: the relative tolerance of each step.
        corrected: of the covariance: keep the terms of the next order in the learning rate.
        estimate_error: whether to run a companion, which takes three to five times the gradients.
        max_steps: give up after so many steps of the flow; those of descent before it not counted.

    Raises:
        FlowError: if the last time could not be reached.
        InputError: if an argument makes no sense.
    """
    for name, value in (("learning_rate", learning_rate), ("rtol", rtol)):
        require_positive(name, value)
    if not objective.smooth:
        raise InputError(
            "A central flow is smooth, and this objective has kinks; choose a smooth activation."
        )
    if method == "oscillation" and not corrected:
        raise InputError(
            'Only method="covariance" has corrections to leave out, got corrected=False for the '
            "oscillation; leave it out."
        )
    start = finite_weights(weights)
    objective.check(start, many=False)
    moments, limit = output_times(time, times), require_count("max_steps", max_steps)
    if moments.ndim > 1:
        raise InputError(f"`times` must be one row of times, got shape {moments.shape}.")
    if method == "covariance":
        return covariance_flow(
            objective, start, float(learning_rate), moments, rtol=rtol, corrected=corrected,
            estimate_error=estimate_error, max_steps=limit,
        )  # fmt: skip
    return _oscillating(
        Flattened(objective, start), moments, float(learning_rate), rtol, estimate_error, limit
    )


def _oscillating(
    flat: Flattened,
    times: Float[np.ndarray, " times"],
    learning_rate: float,
    rtol: float,
    estimate_error: bool,
    max_steps: int,
) -> CentralFlow:
    require_memory(
        f"A central flow of {flat.start.size} weights at {times.size} times",
        6 * flat.start.size * times.size,
        "give fewer `times`",
    )
    found = oscillation.follow(flat, times, learning_rate, rtol=rtol, most=max_steps)
    error = np.full(times.shape, np.nan)
    if estimate_error:
        companion = oscillation.follow(
            flat, times, learning_rate, rtol=_COMPANION * rtol, most=10 * max_steps,
            terms=oscillation.TERMS + 1, neighbours=oscillation.NEIGHBOURS - 1, begin=found.begin,
        )  # fmt: skip
        error = np.linalg.norm(found.pairs - companion.pairs, axis=(1, 2))
    centres, shifts = found.pairs[:, 0], found.pairs[:, 1]
    losses = np.array([
        flat.values_and_gradients(np.stack([c, c + x, c - x]))[0] for c, x in found.pairs
    ])  # fmt: skip
    return CentralFlow(
        objective=flat.objective,
        times=times,
        weights=flat.shaped(centres),
        oscillation=flat.shaped(shifts),
        loss=losses[:, 0],
        mean_loss=losses[:, 1:].mean(axis=1),
        error=error,
        met_at=np.nan if found.begin is None else learning_rate * found.begin,
        learning_rate=learning_rate,
        rtol=rtol,
        evaluations=found.evaluations,
        _start=flat.shaped(flat.start),
        _max_steps=max_steps,
    )
