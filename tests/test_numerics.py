"""What is shared by many places: bisection, the phi functions, threads of linear algebra."""

from math import factorial, sqrt

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - brings a library with threads of its own
from threadpoolctl import threadpool_info

from thalweg._bisection import bisected, bisected_in_lanes
from thalweg._phi import first_phis, phi_one
from thalweg._threads import one_blas_thread


def test_bisection_finds_where_a_condition_ends():
    found = bisected(lambda x: x * x < 2, 0.0, 2.0, halvings=60)
    assert found == pytest.approx(sqrt(2), rel=1e-15)
    assert found * found < 2  # the side on which it holds
    assert bisected(lambda x: True, 0.0, 1.0, halvings=60) == pytest.approx(1.0)
    assert bisected(lambda x: False, 0.5, 1.0, halvings=60) == 0.5


def test_bisection_in_lanes_is_that_of_each_number_alone():
    ends = np.array([0.3, 2.0, 3.9])
    low, high = bisected_in_lanes(
        lambda x: x * x < jnp.asarray(ends), jnp.zeros(3), jnp.full(3, 4.0), halvings=30
    )
    for lane, end in enumerate(ends):
        alone = bisected(lambda x, end=end: x * x < end, 0.0, 4.0, halvings=30)
        assert float(low[lane]) == alone
    np.testing.assert_allclose(high - low, 4.0 / 2**30, rtol=1e-12)


def phi_exactly(order: int, x: float) -> float:
    """By the recursion, in fifty digits: it loses at most 3 * 10 of them at x = 1e-10."""
    with mpmath.workdps(50):
        value, z = mpmath.exp(x), mpmath.mpf(x)
        for lower in range(order):
            value = (value - mpmath.mpf(1) / factorial(lower)) / z
        return float(value)


@pytest.mark.parametrize("x", [1e-10, 1e-3, 0.3, 0.5, 0.7, 4.0, 90.0])
def test_phi_functions_are_those_of_many_digits(x):
    """A few units of rounding; (e^x - 1 - x - x^2 / 2) / x^3 loses 7 bits at x = 1 / 2."""
    for order, value in enumerate(first_phis(jnp.asarray(x)), 1):
        np.testing.assert_allclose(value, phi_exactly(order, x), rtol=2e-14)
    for z in (x, -x):
        np.testing.assert_allclose(phi_one(jnp.asarray(z)), phi_exactly(1, z), rtol=1e-15)


def test_phi_one_at_zero_is_one():
    np.testing.assert_array_equal(phi_one(jnp.zeros(2)), 1.0)


def test_linear_algebra_has_one_thread_within():
    def threads() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    before = threads()
    with one_blas_thread():
        assert threads() == {1}
    assert threads() == before
