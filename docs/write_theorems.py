"""Write the list of statements: docs/theorems.md, and the rows that commands show.

Run by `make docs`; a test holds both files against what this writes.
"""

import ast
import json
from pathlib import Path
from typing import Any

from thalweg.certificates import AbstractTheorem
from thalweg.theorems import STATEMENTS
from thalweg.theorems.catalogue import KINDS

ROOT = Path(__file__).parents[1]
PAGE, ROWS = ROOT / "docs" / "theorems.md", ROOT / "src/thalweg/theorems/catalogue.json"

_HEAD = """# Every statement, and where it is

Written by `make docs` from the catalogue in `thalweg.theorems.papers` and from the marks of the
tests; `thalweg theorems` prints the same. *Ours* stands in no paper: its proof is in the code.
Theorems have three tests each: that they hold, how tight they are, and that they can fail. *Looseness*
is what those tests, or a measurement beside them, found.
"""


def marks() -> dict[str, dict[str, list[str]]]:
    """For each statement the tests that are marked with it, by what they show."""
    found: dict[str, dict[str, list[str]]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        where = file.relative_to(ROOT / "tests").as_posix()
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for statement, kind in _marks_of(node):
                    tests = found.setdefault(statement, {}).setdefault(kind, [])
                    tests.append(f"{where}::{node.name}")
    return found


def of_every_statement() -> dict[str, dict[str, list[str]]]:
    """The same for all statements; those that became one theorem share its tests."""
    marked, by_code = marks(), {}
    for statement in STATEMENTS:
        by_code.setdefault(statement.code, []).append(statement.id)
    shared = {}
    for statement in STATEMENTS:
        theorem = isinstance(statement.code, type) and issubclass(statement.code, AbstractTheorem)
        ids = by_code[statement.code] if theorem else [statement.id]
        shared[statement.id] = {
            kind: sorted({test for each in ids for test in marked.get(each, {}).get(kind, [])})
            for kind in KINDS
            if any(kind in marked.get(each, {}) for each in ids)
        }
    return shared


def rows() -> list[dict[str, Any]]:
    """One row per statement, with all that is told of it."""
    tests = of_every_statement()
    return [
        {
            "statement": statement.id,
            "meaning": statement.meaning,
            "code": statement.where.removeprefix("thalweg."),
            "tests": tests[statement.id],
            "looseness": statement.looseness,
            "ours": statement.ours,
        }
        for statement in STATEMENTS
    ]


def page() -> str:
    """The page, one table per paper."""
    lines, paper = [_HEAD], None
    for row in rows():
        key = row["statement"].split(":")[0]
        if key != paper:
            paper = key
            lines += [
                f"\n## {key}\n",
                "| statement | says | code | tests | looseness |",
                "|---|---|---|---|---|",
            ]
        name = row["statement"].split(":")[1] + (" *(ours)*" if row["ours"] else "")
        checks = "; ".join(
            f"{kind}: {', '.join(_short(test) for test in found)}"
            for kind, found in row["tests"].items()
        )
        cells = (name, row["meaning"], f"`{row['code']}`", checks, row["looseness"])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _short(test: str) -> str:
    return test.split("::")[1].removeprefix("test_").replace("_", " ")


def _marks_of(function: ast.FunctionDef) -> list[tuple[str, str]]:
    calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
    marked = [each for each in calls if ast.unparse(each.func) == "pytest.mark.statement"]
    return [tuple(ast.literal_eval(argument) for argument in each.args) for each in marked]


if __name__ == "__main__":
    ROWS.write_text(json.dumps(rows(), indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(page(), "utf-8")
