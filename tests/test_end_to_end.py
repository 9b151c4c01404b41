"""The end-to-end flow against published numbers, its definition, and the flow of the layers."""

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import initialisation
from thalweg.dynamics.end_to_end import (
    end_to_end_flow,
    norm_and_cosine_field,
    norm_and_cosine_flow,
    preconditioned,
    preconditioner_spectrum,
)
from thalweg.dynamics.exact import one_output

MATRIX = np.array([[np.sin(1 + i + 2 * j) + (i == j) for j in range(3)] for i in range(2)])
TARGET = np.array([[np.cos(1 + 2 * i + j) for j in range(3)] for i in range(2)])


def power(square, exponent):
    """A power of a symmetric positive matrix; power 0 is the identity, also on the null space."""
    values, vectors = np.linalg.eigh(square)
    values = np.where(values > 1e-12 * values.max(), values, 0.0)  # rounding of a zero
    return (vectors * values**exponent) @ vectors.T


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (3, 3), (1, 4)])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("rank", [1, 3])
def test_preconditioned_is_the_sum_of_products(shape, depth, rank):
    """Oracle: the definition with matrix powers, on matrices of full and of deficient rank."""
    rng = np.random.default_rng(depth)
    matrix = rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, shape[1]))
    direction = rng.normal(size=shape)
    expected = sum(
        power(matrix @ matrix.T, (depth - j) / depth)
        @ direction
        @ power(matrix.T @ matrix, (j - 1) / depth)
        for j in range(1, depth + 1)
    )
    found = preconditioned(jnp.asarray(matrix), jnp.asarray(direction), depth)
    # Rounding; a null singular value of 1e-16 enters with a power of at least 1/2.
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_preconditioned_is_the_motion_of_the_product(depth):
    """Oracle: the chain rule with the layers of a balanced network."""
    network = tw.LinearNetwork([3, *[4] * (depth - 1), 2])
    problem = tw.TargetMatrix(TARGET)
    weights = initialisation.balanced_from(network, MATRIX)
    slopes = tw.Objective(network, problem).gradient(weights)
    motion = sum(
        network.end_to_end((*weights[:j], slopes[j], *weights[j + 1 :])) for j in range(depth)
    )
    found = preconditioned(jnp.asarray(MATRIX), problem.gradient(jnp.asarray(MATRIX)), depth)
    np.testing.assert_allclose(found, motion, atol=1e-13)  # rounding of products of order 10


def test_preconditioner_has_the_published_spectrum():
    """Oracle: arora2019:eq11."""
    published = [
        0.13751330600998637, 0.41253991802995915, 3.0182011695213435, 3.7999526465706492,
        3.7999526465706492, 9.054603508564032,
    ]  # fmt: skip
    found = preconditioner_spectrum(jnp.asarray(MATRIX), 3)
    np.testing.assert_allclose(found, published, rtol=1e-13)  # rounding


def test_flow_of_the_product_has_the_published_values():
    """Oracle: arora2019:eq11, time 1."""
    published = [
        [0.808370575714, -0.170729484105, -0.883350008379],
        [-0.340103700443, 0.116326138845, 0.443692748618],
    ]
    tight = {"rtol": 1e-12, "atol": 1e-14}
    found = end_to_end_flow(tw.TargetMatrix(TARGET), MATRIX, 3, [0.0, 1.0], **tight)
    np.testing.assert_array_equal(found[0], MATRIX)
    np.testing.assert_allclose(found[1], published, rtol=0, atol=2e-12)  # twelve decimals given


def test_norm_and_cosine_follow_the_closed_form():
    times = np.linspace(0.0, 5.0, 7)
    target, start = np.array([0.0, 1.5]), np.array([0.3, -0.1])
    vectors = one_output(start, target, 4, times)
    norms = np.linalg.norm(vectors, axis=1)
    expected = np.stack([norms, vectors @ target / norms / 1.5], axis=1)
    found = norm_and_cosine_flow(
        norms[0], expected[0, 1], 4, times, target_norm=1.5, rtol=1e-11, atol=1e-13
    )
    # a tolerance of 1e-11 a step over some dozens of steps
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_norm_and_cosine_are_those_of_the_flow_of_the_product():
    """Oracle: the same motion in two ways, differentiated by hand."""
    w, target, depth = np.array([0.3, -0.1, 0.2]), np.array([0.0, 1.2, 0.5]), 3
    motion = -np.asarray(
        preconditioned(jnp.asarray(w[None]), jnp.asarray((w - target)[None]), depth)
    ).ravel()
    norm, size = np.linalg.norm(w), np.linalg.norm(target)
    cosine = w @ target / norm / size
    grows = w @ motion / norm
    turns = (motion @ target / size - cosine * grows) / norm
    found = norm_and_cosine_field(jnp.array([norm, cosine]), jnp.asarray(size), depth)
    np.testing.assert_allclose(found, [grows, turns], rtol=1e-13)  # rounding


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: end_to_end_flow(tw.TargetMatrix(TARGET), MATRIX.T, 3, [1.0]),
            "outputs x features",
        ),
        (lambda: end_to_end_flow(tw.TargetMatrix(TARGET), MATRIX, 0, [1.0]), "`depth` must be"),
        (lambda: end_to_end_flow(tw.TargetMatrix(TARGET), MATRIX, 3, [1.0, 0.5]), "increasing"),
        (lambda: end_to_end_flow(tw.TargetMatrix(TARGET), MATRIX, 3, [-1.0]), "negative"),
        (lambda: end_to_end_flow(tw.TargetMatrix(TARGET), MATRIX, 3, [-1.0, 2.0]), "negative, got"),
        (lambda: norm_and_cosine_flow(0.1, 1.5, 3, [1.0]), "`cosine` must lie between -1 and 1"),
        (lambda: norm_and_cosine_flow(0.0, 0.5, 3, [1.0]), "`norm` must be positive"),
        (
            lambda: norm_and_cosine_flow(0.1, 0.5, 3, [1e7]),
            "`times` reach further than",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(tw.InputError, match=message):
        call()
