"""Descent against flow, on networks: step sizes that keep them together.

The constants of `tubes` come from balls around a recorded flow (`recorded_path`) or, for one layer,
hold on all of space.
"""

from math import inf, isfinite
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from thalweg._errors import UndeclaredError
from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Narrowed,
    Question,
    met,
    requirement,
    rounding,
)
from thalweg.certificates.magnitude import readable
from thalweg.certificates.trajectories import FLOW_ERRORS, own_flow, own_run, start_distance
from thalweg.curvature.balls import loss_bounds
from thalweg.dynamics.trajectory import distance
from thalweg.objective import Objective
from thalweg.theorems.discretisation.recorded_path import RecordedPath, norms_of
from thalweg.theorems.discretisation.tubes import Followed, SmoothTube, Tube, rate_claims
from thalweg.theorems.settings.linear import LinearTraining, linear_training

_FARTHEST = 1e200  # loss bounds hold on all of space where outputs may change by this much


class FlowExists(AbstractTrainingTheorem[LinearTraining]):
    """The flow of a smooth loss that is bounded below exists for all time.

    Where the gradient is locally Lipschitz there is one flow from each start, until it leaves every
    bounded set. That of a loss f >= 0 does not:

        |theta(t) - theta(0)|^2 <= t (f(theta(0)) - f(theta(t))) <= t f(theta(0)).

    The inequality is ours; see `recorded_path`.
    """

    reference: ClassVar[str] = "elkabetz2021:thm1"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[LinearTraining]:
        return linear_training(case).further(_bounded_below)

    @override
    def conclusions(self, subject: LinearTraining, /) -> tuple[Claim, ...]:
        flow = own_flow(subject.case)
        if flow is None:
            return ()
        path = RecordedPath.of(flow, inf)
        start = tuple(array[0] for array in path.weights)
        moved = norms_of(tuple(a - b for a, b in zip(path.weights, start, strict=True)))
        bound = path.times * (path.loss[0] - path.loss)
        error = 2 * moved * path.error + path.times * path.slopes * path.error
        statement = "|theta(t) - theta(0)|^2 <= t (f(0) - f(t))"
        # The losses are differences of numbers that are rounded.
        rounded = path.times * rounding(path.loss[0])
        return (Claim(statement, moved**2, bound, error + rounded),)


def _bounded_below(training: LinearTraining) -> Narrowed[LinearTraining]:
    known = isfinite(float(training.case.objective.least_value))
    return Narrowed.where((requirement("the loss is known to be bounded below", known),), training)


class _AbstractFollowing(AbstractTrainingTheorem[Followed]):
    """Descent stays near its flow, if its steps are small."""

    @override
    def assumptions(self, subject: Followed, /) -> tuple[Claim, ...]:
        if subject.tube is not None:
            return rate_claims(subject.tube, subject.learning_rate)
        return (requirement("some radius allows the learning rate", isfinite(subject.reached)),)

    @override
    def conclusions(self, subject: Followed, /) -> tuple[Claim, ...]:
        apart, error, claims = subject.distances, subject.distance_error, []
        if apart.size == 0:  # nothing was recorded, or the horizon is shorter than a step
            return ()
        if subject.tube is not None:
            radius = subject.tube.radius
            error_there = error + rounding(radius)
            claims.append(Claim("|theta_k - theta(k eta)| <= radius", apart, radius, error_there))
        if isfinite(subject.reached):
            reached = subject.reached
            claims.append(Claim("|theta_k - theta(k eta)| <= max r(t)", apart, reached, error))
        return tuple(claims)

    @override
    def answers(self, subject: Followed, /) -> tuple[Answer, ...]:
        tube, rate, time = subject.tube, subject.learning_rate, readable(subject.time)
        found = []
        if tube is not None:
            condition = f"within {readable(tube.radius)} up to time {time}"
            found.append(Answer(Question.FOLLOWING_RATE, tube.largest_rate, condition))
        if rate is not None and isfinite(subject.reached):
            condition = f"at learning rate {readable(rate)} up to time {time}"
            until = subject.time
            found.append(Answer(Question.DISTANCE, subject.reached, condition, until=until))
        return tuple(found)


class FollowsFlow(_AbstractFollowing):
    """Descent with small steps stays in a tube around the flow.

    With m, beta, gamma as in `Tube`, mu' = m, and mu(0) = 0, let

        eta < inf over 0 < t <= time of
              (radius - e^{mu(t)} |theta_0 - theta(0)|)
              / (beta gamma integral_0^t e^{mu(t) - mu(s)} ds).

    Then |theta_k - theta(k eta)| <= radius for k = 1, ..., floor(time / eta).

    The exponent is mu(t) - mu(s), as the proof has it. The paper prints mu(time) - mu(s), with
    which the statement is false once m changes its sign.

    Of a linear network the constants hold on balls around the recorded flow. Given a radius it
    answers with the largest learning rate; given a learning rate, with the least radius found for
    which that rate is allowed. A larger radius may need smaller steps, because the constants of
    larger balls are worse.
    """

    reference: ClassVar[str] = "elkabetz2021:thm3"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[Followed]:
        return linear_training(case).further(flowing_case).further(self._followed)

    def tube(self, flowing: "FlowingCase", radius: float) -> Tube:
        """The constants on balls of this radius around the flow of a case."""
        case, path = flowing.case, flowing.path
        smoothness, steepness, growth = path.constants(case.objective, radius)
        return Tube(path.times, growth, smoothness, steepness, radius, start_distance(case))

    def _followed(self, flowing: "FlowingCase") -> Narrowed[Followed]:
        case, radius = flowing.case, flowing.case.radius
        tube = None if radius is None else self.tube(flowing, radius)
        covered = tube is None or met(rate_claims(tube, case.learning_rate))
        reached = self._distance(flowing) if covered else inf
        return Narrowed((), _followed(case, tube, reached, flowing.time))

    def _distance(self, flowing: "FlowingCase") -> float:
        """The distance proven for the case's learning rate; infinite where none is or was found.

        With D(radius) what the error grows to under the constants of a radius, the least solution
        of D(radius) = radius, approached from below, since D increases.
        """
        rate = flowing.case.learning_rate
        if rate is None:
            return inf
        reached = self.tube(flowing, 0.0).distance(rate)
        for _ in range(100):
            radius = 1.01 * reached
            reached = self.tube(flowing, radius).distance(rate) if radius < 1e3 else inf
            if reached <= radius or reached == inf:
                return reached
        return inf


