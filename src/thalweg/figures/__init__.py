"""Pictures, drawn from stored results alone, so that each can be drawn again without a run."""

import matplotlib

matplotlib.use("Agg")  # files, not windows; before pyplot is imported

from thalweg.figures.critical import critical_rates as critical_rates
from thalweg.figures.overview import overview as overview
from thalweg.figures.phase import phase_map as phase_map
from thalweg.figures.style import PALETTE as PALETTE
from thalweg.figures.style import STYLE as STYLE
from thalweg.figures.style import plain_log_ticks as plain_log_ticks
