"""A setting in the forms in which it leaves the page: file, Python, command, and numbers."""

import io
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from thalweg.experiment import Experiment, to_toml
from thalweg.explorer.computation import Computation
from thalweg.explorer.settings import values_of


class Export(NamedTuple):
    """A text, and what a browser is to call it."""

    text: str
    name: str
    kind: str = "text/plain"


def toml(known: Computation) -> Export:
    """The experiment file, with every field."""
    return Export(to_toml(known.experiment), "experiment.toml")


def python(known: Computation) -> Export:
    """A program that computes what is shown."""
    lines = [
        "import thalweg as tw",
        "from thalweg import experiment",
        "",
        f"settings = experiment.from_values({_written(_bare(known.experiment))})",
        "objective = experiment.objective(settings)",
        "weights = experiment.start(settings, objective)",
        "",
        "training = settings.training",
        "for rate in training.learning_rate:",
        "    run = tw.descend(",
        "        objective, weights, learning_rate=rate, steps=training.steps_at(rate),",
        "        record_every=training.record_every(rate),",
        "    )",
        "    flow = tw.flow(",
        "        objective, weights, times=run.times, rtol=settings.flow.rtol, "
        "atol=settings.flow.atol,",
        "    )",
        "    spectrum = tw.curvature.spectrum_along(objective, run)",
        '    print(f"learning rate {rate:g}: loss {run.loss[-1]:.4g}, sharpness "',
        '          f"{spectrum.largest[-1]:.4g}, farthest from the flow "',
        '          f"{tw.distance(run, flow).max():.3g}")',
        "",
        "print(tw.certify(objective, weights, training.learning_rate[0]))",
    ]
    return Export("\n".join(lines) + "\n", "explored.py", "text/x-python")


def command(known: Computation) -> Export:
    """What to type for the same: the file's name, or the built-in experiment with its changes."""
    words = ["thalweg", "run"]
    for table, fields in _bare(known.experiment).items():
        if not isinstance(fields, dict):
            continue
        for name, value in fields.items():
            words.append(f"--set {_quoted(f'{table}.{name}={_toml(value)}')}")
    return Export(" ".join(words) + "\n", "command.txt")


def csv(known: Computation) -> Export:
    """The curves, a row for each record."""
    from thalweg.explorer.measured import dataset

    results = dataset(known)
    names = [
        name for name in (
            "step", "time", "loss", "sharpness", "sharpness_error", "smallest_eigenvalue",
            "smallest_eigenvalue_error", "distance", "distance_lower", "distance_upper",
        ) if name in results and bool(np.isfinite(results[name]).any())
    ]  # fmt: skip
    text = io.StringIO()
    print("learning_rate", *names, sep=",", file=text)
    for number, rate in enumerate(results.learning_rate.values):
        run = results.isel(learning_rate=number)
        for row in np.stack([run[name].values for name in names], axis=1):
            if np.isfinite(row[0]):
                cells = ["" if np.isnan(value) else repr(float(value)) for value in row]
                print(repr(float(rate)), *cells, sep=",", file=text)
    return Export(text.getvalue(), "curves.csv", "text/csv")


FORMS: dict[str, Callable[[Computation], Export]] = {
    "toml": toml, "python": python, "command": command, "csv": csv,
}  # fmt: skip


def _bare(experiment: Experiment) -> dict[str, object]:
    """The tables without what is as it would be anyway."""
    given, usual = values_of(experiment), values_of(Experiment())
    found: dict[str, object] = {}
    for table, fields in given.items():
        if not isinstance(fields, dict):
            if fields != usual[table]:
                found[table] = fields
            continue
        told = {"data": "source", "start": "kind"}.get(table)
        alike = told is None or fields[told] == usual[table].get(told)
        kept = {
            name: value for name, value in fields.items()
            if not alike or value != usual[table].get(name)
        }  # fmt: skip
        if kept:
            found[table] = kept
    return found


def _written(values: dict[str, object]) -> str:
    """As a literal of Python, a line for each table."""
    rows = [f"    {name!r}: {value!r}," for name, value in values.items()]
    return "\n".join(["{", *rows, "}"]) if rows else "{}"


def _toml(value: object) -> str:
    """A value as `--set` reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
