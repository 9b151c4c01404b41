"""The page of a probe: what was measured along a training loop of one's own."""

import base64
import io
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from thalweg.figures.results import plot
from thalweg.figures.style import STYLE
from thalweg.probes import Probe, Probed
from thalweg.reports.page import environment
from thalweg.reports.wording import count, number
from thalweg.storage import provenance
from thalweg.storage.files import write_bytes, write_text, writing_to

_LONGEST = 24  # rows of the table; of more records, every so many is told


def report_probe(probe: Probe, folder: Path) -> Path:
    """Write the page, its picture, and all records as a table of numbers; the path of the page."""
    with rc_context(STYLE):
        figure = Figure(figsize=(5.2, 6.6), layout="constrained")
        plot(probe, figure.subplots(3, 1, sharex=True))
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=220)
    caption = (
        "Loss, sharpness and smallest eigenvalue along the loop; shaded: within which each "
        "eigenvalue lies."
    )
    text = environment().get_template("probe.html").render(
        title="Curvature along a training loop",
        setting=_setting(probe),
        findings=_findings(probe),
        rows=_rows(probe),
        picture=base64.b64encode(picture.getvalue()).decode(),
        caption=caption,
        origin="\n".join(f"{name:26} {value}" for name, value in provenance().items()),
    )  # fmt: skip
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / "probe.png", picture.getvalue())
        write_text(folder / "probe.csv", _table(probe))
        write_text(folder / "report.html", text)
    return folder / "report.html"


def _setting(probe: Probe) -> str:
    last = probe.records[-1].step if probe.records else 0
    return (
        f"Measured {count(len(probe.records), 'time')}, at every {probe.every} steps up to step "
        f"{last}, on the loss over all data."
    )


def _findings(probe: Probe) -> list[str]:
    if not probe.records:
        return ["Nothing was measured."]
    named = probe.named()
    first, last = probe.records[0], probe.records[-1]
    told = [f"The loss goes from {number(first.loss)} to {number(last.loss)}."]
    high = named["sharpness"]
    if np.isfinite(high).any():
        top = int(np.nanargmax(high))
        told.append(
            f"Sharpness goes from {number(first.sharpness)} to {number(last.sharpness)}; it is "
            f"largest at step {int(named['step'][top])}, {number(high[top])}."
        )
    above, edge = high > named["edge"], _edge_of(probe)  # NaN where the rate is not known
    if above.any():
        where = int(named["step"][int(np.argmax(above))])
        told.append(
            f"It is above {edge} at {int(above.sum())} of {high.size} records, first at "
            f"step {where}: there descent is unstable."
        )
    elif np.isfinite(named["edge"]).any():
        told.append(f"It stays below {edge} at all records.")
    low = named["smallest_eigenvalue"]
    if np.isfinite(low).any():
        told.append(f"The smallest eigenvalue is lowest at {number(float(np.nanmin(low)))}.")
    gone = int(np.sum(~np.isfinite(named["loss"])))
    return told + ([f"{count(gone, 'record')} had no finite loss."] if gone else [])


def _edge_of(probe: Probe) -> str:
    return f"{float(probe.optimiser.edge(1.0)):.4g} / learning rate"


def _rows(probe: Probe) -> list[dict[str, str]]:
    every = -(-len(probe.records) // _LONGEST) or 1
    return [
        {
            "step": str(each.step),
            "loss": f"{each.loss:.4g}",
            "gradient norm": f"{each.gradient_norm:.3g}",
            "edge": "" if np.isnan(edge) else f"{edge:.4g}",
            "sharpness": f"{each.sharpness:.5g}",
            "±": f"{each.sharpness_error:.1g}",
            "smallest": f"{each.smallest_eigenvalue:.4g}",
            "products": str(each.matvecs),
        }
        for each, edge in list(zip(probe.records, probe.named()["edge"], strict=True))[::every]
    ]


def _table(probe: Probe) -> str:
    lines = [",".join(Probed._fields)]
    lines += [",".join(f"{value:.17g}" for value in each) for each in probe.records]
    return "\n".join(lines) + "\n"
