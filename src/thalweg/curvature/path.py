"""Both ends of the spectrum along recorded runs: batches of small networks, or one large one.

Small linear networks are put side by side, whatever run and time they come from, and take Lanczos
steps together: in kernels where their loss is a squared error (`kernels.spectrum`), as JAX compiles
it where not; those that have not converged take more. All others go through
time one after the other, each search beginning with what the last three predict: what is compiled
for networks side by side takes ten times as long to compile as one product, and where layers are
not multiplied first, a product for many costs as much as many products. Where not even the weights
are to be kept, a `SpectrumObserver` finds the ends while a batch descends.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from thalweg._arguments import checked
from thalweg._checks import InputError, require_positive
from thalweg._shown import shown
from thalweg._typing import AnyWeights, ManyAnyWeights, Run, Weights
from thalweg.curvature.following import PAST
from thalweg.curvature.spectrum import dense_spectrum, extreme_eigenvalues
from thalweg.kernels import LANES, suits
from thalweg.kernels.chain import Chain
from thalweg.krylov.lanes import tridiagonal
from thalweg.krylov.ritz import Ends, ends_of
from thalweg.objective import AbstractObjective, Objective
from thalweg.validated.by_hand import is_of_linear_network

_BLOCK = 96
_FIRST_STEPS, _MOST_STEPS, _MOST_OBSERVED = 24, 384, 192
_SMALL = 4000  # weights; above, a block of lanes no longer fits into the caches


@shown
class SpectrumPath(NamedTuple):
    """Both ends of the spectrum along a run, each with its error; NaN where the run diverged."""

    smallest: Float[np.ndarray, "*batch times"]
    smallest_error: Float[np.ndarray, "*batch times"]
    largest: Float[np.ndarray, "*batch times"]
    largest_error: Float[np.ndarray, "*batch times"]
    matvecs: Int[np.ndarray, "*batch times"]

    def named(self) -> dict[str, np.ndarray]:
        """The ends and their errors, by the names of the quantities that they are."""
        return {
            "sharpness": self.largest,
            "sharpness_error": self.largest_error,
            "smallest_eigenvalue": self.smallest,
            "smallest_eigenvalue_error": self.smallest_error,
        }


@checked
def spectrum_along(
    objective: AbstractObjective,
    weights: ManyAnyWeights | Run,
    *,
    tolerance: float = 1e-6,
) -> SpectrumPath:
    """Both ends of the Hessian's spectrum at many points, such as those of a run.

    Args:
        objective: what is differentiated twice.
        weights: a run that kept its weights, or the points themselves; axes in front of the layers'
            own are kept, and the last of them is taken to be time. Of an objective that does not
            declare its shapes, the first axis numbers the points.
        tolerance: the error that is asked for, as a part of the spectral norm.
    """
    require_positive("tolerance", tolerance)
    run = weights if isinstance(weights, Run) else None
    given = objective.as_weights(weights if run is None else run.weights)
    leading = _leading_axes(objective, given) if run is None else np.shape(run.times)
    count = len(leading)
    points = jax.tree.map(
        lambda array: np.asarray(array).reshape(-1, *np.shape(array)[count:]), given
    )
    if is_of_linear_network(objective) and _size_of_one(points) <= _SMALL:
        native = suits(objective.chain, points)
        rows = (_by_kernels if native else _in_blocks)(objective, points, tolerance)
    else:
        rows = _in_turn(objective, points, leading[-1], tolerance)
    found = [row.reshape(leading) for row in rows]
    return SpectrumPath(found[0], found[1], found[2], found[3], found[4].astype(int))


def _leading_axes(objective: AbstractObjective, weights: ManyAnyWeights) -> tuple[int, ...]:
    """The lengths of the axes that number points, which all arrays must share."""
    arrays = jax.tree.leaves(weights)
    if objective.shapes is None:
        counts = [1] * len(arrays)
    else:
        shapes = jax.tree.structure(weights).flatten_up_to(objective.shapes)
        counts = [np.ndim(array) - len(shape) for array, shape in zip(arrays, shapes, strict=True)]
    leading = {np.shape(array)[:count] for array, count in zip(arrays, counts, strict=True)}
    if leading == {()}:
        raise InputError("`weights` must have a leading axis of points; one point has `sharpness`.")
    if len(leading) > 1:
        raise InputError(
            "`weights` must have the same leading axes of points in all arrays, got "
            f"{' and '.join(map(str, sorted(leading)))}."
        )
    return leading.pop()


def _size_of_one(points: ManyAnyWeights) -> int:
    return sum(prod(array.shape[1:]) for array in jax.tree.leaves(points))


class SpectrumObserver(eqx.Module):
    """Both ends of the spectrum while a batch descends, as `observe` of `descend`.

    Nothing but the four numbers is recorded. All runs of a block take as many Lanczos steps as the
    slowest needs; after 192 the error is what it is, and says so.
    """

    objective: AbstractObjective
    tolerance: float = 1e-6

    def __call__(self, weights: AnyWeights) -> Ends:
        """Both ends at one point."""
        ends = self.in_lanes(jax.tree.map(lambda array: jnp.asarray(array)[..., None], weights))
        return jax.tree.map(lambda lane: lane[0], ends)

    def at_points(self, points: ManyAnyWeights) -> Ends:
        """Both ends at points that lie along the first axis, outside of JAX."""
        path = spectrum_along(self.objective, points, tolerance=self.tolerance)
        return Ends(path.smallest, path.smallest_error, path.largest, path.largest_error)

    def in_lanes(self, weights: AnyWeights) -> Ends:
        """Both ends of networks that lie along the last axis."""
        start = _random_like(weights)

        def unfinished(carry: tuple[Array, Ends]) -> Array:
            steps, ends = carry
            norm = jnp.maximum(jnp.abs(ends.smallest), jnp.abs(ends.largest))
            worst = jnp.maximum(ends.smallest_error, ends.largest_error)
            # Comparisons with NaN are false: a run that diverged holds up no other.
            return jnp.any(worst > self.tolerance * norm) & (steps < _MOST_OBSERVED)

        def again(carry: tuple[Array, Ends]) -> tuple[Array, Ends]:
            steps = 2 * carry[0]
            return steps, _ends_in_lanes(self.objective, weights, start, steps, _MOST_OBSERVED)

        first = jax.tree.leaves(weights)[0]
        zeros = jnp.zeros(first.shape[-1], first.dtype)
        unknown = Ends(zeros, zeros + jnp.inf, zeros, zeros + jnp.inf)
        before = jnp.asarray(_FIRST_STEPS // 2)
        return jax.lax.while_loop(unfinished, again, (before, unknown))[1]


def _in_turn(
    objective: AbstractObjective, points: ManyAnyWeights, times: int, tolerance: float
) -> Float[np.ndarray, "five points"]:
    finite = _finite_points(points)
    rows = np.full((5, finite.size), np.nan)
    rows[4], past = 0, []
    for index in range(finite.size):
        past = [] if index % times == 0 else past[-PAST:]
        if not finite[index]:
            continue
        point = _taken(points, index)
        try:
            past.append(extreme_eigenvalues(objective, point, tolerance=tolerance, start=past))
        except InputError:  # the weights are finite, the Hessian is not
            continue
        low, high = past[-1].smallest[0], past[-1].largest[0]
        rows[:, index] = low.value, low.error, high.value, high.error, high.matvecs
    return rows


def _in_blocks(
    objective: Objective, points: Weights, tolerance: float
) -> Float[np.ndarray, "five points"]:
    """All points in lanes; those that are not good enough again with twice the steps."""
    finite = _finite_points(points)
    rows = np.full((5, finite.size), np.nan)
    rows[4] = 0
    open_points, steps = np.flatnonzero(finite), _FIRST_STEPS
    while open_points.size and steps <= _MOST_STEPS:
        blocks = [open_points[i : i + _BLOCK] for i in range(0, open_points.size, _BLOCK)]

        def solve(places: np.ndarray, steps: int = steps) -> None:
            rows[:4, places] = _block(objective, points, places, steps)
            rows[4, places] += steps

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(solve, blocks))
        open_points = open_points[_open(rows, tolerance)[open_points]]
        steps *= 2
    for place in open_points:
        rows[:4, place] = _dense_ends(objective, _taken(points, int(place)))
    return rows


def _by_kernels(
    objective: Objective, points: Weights, tolerance: float
) -> Float[np.ndarray, "five points"]:
    """All points in the lanes of a kernel, in which each has as many steps as it needs."""
    from thalweg.kernels.spectrum import ends_at

    chain, finite = cast(Chain, objective.chain), _finite_points(points)
    rows = np.full((5, finite.size), np.nan)
    rows[4], places = 0, np.flatnonzero(finite)
    flat = np.concatenate([array.reshape(finite.size, -1) for array in points], axis=1)

    def solve(some: np.ndarray) -> None:
        found, steps = ends_at(
            chain, flat[some], tolerance=tolerance, first=_FIRST_STEPS, most=_MOST_STEPS,
            lanes=LANES,
        )  # fmt: skip
        rows[:4, some], rows[4, some] = found.T, steps

    blocks = [places[i : i + _BLOCK] for i in range(0, places.size, _BLOCK)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(solve, blocks))
    for place in np.flatnonzero(_open(rows, tolerance)):
        rows[:4, place] = _dense_ends(objective, _taken(points, int(place)))
    return rows


def _open(rows: Float[np.ndarray, "five points"], tolerance: float) -> Bool[np.ndarray, " points"]:
    """Which points are not known well enough; not those that are not finite."""
    norm = np.maximum(np.abs(rows[0]), np.abs(rows[2]))
    return np.maximum(rows[1], rows[3]) > tolerance * norm


def _finite_points(points: ManyAnyWeights) -> Bool[np.ndarray, " points"]:
    """Whether all of its weights are finite, for each point."""
    finite = [
        np.isfinite(array.reshape(len(array), -1)).all(axis=1) for array in jax.tree.leaves(points)
    ]
    return np.all(finite, axis=0)


def _taken(points: ManyAnyWeights, places: int | np.ndarray) -> AnyWeights:
    """One point, or several in an order of one's own."""
    return jax.tree.map(lambda array: np.take(array, places, axis=0), points)


