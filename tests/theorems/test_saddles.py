"""Saddles that curve down as sharply as asked: exact forms, eigenvalues, and what they need."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import strategies
import thalweg as tw
from thalweg.adversarial import rescaled_saddle
from thalweg.certificates import Verdict
from thalweg.curvature import region_form, smallest_eigenvalue
from thalweg.network import Convolution, Dense, SharedNetwork
from thalweg.theorems.landscape.saddles import (
    RescaledSaddle,
    SharpSaddle,
    WantedCurvature,
    rescaled_form,
)

few = settings(max_examples=max(5, settings.default.max_examples // 3))

LINEAR = tw.Objective(tw.LinearNetwork([2, 2, 2, 1]), tw.TargetMatrix([1.0, 0.0]))
LEAKY = tw.Objective(
    tw.HomogeneousNetwork([2, 2, 2, 1], (1.0, 0.2)),
    tw.Regression([[1.0, 2.0], [1.0, -2.0]], [1.0, -1.0]),
)
CONVOLUTION = SharedNetwork([Convolution(1, 2, (1, 2), (1, 3)), Dense(4, 3), Dense(3, 2)])


@pytest.mark.statement("elkabetz2021:prop6", "holds")
@pytest.mark.statement("elkabetz2021:prop6", "tight")
@few
@given(seed=st.integers(0, 2**31 - 1), curvature=st.floats(1e-2, 1e6))
def test_sharp_saddles_curve_exactly_as_asked(seed, curvature):
    """Two of the conclusions are both sides of an equality."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((6, 3)), random.standard_normal((6, 2))
    network = tw.LinearNetwork([3, 2, 4, 3], random.standard_normal((3, 2)))
    objective = tw.Objective(network, tw.Regression(x, y, scale=1.0))
    certificate = SharpSaddle().check(WantedCurvature(objective, curvature))
    assert certificate.verdict is Verdict.CONFIRMED, certificate


@pytest.mark.statement("elkabetz2021:prop6", "tight")
def test_the_sharp_saddle_of_the_small_example():
    """The form is -20, and no eigenvalue is below the -10 that was asked for."""
    certificate = SharpSaddle().check(WantedCurvature(LINEAR, 10.0))
    form, _, least = certificate.conclusions
    assert form.lesser == form.greater == -20
    np.testing.assert_allclose(least.lesser, -10, rtol=1e-14)  # of a matrix of numbers up to ten


@pytest.mark.statement("elkabetz2021:prop6", "fails")
@pytest.mark.parametrize(
    ("network", "problem", "margin"),
    [
        (tw.LinearNetwork([2, 2, 1]), tw.TargetMatrix([1.0, 0.0]), -1),
        (
            tw.LinearNetwork([2, 2, 2, 1]),
            tw.Regression(np.zeros((1, 2)), [1.0]),
            -2.2250738585e-308,
        ),
        # Zero itself is the minimiser: no slope there, though everywhere else.
        (tw.LinearNetwork([2, 2, 2, 1]), tw.TargetMatrix([0.0, 0.0]), -2.2250738585e-308),
        (tw.HomogeneousNetwork([2, 2, 2, 1]), tw.TargetMatrix([1.0, 0.0]), -1),
    ],
    ids=["two layers", "no inputs", "no slope", "not linear"],
)
def test_sharp_saddles_need_depth_and_a_slope(network, problem, margin):
    certificate = SharpSaddle().check(WantedCurvature(tw.Objective(network, problem), 1.0))
    assert certificate.verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(certificate.first_failure.margin, margin, rtol=1e-9)


@pytest.mark.statement("elkabetz2021:prop10", "holds")
@pytest.mark.statement("elkabetz2021:prop22", "holds")
@pytest.mark.parametrize(
    "network",
    [tw.HomogeneousNetwork([3, 4, 3, 2], (1.0, 0.1)), CONVOLUTION],
    ids=["full matrices", "convolution"],
)
@few
@given(seed=st.integers(0, 2**31 - 1), curvature=st.floats(0.1, 1e4))
def test_rescaled_saddles_curve_down_as_asked(network, seed, curvature):
    random = np.random.default_rng(seed)
    problem = tw.Classification(random.standard_normal((8, 3)), random.integers(0, 2, 8), classes=2)
    weights = strategies.gaussians(network.shapes, 1.0, random)
    wanted = WantedCurvature(tw.Objective(network, problem), curvature, weights)
    certificate = RescaledSaddle().check(wanted)
    if certificate.applies:  # a network of which all units are dead on all samples is none
        assert certificate.verdict is Verdict.CONFIRMED, certificate
    else:
        assert certificate.first_failure.statement.startswith("rounding")


