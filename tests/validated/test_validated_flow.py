"""The validated flow as people meet it: `tw.flow(..., validate=True)` and distances from it."""

import jax
import numpy as np
import pytest

import thalweg as tw

# Largest distances to the flow on the built-in experiment, from an independent program; at 0.2
# the run is chaotic late, but not up to where it is farthest.
LARGEST = {0.02: 5.166495e-2, 0.05: 0.1250318, 0.1: 0.2312595, 0.2: 1.187828}


@pytest.fixture(scope="module")
def built_in():
    from pathlib import Path

    from thalweg import experiment

    settings = tw.Experiment()
    objective = experiment.objective(settings, Path())
    return objective, experiment.start(settings, objective)


@pytest.fixture(scope="module")
def validated(built_in):
    return tw.flow(*built_in, time=16.0, validate=True)


def test_the_built_in_experiment_is_proven_to_its_end(validated):
    assert validated.failed_at is None
    assert validated.radius.max() <= validated.largest < 1e-9
    assert validated.level == "float64"
    assert validated.radius[0] == 0


@pytest.mark.parametrize("rate", LARGEST)
def test_one_curve_encloses_every_run(built_in, validated, rate):
    run = tw.descend(*built_in, learning_rate=rate, steps=round(16 / rate))
    gap = tw.distance(run, validated)
    assert gap.max() == pytest.approx(LARGEST[rate], rel=1e-6)  # seven digits are printed
    assert (gap.lower <= gap).all()
    assert (gap <= gap.upper).all()
    assert (gap.upper - gap.lower).max() < 1e-9
    assert gap[1:].lower is None  # a part of it is an array of numbers


def test_the_loss_is_the_objective(built_in, validated):
    objective = built_in[0]
    ours = float(objective(tuple(layer[-1] for layer in validated.weights)))
    assert validated.loss[-1] == pytest.approx(ours, rel=1e-12)  # sums of some ten terms


def _problems():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    labels = rng.integers(2, size=8)
    return {
        "regression": (tw.Regression(x, z), 2),
        "target": (tw.TargetMatrix(rng.normal(size=(2, 3))), 2),
        "cross-entropy": (tw.Classification(x, labels), 2),
        "logistic": (tw.Classification(x, labels, loss="logistic"), 1),
        "exponential": (tw.Classification(x, labels, loss="exponential"), 1),
    }


@pytest.mark.parametrize("name", _problems())
def test_every_loss_against_the_integrated_flow(name):
    """Oracle: the package's other integrators; their errors are estimates, hence ten times."""
    problem, outputs = _problems()[name]
    network = tw.LinearNetwork([3, 2, outputs], readout=None)
    objective = tw.Objective(network, problem, weight_decay=0.05)
    start = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(0))
    proven = tw.flow(objective, start, times=np.array([0.5, 2.0]), validate=True)
    integrated = tw.flow(objective, start, times=np.array([0.5, 2.0]), rtol=1e-11, atol=1e-13)
    gap = tw.distance(integrated, proven)
    assert np.all(gap <= proven.radius + 10 * integrated.error + 1e-13)
    assert proven.radius.max() < 1e-12


def test_a_readout(built_in):
    network = tw.LinearNetwork([3, 2, 2], readout=[1.0, -1.0])
    objective = tw.Objective(network, tw.TargetMatrix([[1.0, 2.0, 0.5]]))
    start = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(1))
    proven = tw.flow(objective, start, times=np.array([1.0]), validate=True)
    other = tw.flow(objective, start, times=np.array([1.0]), rtol=1e-11, atol=1e-13)
    assert tw.distance(other, proven)[0] <= proven.radius[0] + 10 * other.error[0] + 1e-13


def test_what_cannot_be_validated_is_refused():
    network = tw.HomogeneousNetwork([3, 2, 1])
    objective = tw.Objective(network, tw.TargetMatrix([[1.0, 2.0, 0.5]]))
    start = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(1))
    with pytest.raises(tw.InputError, match="validated for linear networks, got LayeredNetwork"):
        tw.flow(objective, start, time=1.0, validate=True)


def test_a_batch_of_starts_is_refused():
    network = tw.LinearNetwork([3, 2, 1])
    objective = tw.Objective(network, tw.TargetMatrix([[1.0, 2.0, 0.5]]))
    start = tuple(np.ones((4, *shape)) for shape in network.shapes)
    with pytest.raises(tw.InputError, match="validated from one start, got a batch of shape"):
        tw.flow(objective, start, time=1.0, validate=True)


def test_without_a_proof_distances_have_no_bounds(built_in):
    flow = tw.flow(*built_in, time=0.1)
    assert tw.distance(flow, flow).lower is None


@pytest.mark.parametrize("depth", [1, 3])
def test_a_start_at_zero(depth):
    """One layer leaves it at once, 1 - exp(-t); three never do."""
    objective = tw.Objective(tw.LinearNetwork([1] * (depth + 1)), tw.TargetMatrix([[1.0]]))
    flow = tw.flow(objective, (np.zeros((1, 1)),) * depth, times=[2.0], validate=True)
    exact = 1 - np.exp(-2.0) if depth == 1 else 0.0
    assert flow.failed_at is None
    assert abs(flow.weights[0][0, 0, 0] - exact) <= flow.radius[0] + 1e-16
    assert flow.radius[0] < 1e-13


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"rtol": 1e-4}, "`rtol`"),
        ({"atol": 1e-4, "max_steps": 7}, "`atol`, `max_steps`"),
        ({"solver": tw.solvers.Collocation()}, "`solver`"),
        ({"steady": 1e-6}, "`steady`"),
        ({"estimate_error": False}, "`estimate_error`"),
    ],
)
def test_tolerances_and_solvers_beside_a_proof_are_refused(built_in, given, named):
    with pytest.raises(tw.InputError, match=f"tolerances of its own, got {named} as well"):
        tw.flow(*built_in, time=0.1, validate=True, **given)


def test_the_solver_by_name_is_the_same_proof(built_in):
    ours, named = (
        tw.flow(*built_in, times=[0.1], **how)
        for how in ({"validate": True}, {"solver": tw.solvers.Validated()})
    )
    assert ours.radius[0] == named.radius[0]
    with pytest.raises(tw.InputError, match="got `rtol` as well"):
        tw.flow(*built_in, time=0.1, solver=tw.solvers.Validated(), rtol=1e-4)
