"""Can the tests fail? A random sample of small faults, put into the code one at a time.

A tool to run by hand; only the standard library and pytest are needed. Each mutant changes one
expression of one line; lines are drawn evenly from the code of the packages, and a change evenly
from those that the line offers: an operator, a comparison or a constant exchanged, a term, a sign
or a call dropped. Messages, annotations, docstrings and what is shown are left alone. A mutant is
killed where a test fails, survives where none does, and counts as killed where tests do not end.

    python tests/mutation/sample.py reach  RESULTS                which test reaches which function
    python tests/mutation/sample.py draw   RESULTS --seed 2026    the mutants
    python tests/mutation/sample.py try    RESULTS                the tests that reach each; resumes
    python tests/mutation/sample.py report RESULTS                the numbers, and the survivors

RESULTS is a folder outside of the repository. `draw` fixes the mutants: later commands find them
again by their text, even where lines have moved. `try --only 7 12` tries single ones, `try --again`
the survivors once more, with the tests that mention the mutated function now; `report --equivalent
FILE` leaves out the mutants that FILE lists (number, space, reason) as no fault at all.
"""

import argparse
import ast
import builtins
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutants import ROOT, applied, mutants_of

PACKAGES = ("problem", "network", "objective", "dynamics", "curvature", "tubes", "theorems")


def main() -> None:
    """Reads the command line and does what it asks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=["reach", "draw", "try", "report"])
    parser.add_argument("results", type=Path)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument(
        "--without", nargs="*", default=[], help="module:Name, left out of the draw"
    )
    parser.add_argument("--tests", nargs="*", default=[], help="test files whose reach is measured")
    parser.add_argument("--only", nargs="*", type=int, default=[])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of tests for a mutant")
    parser.add_argument("--equivalent", type=Path)
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    {"reach": reach, "draw": draw, "try": try_all, "report": report}[options.command](options)


# --- The sample ----------------------------------------------------------------------------------


def modules() -> Iterator[Path]:
    """The source files of the packages, in order."""
    for package in PACKAGES:
        folder = ROOT / "src" / "thalweg" / package
        yield from sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def draw(options: argparse.Namespace) -> None:
    """Lines evenly, and on each drawn line one change."""
    by_line = defaultdict(list)
    for path in modules():
        module = str(path.relative_to(ROOT / "src" / "thalweg").with_suffix("")).replace("/", ".")
        for mutant in mutants_of(path):
            name = f"{module}:{mutant['scope']}"
            if not any(name == left or name.startswith(left + ".") for left in options.without):
                by_line[mutant["file"], mutant["line"]].append(mutant)
    chance = random.Random(options.seed)
    lines = chance.sample(sorted(by_line), min(options.count, len(by_line)))
    with (options.results / "mutants.jsonl").open("w") as file:
        for number, line in enumerate(sorted(lines)):
            mutant = chance.choice(by_line[line])
            file.write(json.dumps({"number": number, **mutant}) + "\n")
    print(f"{len(lines)} mutants of {sum(map(len, by_line.values()))} on {len(by_line)} lines")


# --- Which test reaches which function -----------------------------------------------------------


class Marked(ast.NodeTransformer):
    """Puts a mark at the beginning of every function."""

    def __init__(self, file: str) -> None:
        self.file, self.scope = file, []

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.visit_ClassDef(node)
        name = ".".join([*self.scope, node.name])
        mark = ast.parse(
            f"getattr(__import__('builtins'), '_reached', len)({self.file + '|' + name!r})"
        )
        place = 1 if ast.get_docstring(node) is not None else 0
        node.body[place:place] = mark.body
        return node


def pytest_configure(config: Any) -> None:
    """This file is a plugin of pytest, too, while reach is measured."""
    builtins._reached = _NOW.add  # type: ignore[attr-defined]


def pytest_runtest_logreport(report: Any) -> None:
    """One line for each phase of each test: its time, and what was reached."""
    with open(os.environ["THALWEG_REACH"], "a") as file:
        row = {"test": report.nodeid, "seconds": report.duration, "reached": sorted(_NOW)}
        file.write(json.dumps(row) + "\n")
    _NOW.clear()


_NOW: set[str] = set()


def reach(options: argparse.Namespace) -> None:
    """Runs the test files, each in a process, on a copy whose functions are marked."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        for path in modules():
            file = str(path.relative_to(ROOT))
            tree = Marked(file).visit(ast.parse(path.read_text()))
            (Path(folder) / file).write_text(ast.unparse(ast.fix_missing_locations(tree)))
        rows = options.results / "reach.jsonl"
        finished = options.results / "reached.txt"
        done = set(finished.read_text().split()) if finished.exists() else set()
        files = options.tests or sorted(
            str(p.relative_to(ROOT)) for p in (ROOT / "tests").rglob("test_*.py")
        )

        def run(test: str) -> None:
            arguments = ["-p", "sample", "--maxfail=1000", test]
            code, seconds, said = on_sources(Path(folder) / "src", arguments, 3600, rows)
            print(f"{test}: {code}, {seconds:.0f} s, {said}", flush=True)
            with finished.open("a") as file:
                file.write(test + "\n")

        with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
            list(pool.map(run, [file for file in files if file not in done]))


