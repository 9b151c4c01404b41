"""The list of all statements, with the tests that check them, as plain rows."""

import json
from importlib.resources import files
from typing import Any

from thalweg._checks import InputError
from thalweg.certificates import Statement
from thalweg.theorems.papers import STATEMENTS

KINDS = ("holds", "tight", "fails", "value")
"""What a test shows of a statement: that it holds, is tight, can fail, or has the right value."""


def rows(paper: str | None = None) -> list[dict[str, Any]]:
    """One row per statement, of one paper or of all."""
    papers = list(dict.fromkeys(statement.paper for statement in STATEMENTS))
    if paper is not None and paper not in papers:
        raise InputError(f"`paper` must be one of {', '.join(papers)}, got {paper!r}.")
    tests = json.loads(files("thalweg.theorems").joinpath("tests.json").read_text("utf-8"))
    chosen = (each for each in STATEMENTS if paper in (None, each.paper))
    return [_row(statement, tests.get(statement.id, {})) for statement in chosen]


def _row(statement: Statement, tests: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "statement": statement.id,
        "meaning": statement.meaning,
        "code": statement.where.removeprefix("thalweg."),
        "tests": tests,
        "looseness": statement.looseness,
        "ours": statement.ours,
    }
