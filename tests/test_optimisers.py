"""Optimisers: against loops in NumPy, against theory, in lanes, through optax, and refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.objective import AbstractObjective
from thalweg.optimisers import HeavyBall, Nesterov, Transformation

RNG = np.random.default_rng(0)
INPUTS, TARGETS = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 1))
NETWORK = tw.LinearNetwork([3, 3, 3, 1])
OBJECTIVE = tw.Objective(NETWORK, tw.Regression(INPUTS, TARGETS))
START = tuple(0.5 * RNG.normal(size=shape) for shape in NETWORK.shapes)
NEGATIVE = tuple(-np.abs(layer) for layer in START)


def chain_gradient(weights):
    """The gradient of |x (W_3 W_2 W_1)^T - y|^2 / (2 samples), by hand."""
    first, second, third = weights
    residual = INPUTS @ (third @ second @ first).T - TARGETS
    slope = residual.T @ INPUTS / len(INPUTS)
    return (second.T @ third.T @ slope, third.T @ slope @ first.T, slope @ first.T @ second.T)


def loop(kind, gradient, weights, rate, beta, steps):
    """All iterates, by the textbooks' formulas: velocities, and Nesterov's two sequences."""
    iterates, velocity, behind = [weights], [0.0 * w for w in weights], list(weights)
    for _ in range(steps):
        now = iterates[-1]
        slopes = gradient(now)
        if kind is HeavyBall:
            velocity = [beta * v - rate * g for v, g in zip(velocity, slopes, strict=True)]
            moved = [w + v for w, v in zip(now, velocity, strict=True)]
        else:
            ahead = [w - rate * g for w, g in zip(now, slopes, strict=True)]
            moved = [x + beta * (x - b) for x, b in zip(ahead, behind, strict=True)]
            behind = ahead
        iterates.append(tuple(moved))
    return [np.stack(layer) for layer in zip(*iterates, strict=True)]


@pytest.mark.parametrize("kind", [HeavyBall, Nesterov])
@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_momentum_follows_the_textbook_step_by_step(kind, beta):
    """Each step from the loop's own iterates would be exact; rounding adds up over forty."""
    run = tw.descend(OBJECTIVE, START, learning_rate=0.02, steps=40, optimiser=kind(beta))
    expected = loop(kind, chain_gradient, START, 0.02, beta, 40)
    for found, layer in zip(run.weights, expected, strict=True):
        np.testing.assert_allclose(found, layer, rtol=0, atol=1e-13 * np.abs(layer).max())


@pytest.mark.parametrize("kind", [HeavyBall, Nesterov])
def test_without_momentum_it_is_plain_descent(kind):
    plain = tw.descend(OBJECTIVE, START, learning_rate=0.02, steps=20)
    other = tw.descend(OBJECTIVE, START, learning_rate=0.02, steps=20, optimiser=kind(0.0))
    assert plain.optimiser.plain
    assert not other.optimiser.plain
    for one, two in zip(plain.weights, other.weights, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-13)


def test_runs_with_momentum_are_bitwise_independent_of_the_batch():
    rates = np.geomspace(0.001, 3.0, 103)  # two blocks of lanes, and rates that diverge
    many = tw.descend(OBJECTIVE, START, learning_rate=rates, steps=60, optimiser=HeavyBall(0.9))
    assert (many.diverged_at > 0).any()
    for place in (0, 50, 102):
        one = tw.descend(
            OBJECTIVE, START, learning_rate=rates[place], steps=60, optimiser=HeavyBall(0.9)
        )
        np.testing.assert_array_equal(one.loss, many.loss[place])
        for mine, theirs in zip(one.weights, many.weights, strict=True):
            np.testing.assert_array_equal(mine, theirs[place])


def test_another_beta_compiles_nothing(compilations):
    tw.descend(OBJECTIVE, START, learning_rate=0.02, steps=5, optimiser=Nesterov(0.3))
    with compilations("_advance", "_look") as count:
        for beta in (0.1, 0.5, 0.99):
            tw.descend(OBJECTIVE, START, learning_rate=0.02, steps=5, optimiser=Nesterov(beta))
    assert count() == 0


# --- critical learning rates ---------------------------------------------------------------------


class Quadratic(AbstractObjective):
    """s w^2 / 2 of one number."""

    curvature: jax.Array

    def __call__(self, weights):
        return self.curvature * jnp.sum(weights**2) / 2


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (HeavyBall, lambda beta: 2 * (1 + beta)),
        (Nesterov, lambda beta: 2 * (1 + beta) / (1 + 2 * beta)),
    ],
)
def test_the_stability_limit_is_where_a_root_leaves_the_unit_circle(kind, limit, beta):
    """Oracle: the roots of the recursion in a direction of curvature 1, and the formula."""
    found = float(kind(beta).stability_limit(4.0)) * 4
    assert found == pytest.approx(limit(beta), rel=1e-14)

    def radius(rate):
        if kind is HeavyBall:
            coefficients = [1, -(1 + beta - rate), beta]
        else:
            coefficients = [1, -(1 + beta) * (1 - rate), beta * (1 - rate)]
        return np.abs(np.roots(coefficients)).max()

    assert radius(found * (1 - 1e-6)) < 1 < radius(found * (1 + 1e-6))


