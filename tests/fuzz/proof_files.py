"""Proof files: those of `thalweg prove` with numbers changed, and whatever else is JSON.

What is accepted must be true. Oracle: the objective that the file describes is written down anew,
its flow extrapolated and its descent computed in extended precision, and the distance must lie
between the bounds of the file.
"""

import copy
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import drawing
from cases import Case, Outcome, faults_of_command
from commands import call
from drawing import Rng, chance

FILES = ("proof.json", "target.json", "classes.json")


def case(rng: Rng) -> Case:
    """A file, and the command that checks it."""
    seed, file = rng.randrange(2**32), rng.choice(FILES)
    words = ["check", "case.json", *(["--json"] if chance(rng, 0.3) else [])]

    def perform() -> Outcome:
        own = Rng(seed)
        raw = _bytes(own, json.loads(Path(file).read_text()))
        Path("case.json").write_bytes(raw)
        outcome = call(words)
        if outcome.code == 0:
            return Outcome(0, found=_untrue(json.loads(raw)))
        return outcome

    return Case(
        f"thalweg {' '.join(words)}  # case.json: {file} changed at random with {seed}",
        perform,
        (file,),
        judge=lambda outcome: faults_of_command(words, outcome),
    )


def _bytes(rng: Rng, content: Any) -> bytes:
    roll = rng.random()
    if roll < 0.1:
        return drawing.damaged(rng, json.dumps(content).encode())
    if roll < 0.15:
        return json.dumps(drawing.tree(rng)).encode("utf-8", "replace")
    if chance(rng, 0.35):
        rng.choice(ATTACKS)(rng, content)
    else:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            _change(rng, content)
    if chance(rng, 0.9):
        from thalweg.proofs.checker import digest

        content["sha256"] = digest(content)
    return json.dumps(content).encode("utf-8", "replace")


def _claim_more(rng: Rng, content: Any) -> None:
    """Narrow all bounds of a run a little, or much."""
    run, share = rng.choice(content["runs"]), rng.choice((1e-16, 1e-12, 1e-6, 0.1))
    run["upper"] = [(float.fromhex(x) * (1 - share)).hex() for x in run["upper"]]
    if chance(rng, 0.5):
        run["lower"] = [(float.fromhex(x) * (1 + share)).hex() for x in run["lower"]]


def _divide_time(rng: Rng, content: Any) -> None:
    """Join two intervals, or divide one, with the radii that belong to it."""
    times, radii = content["times"], content["radii"]
    place = rng.randrange(1, len(times))
    if chance(rng, 0.5) and len(times) > 2:
        del times[place], radii[place]
        return
    begin, end = (float.fromhex(times[k]) for k in (place - 1, place))
    times.insert(place, (begin + rng.random() * (end - begin)).hex())
    radii.insert(place, radii[place])


def _scale_problem(rng: Rng, content: Any) -> None:
    """Scale a whole part of the problem by one number."""
    parts = [
        ("start",),
        ("weight_decay",),
        ("loss", "inputs"),
        ("loss", "targets"),
        ("loss", "target"),
    ]
    path = rng.choice(
        [path for path in parts if path[-1] in content or path[-1] in content["loss"]]
    )
    holder = content if len(path) == 1 else content["loss"]
    factor = rng.choice((1 + 1e-15, 1 + 1e-9, 0.9, -1.0, 1e3))

    def scaled(value: Any) -> Any:
        if isinstance(value, list):
            return [scaled(each) for each in value]
        return (float.fromhex(value) * factor).hex()

    holder[path[-1]] = scaled(holder[path[-1]])


def _mix_runs(rng: Rng, content: Any) -> None:
    """Give a run the rate or the bits of another, or of none; repeat it; take steps from it."""
    runs = content["runs"]
    run, other = rng.choice(runs), rng.choice(runs)
    match rng.randrange(4):
        case 0:
            rate = float.fromhex(other["learning_rate"]) * rng.choice((1 + 1e-15, 0.5, 2.0, 1e-300))
            run["learning_rate"] = rate.hex()
        case 1:
            run["precision"] = rng.choice((64, 65, 100, 1000, 32768))
        case 2:
            runs.append(copy.deepcopy(run))
        case _:
            count = rng.randrange(1, len(run["upper"]) + 1)
            run["upper"], run["lower"] = run["upper"][:count], run["lower"][:count]


def _be_coarse(rng: Rng, content: Any) -> None:
    """Another order or precision, and radii to match."""
    content["order"] = rng.choice((1, 2, 3, 5, 9, 40, 128))
    content["precision"] = rng.choice((64, 80, 256, 1024, 2000))
    wider = rng.choice((1.0, 1e3, 1e9, 1e15))
    content["radii"] = [(float.fromhex(x) * wider).hex() for x in content["radii"]]
    for run in content["runs"]:
        run["upper"] = [
            (float.fromhex(x) + rng.choice((0.0, 1e-6, 0.1))).hex() for x in run["upper"]
        ]
        if chance(rng, 0.5):
            run["lower"] = [(0.0).hex() for _ in run["lower"]]


ATTACKS = (_claim_more, _divide_time, _scale_problem, _mix_runs, _be_coarse)
"""Changes that keep the form, so that the mathematics has to see them."""


