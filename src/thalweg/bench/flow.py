"""Gradient evaluations of the flow."""

from collections.abc import Callable

from thalweg.bench.comparison import Comparison

BENCHMARKS: dict[str, Callable[[], Comparison]] = {}
