"""The command line: parse, call, print; no mathematics.

Exit codes: 0 done, 1 a verdict failed, 2 bad input (one sentence on the error stream). One module
per group of commands; importing it registers them.
"""

import gc
import os
import signal
import sys
import warnings
from inspect import cleandoc
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text

from thalweg._compiled import keep_compiled
from thalweg._errors import InputError
from thalweg._version import __version__
from thalweg.cli import (
    critical,
    exploring,
    proving,
    reproducing,
    running,
    showing,
    stating,
    sweeping,
)
from thalweg.cli.base import app, err, out

__all__ = [
    "app",
    "critical",
    "err",
    "exploring",
    "main",
    "options",
    "out",
    "proving",
    "reproducing",
    "running",
    "showing",
    "stating",
    "sweeping",
]


def __dir__() -> list[str]:
    return __all__


_KEEPING = {"run", "sweep", "reproduce"}
"""Commands that keep what they have finished."""


_ALLOCATIONS = 100_000
"""How many more objects there may be before unreachable ones are looked for."""


def main() -> None:
    """Run the command line; bad input ends in one sentence and exit code 2."""
    before = signal.signal(signal.SIGINT, _stop_at_once)
    # Most of what lives was made by imports and stays: to look for what does not takes a tenth of
    # the time of a short command.
    gc.set_threshold(_ALLOCATIONS)
    os.environ["MPLBACKEND"] = "agg"  # commands draw files; whoever calls Python keeps theirs
    try:
        with warnings.catch_warnings():
            # What overflows is told by the results: as divergence, not a number, or a refusal.
            warnings.simplefilter("ignore", RuntimeWarning)
            app()
    except InputError as error:
        _refuse(str(error))
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        where = "" if error.filename is None else f" with {error.filename}"
        sentence = (
            f"Files and folders must be ones that can be used, but the system refused to go on"
            f"{where}: {error.strerror or error}."
        )
        _refuse(str(InputError(sentence)))  # which cuts a name without end
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        _refuse(
            "The work must fit in memory, but more was asked for than there is; take fewer "
            "samples, a smaller network or fewer records."
        )
    finally:
        signal.signal(signal.SIGINT, before)


def _refuse(sentence: str) -> NoReturn:
    words = Text.assemble(("error: ", "bold red"), sentence)
    err.print(words, highlight=False, soft_wrap=True)
    sys.exit(2)


def _is_out_of_memory(error: Exception) -> bool:
    """Python says so by type, JAX in words."""
    return isinstance(error, MemoryError) or (
        type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError")
        and "RESOURCE_EXHAUSTED" in str(error)
    )


def _stop_at_once(*_: Any) -> None:
    """End here: an exception cannot be thrown through compiled code, and would crash inside of it.

    What commands have finished is on the disk, whole, and those that keep it go on from there.
    """
    err.show_cursor(True)
    goes_on = "; run the same command to go on" if _KEEPING & set(sys.argv[1:2]) else ""
    goes_on += ", without --fresh" if goes_on and "--fresh" in sys.argv else ""
    err.print(f"interrupted{goes_on}", highlight=False)
    os._exit(130)


def _show_version(wanted: bool | None) -> None:
    if wanted:
        out.print(__version__, highlight=False)
        raise typer.Exit


def _flowing(text: str) -> str:
    """A docstring whose lines are as long as the terminal is wide, not as ours are."""
    return "\n\n".join(" ".join(each.split()) for each in cleandoc(text).split("\n\n"))


for _command in app.registered_commands:
    _command.help = _flowing((_command.callback and _command.callback.__doc__) or "")


@app.callback()
def options(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = None,
) -> None:
    """Options of every command."""
    keep_compiled()
