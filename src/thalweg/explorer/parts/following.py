"""The gradient flow beside the descents, and how far they are from it.

A function that JAX compiles is compiled for every shape anew, which takes seconds; so the flow of
small linear networks is followed by SciPy's method of order 8, with gradients that a kernel
computes in some microseconds for all shapes. As in `thalweg.flow`, a companion with a tenth of the
tolerances says how far off it is. All other flows are those of `thalweg run`.
"""

from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import Float
from scipy.integrate import DOP853

from thalweg._typing import AnyWeights
from thalweg.dynamics import Flow, FlowError, distance
from thalweg.experiment.trajectories import flow_arrays, flow_at, flow_from, together
from thalweg.explorer.computation import Computation, padded
from thalweg.explorer.parts.inside import product_singular
from thalweg.explorer.parts.records import spread, thinned
from thalweg.explorer.settings import SettingError
from thalweg.explorer.waiting import beside
from thalweg.kernels import LANES, Chain, suits
from thalweg.solvers import Explicit

Points = Float[np.ndarray, "times size"]

_COMPANION = 0.1  # of the tolerances
_MOST_STEPS = 4_000  # of twelve gradients each: a second or two for the largest networks
_MODES_AT = 60_000  # weights whose singular values are had at once


def flow(known: Computation) -> Iterator[bytes]:
    """The flow with an estimated error, at once; `proof` replaces it by one that is proven."""
    if not known.experiment.flow.enabled:
        known.no_flow = "The flow was not asked for (flow.enabled = false)."
    else:
        _follow(known)
    if known.flow is None:
        raise SettingError(known.no_flow, "flow")
    yield framed_flow(known)


def framed_flow(known: Computation) -> bytes:
    """The flow that is known, with the distance of each run from it."""
    exact = known.flow
    assert exact is not None
    with np.errstate(over="ignore", invalid="ignore"):  # of a run that diverges
        known.distances = [distance(run, flow_at(exact, run.times)) for run in known.runs]
    arrays = {
        "time": exact.times,
        "loss": np.asarray(exact.loss, float),
        "error": np.asarray(exact.error, float),
        "distance": padded(list(known.distances)),
    }
    if known.linear:
        chosen = thinned(exact, max(24, _MODES_AT // max(known.size, 1)))
        points = [np.take(layer, chosen, axis=0) for layer in jax.tree.leaves(exact.weights)]
        modes = product_singular(known, points)
        arrays["product_singular"] = spread(chosen, modes, exact.times.size).astype("f4")
    return known.framed("flow", arrays, solver=exact.solver)


def _follow(known: Computation) -> None:
    settings, objective = known.experiment.flow, known.objective
    chain = objective.chain
    small = chain is not None and suits(chain, jax.tree.leaves(known.weights))
    if chain is not None and small and settings.solver == "auto":
        try:
            known.flow = _by_kernels(known, chain, together([run.times for run in known.runs]))
        except FlowError as error:
            known.no_flow = str(error)
        return
    plain = settings.model_copy(update={"validated": False})

    def arrays() -> dict[str, np.ndarray]:
        return flow_arrays(objective, known.weights, plain, known.runs)

    found = beside(known, arrays)
    known.no_flow = str(found.get("reason", ""))
    known.flow = flow_from(found, objective, known.weights, plain)


def _by_kernels(known: Computation, chain: Chain, times: Float[np.ndarray, " times"]) -> Flow:
    """The flow of a small linear network at these times, with its companion's distance as error."""
    settings = known.experiment.flow
    points, loss, calls = _walk(known, chain, times, settings.rtol, settings.atol)
    tenth = _COMPANION * settings.rtol, _COMPANION * settings.atol
    nearer, _, more = _walk(known, chain, times, *tenth)
    start = jax.tree.map(lambda array: np.asarray(array, float), known.weights)
    return Flow(
        objective=known.objective,
        times=times,
        weights=_layers(points, start),
        loss=loss,
        error=np.linalg.norm(points - nearer, axis=1),
        start=start,
        rtol=settings.rtol,
        atol=settings.atol,
        solver="dop853",
        steady=None,
        steady_at=np.asarray(np.nan),
        gradient_evaluations=np.asarray(calls),
        hvp_evaluations=np.asarray(0),
        hessian_evaluations=np.asarray(0),
        companion_evaluations=np.asarray(more),
        records={},
        _asked=Explicit(),
        _max_steps=_MOST_STEPS,
    )


def _walk(
    known: Computation,
    chain: Chain,
    times: Float[np.ndarray, " times"],
    rtol: float,
    atol: float,
) -> tuple[Points, Float[np.ndarray, " times"], int]:
    """Points and losses at the times, and how many gradients they took."""
    from thalweg.kernels.descent import Descents

    start = flat(known.weights)
    kernel = Descents(chain, start[None], np.ones(1), 0.0, False, LANES)

    def velocity(_: float, point: np.ndarray) -> np.ndarray:
        return -kernel.gradients(point[None])[1][0]

    points, done = np.empty((times.size, start.size)), 0
    with np.errstate(all="ignore"):  # a step that leads too far is taken back
        solver = DOP853(velocity, 0.0, start, float(times[-1]), rtol=rtol, atol=atol)
        for _ in range(_MOST_STEPS):
            known.check()
            solver.step()
            if solver.status == "failed" or not np.all(np.isfinite(solver.y)):
                break
            inside = solver.dense_output()
            behind = int(np.searchsorted(times, solver.t, side="right"))
            points[done:behind] = np.atleast_2d(inside(times[done:behind]).T)
            done = behind
            if solver.status == "finished":
                points[times == 0.0] = start
                return points, losses_at(chain, points), solver.nfev
    raise FlowError(
        f"The flow is too stiff for this page: it was followed to t = {solver.t:.3g} of "
        f"{times[-1]:g}; take a shorter `training.time`, or `thalweg run`."
    )


def losses_at(chain: Chain, points: Points) -> Float[np.ndarray, " times"]:
    """The loss of a small linear network at many points, by the kernel."""
    from thalweg.kernels.descent import Descents

    kernel = Descents(chain, points, np.ones(len(points)), 0.0, False, LANES)
    losses = np.empty((len(points), 1))
    kernel.advance(0, 1, losses)
    return losses[:, 0]


def flat(weights: AnyWeights) -> Float[np.ndarray, " size"]:
    """All weights one behind the other, as kernels take them."""
    return np.concatenate([np.ravel(np.asarray(each, float)) for each in jax.tree.leaves(weights)])


def _layers(points: Points, like: AnyWeights) -> AnyWeights:
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([each.size for each in leaves])[:-1]
    parts = np.split(points, ends, axis=1)
    shaped = [a.reshape(len(points), *b.shape) for a, b in zip(parts, leaves, strict=True)]
    return structure.unflatten(shaped)
