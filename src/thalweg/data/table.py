"""Tables of numbers: CSV files, and the sets that ship with scikit-learn."""

import csv
import difflib
import math
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._shown import shown


@shown
class Table(NamedTuple):
    """Samples and targets with the names of their columns; one target alone is a vector."""

    x: Float[Array, "samples features"]
    y: Float[Array, " samples"] | Float[Array, "samples targets"]
    features: tuple[str, ...]
    targets: tuple[str, ...]


@shown
class Labelled(NamedTuple):
    """Samples, and the class 0, 1, ... of each."""

    x: Float[Array, "samples features"]
    labels: Int[Array, " samples"]


@checked
def from_csv(path: str | PathLike[str], target: str | Sequence[str]) -> Table:
    """Read a CSV file with a line of column names; the named columns are targets, the rest inputs.

    Args:
        path: the file, in UTF-8, with commas between cells.
        target: the name of the target column (`y` is then a vector), or a list of names.
    """
    file = Path(path)
    header, rows = _read_cells(file)
    wanted = [target] if isinstance(target, str) else list(target)
    columns = _target_columns(file, header, wanted)
    others = [column for column in range(len(header)) if column not in columns]
    if not others:
        raise InputError(f"{file} must hold a column besides the target, to predict it from.")
    numbers = _numbers(file, header, rows)
    y = numbers[:, columns[0]] if isinstance(target, str) else numbers[:, columns]
    names = tuple(header[column] for column in others)
    return Table(jnp.asarray(numbers[:, others]), jnp.asarray(y), names, tuple(wanted))


def read_header(path: str | PathLike[str]) -> tuple[str, ...]:
    """The names of the columns of a CSV file, which must be a whole table."""
    return tuple(_read_cells(Path(path))[0])


def diabetes() -> Table:
    """Ten measures of 442 patients, and how far their diabetes went on in a year."""
    from sklearn import datasets  # loaded here because it takes a second

    bunch: Any = datasets.load_diabetes()
    return Table(
        jnp.asarray(bunch.data),
        jnp.asarray(bunch.target),
        tuple(bunch.feature_names),
        ("progression",),
    )


def linnerud() -> Table:
    """Three exercises of 20 people, and three measures of their bodies."""
    from sklearn import datasets

    bunch: Any = datasets.load_linnerud()
    return Table(
        jnp.asarray(bunch.data, float),
        jnp.asarray(bunch.target, float),
        tuple(bunch.feature_names),
        tuple(bunch.target_names),
    )


def digits() -> Labelled:
    """1797 handwritten digits of 8 x 8 pixels with values 0 to 16, and which digit each is."""
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    return Labelled(jnp.asarray(bunch.data, float), jnp.asarray(bunch.target, int))


def _read_cells(file: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The column names, and each row's cells with the number of its line."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(
            f"`path` must be a CSV file that can be read, got {file}: {reason}."
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{file} must be a CSV file in UTF-8: {error}; spreadsheets export to it."
        ) from error
    if len(lines) < 2:
        what = "no rows below its column names" if lines else "no lines"
        raise InputError(f"{file} must hold column names and at least one row, but it has {what}.")
    header = lines[0][1]
    _check_header(file, header)
    for line, cells in lines[1:]:
        if len(cells) != len(header):
            raise InputError(
                f"{file} must have one cell per column ({len(header)}), but line {line} has "
                f"{len(cells)}; a comma inside a cell needs quotes around the cell."
            )
    return header, lines[1:]


def _check_header(file: Path, header: list[str]) -> None:
    if all(_is_number(name) for name in header):
        raise InputError(
            f"{file} must begin with a line of column names, but its first line holds numbers; "
            "add such a line."
        )
    if "" in header:
        raise InputError(
            f"{file} must name every column, but column {header.index('') + 1} has no name; remove "
            "it if it only counts the rows."
        )
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{file} must name each column once, but {twice[0]!r} comes twice.")


def _target_columns(file: Path, header: list[str], wanted: list[str]) -> list[int]:
    if not wanted or len(set(wanted)) < len(wanted):
        raise InputError(f"`target` must name at least one column, each once, got {wanted}.")
    for name in wanted:
        if name not in header:
            near = difflib.get_close_matches(name, header, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"the columns are {header[:20]}."
            if len(header) == 1:
                hint = f"its only column is {header[0]!r}: are the cells separated by commas?"
            raise InputError(f"`target` must be a column of {file}, got {name!r}; {hint}")
    return [header.index(name) for name in wanted]


def _numbers(
    file: Path, header: list[str], rows: list[tuple[int, list[str]]]
) -> Float[np.ndarray, "samples columns"]:
    try:
        numbers = np.array([cells for _, cells in rows], dtype=object).astype(float)
    except ValueError:
        numbers = np.array(np.nan)
    if not np.isfinite(numbers).all():
        for column in range(len(header)):
            _require_numbers(file, header[column], [(line, cells[column]) for line, cells in rows])
    return numbers


def _require_numbers(file: Path, name: str, cells: list[tuple[int, str]]) -> None:
    """Refuse the first cell of a column that holds no finite number."""
    words = [cell for _, cell in cells if not _is_number(cell or "nan")]
    if words and len(words) == sum(1 for _, cell in cells if cell):
        raise InputError(
            f"Column {name!r} of {file} must hold numbers, but it holds words such as "
            f"{words[0]!r}; encode its categories as numbers (one column of 0 and 1 for each) or "
            "remove it."
        )
    for line, cell in cells:
        where = f"line {line}, column {name!r} of {file}"
        if cell and not _is_number(cell):
            raise InputError(f"Every cell must hold a number, got {cell!r} in {where}; correct it.")
        if not math.isfinite(float(cell or "nan")):
            got = cell or "an empty cell"
            raise InputError(
                f"Every cell must hold a finite number, got {got} in {where}; drop the row or "
                "fill the gap first."
            )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
