"""Chunk files that attack their reader: index chunks of a hostile builder, content chunks of a hostile crawler."""

import gzip
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from support.index.chunk_files import page as stored_page
from support.mgmt.chunk_trade import Trade, component, free_bind, soon, trading
from support.processes.crawls import EMBEDDED
from support.processes.measured import MIB, PYTHON, index_file, measured, peak_bytes_of
from support.site.hostile import forever
from support.site.website import Website, head
from usher.errors import BadContent
from usher.http.client import download
from usher.index.chunk_file import MAX_DOCUMENTS
from usher.index.document import IndexDocument, IndexSection

NOW = datetime(2026, 11, 16, tzinfo=UTC)


# -- index chunks from a hostile builder


def document(**fields: object) -> bytes:
    good = {"key": "a.org/", "url": "https://a.org/", "host": "a.org", "chunk": 7, "crawled": NOW}
    return msgspec.msgpack.encode({**good, "body": "some words", **fields})


def nested(depth: int) -> bytes:
    """A document with a field that is not known, and deep."""
    return b"\x87" + document()[1:] + b"\xa1x" + b"\x91" * depth + b"\xc0"


def many(record: bytes, number: int) -> tuple[list[bytes], int]:
    return [record] * number, number


Bomb = Callable[[], tuple[list[bytes], int]]
BOMBS: dict[str, tuple[Bomb, str]] = {
    "headings": (lambda: many(document(headings=[""] * 8_000_000), 1), "of length <= 200"),
    "title": (lambda: many(document(title="a " * 4_000_000), 1), "of length <= 1000"),
    "host": (lambda: many(document(host="a." * 400_000), 1), "of length <= 253"),
    "body": (lambda: many(document(body="a " * 4_000_000), 1), "of length <= 1000000"),
    "document": (lambda: many(document(body="a" * (60 * MIB)), 1), "more than 8,388,608"),
    "total": (lambda: many(document(body="a" * 999_999), 600), "exceed 536,870,912"),
    "count": (lambda: many(document(), 2 * MAX_DOCUMENTS), "documents, more than 50,000"),
    "header": (lambda: ([document()], 2**32 - 1), "documents, more than 50,000"),
    "nested": (lambda: many(nested(1_000_000), 1), "recursion"),
    "no text": (lambda: many(document(title=b"\xff\xfe"), 1), "is not what its header says"),
    "not utf-8": (
        lambda: many(document(title="abcd").replace(b"abcd", b"ab\xff\xfe"), 1),
        "is not what its header says",
    ),
    "no zone": (lambda: many(document(crawled="0001-01-01T00:00:00"), 1), "timezone"),
}
LOAD = """
import sys
from pathlib import Path
from usher.errors import BadInput
from usher.index import chunk_file
from usher.index.tantivy_engine import TantivyEngine
engine = TantivyEngine.open(Path(sys.argv[2]))
try:
    engine.add(7, chunk_file.read(Path(sys.argv[1]), 7)[1])
except BadInput as error:
    print(type(error).__name__, error.message)
engine.commit()
print(engine.chunks(), engine.documents)
engine.close()
"""


@pytest.mark.attack(
    9,
    "a builder serves an index chunk of a few hundred kB that unpacks to gigabytes, or breaks the decoder",
    "the reader refuses it by a limit and needs less than 400 MB",
)
@pytest.mark.parametrize("name", BOMBS)
def test_an_index_chunk_bomb_is_refused(tmp_path: Path, name: str) -> None:
    bomb, words = BOMBS[name]
    path = tmp_path / "7.idx"
    path.write_bytes(index_file(7, *bomb()))
    assert path.stat().st_size < MIB
    done = measured([*PYTHON, LOAD, path, tmp_path / "engine"])
    assert done.code == 0, done.err
    assert done.out.startswith(b"UnsoundChunk 7.idx "), done
    assert words in done.out.decode()
    assert done.out.endswith(b"set() 0\n"), "nothing of it is loaded"
    assert done.peak_bytes < 400 * MIB


