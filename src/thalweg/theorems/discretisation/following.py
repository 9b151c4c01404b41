"""Descent against flow, on networks: step sizes that keep them together, and proven distances.

The constants of `discretisation` on the balls around a recorded flow come from
`curvature.ball_bounds`. A flow from theta(s) to theta(t) has the length

    integral |theta'| <= sqrt((t - s) (f(theta(s)) - f(theta(t)))),

by the Cauchy-Schwarz inequality, because |theta'|^2 = -(d/dt) f. All of the flow between two
records is hence within half of that length of the point in the middle between them, so that balls
around these middles, by so much larger, cover what happens between records. The error of the
recorded flow, as it was estimated, is added to the balls.
"""

from dataclasses import dataclass
from math import inf, isfinite
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._errors import UndeclaredError
from thalweg._typing import Weights
from thalweg.certificates.case import Case
from thalweg.certificates.certificate import (
    AbstractTheorem,
    Answer,
    Claim,
    Question,
    requirement,
    rounding,
)
from thalweg.certificates.magnitude import Magnitude, readable
from thalweg.certificates.trajectories import (
    FLOW_ERRORS,
    one_network,
    own_flow,
    own_run,
    start_distance,
)
from thalweg.curvature import ball_bounds, linear_hessian
from thalweg.curvature.balls import loss_bounds
from thalweg.dynamics import Flow
from thalweg.dynamics.trajectory import distance
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.theorems.discretisation.error_growth import SmoothTube, Tube, rate_claims

Records = Float[np.ndarray, " records"]

_DENSE = 200  # up to this many weights the Hessian itself, at the balls' centres, sharpens bounds
_EIGENVALUE_ERROR = 1e-14  # of computed eigenvalues, as a part of the largest
_FARTHEST = 1e200  # loss bounds hold on all of space where outputs may change by this much


class FlowExists(AbstractTheorem[Case]):
    """The flow of a smooth loss that is bounded below exists for all time.

    Where the gradient is locally Lipschitz there is one flow from each start, until it leaves every
    bounded set. That of a loss f >= 0 does not:

        |theta(t) - theta(0)|^2 <= t (f(theta(0)) - f(theta(t))) <= t f(theta(0)).

    The inequality is ours; see the module's docstring.
    """

    reference: ClassVar[str] = "elkabetz2021:thm1"

    @override
    def assumptions(self, subject: Case, /) -> tuple[Claim, ...]:
        return _is_linear(subject), one_network(subject)

    @override
    def conclusions(self, subject: Case, /) -> tuple[Claim, ...]:
        flow = own_flow(subject)
        if flow is None:
            return ()
        path = _Path.of(flow, inf)
        start = tuple(array[0] for array in path.weights)
        moved = _norms(tuple(a - b for a, b in zip(path.weights, start, strict=True)))
        room = path.times * (path.loss[0] - path.loss)
        error = 2 * moved * path.error + path.times * path.slopes * path.error
        statement = "|theta(t) - theta(0)|^2 <= t (f(0) - f(t))"
        # The losses are differences of numbers that are rounded.
        rounded = path.times * rounding(path.loss[0])
        return (Claim(statement, moved**2, room, error + rounded),)


