"""Python calls: every public function with arguments of its annotations, and with any others."""

import inspect
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import drawing
import worlds
from cases import Case, Outcome, of_sentence
from drawing import Rng, chance

MODULES = (
    "adversarial", "critical", "curvature", "data", "dynamics", "experiment", "initialisation",
    "measurement", "network", "problem", "theorems", "tubes",
)  # fmt: skip
CLASSES = {
    "Case", "Classification", "Convolution", "Dense", "Experiment", "HomogeneousNetwork",
    "LinearNetwork", "Model", "Objective", "RandomStart", "Regression", "SharedNetwork",
    "SpectrumObserver", "TargetMatrix", "Tied", "WorstCase",
}  # fmt: skip
"""Classes that people make objects of; all others are results."""

_NOT_TRIED = {"perform", "digits", "diabetes", "linnerud", "nothing"}
"""The command `run` does the first; the others take nothing."""

_METHODS = {
    "objective": ("__call__", "gradient", "hessian", "hvp", "value_and_gradient"),
    "network": ("__call__", "check", "end_to_end"),
    "problem": ("value", "gradient", "excess", "hessian_action", "output_value"),
    "run": ("at",),
    "flow": ("at",),
    "classification": ("accuracy", "value", "gradient"),
}


class Target(NamedTuple):
    """A function, and what it is called."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[inspect.Parameter, ...]


@cache
def targets() -> tuple[Target, ...]:
    """Every public function, class and method, by name."""
    import thalweg

    found: dict[str, Any] = {
        name: getattr(thalweg, name) for name in ("sweep", "merge", "open") if name in dir(thalweg)
    }
    for module in MODULES:
        held = vars(import_module(f"thalweg.{module}"))
        found |= {
            f"{module}.{name}": value for name, value in held.items() if _is_public(name, value)
        }
    for owner, names in _METHODS.items():
        found |= {f"{owner}.{name}": getattr(good()[owner], name) for name in names}
    return tuple(
        Target(name, function, tuple(inspect.signature(function).parameters.values()))
        for name, function in sorted(found.items())
    )


def _is_public(name: str, value: Any) -> bool:
    ours = str(getattr(value, "__module__", "")).startswith("thalweg")
    if name.startswith("_") or not ours or value.__module__.startswith("thalweg._"):
        return False
    if inspect.isclass(value):
        return name in CLASSES
    return inspect.isfunction(value) and name not in _NOT_TRIED


@cache
def good() -> dict[str, Any]:
    """A value for every name of an argument, with which the functions do their work."""
    import jax
    import numpy as np

    import thalweg as tw
    from thalweg import experiment

    x, y, _ = tw.data.gaussian_regression(jax.random.key(0), samples=6, features=2)
    network = tw.LinearNetwork([2, 2, 1])
    problem = tw.Regression(x, y)
    objective = tw.Objective(network, problem)
    weights = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(1))
    run = tw.descend(objective, weights, learning_rate=0.1, steps=5)
    flow = tw.flow(objective, weights, times=run.times)
    small = experiment.from_values({**worlds.TINY, "sweep": [{"start.seed": [0, 1]}]})
    labels = np.array([0, 1, 0, 1, 1, 0])
    return {
        "objective": objective, "network": network, "problem": problem, "weights": weights,
        "run": run, "flow": flow, "other": flow, "motion": run, "experiment": small,
        "classification": tw.Classification(x, labels), "key": jax.random.key(2), "x": x, "y": y,
        "labels": labels, "classes": 2, "phi": np.ones((1, 2)), "matrix": np.ones((1, 2)),
        "target": np.ones((1, 2)), "direction": weights, "learning_rate": 0.1, "steps": 5,
        "time": 0.5, "times": np.linspace(0, 0.5, 6), "radius": 0.1, "widths": [2, 2, 1],
        "case": tw.certificates.Case(objective, weights, learning_rate=0.1), "layers":
        [tw.network.Dense(2, 1)], "outputs": np.ones((6, 1)), "features": 2, "samples": 6,
        "apply": _apply, "shapes": [(2, 2), (1, 2)], "pattern": np.eye(2), "kernel": 2, "image": 4,
        "in_channels": 1, "out_channels": 1, "inputs": 2, "depth": 3, "width": 2, "margin": 0.1,
        "factor": 2.0, "curvature": "auto", "scale": 0.5, "norm": 0.1, "cosine": 0.3,
        "condition": 10.0, "path": "proof.json", "text": worlds.EXPERIMENT, "values": worlds.TINY,
        "changes": {"network.depth": 2}, "before": Path(), "after": Path("x"), "first": "a-sweep",
        "second": "a-sweep", "out": "out", "kind": "gaussian", "start_radius": 0.1, "a": 0.5,
        "b": 0.5, "tolerance": 1e-6, "function": lambda weights: weights[0].sum(),
        "folder": Path(), "text_or_none": None, "method": "auto",
        "solver": tw.solvers.Auto(), "loss": "cross_entropy",
    }  # fmt: skip


def _apply(weights: Any, x: Any) -> Any:
    return x @ weights[0].T @ weights[1].T


_SOMETIMES = {"data.from_csv": {"path": "table.csv", "target": "y"}, "open": {"path": "a-run"},
              "experiment.read": {"path": "small.toml"}}  # fmt: skip
_SLOW = ("sweep", "merge", "critical.critical_learning_rate", "tubes.certified_step")


def case(rng: Rng) -> Case:
    """A call of one function, most of whose arguments are good."""
    target = rng.choice(targets())
    if target.name in _SLOW and chance(rng, 0.6):
        target = rng.choice(targets())
    given, bad = {}, chance(rng, 0.93)
    wanted = [each for each in target.parameters if each.name != "self"]
    spoilt = rng.choice(wanted).name if wanted and bad else ""
    for each in wanted:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        needed = each.default is each.empty or each.name == "steps"
        if each.name == spoilt or chance(rng, 0.05):
            given[each.name] = _any(rng, each)
        elif needed or chance(rng, 0.1):
            given[each.name] = _good(rng, target.name, each)
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in given.items())
    return Case(
        f"thalweg.{target.name}({shown})",
        lambda: _call(target, given),
        [thing for thing in worlds.THINGS if thing in given.values().__repr__()],
        judge=lambda outcome: of_sentence(outcome.err) if outcome.code == 2 else [],
    )


def _shown(value: Any) -> str:
    try:
        return " ".join(repr(value).split())[:200]
    except Exception as error:  # the fault of a value that was made to be odd
        return f"<{type(value).__name__}: {error}>"


def _good(rng: Rng, function: str, wanted: inspect.Parameter) -> Any:
    special = _SOMETIMES.get(function, {})
    if wanted.name in special:
        return special[wanted.name]
    if wanted.name in good():
        return good()[wanted.name]
    return wanted.default if wanted.default is not wanted.empty else _conforming(rng, wanted)


def _any(rng: Rng, wanted: inspect.Parameter) -> Any:
    """A value of the right type and any size, or of any type."""
    return _conforming(rng, wanted) if chance(rng, 0.5) else _hostile(rng)


def _conforming(rng: Rng, wanted: inspect.Parameter) -> Any:
    said = str(wanted.annotation)
    if get_origin(wanted.annotation) is not None and "Literal" in said:
        return rng.choice([*get_args(wanted.annotation), drawing.word(rng)])
    for mark, make in (
        ("Weights", _weights), ("jaxtyping.Float[jaxlib._jax.Array, '...']", _weights),
        ("Shaped[", _number), ("Sequence[int]", _wholes), ("Sequence[float]", _reals),
        ("Path", _path), ("Key[", _key), ("Callable", _callable), ("Float[", _array),
        ("ndarray", _array), ("bool", lambda rng: chance(rng, 0.5)), ("int", drawing.whole),
        ("float", drawing.real), ("str", drawing.word),
        ("Mapping", lambda rng: {"a": _number(rng)}),
    ):  # fmt: skip
        if mark in said:
            return make(rng)
    return rng.choice((_number, _array, _hostile))(rng)


def _number(rng: Rng) -> Any:
    import jax.numpy as jnp
    import numpy as np

    value = rng.choice((drawing.real, drawing.whole))(rng)
    small = float(min(max(value, -1e300), 1e300)) if value == value else value
    kinds = (lambda: value, lambda: np.float32(0.1), lambda: np.asarray(small),
             lambda: jnp.asarray(small), lambda: np.asarray([small]), lambda: 1j, lambda: True,
             lambda: np.float64(small), lambda: [small])  # fmt: skip
    return rng.choice(kinds)() if chance(rng, 0.5) else value


def _wholes(rng: Rng) -> Any:
    return [drawing.whole(rng) for _ in range(rng.choice((0, 1, 2, 3)))]


def _reals(rng: Rng) -> Any:
    return tuple(drawing.real(rng) for _ in range(rng.choice((0, 1, 2, 2, 3))))


def _path(rng: Rng) -> Any:
    names = ("nowhere", "", ".", "x" * 300, "a\x00b", "small.toml", "a-run", "table.csv", "\ud800")
    return rng.choice((str, Path, lambda text: text.encode("utf-8", "replace")))(rng.choice(names))


def _key(rng: Rng) -> Any:
    import jax
    import numpy as np

    return rng.choice((
        lambda: jax.random.PRNGKey(0), lambda: jax.random.split(jax.random.key(0)), lambda: 0,
        lambda: np.zeros(2, np.uint32), lambda: np.zeros(3, np.uint32), lambda: None,
        lambda: jax.random.key(2),
    ))()  # fmt: skip


def _callable(rng: Rng) -> Any:
    return rng.choice((None, 0, "f", lambda *_: None, lambda *_: "x", lambda *_: float("nan")))


def _array(rng: Rng) -> Any:
    import jax.numpy as jnp
    import numpy as np

    shape = rng.choice(
        ((), (0,), (1,), (2,), (6,), (2, 2), (1, 2), (6, 2), (6, 1), (2, 0), (2, 2, 2))
    )
    array = np.full(shape, rng.choice((0.0, 1.0, -1.0, 1e200, float("nan"), float("inf"))))
    if array.size and chance(rng, 0.5):
        array.flat[0] = drawing.real(rng)
    kinds = (np.asarray, jnp.asarray, np.ndarray.tolist, lambda a: a.astype(np.float32),
             lambda a: a.astype(complex), lambda a: a.astype(str), lambda a: a.astype(object),
             lambda a: np.ma.masked_invalid(a), lambda a: a > 0)  # fmt: skip
    return rng.choice(kinds[:3] if chance(rng, 0.7) else kinds)(array)


def _weights(rng: Rng) -> Any:
    import jax.numpy as jnp
    import numpy as np

    usual = good()["weights"]
    first, second = (np.asarray(layer) for layer in usual)
    poisoned = first.copy()
    poisoned[0, 0] = rng.choice((float("nan"), float("inf"), 1e200, 1e308))
    return rng.choice((
        lambda: (poisoned, second), lambda: (jnp.asarray(poisoned), second), lambda: usual[::-1],
        lambda: list(usual), lambda: usual[:1], lambda: (), lambda: (*usual, usual[-1]),
        lambda: tuple(layer.tolist() for layer in (first, second)), lambda: good()["run"].weights,
        lambda: {"a": first}, lambda: first, lambda: (first, None), lambda: (first, second.ravel()),
        lambda: (first.astype(np.float32), second), lambda: (first, second.astype(complex)),
        lambda: (np.stack([first] * 2), np.stack([second] * 2)), lambda: iter(usual),
        lambda: (first * 0, second * 0), lambda: (first, second.astype(object)), lambda: "ab",
        lambda: (first.astype(int), second), lambda: (1e200 * first, 1e200 * second),
        lambda: np.array([first, second.T[:, [0, 0]]]),
    ))()  # fmt: skip


def _hostile(rng: Rng) -> Any:
    """Anything that can stand where a value is expected."""
    pool: Sequence[Callable[[], Any]] = (
        lambda: None, lambda: drawing.scalar(rng), lambda: drawing.tree(rng, 2), object,
        lambda: b"x", lambda: {1, 2}, lambda: iter([1]), lambda: Decimal("0.1"), lambda: int,
        lambda: Fraction(1, 3), lambda: 1j, lambda: ..., lambda: NotImplemented, Path,
        lambda: rng.choice(list(good().values())), lambda: range(3), lambda: [[1], [1, 2]],
        lambda: Exception("x"), lambda: slice(1), lambda: memoryview(b"ab"), lambda: _array(rng),
    )  # fmt: skip
    return rng.choice(pool)()


_INT_SAYS = "int() argument must be"
"""What the class `int` says, where it is called as a function of weights: it is not ours to say."""


def _call(target: Target, given: dict[str, Any]) -> Outcome:
    """Call it, print what it gives; no NaN may be given and leave no trace in the result."""
    import jax
    import numpy as np

    named = dict(given)
    positional = [
        named.pop(each.name)
        for each in target.parameters
        if each.kind is each.POSITIONAL_ONLY and each.name in given
    ]
    try:
        result = target.function(*positional, **named)
    except TypeError as error:
        if str(error).startswith(_INT_SAYS):
            return Outcome(2, err="What was given as a function does not take this.")
        raise
    text = f"{result!r}\n{result!s}"
    plain = float | tuple | list | np.ndarray | np.generic | jax.Array  # flows may hold NaN
    passed = [n for n, value in given.items() if isinstance(value, plain) and _holds_nan(value)]
    if "nan" in text.lower() or _holds_nan(result):
        passed = []  # NaN in, NaN out: nobody is told anything else
    found = [f"false: returned, though `{name}` held NaN" for name in passed]
    return Outcome(0, text[:2000], found=found)


def _holds_nan(value: Any) -> bool:
    import jax
    import jax.numpy as jnp
    import numpy as np

    def is_nan(leaf: Any) -> bool:
        if isinstance(leaf, np.ndarray | np.generic | jax.Array):
            # JAX's, for NumPy's does not know the type of random keys.
            real = jnp.issubdtype(leaf.dtype, jnp.inexact)
            return bool(real and np.isnan(np.asarray(leaf)).any())
        return isinstance(leaf, float) and leaf != leaf

    return any(map(is_nan, jax.tree.leaves(value)))
