"""The command that opens the explorer."""

import os
import sys
import threading
from typing import Annotated

import typer

from thalweg._errors import InputError
from thalweg.cli.base import Changes, File, app, folder_of, out, read_experiment, say


@app.command()
def explore(
    file: File = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            help="Where it listens, on this machine alone; 8427 or a free one.",
        ),
    ] = None,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address, and open no browser.")
    ] = False,
    changes: Changes = None,
) -> None:
    """Open a page where the theory moves with the slider; it talks to this machine alone."""
    if port is not None and not 0 <= port < 2**16:
        raise InputError(f"`--port` must be a number from 0 to 65535, got {port}.")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise InputError(
            "`thalweg explore` needs Starlette and uvicorn, which are not installed; install "
            "`thalweg[explore]`."
        ) from error
    settings = read_experiment(file, changes)
    from thalweg.explorer.serving import serve

    explorer = serve(settings, folder_of(file), port=port)
    out.print(explorer.address, highlight=False, soft_wrap=True)
    say("whoever knows this address can use it; Ctrl-C ends the server")
    if not no_open:
        threading.Timer(0.3, explorer.open).start()
    explorer.run()
    _end()


def _end() -> None:
    """End the process at once where a thread is still inside of compiled code.

    Nothing interrupts that, and Python aborts where it comes back while the interpreter is ended.
    """
    if any(each.name.startswith("explorer") for each in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
