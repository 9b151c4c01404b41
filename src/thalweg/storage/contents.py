"""What a folder of results holds, told without reading any number."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zarr

from thalweg._arguments import checked
from thalweg.storage.files import LOCK, is_written_to, standing
from thalweg.storage.sums import are_as_written

RESULTS = "results.zarr"
"""The store inside of a folder of results."""

MANIFEST = "sweep.json"
"""What says that a folder belongs to a sweep, finished or not."""

_METADATA = (".zgroup", ".zattrs", ".zmetadata")


@dataclass(frozen=True)
class Begun:
    """Work that did not come to its end.

    Attributes:
        what: what it is, as the beginning of a sentence.
        done: how many of its parts are there and whole.
        damaged: the names of those that are there, but damaged.
        command: how it is continued, as the end of a sentence.
    """

    what: str
    done: int
    damaged: list[str]
    command: str


@checked
def holds(folder: str | Path) -> str | None:
    """Of what a folder holds results, so that no command writes over those of another one.

    Returns:
        "sweep" (finished or not), "run", "study", "unknown" for a store that says nothing of
        itself, "damaged" for one whose word cannot be trusted, or None where there are no results.
    """
    place = Path(folder)
    if (place / MANIFEST).exists():
        return "sweep"
    return kind_of(place / RESULTS) or (kind_of(place) if _is_store(standing(place)) else None)


def _is_store(path: Path) -> bool:
    return any((path / name).exists() for name in (".zgroup", ".zmetadata", "zarr.json"))


def kind_of(store: Path) -> str | None:
    """Of what a store holds results, as `holds` calls it."""
    found = standing(store)
    if not found.exists():
        return None
    said = attributes(found)
    if not said and not are_as_written(found, _METADATA):
        return "damaged"
    return str(said.get("kind") or ("study" if "study" in said else "unknown"))


def attributes(store: Path) -> dict[str, Any]:
    """What a store says about itself; nothing if it cannot be read or is not what was written."""
    if not are_as_written(store, _METADATA):
        return {}
    try:
        return zarr.open_group(store, mode="r").attrs.asdict()
    except Exception:  # a damaged store leads to errors of any kind
        return {}


@checked
def explain(path: Path) -> str:
    """What is where there are no results, in one sentence."""
    wanted = "Results must be a folder that `thalweg run`, `sweep` or `reproduce` has written, got"
    if path.is_file():
        return f"{wanted} {path}, which is a file."
    if not path.is_dir():
        return f"{wanted} {path}, which does not exist."
    names = sorted(each.name for each in path.iterdir())
    if not names:
        return f"{wanted} {path}, which is empty."
    within = [name for name in names if holds(path / name) is not None]
    if within:
        return f"{wanted} {path}, which holds folders of results: {_some(within)}; name one."
    if names == [LOCK]:
        now = "another command is at work there" if is_written_to(path) else "give it again"
        return f"{wanted} {path}, where a command began and has finished nothing yet; {now}."
    return f"{wanted} {path}, which holds no {RESULTS}, but {_some(names)}."


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
