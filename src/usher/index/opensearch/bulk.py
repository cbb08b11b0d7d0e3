"""Writes documents in requests of bounded size, and waits while OpenSearch is busy.

One request is under way while the caller prepares the documents of the next, because analysing words takes about as
long as OpenSearch needs to store them. Requests never overtake each other.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import msgspec

from usher.errors import BadInput, EngineBusy
from usher.index.metrics import ENGINE_RETRIES
from usher.index.opensearch.client import (
    ERROR,
    NOT_FOUND,
    TOO_LARGE,
    WRITE_SECONDS,
    OpenSearchClient,
    decode,
    error_of,
)
from usher.index.opensearch.connections import HttpAnswer
from usher.telemetry import Log

log = Log("index")
MAX_REQUEST_BYTES: Final = 5_000_000
MAX_REQUEST_ACTIONS: Final = 1_000
RETRY_SECONDS: Final = (0.2, 10.0)  # before the first retry; at most
PATIENCE_SECONDS: Final = 30.0  # then the loader reports the problem and repeats the chunks
_encode: Final = msgspec.json.Encoder().encode


class BulkAction(NamedTuple):
    """One document to write, or to delete if there is no source; `name` is for error messages."""

    id: str
    source: bytes | None = None
    name: str = ""

    def lines(self) -> bytes:
        if self.source is None:
            return _encode({"delete": {"_id": self.id}}) + b"\n"
        return _encode({"index": {"_id": self.id}}) + b"\n" + self.source + b"\n"


class BulkWriter:
    """Collects actions on one index; `flush` returns when all are durable."""

    def __init__(self, client: OpenSearchClient, index: str) -> None:
        self._client, self._index = client, index
        self._pending: list[BulkAction] = []
        self._pending_bytes = 0
        self._thread = ThreadPoolExecutor(1, "bulk")
        self._request: Future[None] | None = None  # under way
        self._forgotten = 0  # how often `forget` was called

    def add(self, action: BulkAction) -> None:
        """Add an action; begins to write all of them if they are many, and raises what an earlier request did."""
        self._pending.append(action)
        self._pending_bytes += len(action.source or b"")
        if self._pending_bytes >= MAX_REQUEST_BYTES or len(self._pending) >= MAX_REQUEST_ACTIONS:
            self._begin()

    def flush(self) -> None:
        """Write all actions; BadInput if OpenSearch rejects a document, Unreachable if it is away or too busy."""
        self._begin()
        self._wait()

    def close(self) -> None:
        """Wait for the request that is under way, and forget the rest."""
        self.forget()
        self._thread.shutdown()

    def _begin(self) -> None:
        """Begin to write the pending actions, after those before them."""
        self._wait()
        actions, self._pending, self._pending_bytes = self._pending, [], 0
        if actions:
            self._request = self._thread.submit(self._write_all, actions, self._forgotten)

    def _wait(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.result()

    def _write_all(self, actions: list[BulkAction], forgotten: int) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        pause = RETRY_SECONDS[0]
        while actions:
            try:
                actions, reason = self._write(actions)
            except EngineBusy as error:
                reason = error.message
            if not actions or self._forgotten != forgotten:
                return
            if time.monotonic() + pause > until:
                raise EngineBusy(
                    f"OpenSearch took no documents for {PATIENCE_SECONDS:g} s: {reason}."
                )
            ENGINE_RETRIES.inc(len(actions))
            log.warning(
                "bulk_retried", documents=len(actions), seconds=round(pause, 1), error=reason
            )
            time.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS[1])

    def forget(self) -> None:
        """Drop the actions that are not written; those under way are not repeated."""
        self._forgotten += 1
        self._pending, self._pending_bytes, self._request = [], 0, None

    def _write(self, actions: Sequence[BulkAction]) -> tuple[list[BulkAction], str]:
        """Send actions; returns those to send again, and why."""
        body = b"".join(action.lines() for action in actions)
        path = f"/{self._index}/_bulk"
        answer = self._client.exchange("POST", path, body, seconds=WRITE_SECONDS)
        if answer.status == TOO_LARGE and len(actions) > 1:
            return self._write_halves(actions)
        if answer.status >= ERROR:
            raise error_of(answer, "documents")
        result = decode(answer)
        if not result["errors"]:
            return [], ""
        return _unwritten(actions, result["items"])

    def _write_halves(self, actions: Sequence[BulkAction]) -> tuple[list[BulkAction], str]:
        rest, reason = list[BulkAction](), ""
        middle = len(actions) // 2
        for half in (actions[:middle], actions[middle:]):
            unwritten, why = self._write(half)
            rest += unwritten
            reason = why or reason
        return rest, reason


def _unwritten(
    actions: Sequence[BulkAction], items: Sequence[dict[str, Any]]
) -> tuple[list[BulkAction], str]:
    """The actions to send again, and why; an error if one can never succeed."""
    again, reason = list[BulkAction](), ""
    for action, item in zip(actions, items, strict=True):
        [result] = item.values()
        status = int(result["status"])
        if status < ERROR or (action.source is None and status == NOT_FOUND):
            continue
        error = error_of(
            HttpAnswer(status, _encode({"error": result.get("error", {})})), "a document"
        )
        if isinstance(error, EngineBusy):
            again.append(action)
            reason = error.message
        elif not isinstance(error, BadInput):
            raise error
        else:
            hint = "See `usher explain URL`. The other documents of the chunk wait for it."
            raise BadInput(f"{action.name or action.id}: {error.message}", hint=hint)
    return again, reason