@pytest.mark.parametrize(
    ("optimiser", "limit"), [(HeavyBall(0.9), 3.8), (Nesterov(0.9), 3.8 / 2.8)]
)
def test_the_critical_learning_rate_on_a_quadratic_is_that_of_theory(optimiser, limit):
    """At the relative distance d below the limit the slow root is -(1 - c d), and its part A.

    A run of n steps trains once A^2 exp(-2 c d n) < share, at d = log(A^2 / share) / (2 c n):
    4e-7 for the heavy ball (A = 19, c = 38), 6e-7 for Nesterov's method (A = 1.4, c = 2.9).
    """
    found = tw.critical_learning_rate(
        Quadratic(jnp.asarray(7.0)), np.asarray([1.0]), steps=200_000, share=0.99, minimum=0.0,
        precision=3e-7, optimiser=optimiser, around=0.9 * limit / 7,
    )  # fmt: skip
    assert found.lower * 7 == pytest.approx(limit, rel=1e-6)
    assert found.upper * 7 == pytest.approx(limit, rel=1e-6)


def test_predictions_are_those_of_the_optimiser_and_of_linear_stability_alone():
    """Oracle: those of plain descent, times stability / 2; theorems speak of plain descent."""
    plain, other = (
        tw.critical_learning_rate(
            OBJECTIVE, START, steps=400, optimiser=optimiser, precision=0.3, certified=False
        )
        for optimiser in (tw.optimisers.PLAIN, HeavyBall(0.5))
    )
    whole = tw.critical_learning_rate(
        OBJECTIVE, START, steps=400, optimiser=HeavyBall(0.5), precision=0.3
    )
    assert [each.name for each in whole.predictions] == [each.name for each in other.predictions]
    assert len(other.predictions) == len(plain.predictions) == 7
    for one, two in zip(plain.predictions, other.predictions, strict=True):
        assert two.name == one.name.replace("2 / ", "3 / ")
        if "limit" not in one.name:  # whose slow descent is another one
            np.testing.assert_allclose(two.rates, 1.5 * one.rates, rtol=1e-12)


@pytest.mark.parametrize(
    "optimiser", [HeavyBall(0.5), HeavyBall(0.9), Nesterov(0.5), Nesterov(0.9)]
)
@pytest.mark.parametrize("curvature", [0.3, 7.0])
def test_a_quadratic_converges_just_below_the_edge_and_diverges_just_above(optimiser, curvature):
    """Runs, and not roots: a thousandth of the rate to either side decides within 40,000 steps.

    The slow root leaves the circle at the speed c d with c of order 3 to 38 and d = 1e-3.
    """
    objective, start = Quadratic(jnp.asarray(curvature)), np.asarray([1.0])
    limit = float(optimiser.stability_limit(curvature))
    assert float(optimiser.edge(limit)) == pytest.approx(curvature, rel=1e-15)
    calm, wild = (
        tw.descend(
            objective, start, learning_rate=share * limit, steps=40_000, record_every=40_000,
            optimiser=optimiser,
        )
        for share in (0.999, 1.001)
    )  # fmt: skip
    assert calm.loss[-1] < 1e-10 * calm.loss[0]
    assert not wild.loss[-1] < 1e10 * wild.loss[0]


@pytest.mark.parametrize("optimiser", [tw.optimisers.PLAIN, HeavyBall(0.5), Nesterov(0.5)])
def test_a_network_leaves_a_minimiser_that_is_sharper_than_the_edge(optimiser):
    """Two layers, from a minimiser pushed by 1e-6: it comes back below the edge, and leaves above.

    Plain descent takes the 2 of its own edge; the dense Hessian gives the sharpness.
    """
    slow = tw.descend(OBJECTIVE, START, learning_rate=0.02, steps=20_000, record_every=20_000)
    least = float(slow.loss[-1])
    sharpness = float(np.linalg.eigvalsh(np.asarray(OBJECTIVE.hessian(slow.final)))[-1])
    pushed = tuple(array + 1e-6 * RNG.normal(size=array.shape) for array in slow.final)
    limit = float(optimiser.stability_limit(sharpness))
    runs = [
        tw.descend(OBJECTIVE, pushed, learning_rate=share * limit, steps=2000, optimiser=optimiser)
        for share in (0.97, 1.03)
    ]
    first = OBJECTIVE(pushed) - least
    assert runs[0].loss[-1] - least < first
    assert not np.max(runs[1].loss - least) < 1e4 * first
    assert runs[0].edge > sharpness > runs[1].edge


def test_an_optax_transformation_has_no_edge():
    run = tw.descend(OBJECTIVE, START, learning_rate=0.01, steps=5, optimiser=optax.scale_by_rms())
    assert np.isnan(run.edge)
    assert np.isnan(run.optimiser.stability_limit(3.0))


