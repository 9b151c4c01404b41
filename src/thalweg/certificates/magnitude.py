"""Non-negative numbers kept by their logarithm.

Guarantees of deep learning theory reach 1e-900 and 1e+45000. A `Magnitude` is written like a number
in formulas, with * / ** and +, compares with numbers, and prints its own exponent:

    >>> eta = Magnitude.of(0.1) ** 900 / 7
    >>> print(eta)
    1.43e-901
"""

from dataclasses import dataclass
from math import ceil, exp, floor, inf, isfinite, isnan, log, log1p, nan
from typing import SupportsFloat, Union

from thalweg._checks import InputError

Number = Union["Magnitude", SupportsFloat]


@dataclass(frozen=True, eq=False)
class Magnitude:
    """A non-negative number, by its natural logarithm; zero is the logarithm -inf."""

    log: float

    @classmethod
    def of(cls, number: Number) -> "Magnitude":
        """The magnitude of a number that is not negative."""
        if isinstance(number, Magnitude):
            return number
        value = float(number)
        if value < 0:
            raise InputError(f"A magnitude must not be negative, got {value:g}.")
        return cls(log(value) if value > 0 else (value if isnan(value) else -inf))

    @classmethod
    def exp(cls, exponent: SupportsFloat) -> "Magnitude":
        """E to a power that may be far outside of what floating point reaches."""
        return cls(float(exponent))

    def __mul__(self, other: Number) -> "Magnitude":
        return Magnitude(_finite_sum(self.log, Magnitude.of(other).log))

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> "Magnitude":
        return Magnitude(_finite_sum(self.log, -Magnitude.of(other).log))

    def __rtruediv__(self, other: Number) -> "Magnitude":
        return Magnitude.of(other) / self

    def __pow__(self, power: SupportsFloat) -> "Magnitude":
        return Magnitude(0.0 if power == 0 else float(power) * self.log)  # 0 ** 0 = 1

    def __add__(self, other: Number) -> "Magnitude":
        low, high = sorted((self.log, Magnitude.of(other).log))
        if isnan(low) or isnan(high):
            return Magnitude(nan)
        return Magnitude(high if low == -inf or high == inf else high + log1p(exp(low - high)))

    __radd__ = __add__

    def __lt__(self, other: Number) -> bool:
        return self.log < Magnitude.of(other).log

    def __le__(self, other: Number) -> bool:
        return self.log <= Magnitude.of(other).log

    def __gt__(self, other: Number) -> bool:
        return self.log > Magnitude.of(other).log

    def __ge__(self, other: Number) -> bool:
        return self.log >= Magnitude.of(other).log

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Magnitude | SupportsFloat) and self.log == Magnitude.of(other).log

    def __hash__(self) -> int:
        return hash(self.log)

    def __float__(self) -> float:
        """The number itself; zero or infinity where floating point does not reach."""
        return exp(self.log) if self.log < 709.7 else (nan if isnan(self.log) else inf)

    @property
    def log10(self) -> float:
        """The decimal logarithm."""
        return self.log / log(10)

    def __str__(self) -> str:
        return readable(self)


def readable(number: Number, digits: int = 3) -> str:
    """The number with a few digits, and an exponent of any size."""
    if not isinstance(number, Magnitude):
        return f"{float(number):.{digits}g}"
    if isnan(number.log) or abs(number.log) == inf or abs(number.log) < 600:
        return f"{float(number):.{digits}g}"
    if abs(number.log10) > 1e12:  # a mantissa would be noise
        return f"10^{number.log10:.{digits}g}"
    power = floor(number.log10)
    mantissa = f"{10 ** (number.log10 - power):.{digits - 1}f}"
    if float(mantissa) == 10:  # rounded up
        mantissa, power = f"{1:.{digits - 1}f}", power + 1
    return f"{mantissa}e{power:+d}"


def whole(count: Magnitude) -> Number:
    """The next whole number, while floating point can tell."""
    return float(ceil(float(count))) if count < 2**53 else count


def plain_number(number: Number) -> float | str | None:
    """A number that JSON can hold: as text beyond floating point, null where it is none."""
    value = float(number)
    if isinstance(number, Magnitude) and (value == 0 or not isfinite(value)):
        return readable(number)
    return value if isfinite(value) else (None if value != value else str(value))


def _finite_sum(first: float, second: float) -> float:
    """The sum of two logarithms, in which zero wins over infinity: 0 * inf is not a number."""
    return nan if {first, second} == {inf, -inf} else first + second
