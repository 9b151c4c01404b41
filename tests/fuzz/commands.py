"""Command lines: all commands with all their options, as the program itself declares them."""

import shlex
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import drawing
import worlds
from cases import Case, Outcome, faults_of_command
from drawing import Rng, chance
from writing import toml

_THINGS = {
    "run": ("small.toml",), "certify": ("small.toml",), "critical": ("small.toml",),
    "prove": ("small.toml",), "sweep": ("grid.toml",), "merge": ("a-sweep", "a-sweep"),
    "show": ("a-run", "a-sweep"), "check": ("proof.json",), "init": (),
}  # fmt: skip
"""What each command is meant for."""

_BUILT_IN = ("run", "certify", "critical", "prove")
"""Commands that take the built-in experiment where no file is given; it is made small."""

_PATHS = (
    ".", "..", "", " ", "nowhere", "no/where/at/all", "small.toml/inside", "[bold]", "[/]", "a b",
    "x" * 300, "d/" * 300 + "x", "\u00e9" * 130, "~", "-x", "/proc/none/here", "results.zarr",
    "\U0001f600", "a\nb", "*", "/proc/self/mem", "a-run/results.zarr", "a-sweep/sweep.json",
)  # fmt: skip
# Nothing may write to these: a command line is tried by whoever runs the tests, root included.
_ONLY_READ = ("/", "/dev/null", "/etc/passwd", "/root/x", "/tmp")


class Parameter(NamedTuple):
    """An option or an argument of a command."""

    name: str
    option: str
    kind: type
    is_flag: bool
    many: bool


@cache
def parameters() -> dict[str, tuple[Parameter, ...]]:
    """The options and arguments of every command."""
    from typer.main import get_command

    from thalweg.cli import app

    group: Any = get_command(app)
    found = {}
    for each in app.registered_commands:
        assert each.callback is not None
        name = each.name or each.callback.__name__.replace("_", "-")
        hints = get_type_hints(each.callback, include_extras=True)
        found[name] = tuple(_parameter(p, hints[p.name]) for p in group.commands[name].params)
    return found


def _parameter(declared: Any, hint: Any) -> Parameter:
    option = next((text for text in declared.opts if text.startswith("-")), "")
    bare = _bare(hint)
    many = get_origin(bare) is list
    return Parameter(
        declared.name, option, _bare(get_args(bare)[0]) if many else bare, bare is bool, many
    )


def _bare(hint: Any) -> Any:
    """The type without its comments, and without None."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return _bare(next(each for each in get_args(hint) if each is not type(None)))
    return hint


def case(rng: Rng) -> Case:
    """A command line with files that are there, or are not."""
    roll = rng.random()
    if roll < 0.02:
        return command(rng.choice(([], ["--version"], ["--help"], ["--json"], [""], ["-"])))
    if roll < 0.05:
        return command([drawing.word(rng)[:500], *(drawing.word(rng)[:500] for _ in range(2))])
    name = rng.choice(sorted(parameters()))
    wanted = [_argument(rng, name, each) for each in parameters()[name]]
    if chance(rng, 0.05):
        rng.shuffle(wanted)
    words = [name, *(word for words in wanted for word in words)]
    if name in _BUILT_IN:
        # Before the others, which may change it again.
        words[1:1] = [word for change in worlds.SETS for word in ("--set", change)]
    if chance(rng, 0.05):
        words.insert(rng.randint(0, len(words)), drawing.word(rng)[:500])
    return command(words)


def command(arguments: Sequence[str], files: dict[str, bytes] | None = None) -> Case:
    """The case of a command line; things of the world that it names are there."""
    words = [word.replace("\x00", "") for word in arguments]  # no command line can hold it
    needs = [name for name in worlds.THINGS if any(word.startswith(name) for word in words)]
    if files:
        needs = [name for name in needs if name not in files]
    return Case(
        shlex.join(["thalweg", *words]),
        lambda: call(words),
        needs,
        files or {},
        lambda outcome: faults_of_command(words, outcome),
    )


def call(words: Sequence[str]) -> Outcome:
    """Run a command in this process; the worker has caught its streams."""
    from thalweg import cli

    before, sys.argv = sys.argv, ["thalweg", *words]
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else -1
        return Outcome(code)
    finally:
        sys.argv = before
    return Outcome(0)


def _argument(rng: Rng, command: str, wanted: Parameter) -> list[str]:
    """The words for one parameter: often none for an option, and seldom none for an argument."""
    if not chance(rng, 0.3 if wanted.option else 0.9):
        return []
    if wanted.is_flag:
        return [wanted.option]
    words = []
    for _ in range(rng.choice((1, 1, 1, 2)) if wanted.many else 1):
        value = _value(rng, command, wanted)
        words += [wanted.option, value] if wanted.option else [value]
        if wanted.option and chance(rng, 0.05):
            words[-2:] = [f"{wanted.option}={value}"]
    return words


def _value(rng: Rng, command: str, wanted: Parameter) -> str:
    if wanted.option == "--set":
        return _change(rng)
    if chance(rng, 0.1):
        return drawing.word(rng)
    if wanted.kind is Path:
        return _path(rng, command, wanted)
    if wanted.kind is int:
        return str(drawing.whole(rng))
    if wanted.kind is float:
        return str(drawing.real(rng))
    return _text(rng, command, wanted)


def _path(rng: Rng, command: str, wanted: Parameter) -> str:
    things = _THINGS.get(command, ())
    if things and not wanted.option and chance(rng, 0.6):
        return rng.choice(things)
    pool = [*_PATHS, *worlds.THINGS]
    if not wanted.option and command != "init":
        pool += _ONLY_READ
    if wanted.option and chance(rng, 0.4):
        return rng.choice(("out", "out.png", "out.pdf", "out.json", "out.xyz", "new/out"))
    return rng.choice(pool)


def _text(rng: Rng, command: str, wanted: Parameter) -> str:
    if wanted.name in ("depths", "scales"):
        values = [str(drawing.scalar(rng)) for _ in range(rng.choice((1, 2)))]
        return ",".join(values) if chance(rng, 0.6) else rng.choice(("2", "1,2", "0.5", "2,", ","))
    if wanted.name == "scheduler":
        return rng.choice(("tcp://127.0.0.1:1", "127.0.0.1:1", "tls://x:1", "x", "tcp://[::1]:1"))
    if command == "reproduce":
        return rng.choice(("all", "marion2024-fig1cd", "marion2024", "fig1", "code"))
    return rng.choice(("arora2019", "marion2024", "elkabetz", "dense", "[/]"))


@cache
def _fields() -> tuple[str, ...]:
    from thalweg.experiment.files import field_names

    return tuple(field_names())


def _change(rng: Rng) -> str:
    field = rng.choice(_fields()) if chance(rng, 0.9) else drawing.word(rng)
    if chance(rng, 0.05):
        field = field.partition(".")[rng.choice((0, 2))]
    if chance(rng, 0.05):
        return drawing.word(rng)
    if chance(rng, 0.5):
        from experiments import conforming_value

        return f"{field}={toml(conforming_value(rng, field))}"
    value = drawing.tree(rng, 2)
    return f"{field}={toml(value) if chance(rng, 0.7) else value}"
