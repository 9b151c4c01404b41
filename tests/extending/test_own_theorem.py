"""A theorem of one's own: on one layer, descent contracts at the rate of the flattest direction."""

from typing import NamedTuple

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import thalweg as tw
from thalweg.certificates import (
    AbstractTrainingTheorem,
    Answer,
    Case,
    Claim,
    Narrowed,
    Question,
    Statement,
    Verdict,
    requirement,
    rounding,
)
from thalweg.theorems import STATEMENTS, certify_case


class OneLayer(NamedTuple):
    """What the theorem speaks about: the extreme eigenvalues of the Hessian, and the case."""

    case: Case
    mu: float
    lam: float


class OneLayerRate(AbstractTrainingTheorem[OneLayer]):
    """On one layer, descent contracts at the rate of the flattest direction.

    Let mu <= lambda be the extreme eigenvalues of the Hessian 2 scale Sigma. Then

        eta <= 2 / (mu + lambda)  ==>  excess(k) <= (1 - eta mu)^(2k) excess(0).

    Proof: the error E obeys E(k+1) = E(k) (I - eta H), and excess = tr(E H E^T) / 2.
    """

    reference = "own:one-layer"

    def narrowed(self, case, /):
        linear, squares = case.objective.network.linear, case.objective.problem.least_squares
        claims = (
            requirement("the network is one matrix", linear is not None and linear.depth == 1),
            requirement("the loss is a square loss", squares is not None),
            requirement("there is no weight decay", float(case.objective.weight_decay) == 0),
            requirement("a learning rate is given", case.learning_rate is not None),
        )
        if squares is None:
            return Narrowed(claims, None)
        spectrum = 2 * float(squares.scale) * np.asarray(squares.spectrum)
        return Narrowed.where(claims, OneLayer(case, spectrum[0], spectrum[-1]))

    def assumptions(self, subject, /):
        limit = 2 / (subject.mu + subject.lam)
        eta = subject.case.learning_rate
        return (Claim("eta <= 2 / (mu + lambda)", eta, limit, rounding(limit)),)

    def conclusions(self, subject, /):
        run = subject.case.run
        if run is None:
            return ()
        excess = run.loss - tw.measurement.least_loss(run.objective)
        bound = (1 - float(run.learning_rate) * subject.mu) ** (2 * run.steps) * excess[0]
        noise = rounding(np.max(np.abs(run.loss)))
        return (Claim("excess(k) <= (1 - eta mu)^(2k) excess(0)", excess, bound, noise),)

    def answers(self, subject, /):
        largest = 2 / (subject.mu + subject.lam)
        return (Answer(Question.LEARNING_RATE, largest, "on one layer"),)


def case_of(seed, share):
    """A random regression, trained at a share of the largest learning rate that is covered."""
    random = np.random.default_rng(seed)
    problem = tw.Regression(random.normal(size=(10, 3)), random.normal(size=10))
    objective = tw.Objective(tw.LinearNetwork([3, 1]), problem)
    weights = tw.initialisation.gaussian(objective.network, 1.0, key=jax.random.key(seed))
    rate = float(share * 2 / (problem.spectrum[0] + problem.spectrum[-1]))
    run = tw.descend(objective, weights, learning_rate=rate, steps=50)
    return Case(objective, weights, learning_rate=rate, run=run)


@given(st.integers(0, 2**31 - 1), st.floats(0.05, 0.99))
def test_it_holds_whenever_it_applies(seed, share):
    certificate = OneLayerRate().check(case_of(seed, share))
    assert certificate.verdict is Verdict.CONFIRMED, certificate


def round_case():
    """Both eigenvalues are one, so that every direction is the flattest."""
    objective = tw.Objective(tw.LinearNetwork([2, 1]), tw.TargetMatrix([[0.0, 0.0]]))
    weights = (np.ones((1, 2)),)
    run = tw.descend(objective, weights, learning_rate=0.25, steps=10)
    return Case(objective, weights, learning_rate=0.25, run=run)


def test_it_is_tight_where_every_direction_is_the_flattest():
    (claim,) = OneLayerRate().check(round_case()).conclusions
    np.testing.assert_allclose(claim.lesser, claim.greater, rtol=1e-13)


def test_it_does_not_apply_to_two_layers_or_to_large_steps():
    large = OneLayerRate().check(case_of(0, 1.5))
    assert large.verdict is Verdict.NOT_APPLICABLE
    assert large.first_failure.statement == "eta <= 2 / (mu + lambda)"
    deep = tw.Objective(tw.LinearNetwork([2, 2, 1]), tw.TargetMatrix([1.0, 0.0]))
    weights = tw.initialisation.gaussian(deep.network, 0.5, key=jax.random.key(0))
    found = OneLayerRate().check(Case(deep, weights, learning_rate=0.1))
    assert found.first_failure.statement == "the network is one matrix"


def test_it_is_certified_beside_the_published_ones():
    own = Statement("own:one-layer", "One layer contracts at a linear rate.", OneLayerRate)
    found = certify_case(case_of(1, 0.5), (*STATEMENTS, own))
    assert "own:one-layer" in str(found)


def test_a_theorem_that_is_false_is_violated():
    class TwiceTheRate(OneLayerRate):
        """Descent contracts at twice that rate, which is false."""

        def conclusions(self, subject, /):
            return super().conclusions(subject._replace(mu=2 * subject.mu))

    assert TwiceTheRate().check(round_case()).verdict is Verdict.VIOLATED
