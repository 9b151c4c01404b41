"""Pictures of what is in memory: a run, a flow, both compared, a probe; and what notebooks show.

`plot` draws on matplotlib's axes; `html` is a table of a few rows beside the same picture.
"""

import base64
import io
from collections.abc import Mapping
from functools import singledispatch
from html import escape
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thalweg._checks import InputError, described
from thalweg.dynamics import AbstractFlow, Comparison, Descent
from thalweg.figures.curves import EDGE_LINE, FLOW_LABEL, FLOW_LINE, edge_label, line, log_axis
from thalweg.figures.style import PALETTE, STYLE
from thalweg.probes import Probe

Panels = tuple[Axes, ...]

_TIME = r"time  $t$ = learning rate $\times$ step"
_MOST = 6  # curves that a legend tells apart
_ERROR: dict[str, Any] = {"alpha": 0.25, "linewidth": 0}


def plot(result: Any, axes: Any = None) -> Any:
    """Draw a result; its axes, a tuple of them where there are several."""
    with plt.rc_context(STYLE):
        panels = _panels(result, axes)
        draw(result, panels)
    return panels[0] if len(panels) == 1 else panels


def html(result: Any) -> str:
    """What a notebook shows: a small table, and the picture."""
    with plt.rc_context(STYLE):
        count = _count(result)
        figure = Figure(figsize=(5.6, 0.6 + 1.9 * count), layout="constrained")
        draw(result, tuple(np.atleast_1d(figure.subplots(count, 1, sharex=True))))
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=110)
    told = base64.b64encode(picture.getvalue()).decode()
    alt = f"{type(result).__name__}: {', '.join(rows_of(result))}"
    return (
        f"{table(type(result).__name__, rows_of(result))}"
        f'<img alt="{escape(alt)}" style="max-width:100%;background:#fff" '
        f'src="data:image/png;base64,{told}">'
    )


