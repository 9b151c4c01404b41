"""The largest learning rate that is proven to stay near the flow: both of its sides."""

import jax
import numpy as np
import pytest

import thalweg as tw
from thalweg.studies.thalweg_common import aligned_example, farthest
from thalweg.tubes import steps

SETTINGS = [
    (2, 0.1, 0.01, 0.0518),
    (3, 0.1, 0.01, 0.0353),
    (3, 0.1, 0.1, None),
    (5, 0.3, 0.03, None),
]


@pytest.fixture(scope="module", params=SETTINGS, ids=str)
def found(request):
    depth, norm, radius, known = request.param
    objective, weights = aligned_example(depth, norm=norm)
    return objective, weights, radius, known, tw.certified_step(objective, weights, radius, 6.0)


def test_it_is_the_true_one(found):
    """Oracles: an independent program's rates, to three digits; a flow integrated at 1e-10."""
    objective, weights, radius, known, step = found
    if known is not None:
        assert step.learning_rate == pytest.approx(known, rel=0.005)
    exact = tw.flow(objective, weights, time=6.0, rtol=1e-10, atol=1e-12)
    # The integrated flow is off by about 1e-9 of the radius.
    assert farthest(objective, weights, exact, step.learning_rate) <= radius * (1 + 1e-6)
    assert farthest(objective, weights, exact, step.refused) > radius * (1 - 1e-6)
    assert step.refused <= 1.0001 * step.learning_rate


def test_both_sides_are_proven(found):
    _, _, radius, _, step = found
    assert step.leaves
    assert step.upper.max() <= radius
    assert np.all(step.lower <= step.upper)
    assert step.flow.largest < 1e-10
    assert 6.0 - step.learning_rate < step.run.times[-1] <= 6.0


def test_a_wide_flow_leaves_the_next_rate_undecided(found, monkeypatch):
    """With a radius of its own of 1e-3 of that asked for, the answer is lower, and says so."""
    objective, weights, radius, _, step = found
    right = steps.distance

    def wide(run, exact):
        gap = right(run, exact)
        gap.lower, gap.upper = gap.lower - 1e-3 * radius, gap.upper + 1e-3 * radius
        return gap

    monkeypatch.setattr(steps, "distance", wide)
    wider = tw.certified_step(objective, weights, radius, 6.0)
    assert not wider.leaves
    assert wider.learning_rate < step.learning_rate


def test_the_search_goes_up_as_well():
    """A start that is sharper than all that follows: the first guess is far too small."""
    objective = tw.Objective(tw.LinearNetwork([1, 1]), tw.TargetMatrix([[1.0]]))
    step = tw.certified_step(objective, (np.array([[0.0]]),), radius=0.4, time=4.0)
    # One layer: the run is 1 - (1 - eta)^k against 1 - exp(-k eta), farthest at the first step.
    assert abs(np.exp(-step.learning_rate) - 1 + step.learning_rate) <= 0.4
    assert abs(np.exp(-step.refused) - 1 + step.refused) > 0.4
    assert step.leaves


def test_where_every_rate_stays_none_is_refused():
    objective = tw.Objective(tw.LinearNetwork([1, 1]), tw.TargetMatrix([[1.0]]))
    step = tw.certified_step(objective, (np.array([[0.0]]),), radius=10.0, time=1.0)
    assert step.refused == np.inf
    assert not step.leaves
    assert step.learning_rate > 0.5


def test_a_network_with_kinks_is_refused():
    network = tw.HomogeneousNetwork([2, 2, 1])
    objective = tw.Objective(network, tw.TargetMatrix([[1.0, 2.0]]))
    weights = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(0))
    with pytest.raises(tw.InputError, match="`certified_step` needs a flow that can be validated"):
        tw.certified_step(objective, weights, radius=1e-3, time=0.1)


def test_a_flow_that_is_not_proven_is_refused(monkeypatch):
    objective, weights = aligned_example(2)
    network = tw.LinearNetwork([2, 2, 2, 1])
    objective = tw.Objective(network, tw.TargetMatrix([[1.0, 2.0]]))
    weights = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(0))
    monkeypatch.setattr("thalweg.validated.curve._ATTEMPTS", 0)
    with pytest.raises(tw.InputError, match="proven up to time 0, got `time` = 1"):
        tw.certified_step(objective, weights, 0.1, 1.0)


def test_no_rate_is_one_sentence(monkeypatch):
    objective, weights = aligned_example(2)
    monkeypatch.setattr(steps, "_MOST_STEPS", 100)
    with pytest.raises(tw.InputError, match=r"No learning rate down to .* is proven to stay"):
        tw.certified_step(objective, weights, 1e-6, 6.0)
