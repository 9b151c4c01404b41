"""An optimiser of your own: RMSProp from optax, wherever descent is run."""

import jax
import numpy as np
import optax
import pytest

import thalweg as tw

x, y, _ = tw.data.gaussian_regression(jax.random.key(0), samples=50, features=5)
network = tw.LinearNetwork([5, 5, 1])
objective = tw.Objective(network, tw.Regression(x, y))
weights = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(1))

# The transformation alone: the learning rate is given to `descend`, which may be given many.
rmsprop = optax.scale_by_rms(decay=0.9, eps=1e-8)


def test_descend():
    rates = np.array([0.001, 0.003])
    run = tw.descend(objective, weights, learning_rate=rates, steps=20, optimiser=rmsprop)
    for place, rate in enumerate(rates):
        # The same by hand: v <- 0.9 v + 0.1 g^2, and w <- w - rate g / sqrt(v + 1e-8).
        point, squares = weights, [np.zeros(shape) for shape in network.shapes]
        for _ in range(20):
            gradient = objective.gradient(point)
            squares = [0.9 * v + 0.1 * g**2 for v, g in zip(squares, gradient, strict=True)]
            steps = [g / np.sqrt(v + 1e-8) for g, v in zip(gradient, squares, strict=True)]
            point = tuple(w - rate * step for w, step in zip(point, steps, strict=True))
        for found, expected in zip(run.final, point, strict=True):
            np.testing.assert_allclose(found[place], expected, rtol=1e-12)


def test_critical_learning_rate():
    found = tw.critical_learning_rate(
        objective, weights, steps=300, share=0.05, precision=0.1, optimiser=rmsprop
    )
    assert 0 < found.lower < found.upper < np.inf
    assert found.predictions == ()  # theory predicts the critical rate of plain descent


def test_what_is_about_plain_descent_says_so():
    run = tw.descend(objective, weights, learning_rate=0.001, steps=50, optimiser=rmsprop)
    with pytest.raises(tw.InputError, match="`tube` is about plain gradient descent"):
        tw.tube(run)
    with pytest.raises(tw.InputError, match="Every theorem is about plain gradient descent"):
        tw.certify(objective, weights, learning_rate=0.001, run=run)


def test_a_whole_optimiser_has_two_learning_rates():
    with pytest.raises(tw.InputError, match="give its rate as `learning_rate`"):
        tw.descend(objective, weights, learning_rate=1.0, steps=50, optimiser=optax.rmsprop(0.001))
