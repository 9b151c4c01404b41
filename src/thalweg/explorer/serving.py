"""Starting the server, opening the page, and ending both."""

import asyncio
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._typing import AnyWeights
from thalweg.experiment import Experiment, from_values
from thalweg.explorer.app import application
from thalweg.explorer.security import Guarded
from thalweg.explorer.session import Session
from thalweg.explorer.settings import shown_first
from thalweg.explorer.tokens import new_token, token_for
from thalweg.explorer.warming import warm_up
from thalweg.explorer.worker import Worker
from thalweg.objective import AbstractObjective

PORT = 8427
"""Where it listens, if nothing else is asked for and it is free."""

_HERE = "127.0.0.1"
_ENDING = (signal.SIGINT, signal.SIGTERM)
_GRACE = 2  # seconds that open streams get when the server ends


class Explorer:
    """A server that runs until it is stopped; also a context manager.

    Attributes:
        address: where the page is, with the token: whoever knows it can use the server.
        port: on which it listens, on this machine alone.
    """

    def __init__(self, session: Session, port: int | None = None, token: str | None = None):
        self._socket = _listening(port)
        self.port: int = self._socket.getsockname()[1]
        self._session, self._worker = session, Worker(warm_up)
        token = token or (token_for(self.port) if self.port in (PORT, port) else new_token())
        self.address = f"http://{_HERE}:{self.port}/{token}/"
        app = Guarded(application(session, self._worker), token, lambda: self.port)
        # Types of the two libraries differ in name alone.
        config = uvicorn.Config(
            app,  # pyright: ignore[reportArgumentType]
            log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none",
            timeout_graceful_shutdown=_GRACE, timeout_keep_alive=75,
        )  # fmt: skip
        self._server = _Server(config, self._worker.drop_all)
        self._thread: threading.Thread | None = None

    def start(self) -> "Explorer":
        """Serve in a thread of its own, and return at once."""
        if self._thread is not None:
            return self
        self._worker.start()
        self._thread = threading.Thread(target=self._serve, name="explorer-server", daemon=True)
        self._thread.start()
        return self

    def run(self) -> None:
        """Serve until interrupted."""
        self._worker.start()
        try:
            self._serve()
        finally:
            self._close()

    def stop(self) -> None:
        """End the server, and what it computes."""
        self._worker.drop_all()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=_GRACE + 8)
        self._close()

    def open(self) -> bool:
        """Show the page in the person's browser; whether there is one."""
        try:
            return webbrowser.open(self.address)
        except webbrowser.Error:
            return False

    def __enter__(self) -> "Explorer":
        return self.start()

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Explorer({self.address})"

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def _close(self) -> None:
        self._worker.stop()
        self._socket.close()
        self._session.uploads.close()


class _Server(uvicorn.Server):
    """A server that an interrupt ends, without being raised again when it has.

    Streams are ended first: those that are open when the server ends are torn off.
    """

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]):
        super().__init__(config)
        self._ending = ending

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ending()
        super().handle_exit(sig, frame)

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in _ENDING}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def serve(
    experiment: Experiment, folder: Path, *, port: int | None = None, token: str | None = None
) -> Explorer:
    """A server for an experiment, which is not started yet."""
    return Explorer(Session(shown_first(experiment), folder), port, token)


@checked
def explore(
    objective: AbstractObjective,
    weights: AnyWeights,
    learning_rate: float = 0.05,
    time: float | None = None,
    *,
    port: int | None = None,
    open_page: bool = True,
    wait: bool = True,
) -> Explorer:
    """Open a page on which the learning rate and the time of descent from these weights are turned.

    Args:
        objective: what is descended, of any kind.
        weights: the start.
        learning_rate: what the page begins with.
        time: likewise, learning rate x steps; 16 if not given.
        port: on which the server listens, on this machine alone; a free one if not given.
        open_page: whether to show the page in a browser.
        wait: serve until interrupted; else return at once, and `.stop()` ends it.

    Returns:
        The server, with its `address`.
    """
    objective.try_out(weights)
    training: dict[str, Any] = {"learning_rate": [learning_rate]}
    if time is not None:
        training["time"] = time
    first = from_values({"training": training}, "The page")
    explorer = Explorer(Session(first, own=(objective, weights)), 0 if port is None else port)
    if not wait:
        explorer.start()
    if open_page:
        threading.Timer(0.3, explorer.open).start()
    if wait:
        print(f"The explorer is at {explorer.address} (interrupt to end it)")
        explorer.run()
    return explorer


def _listening(port: int | None) -> socket.socket:
    """A socket of this machine alone: at the port that is asked for, or the usual or a free one."""
    wanted = [PORT, 0] if port is None else [port]
    for number in wanted:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if sys.platform == "win32":  # there the other option lets programs share a port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((_HERE, number))
            found.listen(128)  # who comes before the server is up waits
        except (OSError, OverflowError) as error:
            found.close()
            if number == wanted[-1]:
                raise InputError(
                    f"`--port` must be a port that is free on this machine, got {port}: "
                    f"{getattr(error, 'strerror', None) or error}; leave it out for another one."
                ) from error
        else:
            return found
    raise AssertionError
