"""Content chunks: readable by any WARC tool, and never partial after a failure."""

import asyncio
import hashlib
import subprocess
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from support.index.chunk_files import EVERY, GZIPPED, HTML, chunk_file, noise, page, small_disk
from usher.chunk_store import ChunkStore
from usher.crawl.warc.reader import WarcEntry, read_entries
from usher.crawl.warc.writer import WarcWriter
from usher.errors import BadContent, DiskUnusable

warcio: Any = import_module("warcio.archiveiterator")  # it has no types
with warnings.catch_warnings(
    action="ignore"
):  # of names that it has only for those who knew it earlier
    fast: Any = import_module("fastwarc.warc")
TYPES = [
    "warcinfo",
    *("request", "response"),
    *("request", "response"),
    *("request", "metadata", "revisit"),
    *("request", "revisit"),
    *("request", "metadata", "response"),
    *("request", "metadata"),
    "metadata",
]


async def test_the_file_says_what_is_in_it(tmp_path: Path) -> None:
    kept = await chunk_file(tmp_path / "000" / "7.warc.gz", *EVERY)
    data = kept.path.read_bytes()
    assert kept.size == len(data)
    assert kept.sha256 == hashlib.sha256(data).hexdigest()
    assert [path.name for path in kept.path.parent.iterdir()] == ["7.warc.gz"]


async def test_warcio_reads_it_and_finds_every_digest_right(tmp_path: Path) -> None:
    kept = await chunk_file(tmp_path / "7.warc.gz", *EVERY)
    found = []
    with kept.path.open("rb") as file:
        for record in warcio.ArchiveIterator(file, check_digests="raise"):
            body = record.content_stream().read()
            found.append((record.rec_type, record.rec_headers, record.http_headers, body))
    assert [kind for kind, *_ in found] == TYPES
    _, info, _, about = found[0]
    assert info.get_header("WARC-Filename") == "7.warc.gz"
    for line in (b"software: Usher/", b"WARC File Format 1.1", b"robots: obey", b"The House"):
        assert line in about
    _, warc, http, body = found[4]
    assert body == HTML
    assert warc.get_header("WARC-Target-URI") == GZIPPED.url
    assert warc.get_header("WARC-Date") == "2026-11-16T12:30:15.123456Z"
    assert warc.get_header("WARC-IP-Address") == "192.0.2.7"
    assert warc.get_header("WARC-Concurrent-To") == found[3][1].get_header("WARC-Record-ID")
    assert warc.get_header("WARC-Warcinfo-ID") == info.get_header("WARC-Record-ID")
    assert http.get_header("X-Crawler-Transfer-Encoding") == "chunked"
    assert http.get_header("Content-Length") == str(len(GZIPPED.body))


async def test_warcio_finds_why_content_is_not_there(tmp_path: Path) -> None:
    kept = await chunk_file(tmp_path / "7.warc.gz", *EVERY)
    with kept.path.open("rb") as file:
        heads = [record.rec_headers for record in warcio.ArchiveIterator(file)]
    unmodified, same, cut = heads[7], heads[9], heads[12]
    assert unmodified.get_header("WARC-Profile").endswith("1.1/revisit/server-not-modified")
    assert unmodified.get_header("WARC-Refers-To-Date") == "2026-11-09T12:30:15.123456Z"
    assert same.get_header("WARC-Profile").endswith("1.1/revisit/identical-payload-digest")
    assert same.get_header("WARC-Payload-Digest") == heads[2].get_header("WARC-Payload-Digest")
    assert same.get_header("WARC-Refers-To-Target-URI") == "https://example.com/a"
    assert cut.get_header("WARC-Truncated") == "time"


async def test_fastwarc_reads_it_too(tmp_path: Path) -> None:
    kept = await chunk_file(tmp_path / "7.warc.gz", *EVERY)
    types, bodies = [], []
    with kept.path.open("rb") as file:
        for record in fast.ArchiveIterator(file, parse_http=False):
            types.append(record.headers.get("WARC-Type"))
            assert record.verify_block_digest()
        file.seek(0)
        for record in fast.ArchiveIterator(file, record_types=fast.response, auto_decode="all"):
            bodies.append(record.reader.read())  # noqa: PERF401 - a reader is good until the next one
    assert types == TYPES
    assert bodies == [HTML, HTML, HTML]


def test_gzip_decompresses_it(tmp_path: Path) -> None:
    kept = asyncio.run(chunk_file(tmp_path / "7.warc.gz", *EVERY))
    done = subprocess.run(["gzip", "-dc", kept.path], capture_output=True, check=True)
    assert done.stdout.count(b"WARC/1.1\r\n") == len(TYPES)


