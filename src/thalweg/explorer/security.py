"""What stands between the explorer and every other page that a browser has open.

A page of another site can send requests to this machine: by forms, pictures and scripts, and by a
name of its own that it lets point here. None of them comes through:

* every address begins with a token that only the person's own page knows;
* `Host` must be this machine, so that no other name serves for it;
* `Origin`, where a browser sends it, must be the page itself, and so must `Sec-Fetch-Site` for
  what computes; bodies must be of a type that no form can send;
* bodies are cut off where they exceed what is taken.

The answers tell the browser to run nothing that is not a file of the page, to show it in no frame,
to guess no types, to tell nobody the address, and to keep nothing.
"""

import hmac
import json
from collections.abc import Callable

from starlette.types import ASGIApp as App
from starlette.types import Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

JSON_BYTES, CSV_BYTES = 64 * 2**10, 2 * 10**6
"""How large what is posted may be."""

_TYPES = {"application/json": JSON_BYTES, "text/csv": CSV_BYTES}
_CSV = "api/data"
_DRAINED = 64 * 2**20
_HTTP = 80


class Refused(Exception):
    """A request that is not answered; the message is one sentence."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class Guarded:
    """An application behind the checks above, at addresses below the token."""

    def __init__(self, app: App, token: str, port: Callable[[], int]):
        self._app, self._token, self._port = app, token, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then let the application answer the rest of the path."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a web socket, which is then closed
        guarded = _with_headers(send)
        try:
            inner, limit = await self._checked_first(scope, receive)
            body = await _body(receive, limit)
        except Refused as refused:
            await _refuse(refused, guarded)
        else:
            await self._app(inner, _replayed(body, receive), guarded)

    async def _checked_first(self, scope: Scope, receive: Receive) -> tuple[Scope, int]:
        """Check; of what is refused the body is taken in and forgotten."""
        try:
            return self._checked(scope)
        except Refused:
            await _taken_in(receive, 0)
            raise

    def _checked(self, scope: Scope) -> tuple[Scope, int]:
        """The request without the token in its path, and how large its body may be."""
        sent = {name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]}
        hosts = _hosts(self._port())
        if sent.get("host") not in hosts:
            raise Refused(403, f"The host must be {hosts[0]}, this machine.")
        token, slash, path = scope["path"].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise Refused(
                403, "The address must hold the token that `thalweg explore` prints; open that one."
            )
        if not slash:
            raise Refused(404, "The page's address ends with a slash.")
        self._require_own_page(sent, hosts, path)
        limit = _body_limit(sent, path) if scope["method"] == "POST" else 0
        return {**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}, limit

    def _require_own_page(self, sent: dict[str, str], hosts: list[str], path: str) -> None:
        origin, site = sent.get("origin"), sent.get("sec-fetch-site", "same-origin")
        foreign = origin is not None and origin not in [f"http://{host}" for host in hosts]
        if foreign or (path.startswith("api/") and site not in ("same-origin", "none")):
            raise Refused(403, "Only the explorer's own page may ask; this came from another one.")


def _hosts(port: int) -> list[str]:
    """How browsers name this machine at a port; that of HTTP itself they leave out."""
    names = ("127.0.0.1", "localhost")
    return [*names] if port == _HTTP else [f"{name}:{port}" for name in names]


def _body_limit(sent: dict[str, str], path: str) -> int:
    kind = sent.get("content-type", "").partition(";")[0].strip().lower()
    wanted = "text/csv" if path == _CSV else "application/json"
    if kind != wanted:
        raise Refused(415, f"The content type must be {wanted}, got {kind or 'none'}.")
    limit, length = _TYPES[wanted], sent.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length[:20]) > limit:
        raise _too_large(limit)
    return limit


def _too_large(limit: int) -> Refused:
    return Refused(413, f"What is posted must be of at most {limit:,} bytes; take less of it.")


async def _body(receive: Receive, limit: int) -> bytes:
    """What is posted: its announced length may be wrong, or missing."""
    body, taken = await _taken_in(receive, limit)
    if taken > limit:
        raise _too_large(limit)
    return body


async def _taken_in(receive: Receive, limit: int) -> tuple[bytes, int]:
    """What is posted, as far as it is kept, and how many bytes came.

    What is too much is taken in as well, within reason, and forgotten: a browser that is still
    sending reads no answer.
    """
    body, taken, more = bytearray(), 0, True
    while more and taken < _DRAINED:
        message = await receive()
        part, more = message.get("body", b""), message.get("more_body", False)
        taken += len(part)
        if taken <= limit:
            body += part
    return bytes(body), taken


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body as one message, and then what else comes: that the page has gone."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_next


def _with_headers(send: Send) -> Send:
    async def send_guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode(), text.encode()) for name, text in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await send(message)

    return send_guarded


async def _refuse(refused: Refused, send: Send) -> None:
    body = json.dumps({"error": str(refused), "field": None}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
