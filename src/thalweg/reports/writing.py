"""A report in its folder: data, settings, pictures and the page, sealed by its checksum."""

import io
from collections.abc import Collection
from itertools import product
from pathlib import Path

import xarray as xr

from thalweg.experiment.folders import FORMS, PAGE
from thalweg.experiment.folders import pictures as all_pictures
from thalweg.reports.page import page
from thalweg.storage import write_results
from thalweg.storage.files import remove, write_bytes, write_text, writing_to
from thalweg.storage.sums import digest_of

_SEAL = "<!-- sha256 of all above: "


def write(results: xr.Dataset, folder: Path) -> Path:
    """Write data, settings, pictures and report into a folder; the path of the report."""
    write_results(results, folder)
    with writing_to(folder):
        write_text(folder / "experiment.toml", results.attrs["experiment"])
    return draw(results, folder)


def draw(results: xr.Dataset, folder: Path, also: Collection[str] = ()) -> Path:
    """Write the pictures and the report alone; the path of the report.

    Pictures are PNG files, as the page has them; `also` names further forms (`FORMS`).
    """
    import matplotlib.pyplot as plt

    from thalweg.figures.overview import overview, pictures

    forms, shown = ("png", *also), {}
    with writing_to(folder):
        for name, figure in (*pictures(results).items(), ("overview", overview(results))):
            for form in forms:
                picture = io.BytesIO()
                figure.savefig(picture, format=form, dpi=220)
                figure.set_layout_engine("none")  # it stays as it was laid out for the first form
                write_bytes(folder / f"{name}.{form}", picture.getvalue())
                if form == "png":
                    shown[name] = picture.getvalue()
            plt.close(figure)
        write_text(folder / PAGE, _sealed(page(results, shown)))
        written = {(name, form) for name in shown for form in forms}
        for name, form in {*product(all_pictures(), FORMS)} - written:  # of what this one replaces
            remove(folder / f"{name}.{form}")
    return folder / PAGE


def fault_of(report: Path) -> str | None:
    """What is wrong with a report, as the end of a sentence; None if it is what was written."""
    if not report.is_file():
        return "is not there"
    text, _, seal = report.read_bytes().decode(errors="replace").rpartition(_SEAL)
    return None if _sealed(text) == text + _SEAL + seal else "is not what was written"


def _sealed(text: str) -> str:
    """The page with its own checksum behind it, in a comment."""
    return f"{text}{_SEAL}{digest_of(text.encode())} -->\n"
