"""Two sweeps of one experiment over different values, as one dataset.

Where both have a run, the first one's is taken. A window of the grid is read and written at a time.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from jaxtyping import Int

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._quantity import stored_as
from thalweg.storage import open_results
from thalweg.storage.blocks import create_variables
from thalweg.storage.contents import RESULTS
from thalweg.storage.files import only_writer, write_folder, writing_to
from thalweg.storage.layout import Layout, Window

_SAME = ("experiment_digest", "fields", "computation")


@checked
def merge(first: str | Path, second: str | Path, out: str | Path) -> xr.Dataset:
    """Unite two sweeps of the same experiment, finished or not, in a new folder.

    Args:
        first: the folder of a sweep; where both have a run, this one's is taken.
        second: the folder of another one, over the same fields.
        out: the folder of the united results.
    """
    parts = open_results(first), open_results(second)
    folder = Path(out)
    _require_alike(parts, (Path(first), Path(second)))
    layout = _united(parts)
    with only_writer(folder):
        if (folder / RESULTS).exists() or any(folder.glob("*.json")):
            raise InputError(
                f"`--out` must be a new folder, but {folder} already holds results; give another."
            )
        with writing_to(folder):
            write_folder(folder / RESULTS, partial(_write, parts, layout))
    return open_results(folder)


def _require_alike(parts: tuple[xr.Dataset, xr.Dataset], paths: tuple[Path, Path]) -> None:
    for part, path in zip(parts, paths, strict=True):
        if part.attrs.get("kind") != "sweep":
            raise InputError(f"What is merged must be two sweeps, and {path} is none.")
        if "last_step" not in part:
            raise InputError(
                f"What is merged must have at least one finished run, but {path} has none; give "
                "its `thalweg sweep` again to resume it."
            )
    for name in _SAME:
        if parts[0].attrs[name] != parts[1].attrs[name]:
            what = {"fields": "over the same fields", "computation": "by the same version"}
            raise InputError(
                f"Only sweeps of one experiment {what.get(name, '')} can be merged, but {paths[0]} "
                f"and {paths[1]} differ in their {name.replace('_digest', '')}."
            )
    _require_same_files(parts, paths)
    if set(parts[0].data_vars) != set(parts[1].data_vars):
        raise InputError(
            f"Only sweeps that measured the same can be merged; {paths[0]} and {paths[1]} do not."
        )


def _require_same_files(parts: tuple[xr.Dataset, xr.Dataset], paths: tuple[Path, Path]) -> None:
    one, other = (_data_files(part) for part in parts)
    for name in one.keys() & other.keys():
        if one[name] != other[name]:
            raise InputError(
                f"Only sweeps over the same data can be merged, but {name} was changed between "
                f"{paths[0]} and {paths[1]}; sweep the older one anew with `--fresh`."
            )


def _data_files(part: xr.Dataset) -> dict[str, str]:
    return json.loads(part.attrs["data_files"])


def _united(parts: tuple[xr.Dataset, xr.Dataset]) -> Layout:
    dims = tuple(str(name) for name in parts[0]["final_loss"].dims)
    coords: dict[str, tuple[str, tuple[Any, ...]]] = {}
    for dim in dims:
        values = list(dict.fromkeys(v for part in parts for v in part[dim].values.tolist()))
        numbers = all(isinstance(value, int | float) for value in values)
        coords[dim] = (dim, tuple(sorted(values) if numbers else values))
    for name in map(str, parts[0].coords):
        if name not in dims:
            coords[name] = _beside(name, parts, coords)
    attrs = dict(parts[0].attrs) | {"merged": "yes", "grid_digest": "", "data_digest": ""}
    attrs["data_files"] = json.dumps(_data_files(parts[0]) | _data_files(parts[1]))
    for name in ("unfinished", "damaged"):
        attrs.pop(name, None)
    long_names = {name: part.attrs.get("long_name", "") for name, part in parts[0].coords.items()}
    layout = Layout(dims, coords, attrs, {str(name): said for name, said in long_names.items()})
    cells = [_cells(part, layout) for part in parts]
    runs = {"runs": np.union1d(*cells).size, "runs_merged": [each.size for each in cells]}
    return replace(layout, attrs=attrs | runs)


def _cells(part: xr.Dataset, layout: Layout) -> Int[np.ndarray, " runs"]:
    """The cells of the united grid in which a sweep has a run."""
    here = np.nonzero(part["last_step"].transpose(*layout.dims).notnull().values)
    points = []
    for dim, numbers in zip(layout.dims, here, strict=True):
        place = {value: number for number, value in enumerate(layout.coords[dim][1])}
        points.append(np.array([place[value] for value in part[dim].values.tolist()])[numbers])
    return np.asarray(np.ravel_multi_index(tuple(points), layout.shape))


def _beside(
    name: str, parts: tuple[xr.Dataset, xr.Dataset], coords: dict[str, tuple[str, tuple[Any, ...]]]
) -> tuple[str, tuple[Any, ...]]:
    """A coordinate along another one's dimension; both sweeps must say the same."""
    own = [str(dim) for dim in parts[0][name].dims]
    if not own:
        _require_equal(name, parts[0][name].item(), parts[1][name].item())
        return "", (parts[0][name].item(),)
    known: dict[Any, Any] = {}
    for part in parts:
        for at, value in zip(part[own[0]].values.tolist(), part[name].values.tolist(), strict=True):
            _require_equal(name, known.setdefault(at, value), value)
    return own[0], tuple(known[at] for at in coords[own[0]][1])


def _require_equal(name: str, one: Any, other: Any) -> None:
    if one != other and not (one != one and other != other):
        raise InputError(
            f"Sweeps that meet must agree, but `{name}` is {one!r} in one and {other!r} in the "
            "other."
        )


def _write(parts: tuple[xr.Dataset, xr.Dataset], layout: Layout, path: Path) -> None:
    layout.dataset().to_zarr(path, mode="w", zarr_format=2, consolidated=False)
    names = {}
    records = max(part.sizes["record"] for part in parts)
    for name, held in parts[0].data_vars.items():
        along = ("record",) if "record" in held.dims else ()
        names[str(name)] = (layout.dims + along, layout.shape + (records,) * len(along))
    arrays = create_variables(path, layout, names)
    for window in layout.windows():
        for name, values in _in_window(parts, layout, window, records).items():
            arrays[name][window] = values
    zarr.consolidate_metadata(path, zarr_format=2)


def _in_window(
    parts: tuple[xr.Dataset, xr.Dataset], layout: Layout, window: Window, records: int
) -> dict[str, np.ndarray]:
    wanted = {
        dim: list(layout.coords[dim][1][part])
        for dim, part in zip(layout.dims, window, strict=True)
    }
    missing = {str(name): stored_as(str(name)).missing for name in parts[0].data_vars}
    shown = [
        part.drop_vars(set(part.coords) - set(wanted)).reindex(wanted, fill_value=missing)
        for part in parts
    ]
    shown = [
        part.pad(record=(0, records - part.sizes["record"])).transpose(*layout.dims, "record")
        for part in shown
    ]
    has_first = shown[0]["last_step"].notnull().values
    found = {}
    for name in shown[0].data_vars:
        one, other = (part[name].values for part in shown)
        mask = has_first.reshape(has_first.shape + (1,) * (one.ndim - has_first.ndim))
        found[str(name)] = np.where(mask, one, other)
    return found
