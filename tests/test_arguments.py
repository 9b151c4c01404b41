"""Every public function answers wrong arguments with one sentence, and computes nothing before."""

import inspect
import typing
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import thalweg as tw
from thalweg import experiment, sweeps
from thalweg._arguments import checked
from thalweg.experiment import settings
from thalweg.experiment.estimates import Prepared

MODULES = """
data initialisation adversarial dynamics curvature measurement theorems tubes critical sweeps
storage experiment phases network problem objective
"""
CLASSES = """
Objective LinearNetwork HomogeneousNetwork SharedNetwork Model Dense Convolution Tied Regression
TargetMatrix Classification RandomStart Case
"""
"""Those that users make; all others are made for them."""


def public() -> dict[str, typing.Any]:
    """Everything that users call, by its name."""
    found = {}
    for short in MODULES.split():
        module = import_module(f"thalweg.{short}")
        for name, thing in vars(module).items():
            own = getattr(thing, "__module__", "").startswith(module.__name__)
            called = inspect.isfunction(thing) or (
                inspect.isclass(thing) and name in CLASSES.split()
            )
            if own and called and not name.startswith("_") and name != "nothing":
                found[f"{short}.{name}"] = thing
    return found


PUBLIC = public()
KEY = jax.random.key(0)
INPUTS = np.array([[1.0, 2.0], [0.5, -1.0], [2.0, 0.3]])
NETWORK = tw.LinearNetwork([2, 2, 1])
RELU = tw.HomogeneousNetwork([2, 2, 1])
PROBLEM = tw.Regression(INPUTS, [1.0, 2.0, -1.0])
OBJECTIVE = tw.Objective(NETWORK, PROBLEM)
WEIGHTS = (np.eye(2), np.ones((1, 2)))
EXPERIMENT = experiment.Experiment()
ONCE = np.zeros(1)
STILL = tw.dynamics.Descent(
    OBJECTIVE, np.asarray(0.1), np.zeros(1, int), ONCE, (WEIGHTS[0][None], WEIGHTS[1][None]), ONCE,
    None, np.asarray(-1), WEIGHTS,
)  # fmt: skip
"""A run of no steps."""


@pytest.fixture(scope="module")
def run():
    return tw.descend(OBJECTIVE, WEIGHTS, learning_rate=0.1, steps=3)


def test_there_are_as_many_as_there_were():
    """A module that is renamed must not take its functions out of the battery."""
    assert len(PUBLIC) >= 90


# --- by annotation -------------------------------------------------------------------------------

RIGHT = {
    "objective": OBJECTIVE, "network": NETWORK, "problem": PROBLEM, "weights": WEIGHTS,
    "direction": WEIGHTS, "key": KEY, "experiment": EXPERIMENT, "x": INPUTS, "y": np.ones(3),
    "matrix": np.ones((1, 2)), "target": np.ones((1, 2)), "labels": [0, 1, 0], "path": "nowhere",
    "loss": "cross_entropy", "samples": 4, "features": 2, "phi": np.ones((1, 2)), "widths": [2, 1],
    "kind": "gaussian", "depth": 2, "width": 2, "time": 1.0, "text": "", "before": ".",
    "layers": [tw.network.Dense(2, 1)], "apply": lambda weights, x: x, "function": lambda w: w[0],
    "shapes": [[2, 2]], "run": STILL, "other": STILL,
    "case": tw.certificates.Case(OBJECTIVE, WEIGHTS),
    "first": ".", "second": ".", "out": "out", "values": {}, "results": xr.Dataset(), "inputs": 2,
    "in_channels": 1, "out_channels": 1, "kernel": 2, "image": 3, "outputs": 1, "changes": {},
    "steps": 5, "times": np.array([0.0, 1.0]),
    "after": ".", "folder": "out", "name": "new", "draw": tw.initialisation.gaussian,
    "plan": sweeps.prepared(tw.Experiment(sweep=[{"start.scale": [0.1, 0.2]}])),
    "ready": Prepared(OBJECTIVE, WEIGHTS, 1.0),
}  # fmt: skip
"""Arguments that stand beside the wrong one; numbers that are not named here are 0.5."""

