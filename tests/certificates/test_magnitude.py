from fractions import Fraction
from math import exp, inf, isclose, isnan, log, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg import InputError
from thalweg.certificates import Magnitude
from thalweg.certificates.magnitude import readable

positive = st.floats(1e-100, 1e100)


@given(positive, positive, st.floats(-3, 3))
def test_arithmetic_agrees_with_floating_point_where_that_reaches(a, b, power):
    """rtol 1e-12: a logarithm of size 230 has 5e-14 of rounding, which the exponential keeps."""
    x, y = Magnitude.of(a), Magnitude.of(b)
    assert isclose(float(x * y), a * b, rel_tol=1e-12)
    assert isclose(float(x / y), a / b, rel_tol=1e-12)
    assert isclose(float(x + y), a + b, rel_tol=1e-12)
    assert isclose(float(3 / x), 3 / a, rel_tol=1e-12)
    assert isclose(float(1 + x), 1 + a, rel_tol=1e-12)
    assert isclose(float(x**power), a**power, rel_tol=1e-11)
    assert (x < y) == (a < b)
    assert (x <= b) == (a <= b)
    assert (x > y) == (a > b)
    assert (x >= b) == (a >= b)


@pytest.mark.parametrize("exponent", [-43429, -901, -308, 45, 999, 10**6])
def test_any_exponent_is_printed(exponent):
    number = Magnitude(exponent * log(10) + log(2.5))
    assert readable(number) in (
        f"2.50e{exponent:+d}",
        f"{2.5 * 10.0**exponent:.3g}" if abs(exponent) < 300 else "",
    )


def test_a_mantissa_that_rounds_up_carries_over():
    assert readable(Magnitude(log(9.999) - 1000 * log(10))) == "1.00e-999"


def test_zero_infinity_and_nan():
    zero = Magnitude.of(0.0)
    assert float(zero) == 0
    assert zero == 0.0
    assert float(zero + 3) == pytest.approx(3)
    assert float(zero**0) == 1  # as in the exponents 2 - 2/N at N = 1
    assert float(1 / zero) == inf
    assert isnan(float(zero * Magnitude(inf)))
    assert isnan(float(Magnitude.of(nan)))
    assert not Magnitude.of(nan) <= 1
    assert not Magnitude.of(nan) >= 1
    assert str(Magnitude(1e30)) == "10^4.34e+29"


def test_powers_of_small_numbers_keep_their_digits():
    exact = Fraction(1, 10) ** 900 / 7
    number = Magnitude.of(0.1) ** 900 / 7
    assert number.log10 == pytest.approx(-900 - log(7) / log(10), abs=1e-11)
    assert exact > 0
    assert float(Magnitude.exp(-3)) == pytest.approx(exp(-3))


def test_a_negative_number_is_refused():
    with pytest.raises(InputError, match="must not be negative, got -1"):
        Magnitude.of(-1.0)
