"""The tube: what a descent run proves of its distance to the exact flow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

import thalweg as tw
from thalweg import InputError, initialisation
from thalweg._phi import first_phis

FLOW = {"rtol": 1e-11, "atol": 1e-13}
FLOW_ERROR = 1e-9  # what the flows of these tests, at those tolerances, are within


def aligned(depth, width, cosine):
    """The balanced start of norm 0.1 on white data, whose flow is known in closed form."""
    target = np.eye(width)[0]
    network = tw.LinearNetwork([width] * depth + [1])
    objective = tw.Objective(network, tw.TargetMatrix(target))
    return objective, initialisation.aligned(network, 0.1, cosine, target)


def inside(run, proven, flow=None):
    """That the measured distance lies between the bounds; how far above it the upper one is."""
    flow = tw.flow(run.objective, tuple(a[0] for a in run.weights), times=run.times, **FLOW)
    gap = tw.distance(run, flow)
    assert np.all(gap >= proven.lower - FLOW_ERROR)
    assert np.all(gap <= proven.upper + FLOW_ERROR)
    return proven.upper.max() / gap.max()


@given(st.floats(0, 30))
def test_the_phi_functions_are_their_integrals(x):
    """Oracle: quadrature of the definition, which is good to 1e-12."""
    for order, found in enumerate(first_phis(jnp.asarray(x)), 1):
        factor = [1, 1, 2][order - 1]
        exact = quad(lambda u, k=order, f=factor: np.exp((1 - u) * x) * u ** (k - 1) / f, 0, 1)[0]
        np.testing.assert_allclose(found, exact, rtol=1e-11)


def test_the_correction_is_that_of_the_recursion():
    """Oracle: numbers of an independent implementation, at times 1, 2, 3 and 6."""
    objective, start = aligned(3, 4, 0.3)
    run = tw.descend(objective, start, learning_rate=0.01, steps=600)
    proven = tw.tube(run)
    known = [1.1231398077e-3, 2.8358239059e-3, 1.1974673740e-3, 7.4280777646e-4]
    np.testing.assert_allclose(proven.correction[[100, 200, 300, 600]], known, rtol=1e-9)
    assert inside(run, proven) < 1.04  # an independent program: 1.032
    assert proven.failed_at is None
    assert proven.level == "float64"
    np.testing.assert_allclose(proven.radius + proven.correction, proven.upper, rtol=1e-14)


@pytest.mark.parametrize(
    ("rate", "ratio"), [(0.1, 7.5), (0.03, 1.11), (0.001, 1.004)], ids=["0.1", "0.03", "0.001"]
)
def test_the_tube_is_nearly_tight_for_small_steps(rate, ratio):
    """The ratios are those of an independent program, 7.3, 1.106 and 1.003, and some room."""
    objective, start = aligned(3, 4, 0.3)
    run = tw.descend(objective, start, learning_rate=rate, steps=round(6 / rate))
    assert inside(run, tw.tube(run)) < ratio


@pytest.mark.statement("elkabetz2021:cert1", "value")
@pytest.mark.parametrize("options", [{"corrected": False}, {"curvature": "norms"}], ids=str)
def test_the_simple_tubes_hold_and_are_wider(options):
    objective, start = aligned(3, 4, 0.3)
    run = tw.descend(objective, start, learning_rate=0.01, steps=600)
    best, simple = tw.tube(run), tw.tube(run, **options)
    assert inside(run, simple) < 4.1  # the independent program: 4.04, and 1.043 by norms
    assert simple.upper.max() > best.upper.max()
    if not options.get("corrected", True):
        assert np.all(simple.lower == 0)
        assert np.all(simple.correction == 0)


SHAPES = [(4, 3, 2), (3, 2, 2, 2, 1)]


def random_run(shape, seed, condition, decay, scale, rate):
    """A regression with any data, an unbalanced start, and small or large steps."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, shape[0])) * np.geomspace(1, condition**-0.5, shape[0])
    y = x @ rng.normal(size=(shape[0], shape[-1])) + 0.1 * rng.normal(size=(20, shape[-1]))
    network = tw.LinearNetwork(shape)
    objective = tw.Objective(network, tw.Regression(x, y), weight_decay=decay)
    weights = tuple(scale * rng.normal(size=each) for each in network.shapes)
    return tw.descend(objective, weights, learning_rate=rate, steps=60)


