"""A process that tries cases, one line of JSON in for each, and one or two out.

It imports the program once and calls it in a fresh folder for every case. Before the outcome of a
case comes the line "word" when the first character was printed, so that a hang is seen from
outside. What is long and drawn by others is not done: pictures are empty but for some cases.
"""

import faulthandler
import io
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
)

import arguments
import commands
import experiments
import proof_files
import stores
import tables
import worlds
from cases import Case, Outcome, faults
from drawing import Rng

_DRAWN_EVERY = 20


class _Stream(io.StringIO):
    """Text in memory that tells when the first of it comes."""

    def __init__(self, told: Callable[[], None]):
        super().__init__()
        self._told = told

    def write(self, text: str) -> int:
        if text:
            self._told()
        return super().write(text)


def _printed(act: Callable[[], Outcome], told: Callable[[], None] = lambda: None) -> Outcome:
    """The outcome of a call with what it printed."""
    from thalweg import InputError
    from thalweg.dynamics import FlowError

    out, err = _Stream(told), _Stream(told)
    with redirect_stdout(out), redirect_stderr(err):
        try:
            outcome = act()
        except (InputError, FlowError) as error:
            return Outcome(2, out.getvalue(), str(error))
        except BaseException:  # whatever it is, the process goes on with the next case
            return Outcome(None, out.getvalue(), err.getvalue(), traceback.format_exc())
    return Outcome(
        outcome.code,
        outcome.out or out.getvalue(),
        outcome.err or err.getvalue(),
        outcome.trace,
        outcome.found,
    )


KINDS: dict[str, Callable[[Rng], Case]] = {
    "experiment": experiments.case,
    "command": commands.case,
    "table": tables.case,
    "proof": proof_files.case,
    "python": arguments.case,
    "store": lambda rng: stores.case(rng, _printed),
}


def case_of(kind: str, seed: int, number: int) -> Case:
    """The case of this name, which is always the same for one version of the program."""
    return KINDS[kind](Rng(f"{kind} {seed} {number}"))


def attempt(
    kind: str, seed: int, number: int, world: Path, told: Callable[[], None]
) -> dict[str, Any]:
    """Try a case; what it was, what came of it, and what is wrong with that."""
    case = case_of(kind, seed, number)
    top = Path(tempfile.mkdtemp(prefix="case-", dir=world))
    folder = top / "a" / "b" / "c"  # so that ".." is still inside
    folder.mkdir(parents=True)
    try:
        for name in case.needs:
            _printed(lambda name=name: worlds.provide(world, name, folder) or Outcome(0))
        for name, raw in case.files.items():
            (folder / name).write_bytes(raw)
        os.chdir(folder)
        _draw(number % _DRAWN_EVERY == 0)
        outcome = _printed(case.perform, told)
    finally:
        os.chdir(world)
        shutil.rmtree(top, ignore_errors=True)
    return {
        "what": case.what,
        "files": {name: repr(raw[:3000]) for name, raw in case.files.items()},
        "code": outcome.code,
        "out": outcome.out[-3000:],
        "err": outcome.err[-3000:],
        "trace": outcome.trace[-6000:],
        "faults": faults(case, outcome),
    }


def _draw(really: bool) -> None:
    """Have pictures drawn, or only their files made: drawing takes most of the time of a run."""
    from matplotlib.figure import Figure

    if not hasattr(_draw, "save"):
        _draw.save = Figure.savefig  # type: ignore[attr-defined]

    def touch(figure: Any, place: Any, *_: Any, **__: Any) -> None:
        place.write(b"x") if hasattr(place, "write") else Path(place).write_bytes(b"x")

    Figure.savefig = _draw.save if really else touch  # type: ignore[attr-defined]


def _prepare() -> None:
    """Leave out what takes minutes, or waits for a network."""
    from thalweg import bench, studies
    from thalweg.sweeps import cluster

    def accepted(*_: Any, **__: Any) -> Any:
        raise SystemExit(0)

    studies.conduct = accepted
    bench.measure = accepted
    cluster._SECONDS_TO_CONNECT = 0.3


def main(world: Path, answers: TextIO) -> None:
    """Answer until there are no more questions."""
    faulthandler.enable()

    def say(line: Any) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    _prepare()
    arguments.good()
    say("ready")
    for line in sys.stdin:
        asked, spoken = json.loads(line), []

        def told(spoken: list[bool] = spoken) -> None:
            if not spoken:
                spoken.append(True)
                say("word")

        say(attempt(asked["kind"], asked["seed"], asked["number"], world, told))


if __name__ == "__main__":
    # The program's own prints, and those of compiled code, go elsewhere.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(Path(sys.argv[1]), channel)
