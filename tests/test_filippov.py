"""The flow across kinks, against integration from one event to the next, and closed solutions."""

import os
from functools import cache
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

import event_driven
import thalweg as tw
from thalweg.network import BiasedNetwork, Convolution, Dense, SharedNetwork, Tied
from thalweg.solvers import Filippov
from thalweg.solvers.box import solved_in_box
from thalweg.solvers.filippov_step import start_at, step_from

TIMES = (0.8, 1.6, 2.4)

# An integration from event to event takes some seconds: three flows of each family are followed by
# default, all of them where many examples are asked for.
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
FEW = 3


def gaussian_case(seed, widths=(2, 5, 5, 1), samples=10, slopes=(1.0, 0.0), decay=0.0, scale=1.0):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(samples, widths[0])), rng.normal(size=(samples, widths[-1]))
    shapes = list(zip(widths[1:], widths[:-1], strict=True))
    weights = [scale * rng.normal(size=shape) for shape in shapes]
    return event_driven.Network(x, y, shapes, slopes, decay=decay), weights


def with_bias(seed):
    """The last feature is constant: the first layer has a bias."""
    network, weights = gaussian_case(seed, (3, 5, 5, 1))
    network.x[:, -1] = 1.0
    return network, weights


def on_kinks(seed, slopes=(1.0, 0.0)):
    """Some pre-activations of the first layer are zero at the start."""
    network, weights = gaussian_case(seed, (2, 4, 4, 1), 6, slopes)
    network.x[0], network.x[1] = (1.0, 0.0), (0.0, 1.0)
    weights[0][0, 0] = weights[0][1, 1] = 0.0
    return network, weights


def on_kinks_of_two_layers(seed, slopes=(1.0, 0.1)):
    """One sample is on a kink of each layer at the start."""
    network, weights = gaussian_case(seed, (2, 4, 4, 1), 6, slopes)
    network.x[0] = (1.0, 0.0)
    weights[0][0, 0] = 0.0
    (below,) = np.maximum(weights[0] @ network.x[:1].T, slopes[1] * weights[0] @ network.x[:1].T).T
    active = int(np.argmax(np.abs(below)))
    weights[1][0, active] -= weights[1][0] @ below / below[active]
    return network, weights


def with_dead_samples(seed):
    """Narrow first layers: some samples have no active unit, and wake or fall asleep."""
    return gaussian_case(seed, (2, 2, 3, 1), 12)


def convolved(seed, layers, slopes=(1.0, 0.0), samples=5):
    """Layers that share weights; a signal of six numbers, unless the layers say otherwise."""
    layers = LAYERS[layers]
    network = SharedNetwork(layers, slopes)
    patterns = tuple(np.asarray(layer.pattern) for layer in layers)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, network.features))
    y = rng.normal(size=(samples, network.outputs))
    oracle = event_driven.Convolved(
        x, y, [pattern.shape for pattern in patterns], slopes, patterns=patterns
    )
    oracle.network = network
    return oracle, [rng.normal(size=shape) for shape in network.shapes]