@pytest.mark.statement("elkabetz2021:prop10", "tight")
@pytest.mark.statement("elkabetz2021:prop22", "tight")
@pytest.mark.parametrize(
    ("factor", "form", "eigenvalue"),
    [(10.0, -30.529808, -18.05772832), (100.0, -307.99729808, -181.10717232)],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_rescaled_saddle_of_the_small_example(factor, form, eigenvalue, sign):
    """Numbers from elsewhere; the same from weights whose last layer must be flipped.

    The direction finds two thirds of the least eigenvalue: with |d|^2 = 5/2 it has -12.2 of -18.1.
    """
    weights = oracles.elkabetz_weights()
    weights = (*weights[:-1], sign * weights[-1])
    shared = SharedNetwork([Dense(2, 2), Dense(2, 2), Dense(2, 1)], (1.0, 0.2))
    for objective in (LEAKY, tw.Objective(shared, LEAKY.problem)):
        np.testing.assert_allclose(rescaled_form(objective, weights, factor), form, rtol=1e-9)
        saddle = rescaled_saddle(objective.network, objective.problem, weights, factor)
        np.testing.assert_allclose(region_form(objective, *saddle), form, rtol=1e-9)
        found = smallest_eigenvalue(objective, saddle.weights)
        np.testing.assert_allclose(found.value, eigenvalue, rtol=1e-9)
        assert 1.4 < found.value / (form / 2.5) < 1.5


@pytest.mark.statement("elkabetz2021:prop10", "value")
def test_the_factor_is_the_first_power_of_two():
    """The closed form at every power up to 2^12; |d|^2 does not change with it.

    Targets as large as a hundred make the first power, one, enough.
    """
    weights = oracles.elkabetz_weights()
    length = sum(float(np.sum(np.asarray(layer) ** 2)) for layer in weights[:2])
    steep = tw.Objective(LEAKY.network, tw.Regression(LEAKY.problem.inputs, [100.0, -100.0]))
    for objective, curvature in ((LEAKY, 0.5), (LEAKY, 100.0), (steep, 0.5), (steep, 100.0)):
        quotients = [float(rescaled_form(objective, weights, 2.0**k)) / length for k in range(13)]
        enough = [2.0**k for k, quotient in enumerate(quotients) if quotient <= -curvature]
        found = RescaledSaddle().factor(WantedCurvature(objective, curvature, weights))
        assert found == min(enough), curvature
    assert RescaledSaddle().factor(WantedCurvature(steep, 0.5, weights)) == 1


@pytest.mark.statement("elkabetz2021:prop10", "fails")
@pytest.mark.statement("elkabetz2021:prop22", "fails")
@pytest.mark.parametrize("shared", [False, True], ids=["full matrices", "shared"])
def test_rescaled_saddles_need_depth_and_a_slope(shared):
    weights = oracles.elkabetz_weights()

    def check(network, problem, weights):
        wanted = WantedCurvature(tw.Objective(network, problem), 1.0, weights)
        certificate = RescaledSaddle().check(wanted)
        assert certificate.verdict is Verdict.NOT_APPLICABLE
        return certificate.first_failure

    def network(*widths):
        if not shared:
            return tw.HomogeneousNetwork(widths, (1.0, 0.2))
        layers = [Dense(*pair) for pair in pairwise(widths)]
        return SharedNetwork(layers, (1.0, 0.2))

    shallow = check(network(2, 2, 1), LEAKY.problem, (weights[0], weights[2]))
    assert (shallow.statement, shallow.margin) == ("3 <= N", -1)
    # With targets of zero the loss has no slope at zero output, whatever the weights.
    flat = check(network(2, 2, 2, 1), tw.Regression(LEAKY.problem.inputs, [0.0, 0.0]), weights)
    assert flat.statement.startswith("rounding")
    assert flat.margin < 0
    kink = check(network(2, 2, 2, 1), LEAKY.problem, (0 * weights[0], *weights[1:]))
    assert kink.statement.startswith("no pre-activation")


def test_rescaled_saddles_exist_for_linear_networks_and_not_for_others():
    linear = WantedCurvature(LINEAR, 50.0, oracles.elkabetz_weights())
    assert RescaledSaddle().check(linear).verdict is Verdict.CONFIRMED
    bend = tw.Model(lambda w, x: jnp.tanh(x @ w[0].T), [(1, 2)], 2, 1)
    other = WantedCurvature(tw.Objective(bend, LEAKY.problem), 1.0, (jnp.ones((1, 2)),))
    assert RescaledSaddle().check(other).verdict is Verdict.NOT_APPLICABLE
