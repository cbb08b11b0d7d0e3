"""Content chunks for tests: pages of every kind, written by the writer that crawlers use."""

import gzip
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from usher.chunk_store import StoredFile
from usher.crawl.warc.writer import CrawlInfo, EarlierCapture, WarcPage, WarcWriter

AT = datetime(2026, 11, 16, 12, 30, 15, 123456, UTC)
REQUEST = b"GET /a HTTP/1.1\r\nHost: example.com\r\nUser-Agent: Usher\r\n\r\n"
HTML = b"<title>Seats</title><p>Row four, seat seven.</p>" * 40
ABOUT = CrawlInfo(operator="The House", contact="usher@example.com", user_agent="Usher/1")


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def page(path: str = "/a", body: bytes = HTML, *lines: str) -> WarcPage:
    return WarcPage(
        url=f"https://example.com{path}",
        at=AT,
        request=REQUEST,
        head=head("Content-Type: text/html", *lines),
        body=body,
        ip="192.0.2.7",
    )


GZIPPED = page("/gzip", gzip.compress(HTML), "Content-Encoding: gzip", "Transfer-Encoding: chunked")
UNMODIFIED = WarcPage(
    url="https://example.com/same",
    at=AT,
    request=REQUEST,
    head=head('ETag: "7"', status="304 Not Modified"),
    earlier=EarlierCapture(at=AT - timedelta(days=7)),
    meta={"result": "unchanged"},
)
IDENTICAL = WarcPage(
    url="https://example.com/copy",
    at=AT,
    request=REQUEST,
    head=head("Content-Type: text/html"),
    body=HTML,
    earlier=EarlierCapture("https://example.com/a", AT),
)
CUT = WarcPage(
    url="https://example.com/cut",
    at=AT,
    request=REQUEST,
    head=head("Content-Type: text/html", "Content-Length: 999999"),
    body=HTML,
    truncated="time",
    meta={"kind": "html", "flags": ["nofollow"]},
)
NO_ANSWER = WarcPage(
    url="https://example.com/away", at=AT, request=REQUEST, meta={"error": "timed out"}
)
NOT_ASKED = WarcPage(url="https://example.com/barred", at=AT, meta={"error": "robots.txt"})
EVERY = (page(), GZIPPED, UNMODIFIED, IDENTICAL, CUT, NO_ANSWER, NOT_ASKED)


async def chunk_file(path: Path, *records: WarcPage) -> StoredFile:
    writer = WarcWriter(path, ABOUT)
    for record in records:
        await writer.add(record)
    return await writer.close()


def noise(seed: int, size: int) -> bytes:
    """Bytes that no one can make shorter, the same every time."""
    return random.Random(seed).randbytes(size)  # noqa: S311 - not for secrets


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """A file system that is soon full; only root can have one."""
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "usher", place],
        check=False,
        capture_output=True,
    )
    if made.returncode:
        pytest.skip("this user or machine cannot mount")
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)