class FollowsFlow(AbstractTheorem[Case]):
    """Descent with small steps follows the flow of a linear network.

    The theorem of `discretisation.FollowsInTube` with constants that hold on balls around the
    recorded flow. Given a radius it answers with the largest learning rate; given a learning rate,
    with the least radius found for which that rate is allowed. A larger radius may need smaller
    steps, because the constants of larger balls are worse.
    """

    reference: ClassVar[str] = "elkabetz2021:thm3"

    @override
    def assumptions(self, subject: Case, /) -> tuple[Claim, ...]:
        claims = [_is_linear(subject), one_network(subject), _has_flow(subject)]
        if any(claim.fails for claim in claims):
            return tuple(claims)
        claims.append(_reaches(subject))
        claims.append(_asks_something(subject))
        if any(claim.fails for claim in claims):
            return tuple(claims)
        if subject.radius is not None:
            tube = self.tube(subject, subject.radius)
            return (*claims, *rate_claims(tube, subject.learning_rate))
        found = isfinite(self.distance(subject))
        return (*claims, requirement("some radius allows the learning rate", found))

    @override
    def conclusions(self, subject: Case, /) -> tuple[Claim, ...]:
        return _distance_claims(subject, self.distance(subject))

    @override
    def answers(self, subject: Case, /) -> tuple[Answer, ...]:
        rate = None
        if subject.radius is not None:
            rate = self.tube(subject, subject.radius).largest_rate
        return _following_answers(subject, rate, self.distance(subject))

    def tube(self, subject: Case, radius: float) -> Tube:
        """The constants on balls of this radius around the flow of the case."""
        assert subject.flow is not None  # one of the assumptions
        path = _Path.of(subject.flow, _horizon(subject))
        smoothness, steepness, growth = path.constants(subject.objective, radius)
        offset = start_distance(subject)
        return Tube(path.times, growth, smoothness, steepness, radius, offset)

    def distance(self, subject: Case) -> float:
        """The distance proven for the case's learning rate; infinite where none is or was found.

        With D(radius) what the error grows to under the constants of a radius, the least solution
        of D(radius) = radius, approached from below, since D increases.
        """
        rate = subject.learning_rate
        if rate is None:
            return inf
        reached = self.tube(subject, 0.0).distance(rate)
        for _ in range(100):
            radius = 1.01 * reached
            reached = self.tube(subject, radius).distance(rate) if radius < 1e3 else inf
            if reached <= radius or reached == inf:
                return reached
        return inf


class GlobalCurvature(AbstractTheorem[Case]):
    """Descent with small steps follows the flow where the loss is smooth on all of space.

    The corollary of `discretisation.FollowsWhereSmooth`. The loss of one layer is smooth and
    convex, and its constants are known: h lambda_max(R^T R) and, of a square loss, what the same
    product of smallest eigenvalues gives, R the readout and h bounding the loss's own second
    derivative. Deeper networks are smooth nowhere near all of space (their curvature is unbounded,
    below, too), so that the caller must know better.

    Attributes:
        smoothness: what the Hessian's norm stays below; found for one layer.
        curvature: what its eigenvalues stay above; likewise.
    """

    reference: ClassVar[str] = "elkabetz2021:cor4"
    smoothness: float | None = None
    curvature: float | None = None

    @override
    def assumptions(self, subject: Case, /) -> tuple[Claim, ...]:
        claims = [
            one_network(subject),
            requirement("the curvature is bounded on all of space", self._known(subject)),
            requirement("a horizon is given", subject.time is not None),
            _asks_something(subject),
        ]
        if any(claim.fails for claim in claims):
            return tuple(claims)
        if subject.radius is None:
            found = isfinite(self._distance(subject))
            return (*claims, requirement("some radius allows the learning rate", found))
        return (*claims, *rate_claims(self.tube(subject), subject.learning_rate))

    @override
    def conclusions(self, subject: Case, /) -> tuple[Claim, ...]:
        return _distance_claims(subject, self._distance(subject))

    @override
    def answers(self, subject: Case, /) -> tuple[Answer, ...]:
        rate = None if subject.radius is None else self.tube(subject).largest_rate
        return _following_answers(subject, rate, self._distance(subject))

    def tube(self, subject: Case) -> SmoothTube:
        """The constants of the case; its radius is infinite where none is given."""
        smoothness, curvature = self._constants(subject)
        assert subject.time is not None  # one of the assumptions
        weights = subject.weights if subject.flow is None else subject.flow.start
        least = float(subject.objective.problem.least_value)
        excess = max(float(subject.objective(weights)) - least, 0.0)
        radius = inf if subject.radius is None else subject.radius
        offset = start_distance(subject)
        return SmoothTube(smoothness, -curvature, excess, subject.time, radius, offset)

    def _distance(self, subject: Case) -> float:
        rate = subject.learning_rate
        return inf if rate is None else self.tube(subject).distance(rate)

    def _known(self, subject: Case) -> bool:
        smoothness, curvature = self._constants(subject)
        return bool(0 < smoothness < inf and isfinite(curvature))

    def _constants(self, subject: Case) -> tuple[float, float]:
        found = _one_layer_constants(subject.objective)
        smoothness = found[0] if self.smoothness is None else self.smoothness
        return smoothness, found[1] if self.curvature is None else self.curvature


