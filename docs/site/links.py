"""Links of the built site that lead nowhere, and what it would ask of other hosts."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
"""What a browser fetches by itself, by element."""


class Page(HTMLParser):
    """The anchors of a page, the links on it, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of one element."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in _LOADED and _LOADED[tag] in found:
            self.loads.append(found[_LOADED[tag]])


def broken(html: Path) -> list[str]:
    """One line for each link, within the site, to what is not there, or for what is loaded from elsewhere."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(html.rglob("*.html"))}
    return [line for path in pages for line in _amiss(html, path, pages)]


def _amiss(html: Path, path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    where = path.relative_to(html)
    for link in [*pages[path].links, *pages[path].loads]:
        parts = urlsplit(link)
        if parts.scheme in ("http", "https", "mailto") or link.startswith("//"):
            if link in pages[path].loads:
                yield f"{where}: loads {link} from another host"
            continue
        if parts.scheme == "data":
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target = target / "index.html"
        if not target.exists():
            yield f"{where}: {link} is not there"
        elif (
            parts.fragment
            and target in pages
            and unquote(parts.fragment) not in pages[target].anchors
        ):
            yield f"{where}: {link} has no such anchor"