LOAD_HEADINGS = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from usher.index.document import IndexDocument
from usher.index.tantivy_engine import TantivyEngine
headings = ("a b c d e " * 30,) * 200
documents = (
    IndexDocument(f"a.org/{n}", f"https://a.org/{n}", "a.org", 7, datetime.now(UTC), headings=headings)
    for n in range(100)
)
engine = TantivyEngine.open(Path(sys.argv[1]))
engine.add(7, documents)
engine.commit()
print(engine.chunks(), engine.documents)
engine.close()
"""


@pytest.mark.attack(
    9,
    "a site has pages with 200 headings of 150 words, which count for the average length of a document",
    "100 such pages load in less than 400 MB",
)
def test_many_headings_need_bounded_memory(tmp_path: Path) -> None:
    done = measured([*PYTHON, LOAD_HEADINGS, tmp_path / "engine"])
    assert (done.code, done.out) == (0, b"{7} 100\n"), done
    assert done.peak_bytes < 400 * MIB


@pytest.fixture
async def trade(database: str, tmp_path: Path) -> AsyncIterator[Trade]:
    async with trading(database, tmp_path) as made:
        yield made


async def served_bomb(trade: Trade, records: Bomb) -> int:
    """A chunk that a builder reports as built, with this file."""
    chunk = await trade.crawl(stored_page("/0"))
    assert [one.chunk_id for one in await trade.builder.get_content_chunks()] == [chunk]
    path = trade.index.path(chunk)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(index_file(chunk, *records()))
    file = trade.index.find(chunk)
    assert file
    await trade.builder.built(chunk, sha256=file.sha256, size=file.size)
    return chunk


@EMBEDDED
@pytest.mark.attack(
    9,
    "a builder reports an index chunk that is a bomb to MGMT",
    "the index server does not load it and tells MGMT why; other chunks load, and it is built again or parked",
)
async def test_an_index_server_survives_bombs_and_reports_them(
    trade: Trade, tmp_path: Path
) -> None:
    bind = free_bind()
    words = ("index-server", "--row", "1", "--bind", str(bind))
    event = "select count(*) from work.event where kind = 'index_missing' and chunk_id = %s and reason like %s"
    loaded = "select count(*) from work.placement where chunk_id = %s and state = 'loaded'"
    there = "select count(*) from work.component where row = 1"
    data = tmp_path / "server"
    data.mkdir()
    with component(trade, data, *words) as server:
        assert await soon(lambda: trade.ask(there) == [(1,)], 60)
        for name in ("headings", "nested", "not utf-8", "count"):
            bomb = await served_bomb(trade, BOMBS[name][0])
            told = await soon(lambda bomb=bomb: trade.ask(event, bomb, "%.idx %") == [(1,)], 60)  # type: ignore[misc]
            assert told, (name, (data / "components.log").read_text()[-2000:])
            assert trade.ask(loaded, bomb) == [(0,)]
        good = await trade.build("cobalt words")
        assert await soon(lambda: trade.ask(loaded, good) == [(1,)], 60)
        assert server.poll() is None
        assert peak_bytes_of(server.pid) < 500 * MIB
    log = (data / "components.log").read_text()
    assert log.count("chunk_not_sound") == 4
    assert "index_not_written" not in log


# -- downloads


@pytest.mark.attack(
    9,
    "a component offers a chunk file that fills the disk",
    "it is refused before the download, by what MGMT knows or by its length, and while it comes",
)
async def test_a_file_that_is_too_large_is_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    pages = {
        "/index_chunk/1": forever(head(200, {"Content-Length": str(2 << 30)}), block),
        "/index_chunk/2": forever(head(200, {"Transfer-Encoding": "chunked"}), block),
    }
    with Website(pages) as web:
        base = f"127.0.0.1:{web.port}"
        with pytest.raises(BadContent, match="too large"):
            await download.download_chunk(base, 1, "index", tmp_path / "1", "ab" * 32, size=2 << 30)
        assert web.log == []
        with pytest.raises(BadContent, match="longer than 1,073,741,824 bytes"):
            await download.download_chunk(base, 1, "index", tmp_path / "1")
        monkeypatch.setitem(download.MAX_FILE_BYTES, "index", MIB)
        with pytest.raises(BadContent, match="longer than 1,048,576 bytes"):
            await download.download_chunk(base, 2, "index", tmp_path / "2")
    assert list(tmp_path.iterdir()) == []


# -- content chunks from a hostile crawler


def record(kind: bytes, content: bytes, block: bytes) -> bytes:
    fields = (
        b"WARC-Type: %b\r\nWARC-Target-URI: https://a.org/\r\nWARC-Date: 2026-11-16T00:00:00Z\r\n"
        % kind
    )
    whole = b"WARC/1.1\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b\r\n\r\n"
    return gzip.compress(whole % (fields, content, len(block), block), 1)


HTTP = b"application/http;msgtype=response"
GOOD = record(
    b"response", HTTP, b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<title>Good</title>"
)
KEYS = ["a.org/"]
JSON = b"application/json"
CONTENT: dict[str, tuple[Callable[[], bytes], str]] = {
    "record": (lambda: record(b"response", HTTP, bytes(1025 * MIB)), "more than 1,073,741,824"),
    "metadata": (
        lambda: record(b"metadata", JSON, b"[" + b"[]," * 6_000_000 + b"0]"),
        "metadata of a page",
    ),
    "count": (lambda: record(b"resource", JSON, b"") * 100_001, "more than 100,000 records"),
    "head": (
        lambda: record(
            b"response", HTTP, b"HTTP/1.1 200 OK\r\n" + b"a:\n" * 6_000_000 + b"\r\n\r\n"
        ),
        "",
    ),
    "body": (
        lambda: record(
            b"response",
            HTTP,
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n"
            + gzip.compress(bytes(300 * MIB), 1),
        ),
        "",
    ),
}


@pytest.mark.attack(
    9,
    "a crawler serves a content chunk that unpacks to gigabytes, by one record or by very many",
    "the builder refuses it by a limit, or leaves the page out, and needs less than 400 MB",
)
@pytest.mark.parametrize("name", CONTENT)
def test_a_content_chunk_bomb_is_refused(tmp_path: Path, name: str) -> None:
    bomb, words = CONTENT[name]
    content, index = tmp_path / "7.warc.gz", tmp_path / "7.idx"
    content.write_bytes(bomb() + GOOD)
    given = {"chunk": 7, "content": str(content), "index": str(index), "keys": KEYS}
    job = json.dumps(given).encode()
    process = subprocess.Popen(
        [sys.executable, "-m", "usher.index.build_worker", str(4 << 30)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(job + b"\n")
        process.stdin.flush()
        told: dict[str, object] = {}
        while not {"built", "error"} & set(told):
            told = json.loads(process.stdout.readline())
        peak_bytes = peak_bytes_of(process.pid)
    finally:
        process.kill()
        process.communicate()
    if words:
        assert words in str(told["error"])
    else:
        assert told["built"]["documents"] == 1, "the good page"  # type: ignore[index]
    assert peak_bytes < 400 * MIB


def test_a_document_within_the_limits_is_read() -> None:
    """The limits of the reader are those of the largest document that a builder makes."""
    largest = IndexDocument(
        key="k" * 2_200, url="u" * 2_260, host="h" * 253, chunk=7, crawled=NOW,
        title="\u6771" * 1_000, headings=("\u6771" * 1_000,) * 200, body="\U0001f600" * 1_000_000,
        description="\u6771" * 1_000, language="de", published=NOW, canonical="c" * 2_260,
        rest="\U0001f600" * 50_000, sections=(IndexSection("a" * 200, "\u6771" * 300, 1_000_000, 1_000_000),) * 500,
    )  # fmt: skip
    data = msgspec.msgpack.encode(largest)
    assert len(data) < 8 * MIB
    assert msgspec.msgpack.decode(data, type=IndexDocument) == largest
