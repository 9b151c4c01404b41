"""Parts of sentences: numbers, lists, and what each learning rate has come to."""

from collections.abc import Iterable
from math import isfinite

import xarray as xr


def number(value: float, digits: int = 3) -> str:
    """A few digits; an exponent only where zeros would have to be counted."""
    if not isfinite(value):
        return str(float(value))
    if value != 0 and not 1e-4 <= abs(value) < 1e5:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa}e{int(power)}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.0f}"


def rates_of(rates: Iterable[float]) -> str:
    """Learning rates, as part of a sentence."""
    return "η = " + joined([f"{rate:g}" for rate in rates])


def by_rate(values: Iterable[tuple[float, str]]) -> str:
    """What each learning rate has come to; said once where all have come to the same."""
    pairs = list(values)
    if len(pairs) > 1 and len({text for _, text in pairs}) == 1:
        return f"{pairs[0][1]} at every learning rate"
    return joined([f"{text} at η = {rate:g}" for rate, text in pairs])


def joined(parts: list[str]) -> str:
    """A list in words."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def count(number: int, noun: str) -> str:
    """How many there are of something."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def each_run(results: xr.Dataset) -> Iterable[tuple[float, xr.Dataset]]:
    """Learning rate and records of every run."""
    for number, rate in enumerate(results.learning_rate.values):
        run = results.isel(learning_rate=number)
        yield float(rate), run.isel(record=run.time.notnull().values)


def doubt(results: xr.Dataset, distance: float) -> str:
    """How well the flow itself is known, where a distance to it is not far above that."""
    error = float(results.flow_error.max()) if "flow_error" in results else 0.0
    known = error <= 0.01 * distance
    return "" if known else f" (the flow itself is known to about {number(error, 2)})"
