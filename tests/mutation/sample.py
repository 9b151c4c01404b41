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
again by their text, even where lines have moved. `try --only 7 12` tries single ones (`--tests`: by
these tests), `try --again` the survivors once more, by the files that mention the function now;
`report --equivalent FILE` leaves out the mutants that FILE lists (number, space, reason) as no
fault at all.
"""

import argparse
import ast
import builtins
import concurrent.futures
import gc
import importlib
import json
import os
import pkgutil
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutants import ROOT, applied, mutants_of

PACKAGES = (
    "problem",
    "network",
    "objective",
    "solvers",
    "dynamics",
    "curvature",
    "tubes",
    "certificates",
    "theorems",
)


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
    parser.add_argument("--tests", nargs="*", default=[], help="to measure, or to try instead")
    parser.add_argument("--only", nargs="*", type=int, default=[])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of tests for a mutant")
    parser.add_argument("--equivalent", type=Path)
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    os.nice(10)
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
            arguments = _pytest("-p", "sample", "--maxfail=1000", test)
            environment = {**_environment(Path(folder) / "src"), "THALWEG_REACH": str(rows)}
            command = [sys.executable, "-m", "pytest", *arguments]
            found = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True
            )
            print(test, found.stdout.strip().splitlines()[-1:], flush=True)
            with finished.open("a") as file:
                file.write(test + "\n")

        with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
            list(pool.map(run, [file for file in files if file not in done]))


def _pytest(*arguments: str) -> list[str]:
    return ["-q", "-x", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", *arguments]


def _environment(source: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{Path(__file__).parent}"}


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

    waiting = [m for m in read(options.results / "mutants.jsonl") if wanted(m["number"])]
    preload()
    running: dict[int, Trial] = {}
    while waiting or running:
        while waiting and len(running) < options.processes:
            trial = Trial(waiting.pop(0), rows, options)
            running[trial.pid] = trial
        time.sleep(0.2)
        for pid, trial in list(running.items()):
            if trial.ended():
                running.pop(pid).told(options.results)


def preload() -> None:
    """Imports the package as the tests do, types checked: every trial is forked from here."""
    # Said before JAX is imported, and by the tests' conftest, too.
    flags = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    os.environ.setdefault("XLA_FLAGS", flags)
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    sys.path.insert(0, str(ROOT / "src"))
    import jaxtyping

    with jaxtyping.install_import_hook("thalweg", "beartype.beartype"):
        import thalweg

        for module in pkgutil.walk_packages(thalweg.__path__, "thalweg."):
            if not module.name.startswith(("thalweg.__main__", "thalweg.bench")):
                importlib.import_module(module.name)


class Trial:
    """The tests of one mutant, in a process of their own."""

    def __init__(self, mutant: dict[str, Any], rows: list[dict[str, Any]], options: Any) -> None:
        given = options.tests or (tests_that_mention(mutant) if options.again else [])
        self.mutant, self.tests = mutant, given or tests_of(mutant, rows, options.budget)
        self.began, self.limit = time.monotonic(), 300 + 10 * options.budget
        self.folder, self.code = Path(tempfile.mkdtemp()), 0
        self.source = applied(mutant)
        (self.folder / "tests.txt").write_text("\n".join(self.tests))
        self.pid = os.fork() if self.source and self.tests else -mutant["number"] - 1
        if self.pid == 0:
            self._run()

    def _run(self) -> None:
        """In the child: the fault goes in where the function is, or into a copy of all sources."""
        os.setsid()
        os.chdir(ROOT)
        log = os.open(self.folder / "log", os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        listed = f"@{self.folder / 'tests.txt'}"
        if put_in_place(self.mutant, self.source or ""):
            import pytest

            # Types are checked already, by the hook under which the package was imported; and other
            # plugins complain that they are.
            os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
            os._exit(pytest.main(_pytest("-o", "addopts=--strict-markers", listed)))
        shutil.copytree(ROOT / "src", self.folder / "src")
        (self.folder / self.mutant["file"]).write_text(self.source or "")
        command = [sys.executable, "-m", "pytest", *_pytest(listed)]
        os.execve(sys.executable, command, _environment(self.folder / "src"))

    def ended(self) -> bool:
        """Whether it has come to an end, or was brought to it."""
        if self.pid < 0:
            return True
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
        elif time.monotonic() - self.began > self.limit:
            os.killpg(self.pid, 9)
            os.waitpid(self.pid, 0)
            self.code, pid = None, self.pid
        return bool(pid)

    def told(self, results: Path) -> None:
        """Keeps the outcome, and says it."""
        log = self.folder / "log"
        said = log.read_text(errors="replace") if log.exists() else "no test reaches it"
        shutil.rmtree(self.folder)
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
        # Negative: a crash of the process, or none was needed.
        found = "killed" if failed or (self.code or 0) < 0 else "broken"
        result = {0: "survived", None: "timeout"}.get(self.code, found)
        row = {
            "number": self.mutant["number"],
            "outcome": result if self.source else "gone",
            "seconds": time.monotonic() - self.began,
            "tests": len(self.tests),
            "by": failed[0] if failed else (said.strip().splitlines() or [""])[-1],
        }
        with (results / "outcomes.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        told = f"{row['outcome']} ({row['seconds']:.0f} s, {row['tests']} tests) {row['by']}"
        print(told_of(self.mutant), "->", told, flush=True)


def put_in_place(mutant: dict[str, Any], source: str) -> bool:
    """Gives the loaded functions of this name the mutated code; False where that is not enough."""
    path = ROOT / mutant["file"]
    loaded = [
        each
        for each in gc.get_objects()
        if isinstance(each, types.FunctionType) and each.__code__.co_filename == str(path)
    ]
    name = str(path.relative_to(ROOT / "src").with_suffix("")).replace("/", ".")
    loader = sys.modules[name.removesuffix(".__init__")].__spec__.loader  # type: ignore[union-attr]
    codes = _codes(loader.source_to_code(source.encode(), str(path)))  # type: ignore[union-attr]
    done = False
    for function in loaded:
        own = function.__code__
        changed = [c for c in codes if c.co_qualname == own.co_qualname and _same_place(c, own)]
        within = mutant["scope"] + "."
        if len(changed) == 1 and changed[0] != own and within.startswith(own.co_qualname + "."):
            if changed[0].co_freevars != own.co_freevars:
                return False
            function.__code__ = changed[0]
            done = True
    return done


def _same_place(one: types.CodeType, other: types.CodeType) -> bool:
    return one.co_firstlineno == other.co_firstlineno and one.co_name != "<lambda>"


def _codes(code: types.CodeType) -> list[types.CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return inner + [each for one in inner for each in _codes(one)]


# --- Telling -------------------------------------------------------------------------------------


def told_of(mutant: dict[str, Any]) -> str:
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
            survivors.append(f"{told_of(mutant)} -> {result} {reason}".rstrip())
    for key in (*PACKAGES, "total"):
        print(key, dict(counts[key]))
    total = counts["total"]
    killed = total["killed"] + total["timeout"]
    print(f"killed: {killed} of {killed + total['survived']} that are tried and not equivalent")
    print("\n".join(survivors))


if __name__ == "__main__":
    main()