@settings(max_examples=8)
@given(
    st.sampled_from(SHAPES),
    st.integers(0, 10**6),
    st.sampled_from([1.0, 30.0]),
    st.sampled_from([0.0, 0.1]),
    st.floats(0.02, 0.7),
    st.floats(-3, -0.7),
)
def test_the_exact_flow_is_inside_whatever_the_problem(
    shape, seed, condition, decay, scale, log_rate
):
    run = random_run(shape, seed, condition, decay, scale, 10**log_rate)
    if not run.diverged:
        proven = tw.tube(run)
        if np.isfinite(proven.upper[-1]):
            inside(run, proven)
        else:
            assert proven.failed_at is not None
            assert np.all(proven.lower[run.times >= proven.failed_at] == 0)


def test_near_the_edge_of_stability_it_fails_honestly():
    objective, start = aligned(3, 4, 0.3)
    run = tw.descend(objective, start, learning_rate=0.5, steps=40)
    proven = tw.tube(run)
    assert proven.failed_at is not None
    failed = proven.times >= proven.failed_at
    assert np.all(np.isinf(proven.upper[failed]))
    flow = tw.flow(objective, start, times=run.times, **FLOW)
    gap = tw.distance(run, flow)
    assert np.all(gap[~failed] <= proven.upper[~failed] + FLOW_ERROR)


def test_steps_that_were_not_recorded_are_taken_again():
    objective, start = aligned(3, 4, 0.3)
    every, some = (
        tw.descend(objective, start, learning_rate=0.01, steps=300, record_every=count)
        for count in (1, 7)
    )
    whole, thinned = tw.tube(every), tw.tube(some)
    chosen = np.isin(every.steps, some.steps)
    # What is recomputed differs from the record by rounding, which is added to the radius.
    np.testing.assert_allclose(thinned.upper, whole.upper[chosen], rtol=1e-9, atol=1e-12)
    assert np.all(thinned.between >= thinned.upper - 1e-12)
    # Also of what lies between two records: the distance is largest half way through this one.
    top = int(every.steps[np.argmax(whole.upper)])
    passed = tw.descend(objective, start, learning_rate=0.01, steps=2 * top, record_every=2 * top)
    over = tw.tube(passed)
    assert over.between[-1] >= np.max(whole.upper) * (1 - 1e-9) > 1.001 * over.upper[-1]


def test_a_flow_that_starts_elsewhere_stays_inside():
    objective, start = aligned(3, 4, 0.0)
    run = tw.descend(objective, start, learning_rate=0.005, steps=600)
    proven = tw.tube(run, start_distance=1e-3)
    rng = np.random.default_rng(0)
    for _ in range(3):
        shift = [rng.normal(size=layer.shape) for layer in start]
        size = np.sqrt(sum(np.sum(each**2) for each in shift))
        moved = tuple(np.asarray(a) + 1e-3 * b / size for a, b in zip(start, shift, strict=True))
        gap = tw.distance(run, tw.flow(objective, moved, times=run.times, **FLOW))
        assert np.all(gap <= proven.upper + FLOW_ERROR)
        assert np.all(gap >= proven.lower - FLOW_ERROR)
    # In one direction it must not be far below: the sum is not a bound that nothing reaches.
    assert proven.upper[-1] < 20e-3


def test_cross_entropy_has_a_tube():
    rng = np.random.default_rng(1)
    x, labels = rng.normal(size=(15, 3)), np.arange(15) % 3
    network = tw.LinearNetwork([3, 3, 3])
    objective = tw.Objective(network, tw.Classification(x, labels))
    start = tuple(0.3 * rng.normal(size=shape) for shape in network.shapes)
    run = tw.descend(objective, start, learning_rate=0.01, steps=200)
    assert inside(run, tw.tube(run)) < 1.1  # looser than square loss only through its bounds