def table(title: str, rows: Mapping[str, str]) -> str:
    """Names and values, one below the other."""
    cells = "".join(
        f'<tr><td style="text-align:left">{escape(name)}</td>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table><caption><b>{escape(title)}</b></caption>{cells}</table>"


def _panels(result: Any, axes: Any) -> Panels:
    count = _count(result)
    if axes is None:
        _, found = plt.subplots(
            count, 1, figsize=(6.4, 0.8 + 2.3 * count), sharex=True, layout="constrained"
        )
        return tuple(np.atleast_1d(found))
    given = tuple(np.atleast_1d(axes))
    if len(given) != count or not all(isinstance(each, Axes) for each in given):
        raise InputError(f"`axes` must be {count} of matplotlib's axes, got {described(axes)}.")
    return given


# --- one kind after the other --------------------------------------------------------------------


@singledispatch
def draw(result: Any, panels: Panels) -> None:
    """Draw it on so many axes."""
    raise InputError(f"There must be a picture of it, got {described(result)}.")


@singledispatch
def rows_of(result: Any) -> dict[str, str]:
    """What the table says."""
    raise InputError(f"There must be a table of it, got {described(result)}.")


def _count(result: Any) -> int:
    """How many axes it needs."""
    return {Comparison: 2, Probe: 3}.get(type(result), 2 if isinstance(result, AbstractFlow) else 1)


@draw.register
def _(run: Descent, panels: Panels) -> None:
    _draw_runs(panels[0], run)
    panels[0].set(title="Gradient descent", xlabel=_TIME)


@rows_of.register
def _(run: Descent) -> dict[str, str]:
    rates, last = np.ravel(run.learning_rate), _last(run.loss)
    gone = int(np.sum(run.diverged))
    return {
        "learning rate": _between(rates),
        "steps": f"{int(run.steps[-1])}, recorded {run.steps.size} times",
        "loss": f"{_between(np.take(run.loss, 0, axis=-1))}, at the end {_between(last)}",
        **({"diverged": f"{gone} of {rates.size} runs"} if gone else {}),
    }


@draw.register
def _(flow: AbstractFlow, panels: Panels) -> None:
    upper, lower = panels
    for times, loss, error in zip(*map(_rows, (flow.times, flow.loss, flow.error)), strict=True):
        line(upper, times, loss, **FLOW_LINE)
        line(lower, times, np.where(error > 0, error, np.nan), **FLOW_LINE)
    _limit(upper, flow.loss)
    if np.any(flow.error > 0):
        lower.set_yscale("log")
    upper.set(title="Gradient flow", ylabel="loss")
    lower.set(ylabel="error of the weights", xlabel="time  $t$")


@rows_of.register
def _(flow: AbstractFlow) -> dict[str, str]:
    cost = getattr(flow, "gradient_evaluations", None)
    return {
        "time": f"{_between(np.take(flow.times, -1, axis=-1))}, recorded {flow.times.shape[-1]} "
        "times",
        "loss": f"{_between(np.take(flow.loss, 0, axis=-1))}, at the end "
        f"{_between(_last(flow.loss))}",
        "error": f"at most {np.max(flow.error):.2g}",
        "solver": flow.solver,
        **({} if cost is None else {"gradients": f"{int(np.sum(cost)):,}"}),
    }


@draw.register
def _(both: Comparison, panels: Panels) -> None:
    upper, lower = panels
    _draw_runs(upper, both.run)
    pairs = zip(*map(_rows, (both.flow.times, both.flow.loss)), strict=True)
    for number, (times, loss) in enumerate(pairs):
        style = FLOW_LINE | {"zorder": 3}
        line(upper, times, loss, label=FLOW_LABEL if number == 0 else None, **style)
    _legend(upper)
    upper.set_title("Descent next to the flow")
    values = zip(*map(_rows, (both.run.times, both.distance, both.error)), strict=True)
    for colour, (times, distance, error) in zip(_colours(both.run), values, strict=True):
        line(lower, times, np.where(distance > 0, distance, np.nan), color=colour)
        later = distance > 0
        low = np.maximum(distance - error, 1e-30)[later]
        lower.fill_between(times[later], low, (distance + error)[later], color=colour, **_ERROR)
    known = np.asarray(both.distance)[np.asarray(both.distance) > 0]
    if known.size:
        log_axis(lower, max(known.min() / 3, known.max() * 1e-8), 5 * known.max())
    lower.set(ylabel=r"distance  $|\theta_{\eta}(t) - \theta(t)|$", xlabel=_TIME)


@rows_of.register
def _(both: Comparison) -> dict[str, str]:
    last = _last(np.asarray(both.distance))
    return {
        "learning rate": _between(np.ravel(both.run.learning_rate)),
        "distance at the end": _between(last),
        "largest distance": f"{np.nanmax(np.asarray(both.distance)):.3g}",
        "error of the flow": f"at most {np.max(both.error):.2g}",
    }


@draw.register
def _(probe: Probe, panels: Panels) -> None:
    named = probe.named()
    steps, (loss, high, low) = named["step"], panels
    line(loss, steps, named["loss"], color=PALETTE[0])
    _limit(loss, named["loss"])
    loss.set(title="Along the loop", ylabel="loss over all data")
    for axes, name, colour in ((high, "sharpness", 0), (low, "smallest_eigenvalue", 3)):
        values, error = named[name], named[f"{name}_error"]
        line(axes, steps, values, color=PALETTE[colour], marker=".")
        axes.fill_between(steps, values - error, values + error, color=PALETTE[colour], **_ERROR)
    known = np.isfinite(named["edge"])
    if known.any():
        label = edge_label(float(probe.optimiser.edge(1.0)))
        high.step(
            steps[known], named["edge"][known], where="post", color="0.4", label=label, **EDGE_LINE
        )  # fmt: skip
        _legend(high)
    high.set(ylabel="sharpness")
    low.axhline(0, color="0.7", linewidth=0.8)
    low.set(ylabel="smallest eigenvalue", xlabel="step")


@rows_of.register
def _(probe: Probe) -> dict[str, str]:
    if not probe.records:
        return {"measured": "nothing yet"}
    last = probe.records[-1]
    stability, edge = float(probe.optimiser.edge(1.0)), probe.named()["edge"][-1]
    known = {} if np.isnan(edge) else {f"{stability:.4g} / learning rate": _short(edge)}
    return {
        "measured": f"{len(probe.records)} times, last at step {last.step}",
        "loss": f"{probe.records[0].loss:.4g}, last {last.loss:.4g}",
        "sharpness": f"{last.sharpness:.5g} ± {last.sharpness_error:.1g}",
        **known,
        "smallest eigenvalue": f"{last.smallest_eigenvalue:.4g} ± "
        f"{last.smallest_eigenvalue_error:.1g}",
        "matvecs": f"{sum(each.matvecs for each in probe.records)}",
    }


# --- parts ---------------------------------------------------------------------------------------


def _draw_runs(axes: Axes, run: Descent) -> None:
    rates = np.ravel(run.learning_rate)
    values = zip(*map(_rows, (run.times, run.loss)), strict=True)
    for rate, colour, (times, loss) in zip(rates, _colours(run), values, strict=True):
        line(axes, times, loss, color=colour, label=rf"$\eta$ = {rate:g}")
    settled = run.loss[~run.diverged] if run.loss.ndim > 1 and not run.diverged.all() else run.loss
    _limit(axes, settled)
    axes.set_ylabel("loss")
    _legend(axes)


def _legend(axes: Axes) -> None:
    if len(axes.get_legend_handles_labels()[1]) <= _MOST + 1:
        axes.legend(loc="best", fontsize=8)


def _limit(axes: Axes, values: Any) -> None:
    """Powers of ten where numbers are far apart, and room above."""
    known = np.ravel(values)[np.isfinite(np.ravel(values))]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    if 0 < low < high / 20:
        log_axis(axes, low / 2, 3 * high)
    else:
        room = 0.06 * (high - min(low, 0.0)) or 1.0
        axes.set_ylim(min(low, 0.0) - (room if low < 0 else 0.0), high + room)


def _colours(run: Descent) -> list[Any]:
    count = np.size(run.learning_rate)
    if count <= len(PALETTE):
        return list(PALETTE[:count])
    return [plt.get_cmap("viridis")(share) for share in np.linspace(0, 0.9, count)]


def _rows(values: Any) -> np.ndarray:
    array = np.asarray(values)
    return array.reshape(-1, array.shape[-1])


def _last(values: np.ndarray) -> np.ndarray:
    """The last finite value of each run."""
    found = [row[np.isfinite(row)] for row in _rows(values)]
    return np.array([row[-1] if row.size else np.nan for row in found])


def _between(values: Any) -> str:
    known = np.ravel(values)
    known = known[np.isfinite(known)]
    if not known.size:
        return "not finite"
    low, high = _short(known.min()), _short(known.max())
    return low if low == high else f"{low} to {high}"


def _short(value: float) -> str:
    return f"{value:.4g}"
