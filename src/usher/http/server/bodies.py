"""Decodes bodies and queries of requests within limits, and encodes answers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from usher.errors import BadInput
from usher.http.server.middleware import HttpError, UnreadBodyError

MAX_BODY_BYTES: Final = 10_000_000
BODY_SECONDS: Final = 60  # for a whole body
CLOSE: Final = {"Connection": "close"}
QueryT = TypeVar("QueryT")


def to_response(answer: object) -> Response:
    if isinstance(answer, Response):
        return answer
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def read_body(request: Request) -> bytes:
    """The body; raises 408, 413 or 415. A body whose declared length is too large is not read at all."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        message = f"The body is encoded with {encoding!r}; send it without an encoding."
        headers = {"Accept-Encoding": "identity"}
        raise HttpError(415, "unsupported_encoding", message, headers=headers)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise body_too_large()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = bytearray()
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise body_too_large()
            return bytes(body)
    except TimeoutError:
        message = f"The body did not arrive within {BODY_SECONDS} seconds."
        raise UnreadBodyError(408, "too_slow", message, headers=CLOSE) from None


def body_too_large() -> UnreadBodyError:
    message = f"The body is larger than {MAX_BODY_BYTES:,} bytes."
    hint = "Use several requests."
    return UnreadBodyError(413, "too_large", message, hint=hint, headers=CLOSE)


def check_count(items: Sequence[object], noun: str, limit: int) -> None:
    """Raise 413 if a list of a request is too long."""
    if len(items) > limit:
        message = f"{len(items):,} {noun} are more than {limit:,}."
        raise HttpError(413, "too_large", message, hint="Use several requests.")


def decode_body(  # the endpoint declares the type of the result
    decode: Callable[[bytes], Any], body: bytes, hint: str = ""
) -> Any:  # noqa: ANN401
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise BadInput(f"{error}.", hint=hint) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"The body is not JSON: {error}." if body else "The body is empty; send JSON."
        raise HttpError(400, "malformed", message) from error


def decode_query(query_type: type[QueryT], request: Request, hint: str = "") -> QueryT:
    """The query as the declared type; a repeated name is an error, because one value would be ignored."""
    items = request.query_params.multi_items()
    if len(items) > len(dict(items)):
        raise BadInput("A name is in the query twice.", hint=hint)
    try:
        return msgspec.convert(dict(items), query_type, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"{error}.", hint=hint) from error
