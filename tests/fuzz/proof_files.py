"""Proof files: those of `thalweg prove` with numbers changed, and whatever else is JSON.

What is accepted must be true. Oracle: SciPy integrates the flow of the objective that the file
describes, and the distance to the file's points must lie between the bounds of the file.
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

_SLACK = 1e-9  # SciPy is asked for 1e-12, over a handful of steps


def case(rng: Rng) -> Case:
    """A file, and the command that checks it."""
    seed = rng.randrange(2**32)
    words = ["check", "case.json", *(["--json"] if chance(rng, 0.3) else [])]

    def perform() -> Outcome:
        own = Rng(seed)
        raw = _bytes(own, json.loads(Path("proof.json").read_text()))
        Path("case.json").write_bytes(raw)
        outcome = call(words)
        if outcome.code == 0:
            return Outcome(0, found=_untrue(json.loads(raw)))
        return outcome

    return Case(
        f"thalweg {' '.join(words)}  # case.json: proof.json changed at random with {seed}",
        perform,
        ("proof.json",),
        judge=lambda outcome: faults_of_command(words, outcome),
    )


def _bytes(rng: Rng, content: Any) -> bytes:
    roll = rng.random()
    if roll < 0.1:
        return drawing.damaged(rng, json.dumps(content).encode())
    if roll < 0.15:
        return json.dumps(drawing.tree(rng)).encode("utf-8", "replace")
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change(rng, content)
    if chance(rng, 0.9):
        from thalweg.tubes.checker import digest

        content["sha256"] = digest(content)
    return json.dumps(content).encode("utf-8", "replace")


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
    from scipy.integrate import solve_ivp

    def numbers(value: Any) -> Any:
        if isinstance(value, list):
            return np.array([numbers(each) for each in value])
        return float.fromhex(value)

    points, rate = numbers(content["points"]), numbers(content["learning_rate"])
    # Whatever `start_distance` is, the first point itself is a start that is near enough.
    times = rate * np.arange(len(points))
    gradient = _gradient(content, numbers)
    flow = solve_ivp(
        lambda _, point: -gradient(point), (0, times[-1]), points[0], "DOP853", times,
        rtol=1e-12, atol=1e-13,
    )  # fmt: skip
    gap = np.linalg.norm(points - flow.y.T, axis=1)
    lower, upper = numbers(content["lower"]), numbers(content["upper"])
    slack = _SLACK * (1 + np.abs(points).max())
    if np.all(lower - slack <= gap) and np.all(gap <= upper + slack):
        return []
    return [f"false: accepted, but distances {gap} are not between {lower} and {upper}"]


def _gradient(content: Any, numbers: Any) -> Any:
    """The gradient of the objective that a file describes, written down anew."""
    import numpy as np

    widths, loss = content["network"]["widths"], content["loss"]
    readout, decay = content["network"]["readout"], numbers(content["weight_decay"])
    ends = np.cumsum([a * b for a, b in pairwise(widths)])[:-1]
    above = np.eye(widths[-1]) if readout is None else numbers(readout).T

    def of_map(matrix: Any) -> Any:
        if loss["kind"] == "target":
            return matrix - numbers(loss["target"])
        x, y = numbers(loss["inputs"]), numbers(loss["targets"])
        return 2 * numbers(loss["scale"]) / len(x) * (matrix @ x.T - y.T) @ x

    def gradient(point: Any) -> Any:
        layers = [
            flat.reshape(b, a)
            for flat, (a, b) in zip(np.split(point, ends), pairwise(widths), strict=True)
        ]
        whole = above
        for layer in reversed(layers):
            whole = whole @ layer
        pull, parts = of_map(whole), []
        for number in range(len(layers)):
            after, before = above, np.eye(widths[0])
            for layer in reversed(layers[number + 1 :]):
                after = after @ layer
            for layer in layers[:number]:
                before = layer @ before
            parts.append((after.T @ pull @ before.T).ravel())
        return np.concatenate(parts) + decay * point

    return gradient
