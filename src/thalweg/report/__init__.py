"""A report that opens from disk: one HTML file, beside its pictures, data and settings.

Everything is written from the dataset alone, so that a report can be made again without a run.
"""

import io
from pathlib import Path

import xarray as xr

from thalweg.report.page import page as page
from thalweg.report.sentences import findings as findings
from thalweg.report.summary import summary as summary
from thalweg.report.summary import table as table
from thalweg.storage import write_results
from thalweg.storage.files import write_bytes, write_text, writing_to


def write(results: xr.Dataset, folder: Path) -> Path:
    """Write data, settings, pictures and report into a folder; the path of the report."""
    write_results(results, folder)
    with writing_to(folder):
        write_text(folder / "experiment.toml", results.attrs["experiment"])
    return draw(results, folder)


def draw(results: xr.Dataset, folder: Path) -> Path:
    """Write the pictures and the report alone; the path of the report."""
    import matplotlib.pyplot as plt

    from thalweg.figures.overview import overview, pictures

    drawn = {}
    with writing_to(folder):
        for name, figure in (*pictures(results).items(), ("overview", overview(results))):
            for form in ("png", "pdf"):
                picture = io.BytesIO()
                figure.savefig(picture, format=form, dpi=220)
                write_bytes(folder / f"{name}.{form}", picture.getvalue())
                if form == "png" and name != "overview":
                    drawn[name] = picture.getvalue()
            plt.close(figure)
        report = folder / "report.html"
        write_text(report, page(results, drawn))
    return report
