"""Modified flows: their order in the learning rate, held against descent, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.objective.base import AbstractObjective
from thalweg.objective.modified import ModifiedObjective
from thalweg.studies.thalweg_common import aligned_example

RATES = (0.04, 0.02)
RECORDS = 50  # the same for all rates, so that a flow is compiled once for each order


class Quartic(AbstractObjective):
    """A sum of w^4 / 4 + w^2 / 2 + a product, so that no derivative up to the fourth vanishes."""

    def __call__(self, weights):
        w = weights["w"]
        return jnp.sum(w**4) / 4 + jnp.sum(w**2) / 2 + w[0] * w[1] * w[2]


START = {"w": np.array([0.9, -0.4, 0.7])}


def farthest(rate, order, optimiser=None, begin=0.0):
    """The largest distance from descent to its modified flow."""
    optimiser = optimiser or tw.optimisers.GradientDescent()
    steps = round(2.0 / rate)
    run = tw.descend(
        Quartic(), START, learning_rate=rate, steps=steps, record_every=steps // RECORDS,
        optimiser=optimiser,
    )  # fmt: skip
    flow = tw.flow(
        Quartic(), START, times=np.linspace(0, 2.0, RECORDS + 1), modified=order,
        learning_rate=rate, optimiser=optimiser, rtol=1e-12, atol=1e-13, estimate_error=False,
    )  # fmt: skip
    gap = np.linalg.norm(run.weights["w"] - flow.weights["w"], axis=1)
    return gap[flow.times >= begin].max()


class TestOrders:
    @pytest.mark.parametrize("order", [0, 1, 2])
    def test_descent_follows_it_to_one_order_more(self, order):
        coarse, fine = (farthest(rate / 8, order) for rate in RATES)
        # The next term of the series changes the slope by a multiple of the rate: 0.02 at 0.005.
        assert np.log2(coarse / fine) == pytest.approx(order + 1, abs=0.02)

    @pytest.mark.parametrize("order", [0, 1])
    def test_the_heavy_ball_does_once_it_has_come_up_to_speed(self, order):
        beta = tw.optimisers.HeavyBall(0.3)
        coarse, fine = (farthest(rate / 8, order, beta, begin=0.5) for rate in RATES)
        assert np.log2(coarse / fine) == pytest.approx(order + 1, abs=0.02)

    def test_a_wrong_start_of_the_heavy_ball_would_be_seen(self):
        """Without the shift of the start the distance is of order one only."""
        beta = tw.optimisers.HeavyBall(0.3)
        shifted, plain = farthest(0.005, 1, beta, 0.5), farthest(0.005, 0, beta, 0.5)
        assert shifted < plain / 20


def test_the_field_of_order_two_is_that_of_the_formula():
    """Against dense derivatives."""
    objective, rate = Quartic(), 0.1
    flat = jnp.asarray(START["w"])

    def value(w):
        return objective({"w": w})

    g, hessian, third = (
        f(flat) for f in (jax.grad(value), jax.hessian(value), jax.jacfwd(jax.hessian(value)))
    )
    expected = g + rate / 2 * hessian @ g
    expected += rate**2 * (hessian @ hessian @ g / 3 + jnp.einsum("ijk,j,k->i", third, g, g) / 12)
    modified = ModifiedObjective(objective, jnp.asarray(rate), jnp.asarray(0.0), 2)
    np.testing.assert_allclose(modified.gradient({"w": flat})["w"], expected, rtol=1e-13)
    assert float(modified({"w": flat})) == float(value(flat))  # the loss stays that of f


def test_to_order_one_it_is_a_gradient():
    """That of f + eta (1 + beta) / (4 (1 - beta)^2) |grad f|^2, in the faster time."""
    rate, beta = 0.1, 0.4
    flat = jnp.asarray(START["w"])

    def penalised(w):
        g = jax.grad(lambda v: Quartic()({"w": v}))(w)
        return Quartic()({"w": w}) + rate / 4 * (1 + beta) / (1 - beta) ** 2 * g @ g

    modified = ModifiedObjective(Quartic(), jnp.asarray(rate), jnp.asarray(beta), 1)
    expected = jax.grad(penalised)(flat) / (1 - beta)
    np.testing.assert_allclose(modified.gradient({"w": flat})["w"], expected, rtol=1e-13)


class TestRefusals:
    def test_what_it_needs(self):
        objective, start = aligned_example(2)
        with pytest.raises(tw.InputError, match="needs the `learning_rate`"):
            tw.flow(objective, start, time=1.0, modified=1)
        with pytest.raises(tw.InputError, match="must be 0 for the gradient flow"):
            tw.flow(objective, start, time=1.0, modified=3, learning_rate=0.1)
        with pytest.raises(tw.InputError, match="leave out `validate`"):
            tw.flow(objective, start, time=1.0, modified=1, learning_rate=0.1, validate=True)
        with pytest.raises(tw.InputError, match="takes any field"):
            tw.flow(
                objective, start, time=1.0, modified=2, learning_rate=0.1,
                solver=tw.solvers.Chebyshev(),
            )  # fmt: skip

    def test_optimisers_without_one(self):
        objective, start = aligned_example(2)
        with pytest.raises(tw.InputError, match=r"HeavyBall\(beta\)"):
            tw.flow(
                objective, start, time=1.0, modified=1, learning_rate=0.1,
                optimiser=tw.optimisers.Nesterov(0.5),
            )  # fmt: skip
        with pytest.raises(tw.InputError, match="known to order 1"):
            tw.flow(
                objective, start, time=1.0, modified=2, learning_rate=0.1,
                optimiser=tw.optimisers.HeavyBall(0.5),
            )  # fmt: skip

    def test_kinks(self):
        network = tw.HomogeneousNetwork([2, 3, 1])
        x = np.eye(2)
        objective = tw.Objective(network, tw.Regression(x, x[:, :1]))
        start = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(0))
        with pytest.raises(tw.InputError, match="has kinks"):
            tw.flow(objective, start, time=1.0, modified=1, learning_rate=0.1)
