"""CSV files: what spreadsheets, instruments and accidents make of a table of numbers."""

from typing import Any

import drawing
import worlds
from cases import Case, Outcome, of_sentence
from commands import command
from drawing import Rng, chance
from writing import document

_CELLS = (
    "nan", "NaN", "inf", "-inf", "", " ", "1e400", "1e308", "-1e308", "5e-324", "1e-200", "1e200",
    "0", "-0", "1_000", "1,5", '"1.5"', '"a,b"', '"unclosed', "0x10", "\u0664", "\u00bd", "1 000",
    "n/a", "true", "=1+1", "1e", "--1", "+1", "\u22121", "9" * 400, "1\x00", "[red]1",
)  # fmt: skip
_ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252")


def case(rng: Rng) -> Case:
    """An experiment on a table, by a command or by the function that reads tables."""
    raw = _bytes(rng)
    target: Any = "y" if chance(rng, 0.8) else drawing.word(rng)
    if chance(rng, 0.1):
        target = [drawing.word(rng), "y"][: rng.choice((0, 1, 2))]
    path = "case.csv" if chance(rng, 0.95) else drawing.word(rng)
    if chance(rng, 0.5):
        return Case(
            f"thalweg.data.from_csv({path!r}, {target!r})",
            lambda: _read(path, target),
            files={"case.csv": raw},
            judge=lambda outcome: of_sentence(outcome.err) if outcome.code == 2 else [],
        )
    values: dict[str, Any] = dict(worlds.TINY)
    values["data"] = {"source": "csv", "path": path, "target": target}
    for field in ("standardise", "white"):
        if chance(rng, 0.5):
            values["data"][field] = chance(rng, 0.5)
    words = [rng.choice(("certify", "certify", "certify", "prove", "critical")), "case.toml"]
    if words[0] == "critical":
        words += ["--steps", "5", "--starts", "2"]
    if chance(rng, 0.3):
        words.append("--json")
    return command(words, {"case.csv": raw, "case.toml": document(values).encode()})


def _read(path: str, target: Any) -> Outcome:
    """A table that was read must hold finite numbers, as many as the file has."""
    import numpy as np

    from thalweg import data

    table = data.from_csv(path, target)
    found = []
    if not all(np.isfinite(np.asarray(part)).all() for part in (table.x, table.y)):
        found.append("false: a table was read that is not finite")
    if len(table.x) != len(table.y) or table.x.shape[1] != len(table.features):
        found.append("false: a table was read whose parts do not fit")
    return Outcome(0, found=found)


def _bytes(rng: Rng) -> bytes:
    if chance(rng, 0.05):
        return rng.choice((b"", b"\n", b",", b"\n\n\n", b"a,b,y", rng.randbytes(100)))
    text = _text(rng)
    try:
        raw = text.encode("utf-8" if chance(rng, 0.85) else rng.choice(_ENCODINGS))
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "replace")
    return drawing.damaged(rng, raw) if chance(rng, 0.1) else raw


def _text(rng: Rng) -> str:
    rows = [line.split(",") for line in worlds.TABLE.split()]
    for _ in range(rng.choice((0, 1, 1, 2))):
        _disturb(rng, rows)
    separator = "," if chance(rng, 0.93) else rng.choice((";", "\t", " ", ", ", ",,"))
    end = "\n" if chance(rng, 0.9) else rng.choice(("\r\n", "\r", "\n\n", "\x00\n"))
    return end.join(separator.join(row) for row in rows) + end


def _disturb(rng: Rng, rows: list[list[str]]) -> None:
    row = rng.randrange(len(rows))
    match rng.randrange(9):
        case 0 | 1 | 2:
            if rows[row]:
                rows[row][rng.randrange(len(rows[row]))] = rng.choice(_CELLS)
        case 3:  # ragged
            rows[row] = rows[row][:-1] if chance(rng, 0.5) else [*rows[row], "1"]
        case 4:
            rows[row] = []
        case 5:
            rows.insert(row, [drawing.letters(rng) for _ in range(3)])
        case 6:  # a column that does not vary, or one of another size
            column, factor = rng.randrange(3), rng.choice(("0", "1e155", "1e308", "1e-320", "7"))
            for each in rows[1:]:
                if len(each) > column:
                    each[column] = factor
        case 7:
            rows[0] = [rng.choice((name, drawing.word(rng)[:50])) for name in ("a", "b", "y")]
        case _:
            del rows[rng.randrange(len(rows)) :]
            rows.append(["1", "2", "3"])
