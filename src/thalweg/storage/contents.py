"""What a folder of results holds, told without reading any number."""

from pathlib import Path
from typing import Any

import zarr

from thalweg.storage.files import standing

RESULTS = "results.zarr"
"""The store inside of a folder of results."""

MANIFEST = "sweep.json"
"""What says that a folder belongs to a sweep, finished or not."""


def holds(folder: str | Path) -> str | None:
    """Of what a folder holds results, so that no command writes over those of another one.

    Returns:
        "sweep" (finished or not), "run", "study", "unknown" for a store that says nothing of
        itself, or None where there are no results.
    """
    place = Path(folder)
    return "sweep" if (place / MANIFEST).exists() else kind_of(place / RESULTS)


def kind_of(store: Path) -> str | None:
    """Of what a store holds results, as `holds` calls it."""
    found = standing(store)
    if not found.exists():
        return None
    said = attributes(found)
    return str(said.get("kind") or ("study" if "study" in said else "unknown"))


def attributes(store: Path) -> dict[str, Any]:
    """What a store says about itself; nothing if it cannot be read."""
    try:
        return zarr.open_group(store, mode="r").attrs.asdict()
    except (OSError, ValueError, KeyError, TypeError):
        return {}