def on_sources(
    source: Path, arguments: list[str], timeout: float, rows: Path | None = None
) -> tuple[int | None, float, str]:
    """The exit code of pytest on other sources (None: no end), seconds, and its last words."""
    here = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{here}"}
    environment["THALWEG_REACH"] = str(rows)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--tb=no", *arguments]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly"]
    began = time.monotonic()
    process = subprocess.Popen(
        ["nice", "-n", "10", *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        said, _ = process.communicate()
        code = None
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    last = failed[0] if failed else (said.strip().splitlines() or [""])[-1]
    return code, time.monotonic() - began, last


# --- Trying --------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines; none where it is absent."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def outcomes(results: Path) -> dict[int, dict[str, Any]]:
    """The last outcome of every mutant."""
    return {row["number"]: row for row in read(results / "outcomes.jsonl")}


def tests_of(mutant: dict[str, Any], rows: list[dict[str, Any]], budget: float) -> list[str]:
    """The tests that reach the function, those that cost least first, as far as the budget goes.

    What is outside of functions, or in one that no test reaches by itself, is as well tested as
    its module.
    """
    names = mutant["scope"].split(".")
    marks = {f"{mutant['file']}|{'.'.join(names[:k])}" for k in range(1, len(names) + 1)}
    seconds: dict[str, float] = defaultdict(float)
    exact, module = set(), set()
    for row in rows:
        seconds[row["test"]] += row["seconds"]
        if marks & set(row["reached"]):
            exact.add(row["test"])
        if any(mark.startswith(mutant["file"] + "|") for mark in row["reached"]):
            module.add(row["test"])
    chosen, spent = [], 0.0
    for test in sorted(exact or module, key=lambda name: seconds[name]):
        spent += seconds[test]
        if spent > budget and chosen:
            break
        chosen.append(test)
    return chosen


def tests_that_mention(mutant: dict[str, Any]) -> list[str]:
    """Test files with the name of the function, its class or its module, the smallest first."""
    words = {part for part in mutant["scope"].split(".") if not part.startswith("__")}
    words |= {Path(mutant["file"]).stem}
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, words)) + r")\b")
    files = [p for p in (ROOT / "tests").rglob("test_*.py") if pattern.search(p.read_text())]
    return [str(p.relative_to(ROOT)) for p in sorted(files, key=lambda p: p.stat().st_size)]


def try_all(options: argparse.Namespace) -> None:
    """Every mutant that has no outcome yet."""
    done = outcomes(options.results)
    rows = read(options.results / "reach.jsonl")

    def wanted(number: int) -> bool:
        if options.only:
            return number in options.only
        survived = done.get(number, {}).get("outcome") == "survived"
        return survived if options.again else number not in done

    mutants = [m for m in read(options.results / "mutants.jsonl") if wanted(m["number"])]

    def run(mutant: dict[str, Any]) -> None:
        tests = tests_of(mutant, rows, options.budget)
        row = {"number": mutant["number"], **outcome(mutant, tests, options)}
        with (options.results / "outcomes.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(
            told(mutant), "->", row["outcome"], f"({row['seconds']:.0f} s) {row['by']}", flush=True
        )

    with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(run, mutants))


def outcome(
    mutant: dict[str, Any], tests: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    """What the tests say of one mutant, put into a copy of the sources."""
    source = applied(mutant)
    if source is None:
        return {"outcome": "gone", "seconds": 0.0, "by": ""}
    if options.again:
        tests = tests_that_mention(mutant)
    if not tests:
        return {"outcome": "survived", "seconds": 0.0, "by": "no test reaches it"}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        (Path(folder) / mutant["file"]).write_text(source)
        listed = Path(folder) / "tests.txt"
        listed.write_text("\n".join(tests))
        timeout = 120 + 6 * options.budget
        code, seconds, said = on_sources(Path(folder) / "src", [f"@{listed}"], timeout)
    result = {0: "survived", None: "timeout"}.get(code, "killed")
    return {"outcome": result, "seconds": seconds, "by": said}


# --- Telling -------------------------------------------------------------------------------------


def told(mutant: dict[str, Any]) -> str:
    """One line about a mutant."""
    place = mutant["file"].removeprefix("src/thalweg/")
    before, after = (" ".join(mutant[key].split()) for key in ("before", "after"))
    return f"{mutant['number']:3} {place}:{mutant['line']} {mutant['scope']}: {before} => {after}"


def report(options: argparse.Namespace) -> None:
    """Counts by package, then the survivors."""
    done = outcomes(options.results)
    lines = options.equivalent.read_text().splitlines() if options.equivalent else []
    equivalent = {int(line.split()[0]): line.split(maxsplit=1)[1] for line in lines if line.strip()}
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    survivors = []
    for mutant in read(options.results / "mutants.jsonl"):
        result = done.get(mutant["number"], {"outcome": "not tried"})["outcome"]
        if result == "survived" and mutant["number"] in equivalent:
            result = "equivalent"
        package = Path(mutant["file"]).parts[2].removesuffix(".py")
        for key in (package, "total"):
            counts[key][result] += 1
        if result not in ("killed", "timeout"):
            reason = equivalent.get(mutant["number"], "")
            survivors.append(f"{told(mutant)} -> {result} {reason}".rstrip())
    for key in (*PACKAGES, "total"):
        print(key, dict(counts[key]))
    total = counts["total"]
    killed = total["killed"] + total["timeout"]
    print(f"killed: {killed} of {killed + total['survived']} that are tried and not equivalent")
    print("\n".join(survivors))


if __name__ == "__main__":
    main()
