"""Write the table of studies into docs/studies.md, from the studies and the pages of their full runs.

Run by `make docs`; a test holds the table against what this writes.
"""

import re
from pathlib import Path

from thalweg import studies
from thalweg.studies import AbstractStudy

DOCS = Path(__file__).parent
PAGE = DOCS / "studies.md"
_BEGIN, _END = "<!-- studies: written by `make docs` -->\n", "<!-- end of studies -->"
_DONE = re.compile(r"(\d+) of (\d+) findings confirmed\. .* in (\d+) s,")


def table() -> str:
    """A line per study."""
    lines = [
        "| paper | figures | what | `thalweg reproduce ...` | time of computing | findings confirmed |"
    ]
    lines.append("|---|---|---|---|---|---|")
    lines += [_line(study) for study in studies.find(["all"])]
    return "\n".join(lines) + "\n"


def _line(study: type[AbstractStudy]) -> str:
    paper = study.name.partition("-")[0]
    page = DOCS / "studies" / f"{study.name}.md"
    time, found, size = "", "at quick size", ""
    if page.is_file():
        match = _DONE.search(page.read_text("utf-8"))
        assert match, f"{page} must say how many findings were confirmed, and in what time."
        confirmed, count, seconds = match.groups()
        time, size = _time(int(seconds)), " --full"
        found = f"[{confirmed} of {count}](studies/{study.name}.md)"
    cells = ["ours" if paper == "thalweg" else paper, ", ".join(study.figures), study.title,
             f"`{study.name}{size}`", time, found]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _time(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def written() -> str:
    """The page with its table as it should be."""
    before, rest = PAGE.read_text("utf-8").split(_BEGIN)
    return before + _BEGIN + table() + _END + rest.split(_END)[1]


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
