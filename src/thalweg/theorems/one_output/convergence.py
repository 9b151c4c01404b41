"""Networks with one output on white inputs: when flow and descent converge [elkabetz2021, sec. 5].

The theorems are about balanced starts, or nearly balanced ones, near zero. Their numbers are in the
units of `settings.one_output`, and converted; they reach 1e-30, so they are magnitudes.
"""

from abc import abstractmethod
from math import inf, log
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
import scipy
from jaxtyping import Array, Float, Key
from typing_extensions import override

from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Magnitude,
    Narrowed,
    Question,
    requirement,
    rounding,
)
from thalweg.certificates.trajectories import own_flow, own_run, start_distance
from thalweg.initialisation import balanced
from thalweg.measurement import unbalancedness
from thalweg.network import LinearNetwork
from thalweg.theorems.balance.neighbourhood import tube_claims
from thalweg.theorems.one_output.stages import convergence_time
from thalweg.theorems.probability.sampling import Proportion
from thalweg.theorems.settings.one_output import (
    OneOutputTraining,
    one_output_training,
    ray_between,
    small_start,
    target_claim,
)
from thalweg.theorems.settings.ray import LARGEST_NORM, Ray, ray_claims


class FlowConverges(AbstractTrainingTheorem[OneOutputTraining]):
    """The flow of a balanced network with one output reaches the target, in known time.

    In the paper's units, with depth N, |w| <= 0.2 and cosine nu != -1 at the start,
    rho = (1 - nu) / (1 + nu), r <= 1 / (2 N), the excess loss is below `gap` from

        t = 2 N max{1, 3 rho / 2}^N / |w| log(15 N max{1, rho} / (|w| min{1, 2 gap}))

    on. On balls of radius r around the flow |H| <= 16 N and |grad f| <= 6 sqrt(N), and

        m(t) = (N - 1) (|w - target| + 2 N r) (|w| + 2 N r)^{1 - 2/N} >= -lambda_min(H),
        integral_0^t m <= 15 N^3 max{1, 3 rho / 2}^N t r / |w|
                          + log(N^2 (e^2 max{1, rho})^{5 (N - 1) / 2} / |w|^2).

    The bounds on balls are compared with those of `curvature.ball_bounds` along the exact flow,
    for the radius of the case, or else the largest. The 15 of the last bound may be 12, ours.
    """

    reference: ClassVar[str] = "elkabetz2021:prop14"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[OneOutputTraining]:
        return one_output_training(case).further(small_start)

    @override
    def assumptions(self, subject: OneOutputTraining, /) -> tuple[Claim, ...]:
        return () if subject.gap is None else (target_claim(subject),)

    @override
    def answers(self, subject: OneOutputTraining, /) -> tuple[Answer, ...]:
        if subject.gap is None:
            return ()
        return (Answer(Question.TIME, _flow_time(subject, subject.gap)),)

    @override
    def conclusions(self, subject: OneOutputTraining, /) -> tuple[Claim, ...]:
        ray, gap = subject.ray, subject.gap
        claims = [] if gap is None else _flow_arrives(subject.case, _flow_time(subject, gap))
        if not ray.is_resolved:
            return tuple(claims)
        if gap is not None:
            taken = Magnitude.of(ray.elapsed(ray.total_time(gap)) * subject.units.time)
            statement = "time of the exact flow to the target loss <= t"
            claims.append(Claim(statement, taken, _flow_time(subject, gap)))
        return *claims, *tube_claims(subject)


def _flow_time(training: OneOutputTraining, gap: float) -> Magnitude:
    return convergence_time(training.ray, gap) * training.units.time


def _flow_arrives(case: Case, time: Magnitude) -> list[Claim]:
    """That the recorded flow is below the target loss from a time on, if it went on for so long."""
    flow = own_flow(case)
    if flow is None or start_distance(case) != 0 or not np.any(flow.times >= float(time)):
        return []
    late, off = flow.times >= float(time), rounding(flow.loss[0])
    statement = "loss of the flow <= the target loss, from t on"
    return [Claim(statement, flow.loss[late], case.target_loss, off)]


