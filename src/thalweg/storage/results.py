"""The stores that commands leave behind: one Zarr group, read as one xarray dataset."""

import platform
from importlib.metadata import version
from pathlib import Path

import xarray as xr

from thalweg._arguments import checked
from thalweg._errors import InputError
from thalweg._version import __version__
from thalweg.storage.blocks import BlockStore
from thalweg.storage.contents import MANIFEST, RESULTS, explain, holds
from thalweg.storage.files import standing, write_folder, writing_to
from thalweg.storage.sums import DamageError, require_whole

FORMAT = 3
"""The attribute `format` of all results; counts up whenever names or meanings in them change."""


@checked
def open_results(path: str | Path) -> xr.Dataset:
    """What a run, a sweep or a study has written, read when it is looked at.

    A sweep that was interrupted is opened with what it has finished: NaN elsewhere, and an
    attribute `unfinished` that counts the blocks.

    Args:
        path: the folder of the results, or the Zarr store in it.
    """
    folder = Path(path)
    inside = standing(folder / RESULTS)
    if holds(folder) is None:
        raise InputError(explain(folder))
    if (folder / MANIFEST).is_file() and not inside.exists():
        return BlockStore.read(folder).unfinished()
    return open_whole(inside if inside.is_dir() else standing(folder))


def open_whole(store: Path) -> xr.Dataset:
    """A store, once all of it is known to be what was written."""
    try:
        require_whole(store)
        return xr.open_zarr(store, chunks=None)
    except DamageError as error:
        raise DamageError(
            f"The results in {store} must be what was written there, but {error}; take them from a "
            "copy, or remove them and give their command again."
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"The results in {store} cannot be read: {error}.") from error


@checked
def write_results(results: xr.Dataset, folder: Path) -> Path:
    """Write a dataset into a folder, whole or not at all; the path of the store."""
    store = folder / RESULTS
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_folder(store, lambda part: _to_zarr(results, part))
    return store


def _to_zarr(results: xr.Dataset, path: Path) -> None:
    # All chunks, for one that is left out looks to other readers like one that was lost.
    results.to_zarr(path, mode="w", zarr_format=2, consolidated=True, write_empty_chunks=True)


def provenance() -> dict[str, str]:
    """The versions that numbers depend on; nothing that changes from run to run."""
    return {
        "thalweg": __version__,
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
    }
