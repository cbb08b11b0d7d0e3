"""Requests as values, and values as answers: read, bounded, by msgspec."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from usher.errors import BadInput
from usher.http.server.middleware import HttpError, UnreadBodyError

MOST_BYTES: Final = 10_000_000
BODY_SECONDS: Final = 60  # for a whole body; whoever is slower holds a connection for nothing
CLOSE: Final = {"Connection": "close"}
Asked = TypeVar("Asked")


def to_response(told: object) -> Response:
    if isinstance(told, Response):
        return told
    return Response(msgspec.json.encode(told), media_type="application/json")


async def read_body(request: Request) -> bytes:
    """The body, as far as we take one; one that says it is too long is not read at all."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        message = f"The body is encoded with {encoding!r}; send it as it is."
        raise HttpError(
            415, "unsupported_encoding", message, headers={"Accept-Encoding": "identity"}
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MOST_BYTES:
        raise too_large()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await collect(request)
    except TimeoutError:
        message = f"The body did not arrive within {BODY_SECONDS} seconds."
        raise UnreadBodyError(408, "too_slow", message, headers=CLOSE) from None


async def collect(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise too_large()
    return bytes(body)


def too_large() -> UnreadBodyError:
    message = f"The body is larger than {MOST_BYTES:,} bytes."
    return UnreadBodyError(
        413, "too_large", message, hint="Ask in several requests.", headers=CLOSE
    )


def decode_body(  # what comes out is as the endpoint declares
    decode: Callable[[bytes], Any], body: bytes, hint: str = ""
) -> Any:  # noqa: ANN401
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise BadInput(f"{error}.", hint=hint) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = (
            f"The body is not JSON: {error}." if body else "The body is empty; JSON is wanted."
        )
        raise HttpError(400, "malformed", message) from error


def decode_query(shape: type[Asked], request: Request, hint: str = "") -> Asked:
    """The query as the endpoint declares it; a name that is there twice is an error, lest one of them be ignored."""
    given = request.query_params.multi_items()
    if len(given) > len(dict(given)):
        raise BadInput("A name is in the query twice.", hint=hint)
    try:
        return msgspec.convert(dict(given), shape, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"{error}.", hint=hint) from error
