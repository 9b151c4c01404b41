"""What people do first, as whole processes: how long each takes before it has ended.

Every row is a fresh process, timed from outside. *First ever* is as on a machine right after the
set-up: JAX has compiled nothing yet, the kernels are there; with `--bare` they are not, as where
the package was installed in another way. *Again* finds what the first time left. What is shown are
medians, of seconds on the clock and of seconds of processors; the latter hardly change where other
work is done beside.

Run as `python benchmarks/cold_start.py [ROUNDS] [--bare]`, 5 rounds unless said otherwise, on quiet
cores.
"""

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
COMMAND = str(Path(sys.executable).with_name("thalweg"))


class Row(NamedTuple):
    """A call, and the seconds that it is to take."""

    what: str
    call: list[str]
    first: float | None  # the aim in seconds, where the first time counts
    again: float


def rows() -> list[Row]:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    snippet = examples[0]  # the others need a model
    sweep = str(ROOT / "examples" / "marion2024-fig1.toml")
    return [
        Row("thalweg --help", [COMMAND, "--help"], None, 0.4),
        Row("import thalweg", [sys.executable, "-c", "import thalweg"], None, 1.0),
        Row("the README's example", [sys.executable, "-c", snippet], 6.0, 4.0),
        Row("thalweg run", [COMMAND, "run"], 15.0, 8.0),
        Row("thalweg certify", [COMMAND, "certify"], None, 4.0),
        Row("thalweg sweep (fig. 1)", [COMMAND, "sweep", sweep], None, 6.0),
    ]


def environment(caches: Path, kernels: Path) -> dict[str, str]:
    return os.environ | {"XDG_CACHE_HOME": str(caches), "NUMBA_CACHE_DIR": str(kernels)}


def seconds(call: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """On the clock and of processors; in a folder of its own, so that nothing is found there."""
    with tempfile.TemporaryDirectory() as folder:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(call, cwd=folder, env=environment, capture_output=True, check=True)
        passed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return passed, spent


def measured(row: Row, rounds: int, kernels: Path | None) -> tuple[list[float], list[float]]:
    """The medians of the first time ever and of the next one."""
    first, again = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as caches:
            known = environment(Path(caches), kernels or Path(caches) / "kernels")
            first.append(seconds(row.call, known))
            again.append(seconds(row.call, known))
    return tuple([statistics.median(part) for part in zip(*found, strict=True)]
                 for found in (first, again))  # fmt: skip


def main(rounds: int, kernels: Path | None) -> None:
    if kernels is not None:
        call = [sys.executable, "-m", "thalweg.kernels.ready", "descents", "spectra"]
        subprocess.run(call, env=environment(kernels, kernels), check=True)
    table = Table("", "first ever", "aim", "again", "aim", "processors: first", "again")
    for row in rows():
        first, again = measured(row, rounds, kernels)
        aim = "" if row.first is None else f"{row.first:g} s"
        table.add_row(
            row.what, f"{first[0]:.2f} s", aim, f"{again[0]:.2f} s", f"{row.again:g} s",
            f"{first[1]:.2f} s", f"{again[1]:.2f} s",
        )  # fmt: skip
        Console(stderr=True).print(f"{row.what}: {first[0]:.2f} s, again {again[0]:.2f} s")
    Console(width=110).print(table)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    with tempfile.TemporaryDirectory() as compiled:
        main(*(numbers or [5]), None if "--bare" in sys.argv else Path(compiled))