@dataclass(frozen=True, eq=False)
class _Path:
    """A flow from time 0 up to a horizon: where it is at some times, and how far off."""

    times: Records
    weights: Weights
    loss: Records
    error: Records
    slopes: Records

    @classmethod
    def of(cls, flow: Flow, horizon: float) -> "_Path":
        """The records up to the first at or after the horizon; the start is one of them."""
        late = int(np.searchsorted(flow.times, horizon * (1 - 1e-12)))  # times are rounded
        kept = slice(0, late + 1)
        times, weights, error = flow.times[kept], flow.weights, flow.error[kept]
        weights = tuple(array[kept] for array in weights)
        if times[0] > 0:
            times, error = np.append(0.0, times), np.append(0.0, error)
            weights = tuple(
                np.concatenate([start[None], array])
                for start, array in zip(flow.start, weights, strict=True)
            )
        loss, slopes = _values_and_slopes(flow.objective, weights)
        return cls(times, weights, np.asarray(loss), error, np.asarray(slopes))

    def constants(self, objective: Objective, radius: float) -> tuple[float, float, Records]:
        """Beta, gamma, and m on each interval, for balls of this radius around the flow."""
        # Each loss is off by what the error of the flow makes of it.
        off = self.slopes * self.error + rounding(self.loss)
        fallen = np.maximum(self.loss[:-1] - self.loss[1:], 0) + off[:-1] + off[1:]
        lengths = np.sqrt(np.diff(self.times) * fallen)
        radii = radius + lengths / 2 + np.maximum(self.error[:-1], self.error[1:])
        middles = tuple((array[1:] + array[:-1]) / 2 for array in self.weights)
        bounds = np.asarray(_bounds_on_balls(objective, middles, jnp.asarray(radii)))
        return float(np.max(bounds[0])), float(np.max(bounds[1])), bounds[2]


@eqx.filter_jit
def _values_and_slopes(
    objective: Objective, weights: Weights
) -> tuple[Float[Array, " records"], Float[Array, " records"]]:
    """The loss and the norm of its gradient, at each of some points."""

    def at(point: Weights) -> tuple[Array, Array]:
        value, slopes = objective.value_and_gradient(point)
        return value, jnp.sqrt(sum(jnp.sum(slope**2) for slope in slopes))

    return jax.lax.map(at, tuple(jnp.asarray(array) for array in weights))


@eqx.filter_jit
def _bounds_on_balls(
    objective: Objective, centres: Weights, radii: Float[Array, " balls"]
) -> Float[Array, "3 balls"]:
    """On each ball: above the Hessian's norm, the gradient's, and minus the least eigenvalue.

    Where the Hessian at the centre is affordable it is sharper on small balls to let it change by
    its Lipschitz constant.
    """

    def on(ball: tuple[Weights, Array]) -> Array:
        centre, radius = ball
        bounds = ball_bounds(objective, centre, radius)
        far = jnp.stack([bounds.hessian, bounds.gradient, -bounds.smallest_eigenvalue])
        if objective.network.size > _DENSE:
            return far
        values = jnp.linalg.eigvalsh(linear_hessian(objective, centre))
        largest = jnp.max(jnp.abs(values)) * (1 + _EIGENVALUE_ERROR)
        change = radius * bounds.hessian_lipschitz
        slope = jnp.sqrt(sum(jnp.sum(part**2) for part in objective.gradient(centre)))
        reached = slope + radius * (largest + change / 2)
        least = -values[0] + _EIGENVALUE_ERROR * largest + change
        return jnp.minimum(far, jnp.stack([largest + change, reached, least]))

    layers = tuple(jnp.asarray(array) for array in centres)
    return jax.lax.map(on, (layers, radii)).T


