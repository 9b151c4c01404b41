"""Tubes of networks with kinks, tubes that are made along with the run, and random problems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxprs_in_params

import thalweg as tw
import tube_problems
from thalweg import InputError
from thalweg.network import Dense, Tied
from thalweg.tubes import tube_along
from thalweg.tubes.advance import advance_block, begin

WIDTHS = (3, 3, 2, 1)
TIED = Tied([[0, 1, -1], [-1, 0, 1], [2, -1, 3]])
NETWORKS = {  # the slopes are traced, so that the first three are compiled once
    "relu": tw.HomogeneousNetwork(WIDTHS),
    "leaky": tw.HomogeneousNetwork(WIDTHS, slopes=(1.0, 0.2)),
    "folded": tw.HomogeneousNetwork(WIDTHS, slopes=(1.0, -0.7)),
    "shared": tw.SharedNetwork([TIED, Dense(3, 1)], slopes=(1.0, 0.3)),
}


def bent_run(name, seed, rate, steps=40):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(5, 3)), rng.normal(size=(5, 1))
    problem = tw.Regression(x, y)
    if name == "shared":
        problem = tw.Classification(x, np.arange(5) % 2, loss="logistic")
    network = NETWORKS[name]
    start = tuple(0.7 * rng.normal(size=shape) for shape in network.shapes)
    objective = tw.Objective(network, problem)
    return tw.descend(objective, start, learning_rate=rate, steps=steps)


def flow_of(run):
    start = tuple(layer[0] for layer in run.weights)
    return tw.flow(run.objective, start, times=run.times, rtol=1e-11, atol=1e-13)


def gaps(run, count):
    """The measured distance at the first times, and how far off it may be.

    The flow is followed no farther: outside of its region it may slide along a kink.
    """
    if count < 2:
        return np.zeros(count), np.zeros(count)
    short = run.at(run.times[:count])
    flow = flow_of(short)
    return tw.distance(short, flow), 3 * flow.error + 1e-12


@settings(max_examples=8)
@given(st.sampled_from(sorted(NETWORKS)), st.integers(0, 10**6), st.sampled_from([1e-3, 1e-2]))
def test_the_flow_of_a_network_with_kinks_is_inside_while_in_its_region(name, seed, rate):
    run = bent_run(name, seed, rate)
    proven = tw.tube(run)
    known = np.isfinite(proven.upper)
    gap, doubt = gaps(run, known.sum())
    assert np.all(gap <= proven.upper[known] + doubt)
    assert np.all(gap >= proven.lower[known] - doubt)
    assert proven.forever is None
    assert (proven.failed_at is None) == known.all()
    assert proven.left_region_at in (None, proven.failed_at)


def test_the_tube_of_a_region_is_nearly_tight():
    """Three seeds whose flow stays: the upper bound is within three hundredths of the distance."""
    for seed in (1, 2, 4):
        run = bent_run("leaky", seed, 1e-3)
        proven = tw.tube(run)
        flow = flow_of(run)
        gap = tw.distance(run, flow)
        assert proven.failed_at is None
        assert proven.upper[-1] < 1.03 * gap[-1]
        assert proven.lower[-1] > 0.97 * gap[-1]
        assert np.all(proven.loss_lower <= flow.loss + 1e-10)  # the flow's error times its slope
        assert np.all(proven.loss_upper >= flow.loss - 1e-10)


def test_it_ends_before_the_region_does():
    """Where descent itself crosses a kink the proof has ended, and says why."""
    crossed = 0
    for seed in range(12):
        run = bent_run("relu", seed, 1e-2)
        patterns = [
            np.concatenate(
                [
                    np.ravel(p)
                    for p in tw.curvature.activation_pattern(
                        run.objective.network, weights, run.objective.problem.inputs
                    )
                ]
            )
            for weights in zip(*run.weights, strict=True)
        ]
        changed = np.flatnonzero([not np.array_equal(p, patterns[0]) for p in patterns])
        if changed.size:
            crossed += 1
            proven = tw.tube(run)
            assert proven.left_region_at is not None
            assert proven.left_region_at == proven.failed_at <= run.times[changed[0]]
            late = run.times >= proven.failed_at
            assert np.all(np.isinf(proven.upper[late]))
            assert np.all(np.isinf(proven.loss_upper[late]))
    assert crossed >= 2


def test_a_start_next_to_a_kink_is_left_at_once():
    run = bent_run("relu", 0, 1e-3, steps=1)
    (first, *rest), x = (layer[0] for layer in run.weights), run.objective.problem.inputs
    row = first[0] - (first[0] @ x[0] + 1e-9) / (x[0] @ x[0]) * x[0]  # on sample 0: -1e-9
    near = (np.vstack([row, first[1:]]), *rest)
    proven = tube_along(run.objective, near, learning_rate=1e-3, steps=40)
    assert proven.left_region_at == proven.failed_at == proven.times[1]
    far = tube_along(run.objective, near, learning_rate=1e-3, steps=40, start_distance=1e-3)
    assert np.isinf(far.loss_upper[0])  # the flow may even start beyond the kink


def test_equal_slopes_are_a_linear_network():
    """No kink, no boundary; the bounds differ, by samples and by products, the flow does not."""
    rng = np.random.default_rng(5)
    problem = tw.Regression(rng.normal(size=(5, 3)), rng.normal(size=(5, 1)))
    start = tuple(0.5 * rng.normal(size=shape) for shape in NETWORKS["relu"].shapes)
    straight, linear = (
        tw.tube(tw.descend(tw.Objective(network, problem), start, learning_rate=1e-2, steps=40))
        for network in (tw.HomogeneousNetwork(WIDTHS, slopes=(1.0, 1.0)), tw.LinearNetwork(WIDTHS))
    )
    assert straight.failed_at is linear.failed_at is None
    np.testing.assert_allclose(straight.correction, linear.correction, rtol=1e-9)
    np.testing.assert_allclose(straight.upper, linear.upper, rtol=0.05)
    np.testing.assert_allclose(straight.loss_upper, linear.loss_upper, rtol=1e-2)


# --- along with the run ---------------------------------------------------------------------------


def small_problem():
    problem = tube_problems.random_problem(0)
    return problem.objective, problem.start


def test_a_tube_made_along_with_the_run_is_that_of_the_run():
    objective, start = small_problem()
    options = {"learning_rate": 0.01, "steps": 300}
    recorded = tw.tube(tw.descend(objective, start, **options))
    whole, some = (tube_along(objective, start, record_every=count, **options) for count in (1, 7))
    # `descend` compiles the step differently: rounding, which `tube` adds to the radius.
    np.testing.assert_allclose(whole.upper, recorded.upper, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(whole.lower, recorded.lower, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(whole.times, recorded.times)
    chosen = [*range(0, 300, 7), 300]
    np.testing.assert_array_equal(some.times, whole.times[chosen])
    for name in ("upper", "lower", "between", "loss_upper"):  # the same steps to the last bit
        np.testing.assert_array_equal(getattr(some, name), getattr(whole, name)[chosen])


def test_nothing_of_the_size_of_steps_times_weights_is_made():
    """All arrays of a block of 1000 records of 480 weights are far smaller than their product."""
    network = tw.LinearNetwork([20, 20, 4])
    rng = np.random.default_rng(0)
    objective = tw.Objective(network, tw.TargetMatrix(rng.normal(size=(4, 20))))
    point = jnp.asarray(rng.normal(size=network.size))
    state, _ = begin(objective, point, jnp.asarray(0.0))
    records, size = 1000, network.size
    made = jax.make_jaxpr(
        lambda state: advance_block.__wrapped__(
            objective,
            jnp.asarray(0.01),
            state,
            None,
            np.full(records, 10**6),
            jnp.asarray(records),
            True,
            False,
        )
    )(state)
    largest = max(_sizes(made.jaxpr))
    assert records <= largest < records * size / 50


def _sizes(jaxpr):
    for equation in jaxpr.eqns:
        for variable in (*equation.invars, *equation.outvars):
            yield int(np.prod(variable.aval.shape))
        for inner in jaxprs_in_params(equation.params):
            yield from _sizes(inner)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"learning_rate": [0.1, 0.2]}, r"takes one learning rate, got shape \(2,\)"),
        ({"learning_rate": -0.1}, "`learning_rate` must be"),
        ({"steps": 0}, "`steps` must be"),
        ({"start_distance": -1.0}, "`start_distance` must be a number >= 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_input_gets_one_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        tube_along(*small_problem(), **{"learning_rate": 0.1, "steps": 2, **options})


def test_a_batch_of_starts_is_refused():
    objective, start = small_problem()
    with pytest.raises(InputError, match="must be those of one network"):
        tube_along(objective, tuple(np.stack([a, a]) for a in start), learning_rate=0.1, steps=2)


# --- random problems ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [*range(0, 80, 10), *range(3, 63, 10)])
def test_random_problems_are_inside(number):
    """Two of the shapes of `tube_problems`, whose main program tries all of them."""
    problem = tube_problems.random_problem(number)
    found = tube_problems.outcome(problem)
    assert found.excess <= 0
    assert found.times_proven >= 1
    if problem.edge <= 0.01:
        assert found.failed_at is None


def test_many_classes_and_features_are_inside():
    """More features than are decomposed at every ball: the bounds by samples take over."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 70)) / 3
    network = tw.LinearNetwork([70, 2, 3])
    objective = tw.Objective(network, tw.Classification(x, np.arange(30) % 3))
    start = tuple(0.3 * rng.normal(size=shape) for shape in network.shapes)
    run = tw.descend(objective, start, learning_rate=0.02, steps=40)
    proven = tw.tube(run, curvature="norms")
    gap, doubt = gaps(run, run.times.size)
    assert np.all(gap <= proven.upper + doubt)
    assert np.all(gap >= proven.lower - doubt)
    assert proven.upper[-1] < 1.3 * gap[-1]
