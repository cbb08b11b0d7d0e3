"""Worker processes turn pages into documents; a page that crashes its worker affects no other page."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from support.index.chunk_files import (
    NO_ANSWER,
    NOT_ASKED,
    UNMODIFIED,
    chunk_file,
    head,
    page,
)
from support.mgmt.chunk_trade import SMALL, texts_of, titled
from support.processes.killable import running
from support.site.hostile import pdf
from usher.index import chunk_file as chunkfile
from usher.index.build_pool import BuildLimits, BuildPool, BuildWorker
from usher.index.build_worker import WorkerMessage
from usher.index.chunk_documents import BuildJob, build_chunk, page_key
from usher.messages.components import ForeignPages
from usher.urls import Url, parse


async def test_fetched_pages_become_documents(tmp_path: Path) -> None:
    content, index = tmp_path / "7.warc.gz", tmp_path / "0" / "7.idx"
    paper = replace(
        titled("/paper", "-", "Content-Type: application/pdf"), body=pdf("First", "Second")
    )
    paper = replace(paper, head=head("Content-Type: application/pdf"))
    await chunk_file(
        content,
        titled("/good", "Good"),
        titled("/twice", "Before"),
        titled("/twice", "After"),
        replace(page("/foreign", SMALL % b"Foreign"), meta={}),
        paper,
        titled("/hidden", "Hidden", meta={"result": "success", "noindex": True}),
        titled("/asks", "Asks", "X-Robots-Tag: noindex"),
        titled("/same", "Same", meta={"result": "unchanged"}),
        titled("/lost", "Lost", head=head("Content-Type: text/html", status="404 Not Found")),
        titled("/moved", "Moved", meta={"result": "moved"}),
        replace(page("/empty", b""), meta={"result": "success"}),
        titled("/cut", "Cut", truncated="time"),
        UNMODIFIED,
        NO_ANSWER,
        NOT_ASKED,
        replace(page(), url="javascript:1"),
        titled("/reported-as-gone", "Reported as gone"),
        replace(titled("/", "Never given"), url="https://bank.test/"),
    )
    places: list[int] = []
    own = ("good", "twice", "foreign", "paper", "hidden", "asks", "empty", "cut")
    keys = [f"example.com/{name}" for name in own]
    job = BuildJob(7, str(content), str(index), keys, ["example.com/reported-as-gone"])
    made = build_chunk(job, places.append)
    found = {
        url.removeprefix("https://example.com"): title for url, title in texts_of(index, 7).items()
    }
    assert found == {
        "/good": "Good",
        "/twice": "After",
        "/foreign": "Foreign",
        "/paper#page=1": "paper, page 1",
        "/paper#page=2": "paper, page 2",
        "/empty": "empty",
        "/cut": "Cut",
    }
    assert (made.documents, made.size) == (7, index.stat().st_size)
    assert made.skipped == {
        "unchanged": 2,
        "noindex": 2,
        "not fetched": 4,
        "not a web address": 1,
        "not reported as fetched": 1,
    }
    assert made.foreign == ForeignPages(7, 1, ["https://bank.test/"])
    assert places == list(range(18))


def test_http_and_https_have_the_same_key() -> None:
    urls = [
        parse(f"{scheme}://Example.com:{port}/a?b#c")
        for scheme, port in (("http", 80), ("https", 443))
    ]
    assert {page_key(url) for url in urls if isinstance(url, Url)} == {"example.com/a?b"}


async def hostile(path: Path) -> BuildJob:
    """A chunk whose second page takes a second to read."""
    slow = b"<title>Slow</title>" + b"<div><p>word <b>bold</b>" * 400_000
    await chunk_file(
        path, titled("/a", "A"), replace(titled("/b", "B"), body=slow), titled("/c", "C")
    )
    keys = [f"example.com/{name}" for name in "abc"]
    return BuildJob(7, str(path), str(path.with_suffix(".idx")), keys)


def sent_at(place: int, sign: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Send a signal to the first worker that comes to this page; whom it was sent to."""
    line, sent = BuildWorker._receive, list[int]()

    async def watched(
        worker: BuildWorker, process: asyncio.subprocess.Process, at: int | None
    ) -> WorkerMessage:
        if at == place and not sent:
            sent.append(process.pid)
            os.kill(process.pid, sign)
        return await line(worker, process, at)

    monkeypatch.setattr(BuildWorker, "_receive", watched)
    return sent


async def test_a_page_that_takes_too_long_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await hostile(tmp_path / "chunk")
    async with BuildPool(1, BuildLimits(page=2)) as pool:
        frozen = sent_at(1, signal.SIGSTOP, monkeypatch)
        made = await pool.build(job)
    assert made.skipped == {"it takes longer than 2 seconds": 1}
    assert sorted(texts_of(Path(job.index), 7).values()) == ["A", "C"]
    assert not any(map(running, frozen))


async def test_a_page_that_needs_too_much_memory_is_skipped(tmp_path: Path) -> None:
    job = await hostile(tmp_path / "chunk")
    async with BuildPool(1, BuildLimits(memory=500_000_000)) as pool:
        made = await pool.build(job)
    assert made.documents >= 2
    assert "A" in texts_of(Path(job.index), 7).values()
    assert "C" in texts_of(Path(job.index), 7).values()


async def test_a_worker_that_crashes_is_replaced_and_only_its_page_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await hostile(tmp_path / "chunk")
    async with BuildPool(1) as pool:
        await pool.build(msgspec.structs.replace(job, skip={1: "not now"}))
        [worker] = workers()
        killed = sent_at(1, signal.SIGKILL, monkeypatch)
        made = await pool.build(job)
        [other] = workers()
    assert killed[0] == worker
    assert made.skipped == {"it ended the process that read it (SIGKILL)": 1}
    assert made.documents == 2
    assert not running(other)
    assert other != worker


def workers() -> list[int]:
    """The workers that this process has started."""
    text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    children = [int(pid) for pid in text.split()]
    return [
        pid
        for pid in children
        if b"usher.index.build_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


async def test_pages_beyond_the_limits_of_an_index_chunk_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, index = tmp_path / "7.warc.gz", tmp_path / "7.idx"
    await chunk_file(content, *(titled(f"/{number}", f"Page {number}") for number in range(5)))
    keys = [f"example.com/{number}" for number in range(5)]
    job = BuildJob(7, str(content), str(index), keys)
    monkeypatch.setattr(chunkfile, "MAX_DOCUMENTS", 3)
    made = build_chunk(job, lambda _: None)
    assert (made.documents, made.skipped) == (3, {"the index chunk is full": 2})
    monkeypatch.setattr(chunkfile, "MAX_TOTAL_BYTES", 400)
    made = build_chunk(job, lambda _: None)
    assert made.documents in {1, 2}
    assert made.skipped == {"the index chunk is full": 5 - made.documents}
