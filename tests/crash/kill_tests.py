"""Kill commands at random moments, by hand: `python tests/crash/kill_tests.py --times 20`.

A command is killed (`kill -9`), then given again. What it leaves must then be, byte for byte but
for dates and durations, what an undisturbed command leaves: no file more, none less. And no piece
that was finished before the kill may be made again.

The command runs in a fork of this process, which has imported the program but computed nothing, and
compiled code is kept on the disk: so the moments are spread over the work, not over what comes
before it: a fifth of them before the first piece is on the disk, the others from then to the end.
Time is that of the processor, so that they are so on a busy machine, too; but where a cluster does
the work, it is that of the clock.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time as clock
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CACHE = Path(tempfile.gettempdir()) / "thalweg-kill-tests-compiled"
for _name, _value in (
    ("JAX_COMPILATION_CACHE_DIR", str(_CACHE)),
    ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0"),
    ("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1"),
    ("SOURCE_DATE_EPOCH", "0"),  # or pictures would hold the time of day
    ("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
):
    os.environ.setdefault(_name, _value)

TINY = """
[data]
samples = 6
features = 2
[network]
depth = 2
[training]
learning_rate = [0.05, 0.1]
steps = 200
"""
SWEEP = """
[data]
samples = 6
features = 2
[network]
depth = 3
[training]
learning_rate = 0.1
steps = 10000
[[sweep]]
"data.seed" = { from = 0, to = 11 }
"start.seed" = [0, 1]
"""
PROVEN = TINY.replace("200", "600")
_CHANGING = {"seconds", "made"}
"""What a store says about when it was made."""

_DURATION = re.compile(
    r"\d+(\.\d+)? ?(s|ms|min|seconds)\b|\b(seconds|made) +\S+|\d{4}-\d\d-\d\d"
    r"|sha256 of all above: \w+"  # of dates and durations, too
)
_DATED = re.compile(r"\.z(attrs|metadata)$")
_PIECE = re.compile(r"/(\.partial|blocks|parts)/.*\.npz")
SECONDS = 1800.0
"""What an undisturbed command may take before it counts as stuck."""

EARLY = 0.2
"""Share of the kills that come before the first piece is on the disk."""


@dataclass(frozen=True)
class Kind:
    """What is killed.

    Attributes:
        words: the command, which leaves its results in `out`.
        files: what it reads.
        clustered: whether it computes on a cluster.
        victim: whom the kill hits.
        once: whether it refuses to be given again when it is done.
    """

    words: Sequence[str]
    files: dict[str, str]
    clustered: bool = False
    victim: str = "command"
    once: bool = False


_GRID = ["sweep", "grid.toml", "--out", "out"]
_PROOF = ["prove", "small.toml", "--out", "out/proof.json"]
_STUDY = ["reproduce", "elkabetz2021-fig2", "--quick", "--out", "out", "--pages", "out/pages"]
KINDS = {
    "run": Kind(["run", "small.toml", "--out", "out"], {"small.toml": TINY}),
    "sweep": Kind(_GRID, {"grid.toml": SWEEP}),
    "study": Kind(_STUDY, {}),
    "prove": Kind(_PROOF, {"small.toml": PROVEN}, once=True),
    "cluster": Kind(_GRID, {"grid.toml": SWEEP}, clustered=True),
    "scheduler": Kind(_GRID, {"grid.toml": SWEEP}, clustered=True, victim="scheduler"),
}


# --- processes -----------------------------------------------------------------------------------


class Command:
    """The program at work in a fork of this process; it notes every file that it puts in place."""

    def __init__(self, words: Sequence[str], folder: Path, name: str):
        """Start it in a folder, with its notes beside that folder."""
        self.notes = folder.parent / f"{name}.notes"
        self.printed = folder.parent / f"{name}.printed"
        self.code: int | None = None
        self.worked, self._began = 0.0, clock.perf_counter()
        sys.stdout.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX's, about forks; nothing runs here yet
            self.pid = os.fork()
        if self.pid == 0:
            _work(words, folder, self.notes, self.printed)

    def wait(self, until: float = SECONDS, by_clock: bool = True) -> bool:
        """Wait for its end, or until it has taken so many seconds; whether it has ended."""
        while self.code is None and (self.lasted if by_clock else self._worked()) < until:
            done, status, used = os.wait4(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
                self.worked = used.ru_utime + used.ru_stime
            else:
                clock.sleep(0.005)
        return self.code is not None

    def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        if not self.wait():
            self.kill()
            raise AssertionError(f"stuck: {self.said()}")
        assert self.code is not None
        return self.code

    def kill(self) -> bool:
        """Kill it; whether it was still there to be killed."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code == -signal.SIGKILL

    @property
    def lasted(self) -> float:
        """How long it is at work, by the clock."""
        return clock.perf_counter() - self._began

    def _worked(self) -> float:
        """The processor's seconds so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def first_piece(self) -> float:
        """Wait for the first piece, or for the end; how long it is at work by then."""
        while not any(map(_is_piece, self.put_in_place())) and not self.wait(self.lasted + 0.02):
            pass
        return self.lasted

    def put_in_place(self) -> dict[str, tuple[float, float]]:
        """The files and folders that it has finished, each with the processor's time and ours."""
        found = {}
        for line in self.notes.read_text().splitlines() if self.notes.exists() else []:
            worked, lasted, name = line.split(maxsplit=2)
            if ".part/" not in name:  # else it waits for its folder
                found[name] = float(worked), float(lasted)
        return found

    def said(self) -> str:
        """What it printed last."""
        return self.printed.read_text()[-800:] if self.printed.exists() else ""