def _one_layer_constants(objective: Objective) -> tuple[float, float]:
    """What |H| stays below and lambda_min(H) above, on all of space; infinite where unknown."""
    network, problem = objective.network.linear, objective.problem
    if network is None or network.depth != 1:
        return inf, -inf
    try:
        second = float(loss_bounds(problem, jnp.zeros(problem.shape), _FARTHEST).second)
    except UndeclaredError:
        return inf, -inf
    if not isfinite(second):
        return inf, -inf
    readout = jnp.eye(1) if network.readout is None else network.readout
    gram = np.linalg.eigvalsh(np.asarray(readout @ readout.T))
    decay, squared, curvature = float(objective.weight_decay), problem.least_squares, 0.0
    if squared is not None:
        curvature = 2 * float(squared.scale) * max(float(squared.spectrum[0]), 0.0)
    return second * gram[-1] + decay, curvature * max(gram[0], 0.0) + decay


def _is_linear(case: Case) -> Claim:
    """The only networks whose curvature is bounded on balls."""
    linear = isinstance(case.objective.network, LinearNetwork)
    return requirement("the network is linear", linear)


def _has_flow(case: Case) -> Claim:
    met = own_flow(case) is not None
    return requirement("a flow of one network with a known error is given", met)


def _reaches(case: Case) -> Claim:
    assert case.flow is not None
    end = float(case.flow.times[-1])
    if end <= 0:
        return requirement("the flow was followed for some time", False)
    return Claim("time <= the last record of the flow", _horizon(case), end)


def _asks_something(case: Case) -> Claim:
    given = case.radius is not None or case.learning_rate is not None
    return requirement("a radius or a learning rate is given", given)


def _horizon(case: Case) -> float:
    """The time that is given, or else the last that the flow was recorded at."""
    if case.time is not None or case.flow is None:
        return inf if case.time is None else case.time
    return float(case.flow.times[-1])


def _norms(weights: Weights) -> Records:
    """The Euclidean norm of each of some points."""
    return np.sqrt(sum(np.sum(np.asarray(a) ** 2, axis=tuple(range(1, a.ndim))) for a in weights))


def _following_answers(case: Case, rate: Magnitude | None, reached: float) -> tuple[Answer, ...]:
    time = readable(_horizon(case))
    found = []
    if rate is not None and case.radius is not None:
        condition = f"within {readable(case.radius)} up to time {time}"
        found.append(Answer(Question.FOLLOWING_RATE, rate, condition))
    if case.learning_rate is not None and isfinite(reached):
        condition = f"at learning rate {readable(case.learning_rate)} up to time {time}"
        found.append(Answer(Question.DISTANCE, reached, condition, until=_horizon(case)))
    return tuple(found)


def _distance_claims(case: Case, reached: float) -> tuple[Claim, ...]:
    """That the run stayed as near to the flow as was promised, at what it recorded."""
    run, flow = own_run(case), own_flow(case)
    if run is None or flow is None:
        return ()
    kept = run.times <= _horizon(case) * (1 + 1e-12)  # times are rounded
    followed = flow.at(run.times[kept])
    apart = distance(run.at(run.times[kept]), followed)
    error = FLOW_ERRORS * followed.error + rounding(_norms(followed.weights))
    claims = []
    if case.radius is not None:
        claims.append(Claim("|theta_k - theta(k eta)| <= radius", apart, case.radius, error))
    if isfinite(reached):
        claims.append(Claim("|theta_k - theta(k eta)| <= max r(t)", apart, reached, error))
    return tuple(claims)