async def test_pages_may_be_added_concurrently(tmp_path: Path) -> None:
    bodies = [noise(one, 40_000 * one) for one in range(12)]
    writer = WarcWriter(tmp_path / "7.warc.gz")
    await asyncio.gather(*(writer.add(page(f"/{n}", body)) for n, body in enumerate(bodies)))
    kept = await writer.close()
    found = {entry.url: entry.body for entry in read_entries(kept.path)}
    assert found == {f"https://example.com/{n}": body for n, body in enumerate(bodies)}


async def test_a_discarded_file_leaves_nothing(tmp_path: Path) -> None:
    writer = WarcWriter(tmp_path / "7.warc.gz")
    await writer.add(page(body=noise(1, 1_000_000)))
    assert len(list(tmp_path.iterdir())) == 1
    writer.discard()
    assert not list(tmp_path.iterdir())
    with pytest.raises(DiskUnusable, match="was discarded"):
        await writer.close()
    kept = await chunk_file(tmp_path / "8.warc.gz", page())
    assert kept.path.exists()


async def test_the_disk_does_not_block_the_loop(tmp_path: Path) -> None:
    writer = WarcWriter(tmp_path / "7.warc.gz")
    await writer.add(page(body=noise(1, 10_000_000)))
    longest, beaten = 0.0, time.monotonic()
    closing = asyncio.create_task(writer.close())
    while not closing.done():
        await asyncio.sleep(0)
        now = time.monotonic()
        longest, beaten = max(longest, now - beaten), now
    assert (await closing).size > 10_000_000
    assert longest < 0.5


WRITES = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.index.chunk_files import EVERY, chunk_file, page
from usher.chunk_store import ChunkStore
async def main():
    shelf = ChunkStore(Path(sys.argv[1]))
    for number in range(100_000):
        await chunk_file(shelf.path(number), *EVERY, page(body=bytes(600_000)), *EVERY)
        print(number, flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("moment", [0, 0.011, 0.023, 0.037])
def test_a_kill_leaves_no_partial_file(tmp_path: Path, moment: float) -> None:
    tests = Path(__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES, tmp_path, tests], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(moment)
    process.kill()
    said, _ = process.communicate(timeout=30)
    shelf = ChunkStore(tmp_path)
    shelf.remove_leftovers()
    assert not list(tmp_path.rglob("*.part"))
    told = [int(line) for line in said.split()]
    assert set(told) <= set(shelf.chunks())
    for chunk in shelf.chunks():
        assert len(list(read_entries(shelf.path(chunk)))) == 2 * len(EVERY) + 1


async def test_a_full_disk_fails_one_chunk(tmp_path: Path) -> None:
    shelf = ChunkStore(tmp_path)
    with small_disk(tmp_path, "2m"):
        before = await chunk_file(shelf.path(1), *EVERY)
        writer = WarcWriter(shelf.path(2))
        with pytest.raises(DiskUnusable, match="No space left") as caught:
            for number in range(100):
                await writer.add(page(body=noise(number, 100_000)))
        assert "free space" in caught.value.hint
        with pytest.raises(DiskUnusable):
            await writer.close()
        writer.discard()
        assert shelf.chunks() == [1]
        assert not list(tmp_path.rglob("*.part"))
        assert hashlib.sha256(before.path.read_bytes()).hexdigest() == before.sha256
        after = await chunk_file(shelf.path(3), page(body=bytes(500_000)))
        assert len(list(read_entries(after.path))) == 1


def read(path: Path) -> tuple[list[WarcEntry], str]:
    """What can be read, and why there is no more."""
    found: list[WarcEntry] = []
    try:
        found.extend(read_entries(path))
    except BadContent as error:
        return found, error.message
    return found, ""


async def test_a_truncated_file_yields_its_complete_pages(tmp_path: Path) -> None:
    kept = await chunk_file(tmp_path / "7.warc.gz", *EVERY)
    data, (whole, _) = kept.path.read_bytes(), read(kept.path)
    cut, most, silent = tmp_path / "cut.warc.gz", 0, 0
    for size in range(0, len(data), 29):
        cut.write_bytes(data[:size])
        found, why = read(cut)
        assert found == whole[: len(found)]
        assert len(found) >= most
        most, silent = len(found), silent + (not why)
    assert most == len(whole) - 1
    assert silent < len(
        TYPES
    )  # cut right between two records: only the checksum of the whole knows


async def test_a_damaged_byte_never_passes_for_content(tmp_path: Path) -> None:
    kept = await chunk_file(tmp_path / "7.warc.gz", *EVERY)
    data, (whole, _) = kept.path.read_bytes(), read(kept.path)
    bad, noticed, places = tmp_path / "bad.warc.gz", 0, range(0, len(data), 41)
    for place in places:
        bad.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        found, why = read(bad)
        noticed += bool(why)
        assert found == whole[: len(found)]
    assert noticed > 0.9 * len(places)  # all but those bytes of gzip's own head that mean nothing
