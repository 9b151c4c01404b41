"""A server for the tests, what asks it as a page does, and people in browsers."""

import http.client
import json
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from browsing import Person

pytest.importorskip("uvicorn", reason="the explorer's tests need thalweg[explore]")

from thalweg.experiment import Experiment
from thalweg.explorer.frames import frames_in
from thalweg.explorer.serving import Explorer
from thalweg.explorer.session import Session


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Page:
    """Asks a server as its page does."""

    def __init__(self, explorer: Explorer):
        self.explorer, self._numbers = explorer, count(1)
        parts = urlsplit(explorer.address)
        self.host, self.path = parts.netloc, parts.path

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Headers by name, with underscores; a path from the page's own, or from the root."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            whole = path if path.startswith("/") else self.path + path
            connection.request(method, whole, body, named)
            found = connection.getresponse()
            sent = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, sent, found.read())
        finally:
            connection.close()

    def post(self, path: str, values: Any, **headers: str) -> Answer:
        body = json.dumps(values).encode()
        return self.ask("POST", path, body, **{"content_type": "application/json"} | headers)

    def compute(self, setting: dict[str, Any], *want: str, **more: Any) -> dict[str, Any]:
        """The frames of a setting by part; the last of each, or a list of tiles."""
        answer = self.request(setting, *want, **more)
        assert answer.status == 200, answer.body
        found: dict[str, Any] = {}
        for header, arrays in frames_in(answer.body):
            found[header["part"]] = header | arrays
        return found

    def request(self, setting: dict[str, Any], *want: str, **more: Any) -> Answer:
        asked = {"tab": "tests", "number": next(self._numbers), "setting": setting, **more}
        return self.post("api/compute", asked | ({"want": want} if want else {}))


@pytest.fixture(scope="package")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of a server that shows the built-in experiment."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with Explorer(Session(Experiment()), 0) as explorer:
            yield Page(explorer)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with Explorer(Session(Experiment()), 0) as explorer:
            yield explorer


@pytest.fixture(scope="session")
def context(browser: Any) -> Iterator[Any]:
    """Most tests share one profile, and a page each would cost more than it tells."""
    made = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    yield made
    made.close()


@pytest.fixture(scope="session")
def one_page(context: Any, server: Explorer) -> Person:
    return Person(context.new_page(), server.address)


@pytest.fixture
def person(one_page: Person) -> Person:
    one_page.complaints.clear()
    one_page.asked.clear()
    return one_page


@pytest.fixture
def another(browser: Any, server: Explorer) -> Iterator[Any]:
    """Somebody else's browser: a profile of its own."""
    contexts = []

    def make(**settings: Any) -> Person:
        contexts.append(browser.new_context(**settings))
        return Person(contexts[-1].new_page(), server.address)

    yield make
    for each in contexts:
        each.close()
