"""How all pictures look."""

from typing import Any

from matplotlib.axis import Axis
from matplotlib.ticker import LogLocator, NullFormatter

STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "figure.dpi": 110,
    "savefig.dpi": 160,
}
# Four hues that stay apart for colour-blind readers (Okabe and Ito), cool to warm.
PALETTE = ("#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#56B4E9")


def plain_log_ticks(*axes: Axis) -> None:
    """Label 1, 2, 5, 10, ... in plain numbers, for logarithmic axes over few decades."""
    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
