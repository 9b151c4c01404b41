"""What the server answers: files of the page, what there is to set, results, exports, tables."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from thalweg._errors import InputError
from thalweg._version import __version__
from thalweg.explorer.exports import FORMS
from thalweg.explorer.frames import plain
from thalweg.explorer.session import Session
from thalweg.explorer.settings import LIMITS, SettingError, choices, descriptions, values_of
from thalweg.explorer.streams import Streams
from thalweg.explorer.worker import Worker
from thalweg.phases import Phase

PROTOCOL = 1
PAGE = Path(__file__).parent / "page"

_KINDS = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8", ".json": "application/json",
    ".svg": "image/svg+xml", ".png": "image/png", ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}  # fmt: skip

Answer = Callable[[Request], Awaitable[Response]]


def application(session: Session, worker: Worker) -> Starlette:
    """All addresses, as they are behind the token."""
    server, streams = secrets.token_hex(8), Streams(session, worker)

    async def hello(request: Request) -> Response:
        ready = worker.ready.is_set()
        return JSONResponse({"server": server, "version": __version__, "ready": ready})

    async def start(request: Request) -> Response:
        return JSONResponse(plain({"server": server, **_start(session)}))

    async def compute(request: Request) -> Response:
        return streams.answer(await _json(request))

    async def add_table(request: Request) -> Response:
        body = await request.body()
        return JSONResponse(await asyncio.to_thread(session.uploads.add, body))

    async def export(request: Request) -> Response:
        form = request.path_params["form"]
        if form not in FORMS:
            return _error(404, f"There is no form {form!r}; there are {', '.join(FORMS)}.")
        values = await _json(request)
        _require_fields(values, {"setting"})
        known = session.computation(values["setting"])
        made = await asyncio.to_thread(FORMS[form], known)
        named = {"content-disposition": f'attachment; filename="{made.name}"'}
        return Response(made.text, media_type=made.kind, headers=named)

    async def page(request: Request) -> Response:
        return _file(request.path_params["path"])

    return Starlette(
        routes=[
            Route("/api/hello", hello),
            Route("/api/start", start),
            Route("/api/compute", _told(compute), methods=["POST"]),
            Route("/api/data", _told(add_table), methods=["POST"]),
            Route("/api/export/{form}", _told(export), methods=["POST"]),
            Route("/{path:path}", page),
        ]
    )


def _start(session: Session) -> dict[str, Any]:
    """What a page needs before it asks for anything."""
    return {
        "version": __version__,
        "protocol": PROTOCOL,
        "mode": "experiment" if session.own is None else "own",
        "setting": session.first_values(),
        "defaults": values_of(type(session.first)()),
        "limits": {**LIMITS, **session.limits()},
        "choices": choices(),
        "descriptions": descriptions(),
        "phases": [
            {"value": int(each), "name": each.name.lower(), "meaning": each.meaning}
            for each in Phase
        ],
        "data": session.table(),
    }


def _told(answer: Answer) -> Answer:
    """Say what is wrong with a request in one sentence."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except SettingError as error:
            return _error(400, str(error), error.field)
        except InputError as error:
            return _error(400, str(error))

    return answered


def _error(status: int, sentence: str, field: str | None = None) -> Response:
    return JSONResponse({"error": sentence, "field": field}, status)


async def _json(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise SettingError(f"A request must be JSON, got something else: {error}.") from error
    if not isinstance(found, dict):
        raise SettingError("A request must be an object of JSON, with a `setting`.")
    return found


def _require_fields(values: dict[str, Any], known: set[str]) -> None:
    for name in values:
        if name not in known:
            raise SettingError(
                f"A request must have no field `{name}`; it has {', '.join(sorted(known))}.", name
            )
    if not isinstance(values.get("setting"), dict):
        raise SettingError("A request must have a `setting`, an object of JSON.", "setting")


def _file(path: str) -> Response:
    """A file of the page; nothing outside of its folder, and nothing hidden."""
    place = (PAGE / (path or "index.html")).resolve()
    kind = _KINDS.get(place.suffix)
    inside = place.is_relative_to(PAGE) and not any(
        part.startswith(".") for part in place.relative_to(PAGE).parts
    )
    if kind is None or not inside or not place.is_file():
        return _error(404, "There is no such file of the page.")
    return Response(place.read_bytes(), media_type=None, headers={"content-type": kind})
