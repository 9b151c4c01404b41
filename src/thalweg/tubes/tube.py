"""The tube around a descent run in which the exact gradient flow is proven to stay.

The flow is never integrated. `growth` says how a radius grows over one step; here steps are put
together, from the recorded weights of a run. Where not every step was recorded, the steps between
are taken again; where a recorded point differs from what is computed, by rounding, the difference
is added to the radius, so that the statement is about the recorded numbers themselves. Or a run is
made and proven at once (`tube_along`), and nothing of the size of the weights is kept.

A network with kinks is followed on the region of the start; the proof ends where the flow may leave
it (`advance`).

The level of proof is float64: gradients, eigenvalues, updates and losses are enlarged by a slack
for rounding (64 units of the last place of what they are made of, the samples included); norms, and
constants made of them, are taken as computed, and intervals are not carried through. The flow is
that of the samples themselves, not of what is stored of them.
"""

from collections.abc import Iterator
from math import inf
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from thalweg._arguments import checked
from thalweg._checks import InputError, finite_weights, require_count, require_positive
from thalweg._shown import shown
from thalweg._typing import Weights
from thalweg.dynamics import Descent
from thalweg.dynamics.descent import plain_objective
from thalweg.objective import Objective
from thalweg.tubes.advance import Rows, State, advance_block, begin, unravel
from thalweg.validated import can_validate, setting_of

Times = Float[np.ndarray, " times"]
Records = Float[np.ndarray, "records size"]

_DENSE = 600  # weights up to which the Hessian and its smallest eigenvalue are computed
_BLOCK = 256  # records per compiled call


@shown
class Tube(eqx.Module):
    """Where the exact flow is, seen from a descent run, at the times that the run recorded.

    Attributes:
        times: learning rate x step.
        lower: the distance from the run to the flow is at least this.
        upper: and at most this; infinite from where on nothing is proven.
        correction: the distance that is predicted, to first order in the learning rate.
        between: what the distance from the polygon through all steps stays below, up to each time.
        loss_lower: the loss of the flow is at least this.
        loss_upper: and at most this.
        forever: what the distance stays below at all times, also after the last; None where that is
            not proven. Where it is, descent and flow both converge to global minimisers.
        curvature_bound: what the Hessian's smallest eigenvalue was bounded by from below, on
            average over the segments that matter.
        defect: how far the curve at the tube's centre is from being a flow.
        failed_at: the time from which on nothing is proven; None if there is none.
        level: "float64".
        left_region_at: the time from which on the flow may have left the region of weights on which
            a network with kinks is a polynomial, if that is why nothing is proven; else None.
    """

    times: Times
    lower: Times
    upper: Times
    correction: Times
    between: Times
    loss_lower: Times
    loss_upper: Times
    curvature_bound: Times
    defect: Times
    failed_at: float | None
    forever: float | None
    level: str = "float64"
    left_region_at: float | None = None

    @property
    def radius(self) -> Times:
        """How far the flow may be from the corrected run; infinite where nothing is proven."""
        return self.upper - np.where(np.isfinite(self.upper), self.correction, 0.0)


@checked
def tube(
    run: Descent, start_distance: float = 0.0, *, corrected: bool = True, curvature: str = "auto"
) -> Tube:
    """Prove how far a run of descent is from the exact flow.

    Args:
        run: one run, with recorded weights.
        start_distance: how far the flow may start from where the run does.
        corrected: carry the first-order correction along; without it the tube is one-sided.
        curvature: "exact" takes the smallest eigenvalue at every step, "norms" bounds it by norms
            of the layers' products, which costs less and proves less; "auto" by size.
    """
    objective = plain_objective(run, "`tube`")
    _require_one_run(run)
    _require_usable(objective, start_distance, curvature)
    rate, points = float(run.learning_rate), _flat_records(run)
    exact = _is_exact(objective, curvature)
    follower = _Follower(objective, rate, corrected, exact)
    return follower.tube(run.times, run.steps, points[0], points[1:], start_distance)


@checked
def tube_along(
    objective: Objective,
    weights: Weights,
    *,
    learning_rate: Any,
    steps: Any,
    record_every: Any = 1,
    start_distance: float = 0.0,
    corrected: bool = True,
    curvature: str = "auto",
) -> Tube:
    """Descend, and prove on the way how far the exact flow is; no weights are kept.

    The same as `tube` of the same run, but for rounding: `descend` compiles the step differently,
    and what a recorded run differs by is added to its radius.

    Args:
        objective: what to descend.
        weights: the start.
        learning_rate: one number.
        steps: how many steps to take; they end where the bound diverges.
        record_every: record at step 0, at every multiple of this, and at the last step.
        start_distance: as for `tube`.
        corrected: as for `tube`.
        curvature: as for `tube`.
    """
    _require_usable(objective, start_distance, curvature)
    steps, record_every = require_count("steps", steps), require_count("record_every", record_every)
    require_positive("learning_rate", learning_rate)
    if np.ndim(learning_rate):
        raise InputError(
            f"`tube_along` takes one learning rate, got shape {np.shape(learning_rate)}; one at a "
            "time."
        )
    arrays = tuple(np.asarray(array, float) for array in finite_weights(weights))
    recorded = np.unique([*range(0, steps, record_every), steps])
    exact = _is_exact(objective, curvature)
    follower = _Follower(objective, float(learning_rate), corrected, exact)
    start = np.concatenate([array.ravel() for array in arrays])
    return follower.tube(follower.rate * recorded, recorded, start, None, start_distance)