def _change(rng: Rng, content: Any) -> None:
    """Change one place: a number a little, a part to any other."""
    paths = _paths(content)
    path = rng.choice(paths)
    node = content
    for step in path[:-1]:
        node = node[step]
    value = node[path[-1]]
    if isinstance(value, str) and value.lstrip("-").startswith("0x") and chance(rng, 0.7):
        number = float.fromhex(value)
        factor = rng.choice((0.0, -1.0, 0.5, 0.999, 1.001, 2.0, 1 + 1e-12, 1e10, 1e300, 1e-300))
        node[path[-1]] = (number * factor if number else factor).hex()
        return
    match rng.randrange(5):
        case 0:
            node[path[-1]] = drawing.tree(rng, 2)
        case 1:
            node[path[-1]] = drawing.real(rng).hex()
        case 2 if isinstance(value, list) and value:
            value.append(copy.deepcopy(value[-1])) if chance(rng, 0.5) else value.pop()
        case 3 if isinstance(value, int):
            node[path[-1]] = drawing.whole(rng)
        case _:
            if isinstance(node, dict) and chance(rng, 0.3):
                del node[path[-1]]
            else:
                node[path[-1]] = rng.choice((None, [], {}, [[]], "", 0, True))


def _paths(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places of a content; names are as likely as the numbers in their lists."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    found = []
    for name, child in items:
        found.append((*path, name))
        if isinstance(child, dict | list):
            found += _paths(child, (*path, name))
    return found


def _untrue(content: Any) -> list[str]:
    """What an accepted file says that is not so."""
    import numpy as np

    gradient, start = _gradient(content), _numbers(content["start"])
    found = []
    for run in content["runs"]:
        rate = np.longdouble(float.fromhex(run["learning_rate"]))
        lower, upper = _numbers(run["lower"]), _numbers(run["upper"])
        # Whatever `radii` begins with, the start itself is a start that is near enough.
        gaps, doubt = _gaps(gradient, start, rate, len(upper))
        slack = 10 * doubt + 1e-15 * (1 + np.abs(start).max())
        if np.any(lower > gaps + slack) or np.any(gaps > upper + slack):
            found.append(f"false: accepted, but {gaps} is not between {lower} and {upper}")
    return found


def _gaps(gradient: Any, start: Any, rate: Any, count: int) -> Any:
    """Distances of descent to the flow in extended precision, and what they may be off by."""
    import numpy as np

    run, fine, coarse = start, start, start
    gaps, doubt = [np.longdouble(0)], [np.longdouble(0)]
    for _ in range(count - 1):
        run = run - rate * gradient(run)
        fine = _flowed(gradient, fine, rate, 24)
        coarse = _flowed(gradient, coarse, rate, 12)
        gaps.append(np.sqrt(np.sum((run - fine) ** 2)))
        doubt.append(np.sqrt(np.sum((coarse - fine) ** 2)))
    return np.array(gaps), np.array(doubt)


def _flowed(gradient: Any, point: Any, time: Any, pieces: int) -> Any:
    """The flow after a time, by midpoint rules that are extrapolated in each piece."""
    length = time / pieces
    for _ in range(pieces):
        rows: list[list[Any]] = []
        for i, count in enumerate(range(2, 14, 2)):
            share, before = length / count, point
            now = point - share * gradient(point)
            for _ in range(count - 1):
                before, now = now, before - 2 * share * gradient(now)
            row = [(before + now - share * gradient(now)) / 2]
            for k in range(1, i + 1):
                factor = (count / (count - 2 * k)) ** 2 - 1
                row.append(row[-1] + (row[-1] - rows[-1][k - 1]) / factor)
            rows.append(row)
        point = rows[-1][-1]
    return point


def _numbers(value: Any) -> Any:
    """The doubles of a file in extended precision."""
    import numpy as np

    if isinstance(value, list):
        return np.array([_numbers(each) for each in value], np.longdouble)
    return np.longdouble(float.fromhex(value))


def _gradient(content: Any) -> Any:
    """The gradient of the objective that a file describes, written down anew."""
    import numpy as np

    widths, readout = content["network"]["widths"], content["network"]["readout"]
    decay, slope = _numbers(content["weight_decay"]), _slope(content["loss"])
    ends = np.cumsum([a * b for a, b in pairwise(widths)])[:-1]
    above = np.eye(widths[-1], dtype=np.longdouble) if readout is None else _numbers(readout).T

    def gradient(point: Any) -> Any:
        layers = [
            flat.reshape(b, a)
            for flat, (a, b) in zip(np.split(point, ends), pairwise(widths), strict=True)
        ]
        whole = above
        for layer in reversed(layers):
            whole = whole @ layer
        pull, parts = slope(whole), []
        for number in range(len(layers)):
            after, before = above, np.eye(widths[0], dtype=np.longdouble)
            for layer in reversed(layers[number + 1 :]):
                after = after @ layer
            for layer in layers[:number]:
                before = layer @ before
            parts.append((after.T @ pull @ before.T).ravel())
        return np.concatenate(parts) + decay * point

    return gradient


def _slope(loss: Any) -> Any:
    """The gradient of a loss with respect to the product of all layers."""
    import numpy as np

    if loss["kind"] == "target":
        target = _numbers(loss["target"])
        return lambda matrix: matrix - target
    x = _numbers(loss["inputs"])
    if loss["kind"] == "regression":
        y, scale = _numbers(loss["targets"]), _numbers(loss["scale"])
        return lambda matrix: 2 * scale / len(x) * (matrix @ x.T - y.T) @ x
    labels = np.array(loss["labels"])

    def entropy(matrix: Any) -> Any:
        outputs = matrix @ x.T
        grown = np.exp(outputs - outputs.max(axis=0))
        chosen = np.arange(len(outputs))[:, None] == labels
        return (grown / grown.sum(axis=0) - chosen) @ x / len(x)

    return entropy
