"""A report in its folder: data, settings, pictures and the page, sealed by its checksum."""

import io
from collections.abc import Collection, Mapping
from itertools import product
from pathlib import Path

import xarray as xr

from thalweg.experiment.folders import FORMS, PAGE
from thalweg.experiment.folders import pictures as all_pictures
from thalweg.reports.beside import Beside
from thalweg.reports.page import page
from thalweg.storage import write_results
from thalweg.storage.files import remove, write_bytes, write_text, writing_to
from thalweg.storage.sums import digest_of

_SEAL = "<!-- sha256 of all above: "


def write(results: xr.Dataset, folder: Path, beside: Beside | None = None) -> Path:
    """Write data, settings, pictures and report into a folder; the path of the report.

    Args:
        results: of a run.
        folder: where to.
        beside: a second process, which draws the pictures.
    """
    if beside is not None:
        beside.draw(results)
    write_results(results, folder)
    with writing_to(folder):
        write_text(folder / "experiment.toml", results.attrs["experiment"])
    return draw(results, folder, beside=beside)


def draw(
    results: xr.Dataset, folder: Path, also: Collection[str] = (), beside: Beside | None = None
) -> Path:
    """Write the pictures and the report alone; the path of the report.

    Pictures are PNG files, as the page has them; `also` names further forms (`FORMS`). A second
    process that was told of these results may have drawn them.
    """
    forms = ("png", *also)
    came = {} if beside is None or also else beside.drawn()
    with writing_to(folder):
        if came:
            shown = {name: _put(folder, name, {"png": png}) for name, png in came.items()}
        else:
            shown = _drawn_here(results, folder, forms)
        write_text(folder / PAGE, _sealed(page(results, shown)))
        written = set(product(shown, forms))
        for name, form in {*product(all_pictures(), FORMS)} - written:  # of what this one replaces
            remove(folder / f"{name}.{form}")
    return folder / PAGE


def _drawn_here(results: xr.Dataset, folder: Path, forms: Collection[str]) -> dict[str, bytes]:
    """Write all pictures; each as PNG, by name."""
    from thalweg.figures.overview import picture_names

    names = picture_names(results)
    return {name: _put(folder, name, picture_in(forms, results, name)) for name in names}


def _put(folder: Path, name: str, forms: Mapping[str, bytes]) -> bytes:
    for form, picture in forms.items():
        write_bytes(folder / f"{name}.{form}", picture)
    return forms["png"]


def picture_in(forms: Collection[str], results: xr.Dataset, name: str) -> dict[str, bytes]:
    """A picture of the results in each of these forms."""
    import matplotlib.pyplot as plt

    from thalweg.figures.overview import picture_of

    figure, found = picture_of(results, name), {}
    for form in forms:
        picture = io.BytesIO()
        figure.savefig(picture, format=form, dpi=220)
        figure.set_layout_engine("none")  # it stays as it was laid out for the first form
        found[form] = picture.getvalue()
    plt.close(figure)
    return found


def fault_of(report: Path) -> str | None:
    """What is wrong with a report, as the end of a sentence; None if it is what was written."""
    if not report.is_file():
        return "is not there"
    text, _, seal = report.read_bytes().decode(errors="replace").rpartition(_SEAL)
    return None if _sealed(text) == text + _SEAL + seal else "is not what was written"


def _sealed(text: str) -> str:
    """The page with its own checksum behind it, in a comment."""
    return f"{text}{_SEAL}{digest_of(text.encode())} -->\n"