def test_a_wrong_flow_is_outside():
    """The test can fail: another learning rate's clock puts the flow where the tube is not."""
    objective, start = aligned(3, 4, 0.3)
    run = tw.descend(objective, start, learning_rate=0.01, steps=300)
    proven = tw.tube(run)
    wrong = tw.flow(objective, start, times=1.01 * run.times, **FLOW)
    squares = sum(
        np.sum((a - b) ** 2, axis=(1, 2)) for a, b in zip(run.weights, wrong.weights, strict=True)
    )
    assert np.any(np.sqrt(squares) > proven.upper)


@pytest.mark.parametrize(("small", "proven"), [(1e-13, False), (0.5, True)], ids=["tiny", "half"])
def test_nothing_is_said_for_ever_where_a_direction_is_learned_only_then(small, proven):
    """An eigenvalue of 1e-13 is lost in the input moment, but the flow still drifts along it."""
    x = np.sqrt(2) * np.diag([1.0, np.sqrt(small)])
    objective = tw.Objective(tw.LinearNetwork([2, 1, 1]), tw.Regression(x, x @ [1.0, 0.0]))
    start = (np.array([[1.0, 0.001]]), np.array([[0.99]]))
    run = tw.descend(objective, start, learning_rate=0.005, steps=2000, record_every=50)
    assert (tw.tube(run, start_distance=1e-5).forever is not None) == proven


def test_a_run_in_single_precision_is_followed_in_double():
    network = tw.LinearNetwork([2, 2, 1])
    objective = tw.Objective(network, tw.TargetMatrix(np.asarray([1.0, 0.0], np.float32)))
    start = tuple(np.full(shape, 0.3, np.float32) for shape in network.shapes)
    run = tw.descend(objective, start, learning_rate=0.01, steps=50)
    assert np.isfinite(tw.tube(run).upper).all()


def test_a_diverged_run_is_proven_to_nothing():
    objective, start = aligned(3, 4, 0.3)
    run = tw.descend(objective, tuple(30 * a for a in start), learning_rate=1.0, steps=20)
    proven = tw.tube(run)
    assert run.diverged
    assert proven.failed_at is not None
    assert np.isinf(proven.between[-1])
    assert np.isinf(proven.upper[-1])


def batch():
    objective, start = aligned(2, 3, 0.3)
    return tw.descend(objective, start, learning_rate=np.array([0.1, 0.2]), steps=3)


def unrecorded():
    objective, start = aligned(2, 3, 0.3)
    return tw.descend(objective, start, learning_rate=0.1, steps=3, observe=lambda w: w[0][0, 0])


def smooth():
    network = tw.Model(lambda w, x: jnp.tanh(x @ w[0].T) @ w[1].T, [(2, 3), (1, 2)])
    objective = tw.Objective(network, tw.TargetMatrix(np.ones(3)))
    weights = initialisation.gaussian(network, 1.0, key=jax.random.key(0))
    return tw.descend(objective, weights, learning_rate=0.1, steps=3)


def plain():
    return tw.descend(*aligned(2, 3, 0.3), learning_rate=0.1, steps=3)


@pytest.mark.parametrize(
    ("make", "options", "sentence"),
    [
        (batch, {}, r"takes one run, got a batch of shape \(2,\)"),
        (unrecorded, {}, "needs the recorded weights"),
        (smooth, {}, "linear networks and for those with a two-slope activation, got Model"),
        (plain, {"start_distance": -1.0}, "`start_distance` must be a number >= 0, got -1"),
        (plain, {"curvature": "guess"}, "`curvature` must be auto, exact or norms, got 'guess'"),
    ],
    ids=["batch", "unrecorded", "smooth", "distance", "curvature"],
)
def test_bad_input_gets_one_sentence(make, options, sentence):
    with pytest.raises(InputError, match=sentence):
        tw.tube(make(), **options)


def test_nothing_is_said_for_ever_where_rounding_left_a_negative_moment():
    """Two columns in a ratio of 0.7: the stored moment has a determinant below zero."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(3, 6))[-1]
    problem = tw.Regression(np.stack([first, 0.7 * first], axis=1), 1.3 * first)
    objective = tw.Objective(tw.LinearNetwork([2, 1]), problem)
    run = tw.descend(objective, (np.array([[1.4, -2.0]]),), learning_rate=0.1, steps=40)
    assert tw.tube(run).forever is None
