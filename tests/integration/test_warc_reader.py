"""Content chunks of any writer are read back within limits."""

import gzip
import tracemalloc
import zlib
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from support.index.chunk_files import (
    AT,
    CUT,
    EVERY,
    HTML,
    NO_ANSWER,
    NOT_ASKED,
    chunk_file,
    head,
    page,
)
from usher.crawl.warc.reader import WarcEntry, read_entries
from usher.crawl.warc.writer import WarcPage, encode_page
from usher.errors import BadContent, NotFound

brotli: Any = import_module("brotli")  # it has no types
RECORD = b"WARC/1.1\r\nWARC-Type: response\r\n%s\r\n\r\n%s\r\n\r\n"


async def test_every_kind_of_page_comes_back(tmp_path: Path) -> None:
    kept = await chunk_file(tmp_path / "7.warc.gz", *EVERY)
    found = list(read_entries(kept.path))
    assert [entry.url for entry in found] == [record.url for record in EVERY]
    assert {entry.at for entry in found} == {AT}
    kinds = ["page", "page", "unchanged", "unchanged", "page", "failed", "failed"]
    assert [entry.kind for entry in found] == kinds
    assert [entry.status for entry in found] == [200, 200, 304, 200, 200, 0, 0]
    assert [bool(entry.body) for entry in found] == [True, True, False, False, True, False, False]
    assert found[0].ip == "192.0.2.7"
    assert found[0].header("content-type") == "text/html"
    assert (found[4].truncated, found[4].meta) == ("time", CUT.meta)
    assert [entry.meta for entry in found[5:]] == [NO_ANSWER.meta, NOT_ASKED.meta]
    assert not any(entry.problem for entry in found)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(HTML)),
        ("deflate", zlib.compress(HTML)),
        ("br", brotli.compress(HTML)),
        ("zstd", zstd.compress(HTML)),
        ("gzip, br", brotli.compress(gzip.compress(HTML))),
        ("identity", HTML),
    ],
)
async def test_bodies_come_without_their_codings(tmp_path: Path, coding: str, body: bytes) -> None:
    coded = page("/coded", body, f"Content-Encoding: {coding}")
    kept = await chunk_file(tmp_path / "7.warc.gz", coded)
    [entry] = read_entries(kept.path)
    assert (entry.body, entry.problem) == (HTML, "")


async def test_bodies_are_cut_at_the_limit(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(range(256)) * 1000, 1)
    coded = page("/gzip", packed, "Content-Encoding: gzip")
    kept = await chunk_file(tmp_path / "7.warc.gz", page(body=HTML * 1000), coded)
    for entry in read_entries(kept.path, max_body=100_000):
        assert len(entry.body) == 100_000
        assert entry.truncated == "length"


async def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    bomb = gzip.compress(gzip.compress(bytes(100_000_000), 1), 1)
    coded = page("/bomb", bomb, "Content-Encoding: gzip, gzip")
    kept = await chunk_file(tmp_path / "7.warc.gz", coded, page())
    long = RECORD % (
        b"Content-Type: application/http\r\nContent-Length: 100000000",
        bytes(100_000_000),
    )
    with kept.path.open("ab") as file:
        file.write(gzip.compress(long, 1))
    del long
    tracemalloc.start()
    try:
        with pytest.raises(BadContent, match="no valid date"):
            for entry in read_entries(kept.path, max_body=1_000_000):
                assert len(entry.body) <= 1_000_000
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (gzip.compress(b"words"), "not a record"),
        (gzip.compress(b"words\r\n\r\n"), "not a record"),
        (gzip.compress(b"WARC/1.1\r\n" + b"a: b\r\n" * 200_000), "not a record"),
        (gzip.compress(b"WARC/1.1\r\nWARC-Type: response\r\n\r\n"), "no valid length"),
        (gzip.compress(RECORD % (b"Content-Length: -1", b"")), "no valid length"),
        (gzip.compress(RECORD % (b"Content-Length: 99999999999", b"")), "no valid length"),
        (gzip.compress(RECORD % (b"Content-Length: 5", b"four")), "wrong length"),
        (RECORD % (b"Content-Length: 5", b"four"), "wrong length"),
        (RECORD % (b"Content-Length: 9", b"four"), "wrong length"),
        (gzip.compress(RECORD % (b"Content-Length: 4", b"four") + b"words"), "not a record"),
        (
            gzip.compress(RECORD % (b"Content-Type: application/http\r\nContent-Length: 0", b"")),
            "no valid date",
        ),
    ],
)
def test_a_damaged_chunk_is_refused_with_a_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "7.warc.gz"
    path.write_bytes(data)
    with pytest.raises(BadContent, match=f"damaged from the start.*{reason}"):
        list(read_entries(path))