NOTHING = object()
WRONG: dict[str, list[typing.Any]] = {
    "a number": ["0.1", "big", None, 1j, True, 10**400, [[1.0], [1.0, 2.0]], np.ones(2), NOTHING],
    "a whole number": ["3", None, 0.5, True, float("nan"), 10**30, 1e300, np.ones(2), NOTHING],
    "an array": ["big", NOTHING, [[1.0], [1.0, 2.0]], np.array(["a"]), np.array(1j), {"a": 1.0}],
    "weights": [
        None, "big", 1.0, np.eye(2), [], {"a": np.eye(2)}, (np.eye(2), "big"),
        ([[1.0], [1.0, 2.0]],), NOTHING, OBJECTIVE,
    ],
    "a key": [1, None, "1", np.ones(2), jax.random.split(KEY), NOTHING],
    "a path": [None, 3, b"folder", "a\0b", NOTHING],
    "a text": [3, b"text", NOTHING, ["text"]],
    "a list": [3, "big", NOTHING],
    "True or False": [1, "yes", 0.0, NOTHING],
    "a thing": [None, 1.0, "big", np.ones(2), NOTHING],
    "a function": [1.0, "big", NOTHING],
}  # fmt: skip


def kinds_of(annotation: typing.Any) -> list[str]:
    """What an annotation stands for, in the words of `WRONG`; several where it is a union."""
    if annotation is typing.Any or annotation is inspect.Parameter.empty:
        return []
    text = str(annotation)
    if typing.get_origin(annotation) is Callable:  # whatever it takes and gives
        return ["a function"]
    if typing.get_args(annotation)[1:] == (type(None),) and "Callable" in text:
        return [*kinds_of(typing.get_args(annotation)[0]), "None"]
    if "any pytree" in text:  # which the objective beside it takes: here, layers
        return ["weights"]
    if text.startswith("tuple[") or "tuple[typing.Union[Float" in text:
        return ["weights"]
    if "Key[" in text:
        return ["a key"]
    if "complex" in text and "Shaped" in text:
        return ["a number", "None"] if type(None) in typing.get_args(annotation) else ["a number"]
    if typing.get_origin(annotation) in (typing.Union, type(int | None)):
        found = [kind for each in typing.get_args(annotation) for kind in kinds_of(each)]
        paths = "a path" in found
        return sorted({kind for kind in found if not (paths and kind == "a text")})
    simple = {
        float: "a number", int: "a whole number", str: "a text", bool: "True or False",
        type(None): "None", Path: "a path",
    }  # fmt: skip
    if annotation in simple:
        return [simple[annotation]]
    if hasattr(annotation, "dim_str") or annotation is np.ndarray:
        return ["an array"]
    words = {"Literal": "a text", "Callable": "a function", "Sequence": "a list", "Path": "a path"}
    return [next((kind for word, kind in words.items() if word in text), "a thing")]


def wrong_for(annotation: typing.Any) -> list[typing.Any]:
    """Values that no part of an annotation allows."""
    kinds = kinds_of(annotation)
    if not kinds:
        return []
    common = [WRONG[kind] for kind in kinds if kind != "None"]
    shared = [value for value in common[0] if all(_among(value, rest) for rest in common[1:])]
    return [value for value in shared if value is not None or "None" not in kinds]


def _among(value: typing.Any, others: list[typing.Any]) -> bool:
    return any(value is other for other in others) or (
        isinstance(value, str | float | int) and any(value == other for other in others if
        isinstance(other, type(value)))
    )  # fmt: skip


def is_one_sentence(message: str) -> bool:
    tidy = "\n" not in message and " at 0x" not in message and "array(" not in message
    return tidy and len(message) < 400 and message.rstrip(")")[-1] in ".?"


def arguments(thing: typing.Any) -> list[inspect.Parameter]:
    return [each for each in inspect.signature(thing).parameters.values() if each.name != "self"]


CASES = [(name, each.name) for name, thing in PUBLIC.items() for each in arguments(thing)]


@pytest.mark.parametrize(("name", "argument"), CASES, ids=lambda value: value)
def test_wrong_types_are_refused_in_one_sentence(name, argument):
    """Each annotation's wrong values, one at a time, after right ones in the other places."""
    thing = PUBLIC[name]
    own = {each.name: each for each in arguments(thing)}
    required = [each for each in own.values() if each.default is inspect.Parameter.empty]
    for value in wrong_for(own[argument].annotation):
        given = {each.name: RIGHT.get(each.name, 0.5) for each in required}
        given = given | {argument: value}
        before = list(own)[: list(own).index(argument)]
        ordered = {key: given[key] for key in [*before, argument, *given] if key in given}
        with pytest.raises(tw.InputError) as refused:
            thing(**ordered)
        assert f"`{argument}" in str(refused.value) or value is None
        assert is_one_sentence(str(refused.value)), refused.value