class FollowsWhereSmooth(_AbstractFollowing):
    """Descent with small steps stays near the flow of a function that is smooth everywhere.

    With beta and m as in `SmoothTube` and c = 1 / (sqrt(2 beta^3 excess) + beta^2 radius), let

        eta < c (radius - d) |m|                              where m < 0
              c (radius - d) / time                           where m = 0
              c (radius - d e^{m time}) m / (e^{m time} - 1)  where m > 0

    for d = |theta_0 - theta(0)|. Then |theta_k - theta(k eta)| <= radius up to the horizon. The
    paper has f(theta(0)) for the excess, of a function that is not negative.

    The loss of one layer is smooth and convex, and its constants are known: h lambda_max(R^T R)
    and, of a square loss, what the same product of smallest eigenvalues gives, R the readout and h
    bounding the loss's own second derivative. Deeper networks are smooth nowhere near all of space
    (their curvature is unbounded, below, too), so that the caller must know better.

    Attributes:
        smoothness: what the Hessian's norm stays below; found for one layer.
        curvature: what its eigenvalues stay above; likewise.
    """

    reference: ClassVar[str] = "elkabetz2021:cor4"
    smoothness: float | None = None
    curvature: float | None = None

    @override
    def narrowed(self, case: Case, /) -> Narrowed[Followed]:
        smoothness, curvature = self.constants(case.objective)
        known = bool(0 < smoothness < inf and isfinite(curvature))
        claims = (
            requirement("the curvature is bounded on all of space", known),
            requirement("a horizon is given", case.time is not None),
            _asks_something(case),
        )
        if case.time is None or not met(claims):
            return Narrowed(claims, None)
        radius, rate = case.radius, case.learning_rate
        tube = self.tube(case, case.time, inf if radius is None else radius)
        reached = inf if rate is None else tube.distance(rate)
        wanted = None if radius is None else tube
        return Narrowed(claims, _followed(case, wanted, reached, case.time))

    @override
    def assumptions(self, subject: Followed, /) -> tuple[Claim, ...]:
        everywhere = subject.tube is None or subject.tube.everywhere
        known = requirement("the constants hold everywhere", everywhere)
        return known, *super().assumptions(subject)

    def tube(self, case: Case, time: float, radius: float) -> SmoothTube:
        """The constants of a case whose curvature is bounded."""
        smoothness, curvature = self.constants(case.objective)
        weights = case.weights if case.flow is None else case.flow.start
        excess = max(float(case.objective(weights)) - float(case.objective.least_value), 0)
        return SmoothTube(smoothness, -curvature, excess, time, radius, start_distance(case))

    def constants(self, objective: Objective) -> tuple[float, float]:
        """Above the Hessian's norm and below its eigenvalues, on all of space."""
        found = _one_layer_constants(objective)
        smoothness = found[0] if self.smoothness is None else self.smoothness
        return smoothness, found[1] if self.curvature is None else self.curvature


class FlowingCase(NamedTuple):
    """A case of a linear network with its flow up to a horizon."""

    case: Case
    path: RecordedPath
    time: float


def flowing_case(training: LinearTraining) -> Narrowed[FlowingCase]:
    """A case that has a flow, followed for long enough, and asks for something."""
    case, flow = training.case, own_flow(training.case)
    given = requirement("a flow of one network with a known error is given", flow is not None)
    if flow is None:
        return Narrowed((given,), None)
    end = float(flow.times[-1])
    time = end if case.time is None else case.time
    if end > 0:
        reaches = Claim("time <= the last record of the flow", time, end)
    else:
        reaches = requirement("the flow was followed for some time", False)
    claims = (given, reaches, _asks_something(case))
    if not met(claims):
        return Narrowed(claims, None)
    return Narrowed(claims, FlowingCase(case, RecordedPath.of(flow, time), time))


def _asks_something(case: Case) -> Claim:
    given = case.radius is not None or case.learning_rate is not None
    return requirement("a radius or a learning rate is given", given)


def _followed(case: Case, tube: Tube | SmoothTube | None, reached: float, time: float) -> Followed:
    """With the distances of the recorded run, if run and flow were recorded."""
    run, flow = own_run(case), own_flow(case)
    if run is None or flow is None:
        return Followed(tube, case.learning_rate, np.zeros(0), 0.0, reached, time)
    kept = run.times[run.times <= time * (1 + 1e-12)]  # times are rounded
    exact = flow.brought_to(kept)
    error = FLOW_ERRORS * exact.error + rounding(norms_of(exact.weights))
    apart = np.asarray(distance(run.at(kept), exact))
    return Followed(tube, case.learning_rate, apart, error, reached, time)


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