class TargetedTraining(NamedTuple):
    """A training with a target loss that can be reached, so far above the least one."""

    training: OneOutputTraining
    gap: float

    @property
    def learning_rate(self) -> Magnitude | None:
        """That of the case, if it has one."""
        rate = self.training.case.learning_rate
        return None if rate is None else Magnitude.of(rate)


def _targeted(training: OneOutputTraining) -> Narrowed[TargetedTraining]:
    claim, gap = target_claim(training), training.gap
    setting = None if gap is None or claim.fails else TargetedTraining(training, gap)
    return Narrowed((claim,), setting)


class _AbstractTinySteps(AbstractTrainingTheorem[TargetedTraining]):
    """Descent reaches its target after so many steps, if none is larger than so much."""

    @override
    def assumptions(self, subject: TargetedTraining, /) -> tuple[Claim, ...]:
        if subject.learning_rate is None:
            return ()
        statement = "eta <= the largest learning rate that is covered"
        return (Claim(statement, subject.learning_rate, self.largest_rate(subject)),)

    @override
    def answers(self, subject: TargetedTraining, /) -> tuple[Answer, ...]:
        largest, steps = self.largest_rate(subject), self.iterations(subject)
        return Answer(Question.LEARNING_RATE, largest), Answer(Question.ITERATIONS, steps)

    @override
    def conclusions(self, subject: TargetedTraining, /) -> tuple[Claim, ...]:
        return _reached(subject.training.case, self.iterations(subject))

    def iterations(self, subject: TargetedTraining) -> Magnitude:
        """The bound on k, for the learning rate of the case or else the largest."""
        rate = subject.learning_rate
        return self.time(subject) / (self.largest_rate(subject) if rate is None else rate) + 1

    @abstractmethod
    def largest_rate(self, subject: TargetedTraining) -> Magnitude:
        """The bound on eta."""

    @abstractmethod
    def time(self, subject: TargetedTraining) -> Magnitude:
        """The bound on (k - 1) eta."""


class DescentConverges(_AbstractTinySteps):
    """Descent from a small balanced start converges with one output, if its steps are tiny.

    In the paper's units, with L = log(15 N max{1, rho} / (|w| min{1, gap})),

        eta <= |w|^5 min{1, gap} / (N^{17/2} e^{7 N + 6} max{1, rho}^{(11 N - 5)/2} L^2)
        ==>  f(theta_k) - minimum <= gap,    k = floor(2 N max{1, 3 rho / 2}^N L / (|w| eta) + 1).

    The paper prints k with other brackets, and a comma for a product; this is what it proves.
    """

    reference: ClassVar[str] = "elkabetz2021:thm15"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[TargetedTraining]:
        return one_output_training(case).further(small_start).further(_targeted)

    @override
    def largest_rate(self, subject: TargetedTraining) -> Magnitude:
        return balanced_rate(subject.training.ray, subject.gap) * subject.training.units.time

    @override
    def time(self, subject: TargetedTraining) -> Magnitude:
        return _flow_time(subject.training, subject.gap / 2)


