"""A model of one's own on the command line: a file of Python, and a function of it that builds."""

import importlib.util
import sys
from hashlib import sha256
from pathlib import Path
from traceback import extract_tb
from typing import Any

from thalweg._errors import InputError

_OF_A_NETWORK = ("data", "network", "loss", "start", "certificates", "sweeping", "sweep")


def prepared_model(settings: Any, text: str) -> Any:
    """What the file and function FILE:FUNCTION build, ready to be run with these settings."""
    from thalweg import experiment

    name, _, function = text.rpartition(":")
    path, function = (Path(name), function) if name else (Path(text), "build")
    if not function.isidentifier() or path.suffix != ".py":
        raise InputError(
            f"`--model` must have the form FILE.py:FUNCTION, such as my_model.py:build, got "
            f"{text!r}."
        )
    try:
        code = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"`--model` must name a file that can be read, got {path}: {error.strerror}."
        ) from error
    objective, start = _built(path, function)
    weights = objective.as_weights(start, name="start", many=False)
    return experiment.prepared_own(settings, objective, weights, sha256(code).hexdigest())


def require_settings_of_models(changes: list[str] | None) -> None:
    """Refuse changes to what the file of a model decides."""
    for change in changes or []:
        table = change.partition("=")[0].strip().partition(".")[0]
        if table in _OF_A_NETWORK:
            raise InputError(
                f"`--set` must change training, flow, curvature, output or title where there is a "
                f"`--model`, got {change!r}; the file of the model decides the rest."
            )


def _built(path: Path, function: str) -> tuple[Any, Any]:
    """What the user's own code returns, an objective and a start."""
    from thalweg._checks import described
    from thalweg.objective import AbstractObjective

    build = getattr(_module(path), function, None)
    if not callable(build):
        raise InputError(
            f"`--model` must name a function of {path}, got {function!r}, which is "
            f"{'none' if build is not None else 'not there'}."
        )
    try:
        built = build()
    except Exception as error:
        raise _failed(path, error) from error
    if not (isinstance(built, tuple) and len(built) == 2):
        raise InputError(
            f"{function} of {path} must return an objective and a start, got {described(built)}."
        )
    objective, start = built
    if not isinstance(objective, AbstractObjective):
        raise InputError(
            f"{function} of {path} must return an objective first, such as "
            f"tw.FunctionObjective(loss, data), got {described(objective)}."
        )
    return objective, start


def _module(path: Path) -> Any:
    """The file, run as it is; what lies beside it can be imported."""
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, "a file of Python always has one"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # so that its classes are found again
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failed(path, error) from error
    return module


def _failed(path: Path, error: Exception) -> InputError:
    """What went wrong in the user's own code, and on which line of it."""
    if isinstance(error, InputError):
        return error
    steps = extract_tb(error.__traceback__)
    own = [each.lineno for each in steps if Path(each.filename).resolve() == path.resolve()]
    line = error.lineno if isinstance(error, SyntaxError) else next(reversed(own), None)
    where = f", line {line}" if line else ""
    said = str(error).splitlines()[0].rstrip(".") if str(error) else "no message"
    return InputError(f"`--model` {path} must run, but{where}: {type(error).__name__}: {said}.")