def test_all_but_those_without_arguments_are_checked():
    """Where an argument is `Any`, the function looks at it by itself; most are not."""
    covered = [
        name for name, thing in PUBLIC.items()
        if any(wrong_for(each.annotation) for each in arguments(thing))
    ]  # fmt: skip
    own = {"data.whiten", "data.normalise_labels", "problem.Regression", "problem.TargetMatrix"}
    left = {name for name, thing in PUBLIC.items() if arguments(thing)} - set(covered)
    assert left <= own | {"network.Tied"}, left


# --- by value ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tw.descend(OBJECTIVE, WEIGHTS, learning_rate="0.1", steps=3), "without quotes"),
        (lambda: tw.descend(OBJECTIVE, WEIGHTS, learning_rate=True, steps=3), "a number, got True"),
        (lambda: tw.descend(OBJECTIVE, WEIGHTS, learning_rate=[], steps=3), "at least one run"),
        (lambda: tw.initialisation.gaussian(NETWORK, 1.0, key=1), r"make one: jax.random.key\(1\)"),
        (lambda: tw.initialisation.gaussian(OBJECTIVE, 1.0, key=KEY), "give its `network`"),
        (lambda: tw.sharpness(NETWORK, WEIGHTS), r"tw.Objective\(network, problem\)"),
        (lambda: tw.sharpness(OBJECTIVE, WEIGHTS[::-1]), "last layer first"),
        (lambda: tw.sharpness(OBJECTIVE, WEIGHTS[:1]), "2 arrays, one per layer, got 1"),
        (lambda: OBJECTIVE.hvp(WEIGHTS, (np.ones((3, 2, 2)), WEIGHTS[1])), "`direction` must"),
        (lambda: tw.flow(OBJECTIVE, WEIGHTS, times=[0.0, np.nan]), r"infinite\); the times"),
        (lambda: tw.flow(OBJECTIVE, WEIGHTS, "1"), "`time` must be one number or None, got the te"),
        (lambda: tw.sweep(OBJECTIVE), "an Experiment or a path, got an Objective"),
        (lambda: tw.sweep("nowhere.toml"), "can be read, got nowhere.toml: No such file"),
        (lambda: experiment.read("nowhere.toml"), "can be read, got nowhere.toml: No such file"),
        (lambda: tw.measurement.alignment(WEIGHTS[::-1]), "matrices of one linear network"),
        (lambda: tw.measurement.deficiency_margin([[1.0]], [[1.0, 2.0]]), "as many columns as"),
        (lambda: PROBLEM.value(np.ones((2, 1))), "as many rows as Regression, 1, got shape"),
        (lambda: PROBLEM.value([1.0, 2.0]), "`matrix` must be a matrix, got a list of length 2"),
        (lambda: PROBLEM.output_value(np.ones((1, 1))), "as many samples as Regression, 3"),
        (lambda: NETWORK(WEIGHTS, np.ones((3, 5))), "as many features as LinearNetwork, 2"),
        (lambda: NETWORK.end_to_end(WEIGHTS[::-1]), "last layer first"),
        (lambda: NETWORK.check(3.0), "a tuple with one array per layer, got 3.0"),
        (lambda: tw.network.Tied([[0, 1], [2]]), "`pattern` must be a matrix"),
        (lambda: tw.curvature.spectral_density(OBJECTIVE, WEIGHTS, seed=-1), "`seed` must be"),
        (lambda: tw.curvature.is_regular(RELU, WEIGHTS, np.ones((3, 5))), "network's 2 inputs"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_a_fix(call, message):
    with pytest.raises(tw.InputError, match=message):
        call()


@pytest.mark.parametrize(
    "solver",
    [
        tw.sharpness, tw.smallest_eigenvalue, tw.extreme_eigenvalues, tw.certify,
        tw.curvature.spectral_density, tw.dynamics.escape,
        lambda *start: tw.descend(*start, learning_rate=0.1, steps=1),
        lambda *start: tw.flow(*start, time=1.0),
        lambda *start: tw.tube_along(*start, learning_rate=0.1, steps=1),
        lambda *start: tw.certified_step(*start, radius=0.1, time=1.0),
        lambda *start: tw.critical_learning_rate(*start, steps=10),
    ],
)  # fmt: skip
def test_weights_that_are_not_finite_are_not_told_to_drop_samples(solver):
    broken = (WEIGHTS[0], np.array([[np.nan, 1.0]]))
    with pytest.raises(tw.InputError, match=r"`weights\[1\]` must be finite.* run .* diverge\?"):
        solver(OBJECTIVE, broken)


def test_samples_that_are_not_finite_are_told_to_be_dropped():
    with pytest.raises(tw.InputError, match=r"`x` must be finite.* drop or impute"):
        tw.Regression([[np.nan]], [1.0])


def test_a_run_in_the_place_of_weights(run):
    with pytest.raises(tw.InputError, match=r"got a Descent; give one point .* `run.final`"):
        tw.sharpness(OBJECTIVE, run)
    with pytest.raises(
        tw.InputError, match=r"shape \(4, 2, 2\), expected \(2, 2\); take one point"
    ):
        tw.sharpness(OBJECTIVE, run.weights)
    with pytest.raises(tw.InputError, match="a run knows its objective: give the run alone"):
        tw.tube(OBJECTIVE, run)


def test_the_spectrum_along_a_run_and_along_its_weights_are_the_same(run):
    along = tw.curvature.spectrum_along(OBJECTIVE, run)
    again = tw.curvature.spectrum_along(OBJECTIVE, run.weights)
    assert np.array_equal(along.largest, again.largest)


@pytest.mark.parametrize(
    ("settings_of", "message"),
    [
        (lambda: tw.Experiment(network={"depth": 0}), "`network.depth` must be .*1, got 0"),
        (lambda: tw.Experiment(netwrk={}), "did you mean `network`"),
        (lambda: tw.Experiment(data=NOTHING), "a table of fields, got an object"),
        (lambda: settings.NetworkSettings(depht=2), "did you mean `depth`"),
        (lambda: settings.Training(steps=1, time=1.0), "either `time` or `steps`"),
        (lambda: settings.Training(learning_rate=10**400), "20 digits"),
    ],
)
def test_settings_are_refused_as_files_are(settings_of, message):
    with pytest.raises(tw.InputError, match=message) as refused:
        settings_of()
    assert is_one_sentence(str(refused.value))


# --- what is right stays right -------------------------------------------------------------------


def test_lists_and_whole_numbers_are_taken_for_what_they_mean():
    """Oracle: the same with arrays and floats."""
    lists = [array.tolist() for array in WEIGHTS]
    assert float(OBJECTIVE(lists)) == float(OBJECTIVE(WEIGHTS))
    found = tw.sharpness(OBJECTIVE, lists, tolerance=np.float32(1))
    assert found.value == tw.sharpness(OBJECTIVE, WEIGHTS).value


def test_traced_values_pass():
    scales = jnp.array([0.5, 2.0])
    starts = jax.vmap(lambda s: tw.initialisation.gaussian(NETWORK, s, key=KEY))(scales)
    values = jax.jit(jax.vmap(OBJECTIVE))(starts)
    assert values.shape == (2,)
    assert jax.vmap(tw.measurement.unbalancedness)(starts).shape == (2,)


def test_shapes_of_traced_values_are_seen():
    with pytest.raises(tw.InputError, match="`scale` must be one number, got a value of shape"):
        jax.jit(lambda s: tw.initialisation.gaussian(NETWORK, s, key=KEY))(jnp.ones(2))


def test_names_defaults_and_docstrings_stay():
    @checked
    def power(base: float, exponent: int = 2) -> float:
        """A power."""
        return base**exponent

    assert power(3) == 9.0
    assert power(2.0, exponent=3.0) == 8.0
    assert (power.__name__, power.__doc__) == ("power", "A power.")
    assert list(inspect.signature(power).parameters) == ["base", "exponent"]
    with pytest.raises(TypeError, match="unexpected keyword"):
        power(1.0, exponnt=2)  # pyright: ignore[reportCallIssue]
