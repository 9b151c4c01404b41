"""Streams of frames: from the thread that computes to the pages that wait, and what ends them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from thalweg.explorer.parts import PARTS, parts_of
from thalweg.explorer.session import Session
from thalweg.explorer.settings import SettingError
from thalweg.explorer.worker import Job, Worker

MOST_STREAMS = 16
"""How many pages may wait at a time."""

_FIELDS = {"tab", "number", "setting", "want", "phase"}
_WINDOW = {"have", "rates", "scales"}


class Streams:
    """The streams that are open."""

    def __init__(self, session: Session, worker: Worker):
        self._session, self._worker, self._open = session, worker, 0

    def answer(self, values: dict[str, Any]) -> Response:
        """Begin to compute what a page asks for, and stream what is found."""
        job = self._job(values)
        if self._open >= MOST_STREAMS:
            sentence = f"At most {MOST_STREAMS} pages may wait at a time; close one."
            return JSONResponse({"error": sentence, "field": None}, 429)
        loop, frames = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

        def put(frame: bytes | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(frames.put_nowait, frame)

        job.sink = put
        if not self._worker.add(job):
            sentence = "A newer setting of this page is there already."
            return JSONResponse({"error": sentence, "field": "number"}, 409)
        self._open += 1

        def ended() -> None:
            job.drop()
            self._open -= 1

        return _Stream(_frames(frames), ended)

    def _job(self, values: dict[str, Any]) -> Job:
        _require_known(values, _FIELDS, "A request")
        tab, number, setting = (values.get(name) for name in ("tab", "number", "setting"))
        if not isinstance(tab, str) or not 1 <= len(tab) <= 64:
            raise SettingError("`tab` must be a text of 1 to 64 characters.", "tab")
        if not isinstance(number, int) or isinstance(number, bool):
            raise SettingError("`number` must be a whole number.", "number")
        if not isinstance(setting, dict):
            raise SettingError("A request must have a `setting`, an object of JSON.", "setting")
        wanted = values.get("want", list(PARTS))
        if (
            not isinstance(wanted, list)
            or not wanted
            or any(each not in [*PARTS] for each in wanted)
        ):
            raise SettingError(f"`want` must be a list of parts, of {', '.join(PARTS)}.", "want")
        window = values.get("phase") or {}
        if not isinstance(window, dict):
            raise SettingError("`phase` must be an object of JSON.", "phase")
        _require_known(window, _WINDOW, "`phase`")
        known = self._session.computation(setting)
        known.options["phase"] = window
        order = parts_of(known)
        parts = [(rank, name, PARTS[name]) for rank, name in enumerate(order) if name in wanted]
        job = Job(tab, number, known, parts, lambda frame: None)
        known.turn, known.check = lambda: self._worker.turn(job), lambda: self._worker.check(job)
        return job


class _Stream(StreamingResponse):
    """Says when it has ended, also where the page has gone before the first frame was asked for."""

    def __init__(self, frames: AsyncIterator[bytes], ended: Callable[[], None]):
        super().__init__(frames, media_type="application/octet-stream")
        self._ended = ended

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


async def _frames(frames: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    while (frame := await frames.get()) is not None:
        yield frame


def _require_known(values: dict[str, Any], known: set[str], what: str) -> None:
    for name in values:
        if name not in known:
            raise SettingError(
                f"{what} must have no field `{name}`; it may have {', '.join(sorted(known))}.", name
            )
