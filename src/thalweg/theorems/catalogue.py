"""The list of all statements, with the tests that check them, as plain rows.

The rows are written from `papers.STATEMENTS` and the marks of the tests (`make docs`; a test holds
them together), so that a list needs none of the theorems to be loaded.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from thalweg._errors import InputError

KINDS = ("holds", "tight", "fails", "value")
"""What a test shows of a statement: that it holds, is tight, can fail, or has the right value."""


def rows(paper: str | None = None) -> list[dict[str, Any]]:
    """One row per statement, of one paper or of all."""
    papers = list(dict.fromkeys(_paper(each) for each in _written()))
    if paper is not None and paper not in papers:
        raise InputError(f"`paper` must be one of {', '.join(papers)}, got {paper!r}.")
    return [each for each in _written() if paper in (None, _paper(each))]


def row(statement: str) -> dict[str, Any]:
    """The row of one statement, by its id."""
    for each in _written():
        if each["statement"] == statement:
            return each
    raise InputError(
        f"A statement must be named by its paper and its own name, such as arora2019:thm1, got "
        f"{statement!r}{_meant(statement)}; `thalweg theorems` lists them all."
    )


def _meant(name: str) -> str:
    """Statements whose own name begins alike, those of the same paper first."""
    paper, _, own = name.lower().rpartition(":")
    near = [each for each in _written() if own and _own(each).lower().startswith(own)]
    near.sort(key=lambda each: _paper(each) != paper)
    return f" (meant {' or '.join(each['statement'] for each in near[:3])}?)" if near else ""


def _paper(each: dict[str, Any]) -> str:
    return each["statement"].partition(":")[0]


def _own(each: dict[str, Any]) -> str:
    return each["statement"].partition(":")[2]


@cache
def _written() -> list[dict[str, Any]]:
    return json.loads(files("thalweg.theorems").joinpath("catalogue.json").read_text("utf-8"))
