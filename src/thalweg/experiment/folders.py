"""Where a run goes: never over another one.

A folder is *free* if nothing in it would be replaced, *begun* or *finished* if it holds this very
experiment: same settings, data, start and version, told by one digest. Anything else in it is
another's.

A run that is to replace another one (`begin_anew`) is computed beside it, and takes its place once
it is finished: an interruption leaves the old one, and the parts of the new one.
"""

import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thalweg._errors import InputError
from thalweg._version import __version__
from thalweg.experiment.files import from_toml, to_toml
from thalweg.experiment.settings import Experiment, Output
from thalweg.quantities import QUANTITIES
from thalweg.quantities.of_runs import ACROSS_KINKS
from thalweg.storage import FORMAT, holds
from thalweg.storage.contents import RESULTS, Begun, attributes
from thalweg.storage.files import numbered, remove, standing, write_text, writing_to
from thalweg.storage.keeper import forget, kept_in, keys_in

DEFAULT = Output().folder
"""The folder of a run that names none."""

PARTS = ".partial"
"""Where finished parts of an unfinished run lie, in its folder."""

PAGE = "report.html"
"""The report, in the folder of a run."""


FORMS = ("png", "pdf", "svg")
"""The forms that pictures may have; a run draws the first, `thalweg show --form` the others."""


IN_OVERVIEW = ("loss", "sharpness", "distance")
"""What the one picture that says most shows, below each other."""

OF_CERTIFICATES = ("sharpness", "overview")
"""The pictures that show what theorems say of this start, besides what was measured."""


def pictures() -> tuple[str, ...]:
    """The names of all pictures that a report may have."""
    measured = (name for name, each in QUANTITIES.items() if each.measure is not None)
    kinks = (each.name for each in ACROSS_KINKS if each.caption)
    special = ("loss", "distance", "central_swing", *kinks, "sharpness", "smallest_eigenvalue")
    return ("overview", *special, *measured)


def _written() -> tuple[str, ...]:
    """All files that are written beside the results; where there is no run, they are the user's."""
    drawn = (f"{name}.{form}" for name in pictures() for form in FORMS)
    return (PAGE, "experiment.toml", *drawn)


_REPLACES = "replaces"
"""Marks, beside its parts, a run that is to replace the one in the folder."""

_OTHERS = {"unknown": "holds other results", "damaged": "holds results that were damaged"}


@dataclass(frozen=True)
class Wanted:
    """A run that is to have a folder: its settings, as they would stand there, and its digest."""

    experiment: Experiment
    digest: str

    def finished_in(self, folder: Path) -> bool:
        """Whether the folder holds the results of this very run."""
        said = attributes(standing(folder / RESULTS)) if holds(folder) == "run" else {}
        own = {"digest": self.digest, "title": self.experiment.title, "format": FORMAT}
        same = all(said.get(name) == value for name, value in own.items())
        return same and not self._replaces_in(folder)

    def other_in(self, folder: Path) -> str | None:
        """What in a folder stands in this run's way, in words; None if nothing does."""
        kind = holds(folder)
        if self._replaces_in(folder):
            return None
        if kind == "run":
            return None if self.finished_in(folder) else self._difference(folder)
        foreign, begun = _foreign_in(folder, kind), keys_in(folder / PARTS)
        if foreign is not None:
            return foreign
        return self._difference(folder) if begun and self.digest not in begun else None

    def _replaces_in(self, folder: Path) -> bool:
        return (folder / PARTS / self.digest / _REPLACES).exists()

    def _difference(self, folder: Path) -> str:
        """The first thing in which the run there is another one."""
        said = attributes(standing(folder / RESULTS))
        text = said.get("experiment") or _text_of(folder)
        old: dict[str, Any] = {}
        with suppress(InputError, tomllib.TOMLDecodeError):
            old = _flat(from_toml(str(text)))
        state = "another experiment" if said else "an unfinished run of another experiment"
        for field, value in (_flat(self.experiment) if old else {}).items():
            if field == "title" and not said:
                continue  # parts go without: they may be used under another one
            if old.get(field) != value:
                there = old.get(field, "not set")
                return f"holds {state}, in which `{field}` is {there!r} instead of {value!r}"
        if said.get("thalweg", __version__) != __version__:
            return f"holds this experiment as done by thalweg {said['thalweg']}"
        return f"holds {state}, on other data" if old else f"holds {state}"


def free_folder(wanted: Wanted, base: Path) -> Path:
    """The folder of this name, or with the least number behind it, that is not in use."""
    return next(each for each in numbered(base) if wanted.other_in(each) is None)


def begun_in(folder: Path) -> Begun | None:
    """The run in a folder that did not come to its end, if there is one."""
    kept = kept_in(folder / PARTS)
    goes_on = "the same `thalweg run` continues"
    found = Begun(f"The run in {folder}", len(kept.whole), kept.damaged, goes_on)
    return found if kept.whole or kept.damaged else None


def are_kept(folder: Path, digest: str) -> bool:
    """Whether there are parts of this very run."""
    return (folder / PARTS / digest).exists()


def finish(folder: Path) -> None:
    """Remove the parts of a run whose results are written."""
    with writing_to(folder):
        forget(folder / PARTS)


def begin_anew(folder: Path, digest: str) -> None:
    """Forget what was begun of a run; it is to replace the one in the folder, once finished."""
    kind = holds(folder)
    if kind == "run" and not standing(folder / RESULTS).exists():
        raise InputError(
            f"`--out` must be the folder that a run is in, got {folder}, which is the store of its "
            f"results; give {folder.parent}."
        )
    # What is too damaged to say what it is lies beside the report of a run.
    of_a_run = kind == "run" or (kind == "damaged" and (folder / PAGE).exists())
    foreign = None if of_a_run else _foreign_in(folder, kind)
    if foreign is not None:
        raise InputError(
            f"{folder} must hold a run to be replaced, but it {foreign}; give another `--out`, or "
            "remove it first."
        )
    parts = folder / PARTS / digest
    with writing_to(folder):
        remove(parts)
        if of_a_run:
            parts.mkdir(parents=True)
            write_text(parts / _REPLACES, "")


def _foreign_in(folder: Path, kind: str | None) -> str | None:
    """What in a folder, which `holds` calls so, is not a run's, in words; None if nothing is."""
    if kind is not None:
        return _OTHERS.get(kind, f"holds a {kind}")
    if (folder / "study.json").exists():
        return "holds an unfinished study"
    taken = (
        [] if keys_in(folder / PARTS) else [name for name in _written() if (folder / name).exists()]
    )
    return f"holds a file {taken[0]} that is not of a run" if taken else None


def _text_of(folder: Path) -> str:
    """The settings of an unfinished run."""
    said = (str(key.get("experiment", "")) for key in keys_in(folder / PARTS).values())
    return next(filter(None, said), "")


def _flat(experiment: Experiment) -> dict[str, Any]:
    """All fields by name, but where results go."""
    held = tomllib.loads(to_toml(experiment))
    held.pop("output", None)
    flat = {name: value for name, value in held.items() if not isinstance(value, dict)}
    for table, fields in held.items():
        if isinstance(fields, dict):
            flat |= {f"{table}.{name}": value for name, value in fields.items()}
    return flat
