"""From a study to a folder: data, pictures, verdicts and a page."""

import json
import os
import platform
import shutil
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import xarray as xr

from thalweg._checks import InputError
from thalweg._version import __version__
from thalweg.storage import open_results, provenance, write_results
from thalweg.storage.files import writing_to
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size
from thalweg.theorems.certificate import Verdict


@dataclass(frozen=True)
class Outcome:
    """What a study came to, and where it is."""

    study: type[AbstractStudy]
    size: Size
    findings: Sequence[Finding]
    pictures: Sequence[Path]
    seconds: float
    folder: Path
    variant: str | None = None

    @property
    def label(self) -> str:
        """The name of the study, with its variant's."""
        return _joined(self.study.name, self.variant)

    @property
    def confirmed(self) -> bool:
        """Whether every finding is as expected, and there is one."""
        return bool(self.findings) and all(
            finding.verdict is Verdict.CONFIRMED for finding in self.findings
        )


def conduct(
    study: type[AbstractStudy],
    size: Size,
    out: Path,
    progress: Progress = lambda stage, share: None,
    variant: str | None = None,
) -> Outcome:
    """Do a study, or what is left of it, and write all of it into a folder under `out`."""
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise InputError("Studies must run with 64 bits, got JAX_ENABLE_X64=0; unset it.")
    sized = study.chosen(size, variant)
    folder = out / _joined(study.name, size.value, variant)
    settings = _settings(sized)
    results = _finished(folder, settings)
    if results is None:
        started, parts = clock.perf_counter(), Parts(folder / "parts", settings)
        before = _seconds_so_far(folder, settings)
        try:
            results = sized.compute(parts, progress)
        finally:
            spent = before + clock.perf_counter() - started
            _note_seconds(folder, settings, spent)
        results.attrs |= _provenance(study, size, settings, spent)
        write_results(results, folder)
        parts.clear()
        _forget_seconds(folder)
    return present(study, size, results, folder, variant)


def present(
    study: type[AbstractStudy],
    size: Size,
    results: xr.Dataset,
    folder: Path,
    variant: str | None = None,
) -> Outcome:
    """Pictures, verdicts and the page, from data that are there."""
    sized = study.chosen(size, variant)
    pictures = []
    for name, figure in sized.draw(results).items():
        pictures.append(folder / f"{name}.png")
        figure.savefig(pictures[-1])
        figure.savefig(folder / f"{name}.pdf")
        plt.close(figure)
    seconds = float(results.attrs["seconds"])
    outcome = Outcome(study, size, sized.findings(results), pictures, seconds, folder, variant)
    (folder / "verdicts.json").write_text(
        json.dumps([finding.row() for finding in outcome.findings], indent=1), encoding="utf-8"
    )
    (folder / "page.md").write_text(page(outcome, results.attrs), encoding="utf-8")
    return outcome


def page(outcome: Outcome, attrs: Any) -> str:
    """The page for the documentation: what, how, the verdicts, the pictures, the comparison."""
    study, count = outcome.study, len(outcome.findings)
    good = sum(finding.verdict is Verdict.CONFIRMED for finding in outcome.findings)
    command = f"thalweg reproduce {study.name} --{outcome.size.value}"
    if outcome.variant:
        command += f" --variant {outcome.variant}"
    lines = [
        f"# {outcome.label}: {study.title}", "",
        f"`{command}`: {good} of {count} findings "
        f"confirmed. Done on {attrs['made'][:10]}, {attrs['machine']}, in "
        f"{outcome.seconds:.0f} s, with thalweg {attrs['thalweg']} and JAX {attrs['jax']}.", "",
        "## How", "", study.protocol.strip(), "", *_otherwise(outcome),
        "## Findings", "",
        "| finding | expected | measured | margin | verdict | the paper |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for finding in outcome.findings:
        cells = [*finding.row().values(), finding.reported or "-"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += ["", "## Pictures", ""]
    for picture in outcome.pictures:
        lines += [f"![{picture.stem}]({outcome.label}-{picture.name})", ""]
    is_default = outcome.size is Size.FULL and outcome.variant is None
    title = "Next to the paper" + ("" if is_default else ": the full run, without a variant")
    return "\n".join([*lines, f"## {title}", "", study.comparison.strip(), ""])


def publish(outcome: Outcome, pages: Path) -> None:
    """Copy the page and its pictures into the documentation's folder."""
    pages.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(outcome.folder / "page.md", pages / f"{outcome.label}.md")
    for picture in outcome.pictures:
        shutil.copyfile(picture, pages / f"{outcome.label}-{picture.name}")


def _otherwise(outcome: Outcome) -> list[str]:
    """What of the protocol, which is that of the full size, does not hold for this run."""
    lines = []
    if outcome.variant:
        lines += [f"In this variant {outcome.study.variants[outcome.variant].difference}.", ""]
    if outcome.size is Size.QUICK:
        settings = _settings(outcome.study.chosen(outcome.size, outcome.variant))
        del settings["study"]
        shown = ", ".join(f"{name} = {value}" for name, value in settings.items())
        lines += [f"This is the quick size, with less of everything: {shown}.", ""]
    return lines


def _joined(*words: str | None) -> str:
    return "-".join(word for word in words if word)


# --- what was done before ------------------------------------------------------------------------


def _settings(study: AbstractStudy) -> dict[str, Any]:
    # Its fields alone: what is written about it may change without a new run.
    return {"study": study.name, **{each.name: getattr(study, each.name) for each in fields(study)}}


def _key(settings: Any) -> str:
    return json.dumps([__version__, settings], sort_keys=True, default=str)


def _finished(folder: Path, settings: Any) -> xr.Dataset | None:
    """The data of an earlier run with the same settings, if there are."""
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "results.zarr").exists():
        return None
    results = open_results(folder).load()
    return results if results.attrs.get("settings") == _key(settings) else None


def _seconds_so_far(folder: Path, settings: Any) -> float:
    place = folder / "seconds.json"
    if place.exists():
        noted = json.loads(place.read_text(encoding="utf-8"))
        if noted["settings"] == _key(settings):
            return noted["seconds"]
    return 0.0


def _note_seconds(folder: Path, settings: Any, seconds: float) -> None:
    text = json.dumps({"settings": _key(settings), "seconds": seconds})
    (folder / "seconds.json").write_text(text, encoding="utf-8")


def _forget_seconds(folder: Path) -> None:
    """They are in the results now; those of another run would be added to them."""
    (folder / "seconds.json").unlink(missing_ok=True)


def _provenance(
    study: type[AbstractStudy], size: Size, settings: Any, seconds: float
) -> dict[str, Any]:
    return {
        "study": study.name,
        "size": size.value,
        "settings": _key(settings),
        "seconds": seconds,
        **provenance(),
        "machine": f"{os.cpu_count()} cores of {platform.machine()}",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
