"""What every run came to, as numbers and as a table."""

from typing import Any

import numpy as np
import xarray as xr

from thalweg.phases import TOO_FEW_RECORDS, Phase
from thalweg.quantities.of_runs import edges, stability


def summary(results: xr.Dataset) -> list[dict[str, Any]]:
    """One row per learning rate, from the last record that is finite; None where unknown."""
    rows = []
    for number in range(results.sizes["learning_rate"]):
        run = results.isel(learning_rate=number)
        run = run.isel(record=run.time.notnull().values)
        rate, diverged = float(run.learning_rate), int(run.diverged_at)
        rows.append(
            {
                "learning_rate": rate,
                "edge": float(edges(run)),
                "phase": phase_of(run),
                "steps": int(run.step[-1]),
                "diverged_at": None if diverged < 0 else diverged,
                "loss": _last(run, "loss"),
                "excess": _last(run, "excess"),
                "accuracy": _last(run, "accuracy"),
                "sharpness": _last(run, "sharpness"),
                "sharpness_range": _last_range(run, "sharpness"),
                "smallest_eigenvalue": _last(run, "smallest_eigenvalue"),
                "distance": _last(run, "distance"),
                "farthest": _most(run, "distance"),
                "proven_until": float(run.proven_until),
                "proven_forever": _known(float(run.proven_forever)),
            }
        )
    return rows


def phase_of(run: xr.Dataset) -> Phase | None:
    """The outcome of one run; None where it has too few records to say."""
    found = int(run.phase)
    return None if found == TOO_FEW_RECORDS else Phase(found)


def table(results: xr.Dataset) -> list[dict[str, str]]:
    """The same for readers: few digits, and only what there is."""
    known = bool(results.minimum.notnull())
    rows = []
    for row in summary(results):
        told = {
            "rate": f"{row['learning_rate']:g}",
            "phase": "-" if row["phase"] is None else row["phase"].name.lower(),
            "excess loss" if known else "loss": _short(row["excess"], ".2e"),
            "accuracy": _short(row["accuracy"], ".1%"),
            _edge_of(results): "-" if np.isnan(row["edge"]) else f"{row['edge']:.4g}",
            "sharpness": _sharpness(row),
            "distance": _short(row["farthest"], ".3g"),
            "proven to": f"{row['proven_until']:.3g}",
        }
        if row["diverged_at"] is not None:
            told["phase"] += f" at step {row['diverged_at']}"
        rows.append(told)
    empty = [name for name in rows[0] if all(row[name] == "-" for row in rows)]
    if not bool((results.proven_until > 0).any()):
        empty.append("proven to")
    return [{name: row[name] for name in row if name not in empty} for row in rows]


def _edge_of(results: xr.Dataset) -> str:
    limit = stability(results)
    return "edge" if np.isnan(limit) else f"{limit:.4g} / rate"


OSCILLATING = (Phase.EDGE, Phase.OSCILLATING)
"""Phases in which the last record is one of many, and no end."""


def _sharpness(row: dict[str, Any]) -> str:
    if row["phase"] in OSCILLATING and row["sharpness_range"]:
        least, most = row["sharpness_range"]
        return f"{least:.3g}\N{EN DASH}{most:.3g}"
    return _short(row["sharpness"], ".4g")


def _last(run: xr.Dataset, name: str) -> float | None:
    if name not in run:
        return None
    values = run[name].values[np.isfinite(run[name].values)]
    return float(values[-1]) if values.size else None


def _last_range(run: xr.Dataset, name: str) -> tuple[float, float] | None:
    """Least and largest value over the last quarter of the records."""
    if name not in run:
        return None
    values = run[name].values
    values = values[-max(1, len(values) // 4) :]
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if values.size else None


def _most(run: xr.Dataset, name: str) -> float | None:
    values = run[name].values[np.isfinite(run[name].values)]
    return float(values.max()) if values.size else None


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _short(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
