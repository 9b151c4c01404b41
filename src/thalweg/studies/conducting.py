"""From a study to a folder: data, pictures, verdicts and a page."""

import json
import os
import platform
import time as clock
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import xarray as xr

from thalweg._checks import InputError
from thalweg.certificates import Verdict
from thalweg.storage import FORMAT, holds, open_results, provenance, write_results
from thalweg.storage.contents import RESULTS, attributes
from thalweg.storage.files import only_writer, remove_at_once, write_text, writing_to
from thalweg.studies.begun import Note, forget_note
from thalweg.studies.parts import Parts, forget_parts, key_of
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size


def label_of(study: type[AbstractStudy], size: Size, variants: Sequence[str]) -> str:
    """The name of a study, with its variants and the size unless it is the full one."""
    return "-".join([study.name, *([] if size is Size.FULL else [size.value]), *variants])


@dataclass(frozen=True)
class Outcome:
    """What a study came to, and where it is."""

    study: type[AbstractStudy]
    size: Size
    findings: Sequence[Finding]
    pictures: Sequence[Path]
    seconds: float
    folder: Path
    variants: Sequence[str] = ()

    @property
    def label(self) -> str:
        """The name of the study, with its variants and the size unless it is the full one."""
        return label_of(self.study, self.size, self.variants)

    @property
    def command(self) -> str:
        """What reproduces it."""
        return Note(self.study.name, self.size.value, self.variants, "").command

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
    variants: Sequence[str] = (),
    *,
    fresh: bool = False,
) -> Outcome:
    """Do a study, or what is left of it, and write all of it into a folder under `out`.

    Results of other settings or another version are replaced only if `fresh`.
    """
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise InputError("Studies must run with 64 bits, got JAX_ENABLE_X64=0; unset it.")
    sized = study.chosen(size, variants)
    folder = _folder(study, size, out, variants)
    note = Note(study.name, size.value, tuple(variants), key_of(_settings(sized)))
    with only_writer(folder):
        _require_study(folder)
        if fresh:
            _clear(folder)
        results = _finished(folder, note.settings)
        if results is None:
            results = _computed(sized, note, folder, progress)
        return present(study, size, results, folder, variants)


def recalled(study: type[AbstractStudy], results: xr.Dataset, folder: Path, draw: bool) -> Outcome:
    """What a study has come to, from its stored data alone."""
    said = results.attrs
    size, variants = Size(said["size"]), tuple(said["variants"])
    sized = study.chosen(size, variants)
    if said["settings"] != key_of(_settings(sized)):
        raise InputError(
            f"The study in {folder} must be of this version of thalweg to be shown, but thalweg "
            f"{said['thalweg']} computed it otherwise; reproduce it again, or read it by "
            "`thalweg.open`."
        )
    if draw:
        return present(study, size, results.load(), folder, variants)
    findings = sized.findings(results.load())
    return Outcome(study, size, findings, [], float(said["seconds"]), folder, variants)


def is_finished(
    study: type[AbstractStudy], size: Size, out: Path, variants: Sequence[str] = ()
) -> bool:
    """Whether `out` holds all of this very study."""
    said = attributes(_folder(study, size, out, variants) / RESULTS)
    return said.get("settings") == key_of(_settings(study.chosen(size, variants)))


def _folder(study: type[AbstractStudy], size: Size, out: Path, variants: Sequence[str]) -> Path:
    return out / "-".join([study.name, size.value, *variants])


def present(
    study: type[AbstractStudy],
    size: Size,
    results: xr.Dataset,
    folder: Path,
    variants: Sequence[str] = (),
) -> Outcome:
    """Pictures, verdicts and the page, from data that are there."""
    sized = study.chosen(size, variants)
    with writing_to(folder):
        pictures = [_save(figure, folder / name) for name, figure in sized.draw(results).items()]
        seconds = float(results.attrs["seconds"])
        outcome = Outcome(study, size, sized.findings(results), pictures, seconds, folder, variants)
        verdicts = [finding.to_dict() for finding in outcome.findings]
        write_text(folder / "verdicts.json", json.dumps(verdicts, indent=1))
        write_text(folder / "page.md", page(outcome, results.attrs))
    return outcome