class UnbalancedDescentConverges(_AbstractTinySteps):
    """Descent from a small, nearly balanced start converges with one output, by tiny steps.

    In the paper's units, with |w| <= 0.1, M = max{3, (3 - nu) / (1 + nu)} and
    L = log(23 N M / (|w| min{1, gap})),

        unbalancedness <= |w|^8 min{1, gap^2} / (N^15 e^{12 N + 6} M^{9 N - 5} L^2),
        eta <= |w|^5 min{1, gap} / (N^{17/2} e^{7 N + 10} M^{(11 N - 5)/2} L^2)
        ==>  f(theta_k) - minimum <= gap for some k <= 3 N (3 M / 2)^N L / (|w| eta) + 1.

    The paper prints L^-2 in the denominator of the first bound, and needs equal widths before the
    last layer; `initialisation.nearest_balanced` does not for one output (ours). No weights that
    are balanced up to rounding only are as nearly balanced as this.
    """

    reference: ClassVar[str] = "elkabetz2021:thm32"

    @override
    def narrowed(self, case: Case, /) -> Narrowed[TargetedTraining]:
        start = one_output_training(case).further(
            lambda training: small_start(training, balanced=False, largest=0.1)
        )
        return start.further(_targeted)

    @override
    def assumptions(self, subject: TargetedTraining, /) -> tuple[Claim, ...]:
        training, gap = subject
        ray = training.ray
        unit = np.linalg.norm(training.target) ** (2 / ray.depth)
        found = Magnitude.of(float(unbalancedness(training.case.weights)) / unit)
        allowed = "|w|^8 min{1, gap^2} / (N^15 e^(12 N + 6) M^(9 N - 5) L^2)"
        statement = f"unbalancedness <= {allowed}, in the paper's units"
        nearly = Claim(statement, found, largest_unbalancedness(ray, gap))
        return nearly, *super().assumptions(subject)

    @override
    def largest_rate(self, subject: TargetedTraining) -> Magnitude:
        return unbalanced_rate(subject.training.ray, subject.gap) * subject.training.units.time

    @override
    def time(self, subject: TargetedTraining) -> Magnitude:
        return unbalanced_time(subject.training.ray, subject.gap) * subject.training.units.time


class RandomTraining(NamedTuple):
    """A training whose start is random and balanced, its product drawn with this scale."""

    training: OneOutputTraining
    scale: float


def _random(training: OneOutputTraining) -> Narrowed[RandomTraining]:
    start = training.case.random_start
    several = Claim("2 <= inputs", 2, training.problem.shape[1])
    if start is None or start.kind != "balanced":
        known = requirement("the start is random and balanced", False)
        return Narrowed((several, known), None)
    known = requirement("the start is random and balanced", True)
    return Narrowed.where((several, known), RandomTraining(training, start.scale))


class RandomStartConverges(AbstractTrainingTheorem[RandomTraining]):
    """From a random balanced start small enough, descent almost surely converges.

    Where the product's distribution is continuous, |w| <= 0.2 |target| almost surely, and there is
    more than one input, the assumptions of `DescentConverges` hold with probability one. That of
    `initialisation.balanced`, N(0, scale^2) per entry, is not bounded; for it they hold with the
    probability, exact and ours,

        P(chi^2_d <= (0.2 |target| / scale)^2),    d the number of inputs.

    Attributes:
        samples: how many starts are drawn to compare.
        seed: the random seed of these.
    """

    reference: ClassVar[str] = "elkabetz2021:cor18"
    samples: int = 2000
    seed: int = 0

    @override
    def narrowed(self, case: Case, /) -> Narrowed[RandomTraining]:
        return one_output_training(case).further(_random)

    @override
    def answers(self, subject: RandomTraining, /) -> tuple[Answer, ...]:
        return (Answer(Question.PROBABILITY, self.probability(subject)),)

    @override
    def conclusions(self, subject: RandomTraining, /) -> tuple[Claim, ...]:
        training, scale = subject
        keys = jax.random.split(jax.random.key(self.seed), self.samples)
        starts = np.asarray(_random_products(training.network, scale, keys))
        rays = [ray_between(start, training.target, 2) for start in starts]
        met = np.array([all(claim.holds_clearly for claim in ray_claims(ray)) for ray in rays])
        small = np.array([ray.norm <= LARGEST_NORM for ray in rays])
        event = "P(|w| <= 0.2 |target|, nu > -1)"
        probability, share = self.probability(subject), Proportion.of(met)
        always = "1 <= P(nu > -1 given |w| <= 0.2 |target|)"
        return (
            *((Proportion.of(met[small]).at_least(always, 1.0),) if small.any() else ()),
            share.at_least(f"P(chi2 <= (0.2 |target| / scale)^2) <= {event}", probability),
            share.at_most(f"{event} <= P(chi2 <= (0.2 |target| / scale)^2)", probability),
        )

    def probability(self, subject: RandomTraining) -> float:
        """Of a start that `DescentConverges` speaks about."""
        training, scale = subject
        size = LARGEST_NORM * np.linalg.norm(training.target) / scale
        return float(scipy.stats.chi2.cdf(size**2, training.problem.shape[1]))


