"""Conditional responses (ETag, Last-Modified), and the name by which the caller reached the server."""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Final

from starlette.responses import Response

from usher.errors import BadInput

_HOST: Final = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")


def conditional_response(
    request_headers: Mapping[str, str],
    body: bytes,
    media_type: str,
    headers: Mapping[str, str],
    changed: datetime | None = None,
) -> Response:
    """The body with an ETag, or 304 if the caller has it already."""
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    all_headers = {**headers, "ETag": etag}
    if changed is not None:
        all_headers["Last-Modified"] = format_datetime(changed.astimezone(UTC), usegmt=True)
    if is_unchanged(request_headers, etag, changed):
        return Response(status_code=304, headers=all_headers)
    return Response(body, headers=all_headers, media_type=media_type)


def is_unchanged(headers: Mapping[str, str], etag: str, changed: datetime | None) -> bool:
    """Whether the caller has this version: by If-None-Match if it is there, else by If-Modified-Since."""
    if tags := headers.get("if-none-match", ""):
        return etag_matches(tags, etag)
    try:
        since = parsedate_to_datetime(headers.get("if-modified-since", ""))
    except (ValueError, TypeError, IndexError, OverflowError):
        return False
    if changed is None or since.tzinfo is None:
        return False
    return changed.replace(microsecond=0) <= since


def etag_matches(if_none_match: str, etag: str) -> bool:
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return etag in tags or "*" in tags


def server_origin(headers: Mapping[str, str]) -> str:
    """The origin by which the caller reached the server; absolute links in documents begin with it."""
    scheme = "https" if headers.get("x-forwarded-proto") == "https" else "http"
    host = headers.get("host", "")
    if not _HOST.fullmatch(host):
        raise BadInput(f"{host[:100]!a} is not the name of a server.")
    return f"{scheme}://{host}"
