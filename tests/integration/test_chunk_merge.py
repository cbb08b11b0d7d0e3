"""Merging index chunks: wanted documents are copied unchanged, and damaged sources are refused."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from support.mgmt.chunk_trade import documents
from usher.anchor_text import MAX_INLINKS
from usher.errors import BadInput
from usher.index import chunk_file
from usher.index.chunk_documents import BuildJob, MergeSource
from usher.index.chunk_merge import merge_chunks
from usher.messages.builder import AnchorCount, PageLinks

LINKS = [f"https://a.com/{number}" for number in range(4)]


def source(directory: Path, chunk: int) -> Path:
    """Four pages, of which the last one is a PDF with two documents."""
    path = directory / f"{chunk}.idx"
    texts = [f"text {number} of {chunk}" for number in range(5)]
    made = documents(chunk, [*LINKS, LINKS[3]], texts)
    made[3:] = [
        replace(one, url=f"{one.url}#page={number}") for number, one in enumerate(made[3:], 1)
    ]
    chunk_file.write(path, chunk, made)
    return path


def job(directory: Path, *parts: MergeSource) -> BuildJob:
    return BuildJob(9, "", str(directory / "made" / "9.idx"), [], sources=list(parts))


def test_only_wanted_documents_are_taken_unchanged(tmp_path: Path) -> None:
    parts = [
        MergeSource(1, str(source(tmp_path, 1)), ["a.com/1", "a.com/without-text"]),
        MergeSource(2, str(source(tmp_path, 2)), ["a.com/0", "a.com/3"]),
    ]
    places: list[int] = []
    made = merge_chunks(job(tmp_path, *parts), places.append)
    assert (made.documents, places) == (4, [0, 1])
    header, found = chunk_file.read(tmp_path / "made" / "9.idx", 9)
    assert header.documents == 4
    assert [(one.key, one.body, one.chunk) for one in found] == [
        ("a.com/1", "text 1 of 1", 9),
        ("a.com/0", "text 0 of 2", 9),
        ("a.com/3", "text 3 of 2", 9),
        ("a.com/3", "text 4 of 2", 9),
    ]


def test_documents_with_inconsistent_urls_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "1.idx"
    good, other = documents(1, LINKS[:2], ["good", "other"])
    lies = [
        replace(good, url="https://bank.test/"),
        replace(good, host="bank.test"),
        replace(good, url=f"{LINKS[0]}#again"),
        replace(good, body="copy"),
        replace(other, key=good.key),
    ]
    chunk_file.write(path, 1, [good, *lies, other])
    assert (
        merge_chunks(job(tmp_path, MergeSource(1, str(path), [good.key])), lambda _: None).documents
        == 1
    )
    _, found = chunk_file.read(tmp_path / "made" / "9.idx", 9)
    assert [one.body for one in found] == ["good"]


def test_a_merge_without_documents_is_empty(tmp_path: Path) -> None:
    assert merge_chunks(job(tmp_path), lambda _: None).documents == 0


def test_a_damaged_or_wrong_source_is_refused(tmp_path: Path) -> None:
    path = source(tmp_path, 1)
    with pytest.raises(BadInput, match="holds chunk 1, not 2"):
        merge_chunks(job(tmp_path, MergeSource(2, str(path), ["a.com/0"])), lambda _: None)
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    with pytest.raises(BadInput, match="checksum"):
        merge_chunks(job(tmp_path, MergeSource(1, str(path), ["a.com/0"])), lambda _: None)
    assert not (tmp_path / "made" / "9.idx").exists()


def test_sources_that_are_too_large_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [MergeSource(n, str(source(tmp_path, n)), ["a.com/3"]) for n in (1, 2)]
    monkeypatch.setattr(chunk_file, "MAX_TOTAL_BYTES", 1_000)
    with pytest.raises(BadInput, match="too large for one chunk"):
        merge_chunks(job(tmp_path, *parts, *parts, *parts), lambda _: None)


def test_the_present_anchors_replace_the_old_ones(tmp_path: Path) -> None:
    """Of a PDF with two documents the first has the texts; what MGMT says nothing about stays as it is."""
    links = [
        PageLinks("a.com/1", 2, 3, [AnchorCount("lighthouse", 3)]),
        PageLinks("a.com/2"),
        PageLinks("a.com/3", 1, 99_999, [AnchorCount("x" * 500, 9_999)] * 30),
    ]
    old = source(tmp_path, 1)
    _, stored = chunk_file.read(old, 1)
    known = [replace(one, anchors=(("old", 1),), inlinks=1) for one in stored]
    chunk_file.write(old, 1, known)
    wanted = MergeSource(1, str(old), ["a.com/0", "a.com/1", "a.com/2", "a.com/3"])
    merge_chunks(replace(job(tmp_path, wanted), links=links), lambda _: None)
    _, merged = chunk_file.read(tmp_path / "made" / "9.idx", 9)
    assert [(one.url, one.anchors, one.inlinks, one.depth) for one in merged] == [
        ("https://a.com/0", (("old", 1),), 1, 0),
        ("https://a.com/1", (("lighthouse", 3),), 3, 2),
        ("https://a.com/2", (), 0, 0),
        ("https://a.com/3#page=1", (("x" * 100, 32),) * 20, MAX_INLINKS, 1),
        ("https://a.com/3#page=2", (), MAX_INLINKS, 1),
    ]
