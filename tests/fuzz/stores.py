"""Damaged results: several files of a store at once, cut, overwritten, swapped or gone.

What `show` then says is a refusal, or to the letter what it says of the undamaged store.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import drawing
from cases import Case, Outcome, faults_of_command
from commands import call
from drawing import Rng, chance

_REPORT_CHANGED = "is not what was written; `--figures` writes it again."


def case(rng: Rng, printed: Any) -> Case:
    """A store, its damage and what is shown of it; `printed` calls and gives what was said."""
    name, seed = rng.choice(("a-run", "a-run", "a-sweep")), rng.randrange(2**32)
    words = ["show", name, *(["--json"] if chance(rng, 0.5) else [])]

    def perform() -> Outcome:
        truth = printed(lambda: call(words))
        _damage(Rng(seed), Path(name))
        shown = printed(lambda: call(words))
        found = []
        noticed = "unfinished" in shown.out + shown.err and "unfinished" not in truth.out
        if shown.code == 0 and not _same_results(shown.out, truth.out) and not noticed:
            found.append(
                f"false: a damaged store shows {shown.out[:500]!r}, not {truth.out[:500]!r}"
            )
        return Outcome(shown.code, shown.out, shown.err, shown.trace, found)

    return Case(
        f"thalweg {' '.join(words)}  # {name} damaged at random with {seed}",
        perform,
        (name,),
        judge=lambda outcome: faults_of_command(words, outcome),
    )


def _same_results(shown: str, truth: str) -> bool:
    """Whether both say the same, but for a last line which says that the report was changed."""
    if shown == truth:
        return True
    lines, true = shown.splitlines(), truth.splitlines()
    return lines[:-1] == true[:-1] and lines[-1:] != [] and lines[-1].endswith(_REPORT_CHANGED)


def _damage(rng: Rng, store: Path) -> None:
    paths = sorted(path for path in store.rglob("*"))
    for path in rng.sample(paths, min(len(paths), rng.choice((1, 2, 3, 10)))):
        if not path.exists():  # its folder has gone
            continue
        match rng.randrange(5):
            case 0:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            case 1 if path.is_file():
                path.write_bytes(drawing.damaged(rng, path.read_bytes()))
            case 2 if path.is_file():
                path.write_bytes(b"")
            case 3 if path.is_file():
                path.unlink()
                path.mkdir()
            case _:
                other = rng.choice(paths)
                if path.is_file() and other.is_file() and path != other:
                    shutil.copyfile(other, path)
                elif path.is_file():
                    os.truncate(path, path.stat().st_size // 2)