def _work(words: Sequence[str], folder: Path, notes: Path, printed: Path) -> None:
    """Be the program; this never returns."""
    code = 1
    try:
        os.chdir(folder)
        with printed.open("w") as screen:
            os.dup2(screen.fileno(), 1)
            os.dup2(screen.fileno(), 2)
        replace, began = os.replace, clock.perf_counter()

        def noted(source: Any, target: Any, **more: Any) -> None:
            replace(source, target, **more)
            with notes.open("a") as file:
                file.write(f"{clock.process_time()} {clock.perf_counter() - began} /{target}\n")

        os.replace = noted
        sys.argv = ["thalweg", *words]
        from thalweg import cli

        cli.main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Cluster:
    """A Dask scheduler with one worker, each a process."""

    def __init__(self, folder: Path):
        """Start both, on a port that is free."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._log = (folder / f"cluster-{port}.log").open("w")
        self.scheduler = self._started("dask_scheduler", "--host", "127.0.0.1", "--port", str(port))
        self.worker = self._started("dask_worker", self.address, "--nthreads", "1", "--no-nanny")

    def _started(self, module: str, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{module}", *words, "--no-dashboard"]
        return subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def end(self) -> None:
        """Kill whatever is left of it."""
        for process in (self.worker, self.scheduler):
            process.kill()
            process.wait()
        self._log.close()


# --- what is left --------------------------------------------------------------------------------


def left(folder: Path) -> dict[str, bytes]:
    """All files below a folder, without dates and durations."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): _timeless(path) for path in paths if path.name != ".lock"
    }


def _timeless(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.name == "SHA256SUMS":  # those of what holds dates are others every time
        lines = raw.decode().splitlines(keepends=True)
        return "".join(line for line in lines if not _DATED.search(line)).encode()
    if path.suffix in (".html", ".md"):
        return _DURATION.sub("", raw.decode()).encode()
    if path.name in (".zattrs", ".zmetadata", "zarr.json") or path.suffix == ".json":
        return json.dumps(_without(json.loads(raw)), sort_keys=True).encode()
    return raw


def _is_piece(name: str) -> bool:
    return _PIECE.search(name) is not None


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(each) for key, each in value.items() if key not in _CHANGING}
    return [_without(each) for each in value] if isinstance(value, list) else value


def differences(found: dict[str, bytes], wanted: dict[str, bytes]) -> list[str]:
    """What two folders do not have in common."""
    lines = [f"missing: {name}" for name in sorted(set(wanted) - set(found))]
    lines += [f"left over: {name}" for name in sorted(set(found) - set(wanted))]
    both = set(found) & set(wanted)
    return lines + [f"differs: {name}" for name in sorted(both) if found[name] != wanted[name]]


# --- kills ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kill:
    """What one kill did.

    Attributes:
        hit: whether the command had not ended by itself.
        written: how many files and folders were in place.
        finished: how many of them were pieces, which are not to be made again.
        twice: those that were.
        differ: where the results are not those of an undisturbed command.
        wrong: all else that should not be.
    """

    hit: bool
    written: int
    finished: int
    twice: list[str]
    differ: list[str]
    wrong: list[str]

    @property
    def harm(self) -> list[str]:
        """All that it did harm to."""
        return self.wrong + [f"made twice: {name}" for name in self.twice] + self.differ

    def __str__(self) -> str:
        """One line."""
        state = f"{self.written} files and {self.finished} pieces in place"
        return (
            f"{'hit' if self.hit else 'too late'}, {state}: {self.harm or 'all is as it should be'}"
        )


