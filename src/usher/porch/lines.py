"""Quick lines at our end: connections that leave HTTP behind when their first request asks for it (`usher.quick`).

Comes from front-ends that ask index servers; goes to the same handlers as over HTTP, with the same errors. Whatever is
not quite a wish for a quick line is left to HTTP to answer.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, cast

from starlette.datastructures import Headers
from starlette.responses import Response
from uvicorn.server import ServerState

from usher.errors import NotAllowed, NotFound
from usher.porch.bodies import MOST_BYTES
from usher.porch.entry import (
    SERVER_FAILED,
    Declined,
    bearer,
    check_name,
    check_site,
    note_failure,
    problem,
)
from usher.porch.guard import Guard
from usher.porch.whole import Holding, Speaker
from usher.quick import LONGEST_HEAD, NAME, PATH, SWITCHED
from usher.telemetry import Log

log = Log("web")
WISH: Final = f"GET {PATH} HTTP/1.1\r\n".encode()
IDLE_SECONDS: Final = 60.0


class Answered(NamedTuple):
    """As much of an answer as a quick line needs."""

    status_code: int
    body: bytes


Asked = Callable[[bytes], Awaitable[Response | Answered]]


class Switchboard:
    """What can be asked over quick lines, by its path, and by whom; `protocol` is what uvicorn is to speak."""

    def __init__(
        self, asked: Mapping[bytes, Asked], guard: Guard | None, *, any_name: bool
    ) -> None:
        self.asked, self.guard = asked, guard
        self._any_name = any_name

    @property
    def protocol(self) -> type[asyncio.Protocol]:
        """What makes uvicorn's protocols for it."""
        return cast("type[asyncio.Protocol]", partial(Switching, self))

    def secret(self, head: bytes) -> str | None:
        """The token of somebody who may have a quick line (it is looked at with each question), or else None."""
        if not head.startswith(WISH) or not head.endswith(b"\r\n\r\n"):
            return None
        pairs = (line.partition(b":") for line in head[len(WISH) :].split(b"\r\n") if line)
        headers = Headers(raw=[(name.lower(), value.strip()) for name, _, value in pairs])
        if headers.get("upgrade", "") != NAME:
            return None
        with suppress(NotAllowed, Declined):
            if not self._any_name:
                check_name(headers)
            check_site(headers)
            return bearer(headers)
        return None


class Switching(Speaker):
    """HTTP, until the first that is said is the wish for a quick line."""

    def __init__(self, board: Switchboard, **given: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(**given)
        self._board, self._is_new = board, True

    def data_received(self, data: bytes) -> None:
        if self._is_new:
            self._is_new = False
            if (secret := self._board.secret(data)) is not None:
                self.connections.discard(self)
                inner = cast("Holding", self.transport).inner
                Line(self._board, secret, inner, self.server_state)
                return
        super().data_received(data)


class Line(asyncio.Protocol):
    """One quick line: a question at a time, those that come early wait."""

    def __init__(
        self, board: Switchboard, secret: str, transport: asyncio.Transport, state: ServerState
    ) -> None:
        self._board, self._secret, self._transport, self._state = board, secret, transport, state
        self._heard = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._is_ending = False
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._timer = self._loop.call_later(IDLE_SECONDS, self._look)
        transport.set_protocol(self)
        transport.write(SWITCHED)
        state.connections.add(self)  # type: ignore[arg-type] # it is shut down as uvicorn's own

    def shutdown(self) -> None:
        """The answer under way is given, and no other."""
        self._is_ending = True
        if self._task is None:
            self._transport.close()

    # What the loop calls:

    def data_received(self, part: bytes) -> None:
        self._heard += part
        if self._task is None:
            self._next()
        elif len(self._heard) > MOST_BYTES:
            self._transport.close()  # whoever does not wait for answers wants none

    def connection_lost(self, _error: Exception | None) -> None:
        self._timer.cancel()
        self._state.connections.discard(self)

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def _look(self) -> None:
        """Hang up where nothing was asked for a while, be it because a question does not come to its end."""
        idle = 0.0 if self._task else self._loop.time() - self._since
        if idle >= IDLE_SECONDS:
            self._transport.close()
        else:
            self._timer = self._loop.call_later(IDLE_SECONDS - idle, self._look)

    def _next(self) -> None:
        """Begin with the next question, if it is all there."""
        if not self._heard or self._transport.is_closing():
            return
        end = self._heard.find(b"\n", 0, LONGEST_HEAD)
        path, _, length = bytes(self._heard[: max(end, 0)]).partition(b" ")
        if end < 0 and len(self._heard) < LONGEST_HEAD:
            return
        if not length.isdigit() or int(length) > MOST_BYTES:
            self._transport.close()  # not one of ours
            return
        after = end + 1 + int(length)
        if len(self._heard) >= after:
            body = bytes(self._heard[end + 1 : after])
            del self._heard[:after]
            self._task = self._loop.create_task(self._answer(path, body))
            self._state.tasks.add(self._task)
            self._task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._state.tasks.discard(task)
        self._task, self._since = None, self._loop.time()
        if self._is_ending or task.cancelled():
            self._transport.close()
        else:
            self._next()

    async def _answer(self, path: bytes, body: bytes) -> None:
        began = time.monotonic()
        try:
            if self._board.guard:
                await self._board.guard.check(self._secret, "query")
            told = await self._handler(path)(body)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            told = refusal(error, path)
        self._transport.write(b"%d %d\n%s" % (told.status_code, len(told.body), told.body))
        log.debug(
            "asked",
            path=path.decode("latin-1"),
            status=told.status_code,
            ms=round((time.monotonic() - began) * 1000, 1),
        )

    def _handler(self, path: bytes) -> Asked:
        if (found := self._board.asked.get(path)) is None:
            raise NotFound(f"Nothing is asked at {path[:100]!r} over a quick line.")
        return found


def refusal(error: Exception, path: bytes) -> Response:
    id_ = secrets.token_hex(8)
    told = problem(error, id_, ())
    if told.status_code >= SERVER_FAILED:
        note_failure(error, "POST", path.decode("latin-1"), id_)
    return told
