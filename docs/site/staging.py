"""Gather the site's pages in one folder: those of docs/ as they are, and all that are generated.

Pages keep their places, so that links among them work as they do in the repository. A link that
leaves docs/ is turned to the page that shows the same on the site.
"""

import os
import re
import shutil
from pathlib import Path, PurePosixPath

import examples_page
import reference_pages
import statements_pages
import studies_page
import tutorial_pages

ROOT = Path(__file__).parents[2]
DOCS, PAGES = ROOT / "docs", Path(__file__).parent / "pages"

_LINK = re.compile(r"(\]\()((?!https?:|#|mailto:)[^)\s#]+)")
_COPIED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_TREE = re.compile(r"```\{toctree\}\n(.*?)```", re.S)
_SKIPPED = {"site", "statements", "tutorials", "reference", "studies.md"}
"""What in docs/ is made into pages by a module of its own; the gallery has what studies.md has."""


def gather(source: Path, *, quick: bool) -> None:
    """Write everything that Sphinx reads into the folder `source`."""
    for path in sorted(DOCS.rglob("*")):
        inside = path.relative_to(DOCS)
        if path.is_file() and inside.parts[0] not in _SKIPPED and path.suffix != ".py":
            copy(path, source / inside)
    for path in sorted(PAGES.rglob("*")):
        if path.is_file():
            copy(path, source / path.relative_to(PAGES))
    for name, staged in _COPIED.items():
        copy(ROOT / name, source / staged)
    examples_page.write(source)
    reference_pages.write(source)
    statements_pages.write(source)
    studies_page.write(source)
    tutorial_pages.write(source, quick=quick)
    adopt(source)


def adopt(source: Path) -> None:
    """List the pages of docs/ that nobody has put into a table of contents, under "How-to"."""
    texts = [path.read_text("utf-8") for path in source.rglob("*.md")]
    listed = {entry for text in texts for block in _TREE.findall(text) for entry in block.split()}
    names = {entry.rpartition("/")[2].removesuffix(".md") for entry in listed}
    found = [
        path.stem for path in sorted(source.glob("*.md")) if path.stem not in names | {"index"}
    ]
    if found:
        page = source / "how-to.md"
        entries = "\n".join(found)
        more = f"\n## More\n\n```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n"
        page.write_text(page.read_text("utf-8") + more, "utf-8")


def copy(path: Path, target: Path) -> None:
    """Copy a file, and turn the links of a page that leave docs/."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".md" or PAGES in path.parents:
        shutil.copyfile(path, target)
        return
    here = PurePosixPath(path.relative_to(ROOT).as_posix())
    staged = PurePosixPath(_COPIED.get(str(here), str(here).removeprefix("docs/")))
    text = _LINK.sub(
        lambda match: match[1] + _turned(match[2], here, staged), path.read_text("utf-8")
    )
    target.write_text(text, "utf-8")


def _turned(link: str, here: PurePosixPath, staged: PurePosixPath) -> str:
    """The link to a file of the repository, from the page where it is staged."""
    place = PurePosixPath(os.path.normpath(here.parent / link))
    if place.is_relative_to("docs"):
        target = place.relative_to("docs")
    elif place.is_relative_to("examples"):
        target = PurePosixPath("examples.md")
    elif place.is_relative_to("src/thalweg"):
        target = PurePosixPath("reference/index.md")
    elif str(place) in _COPIED:
        target = PurePosixPath(_COPIED[str(place)])
    elif str(place) == "README.md":
        target = PurePosixPath("index.md")
    else:
        raise ValueError(f"{here} links to {link}, which has no page on the site.")
    return os.path.relpath(target, staged.parent or ".")
