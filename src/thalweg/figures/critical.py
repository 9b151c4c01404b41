"""The largest learning rate that trains, over depth or scale, with what theory says about it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from thalweg._checks import InputError
from thalweg.figures.style import PALETTE, STYLE

Found = Mapping[str, Any]
"""A depth and a scale, and what `CriticalLearningRate.to_dict` says there."""

_FLATTEST = "2 / least sharpness"
_NEAR_IT = ("2 / sharper bound", "2 / S0")  # all but equal for deep networks
_SAME = 0.02
_LINES = {
    "2 / S_min": (PALETTE[3], (0, (1, 1.2))),
    _FLATTEST: (PALETTE[2], "-"),
    "2 / sharper bound": (PALETTE[5], (0, (5, 5))),
    "2 / S0": ("0.3", (5, (5, 5))),
    "2 / small-start bound": (PALETTE[4], (0, (3, 1.2, 1, 1.2))),
    "2 / sharpness of the limit": (PALETTE[1], "-"),
    "2 / sharpness at the start": (PALETTE[0], "-"),
    "arora2019:thm1": ("0.5", (0, (1, 1.2))),
    "arora2019:cor-cert2": ("0.5", "-"),
}
_MARKERS = (("o", "0.1"), ("s", "0.55"), ("^", "0.75"))


def critical_rates(panels: Mapping[str, Sequence[Found]], along: str = "depth") -> Figure:
    """Learning rate x depth: what falls like 1 / depth is level.

    Args:
        panels: what was found, under the title of the panel that it belongs to. Measurements with
            different criteria are drawn apart.
        along: what is varied, "depth" or "scale".
    """
    if not panels or not all(panels.values()):
        raise InputError("`panels` must hold at least one measurement each.")
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(panels), figsize=(1.4 + 4.1 * len(panels), 4.9), sharey=True, squeeze=False,
            layout="constrained",
        )  # fmt: skip
        shown = _range(found for panel in panels.values() for found in panel)
        for place, (title, found) in zip(axes[0], panels.items(), strict=True):
            _draw_measured(place, found, along)
            _draw_predictions(place, found, along, shown)
            _finish(place, title, found, along)
        axes[0, 0].set_ylim(*shown)
        axes[0, 0].set_ylabel(r"learning rate $\times$ depth")
        handles: dict[str, Any] = {}
        for place in axes[0]:
            handles |= dict(zip(*reversed(place.get_legend_handles_labels()), strict=True))
        labels = sorted(handles, key=lambda label: not label.startswith("measured"))
        figure.legend(
            [handles[label] for label in labels], labels, loc="outside lower center", fontsize=8.5,
            ncols=2 if len(panels) > 1 else 1, handlelength=2.4,
            title="points: the middle start, bars: all starts", title_fontsize=8.5,
        )  # fmt: skip
    return figure


def _draw_predictions(
    axes: Axes, found: Sequence[Found], along: str, shown: tuple[float, float]
) -> None:
    """Those that come into the range that is shown."""
    lines = {name: _line(found, name, along) for name in _LINES}
    flattest = lines[_FLATTEST]
    same = [name for name in _NEAR_IT if _agree(lines[name], flattest)]
    for name, line in lines.items():
        if _is_seen(line, shown) and name not in same:
            colour, dashes = _LINES[name]
            places = sorted(line)
            also = f" (also {', '.join(same)})" if name == _FLATTEST and same else ""
            axes.plot(
                places, [line[place] for place in places], color=colour, linestyle=dashes,
                marker="" if len(places) > 1 else "_", label=name + also,
            )  # fmt: skip


def _is_seen(line: dict[float, float], shown: tuple[float, float]) -> bool:
    """Whether a line, with its points joined, comes into the range."""
    return bool(line) and min(line.values()) < shown[1] and max(line.values()) > shown[0]


def _agree(one: dict[float, float], other: dict[float, float]) -> bool:
    """Whether two lines are known at the same places, and are one to the eye."""
    return one.keys() == other.keys() and all(abs(one[x] / other[x] - 1) < _SAME for x in one)


def _line(found: Sequence[Found], name: str, along: str) -> dict[float, float]:
    """A prediction, times the depth, where it is known."""
    return {
        float(each[along]): prediction["rate"] * each["depth"]
        for each in found
        for prediction in each["predictions"]
        if prediction["name"] == name and prediction["rate"]
    }


def _draw_measured(axes: Axes, found: Sequence[Found], along: str) -> None:
    criteria = list(dict.fromkeys(each["criterion"] for each in found))
    for number, criterion in enumerate(criteria):
        marker, colour = _MARKERS[number % len(_MARKERS)]
        own = [each for each in found if each["criterion"] == criterion and each["lower"] > 0]
        own = [each for each in own if each["upper"] is not None]
        if not own:
            continue
        depths, places = (np.array([each[name] for each in own]) for name in ("depth", along))
        middle = np.array([np.sqrt(each["lower"] * each["upper"]) for each in own]) * depths
        low = np.array([min(each["lowers"]) for each in own]) * depths
        high = np.array([max(u or 0.0 for u in each["uppers"]) for each in own]) * depths
        axes.errorbar(
            places * 1.035**number, middle, np.maximum([middle - low, high - middle], 0),
            fmt=marker, color=colour, markersize=5, capsize=2.5, linewidth=1.1, zorder=5 - number,
            label=f"measured: {criterion}",
        )  # fmt: skip


def _range(found: Iterable[Found]) -> tuple[float, float]:
    """Around what was measured; predictions may be many orders away."""
    known = [each for each in found if each["lower"] > 0 and each["upper"] is not None]
    middle = [each["depth"] * each["lower"] for each in known] or [1.0]
    return min(middle) / 5, max(middle) * 3


def _finish(axes: Axes, title: str, found: Sequence[Found], along: str) -> None:
    axes.set_title(title)
    axes.set_xscale("log")
    axes.set_yscale("log")
    places = sorted({each[along] for each in found})
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_xlabel({"depth": "depth", "scale": "scale of the start"}[along])
    axes.set_xlim(places[0] / 1.15, places[-1] * 1.15)