@pytest.mark.parametrize("data", [b"plain words", b"<html>", b"%PDF-1.7", b"PK\x03\x04"])
def test_another_file_is_not_a_warc_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "7.warc.gz"
    path.write_bytes(data)
    with pytest.raises(BadContent, match=r"^The content of chunk 7 from c:1 is not a WARC file"):
        list(read_entries(path, name="The content of chunk 7 from c:1"))


def members(data: bytes, records: int) -> bytes:
    """The records of an uncompressed file in gzip members with so many records each."""
    parts = [part + b"\r\n\r\n" for part in data.split(b"\r\n\r\nWARC/1.1")]
    parts = [part if not number else b"WARC/1.1" + part for number, part in enumerate(parts)]
    parts[-1] = parts[-1].removesuffix(b"\r\n\r\n")
    starts = range(0, len(parts), records)
    return b"".join(gzip.compress(b"".join(parts[at : at + records])) for at in starts)


@pytest.mark.parametrize("records", [0, 1, 2, 1000])
async def test_files_may_be_uncompressed_or_have_several_records_in_a_member(
    tmp_path: Path, records: int
) -> None:
    kept = await chunk_file(tmp_path / "7.warc.gz", *EVERY, page("/long", HTML * 1000))
    plain = gzip.decompress(kept.path.read_bytes())
    before = list(read_entries(kept.path))
    path = tmp_path / "8.warc"
    path.write_bytes(members(plain, records) if records else plain)
    assert list(read_entries(path)) == before
    path.write_bytes(path.read_bytes()[:-3])
    whole: list[WarcEntry] = []
    with pytest.raises(
        BadContent, match=f"8.warc is damaged after {len(before) - 1} complete pages"
    ):
        whole.extend(read_entries(path))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(read_entries(tmp_path / "7.warc.gz"))


def test_files_of_other_crawlers_can_be_read(tmp_path: Path) -> None:
    """WARC 1.0 with chunks left in the body, or taken out without a word; the request last, and no word of ours."""
    chunked = b"5;x=y\r\nHello\r\n7\r\n, world\r\n0\r\n\r\n"
    said = b"WARC-Target-URI: <http://example.com/>\r\nWARC-Date: 2020-04-04T11:46:32Z\r\n"
    parts = []
    for body in (chunked, b"Hello, world", chunked[:19]):
        block = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n" + body
        for kind in (b"response", b"request", b"metadata", b"resource"):
            type_ = b"warc-fields" if kind == b"metadata" else b"http; msgtype=" + kind
            lines = b"WARC-Type: %s\r\nContent-Type: application/%s\r\n" % (kind, type_)
            length = b"content-length: %d" % len(block)
            record = b"WARC/1.0\r\n%s%s%s\r\n\r\n%s\r\n\r\n" % (lines, said, length, block)
            parts.append(gzip.compress(record))
    path = tmp_path / "7.warc.gz"
    path.write_bytes(b"".join(parts))
    found = list(read_entries(path))
    assert [entry.body for entry in found] == [b"Hello, world", b"Hello, world", b"Hello, "]
    assert {(entry.kind, entry.url) for entry in found} == {("page", "http://example.com/")}
    assert {entry.at for entry in found} == {datetime(2020, 4, 4, 11, 46, 32, tzinfo=UTC)}


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=300), st.text(max_size=40), st.text(max_size=20))
def test_any_response_can_be_stored_and_read(
    tmp_path_factory: pytest.TempPathFactory, said: bytes, body: bytes, url: str, ip: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile.warc.gz"
    hostile = WarcPage(
        url=f"http://x/{url}", at=AT, request=said, head=b"H" + said, body=body, ip=ip
    )
    kept = b"".join(encode_page(hostile, b"<urn:uuid:0>") + encode_page(page(), b"<urn:uuid:0>"))
    path.write_bytes(kept)
    first, last = read_entries(path)
    assert "\n" not in first.url
    assert last.body == HTML


async def test_dates_are_universal_and_the_head_may_be_odd(tmp_path: Path) -> None:
    odd = WarcPage(
        url="http://example.com/",
        at=datetime(2026, 1, 1, tzinfo=UTC).astimezone(),
        head=b"HTTP/1.0 200\nX-A: 1\n  2\nx-a: 3\nnothing\n\n",
        body=b"body",
    )
    kept = await chunk_file(tmp_path / "7.warc.gz", odd, page("/b", b"", *["X: y"] * 9))
    first, _ = read_entries(kept.path)
    assert first.at == datetime(2026, 1, 1, tzinfo=UTC)
    assert (first.status, first.body, first.header("x-a")) == (200, b"body", "1 2, 3")
    assert head() == b"HTTP/1.1 200 OK\r\n\r\n"
