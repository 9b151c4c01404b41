"""A report that opens from disk: one HTML file with its pictures inside, beside the data."""

import base64
import html
import json
from pathlib import Path

import xarray as xr

from thalweg import figures
from thalweg._checks import InputError

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto;
        padding: 0 1rem; color: #222; }}
 img {{ width: 100%; height: auto; }}
 .wide {{ overflow-x: auto; }}
 table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
 th, td {{ padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }}
 pre {{ background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: 13px; }}
</style></head><body>
<h1>{title}</h1>
<p>{lead}</p>
<img alt="{lead}" src="data:image/png;base64,{picture}">
<h2>At the end, time {end:g}</h2>
<div class="wide"><table><tr>{head}</tr>{rows}</table></div>
<h2>How it was made</h2>
<pre>{provenance}</pre>
</body></html>
"""

LEAD = (
    "Gradient descent from one start at several learning rates, next to the exact gradient flow. "
    "Where the sharpness stays below 2/eta, descent follows the flow; a minimiser sharper than "
    "2/eta cannot be settled in, and none is flatter than the grey bound. The dotted bounds on the "
    "distance are proven from the descent run alone, for as long as they last."
)


def summary(results: xr.Dataset) -> list[dict[str, str]]:
    """One row per learning rate: what it reached at the last recorded time."""
    rows = []
    for rate in results.learning_rate.values:
        whole = results.sel(learning_rate=rate)
        run = whole.isel(record=int(whole.time.notnull().sum()) - 1)
        diverged = float(run.diverged_at)
        rows.append(
            {
                "rate": f"{rate:g}",
                "2 / rate": f"{2 / rate:g}",
                "sharpness": f"{float(run.sharpness):.4g}",
                "excess loss": f"{float(run.loss - run.minimum):.2e}",
                "distance": f"{float(run.distance):.3g}",
                "proven to": f"{float(run.proven_until):.3g}",
                "diverged": "-" if diverged != diverged else f"{diverged:.0f}",
            }
        )
    return rows


def write(results: xr.Dataset, folder: Path) -> Path:
    """Write data, figure and report into a folder; the path of the report."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        results.to_zarr(folder / "results.zarr", mode="w", zarr_format=2)
        figure = figures.overview(results)
        figure.savefig(folder / "overview.png")
        figure.savefig(folder / "overview.pdf")
        report = folder / "report.html"
        report.write_text(_page(results, (folder / "overview.png").read_bytes()), encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"`--out` must be a folder that can be written to, got {folder}: {error.strerror}."
        ) from error
    return report


def _page(results: xr.Dataset, picture: bytes) -> str:
    rows = summary(results)
    cells = ("".join(f"<td>{html.escape(v)}</td>" for v in row.values()) for row in rows)
    return _PAGE.format(
        title="thalweg run",
        lead=html.escape(LEAD),
        picture=base64.b64encode(picture).decode(),
        end=float(results.flow_time[-1]),
        head="".join(f"<th>{html.escape(name)}</th>" for name in rows[0]),
        rows="".join(f"<tr>{row}</tr>" for row in cells),
        provenance=html.escape(json.dumps(results.attrs, indent=1, default=str)),
    )