class _Follower(eqx.Module):
    """What follows a run block by block, be it recorded or made on the way."""

    objective: Objective
    rate: float
    corrected: bool
    exact: bool

    def tube(
        self,
        times: Times,
        steps: Int[np.ndarray, " times"],
        start: Float[np.ndarray, " size"],
        records: Records | None,
        start_distance: float,
    ) -> Tube:
        """The tube at these steps; `records` are the points at all but the first."""
        near = jnp.asarray(start_distance, start.dtype)
        last, first = begin(self.objective, jnp.asarray(start), near)
        blocks = [jax.tree.map(np.asarray, first)]
        for state, block in self._blocks(last, np.diff(steps), records):
            blocks.append(block)
            last = state
        return self._assembled(times, blocks, last)

    def _blocks(
        self, state: State, gaps: Int[np.ndarray, " gaps"], records: Records | None
    ) -> Iterator[tuple[State, Rows]]:
        rate = jnp.asarray(self.rate, state.point.dtype)
        for first in range(0, gaps.size, _BLOCK):
            inner = gaps[first : first + _BLOCK]
            targets = None if records is None else records[first : first + _BLOCK]
            if targets is not None:
                targets = np.resize(targets, (_BLOCK, targets.shape[1]))
            state, block = advance_block(
                self.objective,
                rate,
                state,
                targets,
                np.resize(inner, _BLOCK),
                jnp.asarray(inner.size),
                self.corrected,
                self.exact,
            )
            yield state, jax.tree.map(lambda rows, size=inner.size: np.asarray(rows)[:size], block)
            if not np.isfinite(float(state.radius)):
                return

    def _assembled(self, times: Times, blocks: list[Rows], last: State) -> Tube:
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
        missing = times.size - joined.radius.size

        def padded(values: Times, filler: float) -> Times:
            return np.concatenate([values, np.full(missing, filler)])

        radius, correction = padded(joined.radius, inf), padded(joined.correction, np.nan)
        proven = np.isfinite(radius)
        failed = np.flatnonzero(~proven)
        failed_at = float(times[failed[0]]) if failed.size else None
        loss, doubt = padded(joined.loss, np.nan), padded(joined.loss_error, inf)
        lowest = float(self.objective.least_value)
        correction, loss = (np.where(proven, each, 0.0) for each in (correction, loss))
        doubt = np.where(proven, doubt, 0.0)
        return Tube(
            times=times,
            lower=np.where(proven, np.maximum(correction - np.where(proven, radius, 0), 0.0), 0.0),
            upper=np.where(proven, correction + radius, inf),
            correction=np.where(proven, correction, np.nan),
            between=np.where(proven, padded(joined.between, inf), inf),
            loss_lower=np.where(proven, np.maximum(loss - doubt, lowest), lowest),
            loss_upper=np.where(proven, loss + doubt, inf),
            curvature_bound=padded(joined.curvature, np.nan),
            defect=padded(joined.defect, np.nan),
            failed_at=failed_at,
            forever=None if failed.size else self._forever(last, float(joined.between[-1])),
            left_region_at=failed_at if bool(last.left) else None,
        )

    def _forever(self, last: State, widest: float) -> float | None:
        if not can_validate(self.objective):
            return None
        shaped, setting = unravel(self.objective), setting_of(self.objective)
        point, centre = (
            tuple(np.asarray(layer) for layer in shaped(each))
            for each in (last.point, last.point + last.correction)
        )
        near, far = setting.rest(centre), setting.rest(point)
        flow = None if near is None else near.of_flow(float(last.radius))
        descent = None if far is None else far.of_descent(self.rate)
        if flow is None or descent is None:
            return None
        return max(float(jnp.linalg.norm(last.correction)) + flow + descent, widest)


def _is_exact(objective: Objective, curvature: str) -> bool:
    small = objective.network.size <= _DENSE
    return curvature == "exact" or (curvature == "auto" and small)


def _flat_records(run: Descent) -> Records:
    rows = [np.asarray(array, float).reshape(run.times.size, -1) for array in run.weights]
    return np.concatenate(rows, axis=1)


def _require_one_run(run: Descent) -> None:
    if run.learning_rate.ndim:
        raise InputError(
            f"`tube` takes one run, got a batch of shape {run.learning_rate.shape}; one at a time."
        )
    if not run.weights:
        raise InputError(
            "`tube` needs the recorded weights, but this run kept only what `observe` returned; "
            "descend without `observe`, or use `tube_along`, which keeps none."
        )


def _require_usable(objective: Objective, start_distance: float, curvature: str) -> None:
    if objective.network.linear is None and objective.network.layered is None:
        raise InputError(
            "A tube is proven for linear networks and for those with a two-slope activation, got "
            f"{type(objective.network).__name__}."
        )
    if jnp.zeros(()).dtype != np.float64:
        raise InputError("A tube needs 64 bits, but JAX's are off; unset JAX_ENABLE_X64.")
    if not start_distance >= 0:
        raise InputError(f"`start_distance` must be a number >= 0, got {start_distance}.")
    if curvature not in ("auto", "exact", "norms"):
        raise InputError(f"`curvature` must be auto, exact or norms, got {curvature!r}.")
