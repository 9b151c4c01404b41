"""The pages of studies in a folder of documentation, where nothing else is written over."""

from pathlib import Path

from thalweg._errors import InputError
from thalweg.storage.files import write_bytes, writing_to
from thalweg.studies.conducting import Outcome


def require_pages(pages: Path, label: str) -> None:
    """Refuse a folder that cannot be, or whose page of this name is not one of this study."""
    with writing_to(pages):
        pages.mkdir(parents=True, exist_ok=True)
        place = pages / f"{label}.md"
        held = place.read_bytes() if place.exists() else None
    if held is not None and not held.startswith(f"# {label}: ".encode()):
        raise InputError(
            f"{place} must be a page of the study {label} or not be there, but it is something "
            "else; give another folder for `--pages`, or move it."
        )


def publish(outcome: Outcome, pages: Path) -> list[Path]:
    """Copy the page and its pictures into a folder; the files that were others before."""
    require_pages(pages, outcome.label)
    text, contents = (outcome.folder / "page.md").read_text(encoding="utf-8"), {}
    for picture in outcome.pictures:
        name = f"{outcome.label}-{picture.name}"
        text = text.replace(f"]({picture.name})", f"]({name})")
        contents[pages / name] = picture.read_bytes()
    contents[pages / f"{outcome.label}.md"] = text.encode()
    with writing_to(pages):
        replaced = [
            place
            for place, content in contents.items()
            if place.exists() and place.read_bytes() != content
        ]
        for place, content in contents.items():
            write_bytes(place, content)
    return replaced
