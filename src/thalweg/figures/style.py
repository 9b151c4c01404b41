"""How all pictures look."""

from typing import Any

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
