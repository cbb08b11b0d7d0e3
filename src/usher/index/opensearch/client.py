"""Requests to OpenSearch, with its errors as ours: what failed, and what to do next."""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from usher.errors import (
    BadInput,
    Conflict,
    EngineBusy,
    EngineInterrupted,
    IndexBlocked,
    NotAllowed,
    NotFound,
    Unreachable,
    UsherError,
)
from usher.index.metrics import ENGINE_FAILURES
from usher.index.opensearch.connections import ClusterConnections, HttpAnswer

OK, CREATED, ERROR = 200, 201, 400
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, TOO_LARGE, TOO_MANY = 401, 403, 404, 409, 413, 429
SERVER_ERROR: Final = 500
REQUEST_SECONDS: Final = 30.0
READ_RETRY_SECONDS: Final = 0.1
WRITE_SECONDS: Final = 70.0  # OpenSearch itself waits up to 60 for a shard
MAX_REASON_CHARACTERS: Final = 300
Body = Mapping[str, Any] | bytes | None

_encode: Final = msgspec.json.Encoder().encode


class OpenSearchClient:
    """The requests to one cluster; thread-safe."""

    def __init__(self, connections: ClusterConnections) -> None:
        self._connections = connections

    def close(self) -> None:
        self._connections.close()

    def request(
        self,
        method: str,
        path: str,
        body: Body = None,
        *,
        seconds: float = REQUEST_SECONDS,
        **query: object,
    ) -> Any:  # noqa: ANN401 - JSON
        """The JSON of a successful answer; an UsherError for any other."""
        answer = self.exchange(method, path, body, seconds=seconds, **query)
        if answer.status >= ERROR:
            raise error_of(answer, f"{method} {path}")
        return decode(answer)

    def read(
        self, path: str, body: Body, *, seconds: float = REQUEST_SECONDS, **query: object
    ) -> Any:  # noqa: ANN401 - JSON
        """Like a POST `request` that changes nothing; repeats it once if a node died meanwhile and time is left."""
        until = time.monotonic() + seconds
        try:
            return self._read(path, body, seconds, query)
        except EngineInterrupted:
            left = until - time.monotonic() - READ_RETRY_SECONDS
            if left <= 0:
                raise
        time.sleep(READ_RETRY_SECONDS)
        return self._read(path, body, left, query)

    def _read(self, path: str, body: Body, seconds: float, query: Mapping[str, object]) -> Any:  # noqa: ANN401 - JSON
        answer = self.request("POST", path, body, seconds=seconds, **query)
        for result in answer.get("responses", ()):
            if "error" in result:
                error = json.dumps({"error": result["error"]}).encode()
                raise error_of(HttpAnswer(int(result["status"]), error), "search")
        return answer

    def exchange(
        self,
        method: str,
        path: str,
        body: Body = None,
        *,
        seconds: float = REQUEST_SECONDS,
        **query: object,
    ) -> HttpAnswer:
        """The answer, whatever its status; Unreachable if there is none."""
        data = body if isinstance(body, bytes) else b"" if body is None else _encode(body)
        if query:
            path = f"{path}?{urlencode({name: _text(value) for name, value in query.items()})}"
        return self._connections.ask(method, path, data, seconds=seconds)

    def search_many(
        self,
        index: str,
        searches: Iterable[Mapping[str, Any]],
        *,
        seconds: float,
        filter_path: str = "responses",
        **header: object,
    ) -> list[dict[str, Any]]:
        """The answers to several searches in one request, in order; an UsherError if one of them fails."""
        line = _encode(header)
        lines = [part for body in searches for part in (line, _encode(body))]
        data = b"\n".join([*lines, b""])
        answer = self.read(f"/{index}/_msearch", data, seconds=seconds, filter_path=filter_path)
        results: list[dict[str, Any]] = answer["responses"]
        return results


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def decode(answer: HttpAnswer) -> Any:  # noqa: ANN401 - JSON
    try:
        return msgspec.json.decode(answer.body) if answer.body else None
    except msgspec.DecodeError as error:
        hint = "Check --engine-url: it must be the URL of an OpenSearch node."
        raise Unreachable("The answer is not that of OpenSearch.", hint=hint) from error


def error_of(answer: HttpAnswer, request: str) -> UsherError:  # noqa: PLR0911 - one for each kind
    """The error that an answer stands for."""
    kind, reason = reason_of(answer)
    text = f"OpenSearch refused {request}: {reason}."
    status = answer.status
    if kind == "cluster_block_exception" and status < SERVER_ERROR:
        ENGINE_FAILURES.labels("refused").inc()
        hint = "Free disk space in the cluster, then remove the block of the index."
        return IndexBlocked(f"OpenSearch does not accept changes: {reason}.", hint=hint)
    if status == TOO_MANY or status >= SERVER_ERROR or kind == "circuit_breaking_exception":
        ENGINE_FAILURES.labels("busy").inc()
        hint = "Usher retries. If it lasts, look at the health of the cluster."
        is_overloaded = status == TOO_MANY or kind == "circuit_breaking_exception"
        error = EngineBusy if is_overloaded else EngineInterrupted
        return error(f"OpenSearch is busy or incomplete: {reason}.", hint=hint)
    ENGINE_FAILURES.labels("refused").inc()
    if status == UNAUTHORIZED:
        hint = "Put user:password or an API key into the file USHER_ENGINE_CREDENTIAL_FILE."
        return NotAllowed("OpenSearch does not accept the credential.", hint=hint)
    if status == FORBIDDEN:
        hint = "docs/opensearch.md lists the privileges that Usher needs."
        return NotAllowed(f"The user of OpenSearch lacks a privilege: {reason}.", hint=hint)
    if status == NOT_FOUND:
        return NotFound(text)
    if status == CONFLICT:
        return Conflict(text)
    return BadInput(text)


def reason_of(answer: HttpAnswer) -> tuple[str, str]:
    """The type and the reason of an error of OpenSearch."""
    try:
        error = msgspec.json.decode(answer.body)["error"]
        causes = error.get("root_cause") or [error]
        kind, reason = causes[0].get("type", ""), causes[0].get("reason", "")
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        kind, reason = "", answer.body[:MAX_REASON_CHARACTERS].decode("utf-8", "replace").strip()
    text = str(reason).rstrip(".")[:MAX_REASON_CHARACTERS]
    return str(kind), text or f"status {answer.status}"
