"""The tutorials: run, and written as pages with what was printed and drawn, and as notebooks.

A tutorial is a page of docs/tutorials/. Its code blocks are cells, run in order in one process and an
empty folder: `python` in one namespace, `sh` by the shell, and a `toml` block that begins with
`# NAME.toml` is written to that file. What a cell prints follows it, and its figures, or where it has
none the value of its last line. A cell that fails ends the build.

    python docs/site/tutorial_pages.py TUTORIAL OUT      runs one; the site runs two at a time
"""

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
TUTORIALS = DOCS / "tutorials"

_PARTS = re.compile(r"^```(python|sh|toml)\n(.*?)^```\n", re.M | re.S)
_NEEDS = re.compile(r"\A---\nneeds: (\w+)\n---\n")
_FILE = re.compile(r"\A# ([\w-]+\.toml)\n")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Cell:
    """A piece of a tutorial: text (`markdown`) or code, and what the code gave."""

    kind: str
    source: str
    printed: str = ""
    pictures: list[str] = field(default_factory=list)


def names() -> list[str]:
    """All tutorials."""
    return sorted(path.stem for path in TUTORIALS.glob("*.md") if path.stem != "index")


def needs(text: str) -> str | None:
    """The package that a tutorial needs besides thalweg."""
    match = _NEEDS.match(text)
    return match[1] if match else None


def cells(text: str) -> list[Cell]:
    """A tutorial as cells."""
    pieces = _PARTS.split(_NEEDS.sub("", text))
    found = [Cell("markdown", pieces[0].strip("\n"))]
    for kind, code, after in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        found += [Cell(kind, code.rstrip("\n")), Cell("markdown", after.strip("\n"))]
    return [cell for cell in found if cell.source]


# --- running ---------------------------------------------------------------------------------------


def _execute(code: str, namespace: dict[str, Any]) -> Any:
    """Run a cell; the value of its last expression, None where it ends with something else."""
    tree = ast.parse(code)
    shown = None
    if isinstance(tree.body[-1], ast.Expr):
        shown = ast.Expression(tree.body.pop().value)  # pyright: ignore[reportAttributeAccessIssue]
    exec(compile(tree, "<cell>", "exec"), namespace)
    return None if shown is None else eval(compile(shown, "<cell>", "eval"), namespace)


def _pictures(stem: str, out: Path) -> list[str]:
    import matplotlib.pyplot as plt

    found = []
    for number in plt.get_fignums():
        name = f"{stem}-{len(list(out.glob(stem + '-*.png'))) + 1}.png"
        plt.figure(number).savefig(out / name, dpi=110)
        found.append(name)
    plt.close("all")
    return found


def _shell(command: str) -> str:
    here = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    plain = {"COLUMNS": "86", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        command, shell=True, text=True, capture_output=True, env={**os.environ, **here, **plain}
    )
    if done.returncode not in (0, 1):
        told = done.stdout + done.stderr  # progress, which a page leaves out
        raise RuntimeError(f"{command} ended with code {done.returncode}:\n{told}")
    return _COLOURS.sub("", done.stdout)


def run(found: list[Cell], stem: str, out: Path) -> None:
    """Run all cells in the present folder, and note what they gave."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in found:
        if cell.kind == "python":
            told = io.StringIO()
            with contextlib.redirect_stdout(told):
                value = _execute(cell.source, namespace)
            cell.printed, cell.pictures = told.getvalue(), _pictures(stem, out)
            if value is not None and not cell.pictures:
                cell.printed += f"{value!r}\n"
        elif cell.kind == "sh":
            cell.printed = _shell(cell.source)
        elif match := _FILE.match(cell.source):
            Path(match[1]).write_text(cell.source + "\n", "utf-8")


# --- writing ---------------------------------------------------------------------------------------


def page(found: list[Cell], stem: str, note: str) -> str:
    """The page, with what each cell gave below it."""
    title, _, rest = found[0].source.partition("\n")
    lines = [title, "", f"{{download}}`Download as a notebook <{stem}.ipynb>`{note}", rest, ""]
    for cell in found[1:]:
        if cell.kind == "markdown":
            lines += [cell.source, ""]
            continue
        lines += [f"```{cell.kind}", cell.source, "```", ""]
        if cell.printed.strip():
            lines += [
                "```{code-block} text",
                ":class: output",
                "",
                cell.printed.rstrip(),
                "```",
                "",
            ]
        lines += [f"![What the code above draws]({name})\n" for name in cell.pictures]
    return "\n".join(lines)


def notebook(found: list[Cell]) -> dict[str, Any]:
    """The same as a Jupyter notebook, with empty outputs: who downloads it wants to run it."""
    return {
        "nbformat": 4, "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3",
                                    "language": "python"}},
        "cells": [_notebook_cell(cell, number) for number, cell in enumerate(found)],
    }  # fmt: skip


def _notebook_cell(cell: Cell, number: int) -> dict[str, Any]:
    source = cell.source
    if cell.kind == "sh":
        source = "\n".join(f"!{line}" for line in source.splitlines())
    elif cell.kind == "toml":
        match = _FILE.match(source)
        source = f"%%writefile {match[1]}\n{source}" if match else f"```toml\n{source}\n```"
    same = {"id": f"cell-{number}", "metadata": {}, "source": source.splitlines(keepends=True)}
    if cell.kind == "markdown" or source.startswith("```"):
        return {"cell_type": "markdown", **same}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **same}


def write_one(stem: str, out: Path, *, quick: bool = False) -> None:
    """Run a tutorial, unless it is to be quick or its package is missing, and write both files."""
    text = (TUTORIALS / f"{stem}.md").read_text("utf-8")
    found, package, note = cells(text), needs(text), ""
    if quick or (package and find_spec(package) is None):
        note = ". It was not run when this page was built."
        if not quick:
            print(f"tutorial {stem}: not run, because {package} is not installed", file=sys.stderr)
    else:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            run(found, stem, out)
    (out / f"{stem}.md").write_text(page(found, stem, note), "utf-8")
    (out / f"{stem}.ipynb").write_text(json.dumps(notebook(found), indent=1), "utf-8")


def write(source: Path, *, quick: bool) -> None:
    """Write all of them, two at a time, each in a process of its own."""
    out = source / "tutorials"
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.md").write_text((TUTORIALS / "index.md").read_text("utf-8"), "utf-8")
    if quick:
        for stem in names():
            write_one(stem, out, quick=True)
        return
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda stem: _in_a_process(stem, out), names()))


def _in_a_process(stem: str, out: Path) -> None:
    # One thread of linear algebra each: two at a time share the cores already.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "MPLBACKEND": "agg"}
    command = [sys.executable, __file__, stem, str(out)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"The tutorial {stem} failed:\n{done.stdout}{done.stderr}")
    sys.stderr.write(done.stderr)


if __name__ == "__main__":
    write_one(sys.argv[1], Path(sys.argv[2]).resolve())