def balanced_rate(ray: Ray, gap: float) -> Magnitude:
    """The learning rate of `DescentConverges` in the paper's units (elkabetz2021:eq23)."""
    n, most = ray.depth, max(1.0, ray.opposition)
    steps = log(15 * n * most / (ray.norm * min(1.0, gap)))
    small = Magnitude.of(ray.norm) ** 5 * min(1.0, gap) / Magnitude.of(n) ** 8.5
    return small * Magnitude.exp(-(7 * n + 6)) / Magnitude.of(most) ** (5.5 * n - 2.5) / steps**2


def unbalanced_rate(ray: Ray, gap: float) -> Magnitude:
    """The learning rate of `UnbalancedDescentConverges`, likewise (elkabetz2021:eq35)."""
    n, (most, steps) = ray.depth, _detour(ray, gap)
    small = Magnitude.of(ray.norm) ** 5 * min(1.0, gap) / Magnitude.of(n) ** 8.5
    return small * Magnitude.exp(-(7 * n + 10)) / Magnitude.of(most) ** (5.5 * n - 2.5) / steps**2


def largest_unbalancedness(ray: Ray, gap: float) -> Magnitude:
    """What `UnbalancedDescentConverges` allows, likewise (elkabetz2021:eq34)."""
    n, (most, steps) = ray.depth, _detour(ray, gap)
    small = Magnitude.of(ray.norm) ** 8 * min(1.0, gap**2) / Magnitude.of(n) ** 15
    return small * Magnitude.exp(-(12 * n + 6)) / Magnitude.of(most) ** (9 * n - 5) / steps**2


def unbalanced_time(ray: Ray, gap: float) -> Magnitude:
    """(k - 1) eta of `UnbalancedDescentConverges`, likewise (elkabetz2021:eq36)."""
    n, (most, steps) = ray.depth, _detour(ray, gap)
    return Magnitude.of(1.5 * most) ** n * (3 * n * steps) / ray.norm


def _detour(ray: Ray, gap: float) -> tuple[float, float]:
    """M and L of `UnbalancedDescentConverges`."""
    most = max(3.0, (3 - ray.cosine) / (1 + ray.cosine))
    return most, log(23 * ray.depth * most / (ray.norm * min(1.0, gap)))


@eqx.filter_jit
def _random_products(
    network: LinearNetwork, scale: float, keys: Key[Array, " samples"]
) -> Float[Array, "samples features"]:
    """The end-to-end vectors of balanced starts."""
    return jax.vmap(lambda key: network.end_to_end(balanced(network, scale, key=key))[0])(keys)


def _reached(case: Case, iterations: Magnitude) -> tuple[Claim, ...]:
    """That the run met the target in time, where it did, or was long enough to."""
    run = own_run(case)
    if run is None or case.target_loss is None:
        return ()
    below = np.flatnonzero(run.loss <= case.target_loss)
    if below.size == 0 and iterations > run.steps[-1]:
        return ()
    # It was reached after the last record above the target.
    first = inf if not below.size else float(run.steps[below[0] - 1] if below[0] else 0)
    return (
        Claim(
            "steps to the target loss <= k, up to the last record above it",
            Magnitude.of(first),
            iterations,
        ),
    )