def _block(
    objective: Objective, points: Weights, places: np.ndarray, steps: int
) -> Float[np.ndarray, "four places"]:
    padded = np.resize(places, _BLOCK)  # repeats; one compiled function serves all blocks
    chosen = _taken(points, padded)
    # Most points need the first round only, whose arrays are short; all others share one more.
    room = _FIRST_STEPS if steps == _FIRST_STEPS else _MOST_STEPS
    return np.asarray(_compiled(objective, chosen, jnp.asarray(steps), room))[:, : places.size]


@eqx.filter_jit
def _compiled(
    objective: Objective, points: Weights, steps: Int[Array, ""], room: int
) -> Float[Array, "four lanes"]:
    lanes = jax.tree.map(lambda array: jnp.moveaxis(array, 0, -1), points)
    ends = _ends_in_lanes(objective, lanes, _random_like(lanes), steps, room)
    return jnp.stack([ends.smallest, ends.smallest_error, ends.largest, ends.largest_error])


def _ends_in_lanes(
    objective: AbstractObjective,
    weights: AnyWeights,
    start: AnyWeights,
    steps: Int[Array, ""],
    room: int,
) -> Ends:
    """Both ends of the spectrum at weights in lanes, after `steps` Lanczos steps from `start`."""
    _, product = jax.linearize(
        lambda point: objective.value_and_gradient_in_lanes(point)[1], weights
    )
    return ends_of(tridiagonal(product, start, steps, room))


def _random_like(lanes: AnyWeights) -> AnyWeights:
    arrays, structure = jax.tree.flatten(lanes)
    keys = jax.random.split(jax.random.key(0), len(arrays))
    return jax.tree.unflatten(
        structure,
        [
            jax.random.normal(key, array.shape, array.dtype)
            for key, array in zip(keys, arrays, strict=True)
        ],
    )


def _dense_ends(objective: Objective, point: Weights) -> Float[np.ndarray, " four"]:
    values = np.asarray(dense_spectrum(objective, point))
    norm = float(np.abs(values).max())
    error = 4 * values.size * float(np.finfo(values.dtype).eps) * norm
    return np.array([values[0], error, values[-1], error])