def biased(seed, layers, pooling=(), slopes=(1.0, 0.0), samples=5):
    """Layers with biases, some of them pooled in pairs."""
    layers = LAYERS[layers]
    network = BiasedNetwork(layers, slopes, pooling=[(1, size) for size in pooling])
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, network.features))
    y = rng.normal(size=(samples, network.outputs))
    oracle = event_driven.Pooled(
        x,
        y,
        [],
        slopes,
        patterns=tuple(np.asarray(layer.pattern) for layer in layers),
        channels=tuple(
            np.repeat(np.arange(layer.channels), layer.outputs // layer.channels)
            for layer in layers
        ),
        pooled=tuple(size == 2 for size in (*pooling, *[1] * len(layers)))[: len(layers)],
    )
    oracle.network = network
    return oracle, [rng.normal(size=shape) for shape in network.shapes]


SIGNAL = Convolution(1, 2, kernel=(1, 3), image=(1, 6))
LAYERS = {
    "one": [SIGNAL, Dense(8, 1)],
    "two": [SIGNAL, Convolution(2, 2, kernel=(1, 2), image=(1, 4)), Dense(6, 1)],
    "stride": [Convolution(1, 2, kernel=2, image=4, stride=2, padding=1), Dense(18, 2)],
    "tied": [Tied([[0, 1, -1, 2], [-1, 0, 1, 2], [2, -1, 0, 1]]), Dense(3, 2), Dense(2, 1)],
    "dense": [Dense(2, 4), Dense(4, 3), Dense(3, 1)],
    "pooled": [SIGNAL, Dense(4, 1)],
    "pooled, deep": [SIGNAL, Dense(4, 2), Dense(2, 1)],
}


FAMILIES = {
    "ReLU": [(gaussian_case, {"seed": seed, "slopes": (1.0, 0.0)}) for seed in range(12)],
    "leaky": [(gaussian_case, {"seed": seed, "slopes": (1.0, 0.1)}) for seed in range(6)],
    "modulus": [(gaussian_case, {"seed": seed, "slopes": (1.0, -1.0)}) for seed in range(1, 5)],
    "steeper below": [(gaussian_case, {"seed": seed, "slopes": (0.2, 1.5)}) for seed in range(4)],
    "one hidden layer": [(gaussian_case, {"seed": s, "widths": (3, 6, 2)}) for s in range(4)],
    "three hidden layers": [
        (gaussian_case, {"seed": s, "widths": (2, 4, 4, 4, 1)}) for s in range(4)
    ],
    "weight decay": [(gaussian_case, {"seed": s, "decay": 0.1}) for s in range(20, 23)],
    "bias": [(with_bias, {"seed": seed}) for seed in range(4)],
    "from kinks": [(on_kinks, {"seed": seed}) for seed in range(6)],
    "from leaky kinks": [(on_kinks, {"seed": s, "slopes": (1.0, 0.1)}) for s in range(6)],
    "from kinks of two layers": [(on_kinks_of_two_layers, {"seed": s}) for s in range(8)],
    "convolution": [(convolved, {"seed": s, "layers": "one"}) for s in range(6)],
    "convolution, modulus": [
        (convolved, {"seed": s, "layers": "one", "slopes": (1.0, -1.0)}) for s in range(1, 5)
    ],
    "two convolutions, leaky": [
        (convolved, {"seed": s, "layers": "two", "slopes": (1.0, 0.1)}) for s in range(4)
    ],
    "stride": [(convolved, {"seed": s, "layers": "stride", "samples": 3}) for s in range(3)],
    "tied": [(convolved, {"seed": s, "layers": "tied"}) for s in range(4)],
    "biases": [(biased, {"seed": s, "layers": "dense"}) for s in range(4)],
    "pooling": [(biased, {"seed": s, "layers": "pooled", "pooling": (2,)}) for s in range(8)],
    "pooling, leaky": [
        (
            biased,
            {
                "seed": s,
                "layers": "pooled, deep",
                "pooling": (2,),
                "slopes": (1.0, 0.2),
            },
        )
        for s in range(4)
    ],
    "pooling alone": [
        (
            biased,
            {"seed": s, "layers": "pooled", "pooling": (2,), "slopes": (1.0, 1.0)},
        )
        for s in range(4)
    ],
    "dead samples": [(with_dead_samples, {"seed": seed}) for seed in range(8)],
}


def problem_of(network, weights):
    if hasattr(network, "network"):
        model = network.network
    else:
        widths = [network.x.shape[1], *(array.shape[0] for array in weights)]
        model = tw.HomogeneousNetwork(widths, slopes=network.slopes)
    objective = tw.Objective(
        model,
        tw.Regression(network.x, network.y, scale=network.scale),
        weight_decay=network.decay,
    )
    return objective, tuple(jnp.asarray(array) for array in weights)


def rows(flow):
    return np.concatenate([array.reshape(len(array), -1) for array in flow.weights], axis=1)


def solved(make, settings):
    """The oracle's flow; None where it cannot decide where the flow goes."""
    return _solved_once(make, tuple(settings.items()))


@cache
def _solved_once(make, settings):
    """Several tests ask for the same flows, and each takes seconds."""
    network, weights = make(**dict(settings))
    theta = np.concatenate([array.ravel() for array in weights])
    try:
        return network, weights, event_driven.follow(network, theta, TIMES)
    except event_driven.Undecided:
        return network, weights, None


def some_of(family):
    """All of its flows, or some: one where weights are shared, whose oracle is slower."""
    cases = FAMILIES[family]
    shared = cases[0][0] in (convolved, biased)
    return cases if THOROUGH else cases[: 1 if shared else FEW]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_flow_is_that_of_event_driven_integration(family):
    """An error in proportion to the tolerance: order 2, because steps are as its root.

    In the middle of a family a tenth of the tolerance leaves 0.09 to 0.13 of the error. Where the
    flow and its companion pass a repelling kink on the same wrong side, the error says nothing, and
    `branch_uncertain` does: so it is with one of these flows (bias, seed 3, at 1e-3).
    """
    decided, gains = 0, []
    cases = some_of(family)
    for make, settings in cases:
        network, weights, truth = solved(make, settings)
        if truth is None:
            continue
        decided += 1
        objective, start = problem_of(network, weights)
        errors = []
        for rtol in (1e-3, 1e-4):
            flow = tw.flow(objective, start, times=TIMES, rtol=rtol, solver=Filippov())
            off = np.linalg.norm(rows(flow) - np.array(truth.points), axis=1)
            # The companion has four times the tolerance: it sees 3 errors where these are of
            # order 2, less where a step happens to meet a kink better than another.
            right = off < 4 * flow.error
            assert np.all(right | flow.branch_uncertain), (settings, off, flow.error)
            errors.append(off[-1])
        gains.append(errors[1] / errors[0])
    # Where the oracle finds two ways, or too many, it decides nothing.
    assert decided >= max(1, len(cases) - (3 if THOROUGH else 2))
    if THOROUGH:
        assert 0.05 < np.median(gains) < 0.2, gains
    else:
        assert np.median(gains) < 0.4, gains  # a single flow may meet a kink better or worse


def test_the_families_hold_what_they_promise():
    """At least 40 flows that cross, slide from the start or later, leave, wake and fall asleep."""
    assert sum(len(cases) for cases in FAMILIES.values()) >= 60
    truths = [solved(*case)[2] for case in FAMILIES["ReLU"]]
    relu = [each for each in truths if each is not None]
    assert max(each.crossings for each in relu) > 20
    assert max(each.most_sliding for each in relu) >= 3
    assert sum(each.left for each in relu) >= 5
    for make, settings in FAMILIES["dead samples"]:
        network, weights = make(**settings)
        _, inputs, _ = network.values(np.concatenate([array.ravel() for array in weights]))
        settings["dead"] = int(np.sum(np.all(inputs[1] == 0, axis=1)))
    assert sum(settings.pop("dead") for _, settings in FAMILIES["dead samples"]) >= 5


@pytest.mark.parametrize("slopes", [(1.0, 0.0), (1.0, -1.0)])
def test_order_two_in_the_step(slopes):
    """Steps of one length: half of it leaves a quarter of the error, in the middle of ten flows."""
    ratios = []
    for seed in range(1, 6 if THOROUGH else 4):
        network, weights, truth = solved(gaussian_case, {"seed": seed, "slopes": slopes})
        objective, start = problem_of(network, weights)
        errors = []
        for steps in (400, 800, 1600) if THOROUGH else (300, 600):
            kinked = objective.kinked
            state = start_at(kinked, tuple(np.asarray(array) for array in start))
            for _ in range(steps):
                state = step_from(kinked, state, TIMES[-1] / steps, 1e-8).state
            found = np.concatenate([array.ravel() for array in state.point.forward.weights])
            errors.append(np.linalg.norm(found - truth.points[-1]))
        ratios += [long / short for long, short in pairwise(errors)]
    assert 3.4 < np.median(ratios) < 4.6, ratios


# --- closed solutions ----------------------------------------------------------------------------


def one_unit(slopes, target):
    """f = (v s(w) - y)^2 / 2: one sample x = 1, for which w^2 - v^2 is conserved."""
    network = tw.HomogeneousNetwork([1, 1, 1], slopes=slopes)
    return tw.Objective(network, tw.Regression([[1.0]], [[target]]))


@pytest.mark.parametrize(
    ("slopes", "target", "v", "sliding"), [((1.0, 0.0), 1.0, -0.5, 0), ((1.0, -1.0), -1.0, 0.5, 1)]
)
def test_a_unit_that_comes_to_zero(slopes, target, v, sliding):
    """With ReLU it dies there, with the modulus it slides: w = 0 and |v| = sqrt(v0^2 - w0^2)."""
    w = 0.3
    flow = tw.flow(
        one_unit(slopes, target), ([[w]], [[v]]), times=[5.0, 6.0], rtol=1e-5, solver=Filippov()
    )
    # The errors of steps of order 2 at this tolerance.
    np.testing.assert_allclose(flow.weights[0][:, 0, 0], 0.0, atol=1e-5)
    np.testing.assert_allclose(
        flow.weights[1][:, 0, 0], np.sign(v) * np.sqrt(v**2 - w**2), atol=1e-5
    )
    if sliding:
        assert np.all(flow.records["sliding"] == 1)


def test_sliding_from_the_start_and_repelled_from_it():
    """On w = 0 with slopes (1, -1): f = (v |w| - y)^2 / 2 holds it for v y < 0, repels for > 0."""
    modulus = one_unit((1.0, -1.0), -1.0)
    held = tw.flow(modulus, ([[0.0]], [[1.0]]), times=[1.0], solver=Filippov(), rtol=1e-4)
    assert held.records["sliding"][0] == 1
    assert held.weights[0][0, 0, 0] == 0.0
    assert not held.branch_uncertain[0]
    repelled = tw.flow(modulus, ([[0.0]], [[-1.0]]), times=[1.0], solver=Filippov(), rtol=1e-4)
    assert abs(repelled.weights[0][0, 0, 0]) > 0.1
    assert repelled.records["ridge_distance"][0] == 0.0
    assert repelled.branch_uncertain[0]  # w and -w are both solutions


# --- what chooses it, and what it refuses --------------------------------------------------------


def test_it_is_chosen_where_the_flow_meets_kinks_alone():
    network, weights = gaussian_case(3)
    objective, start = problem_of(network, weights)
    across = tw.flow(objective, start, times=TIMES)
    assert across.solver == "filippov"
    assert across.records["crossings"][-1] > 0
    inside = tw.flow(objective, start, times=[1e-3])
    assert inside.solver != "filippov"
    assert inside.error[-1] < 1e-9  # the tolerance that was asked for
    for slopes in ((1.0, 1.0), (0.5, 0.5)):
        network.slopes = slopes
        smooth, start = problem_of(network, weights)
        assert tw.flow(smooth, start, times=[0.5]).solver != "filippov"


def test_it_agrees_with_others_inside_of_a_region():
    network, weights = gaussian_case(3)
    objective, start = problem_of(network, weights)
    times = [2e-3, 4e-3]
    found = tw.flow(objective, start, times=times, rtol=1e-7, solver=Filippov())
    other = tw.flow(objective, start, times=times, rtol=1e-11, solver=tw.solvers.Explicit())
    assert found.records["crossings"][-1] == 0
    off = np.linalg.norm(rows(found) - rows(other), axis=1)
    assert np.all(off < 3 * found.error + 1e-13)


def test_what_hides_its_kinks_is_refused():
    network, weights = gaussian_case(3)
    network.slopes = (1.0, 1.0)
    objective, start = problem_of(network, weights)
    with pytest.raises(tw.InputError, match="`Filippov` follows networks that declare their kinks"):
        tw.flow(objective, start, time=1.0, solver=Filippov())


def test_too_few_steps_are_told():
    objective, start = problem_of(*gaussian_case(3))
    with pytest.raises(tw.solvers.FlowError, match="only, by filippov steps"):
        tw.flow(objective, start, time=3.0, rtol=1e-5, solver=Filippov(), max_steps=20)


def test_a_batch_of_flows_compiles_nothing_anew():
    objective, start = problem_of(*gaussian_case(3))
    starts = tuple(jnp.stack([array, 1.01 * array]) for array in start)
    together = tw.flow(objective, starts, times=[1.0], rtol=1e-3, solver=Filippov())
    alone = tw.flow(objective, start, times=[1.0], rtol=1e-3, solver=Filippov())
    np.testing.assert_array_equal(together.weights[0][0], alone.weights[0])
    assert together.records["crossings"].shape == (2, 1)


def test_which_kinks_it_meets_is_told_on_request():
    """Oracle: the signs of the pre-activations where each is crossed once, and the counts."""
    network, weights = gaussian_case(3)
    objective, start = problem_of(network, weights)
    told = tw.flow(objective, start, times=TIMES, rtol=1e-3, solver=Filippov(which=True))
    slides, crossed = told.records["slides"], told.records["crossed"]
    assert slides.dtype == bool
    np.testing.assert_array_equal(slides.sum(axis=(1, 2)), told.records["sliding"])
    np.testing.assert_array_equal(
        np.cumsum(crossed.sum(axis=(1, 2), dtype=int)), told.records["crossings"]
    )
    assert slides.any()
    ends = (start, tuple(array[-1] for array in told.weights))
    z = [objective.kinked.start(tuple(map(np.asarray, each))).z for each in ends]
    flipped = (z[0] > 0) != (z[1] > 0)
    free = ~slides.any(axis=0)
    np.testing.assert_array_equal(crossed.sum(axis=0)[free] % 2, flipped[free])
    plain = tw.flow(objective, start, times=TIMES, rtol=1e-3, solver=Filippov())
    assert set(plain.records) == {"crossings", "sliding", "ridge_distance"}


def test_looking_for_kinks_ends_at_the_first():
    objective, start = problem_of(*gaussian_case(3))
    across = tw.flow(objective, start, times=TIMES, rtol=1e-3, estimate_error=False)
    alone = tw.flow(
        objective, start, times=TIMES, rtol=1e-3, estimate_error=False, solver=Filippov()
    )
    spent = across.gradient_evaluations - alone.gradient_evaluations
    assert 0 < spent < 0.5 * alone.gradient_evaluations


# --- the parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 8])
def test_the_problem_in_a_box(rank):
    """Oracle: the conditions that hold at a minimiser and nowhere else."""
    rng = np.random.default_rng(rank)
    for _ in range(20):
        factor = rng.normal(size=(8, rank)) * rng.uniform(0.01, 10, size=(8, 1))
        matrix, target = factor @ factor.T, factor @ rng.normal(size=rank)
        lower = rng.normal(size=8)
        upper = lower + rng.uniform(0, 1, size=8) * (rng.uniform(size=8) > 0.2)
        found = solved_in_box(matrix, target, lower, upper, (lower + upper) / 2)
        slope = matrix @ found - target
        small = 1e-8 * np.abs(matrix).max()  # rounding, against the largest entry
        assert np.all((found >= lower - 1e-12) & (found <= upper + 1e-12))
        assert np.all(np.abs(slope)[(found > lower + 1e-9) & (found < upper - 1e-9)] < small)
        assert np.all(slope[(found <= lower + 1e-9) & (upper > lower)] > -small)
        assert np.all(slope[(found >= upper - 1e-9) & (upper > lower)] < small)


@pytest.mark.parametrize("slopes", [(1.0, 0.0), (1.0, -0.5)])
def test_kinks_of_a_network(slopes):
    """Oracle: automatic differentiation of the network, and of its pre-activations one by one."""
    network, weights = gaussian_case(4, (3, 4, 5, 2), 6, slopes, decay=0.2)
    _, inputs, _ = network.values(np.concatenate([array.ravel() for array in weights]))
    # Unit 3 of the second layer is next to its kink on sample 2, where rounding leaves the side.
    below = inputs[1][2]
    weights[1][3] += (1e-13 - weights[1][3] @ below) / (below @ below) * below
    objective, start = problem_of(network, weights)
    kinked = objective.kinked
    arrays = tuple(np.asarray(array) for array in start)
    forward = kinked.start(arrays)
    masks = (forward.z > 0).astype(float)
    point = kinked.evaluate(forward, masks)
    for mine, theirs in zip(point.gradient, objective.gradient(start), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-13)
    theta = np.concatenate([array.ravel() for array in weights])
    split = [masks[:, :4], masks[:, 4:]]
    _, inputs, _ = network.values(theta)
    pairs = [(0, 2, 1), (1, 2, 3), (1, 5, 0), (0, 5, 3)]
    slopes_of_z = np.array([network.slope(theta, split, inputs, pair) for pair in pairs])
    sample, kink = np.array([2, 2, 5, 5]), np.array([1, 7, 4, 3])
    gram = kinked.kinks.gram(forward, sample, kink)
    np.testing.assert_allclose(gram, slopes_of_z @ slopes_of_z.T, atol=1e-12)
    np.testing.assert_allclose(kinked.kinks.squares(forward, sample, kink), np.diag(gram))
    # The gradient for another mask, by the sample that changed; where z is zero, it jumps.
    changed = masks.copy()
    changed[2, 7] = 0.3
    other = kinked.remasked(point, changed)
    jump = (0.3 - masks[2, 7]) * point.deltas[2, 7] * slopes_of_z[1]
    mine = np.concatenate([array.ravel() for array in other.gradient])
    was = np.concatenate([array.ravel() for array in point.gradient])
    np.testing.assert_allclose(
        mine, network.gradient(theta, [changed[:, :4], changed[:, 4:]]), atol=1e-13
    )
    assert np.linalg.norm(jump) > 0.01
    np.testing.assert_allclose(mine - was, jump, atol=1e-12)
    np.testing.assert_allclose(other.image, kinked.kinks.image(other.gradient), atol=1e-12)


SHARED = [
    SharedNetwork(
        [Convolution(1, 2, 3, 6, stride=2, padding=1), Convolution(2, 3, 2, 3), Dense(12, 2)],
        (1.0, -0.5),
    ),
    SharedNetwork(LAYERS["tied"], (1.0, 0.0)),
    BiasedNetwork(
        [Convolution(1, 2, 3, 6, padding=1), Convolution(2, 3, 2, 3), Dense(12, 4), Dense(4, 2)],
        pooling=(2,),
    ),
    BiasedNetwork([SIGNAL, Dense(2, 1)], (1.0, 1.0), pooling=[(1, 4)]),
]


@pytest.mark.parametrize("network", SHARED)
def test_kinks_of_shared_weights(network):
    """Oracles: automatic differentiation; differences of z for given masks, one weight by one."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, network.features)), rng.normal(size=(4, network.outputs))
    objective = tw.Objective(network, tw.Regression(x, y), weight_decay=0.1)
    start = tuple(rng.normal(size=shape) for shape in network.shapes)
    kinked = objective.kinked
    kinks = kinked.kinks
    forward = kinked.start(start)
    masks = (forward.z > 0).astype(float)
    point = kinked.evaluate(forward, masks)
    slopes = objective.gradient(tuple(jnp.asarray(array) for array in start))
    for mine, theirs in zip(point.gradient, slopes, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-13)
    chosen = rng.choice(masks.size, 8, replace=False)
    pairs = np.divmod(chosen, masks.shape[1])
    theta = np.concatenate([array.ravel() for array in start])
    ends = np.cumsum([array.size for array in start])[:-1]

    def z_at(flat):
        parts = zip(np.split(flat, ends), start, strict=True)
        weights = tuple(part.reshape(array.shape) for part, array in parts)
        return kinks.forward(weights, kinks.image(weights), masks).z.flat[chosen]

    step = 1e-6 * np.eye(theta.size)
    rows_of_z = np.stack([(z_at(theta + each) - z_at(theta - each)) / 2e-6 for each in step], 1)
    gram = kinks.gram(forward, *pairs)
    # Differences: their rounding, 1e-16 / 1e-6 of z of some tens.
    np.testing.assert_allclose(gram, rows_of_z @ rows_of_z.T, atol=1e-7)
    np.testing.assert_allclose(kinks.squares(forward, *pairs), np.diag(gram), atol=1e-11)
    # Other masks, and the same by the jumps that they make, as far as these are linear.
    changed = masks.copy()
    changed.flat[chosen] = 0.3
    other = kinked.remasked(point, changed)
    whole = kinked.evaluate(kinks.forward(start, kinks.image(start), changed), changed)
    for one, both in zip(other.gradient, whole.gradient, strict=True):
        np.testing.assert_allclose(one, both, atol=1e-13)
    factors = np.zeros(masks.shape)
    factors.flat[chosen] = rng.normal(size=8)
    flat = np.concatenate([array.ravel() for array in kinks.spread(forward, factors)])
    np.testing.assert_allclose(flat, factors.flat[chosen] @ rows_of_z, atol=1e-7)


def test_kinks_that_are_one_function():
    """Patches with the same pixels: one kink for each channel, whatever the sample and place."""
    network = BiasedNetwork(LAYERS["pooled"], pooling=[(1, 2)])
    x = np.zeros((3, 6))
    x[2, 5] = 1.0
    objective = tw.Objective(network, tw.Regression(x, np.ones((3, 1))))
    rng = np.random.default_rng(0)
    start = tuple(rng.normal(size=shape) for shape in network.shapes)
    start[1][:] = (0.3, 0.7)  # biases, above what the last pixel makes of them
    start[0][...] = -np.abs(start[0])
    kinked = objective.kinked
    forward = kinked.start(start)
    # Columns: four pairs of neighbours, then four activations, two for each channel.
    pairs = np.divmod(np.arange(24), 8)
    labels = kinked.kinks.labels(forward, *pairs).reshape(3, 8)
    assert len(set(labels[:, 4:6].ravel())) == 1
    assert len(set(labels[:, 6:].ravel())) == 1
    assert labels[0, 4] != labels[0, 6]
    reach = kinked.kinks.reach(forward, *pairs).reshape(3, 8)
    assert np.all(reach[:2, :4] == 0)  # both see the same
    assert reach[2, 1] > 0
    assert np.all(reach[:, 4:] > 0)


def test_a_background_that_crosses_zero_together():
    """All empty patches have one z, the bias b, which falls to zero, where its units die.

    Until then b^2 - |v|^2 is conserved, with v the weights of what comes out.
    """
    network = BiasedNetwork([Convolution(1, 1, 1, (1, 2)), Dense(2, 1)])
    objective = tw.Objective(network, tw.Regression(np.zeros((4, 2)), np.full((4, 1), -1.0)))
    b, v = 0.3, 0.6
    start = ([[[[1.0]]]], [b], [[v, v]], [0.0])
    flow = tw.flow(objective, start, times=[4.0, 5.0], rtol=1e-5, solver=Filippov())
    np.testing.assert_allclose(flow.weights[1][:, 0], 0.0, atol=1e-5)
    np.testing.assert_allclose(
        np.sum(flow.weights[2] ** 2, axis=(1, 2)), 2 * v**2 - b**2, atol=2e-5
    )


def test_biased_networks_refuse_what_makes_no_sense():
    with pytest.raises(tw.InputError, match=r"`pooling\[0\]` must be a power of two, or a pair"):
        BiasedNetwork(LAYERS["pooled"], pooling=(3,))
    with pytest.raises(tw.InputError, match=r"`pooling\[0\]` must divide the output of layer 1"):
        BiasedNetwork(LAYERS["pooled"], pooling=(2,))
    with pytest.raises(tw.InputError, match="`pooling` must have fewer entries than there are"):
        BiasedNetwork(LAYERS["pooled"], pooling=(1, 1))
    with pytest.raises(tw.InputError, match="pooled, has output dimension 4, but layer 2"):
        BiasedNetwork(LAYERS["one"], pooling=[(1, 2)])
