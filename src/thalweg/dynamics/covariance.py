"""The central flow of the literature, whose oscillation is known by its covariance [cohen2025].

Above the edge 2 / eta descent does not follow the gradient flow: along the sharpest directions it
jumps from one side of a valley to the other, and the oscillation itself, of covariance Sigma, pulls
its centre to where the valley is wider. In time t = eta * step the centre moves as

    dw/dt = -(grad f + 1/2 grad <H(w), Sigma>),    Sigma >= 0,    H(w) <= 2 / eta,

with Sigma on the eigenvectors at 2 / eta: the least Sigma that keeps their curvature from rising
above the edge (`complementarity`). With one unstable direction u of sharpness S this is

    Sigma = sigma^2 u u^T,    sigma^2 = 2 <-grad f, grad S> / |grad S|^2.

*Two corrections of the next order*, without which the prediction is some 20 % off where the
oscillation is strong. An oscillation of finite size sees a curvature other than that of the
centre, S + sigma^2 D^4 f[u, u, u, u] / 6, and this is what descent holds at 2 / eta (`edge`); and
before the edge, and beside the unstable directions after it, descent follows the modified flow
(`objective.modified`). `corrected=False` leaves both out.

The first eigenvalue joins when it meets the edge, which is located to the tolerance. From then on
all that are within 2 % below the edge are one block, because of nearly equal eigenvalues it is the
effective curvature that decides which direction oscillates; one leaves when its oscillation has
died down below that. In between the effective curvature returns to the edge within some steps of
descent; the central flow of the literature sits on it from the first moment.

It averages over oscillations that turn. Descent whose oscillation does not, such as an exact cycle
of two points along several unstable directions, has a covariance of rank one, which it misses.

It *predicts*, nothing here is proven: the mean trajectory, the mean loss, the covariance of the
oscillation. It does not know the delay with which an oscillation of the size of rounding errors
grows, so that just after an eigenvalue has joined its variance is ahead of that of descent.
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from thalweg._typing import AnyWeights
from thalweg.dynamics.edge import Point, Surroundings
from thalweg.dynamics.flow import output_times
from thalweg.dynamics.trajectory import AbstractCentralFlow
from thalweg.objective import AbstractObjective
from thalweg.solvers import FlowError

if TYPE_CHECKING:
    from scipy.integrate import RK45  # which takes half a second to load

MOST_UNSTABLE = 4
"""How many directions may be unstable at once."""

_COMPANION = 0.1  # the companion's tolerances, as a part of the asked ones
_BAND = 0.02  # of the edge: eigenvalues so near below it are one block with those at the edge
_QUIET = 1e-9  # of the variance: an oscillation of this size has died down
_EVENT = 1e-9  # of the time at which an eigenvalue meets the edge, as a part of it


class CovarianceFlow(AbstractCentralFlow):
    """What descent is predicted to follow on average, over an oscillation of some covariance.

    Attributes:
        objective: what is descended.
        times: when; time t is that of step t / learning_rate.
        weights: the centre of the oscillation.
        loss: f at the centre.
        mean_loss: the mean of f over the oscillation.
        covariance: of the oscillation, in the unit vectors `directions`; zero where it is stable.
        directions: the eigenvectors at the edge, (times, k, size); zero where there are fewer.
        sharpness: the largest eigenvalue of the Hessian at the centre.
        unstable: how many directions are unstable.
        error: the distance of the centre to that of a companion with a tenth of the tolerances.
        met_at: the time at which the sharpness met the edge first; NaN where it did not.
        learning_rate: eta.
        corrected: whether terms of the next order were kept.
        rtol: the relative tolerance of each step.
        evaluations: how many points were evaluated, those of the companion not counted.
    """

    objective: AbstractObjective
    times: Float[np.ndarray, " times"]
    weights: AnyWeights
    loss: Float[np.ndarray, " times"]
    mean_loss: Float[np.ndarray, " times"]
    covariance: Float[np.ndarray, "times k k"]
    directions: Float[np.ndarray, "times k size"]
    sharpness: Float[np.ndarray, " times"]
    unstable: Int[np.ndarray, " times"]
    error: Float[np.ndarray, " times"]
    met_at: float
    learning_rate: float
    corrected: bool
    rtol: float
    evaluations: int
    _start: Any
    _max_steps: int

    @property
    @override
    def variance(self) -> Float[np.ndarray, " times"]:
        return np.trace(self.covariance, axis1=1, axis2=2)

    @override
    def at(self, times: Any) -> "CovarianceFlow":
        return covariance_flow(
            self.objective, self._start, self.learning_rate, output_times(None, times),
            rtol=self.rtol, corrected=self.corrected, max_steps=self._max_steps,
            estimate_error=not bool(np.all(np.isnan(self.error))),
        )  # fmt: skip


def covariance_flow(
    objective: AbstractObjective,
    start: AnyWeights,
    learning_rate: float,
    moments: Float[np.ndarray, " times"],
    *,
    rtol: float,
    corrected: bool,
    estimate_error: bool,
    max_steps: int,
) -> CovarianceFlow:
    """The flow of the centre and the covariance; see `central_flow`."""
    surroundings = Surroundings(objective, start, learning_rate, corrected)
    walk = _Walk(surroundings, moments, rtol, max_steps)
    error = np.full(moments.shape, np.nan)
    if estimate_error:
        companion = _Walk(surroundings, moments, _COMPANION * rtol, 10 * max_steps)
        gaps = [p.weights - q.weights for p, q in zip(walk.points, companion.points, strict=True)]
        error = np.linalg.norm(gaps, axis=1)
    return _recorded(walk, objective, start, error)


class _Walk:
    """A central flow from start to end; each of its segments has one number of members."""

    def __init__(self, edge: Surroundings, times: np.ndarray, rtol: float, max_steps: int):
        self.edge, self.times, self.rtol = edge, times, rtol
        self.max_steps = self.left = max_steps
        self.met_at, self.evaluations = np.nan, 0
        self.points: list[Point] = []
        self._last: Point | None = None
        self.time, self.weights, self.members = 0.0, edge.start, 0
        while self.point(self.weights).next_value >= self._threshold:
            self._join()
        if times[0] == 0:
            self.points.append(self.point(self.weights))
        while len(self.points) < times.size:
            self._segment()

    def point(self, weights: np.ndarray) -> Point:
        """All that is known at these weights."""
        last = self._last
        if last is None or last.members != self.members or np.any(last.weights != weights):
            self.evaluations += 1
            last = self._last = Point(self.edge, weights.copy(), self.members)
        return last

    def _join(self) -> None:
        if np.isnan(self.met_at):
            self.met_at = self.time
        self.members += 1
        if self.members > MOST_UNSTABLE:
            raise FlowError(
                f"The central flow was followed to time {self.time:.6g} of {self.times[-1]:.6g} "
                f"only: more than {MOST_UNSTABLE} eigenvalues are at 2 / learning_rate there; "
                "stop earlier, or take a smaller `learning_rate`."
            )

    def _segment(self) -> None:
        """To the end, or to where a direction joins or leaves."""
        from scipy.integrate import RK45

        length = float(np.linalg.norm(self.weights)) or 1.0  # zero weights have no scale
        scale = length / np.sqrt(self.weights.size)
        if not np.all(np.isfinite(self.point(self.weights).velocity)):  # which RK45 never leaves
            raise FlowError(
                f"The central flow was followed to time {self.time:.6g} of {self.times[-1]:.6g} "
                "only: there is no finite oscillation there that would keep the curvature at "
                "2 / learning_rate, as on a parabola; take a smaller `learning_rate`."
            )
        steps = RK45(
            lambda _, weights: self.point(weights).velocity,
            self.time, self.weights, self.times[-1], rtol=self.rtol, atol=self.rtol * scale,
        )  # fmt: skip
        while steps.status == "running":
            self._step(steps)
            dense, point = steps.dense_output(), self.point(steps.y)
            if point.next_value >= self._threshold:
                self._meet(dense, self.time, steps.t)
                return
            self._record(dense, steps.t)
            self.time, self.weights = steps.t, steps.y
            if self._has_left(point):
                self.members -= 1
                return

    def _step(self, steps: "RK45") -> None:
        self.left -= 1
        if self.left < 0 or not np.all(np.isfinite(steps.y)):
            raise FlowError(
                f"The central flow was followed to time {self.time:.6g} of {self.times[-1]:.6g} "
                "only; raise `max_steps` or `rtol`, or stop earlier."
            )
        steps.step()
        if steps.status == "failed":
            self.left = -1
            self._step(steps)

    def _meet(self, dense: Any, begin: float, end: float) -> None:
        """Go to where the next eigenvalue is at the edge, and let it join."""
        from scipy.optimize import root_scalar

        def above(time: float) -> float:
            return self.point(dense(time)).next_value - self._threshold

        met = begin
        if above(begin) < 0:
            met = root_scalar(above, bracket=(begin, end), xtol=_EVENT * max(end, 1.0)).root
        self._record(dense, met)
        self.time, self.weights = met, dense(met)
        self._join()

    @property
    def _threshold(self) -> float:
        """Where the next eigenvalue joins."""
        return self.edge.limit * (1 - _BAND) if self.members else self.edge.limit

    def _has_left(self, point: Point) -> bool:
        """Whether the last direction is below the band, and its oscillation has died down."""
        if not self.members or point.curvature[-1, -1] >= self.edge.limit * (1 - _BAND):
            return False
        return bool(point.covariance[-1, -1] <= _QUIET * float(np.trace(point.covariance)))

    def _record(self, dense: Any, until: float) -> None:
        while len(self.points) < self.times.size and self.times[len(self.points)] <= until:
            self.points.append(self.point(dense(self.times[len(self.points)])))


def _recorded(
    walk: _Walk, objective: AbstractObjective, start: AnyWeights, error: np.ndarray
) -> CovarianceFlow:
    points, most = walk.points, max(point.members for point in walk.points)
    weights = [walk.edge.shaped(point.weights) for point in points]
    covariance = np.zeros((len(points), most, most))
    directions = np.zeros((len(points), most, walk.edge.start.size))
    for number, point in enumerate(points):
        covariance[number, : point.members, : point.members] = point.covariance
        directions[number, : point.members] = point.directions
    loss = np.array([point.loss for point in points])
    return CovarianceFlow(
        objective=objective,
        times=walk.times,
        weights=jax.tree.map(lambda *rows: np.stack([np.asarray(row) for row in rows]), *weights),
        loss=loss,
        mean_loss=loss + np.array([point.excess for point in points]),
        covariance=covariance,
        directions=directions,
        sharpness=np.array([point.sharpness for point in points]),
        unstable=np.array([point.members for point in points]),
        error=error,
        met_at=walk.met_at,
        learning_rate=walk.edge.learning_rate,
        corrected=walk.edge.corrected,
        rtol=walk.rtol,
        evaluations=walk.evaluations,
        _start=start,
        _max_steps=walk.max_steps,
    )
