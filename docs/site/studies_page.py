"""The gallery of studies: a card for each, with the first picture of its page."""

import html
import re
from pathlib import Path

DOCS = Path(__file__).parents[1]
_PICTURE = re.compile(r"!\[[^\]]*\]\(([\w.-]+\.png)\)")
_CONFIRMED = re.compile(r"(\d+ of \d+) findings confirmed")

_HEAD = """# Studies

Every figure of the three papers, and studies of our own, redone by one command each: `thalweg reproduce NAME --full`, and
`thalweg reproduce` lists them. A *finding* is a number that is held against an interval that was said beforehand, and so can
fail. Each page says how the study was done, what was found, and compares point by point with the paper.
"""
_FAMILIES = {
    "thalweg": "Ours",
    "marion2024": "Marion, Chizat 2024",
    "elkabetz2021": "Elkabetz, Cohen 2021",
    "arora2019": "Arora, Cohen, Golowich, Hu 2019",
}


def write(source: Path) -> None:
    """Write the gallery; the pages of the studies are there already."""
    from thalweg import studies

    families: dict[str, list[str]] = {}
    without: list[str] = []
    for study in studies.find(["all"]):
        page = DOCS / "studies" / f"{study.name}.md"
        if page.is_file():
            families.setdefault(study.name.partition("-")[0], []).append(_card(study, page))
        else:
            without.append(f"`{study.name}`: {study.title}")
    lines = [_HEAD]
    for family in dict.fromkeys([*_FAMILIES, *families]):
        if cards := families.get(family):
            shown = "\n".join(cards)
            lines.append(f'## {_FAMILIES.get(family, family)}\n\n```{{raw}} html\n<div class="gallery">\n{shown}\n</div>\n```\n')  # fmt: skip
    if without:
        lines += ["## At quick size only\n", *(f"- {each}" for each in without), ""]
    lines.append("```{toctree}\n:glob:\n:hidden:\n\n*\n```\n")
    (source / "studies").mkdir(exist_ok=True)
    (source / "studies" / "index.md").write_text("\n".join(lines), "utf-8")


def _card(study: type, page: Path) -> str:
    text = page.read_text("utf-8")
    picture, confirmed = _PICTURE.search(text), _CONFIRMED.search(text)
    shown = f'<img src="../_images/{picture[1]}" alt="" loading="lazy">' if picture else ""
    figures = f"Figure {', '.join(study.figures)}. " if study.figures else ""  # pyright: ignore[reportAttributeAccessIssue]
    note = f"{figures}{confirmed[1]} findings confirmed" if confirmed else figures
    title = html.escape(study.title)  # pyright: ignore[reportAttributeAccessIssue]
    return (
        f'<a class="card" href="{page.stem}.html">{shown}'
        f'<span class="title">{title[0].upper()}{title[1:]}</span>'
        f'<span class="note">{page.stem}<br>{note}</span></a>'
    )
