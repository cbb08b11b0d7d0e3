"""Answers that a caller may have already, and what that caller calls us.

Comes from handlers that made a body; goes out as that body, or as the word that it is the same as before.
"""

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
    asked: Mapping[str, str],
    body: bytes,
    media: str,
    headers: Mapping[str, str],
    changed: datetime | None = None,
) -> Response:
    """The answer, or that it is the one that the caller has; `asked` are the headers of the request."""
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    given = {**headers, "ETag": tag}
    if changed is not None:
        given["Last-Modified"] = format_datetime(changed.astimezone(UTC), usegmt=True)
    if has_it(asked, tag, changed):
        return Response(status_code=304, headers=given)
    return Response(body, headers=given, media_type=media)


def has_it(asked: Mapping[str, str], tag: str, changed: datetime | None) -> bool:
    """By the tag if the caller names one, else by the date."""
    if known := asked.get("if-none-match", ""):
        tags = {one.strip().removeprefix("W/") for one in known.split(",")}
        return tag in tags or "*" in tags
    try:
        since = parsedate_to_datetime(asked.get("if-modified-since", ""))
    except (ValueError, TypeError, IndexError, OverflowError):
        return False
    return changed is not None and since.tzinfo is not None and whole(changed) <= since


def whole(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


def server_origin(headers: Mapping[str, str]) -> str:
    """What the caller calls us, which is what links in a document for others have to begin with."""
    scheme = "https" if headers.get("x-forwarded-proto") == "https" else "http"
    host = headers.get("host", "")
    if not _HOST.fullmatch(host):
        raise BadInput(f"{host[:100]!a} is not the name of a server.")
    return f"{scheme}://{host}"
