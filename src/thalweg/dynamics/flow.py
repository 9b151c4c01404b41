"""The gradient flow theta' = -grad f(theta), integrated with a known error.

How it is integrated is the solver's affair (`thalweg.solvers`); no one of them is cheap everywhere.
With p weights, horizon T and largest curvature rho:

    Explicit       order 8, about 2 T rho gradients or more; cheapest while T rho is small
    Collocation    order 9, a few thousand gradients for any T rho, and some Hessians of O(p^3)
    Chebyshev      order 2, of the order of sqrt(T rho) gradients; any p, for moderate accuracy
    Filippov       order 2 across kinks, at least T rho gradients; networks that declare their kinks

The error of a flow is estimated: a companion runs with a tenth of the tolerances, and the distance
between the two is the error of the first, up to the companion's own. Against 100 validated flows it
is too small by 2 to 14 % in the median for order 8 or 9 and by 28 % for order 2, whose companion is
less far ahead; and at single times, where the two meet by chance, by any factor. It is no bound.
Twice the largest estimate so far (`error_so_far`) was one for all of them down to rtol 1e-10, below
which rounding adds up; `Validated` alone proves one.

Where an activation has a kink, grad f jumps as a pre-activation crosses zero. The flow crosses it,
slides along it where it is pushed there from both sides, or leaves it to either side where it is
pushed away: it is a solution in the sense of Filippov, which the solver of this name follows with
order 2, and which is not unique where it meets a kink of the last sort (`branch_uncertain`). For
all other solvers a step across the jump is of order 1. The error estimate sees it and the steps
shrink until it is passed; where the flow slides, their number grows like 1 / rtol.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Real
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, as_array, require_count, require_finite
from thalweg._sizes import require_memory
from thalweg._threads import one_blas_thread
from thalweg._typing import AnyWeights, ManyAnyWeights
from thalweg.dynamics.modified import modified_motion, solver_of_modified
from thalweg.dynamics.starts import starts_of
from thalweg.dynamics.trajectory import AbstractFlow
from thalweg.dynamics.validated import ValidatedFlow, validated_flow
from thalweg.objective import AbstractObjective
from thalweg.optimisers import PLAIN, AbstractOptimiser
from thalweg.solvers import AbstractSolver, Auto, Solution, Task, Validated
from thalweg.solvers.choosing import as_solver

if TYPE_CHECKING:
    import diffrax  # which takes a third of a second to load

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

DEFAULT_OUTPUTS = 201
"""How many evenly spaced times are recorded where only the horizon is given."""

LEAST_RTOL = 1e-12
"""Below it rounding, not the method, makes the error."""

_SAFETY = 2


class Flow(AbstractFlow):
    """The gradient flow at some times, from one start or from a batch of them.

    Attributes:
        objective: what is descended.
        times: when; time 0 is the start.
        weights: the weights at those times, in the structure that the objective takes.
        loss: f at those times.
        error: the Euclidean distance in weight space to the exact flow, estimated, typically to a
            third of itself, but at single times far too small; `error_so_far` is safer. NaN if it
            was not asked for. From `steady_at` on it includes the way that was left out.
        start: the weights at time 0.
        rtol: the relative tolerance of each step.
        atol: the absolute tolerance of each step.
        solver: what integrated it, never "auto"; a batch may have needed two, joined by "+".
        steady: the length below which what is left of the way was left out, or None.
        steady_at: the time from which on the weights are constant; NaN where they never are.
        gradient_evaluations: how many gradients it took, in rejected steps too; NaN where the
            solver cannot count them, as diffrax's implicit ones.
        hvp_evaluations: how many products of the Hessian with a vector; each costs about two
            gradients.
        hessian_evaluations: how many dense Hessians.
        companion_evaluations: how many gradients the companion took on top of that.
        records: what else the solver knows of each run, by name.
    """

    objective: AbstractObjective
    times: Float[np.ndarray, "*batch times"]
    weights: AnyWeights
    loss: Float[np.ndarray, "*batch times"]
    error: Float[np.ndarray, "*batch times"]
    start: AnyWeights
    rtol: float
    atol: float
    solver: str = eqx.field(static=True)
    steady: float | None
    steady_at: Float[np.ndarray, "*batch"]
    gradient_evaluations: Real[np.ndarray, "*batch"]
    hvp_evaluations: Real[np.ndarray, "*batch"]
    hessian_evaluations: Real[np.ndarray, "*batch"]
    companion_evaluations: Real[np.ndarray, "*batch"]
    records: Mapping[str, np.ndarray]
    _asked: AbstractSolver
    _max_steps: int = eqx.field(static=True)

    @property
    @override
    def error_so_far(self) -> Float[np.ndarray, "*batch times"]:
        """Twice the largest estimate up to each time, or twice the tolerance of a step if larger.

        One of them may be small by accident, and at the first records many are: there the flow and
        its companion have taken few steps, which agree to rounding more closely than either is
        right. Twice, because the largest one may be too small, too: against 100 validated flows by
        up to 1.9 (`Explicit`), 1.4 (`Chebyshev`) and 0.25 (`Collocation`) down to rtol 1e-10, and
        by up to 4.2 for `Explicit` at 1e-12, which is not covered.
        """
        layers = jax.tree.leaves(self.weights)
        flat = [np.reshape(array, (*self.times.shape, -1)) for array in layers]
        size = np.linalg.norm(np.concatenate(flat, axis=-1), axis=-1)
        least = np.where(self.times > 0, self.atol + self.rtol * size, 0.0)
        return _SAFETY * np.maximum.accumulate(np.maximum(self.error, least), axis=-1)

    @property
    def branch_uncertain(self) -> Bool[np.ndarray, "*batch times"]:
        """From when on the exact flow may have passed a repelling kink on the other side.

        From the first time on before which the flow came nearer to such a kink than its own error,
        which may then say nothing. Nowhere for a solver that takes the objective for smooth.
        """
        distance = self.records.get("ridge_distance", np.full(self.error.shape, np.inf))
        return np.logical_or.accumulate(self.error > distance, axis=-1)

    @override
    def at(self, times: Any) -> "Flow":
        return flow(
            self.objective,
            jax.tree.map(jnp.asarray, self.start),
            times=times,
            rtol=self.rtol,
            atol=self.atol,
            solver=self._asked,
            steady=self.steady,
            estimate_error=not bool(np.all(np.isnan(self.error))),
            max_steps=self._max_steps,
        )


@overload
def flow(
    objective: AbstractObjective,
    weights: ManyAnyWeights,
    time: float | None = None,
    times: Any = None,
    *,
    validate: Literal[True],
) -> ValidatedFlow: ...


@overload
def flow(  # pyright: ignore[reportOverlappingOverload]  (diffrax solvers are of any type)
    objective: AbstractObjective,
    weights: ManyAnyWeights,
    time: float | None = None,
    times: Any = None,
    *,
    solver: Validated,
) -> ValidatedFlow: ...


@overload
def flow(
    objective: AbstractObjective,
    weights: ManyAnyWeights,
    time: float | None = None,
    times: Any = None,
    *,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    solver: "AbstractSolver | diffrax.AbstractSolver" = Auto(),
    steady: float | None = None,
    estimate_error: bool = True,
    max_steps: int = 100_000,
    validate: Literal[False] = False,
    modified: int = 0,
    learning_rate: float | None = None,
    optimiser: AbstractOptimiser = PLAIN,
) -> Flow: ...


@checked
def flow(
    objective: AbstractObjective,
    weights: ManyAnyWeights,
    time: float | None = None,
    times: Any = None,
    *,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    solver: Any = Auto(),
    steady: float | None = None,
    estimate_error: bool = True,
    max_steps: int = 100_000,
    validate: bool = False,
    modified: int = 0,
    learning_rate: float | None = None,
    optimiser: AbstractOptimiser = PLAIN,
) -> Flow | ValidatedFlow:
    """Follow the gradient flow from these weights, and say how far off the result may be.

    A step's estimated error e is kept below the tolerances in the sense of

        mean_i (e_i / (atol + rtol |theta_i|))^2 <= 1.

    Args:
        objective: what is descended.
        weights: the start, a pytree that the objective takes; leading batch axes, alike in all
            arrays, mean that many flows, where the objective declares its `shapes`.
        time: the horizon; 201 evenly spaced times are recorded.
        times: or the times to record, increasing and not negative; (*batch, times) for a batch
            with times of its own.
        rtol: the relative tolerance of each step, at least 1e-12.
        atol: the absolute tolerance of each step.
        solver: how it is integrated: an object of `tw.solvers`, or any adaptive solver of diffrax.
        steady: stop where the flow slows down and, linearised, moves by less than this length in
            all of the time that is left; the weights stay what they are from there on.
        estimate_error: whether to run the companion, which costs more than the flow itself.
        max_steps: give up after so many steps.
        validate: prove how far the exact flow is, instead of estimating it; for one start of a
            linear network. The same as `solver=tw.solvers.Validated()`: tolerances and steps are
            the proof's own, and giving others is refused.
        modified: follow the modified flow of descent to this order in the learning rate instead,
            1 or 2 (`objective.modified` has the formulas); 0 is the gradient flow itself.
        learning_rate: that of the descent which a modified flow stands for.
        optimiser: plain descent, or the heavy ball (to order 1): its smooth trajectory, to which
            the weights come after some 1 / (1 - beta) steps; `start` is where that one begins.

    Raises:
        FlowError: if the last time could not be reached.
        InputError: if an argument makes no sense.
    """
    chosen = as_solver(solver)
    if modified or learning_rate is not None or optimiser is not PLAIN:
        _require_estimated(validate or isinstance(chosen, Validated))
        objective, weights = modified_motion(
            objective, weights, order=modified, learning_rate=learning_rate, optimiser=optimiser
        )
        chosen = solver_of_modified(chosen, modified)
    if validate or isinstance(chosen, Validated):
        given = {"rtol": rtol, "atol": atol, "steady": steady, "max_steps": max_steps}
        _require_own_steps(chosen, given | {"estimate_error": estimate_error})
        chosen = Validated()
    if isinstance(chosen, Validated):
        return _validated(chosen, objective, weights, output_times(time, times))
    tolerances = _tolerances(rtol, atol)
    if steady is not None:
        steady = _positive("steady", steady)
    starts, moments = _batched(objective, weights, output_times(time, times))
    limit = require_count("max_steps", max_steps)
    batch = moments.shape[:-1]
    size = sum(prod(array.shape[len(batch) :]) for array in jax.tree.leaves(starts))
    require_memory(
        f"A flow of {size} weights at {moments.size} times",
        2 * size * moments.size,
        "give fewer `times`",
    )
    numbers = (jnp.asarray(tolerances[0]), jnp.asarray(tolerances[1]))
    length = None if steady is None else jnp.asarray(steady)

    def one(index: tuple[int, ...]) -> Solution:
        start = jax.tree.map(lambda array: jnp.asarray(array[index]), starts)
        moment = jnp.asarray(moments[index])
        return chosen.solve(Task(objective, start, moment, *numbers, length, limit, estimate_error))

    with one_blas_thread():
        found = _map_in_threads(one, list(np.ndindex(batch)))

    return _assemble(
        found,
        batch,
        objective=objective,
        times=moments,
        start=starts,
        rtol=tolerances[0],
        atol=tolerances[1],
        steady=steady,
        _asked=chosen,
        _max_steps=limit,
    )


def _require_own_steps(solver: AbstractSolver | Validated, given: dict[str, Any]) -> None:
    """A validated flow takes steps of its own: what else was asked for would be ignored."""
    usual = {name: each.default for name, each in signature(flow).parameters.items()}
    ignored = [name for name, value in given.items() if value != usual[name]]
    ignored += [] if isinstance(solver, Validated | Auto) else ["solver"]
    if ignored:
        raise InputError(
            "A validated flow has a solver and tolerances of its own, got "
            f"`{'`, `'.join(ignored)}` as well; leave out these, or `validate`."
        )


def _require_estimated(validate: bool) -> None:
    if validate:
        raise InputError(
            "A validated flow is the gradient flow itself, got `modified` or what belongs to it as "
            "well; leave out `validate`."
        )


def _validated(
    solver: Validated,
    objective: AbstractObjective,
    weights: AnyWeights,
    times: Float[np.ndarray, "*batch times"],
) -> ValidatedFlow:
    starts, moments = _batched(objective, weights, times)
    if moments.ndim > 1:
        raise InputError(
            f"A flow is validated from one start, got a batch of shape {moments.shape[:-1]}; one "
            "at a time."
        )
    with one_blas_thread():
        return validated_flow(solver, objective, starts, moments)


def _assemble(found: list[Solution], batch: tuple[int, ...], **known: Any) -> Flow:
    """The single runs as one batch."""

    def stacked(*values: Any) -> np.ndarray:
        array = np.stack([np.asarray(value) for value in values])
        return array.reshape(batch + array.shape[1:])

    return Flow(
        weights=jax.tree.map(stacked, *(run.weights for run in found)),
        loss=stacked(*(run.loss for run in found)),
        error=stacked(*(run.error for run in found)),
        solver="+".join(sorted({run.solver for run in found})),
        steady_at=stacked(*(run.steady_at for run in found)),
        gradient_evaluations=stacked(*(run.work.gradients for run in found)),
        hvp_evaluations=stacked(*(run.work.products for run in found)),
        hessian_evaluations=stacked(*(run.work.hessians for run in found)),
        companion_evaluations=stacked(*(run.companion_work.gradients for run in found)),
        records={name: stacked(*values) for name, values in _records(found).items()},
        **known,
    )


def _records(found: list[Solution]) -> dict[str, list[Any]]:
    """What the solvers recorded, by name; NaN for runs whose solver knows no such thing."""
    known = {name: value for run in found for name, value in run.records.items()}
    return {
        name: [run.records.get(name, np.full(np.shape(value), np.nan)) for run in found]
        for name, value in known.items()
    }


def _map_in_threads(function: Callable[[_Item], _Result], items: list[_Item]) -> list[_Result]:
    """The results in order; the first alone, so that the others find it compiled."""
    first = [function(item) for item in items[:1]]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return first + list(pool.map(function, items[1:]))


def _batched(
    objective: AbstractObjective, weights: AnyWeights, times: Float[np.ndarray, "*given times"]
) -> tuple[AnyWeights, Float[np.ndarray, "*batch times"]]:
    """The starts and times, each with the batch axes of both."""
    starts = starts_of(objective, weights)
    try:
        batch = np.broadcast_shapes(starts.batch, times.shape[:-1])
    except ValueError as error:
        raise InputError(
            f"`times` must have the batch axes of the weights, {starts.batch}, or none, got shape "
            f"{times.shape}."
        ) from error
    return starts.broadcast(batch), np.broadcast_to(times, batch + times.shape[-1:])


def output_times(time: Any, times: Any) -> Float[np.ndarray, "*batch times"]:
    """The times to record, given as such or by a horizon; one sentence on what is wrong."""
    if (time is None) == (times is None):
        raise InputError("`flow` needs either `time`, the horizon, or `times`, what to record.")
    if times is None:
        return np.linspace(0.0, _positive("time", time), DEFAULT_OUTPUTS)
    array = np.asarray(as_array("times", times), float)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise InputError(
            f"`times` must hold at least one time, got shape {array.shape}; a horizon is `time`."
        )
    require_finite("times", jnp.asarray(array), "the times to record are numbers")
    if np.any(array < 0) or np.any(np.diff(array, axis=-1) <= 0):
        raise InputError(
            "`times` must increase and not be negative; the start is at time 0, and a flow is not "
            "followed backwards."
        )
    return array


def _tolerances(rtol: float, atol: float) -> tuple[float, float]:
    if not LEAST_RTOL <= rtol < 1:
        raise InputError(
            f"`rtol` must lie between {LEAST_RTOL} and 1, got {rtol}; rounding allows no less."
        )
    return float(rtol), _positive("atol", atol)


def _positive(name: str, value: float) -> float:
    if not 0 < value < np.inf:
        raise InputError(f"`{name}` must be one positive, finite number, got {value}.")
    return float(value)
