"""Kinks and what a flow across them is made of, against automatic differentiation."""

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from kinked_cases import LAYERS, SIGNAL, gaussian_case, problem_of
from thalweg.network import BiasedNetwork, Convolution, Dense, SharedNetwork
from thalweg.solvers import Filippov
from thalweg.solvers.box import solved_in_box


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


def at_its_own_masks(objective, weights):
    """The pass at some weights by the signs that it meets, and the gradient."""
    kinked = objective.kinked
    forward = kinked.start(tuple(np.asarray(array) for array in weights))
    return forward, kinked.evaluate(forward, (forward.z > 0).astype(float))


@pytest.mark.parametrize("slopes", [(1.0, 0.0), (1.0, -0.5)])
def test_kinks_of_a_network(slopes):
    """Oracle: automatic differentiation of the network, and of its pre-activations one by one."""
    network, weights = gaussian_case(4, (3, 4, 5, 2), 6, slopes, decay=0.2)
    objective, start = problem_of(network, weights)
    point = at_its_own_masks(objective, start)[1]
    for mine, theirs in zip(point.gradient, objective.gradient(start), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-13)
    _, inputs, _ = network.values(np.concatenate([array.ravel() for array in weights]))
    # Unit 3 of the second layer is next to its kink on sample 2, where rounding leaves the side.
    below = inputs[1][2]
    weights[1][3] += (1e-13 - weights[1][3] @ below) / (below @ below) * below
    # From here on rounding decides on which side of its kink it is, and masks are given.
    objective, start = problem_of(network, weights)
    forward, point = at_its_own_masks(objective, start)
    kinked, masks = objective.kinked, point.masks
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