class Trial:
    """Kills of one kind, each compared with an undisturbed command."""

    def __init__(self, kind: Kind, top: Path, stack: ExitStack):
        """Take the kind, a folder for everything, and who cleans up in the end."""
        self.kind, self.top = kind, top
        self._stack, self._cluster = stack, None
        self.reference: dict[str, bytes] = {}
        self.began = self.seconds = 0.0
        self._undisturbed()

    def folder(self, name: str) -> Path:
        """A new folder with the files that the command reads."""
        folder = self.top / name / "here"
        folder.mkdir(parents=True)
        (folder / "out").mkdir()
        for file, text in self.kind.files.items():
            (folder / file).write_text(text)
        return folder

    def start(self, folder: Path, name: str) -> Command:
        """The command at work."""
        words = list(self.kind.words)
        if self.kind.clustered:
            words += ["--scheduler", self.cluster().address]
        return Command(words, folder, name)

    def cluster(self) -> Cluster:
        """The cluster, a new one if its scheduler is gone."""
        if self._cluster is None or self._cluster.scheduler.poll() is not None:
            if self._cluster is not None:
                self._cluster.end()
            self._cluster = Cluster(self.top)
            self._stack.callback(self._cluster.end)
        return self._cluster

    def _undisturbed(self) -> None:
        """See what an undisturbed command leaves; the second one finds everything compiled."""
        for number in range(2):
            folder = self.folder(f"undisturbed-{number}")
            command = self.start(folder, "whole")
            assert command.ended() == 0, command.said()
            pieces = {name: at for name, at in command.put_in_place().items() if _is_piece(name)}
            times = [at[self.kind.clustered] for at in pieces.values()]
            self.began = min(times, default=0.0)
            self.seconds = command.lasted if self.kind.clustered else command.worked
        again = left(self.top / "undisturbed-0" / "here" / "out")
        self.reference = left(folder / "out")
        found = differences(again, self.reference)
        assert not found, f"not even twice the same: {found}"

    def moment(self, share: float) -> float:
        """When to kill: at 0 as soon as it is started, at `EARLY` when the first piece is there."""
        if self.began == 0.0:
            return self.seconds * share
        if share < EARLY:
            return self.began * share / EARLY
        return self.began + (self.seconds - self.began) * (share - EARLY) / (1 - EARLY)

    def once(self, number: int, moment: float) -> "Kill":
        """Kill at a moment and go on."""
        folder = self.folder(f"kill-{number}")
        command = self.start(folder, "killed")
        if self.kind.clustered and moment > self.began:
            # When workers have begun is another moment every time.
            moment += command.first_piece() - self.began
        command.wait(moment, by_clock=self.kind.clustered)
        hit, wrong = self._kill(command)
        written = command.put_in_place()
        finished = [name for name in written if _is_piece(name)]
        again = self.start(folder, "again")
        code = again.ended()
        if code != (2 if self.kind.once and written else 0):
            wrong.append(f"the second command ended with {code}: {again.said()}")
        twice = sorted(set(finished) & set(again.put_in_place()))
        differ = differences(left(folder / "out"), self.reference)
        if not (wrong or twice or differ):
            shutil.rmtree(folder.parent)
        return Kill(hit, len(written), len(finished), twice, differ, wrong)

    def _kill(self, command: Command) -> tuple[bool, list[str]]:
        if self.kind.victim == "command":
            return command.kill(), []
        if command.code is not None:
            return False, []
        cluster = self.cluster()
        cluster.scheduler.kill()
        cluster.scheduler.wait()
        code = command.ended()  # it says so and ends, or had all that it needed
        if code not in (0, 2) or "Traceback" in command.said():
            return True, [f"without a scheduler it ended with {code}: {command.said()}"]
        return True, []


@contextmanager
def trial(kind: str) -> Iterator[Trial]:
    """All that kills of a kind need, gone afterwards."""
    import thalweg.cli  # noqa: F401  (what forks share)
    from thalweg import experiment, reports, studies, sweeps, tubes  # noqa: F401

    top = Path(tempfile.mkdtemp(prefix="thalweg-kill-"))
    try:
        with ExitStack() as stack:
            yield Trial(KINDS[kind], top, stack)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def kill_many(kind: str, times: int, seed: int) -> int:
    """Kill so many times, spread evenly at random; how many of them did harm."""
    moments, began, kills = random.Random(seed), clock.perf_counter(), []
    with trial(kind) as tried:
        print(
            f"{kind}: {tried.seconds:.1f} s undisturbed, {tried.began:.1f} s to the first piece, "
            f"{len(tried.reference)} files",
            flush=True,
        )
        for number in range(times):
            moment = tried.moment((number + moments.random()) / times)
            kills.append(tried.once(number, moment))
            print(f"{kind} {number}: {moment:.2f} s, {kills[-1]}", flush=True)
    hits = [kill for kill in kills if kill.hit]
    harmful = sum(bool(kill.harm) for kill in kills)
    print(
        f"{kind}: {times} kills in {clock.perf_counter() - began:.0f} s: {len(hits)} hit, "
        f"{sum(kill.finished > 0 for kill in hits)} of them with pieces on the disk; "
        f"{sum(kill.finished for kill in kills)} pieces were finished, "
        f"{sum(len(kill.twice) for kill in kills)} of them made again; "
        f"{sum(not kill.differ for kill in kills)} results the same byte for byte; "
        f"{harmful} with harm",
        flush=True,
    )
    return harmful


def main() -> int:
    """Do as the command line says; 1 if a kill did harm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    kinds = list(KINDS) if given.kind == "all" else [given.kind]
    return int(sum(kill_many(kind, given.times, given.seed) for kind in kinds) > 0)


if __name__ == "__main__":
    sys.exit(main())
