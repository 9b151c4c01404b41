"""Pictures, drawn from stored results alone, so that each can be drawn again without a run."""

from thalweg.figures.critical import critical_rates
from thalweg.figures.overview import overview
from thalweg.figures.phase import phase_map
from thalweg.figures.style import PALETTE, STYLE, plain_log_ticks

__all__ = [
    "PALETTE",
    "STYLE",
    "critical_rates",
    "overview",
    "phase_map",
    "plain_log_ticks",
]


def __dir__() -> list[str]:
    return __all__