# --- optax ---------------------------------------------------------------------------------------


def test_momentum_of_optax_is_the_heavy_ball():
    trace = optax.trace(0.9)
    rates = np.array([0.01, 0.02])
    ours = tw.descend(OBJECTIVE, START, learning_rate=rates, steps=30, optimiser=HeavyBall(0.9))
    theirs = tw.descend(OBJECTIVE, START, learning_rate=rates, steps=30, optimiser=trace)
    assert not theirs.optimiser.plain
    for one, two in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-13)


@pytest.mark.parametrize("network", [NETWORK, tw.HomogeneousNetwork([3, 4, 1])])
def test_adam_is_that_of_optax_in_every_lane(network):
    """Oracle: optax's own loop with the whole optimiser, run by run. Its count is an integer."""
    objective = tw.Objective(network, tw.Regression(INPUTS, TARGETS))
    weights = tuple(0.5 * RNG.normal(size=shape) for shape in network.shapes)
    rates = np.array([0.003, 0.03])
    run = tw.descend(
        objective, weights, learning_rate=rates, steps=25, optimiser=optax.scale_by_adam()
    )
    for place, rate in enumerate(rates):
        adam, point = optax.adam(rate), jax.tree.map(jnp.asarray, weights)
        memory = adam.init(point)
        for _ in range(25):
            updates, memory = adam.update(objective.gradient(point), memory, point)
            point = optax.apply_updates(point, updates)
        for found, expected in zip(run.final, point, strict=True):
            np.testing.assert_allclose(found[place], expected, rtol=1e-11)


def test_a_whole_optimiser_of_optax_is_refused():
    whole = (
        optax.sgd(0.1),
        optax.adam(optax.linear_schedule(0.0, 0.1, 10)),
        Transformation(optax.sgd(0.1)),  # wrapped by hand
        optax.adamw(0.1, weight_decay=10.0),  # whose update here is uphill, by the decay alone
    )
    for each in whole:
        with pytest.raises(tw.InputError, match=r"points downhill already, .* as `learning_rate`"):
            tw.descend(OBJECTIVE, NEGATIVE, learning_rate=0.1, steps=3, optimiser=each)


def test_weight_decay_of_optax_is_that_of_an_objective():
    """Its direction points away from ones at weights far below zero, and is no whole optimiser."""
    decayed = tw.Objective(NETWORK, tw.Regression(INPUTS, TARGETS), 10.0)
    ours = tw.descend(decayed, NEGATIVE, learning_rate=1e-4, steps=9)
    theirs = tw.descend(
        OBJECTIVE,
        NEGATIVE,
        learning_rate=1e-4,
        steps=9,
        optimiser=optax.add_decayed_weights(10.0),
    )
    for one, two in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-13)  # the same sums in another order


def test_what_needs_more_than_gradients_is_refused():
    with pytest.raises(tw.InputError, match="no more than the gradient and the weights, but this"):
        tw.descend(OBJECTIVE, START, learning_rate=0.1, steps=3, optimiser=optax.scale_by_polyak())


# --- bad input, and what is about plain descent only ---------------------------------------------


@pytest.mark.parametrize("wrong", ["sgd", None, 0.9, lambda g: g])
def test_what_is_no_optimiser_is_refused(wrong):
    with pytest.raises(
        tw.InputError, match=r"`optimiser` must be one of tw.optimisers or an optax"
    ):
        tw.descend(OBJECTIVE, START, learning_rate=0.1, steps=3, optimiser=wrong)


def test_a_class_is_no_optimiser():
    with pytest.raises(tw.InputError, match=r"got the class HeavyBall; make one: HeavyBall\(...\)"):
        tw.descend(OBJECTIVE, START, learning_rate=0.1, steps=3, optimiser=HeavyBall)


@pytest.mark.parametrize("beta", [-0.1, 1.0, 2.0, float("nan")])
@pytest.mark.parametrize("kind", [HeavyBall, Nesterov])
def test_beta_must_be_below_one(kind, beta):
    with pytest.raises(tw.InputError, match="`beta` must be at least 0 and below 1, got"):
        kind(beta)


def test_what_is_about_plain_descent_refuses_others():
    run = tw.descend(OBJECTIVE, START, learning_rate=0.01, steps=3, optimiser=HeavyBall(0.9))
    for refuse in (tw.tube, tw.prove, tw.certificates.Case.of):
        with pytest.raises(
            tw.InputError, match="is about plain gradient descent, got a run of Heav"
        ):
            refuse(run)
    with pytest.raises(tw.InputError, match="Every theorem is about plain gradient descent"):
        tw.certify(OBJECTIVE, START, learning_rate=0.01, run=run)


def test_flat_ground_is_stable_at_any_rate_without_a_warning():
    with np.errstate(divide="raise"):
        assert np.isinf(tw.optimisers.HeavyBall(0.5).stability_limit(0.0))