def _save(figure: Any, place: Path) -> Path:
    """Write a figure in two forms; the path of the picture."""
    for form in ("pdf", "png"):
        figure.savefig(place.with_suffix(f".{form}"))
    plt.close(figure)
    return place.with_suffix(".png")


def page(outcome: Outcome, attrs: Any) -> str:
    """The page for the documentation: what, how, the verdicts, the pictures, the comparison."""
    study, count = outcome.study, len(outcome.findings)
    good = sum(finding.verdict is Verdict.CONFIRMED for finding in outcome.findings)
    lines = [
        f"# {outcome.label}: {study.title}", "",
        f"`{outcome.command}`: {good} of {count} findings "
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
        lines += [f"![{picture.stem}]({picture.name})", ""]
    is_default = outcome.size is Size.FULL and not outcome.variants
    title = "Next to the paper" + ("" if is_default else ": the full run, without a variant")
    return "\n".join([*lines, f"## {title}", "", study.comparison.strip(), ""])


def _otherwise(outcome: Outcome) -> list[str]:
    """What of the protocol, which is that of the full size, does not hold for this run."""
    lines = []
    for name in outcome.variants:
        lines += [f"In the variant `{name}` {outcome.study.variants[name].difference}.", ""]
    if outcome.size is Size.QUICK:
        sized = outcome.study.chosen(outcome.size, outcome.variants)
        shown = ", ".join(f"{name} = {value}" for name, value in _fields(sized).items())
        lines += [f"This is the quick size, with less of everything: {shown}.", ""]
    return lines


# --- what was done before ------------------------------------------------------------------------


def _settings(study: AbstractStudy) -> dict[str, Any]:
    # What is written about a study may change without a new run.
    return {"study": study.name, "revision": study.revision, **_fields(study)}


def _fields(study: AbstractStudy) -> dict[str, Any]:
    return {each.name: getattr(study, each.name) for each in fields(study)}


def _computed(study: AbstractStudy, note: Note, folder: Path, progress: Progress) -> xr.Dataset:
    """The data, from parts that are there and others; they are on disk afterwards."""
    begun, parts = note.resumed(folder), Parts(folder, note.settings)
    started = clock.perf_counter()

    def spent() -> Note:
        return replace(begun, seconds=begun.seconds + clock.perf_counter() - started)

    def noted(stage: str, share: float) -> None:
        # Now and then, for a killed process does not say how long it took.
        spent().write(folder)
        progress(stage, share)

    begun.write(folder)
    try:
        results = study.compute(parts, noted)
    finally:
        spent().write(folder)
    results.attrs |= _provenance(spent())
    write_results(results, folder)
    forget_parts(folder)
    forget_note(folder)
    return results


def _finished(folder: Path, key: str) -> xr.Dataset | None:
    """The data of an earlier run with the same settings, if there are."""
    if holds(folder) is None:
        return None
    results = open_results(folder).load()
    if results.attrs.get("settings") != key:
        raise InputError(
            f"{folder} must hold this study or nothing, but holds one with other settings, made "
            f"by thalweg {results.attrs.get('thalweg')}; give another `--out`, or `--fresh` to "
            "replace it."
        )
    return results


def _require_study(folder: Path) -> None:
    kind = holds(folder)
    if kind not in ("study", "damaged", None):  # what is damaged is said when it is opened
        other = "other results" if kind == "unknown" else f"a {kind}"
        raise InputError(
            f"{folder} must hold a study or nothing, but holds {other}; give another `--out`."
        )


def _clear(folder: Path) -> None:
    with writing_to(folder):
        remove_at_once(folder / RESULTS)
        forget_parts(folder)
        forget_note(folder)


def _provenance(note: Note) -> dict[str, Any]:
    return {
        "kind": "study",
        "format": FORMAT,
        **asdict(note),
        "variants": list(note.variants),
        **provenance(),
        "machine": f"{os.cpu_count()} cores of {platform.machine()}",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
